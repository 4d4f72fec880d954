"""Dead pods and their jobs: what is abandoned, who may rescue it, and who wins."""

from __future__ import annotations

from ...core import lifecycle
from ...core.job import State
from ...core.outcome import Interrupted, Succeeded
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, failing, finished, near, only, want
from .steps import Cases, a_live_pod, end, look, put, rescue, start, take, take_one, write

OVERDUE = 30.0


class Abandonment(Cases):
    async def test_nothing_is_abandoned_while_the_lease_lives(self, storage: Storage, clock: FakeClock) -> None:
        await start(storage)
        clock.advance(LEASE - 1)
        assert list(await storage.abandoned(10, OVERDUE)) == []

    async def test_jobs_of_a_lapsed_pod_are_abandoned(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, label="worker-7")
        job = await start(storage, pod)
        clock.advance(LEASE)
        found = only(await storage.abandoned(10, OVERDUE))
        assert (found.job.id, found.why, found.label) == (job.id, "lease", "worker-7")
        assert (found.job.token, found.job.pod, found.job.attempt) == (job.token, pod, 1)

    async def test_jobs_of_a_pod_that_signed_off_are_abandoned_at_once(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        await storage.sign_off(job.pod)
        found = only(await storage.abandoned(10, OVERDUE))
        assert (found.job.id, found.why) == (job.id, "gone")
        assert (await rescue(storage, found.job)).state is State.READY

    async def test_the_other_jobs_of_a_pod_that_was_declared_lost_are_those_of_one_that_is_gone(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        first, second = await start(storage, pod), await start(storage, pod)
        clock.advance(LEASE)
        await rescue(storage, first)
        found = only(await storage.abandoned(10, OVERDUE))
        assert (found.job.id, found.why) == (second.id, "gone")

    async def test_looking_for_the_abandoned_changes_nothing(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        await storage.abandoned(10, OVERDUE)
        assert await look(storage, job.id) == job
        assert job.pod is not None
        assert not (await storage.beat(job.pod, LEASE, [])).lost
        assert list(await storage.abandoned(10, OVERDUE)) == []

    async def test_no_more_are_named_than_asked_for(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(5)))
        await take(storage, pod)
        clock.advance(LEASE + 1)
        assert len(await storage.abandoned(3, OVERDUE)) == 3
        assert len(await storage.abandoned(10, OVERDUE)) == 5

    async def test_only_running_jobs_are_abandoned(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        for outcome in (Succeeded(), failing(final=True), Interrupted(500.0)):
            await end(storage, await start(storage, pod), outcome)
        clock.advance(LEASE + 1)
        assert list(await storage.abandoned(10, OVERDUE)) == []

    async def test_a_run_far_beyond_its_deadline_is_abandoned_though_its_pod_lives(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage, lease=500.0)
        job = await start(storage, pod, timeout=60.0)
        clock.advance(60 + OVERDUE - 1)
        assert list(await storage.abandoned(10, OVERDUE)) == []
        clock.advance(2)
        found = only(await storage.abandoned(10, OVERDUE))
        assert (found.job.id, found.why) == (job.id, "deadline")

    async def test_a_run_without_a_deadline_may_take_for_ever(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=10_000_000.0)
        await start(storage, pod, timeout=0.0)
        clock.advance(9_000_000)
        assert list(await storage.abandoned(10, OVERDUE)) == []


class Rescue(Cases):
    async def test_a_rescued_job_is_ready_at_once_and_stays_charged(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        job = await rescue(storage, job)
        assert (job.state, job.attempt, job.crashes, job.pod) == (State.READY, 1, 1, None)
        assert near(job.run_at, clock.now())
        assert job.error is not None
        assert job.error.kind == "worker_lost"
        other = await a_live_pod(storage)
        assert (await take_one(storage, other)).attempt == 2

    async def test_a_rescue_is_refused_while_the_lease_lives(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE - 1)
        answer = await write(storage, lifecycle.rescue(job, "pod"))
        assert (answer.accepted, answer.state, answer.cancel_wanted) == (False, State.RUNNING, False)
        assert await look(storage, job.id) == job
        assert job.pod is not None
        assert not (await storage.beat(job.pod, LEASE, [])).lost

    async def test_a_beat_that_came_first_wins_over_the_rescue(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        found = only(await storage.abandoned(10, OVERDUE))
        assert job.pod is not None
        assert not (await storage.beat(job.pod, LEASE, [])).lost
        assert not (await write(storage, lifecycle.rescue(found.job, found.label))).accepted
        assert (await end(storage, job, Succeeded())).state is State.SUCCEEDED

    async def test_a_rescue_that_came_first_wins_over_the_beat(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        assert job.pod is not None
        beaten = await storage.beat(job.pod, LEASE, [])
        assert beaten.lost
        assert not (await write(storage, finished(job, Succeeded()))).accepted

    async def test_a_finish_that_came_first_wins_over_the_rescue(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        finish, rescued = await storage.apply([finished(job, Succeeded()), lifecycle.rescue(job, "pod")])
        assert (finish.accepted, finish.repeated) == (True, False)
        assert (rescued.accepted, rescued.state) == (False, State.SUCCEEDED)
        assert (await look(storage, job.id)).crashes == 0

    async def test_a_rescue_that_came_first_wins_over_the_finish(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        rescued, finish = await storage.apply([lifecycle.rescue(job, "pod"), finished(job, Succeeded())])
        assert rescued.accepted
        assert (finish.accepted, finish.repeated, finish.state) == (False, False, State.READY)

    async def test_a_rescue_after_the_retry_of_its_own_run_is_too_late(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        job = await start(storage)
        retried = await end(storage, job, failing(after=500.0))
        clock.advance(LEASE + 1)
        assert not (await write(storage, lifecycle.rescue(job, "pod"))).accepted
        assert await look(storage, job.id) == retried

    async def test_of_two_rescues_one_wins(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        changes = [lifecycle.rescue(job, "pod"), lifecycle.rescue(job, "pod")]
        assert [answer.accepted for answer in await storage.apply(changes)] == [True, False]
        assert (await look(storage, job.id)).crashes == 1

    async def test_all_jobs_of_a_dead_pod_are_rescued_together(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(20)))
        await take(storage, pod)
        clock.advance(LEASE + 1)
        changes = [lifecycle.rescue(found.job, found.label) for found in await storage.abandoned(100, OVERDUE)]
        assert [answer.accepted for answer in await storage.apply(changes)] == [True] * 20
        other = await a_live_pod(storage)
        assert len(await take(storage, other, want(limit=100))) == 20

    async def test_a_rescue_declares_only_its_own_pod_lost(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        other = await a_live_pod(storage)
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        assert not (await storage.beat(other, LEASE, [])).lost

    async def test_a_job_that_takes_three_pods_with_it_is_poison(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        for crashes in (1, 2):
            clock.advance(LEASE + 1)
            assert (await rescue(storage, job)).crashes == crashes
            job = await take_one(storage, await a_live_pod(storage))
        clock.advance(LEASE + 1)
        job = await rescue(storage, job)
        assert (job.state, job.crashes, job.attempt) == (State.FAILED, 3, 3)
        assert job.error is not None
        assert job.error.kind == "poison"

    async def test_a_rescue_at_the_last_attempt_fails_the_job(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage, max_attempts=1)
        clock.advance(LEASE + 1)
        job = await rescue(storage, job)
        assert (job.state, job.crashes) == (State.FAILED, 1)


class Loss(Cases):
    """What is known of a pod that was lost: whether a run's deadline had passed by then."""

    async def test_it_is_told_when_the_pod_was_last_heard_of(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod, timeout=5.0)
        clock.advance(20)
        await storage.beat(pod, LEASE, [])
        heard = await storage.time()
        clock.advance(LEASE + 1)
        (found,) = await storage.abandoned(100, OVERDUE)
        assert found.job.id == job.id
        assert near(found.beat_at, heard)

    async def test_a_rescue_after_the_deadline_is_a_timeout_and_a_crash(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        """Only if the pod was heard of after it: one that was killed before may have lost the run earlier."""
        for heard_at, kind in ((4.0, "worker_lost"), (6.0, "timeout")):
            pod = await a_live_pod(storage)
            job = await start(storage, pod, timeout=5.0)
            clock.advance(heard_at)
            await storage.beat(pod, LEASE, [])
            clock.advance(LEASE + 1)
            (found,) = await storage.abandoned(100, OVERDUE)
            answer = await write(storage, lifecycle.rescue(found.job, "pod", None, found.beat_at))
            assert answer.accepted
            row = await look(storage, job.id)
            assert (row.state, row.attempt, row.crashes) == (State.READY, 1, 1)
            assert row.error is not None
            assert row.error.kind == kind
            await write(storage, lifecycle.cancel(row))


class Expiry(Cases):
    """The second line of defence against runs that do not end."""

    async def test_an_expired_run_is_a_failed_attempt(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=500.0)
        job = await start(storage, pod, timeout=60.0)
        clock.advance(60 + OVERDUE + 1)
        answer = await write(storage, lifecycle.expire(job, 0.5))
        assert (answer.accepted, answer.state) == (True, State.SCHEDULED)
        job = await look(storage, job.id)
        assert (job.attempt, job.crashes) == (1, 0)
        assert job.error is not None
        assert job.error.kind == "timeout"

    async def test_the_owner_of_an_expired_run_comes_too_late(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=500.0)
        job = await start(storage, pod, timeout=60.0)
        clock.advance(60 + OVERDUE + 1)
        await write(storage, lifecycle.expire(job, 0.5))
        answer = await write(storage, finished(job, Succeeded()))
        assert (answer.accepted, answer.repeated, answer.state) == (False, False, State.SCHEDULED)
        assert (await storage.beat(pod, LEASE, [])).held == ()

    async def test_an_expiry_after_the_finish_comes_too_late(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage, timeout=5.0)
        clock.advance(5 + OVERDUE + 1)
        await end(storage, job, Succeeded())
        answer = await write(storage, lifecycle.expire(job, 0.5))
        assert (answer.accepted, answer.state) == (False, State.SUCCEEDED)

    async def test_an_expiry_is_refused_while_a_cancel_is_wanted(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage, timeout=5.0)
        await write(storage, lifecycle.cancel(job))
        clock.advance(5 + OVERDUE + 1)
        change = lifecycle.expire(job, 0.5)
        assert (await write(storage, change)).cancel_wanted
        assert (await write(storage, lifecycle.obey_cancel(change))).accepted
        assert (await look(storage, job.id)).state is State.CANCELLED
