"""Opening and closing: everything that must be in place before the first verb, in order, and taken down again."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Callable, Generator
from typing import TypeVar

from ...core.errors import SchemaTooOld, StorageTimeout, StorageUnavailable
from ...ports import Clock, SchemaStatus
from ...private_files import Untrusted
from . import connect, files, migrations, writer
from .connect import Synchronous
from .locks import WriteLock, clear_first_layout
from .migrations import Migration
from .readers import Readers
from .wakes import Wakes
from .writer import Writer

T = TypeVar("T")


class Opened:
    """What an open storage has: threads, connections and locks."""

    def __init__(
        self,
        readers: Readers,
        signals: Wakes,
        writer: Writer | None = None,
        db: sqlite3.Connection | None = None,
        lock: WriteLock | None = None,
    ) -> None:
        self.readers = readers
        self.signals = signals
        self.writer = writer
        self._db = db
        self._lock = lock
        signals.start()

    def close(self, patience: float) -> None:
        """Calls under way are answered first. The writer's connection goes last: only it can merge the log."""
        self.readers.close()
        stopped = self.writer is None or self.writer.stop(patience)
        self.signals.close()
        if stopped and self._db is not None:
            self._db.close()
        if stopped and self._lock is not None:
            self._lock.close()


def look(path: str) -> SchemaStatus:
    """Which schema a file has, before anybody opens it: nothing is created and nothing is migrated."""
    if not os.path.exists(path):
        return migrations.status_at(0)
    files.check(path, read_only=True)
    with _explaining(path), contextlib.closing(connect.to_read(path)) as db:
        migrations.check(db)
        return migrations.status(db)


def to_read(path: str, signals: Wakes) -> Opened:
    """Without a writer: nothing is created and nothing is migrated."""
    files.check(path, read_only=True)
    with _explaining(path), contextlib.closing(connect.to_read(path)) as db:
        migrations.check(db)
        status = migrations.status(db)
        if status.pending:
            raise SchemaTooOld(
                f"{path} has schema {status.current}, and {status.newest} is needed: "
                "open it for writing once, or run `treadle db migrate`"
            )
    return Opened(Readers(path), signals)


def to_write(
    path: str, clock: Clock, synchronous: Synchronous, patience: float, ballast: files.Ballast, signals: Wakes
) -> Opened:
    until = time.monotonic() + patience
    with contextlib.ExitStack() as undo, _explaining(path):
        files.check(path, read_only=False)
        files.create(path)
        identity = files.Identity(path)
        # Read before anything is written: a file that is not ours stays as it is.
        with contextlib.closing(_retried(lambda: connect.to_read(path), until, f"{path} is busy")) as looking:
            migrations.check(looking)
        clear_first_layout(path)
        lock = WriteLock(path)
        undo.callback(lock.close)
        db = _retried(lambda: connect.to_write(path, synchronous), until, f"{path} is busy")
        undo.callback(db.close)
        identity.check()  # SQLite opens files by their names: it must have met the one that was looked at
        for migration in migrations.known():
            _migrate(db, lock, migration, clock, until)
        thread = Writer(path, db, lock, identity, ballast, signals)
        undo.pop_all()
    return Opened(Readers(path), signals, thread, db, lock)


def _migrate(db: sqlite3.Connection, lock: WriteLock, migration: Migration, clock: Clock, until: float) -> None:
    if migrations.status(db).current >= migration.version:
        return

    def attempt() -> bool:
        if not lock.try_take():
            return False
        try:
            db.execute("begin immediate")
            try:
                migrations.apply(db, migration, clock.now())
                writer.step("migrate.before_commit")
                db.execute("commit")
            finally:
                if db.in_transaction:
                    db.execute("rollback")
            return True
        finally:
            lock.release()

    while not _retried(attempt, until, f"migration {migration.name} waits for another writer"):
        _rest(until, f"migration {migration.name} waits for process {lock.holder()}")


def _retried(attempt: Callable[[], T], until: float, waiting: str) -> T:
    """Again and again while the database is locked; SQLite itself is told not to wait (see `writer`)."""
    while True:
        try:
            return attempt()
        except sqlite3.OperationalError as error:
            if not connect.is_busy(error):
                raise
            _rest(until, waiting)


def _rest(until: float, waiting: str) -> None:
    if time.monotonic() >= until:
        raise StorageTimeout(waiting)
    time.sleep(random.uniform(0.001, 0.01))  # noqa: S311


@contextlib.contextmanager
def _explaining(path: str) -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise connect.explained(error, path) from error
    except Untrusted as error:
        raise StorageUnavailable(str(error)) from error
    except OSError as error:
        raise StorageUnavailable(f"{path} cannot be used: {error.strerror} ({error.filename})") from error
