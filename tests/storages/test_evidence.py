"""What an explanation is made of, gathered from every storage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import postgres_server
from treadle.client.explain import gather
from treadle.core.errors import JobNotFound
from treadle.core.explain import Explanation, explain
from treadle.core.job import QueueChange
from treadle.core.limit import OF_A_QUEUE, Take
from treadle.ports import Storage
from treadle.storages.memory.storage import MemoryStorage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.builders import an_id
from treadle.testing.conformance.steps import a_live_pod, put, start, take

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def storage(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Storage]:
    made: Storage
    match request.param:
        case "memory":
            made = MemoryStorage(clock)
        case "sqlite":
            made = SQLiteStorage(tmp_path / "jobs.db", clock=clock)
        case _:
            made = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), clock=clock)
    await made.open()
    yield made
    await made.close()


async def why(storage: Storage, id: str) -> Explanation:
    return explain(await gather(storage, id))


async def test_a_job_that_is_not_there(storage: Storage) -> None:
    with pytest.raises(JobNotFound, match="there is no job"):
        await gather(storage, an_id())


async def test_nobody_works(storage: Storage) -> None:
    found = await why(storage, await put(storage))
    assert found.causes[0].code == "no-pods"
    assert found.blocked


async def test_the_jobs_before_it_are_those_of_higher_priority_and_the_older_ones(
    storage: Storage, clock: FakeClock
) -> None:
    await a_live_pod(storage)
    await put(storage)
    clock.advance(1)
    id = await put(storage)
    clock.advance(1)
    await put(storage, priority=5)
    await put(storage)  # younger
    await put(storage, priority=-5)
    await put(storage, queue="other")
    clock.advance(1)
    assert (await gather(storage, id)).ahead == 2
    assert [cause.code for cause in (await why(storage, id)).causes] == ["behind"]


async def test_slots_are_full_of_what_runs(storage: Storage, clock: FakeClock) -> None:
    pod = await a_live_pod(storage, queues={"default": 2})
    for _ in range(2):
        await put(storage)
    assert len(await take(storage, pod)) == 2
    id = await put(storage)
    clock.advance(3)
    found = await why(storage, id)
    assert found.summary == "ready: all 2 slots of queue default in 1 worker are taken (work ×2)"


async def test_a_pause_is_told_with_its_reason(storage: Storage) -> None:
    await a_live_pod(storage)
    id = await put(storage)
    pause = QueueChange(name="default", paused=True, paused_by="ada", pause_reason="the far side is down")
    assert (await storage.apply((pause,)))[0].accepted
    found = await why(storage, id)
    assert found.causes[0].code == "paused"
    assert "by ada" in found.summary
    assert "the far side is down" in found.summary


async def test_a_running_job_and_one_whose_pod_fell_silent(storage: Storage, clock: FakeClock) -> None:
    job = await start(storage)
    assert (await why(storage, job.id)).causes[0].code == "running"
    clock.advance(3600)
    assert (await why(storage, job.id)).causes[0].code == "stuck"


async def test_a_job_of_the_future_says_for_how_long(storage: Storage, clock: FakeClock) -> None:
    await a_live_pod(storage)
    id = await put(storage, delay=90.0)
    clock.advance(30)
    found = await why(storage, id)
    assert found.summary.startswith("scheduled: due in 1m at ")
    assert (await gather(storage, id)).now == pytest.approx(await storage.time())


async def test_a_rate_that_is_used_up_says_when_it_goes_on(storage: Storage, clock: FakeClock) -> None:
    await a_live_pod(storage)
    assert (await storage.apply((QueueChange(name="default", rate=0.1, burst=1),)))[0].accepted
    id = await put(storage)
    await storage.take([Take(scope=f"{OF_A_QUEUE}default", want=1)])
    clock.advance(4)
    found = await why(storage, id)
    assert found.causes[0].code == "rate"
    assert "the next claim is possible in 7s" in found.summary
