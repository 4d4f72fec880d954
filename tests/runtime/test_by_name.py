"""Jobs that were enqueued without their task's code: what their rows lack is written before their runs begin."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from treadle.client.client import new_id
from treadle.core import lifecycle
from treadle.core.job import Change, Job, NewJob, QueueChange, RetryOverride, State
from treadle.ports import Applied
from treadle.storages.memory.storage import MemoryStorage

from .conftest import World

pytestmark = pytest.mark.anyio


class Seen(MemoryStorage):
    """Notes what is applied; `trouble` is what becomes of the Changes that complete a row, one call after another."""

    calls: list[list[str]]
    trouble: list[str]

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        self.calls.append([each.why for each in changes if isinstance(each, Change)])
        if "resolved" not in self.calls[-1] or not self.trouble:
            return await super().apply(changes)
        match self.trouble.pop(0):
            case "answer lost":
                await super().apply(changes)
                raise ConnectionError("the answer was lost")
            case "claim lost":
                for change in changes:
                    assert isinstance(change, Change)
                    row = self._rows[change.id]
                    await super().apply([_rescue(row.job)])
                return await super().apply(changes)
            case "refused":
                return [Applied(False, state=State.RUNNING, error="it does not fit") for _ in changes]
            case _:
                raise ConnectionError("the storage is away")


def _rescue(job: Job) -> Change:
    change = lifecycle.release(job)
    return Change(
        id=job.id, why="released", expect=change.expect, token=job.token, to=State.SCHEDULED, delay=3600.0, foreign=True
    )


def watched(world: World, *trouble: str) -> Seen:
    world.storage.__class__ = Seen
    assert isinstance(world.storage, Seen)
    world.storage.calls, world.storage.trouble = [], [*trouble]
    return world.storage


async def by_name(world: World, what: str = "return", **fields: Any) -> str:
    new = NewJob(id=new_id(), task="act", queue="default", args=f'{{"what":"{what}"}}', **fields)
    await world.storage.insert([new])
    return new.id


async def test_the_row_has_attempts_timeout_and_deadline_when_the_run_begins(world: World) -> None:
    storage = watched(world)
    async with world.pod():
        id = await by_name(world, "hang")
        await world.started.wait()
        row = storage._rows[id].job
        assert (row.max_attempts, row.timeout) == (3, 3600.0)
        assert row.deadline == (row.started_at or 0.0) + 3600.0
        world.release.set()
        await world.wait_for(id, State.SUCCEEDED)


async def test_all_such_jobs_of_a_claim_share_a_call_and_others_cost_none(world: World) -> None:
    storage = watched(world)
    known = await world.enqueue(world.act, "return")
    ids = [await by_name(world) for _ in range(3)]
    async with world.pod():
        for id in (known, *ids):
            await world.wait_for(id, State.SUCCEEDED)
        assert [each for each in storage.calls if "resolved" in each] == [["resolved"] * 3]
        storage.calls.clear()
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        assert not any("resolved" in each for each in storage.calls)


@pytest.mark.parametrize("trouble", ["away", "answer lost"])
async def test_no_run_begins_before_it_is_written(world: World, trouble: str) -> None:
    storage = watched(world, trouble, trouble)
    async with world.pod() as pod:
        id = await by_name(world)
        job = await world.wait_for(id, State.SUCCEEDED)
        assert pod.turner.counts["errors"] == 2
    assert (job.attempt, job.max_attempts, world.seen) == (1, 3, [("return", 1)])
    assert sum("resolved" in each for each in storage.calls) == 3


async def test_a_claim_that_was_lost_meanwhile_is_not_run(world: World) -> None:
    watched(world, "claim lost")
    async with world.pod() as pod:
        id = await by_name(world)
        await world.wait_for(id, State.SCHEDULED)
        await world.wait_for(await world.enqueue(world.plain, "return"), State.SUCCEEDED)
        assert pod.turner.counts["stale"] == 1
    assert world.seen == [("return", 1)], "of the other task"


async def test_a_job_whose_row_cannot_hold_it_is_given_back(world: World) -> None:
    watched(world, "refused")
    async with world.pod():
        job = await world.wait_for(await by_name(world), State.SCHEDULED)
    assert (job.attempt, world.seen) == (0, [])


async def test_a_pod_that_leaves_gives_it_back_unstarted(world: World) -> None:
    storage = watched(world, "away", "away")
    id = await by_name(world)
    async with world.pod() as pod:
        async with asyncio.timeout(10):
            while len(storage.trouble) == 2:
                await asyncio.sleep(0.005)
        assert pod.turner.knows(id, storage._rows[id].job.token or ""), "no beat may take it for a surprise"
    job = storage._rows[id].job
    assert (job.attempt, job.pod, world.seen) == (0, None, [])


async def test_a_queues_live_settings_outrank_the_tasks(world: World) -> None:
    storage = watched(world)
    live = QueueChange(name="default", timeout=50.0, retry=RetryOverride(max_attempts=2))
    await storage.apply([live])
    async with world.pod():
        id = await by_name(world, "raise")
        job = await world.wait_for(id, State.FAILED)
    assert job.attempt == 2
    assert job.timeout is None, "the setting may be gone at the next attempt"
