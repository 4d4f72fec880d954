"""Wakes: who is told that something changed, in this process and in the others.

In this process, a listener is called right after the commit. Other processes hear by NOTIFY, which is sent after the
commit and never inside it: a NOTIFY holds one lock of the whole database through its commit's flush, and sixteen
callers that each notify are three times slower than without. So it goes out from a connection of its own whose commits
do not wait for the disk, the first at once and then at most one per queue in five milliseconds. A lone job of a process
that only enqueues tells of itself, in the round trip that writes it and right after the commit (0013_told.sql).

One thread with one connection does all of it, in a process that listens and in one that only enqueues.

A Wake is a hint. It may be late, doubled or lost, and a pod polls all the same. Behind a transaction pooler nothing is
ever heard, without an error: the listener says a word to itself every ten seconds, and if it does not come back, warns
once and calls itself deaf (`working` is false) until it does.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

from ...ports import Wake
from . import connect
from .connect import Connection, Target
from .news import News
from .sql import Schema
from .talk import Talk

PROBE_EVERY: Final = 10.0
PROBE_WAITS: Final = 4.0
AT_MOST_EVERY: Final = 0.005
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
CANCEL: Final = "!cancel"  # no queue can have such a name
SETTINGS: Final = "!settings"
_ANY: Final = "!any"
_PROBE: Final = "!probe:"
_NOTIFY: Final = (
    "select set_config('synchronous_commit', 'off', true), pg_notify($1::text, word) from unnest($2::text[]) as word"
)
_log: Final = logging.getLogger("treadle.postgres")


def say(channel: str, words: list[str]) -> Talk[None]:
    """For those who have no time to wait for the bell."""
    yield _NOTIFY, (channel, words)


class Wakes:
    def __init__(self, target: Target, schema: Schema) -> None:
        self._target = target
        self._schema = schema
        self._listeners: dict[int, Callable[[Wake], None]] = {}
        self._numbers = itertools.count()
        self._mutex = threading.Lock()
        self._bell: _Bell | None = None
        self._open = False
        self._told_at: dict[str, float] = {}  # queue → when a lone insert told of it

    @property
    def working(self) -> bool:
        """Whether wakes of other processes are heard here."""
        bell = self._bell
        return bell is not None and bell.hears

    def start(self) -> None:
        with self._mutex:
            self._open = True
            if self._listeners:
                self._attend().listen()

    def close(self) -> None:
        with self._mutex:
            self._open = False
            bell, self._bell = self._bell, None
        if bell is not None:
            bell.stop()

    def listen(self, on_wake: Callable[[Wake], None]) -> Callable[[], None]:
        number = next(self._numbers)
        with self._mutex:
            self._listeners[number] = on_wake
            if self._open:
                self._attend().listen()

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    def tell(self, news: News) -> None:
        """After a commit."""
        if self._listeners and (wake := news.wake()) is not None:
            self.wake(wake)
        words = [CANCEL] * news.cancels + [SETTINGS] * news.settings
        if news.due or words:
            self.ring([*news.due, *words] if words else news.due)

    def how_to_tell(self, queue: str) -> Literal["itself", "soon", "bell"]:
        """Whether a lone insert should tell other processes by itself, see 0013_told.sql. If the last word about the
        queue is only some milliseconds old, the next one is due soon. If somebody in this process must hear of it too,
        and not twice, it goes by the bell."""
        if self._listeners:
            return "bell"
        now = time.monotonic()
        if now - self._told_at.get(queue, 0.0) < AT_MOST_EVERY:
            return "soon"
        if len(self._told_at) > 1_000:
            self._told_at.clear()
        self._told_at[queue] = now
        return "itself"

    def wake(self, wake: Wake) -> None:
        """Tell every listener in this process."""
        for on_wake in list(self._listeners.values()):
            try:
                on_wake(wake)
            except Exception:
                _log.exception("a listener failed")

    def ring(self, words: Iterable[str]) -> None:
        """Tell the listeners of other processes."""
        bell = self._bell
        if bell is None:
            with self._mutex:
                if not self._open:
                    return
                bell = self._attend()
        bell.ring(words)

    def ring_any(self, queues: frozenset[str]) -> None:
        self.ring(queues or {_ANY})

    def _attend(self) -> _Bell:
        if self._bell is None:
            self._bell = _Bell(self._target, self._schema.channel, self.wake)
        return self._bell


class _Bell:
    """The thread, its loop and its connection."""

    def __init__(self, target: Target, channel: str, wake: Callable[[Wake], None]) -> None:
        self._target = target
        self._channel = channel
        self._wake = wake
        self._words: set[str] = set()
        self._mutex = threading.Lock()
        self._listening = False
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._nudged = asyncio.Event()
        self._heard: set[str] = set()
        self._warned = False
        self._lost = False
        self.hears = False
        self._thread = threading.Thread(target=self._run, name="treadle-postgres-bell", daemon=True)
        self._thread.start()

    def ring(self, words: Iterable[str]) -> None:
        with self._mutex:
            quiet = not self._words
            self._words.update(words)
        if quiet:
            self._nudge()

    def listen(self) -> None:
        if not self._listening:
            self._listening = True
            self._nudge()

    def stop(self) -> None:
        self._stopping = True
        self._nudge()
        self._thread.join(5.0)

    def _nudge(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop has just ended
            self._loop.call_soon_threadsafe(self._nudged.set)

    # In its own thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    async def _main(self) -> None:
        pause = 0.0
        while not self._stopping:
            try:
                async with asyncio.timeout(10.0):
                    connection = await self._target.connect(10.0)
                began = time.monotonic()
                try:
                    await self._serve(connection)
                finally:
                    self.hears = False
                    if time.monotonic() - began > PROBE_EVERY:
                        pause = 0.0
                    await connect.close(connection)
            except Exception as error:
                if not self._stopping and not self._lost:
                    _log.warning("the connection for waking was lost, polling goes on: %s", error)
                self._lost = True
                pause = min(LONGEST_PAUSE, pause * 2 or FIRST_PAUSE)
                await self._wait(pause * (0.5 + random.random() / 2), for_words=False)  # noqa: S311

    async def _serve(self, connection: Connection) -> None:
        gone = asyncio.Event()

        def ended(_: object) -> None:
            gone.set()
            self._nudged.set()

        connection.add_termination_listener(ended)
        listens = False
        probe_at = time.monotonic()
        while not self._stopping and not gone.is_set():
            if self._listening and not listens:
                await self._bounded(connection.add_listener(self._channel, self._hear))
                listens = True
                if self._lost:
                    self._lost = False
                    _log.warning("the connection for waking is back")
                    self._wake(Wake())
                    self._wake(Wake(settings=True))  # what was said meanwhile was not heard
            if listens and time.monotonic() >= probe_at:
                await self._probe(connection)
                probe_at = time.monotonic() + PROBE_EVERY
            await self._wait(probe_at - time.monotonic() if listens else PROBE_EVERY)
            if words := self._take():
                try:
                    await self._bounded(connection.fetch(_NOTIFY, self._channel, words))
                except BaseException:
                    self.ring(words)
                    raise
                await asyncio.sleep(AT_MOST_EVERY)
        if gone.is_set() and not self._stopping:
            raise ConnectionError("the server ended it")

    async def _bounded(self, call: Any) -> Any:
        async with asyncio.timeout(PROBE_WAITS):
            return await call

    def _take(self) -> list[str]:
        with self._mutex:
            words, self._words = list(self._words), set()
        return words

    async def _wait(self, seconds: float, *, for_words: bool = True) -> None:
        if self._stopping or (for_words and self._words):
            return
        self._nudged.clear()
        if self._stopping or (for_words and self._words):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._nudged.wait()

    async def _probe(self, connection: Connection) -> None:
        """Say a word to oneself. Behind a pooler it may come back by chance, so a pooler counts as deaf at once."""
        word = _PROBE + secrets.token_hex(8)
        if not self._target.pooled:
            await self._bounded(connection.fetch(_NOTIFY, self._channel, [word]))
            until = time.monotonic() + PROBE_WAITS
            while word not in self._heard and time.monotonic() < until and not self._stopping:
                await self._wait(0.05)
        self.hears = word in self._heard
        self._heard.clear()
        if not self.hears and not self._warned and not self._stopping:
            self._warned = True
            _log.warning(
                "LISTEN hears nothing on this connection (a transaction pooler?): new jobs are found by polling; "
                "give listen_url, a direct connection, to be woken at once"
            )

    def _hear(self, connection: object, pid: int, channel: str, payload: object) -> None:
        word = str(payload)
        if word.startswith(_PROBE):
            self._heard.add(word)
            self._nudged.set()
        elif pid != getattr(connection, "get_server_pid", lambda: None)():
            # Our own words were told directly, right after the commit.
            if word == CANCEL:
                self._wake(Wake(cancels=True))
            elif word == SETTINGS:
                self._wake(Wake(settings=True))
            else:
                self._wake(Wake(queues=frozenset() if word == _ANY else frozenset({word})))
