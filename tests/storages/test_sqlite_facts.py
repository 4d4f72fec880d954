"""What `doctor` is told about a SQLite file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treadle.ports import Fact
from treadle.storages.sqlite import SQLiteStorage, facts, files, migrations
from treadle.testing.conformance.builders import a_job, want
from treadle.testing.conformance.steps import a_live_pod, ids, put, take

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[SQLiteStorage]:
    storage = SQLiteStorage(tmp_path / "jobs.db")
    await storage.open()
    yield storage
    await storage.close()


async def told(storage: SQLiteStorage) -> dict[str, Fact]:
    return {fact.code: fact for fact in await storage.facts()}


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ((3, 40, 1), "warn"),
        ((3, 44, 5), "warn"),
        ((3, 44, 6), "ok"),
        ((3, 45, 0), "warn"),
        ((3, 50, 6), "warn"),
        ((3, 50, 7), "ok"),
        ((3, 51, 2), "warn"),
        ((3, 51, 3), "ok"),
        ((3, 52, 0), "ok"),
    ],
)
def test_libraries_with_the_wal_reset_bug_are_warned_about(version: tuple[int, int, int], level: str) -> None:
    assert facts.library(version).level == level


async def test_a_sound_storage_has_nothing_but_good_news(storage: SQLiteStorage) -> None:
    found = await told(storage)
    del found["sqlite-version"]
    assert {fact.level for fact in found.values()} == {"ok"}
    assert found["journal-mode"].text == "write-ahead logging"
    assert found["schema"].text == f"schema {migrations.known()[-1].version}"


async def test_what_others_can_read_is_told(storage: SQLiteStorage) -> None:
    os.chmod(storage.path, 0o644)
    assert (await told(storage))["file-mode"].level == "warn"


async def test_relaxed_commits_are_told(tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "jobs.db", synchronous="normal")
    await storage.open()
    assert (await told(storage))["synchronous"].level == "warn"
    await storage.close()


async def test_a_nearly_full_disk_is_told(storage: SQLiteStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.Ballast, "free", lambda _: 1 << 20)
    assert (await told(storage))["disk-room"].level == "warn"


async def test_a_migration_of_another_text_is_told(storage: SQLiteStorage) -> None:
    with contextlib.closing(sqlite3.connect(storage.path)) as db:
        db.execute("update treadle_schema set checksum = 'tampered'")
        db.commit()
    assert (await told(storage))["schema-checksum"].level == "warn"


@pytest.mark.parametrize("damage", ["state = 'dancing'", "priority = 'high'", "run_at = 'soon'"])
async def test_a_row_that_nobody_understands_is_named_and_harms_nobody(storage: SQLiteStorage, damage: str) -> None:
    """Somebody wrote to the table by hand: the row is passed over, and the others are served."""
    odd, good = a_job(), a_job()
    await storage.insert([odd, good])
    with contextlib.closing(sqlite3.connect(storage.path)) as db:
        db.execute(f"update treadle_job set {damage} where id = ?", (odd.id,))
        db.commit()
    fact = (await told(storage))["job-row"]
    assert fact.level == "error"
    assert odd.id in fact.text
    assert good.id in await ids(storage)
    assert [job.id for job in await take(storage, await a_live_pod(storage))] == [good.id]


async def test_a_damaged_payload_does_not_stop_its_neighbours_claim(storage: SQLiteStorage) -> None:
    """Its own run will say that it cannot be decoded."""
    first = await put(storage, tags=("a",))
    second = await put(storage)
    with contextlib.closing(sqlite3.connect(storage.path)) as db:
        db.execute("update treadle_job set tags = 'no json', args = '{', meta = '{' where id = ?", (first,))
        db.commit()
    claimed = await storage.claim(await a_live_pod(storage), "token", [want()])
    assert [job.id for job in claimed.jobs] == [first, second]


async def test_a_directory_further_up_that_is_everybodys_is_named(tmp_path: Path) -> None:
    (tmp_path / "open" / "own").mkdir(parents=True)
    storage = SQLiteStorage(tmp_path / "open" / "own" / "jobs.db")
    await storage.open()
    for mode, level in ((0o755, "ok"), (0o1777, "ok"), (0o777, "warn")):
        os.chmod(tmp_path / "open", mode)
        fact = (await told(storage))["directory"]
        assert fact.level == level
    assert (str(tmp_path / "open") in fact.text, fact.remedy) == (True, f"chmod o-w {tmp_path / 'open'}")
    await storage.close()
