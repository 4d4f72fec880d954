"""The schema: made at open, forward only, by one process at a time, wholly or not at all."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle.core.errors import SchemaTooNew, StorageUnavailable
from treadle.core.outcome import Succeeded
from treadle.ports import SchemaStatus
from treadle.storages.sqlite import SQLiteStorage, migrations
from treadle.storages.sqlite.migrations import Migration
from treadle.testing.conformance.builders import failing
from treadle.testing.conformance.steps import end, ids, put, start

pytestmark = pytest.mark.anyio

HEAD = "-- compatible_from: 1\n"
KNOWN = migrations.known()
NEWEST = KNOWN[-1].version
OPEN = """
import asyncio, os, sys
from treadle.storages.sqlite import SQLiteStorage, writer

async def main():
    storage = SQLiteStorage(sys.argv[1])
    await storage.open()
    status = await storage.schema()
    await storage.close()
    print(status.current, flush=True)

if len(sys.argv) > 2:
    writer.on_step = lambda step: os._exit(9) if step == sys.argv[2] else None
asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


def another_process(path: str, *args: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", OPEN, path, *args], stdout=subprocess.PIPE)


def rows(path: str, sql: str) -> list[tuple[object, ...]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def bring(monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    """Let the code know further migrations."""
    later = [Migration(NEWEST + n, f"{NEWEST + n:04}_later", text) for n, text in enumerate(texts, 1)]
    found: Sequence[Migration] = (*KNOWN, *later)
    monkeypatch.setattr(migrations, "known", lambda: found)


async def use(path: str) -> SchemaStatus:
    storage = SQLiteStorage(path)
    await storage.open()
    status = await storage.schema()
    await storage.close()
    return status


async def test_opening_makes_the_schema_and_opening_again_finds_it(path: str) -> None:
    assert await use(path) == await use(path) == SchemaStatus(current=NEWEST, newest=NEWEST)
    found = rows(path, "select version, name, length(checksum), compatible_from from treadle_schema")
    assert found == [(each.version, each.name, 64, each.compatible_from) for each in KNOWN]


async def test_treadle_lives_beside_its_users_own_tables(path: str) -> None:
    """It must: only so can an enqueue be part of the user's transaction."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table job (name text)")
        db.execute("insert into job values ('my own')")
        db.commit()
    storage = SQLiteStorage(path)
    await storage.open()
    await put(storage)
    await storage.close()
    assert rows(path, "select name from job") == [("my own",)]
    names = [name for (name,) in rows(path, "select name from sqlite_master where name not like 'sqlite%'")]
    assert [name for name in names if not str(name).startswith("treadle_")] == ["job"]


async def test_a_table_of_somebody_else_under_our_name_is_refused(path: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table treadle_job (mine text)")
    with pytest.raises(StorageUnavailable, match="treadle_job that Treadle did not make"):
        await use(path)
    assert rows(path, "select sql from sqlite_master") == [("CREATE TABLE treadle_job (mine text)",)]


async def test_a_newer_schema_that_is_compatible_is_used(path: str) -> None:
    """Expand, migrate, contract: a migration that only adds does not stop the pods that do not know it yet."""
    await use(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("insert into treadle_schema values (?, 'later', 'x', 0.0, ?)", (NEWEST + 1, NEWEST))
        db.commit()
    assert await use(path) == SchemaStatus(current=NEWEST + 1, newest=NEWEST)


async def test_a_schema_from_the_future_is_refused(path: str) -> None:
    storage = SQLiteStorage(path)
    await storage.open()
    await put(storage)
    await storage.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("insert into treadle_schema values (777, '0777_future', 'x', 0.0, 555)")
        db.commit()
    with pytest.raises(SchemaTooNew, match="schema 777, which needs a Treadle that knows schema 555"):
        await use(path)
    with pytest.raises(SchemaTooNew):
        await SQLiteStorage(path, read_only=True).open()
    assert rows(path, "select count(*) from treadle_job") == [(1,)]


async def test_an_old_schema_is_brought_forward_and_keeps_its_jobs(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = SQLiteStorage(path)
    await storage.open()
    id = await put(storage)
    await storage.close()
    bring(
        monkeypatch, "-- compatible_from: 1\ncreate table treadle_more (a text);\ncreate index m on treadle_more (a);"
    )
    await storage.open()
    assert await storage.migrate() == SchemaStatus(current=NEWEST + 1, newest=NEWEST + 1)
    assert await ids(storage) == [id]
    await storage.close()


async def test_a_worker_of_this_version_runs_through_an_expanding_step(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expand, then contract: the file may be a version ahead of the processes that have it open."""
    storage = SQLiteStorage(path)
    await storage.open()
    running = await start(storage)
    with monkeypatch.context() as later:
        bring(
            later,
            f"-- compatible_from: {NEWEST}\nalter table treadle_job add column colour text not null default 'blue';\n"
            "create table treadle_next (n integer primary key);",
        )
        assert (await use(path)).current == NEWEST + 1
    assert (await end(storage, running, Succeeded("1"))).result == "1"
    again = await end(storage, await start(storage), failing(after=5.0))
    assert again.error_count == 1
    assert len(await ids(storage)) == 2
    await storage.close()
    assert await use(path) == SchemaStatus(current=NEWEST + 1, newest=NEWEST)


async def test_a_migration_that_fails_half_way_leaves_nothing_behind(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(path)
    good, bad = f"{HEAD}create table treadle_more (a);", f"{HEAD}create table treadle_half (a);\nno sql;"
    with monkeypatch.context() as broken:
        bring(broken, good, bad)
        with pytest.raises(StorageUnavailable, match="syntax error"):
            await use(path)
    assert rows(path, "select max(version) from treadle_schema") == [(NEWEST + 1,)]
    assert rows(path, "select name from sqlite_master where name like 'treadle_half%'") == []
    bring(monkeypatch, good, bad.replace("no sql;", ""))
    assert (await use(path)).current == NEWEST + 2


def test_a_migration_killed_before_its_commit_is_completed_by_the_next(path: str) -> None:
    with another_process(path, "migrate.before_commit") as killed:
        assert killed.wait(20) == 9
    assert rows(path, "select count(*) from sqlite_master") == [(0,)]
    with another_process(path) as second:
        assert second.communicate(timeout=20)[0] == b"%d\n" % NEWEST
    assert rows(path, "pragma integrity_check") == [("ok",)]


def test_of_several_migrators_at_once_one_works_and_the_others_wait(path: str) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(another_process(path)) for _ in range(3)]
        assert [process.communicate(timeout=30)[0] for process in processes] == [b"%d\n" % NEWEST] * 3
    assert rows(path, "select version from treadle_schema") == [(each.version,) for each in KNOWN]


@pytest.mark.parametrize("version", [each.version for each in KNOWN])
async def test_every_released_schema_is_brought_to_the_newest_with_all_its_jobs(path: str, version: int) -> None:
    old = [each for each in KNOWN if each.version <= version]
    with contextlib.closing(sqlite3.connect(path)) as db:
        for each in old:
            migrations.apply(db, each, 0.0)
        db.execute("insert into treadle_queue (name) values ('default')")
        for n in range(30):
            db.execute(
                "insert into treadle_job (id, queue, task, state, priority, run_at, created_at, format, args, "
                "finished_at) values (?, 'default', 'work', ?, 0, 1.0, 1.0, 1, '{}', ?)",
                (f"00000000-0000-7000-8000-{n:012}", *(("ready", None) if n % 3 else ("failed", 2.0))),
            )
        db.commit()
        jobs = db.execute("select id, state, args, run_at from treadle_job order by id").fetchall()
    storage = SQLiteStorage(path)
    assert (await storage.schema()).current == version  # to look at it changes nothing
    assert len(await storage.plan()) == NEWEST - version
    assert storage.sql(version).count("insert into treadle_schema") == NEWEST - version
    assert await storage.migrate() == SchemaStatus(current=NEWEST, newest=NEWEST)
    assert rows(path, "select id, state, args, run_at from treadle_job order by id") == jobs
    await storage.open()
    assert len(await ids(storage, "", limit=100)) == 30
    assert await put(storage)
    await storage.close()


async def test_the_printed_sql_makes_the_same_schema(path: str) -> None:
    storage = SQLiteStorage(path)
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(storage.sql(0))
    assert await storage.schema() == SchemaStatus(current=NEWEST, newest=NEWEST)
    assert storage.sql(NEWEST) == ""
    assert storage.roles() is None
    await storage.open()
    assert await put(storage)
    await storage.close()


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [each.version for each in KNOWN] == list(range(1, NEWEST + 1))


def test_every_migration_says_from_which_version_on_it_can_be_used() -> None:
    for migration in migrations.known():
        assert 1 <= migration.compatible_from <= migration.version
        assert os.path.basename(migration.name) == migration.name
        assert "".join(migration.statements()).rstrip() == migration.text.rstrip()
