"""Readers: two threads with a read-only connection each. A slow read never stands in a write's way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import sqlite3
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from ...core.errors import StorageTimeout, StorageUnavailable
from . import connect

T = TypeVar("T")
_THREADS: Final = 2
_NO_TEXT: Final = "Could not decode to UTF-8"


class Readers:
    def __init__(self, path: str) -> None:
        self._path = path
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS, thread_name_prefix="treadle-sqlite-reader")
        self._idle: queue.SimpleQueue[sqlite3.Connection] = queue.SimpleQueue()

    async def run(self, read: Callable[[sqlite3.Connection], T], patience: float) -> T:
        """What the function answers, all its statements seeing one and the same state."""
        reading = _Reading(self, read)
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, reading.run)
        except RuntimeError:  # the pool takes no more
            raise StorageUnavailable(f"the storage on {self._path} is closed") from None
        try:
            async with asyncio.timeout(patience):
                return await asyncio.shield(future)
        except TimeoutError:
            raise StorageTimeout(f"a read of {self._path} took longer than {patience:g} s") from None
        finally:
            if not future.done():
                future.add_done_callback(_retrieve)
                reading.interrupt()

    def take(self) -> sqlite3.Connection:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            db = connect.to_read(self._path)
            db.text_factory = str  # half the price of rows with many texts, as long as all of them are UTF-8
            return db

    def give_back(self, db: sqlite3.Connection) -> None:
        self._idle.put(db)

    def explained(self, error: sqlite3.Error) -> BaseException:
        return connect.explained(error, self._path)

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        while not self._idle.empty():
            self._idle.get_nowait().close()


class _Reading(Generic[T]):
    """One read, and the connection it is on, so that it can be stopped."""

    def __init__(self, readers: Readers, read: Callable[[sqlite3.Connection], T]) -> None:
        self._readers = readers
        self._read = read
        self._db: sqlite3.Connection | None = None
        self._unwanted = False

    def run(self) -> T:
        if self._unwanted:
            raise StorageTimeout("nobody waits for this read any more")
        try:
            db = self._db = self._readers.take()
            try:
                answer = self._once(db)
            except BaseException:
                db.close()
                raise
            finally:
                self._db = None
        except sqlite3.Error as error:
            raise self._readers.explained(error) from error
        if self._unwanted:
            db.close()  # it was interrupted, perhaps too late to be noticed
        else:
            self._readers.give_back(db)
        return answer

    def _once(self, db: sqlite3.Connection) -> T:
        db.execute("begin")
        try:
            answer = self._read(db)
        except sqlite3.OperationalError as error:
            if db.text_factory is connect.text or not str(error).startswith(_NO_TEXT):
                raise
            # Somebody has damaged a row: from now on its bytes are shown as such.
            db.execute("rollback")
            db.text_factory = connect.text
            return self._once(db)
        db.execute("rollback")
        return answer

    def interrupt(self) -> None:
        self._unwanted = True
        if (db := self._db) is not None:
            db.interrupt()


def _retrieve(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
