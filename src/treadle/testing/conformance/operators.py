"""What an operator does to one job: cancel, revive, reschedule, remove."""

from __future__ import annotations

from ...core import lifecycle
from ...core.job import TERMINAL, Job, State
from ...core.outcome import Interrupted, Outcome, Snoozed, Stopped, Succeeded, Throttled
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, an_error, failing, finished, near, only
from .steps import Cases, a_live_pod, end, ids, look, put, queue, rescue, start, take, take_one, write

ENDS: dict[State, Outcome] = {
    State.SUCCEEDED: Succeeded('"x"', "careful"),
    State.FAILED: failing(final=True),
    State.CANCELLED: Stopped(an_error(kind="cancelled")),
}


async def ask_to_cancel(storage: Storage, job: Job) -> None:
    answer = await write(storage, lifecycle.cancel(job))
    assert (answer.accepted, answer.state) == (True, State.RUNNING)


class Cancel(Cases):
    async def test_a_job_that_has_not_started_is_cancelled_at_once(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        for delay in (0.0, 60.0):
            id = await put(storage, delay=delay)
            answer = await write(storage, lifecycle.cancel(await look(storage, id)))
            assert (answer.accepted, answer.state) == (True, State.CANCELLED)
            job = await look(storage, id)
            assert (job.state, job.attempt, job.cancel_wanted) == (State.CANCELLED, 0, False)
            assert job.error is not None
            assert job.error.kind == "cancelled"
            assert near(job.finished_at, clock.now())
        clock.advance(LEASE - 1)
        assert list(await take(storage, pod)) == []

    async def test_a_cancel_made_before_the_job_was_due_still_counts(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage, delay=5.0))
        clock.advance(5)
        assert (await write(storage, lifecycle.cancel(job))).accepted

    async def test_a_cancel_that_meets_a_run_is_told_so(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        ready = await look(storage, await put(storage))
        running = await take_one(storage, pod)
        answer = await write(storage, lifecycle.cancel(ready))
        assert (answer.accepted, answer.state) == (False, State.RUNNING)
        assert await look(storage, ready.id) == running

    async def test_a_running_job_is_asked_and_goes_on(self, storage: Storage) -> None:
        job = await start(storage)
        await ask_to_cancel(storage, job)
        now = await look(storage, job.id)
        assert (now.state, now.cancel_wanted, now.token, now.attempt) == (State.RUNNING, True, job.token, 1)

    async def test_a_beat_hears_of_a_wanted_cancel(self, storage: Storage) -> None:
        job = await start(storage)
        await ask_to_cancel(storage, job)
        assert job.pod is not None
        held = only((await storage.beat(job.pod, LEASE, [])).held)
        assert (held.id, held.token, held.cancel_wanted) == (job.id, job.token, True)

    async def test_a_task_that_returned_has_succeeded_whatever_the_flag_says(self, storage: Storage) -> None:
        job = await start(storage)
        await ask_to_cancel(storage, job)
        job = await end(storage, job, Succeeded('"done"'))
        assert (job.state, job.result, job.cancel_wanted) == (State.SUCCEEDED, '"done"', False)

    async def test_anything_but_a_success_is_refused_while_a_cancel_is_wanted(self, storage: Storage) -> None:
        job = await start(storage)
        await ask_to_cancel(storage, job)
        before = await look(storage, job.id)
        for outcome in (failing(), failing(final=True), Snoozed(5.0), Throttled(5.0), Interrupted()):
            answer = await write(storage, finished(job, outcome))
            assert (answer.accepted, answer.cancel_wanted, answer.state) == (False, True, State.RUNNING)
            assert await look(storage, job.id) == before
        assert (await queue(storage)).cool_until is None

    async def test_a_refused_finish_obeys_and_ends_as_cancelled(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for outcome in (failing(), failing(final=True), Snoozed(5.0), Throttled(5.0), Interrupted()):
            job = await start(storage, pod)
            await ask_to_cancel(storage, job)
            change = finished(job, outcome)
            assert (await write(storage, change)).cancel_wanted
            assert (await write(storage, lifecycle.obey_cancel(change))).accepted
            job = await look(storage, job.id)
            assert (job.state, job.cancel_wanted, job.error_count) == (State.CANCELLED, False, 1)

    async def test_a_run_that_knows_of_the_cancel_ends_as_cancelled(self, storage: Storage) -> None:
        job = await start(storage)
        await ask_to_cancel(storage, job)
        job = await end(storage, await look(storage, job.id), failing())
        assert (job.state, job.cancel_wanted) == (State.CANCELLED, False)

    async def test_a_rescue_that_did_not_know_of_the_cancel_is_refused(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        job = await start(storage)
        await ask_to_cancel(storage, job)
        clock.advance(LEASE + 1)
        change = lifecycle.rescue(job, "pod")
        assert (await write(storage, change)).cancel_wanted
        assert (await write(storage, lifecycle.obey_cancel(change))).accepted
        job = await look(storage, job.id)
        assert (job.state, job.crashes, job.cancel_wanted) == (State.CANCELLED, 1, False)

    async def test_a_rescue_that_knows_of_the_cancel_ends_the_job(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        await ask_to_cancel(storage, job)
        clock.advance(LEASE + 1)
        assert (await rescue(storage, await look(storage, job.id))).state is State.CANCELLED

    async def test_the_flag_does_not_outlive_the_run(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for outcome in (Succeeded(), Stopped(an_error(kind="cancelled"))):
            job = await start(storage, pod)
            await ask_to_cancel(storage, job)
            await write(storage, lifecycle.revive(await end(storage, job, outcome)))
            again = await take_one(storage, pod)
            assert not again.cancel_wanted
            assert (await end(storage, again, failing(final=True))).state is State.FAILED

    async def test_a_cancelled_job_hears_no_second_cancel(self, storage: Storage) -> None:
        job = await look(storage, await put(storage))
        await write(storage, lifecycle.cancel(job))
        before = await look(storage, job.id)
        assert not (await write(storage, lifecycle.cancel(job))).accepted
        assert await look(storage, job.id) == before


class Revive(Cases):
    async def test_every_ended_job_can_be_revived(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        for state, outcome in ENDS.items():
            ended = await end(storage, await start(storage, pod), outcome)
            assert ended.state is state
            answer = await write(storage, lifecycle.revive(ended))
            assert (answer.accepted, answer.state) == (True, State.READY)
            job = await look(storage, ended.id)
            assert (job.state, job.attempt, job.result, job.warning, job.finished_at) == (
                State.READY,
                0,
                None,
                None,
                None,
            )
            assert near(job.run_at, clock.now())
            assert (await take_one(storage, pod)).attempt == 1

    async def test_a_revived_job_keeps_its_history_and_forgets_its_counts(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        pod = await a_live_pod(storage)
        ended = await end(storage, await take_one(storage, pod), failing(final=True))
        assert (ended.crashes, ended.error_count) == (1, 2)
        await write(storage, lifecycle.revive(ended))
        job = await look(storage, job.id)
        assert (job.crashes, job.snoozes, job.throttles) == (0, 0, 0)
        assert (job.error_count, job.errors) == (2, ended.errors)

    async def test_a_revive_may_choose_time_priority_and_queue(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await end(storage, await start(storage, pod), Succeeded())
        await write(storage, lifecycle.revive(job, delay=60.0, priority=9, queue="elsewhere"))
        now = await look(storage, job.id)
        assert (now.state, now.priority, now.queue) == (State.SCHEDULED, 9, "elsewhere")
        assert near(now.run_at, clock.now() + 60)
        assert (await queue(storage, "elsewhere")).name == "elsewhere"

    async def test_a_revive_may_choose_an_instant(self, storage: Storage, clock: FakeClock) -> None:
        job = await end(storage, await start(storage), Succeeded())
        await write(storage, lifecycle.revive(job, run_at=clock.now() + 99))
        now = await look(storage, job.id)
        assert now.state is State.SCHEDULED
        assert near(now.run_at, clock.now() + 99)

    async def test_a_second_revive_is_refused(self, storage: Storage) -> None:
        change = lifecycle.revive(await end(storage, await start(storage), Succeeded()))
        assert (await write(storage, change)).accepted
        answer = await write(storage, change)
        assert (answer.accepted, answer.state) == (False, State.READY)

    async def test_a_revive_that_meets_a_run_is_refused(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        change = lifecycle.revive(await end(storage, await start(storage, pod), Succeeded()))
        await write(storage, change)
        running = await take_one(storage, pod)
        assert not (await write(storage, change)).accepted
        assert await look(storage, running.id) == running


class Reschedule(Cases):
    async def test_a_job_that_has_not_started_gets_another_time(self, storage: Storage, clock: FakeClock) -> None:
        for delay in (0.0, 600.0):
            job = await look(storage, await put(storage, delay=delay))
            answer = await write(storage, lifecycle.reschedule(job, delay=60.0))
            assert (answer.accepted, answer.state) == (True, State.SCHEDULED)
            assert near((await look(storage, job.id)).run_at, clock.now() + 60)

    async def test_run_now_makes_a_scheduled_job_ready(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await look(storage, await put(storage, delay=600.0))
        answer = await write(storage, lifecycle.reschedule(job))
        assert (answer.accepted, answer.state) == (True, State.READY)
        assert (await take_one(storage, pod)).id == job.id

    async def test_a_job_may_be_given_an_instant(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage))
        await write(storage, lifecycle.reschedule(job, run_at=clock.now() + 33))
        assert near((await look(storage, job.id)).run_at, clock.now() + 33)

    async def test_an_instant_that_has_passed_makes_it_ready(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await look(storage, await put(storage, delay=600.0))
        answer = await write(storage, lifecycle.reschedule(job, run_at=clock.now() - 5))
        assert (answer.accepted, answer.state) == (True, State.READY)
        assert near((await look(storage, job.id)).run_at, clock.now())  # the past means now: it overtakes nobody
        assert len(await take(storage, pod)) == 1

    async def test_a_retrying_job_keeps_its_attempt(self, storage: Storage) -> None:
        job = await end(storage, await start(storage), failing(after=600.0))
        await write(storage, lifecycle.reschedule(job))
        now = await look(storage, job.id)
        assert (now.state, now.attempt, now.error_count) == (State.READY, 1, 1)

    async def test_a_job_that_has_started_meanwhile_is_left_alone(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        ready = await look(storage, await put(storage))
        running = await take_one(storage, pod)
        answer = await write(storage, lifecycle.reschedule(ready, delay=60.0))
        assert (answer.accepted, answer.state) == (False, State.RUNNING)
        assert await look(storage, ready.id) == running

    async def test_a_job_that_has_ended_meanwhile_is_left_alone(self, storage: Storage) -> None:
        ready = await look(storage, await put(storage))
        await write(storage, lifecycle.cancel(ready))
        answer = await write(storage, lifecycle.reschedule(ready, delay=60.0))
        assert (answer.accepted, answer.state) == (False, State.CANCELLED)


class Remove(Cases):
    async def test_every_ended_job_can_be_removed(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for state, outcome in ENDS.items():
            job = await end(storage, await start(storage, pod), outcome)
            assert state in TERMINAL
            assert (await write(storage, lifecycle.remove(job))).accepted
            assert await storage.get([job.id]) == []
        assert await ids(storage) == []

    async def test_a_job_that_was_revived_meanwhile_is_not_removed(self, storage: Storage) -> None:
        ended = await end(storage, await start(storage), Succeeded())
        await write(storage, lifecycle.revive(ended))
        answer = await write(storage, lifecycle.remove(ended))
        assert (answer.accepted, answer.state) == (False, State.READY)
        assert (await look(storage, ended.id)).state is State.READY

    async def test_a_job_that_runs_again_is_not_removed(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        ended = await end(storage, await start(storage, pod), Succeeded())
        await write(storage, lifecycle.revive(ended))
        running = await take_one(storage, pod)
        assert not (await write(storage, lifecycle.remove(ended))).accepted
        assert await look(storage, ended.id) == running

    async def test_removing_again_finds_nothing(self, storage: Storage) -> None:
        change = lifecycle.remove(await end(storage, await start(storage), Succeeded()))
        assert (await write(storage, change)).accepted
        assert (await write(storage, change)).state is None

    async def test_a_removed_job_takes_its_history_with_it(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await end(storage, await start(storage, pod), failing(final=True))
        await write(storage, lifecycle.remove(job))
        id = await put(storage, id=job.id)
        now = await look(storage, id)
        assert (now.errors, now.error_count, now.attempt) == ((), 0, 0)
