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
from treadle.ports import SchemaStatus
from treadle.storages.sqlite import SQLiteStorage, migrations
from treadle.storages.sqlite.migrations import Migration
from treadle.testing.conformance.steps import ids, put

pytestmark = pytest.mark.anyio

HEAD = "-- compatible_from: 1\n"
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
    later = [Migration(2 + number, f"000{2 + number}_later", text) for number, text in enumerate(texts)]
    found: Sequence[Migration] = (*migrations.known(), *later)
    monkeypatch.setattr(migrations, "known", lambda: found)


async def use(path: str) -> SchemaStatus:
    storage = SQLiteStorage(path)
    await storage.open()
    status = await storage.schema()
    await storage.close()
    return status


async def test_opening_makes_the_schema_and_opening_again_finds_it(path: str) -> None:
    assert await use(path) == await use(path) == SchemaStatus(current=1, newest=1)
    (row,) = rows(path, "select version, name, length(checksum), compatible_from from treadle_schema")
    assert row == (1, "0001_start", 64, 1)


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
        db.execute("insert into treadle_schema values (2, '0002_later', 'x', 0.0, 1)")
        db.commit()
    assert await use(path) == SchemaStatus(current=2, newest=1)


async def test_a_schema_from_the_future_is_refused(path: str) -> None:
    storage = SQLiteStorage(path)
    await storage.open()
    await put(storage)
    await storage.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("insert into treadle_schema values (7, '0007_future', 'x', 0.0, 5)")
        db.commit()
    with pytest.raises(SchemaTooNew, match="schema 7, which needs a Treadle that knows schema 5"):
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
    assert await storage.migrate() == SchemaStatus(current=2, newest=2)
    assert await ids(storage) == [id]
    await storage.close()


async def test_a_migration_that_fails_half_way_leaves_nothing_behind(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await use(path)
    good, bad = f"{HEAD}create table treadle_more (a);", f"{HEAD}create table treadle_half (a);\nno sql;"
    with monkeypatch.context() as broken:
        bring(broken, good, bad)
        with pytest.raises(StorageUnavailable, match="syntax error"):
            await use(path)
    assert rows(path, "select version from treadle_schema") == [(1,), (2,)]
    assert rows(path, "select name from sqlite_master where name like 'treadle_half%'") == []
    bring(monkeypatch, good, bad.replace("no sql;", ""))
    assert (await use(path)).current == 3


def test_a_migration_killed_before_its_commit_is_completed_by_the_next(path: str) -> None:
    with another_process(path, "migrate.before_commit") as killed:
        assert killed.wait(20) == 9
    assert rows(path, "select count(*) from sqlite_master") == [(0,)]
    with another_process(path) as second:
        assert second.communicate(timeout=20)[0] == b"1\n"
    assert rows(path, "pragma integrity_check") == [("ok",)]


def test_of_several_migrators_at_once_one_works_and_the_others_wait(path: str) -> None:
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(another_process(path)) for _ in range(3)]
        assert [process.communicate(timeout=30)[0] for process in processes] == [b"1\n"] * 3
    assert rows(path, "select version from treadle_schema") == [(1,)]


def test_every_migration_says_from_which_version_on_it_can_be_used() -> None:
    for migration in migrations.known():
        assert 1 <= migration.compatible_from <= migration.version
        assert os.path.basename(migration.name) == migration.name
        assert "".join(migration.statements()).rstrip() == migration.text.rstrip()
