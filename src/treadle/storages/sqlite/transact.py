"""A transaction of the caller's, begun and ended here. It holds the database's one write lock: it should be short."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from ...core.errors import StorageTimeout
from . import borrow, connect

FIRST_PAUSE: Final = 0.001
LONGEST_PAUSE: Final = 0.02


@contextmanager
def transact(connection: object, path: str, patience: float) -> Generator[sqlite3.Connection]:
    with _connected(connection, path, patience) as own:
        if not own.in_transaction and (error := _begin(own)) is not None:
            raise _too_busy() from error
        with _to_its_end(own):
            yield own


@asynccontextmanager
async def transact_async(connection: object, path: str, patience: float) -> AsyncGenerator[sqlite3.Connection]:
    """The lock is asked for again and again, and never waited for: who holds it may be another task of this very loop,
    which could not go on meanwhile."""
    with _connected(connection, path, patience) as own:
        if not own.in_transaction:
            await _begin_soon(own, patience)
        with _to_its_end(own):
            yield own


@contextmanager
def _connected(connection: object, path: str, patience: float) -> Generator[sqlite3.Connection]:
    if connection is not None:
        yield borrow.checked(connection, path)
        return
    own = sqlite3.connect(path, timeout=patience, isolation_level=None)
    try:
        own.execute("pragma wal_autocheckpoint = 0")  # only the writer checkpoints: see `connect`
        yield own
    finally:
        own.close()


async def _begin_soon(db: sqlite3.Connection, patience: float) -> None:
    cursor = db.cursor()
    cursor.row_factory = None
    (timeout,) = cursor.execute("pragma busy_timeout").fetchone()
    loop = asyncio.get_running_loop()
    until, pause = loop.time() + patience, FIRST_PAUSE
    while True:
        cursor.execute("pragma busy_timeout = 0")
        try:
            error = _begin(db)
        finally:
            cursor.execute(f"pragma busy_timeout = {timeout:d}")  # the caller's own, whenever he may see it
        if error is None:
            return
        if loop.time() >= until:
            raise _too_busy() from error
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, pause * 1.5)


def _begin(db: sqlite3.Connection) -> sqlite3.OperationalError | None:
    """None if it has begun; the error, if somebody else is writing."""
    try:
        db.execute("begin immediate")
    except sqlite3.OperationalError as error:
        if connect.is_busy(error):
            return error
        raise
    return None


def _too_busy() -> StorageTimeout:
    return StorageTimeout("another connection is writing to the database: try again")


@contextmanager
def _to_its_end(db: sqlite3.Connection) -> Generator[None]:
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()
