"""Wakes: who is told that something changed, in this process and in the others.

Three ways lead to a listener, from the fastest to the surest:

* in this process: called by the writer's thread right after the commit;
* from other processes of ours: their writers ring this process's bell (`bells`);
* from anybody else who wrote to the file, such as a user's own transaction with jobs in it, or a shell:
  `PRAGMA data_version` tells that another connection has committed, and is asked four times a second.

A Wake is a hint. It may be late, doubled or lost, and a pod polls all the same.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import select
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from ...ports import Wake
from . import connect
from .bells import ANY, CANCEL, SETTINGS, Bell, Ringer
from .news import News

_LOOK_EVERY: Final = 0.25
_LOOK_EVERY_WITHOUT_BELL: Final = 0.025
_SETTINGS_EVERY: Final = 1.0
_log: Final = logging.getLogger("treadle.sqlite")


class Wakes:
    def __init__(self, path: str, directory: str) -> None:
        self._path = path
        self._directory = directory
        self._ringer = Ringer(directory)
        self._listeners: dict[int, Callable[[Wake], None]] = {}
        self._numbers = itertools.count()
        self._mutex = threading.Lock()
        self._listening: _Listening | None = None
        self._open = False

    def start(self) -> None:
        with self._mutex:
            self._open = True
            if self._listeners:
                self._attend()

    def close(self) -> None:
        with self._mutex:
            self._open = False
            listening, self._listening = self._listening, None
        if listening is not None:
            listening.stop()
        self._ringer.ring((), at_once=True)  # what was put off
        self._ringer.close()

    def listen(self, on_wake: Callable[[Wake], None]) -> Callable[[], None]:
        number = next(self._numbers)
        with self._mutex:
            self._listeners[number] = on_wake
            if self._open:
                self._attend()

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    def tell(self, news: News) -> None:
        if self._listeners and (wake := news.wake()) is not None:
            self.wake(wake)

    def wake(self, wake: Wake) -> None:
        """Tell every listener in this process."""
        for on_wake in list(self._listeners.values()):
            try:
                on_wake(wake)
            except Exception:
                _log.exception("a listener failed")

    def ring(self, news: News | None) -> float | None:
        if news is None:
            return self._ringer.ring(())
        words = [CANCEL] * news.cancels + [SETTINGS] * news.settings
        return self._ringer.ring([*news.queues, *words] if words else news.queues)

    def ring_now(self, queues: Iterable[str]) -> None:
        """Tell the listeners of other processes, however recently they were told."""
        self._ringer.ring(frozenset(queues) or {ANY}, at_once=True)

    def _attend(self) -> None:
        # A process that only enqueues never listens, and has neither thread nor bell.
        if self._listening is None:
            self._listening = _Listening(self._path, self._directory, self.wake)
            if self._listening.bell is not None:
                self._ringer.leave_out(self._listening.bell.name)


class _Listening:
    """The thread that hears the bell, and looks for commits that nobody rang for."""

    def __init__(self, path: str, directory: str, wake: Callable[[Wake], None]) -> None:
        self._path = path
        self._wake = wake
        self.bell: Bell | None = None
        try:
            self.bell = Bell(directory)
        except OSError as error:
            # Without the folder nobody has written yet, as far as this process knows, which only reads.
            level = logging.INFO if isinstance(error, FileNotFoundError) else logging.WARNING
            _log.log(level, "no bell in %s (%s): looking for work every 25 ms instead", directory, error)
        self._stop_reader, self._stop_writer = os.pipe()
        self._thread = threading.Thread(target=self._run, name="treadle-sqlite-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        os.write(self._stop_writer, b"x")
        self._thread.join()
        os.close(self._stop_writer)
        os.close(self._stop_reader)
        if self.bell is not None:
            self.bell.close()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._stop_reader, select.POLLIN)
        if self.bell is not None:
            poll.register(self.bell.descriptor, select.POLLIN)
        every = _LOOK_EVERY if self.bell is not None else _LOOK_EVERY_WITHOUT_BELL
        unsaid, asked_at = False, 0.0
        with contextlib.closing(_Version(self._path)) as version:
            while True:
                ready = {descriptor for descriptor, _ in poll.poll(every * 1000)}
                if self._stop_reader in ready:
                    return
                if self.bell is not None and self.bell.descriptor in ready:
                    version.has_changed()  # what was rung for need not be found again
                    self._wake(self.bell.read())
                elif version.has_changed():
                    self._wake(Wake())
                    unsaid = self.bell is None
                # Without a bell, nobody says what a commit was about: it may have been an operator's edit.
                if unsaid and time.monotonic() - asked_at >= _SETTINGS_EVERY:
                    unsaid, asked_at = False, time.monotonic()
                    self._wake(Wake(settings=True))


class _Version:
    """Has another connection committed since it was last asked?"""

    def __init__(self, path: str) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._seen: int | None = None

    def has_changed(self) -> bool:
        try:
            if self._db is None:
                self._db = connect.to_read(self._path)
            (version,) = self._db.execute("pragma data_version").fetchone()
        except sqlite3.Error:
            return True  # cannot know: a needless look does no harm
        changed = self._seen is not None and version != self._seen
        self._seen = version
        return changed

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
