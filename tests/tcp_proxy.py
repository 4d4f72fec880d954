"""A TCP proxy that misbehaves when told to, for tests of what a client does on a bad network.

It runs on a thread and an event loop of its own; every knob may be turned from any thread, while data flows:

* `cut()` ends every connection with RST; `refuse` does so with every new one;
* `delay` (a range of seconds) holds every piece of data back, both ways, in order;
* `mute()` swallows all that the server says, so that connections are half-open: the server hears, the client does not.
  What was swallowed never comes back: a connection that was muted stays so, also after `unmute()`;
* `on(words, …)` cuts one connection at the instant when the client sends a statement with these words in it: either
  `before` the server has seen it, or when the server's `answer` comes, which the client then never hears.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Literal, Self

CHUNK = 1 << 16
_RST = struct.pack("ii", 1, 0)  # linger for 0 seconds: close() sends RST
# PostgreSQL's Parse message: the name of a prepared statement, and its text.
_PARSE = re.compile(rb"P.{4}([^\0]+)\0([^\0]+)\0", re.DOTALL)


class Link:
    """One connection through the proxy."""

    def __init__(self, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.ends = (client, server)
        self.muted = False
        self.doomed = False  # the next answer is swallowed, and the connection cut
        self.statements: dict[bytes, bytes] = {}

    def says(self, data: bytes, words: bytes) -> bool:
        """Whether the client sends these words, or a prepared statement that has them."""
        if words in data:
            return True
        return any(words in text and name in data for name, text in self.statements.items())

    def cut(self) -> None:
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
            end.transport.abort()


class Trap:
    """Waits for words of a client, a number of times, and counts how often it was sprung."""

    def __init__(self, words: bytes, when: Literal["before", "answer"], times: int, chance: float) -> None:
        self.words = words
        self.when = when
        self.left = times
        self.chance = chance
        self.sprung = 0

    def springs(self) -> bool:
        if self.left == 0 or random.random() > self.chance:
            return False
        self.left -= 1
        self.sprung += 1
        return True


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._links: set[Link] = set()
        self._traps: list[Trap] = []
        self._muting = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)
        self.port = 0
        self.refuse = False
        self.delay: tuple[float, float] | None = None
        self.accepted = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._ask(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._ask(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # Knobs -----------------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """RST for every connection; answers with how many there were."""
        return self._ask(self._cut())

    def mute(self) -> None:
        self._ask(self._mute())

    def unmute(self) -> None:
        self._muting = False

    def on(self, words: bytes, when: Literal["before", "answer"], *, times: int = 1, chance: float = 1.0) -> Trap:
        trap = Trap(words, when, times, chance)
        self._traps.append(trap)
        return trap

    def clear(self) -> None:
        """No traps any more."""
        self._traps = []

    # On its own loop -------------------------------------------------------------------------------------------------

    def _ask(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _close(self) -> None:
        self._server.close()
        await self._cut()
        self.delay = None
        while self._links:
            await asyncio.sleep(0.01)  # each ends by itself, now that both its ends are gone

    async def _cut(self) -> int:
        links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    async def _mute(self) -> None:
        self._muting = True
        for link in self._links:
            link.muted = True

    async def _serve(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            if self.refuse:
                raise ConnectionRefusedError
            from_server, server = await asyncio.open_connection(*self._to)
        except OSError:
            Link(client, client).cut()
            return
        link = Link(client, server)
        link.muted = self._muting
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(from_client, server, lambda data: self._to_server(link, data)),
                self._pump(from_server, client, lambda data: self._to_client(link, data)),
            )
        except OSError:
            pass  # one end is gone, by our hand or its own: so is the other
        finally:
            self._links.discard(link)
            link.cut()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, check: Callable[[bytes], bytes]
    ) -> None:
        while data := await source.read(CHUNK):
            if self.delay is not None:
                await asyncio.sleep(random.uniform(*self.delay))
            if data := check(data):
                sink.write(data)
                await sink.drain()
        raise ConnectionResetError  # the end of one direction ends both: nobody here closes by halves

    def _to_server(self, link: Link, data: bytes) -> bytes:
        link.statements.update(_PARSE.findall(data))
        for trap in self._traps:
            if link.says(data, trap.words) and trap.springs():
                if trap.when == "before":
                    raise ConnectionResetError
                link.doomed = True
        return data

    def _to_client(self, link: Link, data: bytes) -> bytes:
        if link.doomed:
            raise ConnectionResetError
        return b"" if link.muted else data
