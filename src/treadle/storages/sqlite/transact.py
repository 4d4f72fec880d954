"""A transaction of the caller's, begun and ended here. It holds the database's one write lock: it should be short."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from ...core.errors import StorageTimeout
from . import borrow, connect


@contextmanager
def transact(connection: object, path: str, patience: float) -> Generator[sqlite3.Connection]:
    if connection is None:
        own = sqlite3.connect(path, timeout=patience, isolation_level=None)
        try:
            own.execute("pragma wal_autocheckpoint = 0")  # only the writer checkpoints: see `connect`
            with _transaction(own):
                yield own
        finally:
            own.close()
        return
    given = borrow.checked(connection, path)
    with _transaction(given):
        yield given


@contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    if not db.in_transaction:
        try:
            db.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if connect.is_busy(error):
                raise StorageTimeout("another connection is writing to the database: try again") from error
            raise
    try:
        yield
    except BaseException:
        db.rollback()
        raise
    db.commit()
