"""Proxy: stands between a client and a PostgreSQL server, and counts what the client waits for.

In PostgreSQL's protocol a client sends messages of a type, a length and a body. The server answers when it has seen a
Query or a Sync: so many of these, so many round trips, whatever else was sent along.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Self

_WAITED_FOR = {ord("Q"), ord("S")}
_ENCRYPTION = {80877103, 80877104}  # the server says no with one byte, and the client starts again


class Proxy:
    """At `address`, which is a folder and a port as the harness names servers, for the server at another one."""

    def __init__(self, server: str, folder: Path) -> None:
        directory, port = server.rsplit(":", 1)
        self._server = f"{directory}/.s.PGSQL.{port}"
        self._own = folder / f".s.PGSQL.{port}"
        self.address = f"{folder}:{port}"
        self.trips = 0
        self._open: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._listener = await asyncio.start_unix_server(self._pass_on, str(self._own))

    async def _end(self) -> None:
        self._listener.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _pass_on(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        assert own is not None
        self._open.add(own)
        server, to_server = await asyncio.open_unix_connection(self._server)
        back = asyncio.ensure_future(_copy(server, to_client))
        try:
            while True:
                head = await client.readexactly(8)
                length, code = int.from_bytes(head[:4], "big"), int.from_bytes(head[4:], "big")
                to_server.write(head + await client.readexactly(length - 8))
                if code not in _ENCRYPTION:
                    break
            while True:
                head = await client.readexactly(5)
                self.trips += head[0] in _WAITED_FOR
                to_server.write(head + await client.readexactly(int.from_bytes(head[1:], "big") - 4))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has gone
        finally:
            to_server.close()
            to_client.close()
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
            self._open.discard(own)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while some := await source.read(1 << 16):
        target.write(some)
    target.close()
