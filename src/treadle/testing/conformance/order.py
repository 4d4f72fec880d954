"""The order of claiming: priority descending, then run_at, then insertion."""

from __future__ import annotations

import random

from ...core import lifecycle
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, failing, lane, want, want_lanes
from .steps import Cases, a_live_pod, end, look, put, start, take, take_one, write


class Order(Cases):
    async def test_a_higher_priority_goes_first(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(priority=priority) for priority in (0, -100, 100, -1, 1)))
        assert [job.priority for job in await take(storage, pod)] == [100, 1, 0, -1, -100]

    async def test_of_equal_priority_the_earlier_due_goes_first(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        delays = (5.0, 1.0, 3.0)
        await put(storage, *(a_job(delay=delay, args=f'{{"n":{delay}}}') for delay in delays))
        clock.advance(5)
        assert [job.args for job in await take(storage, pod)] == ['{"n":1.0}', '{"n":3.0}', '{"n":5.0}']

    async def test_of_equal_due_times_the_earlier_inserted_goes_first(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        jobs = [a_job() for _ in range(30)]
        await put(storage, *jobs[:10])
        await put(storage, *jobs[10:])
        assert [job.id for job in await take(storage, pod)] == [job.id for job in jobs]

    async def test_waiting_long_does_not_beat_priority(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        old = await put(storage)
        clock.advance(10_000)
        await storage.beat(pod, LEASE, [])
        urgent = await put(storage, priority=1)
        assert [job.id for job in await take(storage, pod)] == [urgent, old]

    async def test_one_by_one_gives_the_same_order_as_all_at_once(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        jobs = [a_job(priority=n % 3) for n in range(12)]
        await put(storage, *jobs)
        expected = [job.id for job in sorted(jobs, key=lambda job: -job.priority)]
        assert [(await take_one(storage, pod)).id for _ in jobs] == expected

    async def test_a_limit_takes_the_head_of_the_order(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(priority=n) for n in range(10)))
        assert [job.priority for job in await take(storage, pod, want(limit=3))] == [9, 8, 7]

    async def test_the_order_is_exact_across_lanes(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        tasks = ("a", "b", "c")
        jobs = [a_job(task=tasks[n % 3], priority=n % 4) for n in range(24)]
        await put(storage, *jobs)
        taken = await take(storage, pod, want_lanes(lane("a"), lane("b", "c"), limit=10))
        expected = sorted(jobs, key=lambda job: -job.priority)[:10]
        assert [job.id for job in taken] == [job.id for job in expected]

    async def test_a_full_lane_keeps_the_order_of_the_rest(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        jobs = [a_job(task="ab"[n % 2], priority=-n) for n in range(10)]
        await put(storage, *jobs)
        taken = await take(storage, pod, want_lanes(lane("a", limit=2), lane("b"), limit=6))
        assert [-job.priority for job in taken] == [0, 1, 2, 3, 5, 7]

    async def test_a_retried_job_sorts_by_its_new_time(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        first = await start(storage, pod)
        second = await put(storage)
        await end(storage, first, failing(after=5.0))
        clock.advance(5)
        third = await put(storage, delay=0.0)
        assert [job.id for job in await take(storage, pod)] == [second, first.id, third]

    async def test_a_rescheduled_job_sorts_by_its_new_time(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        first = await put(storage, delay=100.0)
        second = await put(storage)
        clock.advance(1)
        await write(storage, lifecycle.reschedule(await look(storage, first)))
        assert [job.id for job in await take(storage, pod)] == [second, first]

    async def test_the_order_holds_for_any_mixture(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        chance = random.Random(7)  # noqa: S311 - a fixed mixture, not a secret
        jobs = [
            a_job(priority=chance.choice((-5, 0, 0, 5)), delay=float(chance.randrange(4)), task=chance.choice("ab"))
            for _ in range(300)
        ]
        for n in range(0, 300, 50):
            await put(storage, *jobs[n : n + 50])
        clock.advance(3)
        expected = [job.id for job in sorted(jobs, key=lambda job: (-job.priority, job.delay))]
        taken: list[str] = []
        for limit in (1, 7, 100, 500):
            taken += [job.id for job in await take(storage, pod, want_lanes(lane("a"), lane("b"), limit=limit))]
        assert taken == expected
