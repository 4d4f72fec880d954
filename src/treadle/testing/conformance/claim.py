"""Claiming: what a live pod gets, what it is charged, and what it is told to wait for."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from ...core.job import QueueChange, State
from ...core.outcome import Snoozed, Succeeded, Throttled
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, TICK, a_job, a_pod, a_token, failing, lane, near, only, want, want_lanes
from .steps import Cases, a_live_pod, edit, end, look, put, start, take, take_one, write


class Claim(Cases):
    async def test_a_claim_makes_a_job_the_pods_own(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        id = await put(storage)
        clock.advance(3)
        token = a_token()
        job = only((await storage.claim(pod, token, [want()])).jobs)
        assert (job.id, job.state, job.pod, job.token) == (id, State.RUNNING, pod, token)
        assert near(job.started_at, clock.now())

    async def test_a_claim_charges_an_attempt(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.attempt == 1
        assert (await look(storage, job.id)).attempt == 1

    async def test_every_claim_charges_again(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        for attempt in (2, 3, 4):
            await end(storage, job, failing(after=1.0))
            clock.advance(1)
            job = await take_one(storage, pod)
            assert job.attempt == attempt

    async def test_a_claim_answers_with_what_is_written(self, storage: Storage) -> None:
        new = a_job(args='{"n":1}', tags=("a",), meta='{"m":2}', reason="why", max_attempts=3, timeout=9.0, format=2)
        pod = await a_live_pod(storage)
        await put(storage, new)
        job = await take_one(storage, pod)
        assert job == await look(storage, new.id)
        assert (job.args, job.tags, job.meta, job.reason, job.max_attempts, job.format) == (
            '{"n":1}',
            ("a",),
            '{"m":2}',
            "why",
            3,
            2,
        )

    async def test_unlike_jobs_in_one_claim_come_whole_and_in_their_order(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        """To the last bit of their times. A storage may read most jobs by a shorter way than those that have more."""
        pod = await a_live_pod(storage)
        kinds: list[dict[str, Any]] = [
            {},
            {"timeout": 1 / 3},
            {"args": json.dumps({"text": 'ä\n\x07"\\' * 3_000}, ensure_ascii=False)},
            {"timeout": 0.1, "max_attempts": 2},
            {"tags": ("b", "a"), "timeout": 60.0},
            {"delay": 1 / 7},
            {"meta": '{"m":[1]}'},
            {"run_at": 5.000_000_1},
            {"format": 2, "timeout": 0.0},
        ]
        for kind in kinds * 2:
            await put(storage, **kind)
            clock.advance(0.123_456_7)
        clock.advance(1)
        jobs = await take(storage, pod)
        assert len(jobs) == 2 * len(kinds)
        written = [await look(storage, job.id) for job in jobs]
        assert [replace(job, deadline=None) for job in jobs] == [replace(job, deadline=None) for job in written]
        assert all(
            job.deadline is None if other.deadline is None else near(job.deadline, other.deadline)
            for job, other in zip(jobs, written, strict=True)
        )
        assert [(job.run_at, job.created_at) for job in jobs] == sorted((job.run_at, job.created_at) for job in jobs)

    async def test_the_deadline_is_the_timeout_from_now(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, timeout=90.0)
        clock.advance(7)
        assert near((await take_one(storage, pod)).deadline, clock.now() + 90)

    async def test_without_a_timeout_there_is_no_deadline(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(timeout=0.0), a_job())
        assert [job.deadline for job in await take(storage, pod)] == [None, None]

    async def test_a_claimed_job_brings_its_last_error_only(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        for message in ("first", "second"):
            await end(storage, job, failing(after=1.0, message=message))
            clock.advance(1)
            job = await take_one(storage, pod)
        assert [error.message for error in job.errors] == ["second"]
        assert job.error_count == 2

    async def test_a_claim_takes_no_more_than_its_limit(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(5)))
        claimed = await storage.claim(pod, a_token(), [want(limit=3)])
        assert len(claimed.jobs) == 3
        assert claimed.more

    async def test_a_claim_that_took_all_says_so(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        claimed = await storage.claim(pod, a_token(), [want(limit=3)])
        assert len(claimed.jobs) == 2
        assert not claimed.more

    async def test_a_want_of_nothing_takes_nothing(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        id = await put(storage)
        assert list((await storage.claim(pod, a_token(), [])).jobs) == []
        assert list((await storage.claim(pod, a_token(), [want(limit=0)])).jobs) == []
        assert list((await storage.claim(pod, a_token(), [want_lanes()])).jobs) == []
        assert (await look(storage, id)).attempt == 0

    async def test_a_claim_takes_only_from_the_queues_it_names(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, queue="other")
        mine = await put(storage, queue="mail")
        assert [job.id for job in await take(storage, pod, want("mail"), want("unheard-of"))] == [mine]

    async def test_each_want_has_its_own_limit(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(queue=queue) for queue in ("a", "b") for _ in range(5)))
        jobs = await take(storage, pod, want("a", limit=2), want("b", limit=3))
        assert sorted(job.queue for job in jobs) == ["a", "a", "b", "b", "b"]

    async def test_a_running_job_is_not_claimed_again(self, storage: Storage) -> None:
        job = await start(storage)
        other = await a_live_pod(storage)
        assert list(await take(storage, other)) == []
        assert (await look(storage, job.id)).token == job.token

    async def test_an_ended_job_is_not_claimed_again(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for outcome in (Succeeded(), failing(final=True)):
            await end(storage, await start(storage, pod), outcome)
            assert list(await take(storage, pod)) == []

    async def test_a_task_that_no_lane_names_is_passed_over_and_uncharged(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        unknown = await put(storage, task="from-the-future", priority=100)
        known = await put(storage)
        assert [job.id for job in await take(storage, pod, want(limit=1))] == [known]
        job = await look(storage, unknown)
        assert (job.state, job.attempt, job.token) == (State.READY, 0, None)

    async def test_many_unknown_tasks_in_front_do_not_hide_a_known_one(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(task=f"unknown-{n % 7}", priority=9) for n in range(600)))
        known = await put(storage)
        assert [job.id for job in await take(storage, pod, want(limit=5))] == [known]

    async def test_a_lane_takes_no_more_than_its_own_places(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(task=task) for task in ("slow", "quick") for _ in range(4)))
        jobs = await take(storage, pod, want_lanes(lane("slow", limit=1), lane("quick", limit=3)))
        assert sorted(job.task for job in jobs) == ["quick", "quick", "quick", "slow"]

    async def test_a_full_lane_does_not_hold_up_the_others(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(task="slow", priority=9) for _ in range(50)))
        quick = await put(storage, task="quick")
        jobs = await take(storage, pod, want_lanes(lane("slow", limit=0), lane("quick", limit=5), limit=5))
        assert [job.id for job in jobs] == [quick]

    async def test_lanes_share_the_limit_of_their_queue(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(task=task) for task in ("a", "b") for _ in range(4)))
        assert len(await take(storage, pod, want_lanes(lane("a", limit=4), lane("b", limit=4), limit=5))) == 5

    async def test_tasks_of_one_lane_share_its_places(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(task=task) for task in ("a", "b") for _ in range(4)))
        assert len(await take(storage, pod, want_lanes(lane("a", "b", limit=3)))) == 3


class Due(Cases):
    async def test_nothing_is_claimed_one_tick_before_it_is_due(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, delay=10.0)
        clock.advance(10 - TICK)
        assert list(await take(storage, pod)) == []
        clock.advance(2 * TICK)
        assert len(await take(storage, pod)) == 1

    async def test_an_instant_is_waited_for(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, run_at=clock.now() + 10)
        clock.advance(9)
        assert list(await take(storage, pod)) == []
        clock.advance(1)
        assert len(await take(storage, pod)) == 1

    async def test_no_return_is_claimed_before_it_is_due(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        for outcome in (failing(after=10.0), Snoozed(10.0)):
            await end(storage, job, outcome)
            clock.advance(10 - TICK)
            assert list(await take(storage, pod)) == []
            clock.advance(2 * TICK)
            job = await take_one(storage, pod)

    async def test_a_claim_says_when_the_next_job_is_due(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(delay=50.0), a_job(delay=20.0))
        clock.advance(5)
        assert near((await storage.claim(pod, a_token(), [want()])).next_due, 15)

    async def test_with_nothing_in_sight_there_is_no_next_due(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        assert (await storage.claim(pod, a_token(), [want()])).next_due is None

    async def test_the_nearest_of_all_wanted_queues_is_next(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(queue="a", delay=30.0), a_job(queue="b", delay=10.0), a_job(queue="c", delay=1.0))
        claimed = await storage.claim(pod, a_token(), [want("a"), want("b")])
        assert near(claimed.next_due, 10)

    async def test_a_task_that_no_lane_names_is_not_waited_for(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, delay=5.0, task="unknown")
        assert (await storage.claim(pod, a_token(), [want()])).next_due is None

    async def test_a_retry_is_next_due_too(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await end(storage, await start(storage, pod), failing(after=12.0))
        assert near((await storage.claim(pod, a_token(), [want()])).next_due, 12)

    async def test_the_end_of_a_cool_down_is_next_due(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await end(storage, await start(storage, pod), Throttled(40.0))
        assert near((await storage.claim(pod, a_token(), [want()])).next_due, 40)

    async def test_the_end_of_a_pause_is_next_due(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        await edit(storage, paused=True, paused_until=clock.now() + 25)
        assert near((await storage.claim(pod, a_token(), [want()])).next_due, 25)

    async def test_a_pause_without_end_is_not_waited_for(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        await write(storage, QueueChange(name="default", paused=True))
        assert (await storage.claim(pod, a_token(), [want()])).next_due is None


class Lease(Cases):
    """Who may claim at all."""

    async def test_an_unregistered_pod_claims_nothing(self, storage: Storage) -> None:
        id = await put(storage)
        assert list(await take(storage, a_pod().id)) == []
        assert (await look(storage, id)).attempt == 0

    async def test_a_lapsed_pod_claims_nothing_until_it_beats(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        id = await put(storage)
        clock.advance(LEASE)
        assert list(await take(storage, pod)) == []
        assert (await look(storage, id)).attempt == 0
        await storage.beat(pod, LEASE, [])
        assert len(await take(storage, pod)) == 1

    async def test_a_pod_claims_until_its_lease_ends(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        clock.advance(LEASE - 1)
        assert len(await take(storage, pod)) == 1

    async def test_a_pod_that_signed_off_claims_nothing(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        await storage.sign_off(pod)
        assert list(await take(storage, pod)) == []
