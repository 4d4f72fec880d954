"""Throttling: what a refusal of the far side does to its job and its queue, when many meet it at once, and later."""

from __future__ import annotations

import asyncio

from ...core.job import QueueChange, State
from ...core.outcome import Throttled
from ...ports import Storage
from ..clock import FakeClock
from .builders import a_job, finished, near, want
from .steps import Cases, a_live_pod, edit, end, look, put, queue, start, take, take_one, write


class Throttling(Cases):
    async def test_ten_pods_that_are_refused_together_raise_the_exponent_once(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        await put(storage, *(a_job() for _ in range(10)))
        jobs = [await take_one(storage, await a_live_pod(storage)) for _ in range(10)]
        answers = await asyncio.gather(*(storage.apply([finished(job, Throttled())]) for job in jobs))
        assert all(answer.accepted for (answer,) in answers)
        row = await queue(storage)
        assert row.cool_exponent == 1
        assert near(row.cool_until, clock.now() + 5)

    async def test_a_throttled_job_comes_back_when_its_queue_has_cooled_and_costs_nothing(
        self, storage: Storage
    ) -> None:
        job = await start(storage)
        ended = await end(storage, job, Throttled(60.0))
        row = await queue(storage)
        assert row.cool_until is not None
        assert near(ended.run_at, row.cool_until)
        assert (ended.state, ended.attempt, ended.throttles, ended.error) == (State.SCHEDULED, 0, 1, None)

    async def test_an_exponent_is_cleared_against_the_version_that_was_seen(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage, lease=10_000.0)
        await put(storage)
        await end(storage, await take_one(storage, pod), Throttled())
        seen = await queue(storage)
        clock.advance(200)
        await end(storage, await take_one(storage, pod), Throttled())
        cooling = await queue(storage)
        assert cooling.cool_exponent == 2
        late = await write(storage, QueueChange(name="default", version=seen.version, cool_until=None))
        assert not late.accepted
        assert (await queue(storage)).cool_until == cooling.cool_until
        clock.advance(200)
        cleared = await write(storage, QueueChange(name="default", version=cooling.version, cool_until=None))
        assert cleared.accepted
        assert (await queue(storage)).cool_exponent == 0
        await end(storage, await take_one(storage, pod), Throttled())
        assert near((await queue(storage)).cool_until, clock.now() + 5)

    async def test_what_was_throttled_is_due_at_once_when_the_queue_is_warmed(self, storage: Storage) -> None:
        """It sat there as scheduled until the end of the cool-down that an operator had ended."""
        pod = await a_live_pod(storage)
        first = await start(storage, pod)
        await end(storage, first, Throttled(20.0))
        on_purpose = await put(storage, delay=10.0)
        later = await put(storage, delay=60.0)
        await edit(storage, cool_until=None)
        assert (await take_one(storage, pod)).id == first.id
        for id in (on_purpose, later):
            assert (await look(storage, id)).state is State.SCHEDULED

    async def test_a_longer_cool_down_frees_those_of_its_beginning_too(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        one, other = await take(storage, pod, want(limit=2))
        await end(storage, one, Throttled(20.0))
        await end(storage, other, Throttled(50.0))
        await edit(storage, cool_until=None)
        assert {job.id for job in await take(storage, pod, want(limit=2))} == {one.id, other.id}
