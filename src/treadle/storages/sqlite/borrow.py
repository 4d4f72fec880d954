"""Borrowing: Treadle's verbs inside a transaction that the caller began on its own sqlite3 connection, and will end."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from ...core.errors import StorageTimeout, StorageUnavailable
from ...core.job import Change, Job, NewJob
from ...ports import Applied, Clock, Inserted
from . import apply, connect, find, insert, migrations
from .news import News


def borrow(connection: object, path: str, clock: Clock) -> BorrowedConnection:
    """The verbs on the caller's connection, or a refusal that says what to do."""
    own = checked(connection, path)
    if not own.in_transaction:
        raise StorageUnavailable(
            "the connection is not in a transaction, so there is nothing to take part in: "
            'begin one with connection.execute("BEGIN IMMEDIATE"), or enqueue without within='
        )
    return BorrowedConnection(own, clock)


def checked(connection: object, path: str) -> sqlite3.Connection:
    """The caller's connection, if it is one to this very file."""
    if not isinstance(connection, sqlite3.Connection):
        raise TypeError(
            f"within= takes a sqlite3.Connection on {path}, not {type(connection).__module__}."
            f"{type(connection).__qualname__}"
        )
    _check_file(connection, path)
    return connection


def _check_file(connection: sqlite3.Connection, path: str) -> None:
    with _plain_text(connection):
        listed = _Cursors(connection).execute("pragma database_list").fetchall()
    file = next((row[2] for row in listed if row[1] == "main"), "")
    if not file or not os.path.exists(file) or not os.path.samefile(file, path):
        raise StorageUnavailable(
            f"the connection is on {file or 'a database in memory'}, and the jobs are in {path}: "
            "only a connection to the same file (as its main database) can share a transaction"
        )


class BorrowedConnection:
    """See `ports.Borrowed`."""

    def __init__(self, connection: sqlite3.Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        with self._at_work() as db:
            return insert.insert(db, jobs, self._clock.now())

    def apply(self, changes: Sequence[Change]) -> Sequence[Applied]:
        with self._at_work() as db:
            return apply.apply(db, changes, self._clock, News())

    def get(self, ids: Sequence[str]) -> Sequence[Job]:
        with self._at_work() as db:
            return find.get(db, ids, self._clock)

    @contextmanager
    def _at_work(self) -> Generator[_Cursors]:
        """Our statements on the caller's connection: all of them take effect, or none; its settings stay its own."""
        db = _Cursors(self._connection)
        try:
            with _plain_text(self._connection):
                # It would checkpoint at some commit, beside our writer's: see `connect`.
                db.execute("pragma wal_autocheckpoint = 0")
                db.execute("savepoint treadle")
                try:
                    yield db
                except BaseException:
                    if self._connection.in_transaction:
                        db.execute("rollback to treadle")
                        db.execute("release treadle")
                    raise
                db.execute("release treadle")
        except sqlite3.OperationalError as error:
            raise _explained(error) from error


@contextmanager
def _plain_text(connection: sqlite3.Connection) -> Generator[None]:
    text_factory, connection.text_factory = connection.text_factory, connect.text
    try:
        yield
    finally:
        connection.text_factory = text_factory


class _Cursors:
    """Runs statements on cursors of its own, which answer with plain tuples whatever the connection would do."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> sqlite3.Cursor:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, parameters)


def _explained(error: sqlite3.OperationalError) -> StorageUnavailable:
    if connect.code_of(error) == connect.BUSY_SNAPSHOT:
        return StorageUnavailable(
            "the transaction read before it wrote, and another connection has written since, so SQLite lets it write "
            "no more: roll it back, and begin it with BEGIN IMMEDIATE"
        )
    if connect.is_busy(error):
        return StorageTimeout("another connection is writing to the database: roll back, and try again")
    if "no such table: treadle_" in str(error):
        newest = migrations.known()[-1].version
        return StorageUnavailable(f"the database has no Treadle tables of schema {newest} yet: open the app first")
    return StorageUnavailable(str(error))
