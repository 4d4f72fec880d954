"""A second turn beside the first: when there is one, and what the two may not do together."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from treadle.core.job import Change, QueueChange, State
from treadle.core.pace import EVERY
from treadle.ports import Applied, Claimed, Want
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.conformance.builders import a_pod
from treadle.testing.simulation.loop import SimLoop

from .conftest import QUICK, World

pytestmark = pytest.mark.anyio

MANY = 4


class Slow(MemoryStorage):
    """Works beside the pod, takes its time, and notes how much was asked of it at once."""

    capabilities = msgspec.structs.replace(MemoryStorage.capabilities, overlap=MANY)
    applies = most_applies = claims = most_claims = asked = 0
    gate: asyncio.Event | None = None  # once set here, finishes wait for it
    lose_claims = lose_applies = 0
    running = staticmethod(lambda: 0)  # runs of the pod
    most_held = 0

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        self.applies += 1
        self.most_applies = max(self.most_applies, self.applies)
        try:
            await (asyncio.sleep(0.003) if self.gate is None else self.gate.wait())
            answers = await super().apply(changes)
        finally:
            self.applies -= 1
        if self.lose_applies:
            self.lose_applies -= 1
            raise ConnectionError("the answer was lost")
        return answers

    async def claim(self, pod: str, token: str, wants: Sequence[Want]) -> Claimed:
        size = sum(want.limit for want in wants)
        self.asked += size
        self.claims += 1
        self.most_claims = max(self.most_claims, self.claims)
        self.most_held = max(self.most_held, self.asked + self.running())
        try:
            await asyncio.sleep(0.001)
            claimed = await super().claim(pod, token, wants)
        finally:
            self.asked -= size
            self.claims -= 1
        if self.lose_claims and claimed.jobs:
            self.lose_claims -= 1
            raise ConnectionError("the answer was lost")
        return claimed


def slow(world: World) -> Slow:
    world.storage.__class__ = Slow
    assert isinstance(world.storage, Slow)
    return world.storage


async def enqueue(world: World, jobs: int, task: Any = None) -> list[str]:
    called = task or world.act
    return [handle.id for handle in await world.client.enqueue_many([called.bind("return") for _ in range(jobs)])]


async def all_done(world: World, ids: Sequence[str]) -> None:
    for id in ids:
        job = await world.wait_for(id, State.SUCCEEDED)
        assert job.attempt == 1


async def test_where_many_runs_end_a_second_turn_leaves_beside_the_first(world: World) -> None:
    storage = slow(world)
    ids = await enqueue(world, 200)
    async with world.pod(slots=20) as pod:
        await all_done(world, ids)
        await pod.turner.flush()
    assert storage.most_applies == storage.most_claims == 2
    assert pod.turner.counts["claimed"] == pod.turner.counts["succeeded"] == len(world.seen) == 200


async def test_few_runs_wait_for_the_turn_that_is_under_way(world: World) -> None:
    storage = slow(world)
    storage.gate = asyncio.Event()
    ids = await enqueue(world, 1)
    async with world.pod(slots=20):
        while not storage.applies:
            await asyncio.sleep(0.001)
        ids += await enqueue(world, MANY - 1)
        await asyncio.sleep(0.05)
        assert storage.applies == 1
        storage.gate.set()
        await all_done(world, ids)


async def test_beside_other_pods_there_is_no_second_turn(world: World) -> None:
    """The storage has their turns to work at; with two of each, four pods were slower than two."""
    storage = slow(world)
    await storage.register(a_pod(queues={"default": 20}))
    ids = await enqueue(world, 200)
    async with world.pod(slots=20) as pod:
        await all_done(world, ids)
    assert pod.roster.serving["default"] == 2
    assert storage.most_applies == storage.most_claims == 1


async def test_who_was_alone_hears_at_once_that_it_is_not(world: World) -> None:
    """Long before its next beat: it is woken."""
    slowly = dataclasses.replace(QUICK, lease=300.0, beat=60.0)
    async with world.pod(timing=slowly) as first:
        assert first.roster.serving == {"default": 1}
        async with world.pod(timing=slowly), asyncio.timeout(10):
            while first.roster.serving != {"default": 2}:
                await asyncio.sleep(0.002)
        async with asyncio.timeout(10):
            while first.roster.serving != {"default": 1}:
                await asyncio.sleep(0.002)


def test_in_a_stream_of_small_turns_the_next_one_waits_for_company() -> None:
    """On virtual time, where this storage answers at once and a busy machine stretches nothing: without a pace there
    is a turn for every job, one right after the other."""

    async def stream() -> list[float]:
        world, left = World(), list[float]()
        claim = world.storage.claim

        async def noted(*asked: Any) -> Claimed:
            left.append(asyncio.get_running_loop().time())
            return await claim(*asked)

        world.storage.claim = noted  # type: ignore[method-assign]
        async with world.pod(slots=20):
            for _ in range(150):
                await enqueue(world, 1)
                await asyncio.sleep(0.001)
        return left

    loop = SimLoop("a stream")
    try:
        left = loop.run_until_complete(stream())
    finally:
        loop.close()
    gaps = sorted(after - before for before, after in itertools.pairwise(left))
    assert gaps[len(gaps) // 2] == pytest.approx(EVERY)


async def test_a_storage_that_does_not_ask_for_it_has_one_turn_at_a_time(world: World) -> None:
    storage = slow(world)
    storage.capabilities = MemoryStorage.capabilities  # type: ignore[misc]
    ids = await enqueue(world, 200)
    async with world.pod(slots=20):
        await all_done(world, ids)
    assert storage.most_applies == 1


async def test_two_claims_never_ask_for_more_than_there_are_slots(world: World) -> None:
    storage = slow(world)
    ids = await enqueue(world, 300)
    async with world.pod(slots=20) as pod:
        storage.running = lambda: len(pod.roster)  # type: ignore[method-assign]
        await all_done(world, ids)
        assert pod.turner.counts["released"] == 0
    assert MANY < storage.most_held <= 20


async def test_two_claims_never_ask_for_more_than_an_executor_has_places(world: World) -> None:
    """What finds no place would wait in memory, behind the pool's four threads."""
    slow(world)
    most = 0
    ids = [*(await enqueue(world, 60, world.plain)), *(await enqueue(world, 60))]
    async with world.pod(slots=30) as pod:

        def look(start: Any = pod.crew.start) -> Any:
            def started(job: Any, **more: Any) -> None:
                nonlocal most
                start(job, **more)
                most = max(most, sum(run.task.name == "plain" for run in pod.roster.runs()))

            return started

        pod.crew.start = look()  # type: ignore[method-assign]
        await all_done(world, ids)
    assert 1 <= most <= 4


async def test_what_either_turn_did_not_hear_of_is_found_again(world: World) -> None:
    storage = slow(world)
    storage.lose_claims = storage.lose_applies = 2
    ids = await enqueue(world, 100)
    async with world.pod(slots=20) as pod:
        async with asyncio.timeout(15):
            while pod.turner.counts["succeeded"] < 100:
                pod.turner.storage_is_back()  # as an answered beat says
                await asyncio.sleep(0.005)
        await all_done(world, ids)
        assert pod.turner.counts["recovered"] > 0
    assert len(world.seen) == 100
    assert storage.lose_claims == storage.lose_applies == 0


async def test_a_stop_waits_for_both_turns(world: World) -> None:
    storage = slow(world)
    storage.gate = asyncio.Event()
    ids = await enqueue(world, 40)
    async with world.pod(slots=20) as pod:
        async with asyncio.timeout(5):
            while storage.applies < 2:
                await asyncio.sleep(0.001)
        stopping = asyncio.create_task(pod.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        storage.gate.set()
        await stopping
        assert pod.clean
    states = [(await world.job(id)).state for id in ids]
    assert State.RUNNING not in states
    assert states.count(State.SUCCEEDED) == len(world.seen)


async def test_what_the_first_turn_writes_is_not_written_when_the_second_is(world: World) -> None:
    storage = slow(world)
    storage.gate = first = asyncio.Event()
    ids = await enqueue(world, 40)
    async with world.pod(slots=20) as pod:
        async with asyncio.timeout(5):
            while storage.applies < 1:
                await asyncio.sleep(0)
            storage.gate = None  # only the first has to wait
            while pod.turner.counts["succeeded"] < 10 or storage.applies > 1 or pod.turner.unwritten:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.03)
        flushing = asyncio.create_task(pod.turner.flush())
        await asyncio.sleep(0.02)
        assert not flushing.done()
        first.set()
        async with asyncio.timeout(5):
            await flushing
        await all_done(world, ids)
