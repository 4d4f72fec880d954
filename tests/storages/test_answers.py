"""Answers in the tables: they travel, are found by their index, and a damaged one harms nobody."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests import postgres_server
from treadle.core.job import State
from treadle.ports import Answered, Storage
from treadle.storages.postgres import PostgresStorage, answers
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.answers import YES, a_waiting_job
from treadle.testing.conformance.steps import look

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SQLiteStorage]:
    storage = SQLiteStorage(tmp_path / "jobs.db")
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
async def postgres() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), auto_migrate=True)
    await storage.open()
    yield storage
    await storage.close()


async def copy(source: Storage, target: Storage) -> list[str]:
    told: list[str] = []
    for kind in source.kinds():
        loaded = await target.load(kind, (await source.dump(kind)).records)
        told += [each.outcome for each in loaded if kind in ("job", "answer")]
    return told


async def test_what_waits_is_waited_for_in_another_storage_too(
    sqlite: SQLiteStorage, postgres: PostgresStorage, tmp_path: Path
) -> None:
    job, answer = await a_waiting_job(sqlite)
    back = SQLiteStorage(tmp_path / "back.db")
    await back.open()
    try:
        assert await copy(sqlite, postgres) == ["written", "written"]
        assert await copy(sqlite, postgres) == ["same", "same"]
        assert await copy(postgres, back) == ["written", "written"]
        for storage in (sqlite, postgres, back):
            assert await storage.answer(answer, YES) == Answered(outcome="won", job=job.id, released=True)
            assert (await look(storage, job.id)).state is State.READY
    finally:
        await back.close()


async def test_a_damaged_answer_is_unknown_and_keeps_no_other_from_its_end(sqlite: SQLiteStorage) -> None:
    _, damaged = await a_waiting_job(sqlite, within=0.0)
    job, _ = await a_waiting_job(sqlite, within=0.0, queue="other")
    with closing(sqlite3.connect(sqlite.path)) as db:
        db.execute("update treadle_answer set timeout = 'soon' where id = ?", (damaged,))
        db.commit()
    assert (await sqlite.answer(damaged, YES)).outcome == "unknown"
    assert (await sqlite.answer_of(damaged))[1] is None
    assert [each.job.id for each in await sqlite.waits_over(10)] == [job.id]


async def test_the_scan_for_waits_that_are_over_reads_an_index_only_of_waits(sqlite: SQLiteStorage) -> None:
    with closing(sqlite3.connect(sqlite.path)) as db:
        plan = db.execute(
            "explain query plan select * from treadle_answer where waits and expires_at <= 5 order by expires_at"
        ).fetchall()
    assert "treadle_answer_due" in str(plan) and "TEMP B-TREE" not in str(plan)


async def test_so_it_does_on_postgres(postgres: PostgresStorage) -> None:
    connection: Any = await asyncpg.connect(postgres_server.shared_url())
    try:
        text = answers._OVER.replace("treadle.", f"{postgres.schema_name}.")
        await connection.execute("set enable_seqscan = off")
        plan = await connection.fetch(f"explain {text}".replace("$1::float8", "5.0").replace("$2::int", "9"))
    finally:
        await connection.close()
    assert "answer_due" in str(plan) and "Sort" not in str(plan)
