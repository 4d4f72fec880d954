"""Plans: what the hot statements read, and that they go on reading it when the table changes under a kept plan."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import postgres_server
from treadle.core.filter import parse
from treadle.core.job import State
from treadle.core.outcome import Succeeded
from treadle.ports import Query
from treadle.storages.postgres import PostgresStorage, find
from treadle.storages.postgres.claim import SLOW_IN_A_ROW, Lanes
from treadle.testing.conformance.builders import a_job, failing, finished, want
from treadle.testing.conformance.steps import a_live_pod, put, take, take_one

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")


@pytest.fixture
async def storage() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
async def admin() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_server.shared_url())
    yield connection
    await connection.close()


async def fill(storage: PostgresStorage, admin: Any, count: int, **columns: str) -> None:
    """Many jobs at once, behind the storage's back."""
    given = {"queue": "'default'", "task": "'work'", "args": "'{}'", "priority": "0"} | columns
    await storage.insert([a_job()])  # makes the lane known
    await admin.execute(
        f"insert into {storage.schema_name}.job (id, {', '.join(given)}) "
        f"select gen_random_uuid(), {', '.join(given.values())} from generate_series(1, {count}) as n"
    )


async def scans(admin: Any, storage: PostgresStorage) -> int:
    """How often the table of live jobs was read as a whole."""
    await admin.execute("select pg_stat_clear_snapshot()")
    found = await admin.fetchval(
        "select seq_scan from pg_stat_user_tables where schemaname = $1 and relname = 'job'", storage.schema_name
    )
    return int(found)


async def test_a_plan_made_on_an_empty_table_serves_a_full_one(storage: PostgresStorage, admin: Any) -> None:
    """A plan is kept for as long as its connection lives. Made while the table was empty, the plan of a finish that
    joins with the list of ids reads the whole table for every id: 7 s for 1,000 of 30,000."""
    pod = await a_live_pod(storage)
    for _ in range(10):  # every statement has a kept plan now
        await put(storage)
        await storage.apply([finished(await take_one(storage, pod), Succeeded())])
        await put(storage)
        await storage.apply([finished(await take_one(storage, pod), failing(after=0.0))])
        await storage.apply([finished(await take_one(storage, pod), Succeeded())])
    await admin.execute(f"vacuum analyze {storage.schema_name}.job")
    await fill(storage, admin, 30_000)
    jobs = await take(storage, pod, want(limit=1_000))
    assert len(jobs) == 1_000
    took: dict[str, float] = {}
    for name, outcome in (("finish", Succeeded()), ("return", failing(after=60.0))):
        began = time.perf_counter()
        answers = await storage.apply([finished(job, outcome) for job in jobs])
        took[name] = time.perf_counter() - began
        assert all(answer.accepted for answer in answers)
        began = time.perf_counter()
        jobs = await take(storage, pod, want(limit=1_000))
        took["claim"] = time.perf_counter() - began
        assert len(jobs) == 1_000
    assert all(seconds < 0.2 * _patience() for seconds in took.values()), took


def _patience() -> float:
    """A loaded machine is no counterexample: the trap costs thirty times the limit."""
    import os

    return 1.0 + os.getloadavg()[0]


async def test_the_hot_path_never_reads_the_whole_table(storage: PostgresStorage, admin: Any) -> None:
    pod = await a_live_pod(storage)
    await fill(storage, admin, 20_000)
    await admin.execute(f"analyze {storage.schema_name}.job")
    await take(storage, pod, want(limit=10))
    await asyncio.sleep(1.1)  # a session tells its numbers once a second
    await storage.wake([])
    before = await scans(admin, storage)
    for limit in (1, 50, 500):
        jobs = await take(storage, pod, want(limit=limit))
        await storage.apply([finished(job, Succeeded() if n % 2 else failing()) for n, job in enumerate(jobs)])
        await storage.insert([a_job() for _ in range(limit)])
    await storage.close()
    await storage.open()
    assert await scans(admin, storage) == before


async def test_the_claim_and_the_finish_are_explained_as_intended(storage: PostgresStorage, admin: Any) -> None:
    await fill(storage, admin, 20_000)
    schema = storage.schema_name
    await admin.execute(
        "set enable_seqscan = off; set enable_bitmapscan = off; set enable_nestloop = on; set jit = off; "
        "set plan_cache_mode = force_generic_plan; set enable_hashjoin = off; set enable_mergejoin = off"
    )
    await admin.execute(
        f"prepare due(text, int2, timestamptz, timestamptz, int8, text[], int) as select ctid from {schema}.job "
        "where queue = $1 and priority = $2 and (run_at, seq) > ($4, $5) and run_at <= $3 and state = 'ready' "
        "and task = any ($6) order by run_at, seq limit $7 for update skip locked"
    )
    plan = await _explained(admin, "execute due('default', 0::int2, now(), '-infinity', 0, array['work'], 100)")
    assert "Index Scan using job_lane" in plan
    assert "Sort" not in plan
    condition = next(line for line in plan.splitlines() if "Index Cond" in line)
    assert "run_at <=" in condition
    assert "ROW(run_at, seq) >" in condition
    await admin.execute("set enable_hashjoin = on; set enable_nestloop = off")
    await admin.execute(
        f"prepare done(uuid[], text[]) as delete from {schema}.job as j using unnest($1, $2) as u (id, token) "
        "where j.id = any ($1) and j.id = u.id and j.token = u.token and j.state = 'running'"
    )
    plan = await _explained(admin, "execute done('{00000000-0000-0000-0000-000000000000}', '{x}')")
    assert "Index Scan using job_pkey" in plan
    assert "Hash Join" in plan
    assert "job_lane" not in plan


async def _explained(admin: Any, statement: str) -> str:
    return "\n".join(row[0] for row in await admin.fetch(f"explain {statement}"))


async def test_a_claim_is_a_hot_update(storage: PostgresStorage, admin: Any) -> None:
    pod = await a_live_pod(storage)
    await storage.insert([a_job(args='{"n":12345678}') for _ in range(2_000)])
    await take(storage, pod, want(limit=2_000))
    await storage.close()
    await storage.open()
    updated, hot = await admin.fetchrow(
        "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where schemaname = $1 and relname = 'job'",
        storage.schema_name,
    )
    assert updated == 2_000
    # All at once, before anything has ended, and with tokens twice as long as a pod's: no claim is ever worse off.
    assert hot > 0.85 * updated


# The watermark -------------------------------------------------------------------------------------------------------


async def leave_dead_rows_until_claims_are_slow(storage: PostgresStorage, admin: Any, pod: str) -> None:
    """How many dead rows make a claim of one job slow depends on the machine: more of them until it is, then as many
    again, so that it stays slow."""
    dead = 10_000
    was_slow = False
    for _ in range(8):
        while jobs := await take(storage, pod, want(limit=200)):
            await storage.apply([finished(job, Succeeded()) for job in jobs])
        for _ in range(2 * SLOW_IN_A_ROW):
            storage._lanes._swept_at = -math.inf  # a sweep is due
            await put(storage)
            await storage.apply([finished(await take_one(storage, pod), Succeeded())])
        if was_slow and storage._lanes.slow:
            return
        was_slow = storage._lanes.slow
        await storage.insert([a_job() for _ in range(dead)])
        dead *= 2
    raise AssertionError("no number of dead rows made a claim slow")


async def wait_of_a_late_commit(storage: PostgresStorage, admin: Any, patience: float) -> float | None:
    """How long an enqueue waits that commits when the mark has passed it; None if it is not claimed in time."""
    pod = await a_live_pod(storage, lease=600.0)
    await fill(storage, admin, 10_000)
    other = await asyncpg.connect(postgres_server.shared_url())
    pinned = other.transaction(isolation="repeatable_read")
    await pinned.start()
    await other.fetch(f"select count(*) from {storage.schema_name}.job")
    late = admin.transaction()
    await late.start()
    id = await admin.fetchval(f"select {storage.schema_name}.enqueue('work')::text")
    await leave_dead_rows_until_claims_are_slow(storage, admin, pod)
    await storage.insert([a_job() for _ in range(10)])
    await asyncio.sleep(0.4)
    await storage.insert([a_job()])
    await take(storage, pod)
    assert storage._lanes.slow
    await late.commit()
    began = time.monotonic()
    took = None
    while took is None and time.monotonic() - began < patience:
        if any(job.id == id for job in await take(storage, pod)):
            took = time.monotonic() - began
        await asyncio.sleep(0.02)
    await pinned.rollback()
    await other.close()
    return took


async def test_an_enqueue_that_commits_late_waits_for_no_more_than_a_sweep(
    storage: PostgresStorage, admin: Any
) -> None:
    took = await wait_of_a_late_commit(storage, admin, 10.0)
    assert took is not None
    assert took < 3.0


async def test_without_the_sweep_it_would_not_be_claimed(
    storage: PostgresStorage, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the test above would prove nothing."""
    monkeypatch.setattr(Lanes, "is_sweep_due", lambda self, _: not self.slow)
    assert await wait_of_a_late_commit(storage, admin, 3.0) is None


async def test_a_new_priority_is_claimed_at_once(storage: PostgresStorage) -> None:
    pod = await a_live_pod(storage)
    await put(storage)
    await take(storage, pod)
    urgent = await put(storage, priority=50)
    assert (await take_one(storage, pod)).id == urgent


async def test_a_lane_that_nobody_told_of_is_found(storage: PostgresStorage, admin: Any) -> None:
    pod = await a_live_pod(storage)
    await admin.execute(
        f"insert into {storage.schema_name}.job (id, queue, task, priority) "
        "values (gen_random_uuid(), 'default', 'work', 42)"
    )
    assert await take(storage, pod) == []
    await storage.abandoned(10, 30.0)
    assert (await take_one(storage, pod)).priority == 42
    assert (await storage.queues())[0].running == 1


async def test_a_job_is_in_one_table_at_a_time(storage: PostgresStorage, admin: Any) -> None:
    pod = await a_live_pod(storage)
    await storage.insert([a_job() for _ in range(200)])
    jobs = await take(storage, pod)

    async def watch() -> set[int]:
        return {len(await storage.get([job.id for job in jobs])) for _ in range(50)}

    seen, _ = await asyncio.gather(
        watch(), asyncio.gather(*(storage.apply([finished(job, Succeeded())]) for job in jobs))
    )
    assert seen == {200}
    assert {job.state for job in await storage.get([job.id for job in jobs])} == {State.SUCCEEDED}


async def test_which_tasks_are_due_is_told_without_reading_the_table(storage: PostgresStorage, admin: Any) -> None:
    await fill(storage, admin, 30_000, task="'work' || n % 3")
    await fill(storage, admin, 30_000, queue="'later'", run_at="now() + interval '1 day'")
    await put(storage, queue="later", task="now")
    await storage.due_tasks()
    await asyncio.sleep(0.1)
    before = await scans(admin, storage)
    found = {(each.queue, each.task): each.count for each in await storage.due_tasks()}
    assert ("later", "now") in found
    assert 999 <= sum(count for (queue, _), count in found.items() if queue == "default") <= 1_002
    await asyncio.sleep(0.1)
    assert await scans(admin, storage) == before


# What operators read -------------------------------------------------------------------------------------------------


async def test_of_a_large_table_running_and_waiting_jobs_are_known_without_reading_it(
    storage: PostgresStorage, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have no index: they are told by the runs of the last beats and by answers that are waited for."""
    pod = await a_live_pod(storage)
    await fill(storage, admin, 20_000, run_at="now() + interval '1 day'")
    running = await take(storage, pod, want(limit=1))
    await storage.insert([a_job() for _ in range(3)])
    schema = storage.schema_name
    await admin.execute(
        f"insert into {schema}.run (job_id, pod, token) select id, pod, token from {schema}.job where state = 'running'"
    )
    await admin.execute(f"vacuum analyze {schema}.job")
    monkeypatch.setattr(find, "SMALL_FOR_SCANS", 0)
    (queue,) = await storage.queues()
    assert (queue.ready, queue.scheduled, queue.running, queue.waiting) == (3, 20_000, 1, 0)
    assert queue.oldest_ready_seconds is not None
    counts = await storage.count(parse("state:running,waiting"))
    page = await storage.find(Query(filter=parse("state:running")))
    stuck = await storage.find(Query(filter=parse("is:stuck")))
    assert counts == {State.RUNNING: 1}
    assert [job.id for job in page.jobs] == [job.id for job in running]
    assert list(stuck.jobs) == []
