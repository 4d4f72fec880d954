"""A claim on SQLite is read as one text: what becomes of rows that do not fit into it, and how it is read."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treadle.core import lifecycle
from treadle.core.backoff import Retry
from treadle.core.job import State
from treadle.core.outcome import Succeeded
from treadle.core.queue import Queue
from treadle.storages.sqlite import SQLiteStorage, take
from treadle.storages.sqlite.sql import statement
from treadle.testing.conformance.builders import a_job, a_token, want
from treadle.testing.conformance.steps import a_live_pod, look, put
from treadle.testing.conformance.steps import take as claim

pytestmark = pytest.mark.anyio


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[SQLiteStorage]:
    storage = SQLiteStorage(tmp_path / "jobs.db")
    await storage.open()
    yield storage
    await storage.close()


def damage(storage: SQLiteStorage, sets: str, id: str) -> None:
    with contextlib.closing(sqlite3.connect(storage.path)) as db, db:
        db.execute(f"update treadle_job set {sets} where id = ?", (id,))
    db.close()


@pytest.mark.parametrize(
    "sets",
    [
        "args = x'7b7d'",  # JSON cannot hold a blob
        "args = cast(x'ff' as text)",  # no UTF-8
        "created_at = 9e999",
        "created_at = 'soon'",
        "timeout = 9e999",
        "max_attempts = 'many'",
        "attempt = 9223372036854775807",
        "format = 1.5",
        "priority = 0, attempt = -7",
    ],
)
async def test_a_row_that_does_not_fit_keeps_no_neighbour_from_running(storage: SQLiteStorage, sets: str) -> None:
    pod = await a_live_pod(storage)
    first, bad, last = [await put(storage) for _ in range(3)]
    damage(storage, sets, bad)
    claimed = {job.id: job for job in await claim(storage, pod)}
    assert {first, last} <= set(claimed)
    for id in (first, last):
        assert claimed[id] == await look(storage, id)
    assert (await look(storage, bad)).state is (State.RUNNING if bad in claimed else State.FAILED)


class Counting:
    """A connection that counts the rows it answers with."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.rows = 0

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        cursor = self._db.execute(sql, parameters)
        cursor.row_factory = self._count
        return cursor

    def _count(self, _: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self.rows += 1
        return row


async def test_plain_jobs_are_told_by_one_row(storage: SQLiteStorage) -> None:
    """For every row that it fetches the writer has to ask for the interpreter anew, beside a busy loop: a hundred rows
    were a hundred waits, and no second turn could run beside the first."""
    await storage.insert([a_job() for _ in range(100)])
    db = sqlite3.connect(storage.path, isolation_level=None)
    seqs = [seq for (seq,) in db.execute("select seq from treadle_job")]
    counting = Counting(db)
    jobs = take.take(counting, "pod", "token", Queue(name="default"), seqs, 1_800_000_000.0)
    assert (len(jobs), counting.rows) == (100, 1)
    db.close()


async def test_long_arguments_are_read_once(storage: SQLiteStorage) -> None:
    """They are read column by column; in the text they would be escaped and decoded for nothing."""
    long = '{"text":"' + "x" * 100_000 + '"}'
    await storage.insert([a_job(args=long), a_job()])
    db = sqlite3.connect(storage.path, isolation_level=None)
    (told,) = db.execute(statement("claim_read"), ("[1,2]",)).fetchone()
    assert len(told) < 1_000
    jobs = take.take(db, "pod", "token", Queue(name="default"), [1, 2], 1_800_000_000.0)
    assert [job.args for job in jobs] == [long, "{}"]
    db.close()


async def test_a_stale_success_among_many_harms_no_other(storage: SQLiteStorage) -> None:
    """Successes of one claim are one statement; if it finds fewer rows than it should, each is asked by itself."""

    pod = await a_live_pod(storage)
    await storage.insert([a_job() for _ in range(10)])
    token = a_token()
    jobs = (await storage.claim(pod, token, [want()])).jobs
    damage(storage, "token = 'another'", jobs[4].id)
    results = [Succeeded(None, None), Succeeded('"ok"', None)]
    changes = [lifecycle.finish(job, results[n % 2], Retry(), 0.0) for n, job in enumerate(jobs)]
    applied = await storage.apply(changes)
    assert [n for n, each in enumerate(applied) if not each.accepted] == [4]
    found = [await look(storage, job.id) for job in jobs]
    assert [job.state for job in found].count(State.SUCCEEDED) == 9
    assert [job.result for job in found if job.state is State.SUCCEEDED] == [
        None,
        '"ok"',
        None,
        '"ok"',
        '"ok"',
        None,
        '"ok"',
        None,
        '"ok"',
    ]
