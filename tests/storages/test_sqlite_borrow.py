"""within=: Treadle's verbs inside the caller's own transaction on a sqlite3 connection."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from treadle.core import lifecycle
from treadle.core.errors import StorageTimeout, StorageUnavailable
from treadle.core.job import State
from treadle.core.outcome import Succeeded
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import a_job, a_unique_job, finished
from treadle.testing.conformance.steps import ids, look, put, start

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[SQLiteStorage]:
    storage = SQLiteStorage(tmp_path / "app.db")
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
def connection(storage: SQLiteStorage) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(storage.path, isolation_level=None)
    connection.execute("create table account (name text)")
    yield connection
    connection.close()


async def test_a_job_is_there_if_and_only_if_the_caller_commits(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    for end, expected in (("rollback", 0), ("commit", 1)):
        connection.execute("begin immediate")
        connection.execute("insert into account values ('ann')")
        (answer,) = storage.borrow(connection).insert([a_job(tags=("vip",))])
        assert answer.outcome == "inserted"
        assert await ids(storage) == []
        connection.execute(end)
        assert len(await ids(storage, "tag:vip")) == expected
        assert connection.execute("select count(*) from account").fetchone() == (expected,)


async def test_the_implicit_transactions_of_the_module_will_do(storage: SQLiteStorage) -> None:
    with contextlib.closing(sqlite3.connect(storage.path)) as connection, connection:
        connection.execute("create table note (text)")
        connection.execute("insert into note values ('x')")
        storage.borrow(connection).insert([a_job()])
    connection.close()
    assert len(await ids(storage)) == 1


async def test_the_connection_under_a_session_of_sqlalchemy_will_do(storage: SQLiteStorage) -> None:
    """docs/transactions.md tells people on SQLite to give the sqlite3.Connection that their library has underneath."""
    engine = sqlalchemy.create_engine(f"sqlite:///{storage.path}")
    with Session(engine) as session:
        session.execute(sqlalchemy.text("create table note (text)"))
        session.execute(sqlalchemy.text("insert into note values ('x')"))
        storage.borrow(session.connection().connection.driver_connection).insert([a_job()])
        assert await ids(storage) == []
        session.commit()
    engine.dispose()
    assert len(await ids(storage)) == 1


DJANGO = """
import sys
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
import django
django.setup()
from django.db import connection, transaction
from treadle import App
app = App(f"sqlite:///{sys.argv[1]}")
app.open_sync()
try:
    with transaction.atomic():
        app.enqueue_sync("undone", within=connection.connection)
        raise LookupError
except LookupError:
    pass
with transaction.atomic():
    app.enqueue_sync("done", within=connection.connection)
print([job.task for job in app.jobs.find_sync("").jobs])
app.close_sync()
"""


def test_the_connection_under_djangos_will_do(tmp_path: Path) -> None:
    """In a process of its own: Django's settings can be made once in a process, and another test makes them."""
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, str(tmp_path / "app.db")], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("['done']\n", 0), done.stderr


async def test_unique_keys_hold_inside_a_borrowed_transaction(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    """One insert path for all: a bridge of its own once wrote no keys, and transactional enqueues were not unique."""
    holder = await put(storage, a_unique_job())
    connection.execute("begin immediate")
    borrowed = storage.borrow(connection)
    first, second = borrowed.insert([a_unique_job(), a_unique_job("other")])
    assert (first.id, first.outcome) == (holder, "duplicate")
    assert second.outcome == "inserted"
    connection.execute("commit")
    (again,) = await storage.insert([a_unique_job("other")])
    assert (again.id, again.outcome) == (second.id, "duplicate")


async def test_changes_and_reads_are_part_of_the_transaction_too(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    job = await start(storage)
    waiting = await put(storage)
    connection.execute("begin immediate")
    borrowed = storage.borrow(connection)
    cancel = lifecycle.cancel(await look(storage, waiting))
    assert cancel is not None
    answers = borrowed.apply([finished(job, Succeeded("1")), cancel])
    assert [answer.accepted for answer in answers] == [True, True]
    assert [each.state for each in borrowed.get([job.id, waiting])] == [State.SUCCEEDED, State.CANCELLED]
    connection.execute("rollback")
    assert (await look(storage, job.id)).state is State.RUNNING
    assert (await look(storage, waiting)).state is State.READY


async def test_the_connections_own_settings_are_left_alone(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    connection.row_factory = sqlite3.Row
    connection.text_factory = bytes
    connection.execute("begin immediate")
    borrowed = storage.borrow(connection)
    (answer,) = borrowed.insert([a_unique_job(tags=("a",))])
    assert borrowed.get([answer.id])[0].tags == ("a",)
    (row,) = connection.execute("select 'x' as letter").fetchall()
    assert row["letter"] == b"x"
    connection.execute("commit")


async def test_a_failed_insert_leaves_the_rest_of_the_transaction_intact(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    connection.execute("begin immediate")
    connection.execute("insert into account values ('bob')")
    with pytest.raises(UnicodeEncodeError):
        storage.borrow(connection).insert([a_job(), a_unique_job(), a_job(args="\ud800")])
    connection.execute("commit")
    assert await ids(storage) == []
    assert connection.execute("select name from account").fetchall() == [("bob",)]


async def test_a_connection_outside_any_transaction_is_refused(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    """In autocommit mode each statement would commit by itself: there is nothing to take part in."""
    with pytest.raises(StorageUnavailable, match="BEGIN IMMEDIATE"):
        storage.borrow(connection)


async def test_a_connection_to_another_file_is_refused(storage: SQLiteStorage, tmp_path: Path) -> None:
    for place in (tmp_path / "other.db", ":memory:"):
        other = sqlite3.connect(place, isolation_level=None)
        other.execute("attach ? as jobs", (storage.path,))  # attached is not enough
        other.execute("begin immediate")
        with pytest.raises(StorageUnavailable, match="same file"):
            storage.borrow(other)
        other.close()


async def test_another_kind_of_connection_is_refused_with_what_is_accepted(storage: SQLiteStorage) -> None:
    with pytest.raises(TypeError, match=r"sqlite3\.Connection"):
        storage.borrow(object())


async def test_a_transaction_that_read_before_it_writes_is_told_to_begin_immediate(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    """A deferred transaction whose snapshot is no longer the newest can never write: SQLITE_BUSY_SNAPSHOT, at once,
    whatever busy_timeout says."""
    connection.execute("begin")
    connection.execute("select count(*) from account").fetchone()
    await put(storage)
    with pytest.raises(StorageUnavailable, match="begin it with BEGIN IMMEDIATE"):
        storage.borrow(connection).insert([a_job()])
    connection.execute("rollback")


async def test_another_writer_makes_a_borrowed_insert_time_out(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    connection.execute("pragma busy_timeout = 10")
    other = sqlite3.connect(storage.path, isolation_level=None)
    other.execute("begin immediate")
    connection.execute("begin")
    with pytest.raises(StorageTimeout, match="another connection is writing"):
        storage.borrow(connection).insert([a_job()])
    connection.execute("rollback")
    other.close()


async def test_a_borrowed_connection_checkpoints_no_more(
    storage: SQLiteStorage, connection: sqlite3.Connection
) -> None:
    """Its commit would checkpoint beside our writer's, which SQLite before 3.51.3 does not survive for sure."""
    connection.execute("begin immediate")
    storage.borrow(connection).insert([a_job()])
    connection.execute("commit")
    assert connection.execute("pragma wal_autocheckpoint").fetchone() == (0,)
