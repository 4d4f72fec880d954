"""Operations and retention on real databases: killed, beside a worker, behind a mark, and by their indexes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from treadle import App
from treadle.core import filter as filters
from treadle.core import lifecycle
from treadle.core.job import State
from treadle.core.operation import new
from treadle.core.outcome import Succeeded
from treadle.ports import Query
from treadle.storages.postgres import PostgresStorage
from treadle.storages.postgres import find as postgres_find
from treadle.storages.postgres import retention as postgres_retention
from treadle.storages.sqlite import SQLiteStorage
from treadle.storages.sqlite import find as sqlite_find
from treadle.storages.sqlite import retention as sqlite_retention
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.builders import a_job, a_token, an_id, want
from treadle.testing.conformance.steps import a_live_pod, end, look, put, start, write

pytestmark = pytest.mark.anyio

WORK = """
import asyncio, sys
from treadle.runtime.services.operator import work
from treadle.storages.sqlite import SQLiteStorage

async def main():
    storage = SQLiteStorage(sys.argv[1])
    await storage.open()
    found = await storage.operation(sys.argv[2])
    while found.state == "running":
        found = await work(storage, found, 25) or await storage.operation(sys.argv[2])
        print(found.changed, flush=True)

asyncio.run(main())
"""


async def test_a_killed_operator_is_succeeded_by_another_and_the_counts_are_exact(tmp_path: Path) -> None:
    from treadle.runtime.services.operator import Operator

    path = tmp_path / "jobs.db"
    storage = SQLiteStorage(path, synchronous="normal")
    await storage.open()
    await storage.insert([a_job() for _ in range(2_000)])
    begun = await storage.save_operation(new(an_id(), "move", "queue:default", queue="bulk"), None)
    assert begun is not None
    for _ in range(3):
        worker = subprocess.Popen([sys.executable, "-c", WORK, str(path), begun.id], stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        for _ in range(5):
            await asyncio.to_thread(worker.stdout.readline)
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
    half = await storage.operation(begun.id)
    assert half is not None
    assert 0 < half.changed < 2_000
    assert half.changed == (await storage.count(filters.parse("queue:bulk")))[State.READY]
    while (found := await storage.operation(begun.id)) is not None and found.state == "running":
        await Operator(storage).run_once()
    assert found is not None
    assert (found.state, found.matched, found.changed, found.refused) == ("finished", 2_000, 2_000, 0)
    await storage.close()


async def test_ten_thousand_jobs_are_changed_while_a_worker_works(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    done: list[int] = []

    @app.task(name="quick", queue="mail")
    async def quick(n: int) -> None:
        done.append(n)

    async with app:
        await app.storage.insert([a_job(queue="old") for _ in range(10_000)])
        async with app.worker():
            begun = await app.operations.start("cancel", "queue:old", attended=True)
            running = asyncio.create_task(app.operations.run(begun.id))
            longest, n = 0.0, 0
            while not running.done():
                asked = time.monotonic()
                await (await quick.enqueue(n)).result(timeout=5)
                longest, n = max(longest, time.monotonic() - asked), n + 1
            over = await running
        counts = await app.jobs.count("queue:old")
    assert (over.state, over.matched, over.changed) == ("finished", 10_000, 10_000)
    assert counts["cancelled"] == 10_000
    assert len(done) == n > 3
    assert longest < 3.0  # a chunk holds the writer for some hundredths of a second


@pytest.fixture
async def postgres() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), clock=FakeClock())
    await storage.open()
    yield storage
    await storage.close()


async def test_a_job_moved_behind_a_watermark_is_claimed_with_the_next_sweep(
    postgres: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims start where the last one ended while scans from the front are slow; a job that comes to lie in front of
    that mark waits for the sweep, and no longer."""
    from treadle.storages.postgres import claim

    monkeypatch.setattr(claim, "SLOW_SCAN", -1.0)  # every scan is slow: marks are in use
    monkeypatch.setattr(claim, "SLOW_IN_A_ROW", 1)
    monkeypatch.setattr(claim, "SWEEP_EVERY", 600.0)
    clock: Any = postgres._clock  # pyright: ignore[reportPrivateUsage]
    pod = await a_live_pod(postgres)
    late = await put(postgres, queue="slow")
    clock.advance(5)
    for _ in range(2):
        await end(postgres, await start(postgres, pod, queue="bulk", priority=3), Succeeded())
        clock.advance(1)
    lanes = postgres._lanes  # pyright: ignore[reportPrivateUsage]
    assert lanes.slow
    assert any(at > 0 for at, _ in lanes._marks.values())  # pyright: ignore[reportPrivateUsage]
    await write(postgres, lifecycle.move(await look(postgres, late), "bulk"))
    await write(postgres, lifecycle.set_priority(await look(postgres, late), 3))
    assert not (await postgres.claim(pod, a_token(), [want("bulk")])).jobs  # hidden by the mark
    monkeypatch.setattr(claim, "SWEEP_EVERY", 0.0)  # its second is over
    monkeypatch.setattr(claim, "SWEEP_SHARE", 0.0)
    (job,) = (await postgres.claim(pod, a_token(), [want("bulk")])).jobs
    assert job.id == late


async def _all(storage: Any, text: str, limit: int) -> list[str]:
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = await storage.find(Query(filter=filters.parse(text), limit=limit, cursor=cursor))
        seen += [job.id for job in page.jobs]
        cursor = page.next or page.resume
        if cursor is None:
            return seen


@pytest.mark.parametrize("text", ["args.n:1", "args.n:1 state:ready", "priority:>0", "-queue:other"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_look_cut_short_can_be_taken_up_until_all_was_seen(
    text: str, kind: str, tmp_path: Path, postgres: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage: Any = postgres
    if kind == "sqlite":
        storage = SQLiteStorage(tmp_path / "jobs.db", synchronous="normal")
        await storage.open()
        monkeypatch.setattr(sqlite_find, "FEW", 3)
        monkeypatch.setattr(sqlite_find, "STRETCH", 7)
        monkeypatch.setattr(sqlite_find, "PATIENT_WITH", 21)
        monkeypatch.setattr(sqlite_find, "MOST_LOOKED_AT", 14)
    else:
        monkeypatch.setattr(postgres_find, "FIRST_STRETCH", 7)
        monkeypatch.setattr(postgres_find, "STRETCH", 7)
        monkeypatch.setattr(postgres_find, "MOST_LOOKED_AT", 14)
    jobs = [
        a_job(args=f'{{"n":{n % 5}}}', priority=n % 5 == 1, queue="other" if n % 5 != 1 else "q") for n in range(100)
    ]
    await storage.insert(jobs)
    first = await storage.find(Query(filter=filters.parse(text), limit=50))
    if "args" in text:
        assert first.newest_only is not None
        assert first.next is None
    assert await _all(storage, text, 3) == [job.id for n, job in reversed(list(enumerate(jobs))) if n % 5 == 1]
    if kind == "sqlite":
        await storage.close()


async def test_pruning_reads_nothing_but_its_index(tmp_path: Path, postgres: PostgresStorage) -> None:
    import sqlite3

    storage = SQLiteStorage(tmp_path / "jobs.db")
    await storage.open()
    await storage.close()
    with contextlib.closing(sqlite3.connect(storage.path)) as db, db:
        plan = " ".join(
            row[3]
            for row in db.execute(f"explain query plan {sqlite_retention._OLD}", ("q", "failed", 1.0, 1.0, 10))  # pyright: ignore[reportPrivateUsage]
        )
    assert "USING INDEX treadle_job_ended (queue=? AND state=? AND finished_at<?)" in plan
    assert "SCAN job" not in plan
    asyncpg: Any = pytest.importorskip("asyncpg")
    admin = await asyncpg.connect(postgres_server.shared_url())
    try:
        await admin.execute(
            f"insert into {postgres.schema_name}.job_history (seq, id, run_at, created_at, finished_at, priority, "
            "format, pinned, attempt, crashes, snoozes, throttles, error_count, state, queue, task, args) "
            "select n, gen_random_uuid(), now(), now(), now() - n * interval '1 minute', 0, 1, false, 1, 0, 0, 0, 0, "
            "case when n % 20 = 0 then 'failed' else 'succeeded' end, 'q', 't', '{}' "
            "from generate_series(1, 20000) as n"
        )
        await admin.execute(f"analyze {postgres.schema_name}.job_history")
        await admin.execute("begin")
        await admin.execute(postgres_retention.PLANNING[0])
        for text, index in (
            (postgres_retention._ANY_OLD, "job_history_finished"),  # pyright: ignore[reportPrivateUsage]
            (postgres_retention._RARE_OLD, "job_history_state"),  # pyright: ignore[reportPrivateUsage]
        ):
            statement = text.replace("treadle.", f'"{postgres.schema_name}".')
            state = "succeeded" if index == "job_history_finished" else "failed"
            values = (-50_000_000_000_000_000, "00000000-0000-0000-0000-000000000000", 0.0, time.time(), 1000, state)
            plan = "\n".join(row[0] for row in await admin.fetch(f"explain {statement}", *values))
            assert f"Index Scan using {index}" in plan, plan
            assert "Seq Scan on job_history" not in plan
    finally:
        await admin.close()


async def test_pruning_ties_and_survivors_in_postgres_never_stands_still(postgres: PostgresStorage) -> None:
    """Thousands may end by one statement, in one instant; those that stay must not hide those that go."""
    from treadle.core.job import QueueChange

    clock: Any = postgres._clock  # pyright: ignore[reportPrivateUsage]
    await postgres.apply([QueueChange(name="all", keep_cancelled=-1.0)])
    jobs = [a_job(queue="all" if n % 3 else "usual") for n in range(60)]
    await postgres.insert(jobs)
    changes = [lifecycle.cancel(job) for job in await postgres.get([job.id for job in jobs])]
    await postgres.apply([change for change in changes if change is not None])
    clock.advance(8 * 86_400)
    removed, passes, mark = 0, 0, None
    while passes == 0 or mark is not None:
        pruned = await postgres.prune(State.CANCELLED, mark=mark, limit=4)
        removed, mark, passes = removed + pruned.removed, pruned.mark, passes + 1
        assert passes < 20
    assert removed == 20
