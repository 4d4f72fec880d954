"""Who holds the lock that calls wait for: named by the server's list of sessions, or by Linux for a file."""

from __future__ import annotations

import asyncio
import doctest
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from treadle.storages.postgres import PostgresStorage
from treadle.storages.postgres.blockers import Lock, Session, judge
from treadle.storages.sqlite import SQLiteStorage
from treadle.storages.sqlite import blockers as on_file
from treadle.testing.conformance.builders import a_job

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")


def test_the_examples() -> None:
    assert doctest.testmod(on_file).failed == 0


# PostgreSQL ----------------------------------------------------------------------------------------------------------


@pytest.fixture
async def storage() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), call_deadline=5.0)
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
async def ann() -> AsyncIterator[Any]:
    """Somebody at a prompt, with another role than ours would need."""
    connection = await asyncpg.connect(postgres_server.shared_url(), server_settings={"application_name": "psql"})
    yield connection
    if not connection.is_closed():
        await connection.close()


async def test_a_locked_table_names_the_session_that_holds_it(storage: PostgresStorage, ann: Any) -> None:
    await ann.execute(f"begin; lock table {storage.schema_name}.job in access exclusive mode")
    pid = ann.get_server_pid()
    (found,) = await storage.blockers()
    assert found.what == f"table {storage.schema_name}.job" and found.who == f"session {pid}"
    assert found.details == ("user postgres", "psql", "idle in transaction")
    assert found.seconds is not None and found.stops == "reads"
    assert found.remedy == f"SELECT pg_terminate_backend({pid})"
    other = await asyncpg.connect(postgres_server.shared_url())
    await other.execute(found.remedy)  # and it helps
    await other.close()
    await storage.insert([a_job()])
    assert await storage.blockers() == []


async def test_of_a_chain_of_waits_the_end_is_named(storage: PostgresStorage, ann: Any) -> None:
    """A long read, an ALTER TABLE that waits for it, and everybody else behind that."""
    await ann.execute(f"begin; select from {storage.schema_name}.job")
    alters = await asyncpg.connect(postgres_server.shared_url())
    waits = asyncio.ensure_future(alters.execute(f"alter table {storage.schema_name}.job add column x int"))
    try:
        async with asyncio.timeout(30):
            while not (found := await storage.blockers()):
                await asyncio.sleep(0.02)
        assert [each.who for each in found] == [f"session {ann.get_server_pid()}"]
        assert f"session {alters.get_server_pid()} waits for it" in found[0].details and found[0].stops == "reads"
    finally:
        waits.cancel()
        alters.terminate()


async def test_a_row_that_another_transaction_holds_is_told(storage: PostgresStorage, ann: Any) -> None:
    await storage.insert([a_job()])
    await ann.execute(f"begin; update {storage.schema_name}.job set priority = 1")
    waiter = await asyncpg.connect(postgres_server.shared_url())
    waits = asyncio.ensure_future(waiter.execute(f"update {storage.schema_name}.job set priority = 2"))
    try:
        async with asyncio.timeout(30):
            while not (found := await storage.blockers()):
                await asyncio.sleep(0.02)
        assert [each.who for each in found] == [f"session {ann.get_server_pid()}"]
        assert found[0].what == f"a row of table {storage.schema_name}.job" and found[0].stops == "rows"
    finally:
        waits.cancel()
        waiter.terminate()


async def test_without_rights_to_see_more_the_session_is_named_all_the_same(ann: Any) -> None:
    schema = postgres_server.a_schema()
    url = postgres_server.shared_url()
    login = f"low_{schema}"
    await ann.execute(f"create role {login} login; grant create on database postgres to {login}")
    low = PostgresStorage(url.replace("postgres@", f"{login}@"), schema=schema, call_deadline=5.0)
    await low.open()
    try:
        await ann.execute(f"begin; lock table {schema}.job in access exclusive mode")
        (found,) = await low.blockers()
        assert found.who == f"session {ann.get_server_pid()}" and found.seconds is None
        assert found.details == ("user postgres", "psql")
        await ann.execute("rollback")
    finally:
        await low.close()
        await ann.execute(f"drop owned by {login} cascade; drop role {login}")


async def test_a_server_that_is_away_names_nobody() -> None:
    away = PostgresStorage("postgresql://postgres@127.0.0.1:1/postgres")
    assert list(await away.blockers()) == []


ROW = "a row of table t.job"
EXCLUSIVE, ROW_EXCLUSIVE, SHARE = "AccessExclusiveLock", "RowExclusiveLock", "ShareLock"
READ = "AccessShareLock"


@pytest.mark.parametrize(
    ("locks", "waits", "ages", "told"),
    [
        ([], {}, {}, []),
        ([Lock(7, "job", EXCLUSIVE, True, "relation")], {}, {}, [("session 7", "reads", "table t.job")]),
        ([Lock(7, "job", SHARE, True, "relation")], {}, {}, [("session 7", "writes", "table t.job")]),
        # A transaction that has written is in the way of whoever needs its rows, once it is open for long.
        ([Lock(7, "job", ROW_EXCLUSIVE, True, "relation")], {}, {7: 60.0}, [("session 7", "rows", ROW)]),
        ([Lock(7, "job", ROW_EXCLUSIVE, True, "relation")], {}, {7: 0.1}, []),
        ([Lock(7, "job", ROW_EXCLUSIVE, True, "relation")], {}, {}, []),
        # 9 waits for 8, and 8 for 7.
        ([Lock(9, "job", READ, False, "relation")], {9: [8], 8: [7]}, {}, [("session 7", "reads", "table t.job")]),
        ([Lock(9, "job", ROW_EXCLUSIVE, False, "relation")], {9: [8]}, {}, [("session 8", "writes", "table t.job")]),
        ([Lock(9, "job", ROW_EXCLUSIVE, True, "relation")], {9: [8]}, {}, [("session 8", "rows", ROW)]),
        # Two that wait for each other: the server ends one of them itself.
        ([Lock(9, "job", READ, False, "relation")], {9: [8], 8: [9]}, {}, []),
        # The worst first, and each session once.
        (
            [
                Lock(7, "job", SHARE, True, "relation"),
                Lock(7, "queue", EXCLUSIVE, True, "relation"),
                Lock(6, "job", SHARE, True, "relation"),
            ],
            {},
            {},
            [("session 7", "reads", "table t.queue"), ("session 6", "writes", "table t.job")],
        ),
        (
            [Lock(None, "job", ROW_EXCLUSIVE, True, "relation", "it's", 90.0)],
            {},
            {},
            [("prepared transaction it's", "rows", ROW)],
        ),
        ([Lock(None, "job", EXCLUSIVE, True, "relation")], {}, {}, []),  # gone between two lists
    ],
)  # fmt: skip
def test_who_is_in_the_way(
    locks: list[Lock], waits: dict[int, list[int]], ages: dict[int, float], told: list[tuple[str, str, str]]
) -> None:
    sessions = {pid: Session(pid, "ann", "psql", "active", age) for pid, age in ages.items()}
    found = judge("t", locks, waits, sessions)
    assert [(each.who, each.stops, each.what) for each in found] == told


def test_a_prepared_transaction_is_rolled_back_by_its_name() -> None:
    (found,) = judge("t", [Lock(None, "job", EXCLUSIVE, True, "relation", "it's", 90.0)], {}, {})
    assert found.remedy == "ROLLBACK PREPARED 'it''s'" and found.seconds == 90.0


# A file --------------------------------------------------------------------------------------------------------------

HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
db.execute("begin immediate")
print("held", flush=True)
sys.stdin.read()
"""


def hold(path: Path, first: str = "select 1") -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), first], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs Linux's list of locks")
async def test_a_file_that_another_process_writes_to_names_that_process(tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "jobs.db", call_deadline=0.5)
    await storage.open()
    await storage.insert([a_job()])
    with hold(tmp_path / "jobs.db") as holder:
        (found,) = await storage.blockers()
        assert found.who == f"process {holder.pid}" and found.stops == "writes"
        assert found.text.startswith(f"the database file is locked by process {holder.pid} (python")
        assert found.remedy == f"kill {holder.pid}"
        os.kill(holder.pid, signal.SIGSTOP)
        async with asyncio.timeout(30):
            while "stopped" not in (found := (await storage.blockers())[0]).details:
                await asyncio.sleep(0.01)
        assert found.remedy == f"kill -CONT {holder.pid}"
        os.kill(holder.pid, signal.SIGCONT)
        holder.communicate()
    await storage.insert([a_job()])
    assert await storage.blockers() == []
    await storage.close()


async def test_where_there_is_no_list_nobody_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_file, "LIST", str(tmp_path / "none"))
    assert list(await SQLiteStorage(tmp_path / "jobs.db").blockers()) == []


def test_lines_that_cannot_be_read_are_passed_over() -> None:
    lines = ["", "1: POSIX ADVISORY READ 1 08:02:9 0 EOF", "1: POSIX ADVISORY WRITE x 08:02:9 0 EOF",
             "2: FLOCK  ADVISORY  WRITE 5 08:02:9 0 EOF"]  # fmt: skip
    assert [(each.pid, each.inode, each.last) for each in on_file.parse(lines)] == [(5, 9, float("inf"))]
