"""Finishing: each Outcome, as it is written."""

from __future__ import annotations

from msgspec.structs import replace

from ...core import lifecycle
from ...core.job import ERRORS_KEPT, State
from ...core.outcome import Interrupted, Raised, Snoozed, Stopped, Succeeded, Throttled, TimedOut, Undecodable
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_token, a_unique_job, an_error, failing, finished, near, only, want
from .insert import HOSTILE
from .steps import Cases, a_live_pod, end, ids, look, put, queue, start, take, take_one, write


class Finish(Cases):
    async def test_a_success_ends_the_job(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(4)
        answer = await write(storage, finished(job, Succeeded('{"n":1}')))
        assert (answer.accepted, answer.repeated, answer.state) == (True, False, State.SUCCEEDED)
        job = await look(storage, job.id)
        assert (job.state, job.result, job.attempt, job.errors) == (State.SUCCEEDED, '{"n":1}', 1, ())
        assert near(job.finished_at, clock.now())
        assert near(job.started_at, clock.now() - 4)

    async def test_a_success_needs_no_result(self, storage: Storage) -> None:
        assert (await end(storage, await start(storage), Succeeded())).result is None

    async def test_a_warning_is_kept_with_the_success(self, storage: Storage) -> None:
        job = await end(storage, await start(storage), Succeeded(None, "the result was too large"))
        assert (job.state, job.warning) == (State.SUCCEEDED, "the result was too large")

    async def test_a_final_failure_ends_the_job(self, storage: Storage, clock: FakeClock) -> None:
        job = await end(storage, await start(storage), failing(final=True))
        assert (job.state, job.attempt, job.error_count) == (State.FAILED, 1, 1)
        assert near(job.finished_at, clock.now())

    async def test_the_last_attempt_fails_the_job(self, storage: Storage) -> None:
        assert (await end(storage, await start(storage, max_attempts=1), failing())).state is State.FAILED

    async def test_a_retry_comes_back_after_its_delay_and_stays_charged(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        job = await start(storage)
        clock.advance(2)
        job = await end(storage, job, failing(after=30.0))
        assert (job.state, job.attempt, job.error_count, job.pod, job.finished_at) == (
            State.SCHEDULED,
            1,
            1,
            None,
            None,
        )
        assert near(job.run_at, clock.now() + 30)

    async def test_a_retry_without_delay_is_ready_at_once(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await end(storage, await start(storage, pod), failing(after=0.0))
        assert job.state is State.READY
        assert (await take_one(storage, pod)).attempt == 2

    async def test_a_snooze_returns_the_charge_and_leaves_no_error(self, storage: Storage, clock: FakeClock) -> None:
        job = await end(storage, await start(storage), Snoozed(600.0))
        assert (job.state, job.attempt, job.snoozes, job.error_count) == (State.SCHEDULED, 0, 1, 0)
        assert near(job.run_at, clock.now() + 600)

    async def test_a_throttle_returns_the_charge_and_comes_back_when_its_queue_does(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        job = await end(storage, await start(storage), Throttled(20.0))
        assert (job.state, job.attempt, job.throttles, job.error_count) == (State.SCHEDULED, 0, 1, 0)
        assert near(job.run_at, clock.now() + 20)
        assert near((await queue(storage)).cool_until, clock.now() + 20)

    async def test_a_released_job_is_ready_at_once_and_not_charged(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await end(storage, await start(storage, pod), Interrupted())
        assert (job.state, job.attempt, job.crashes, job.error_count) == (State.READY, 0, 0, 0)
        assert (job.pod, job.slot) == (None, None)
        assert (await take_one(storage, pod)).attempt == 1

    async def test_a_release_may_rest_first(self, storage: Storage, clock: FakeClock) -> None:
        job = await end(storage, await start(storage), Interrupted(60.0))
        assert job.state is State.SCHEDULED
        assert near(job.run_at, clock.now() + 60)

    async def test_a_stopped_run_ends_as_cancelled(self, storage: Storage, clock: FakeClock) -> None:
        job = await end(storage, await start(storage), Stopped(an_error("no longer wanted", kind="cancelled")))
        assert (job.state, job.error_count) == (State.CANCELLED, 1)
        assert near(job.finished_at, clock.now())

    async def test_undecodable_arguments_fail_the_job(self, storage: Storage) -> None:
        job = await end(storage, await start(storage), Undecodable(an_error(kind="undecodable")))
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.kind == "undecodable"

    async def test_a_timeout_is_a_failed_attempt(self, storage: Storage) -> None:
        job = await end(storage, await start(storage), TimedOut(an_error(kind="timeout")))
        assert (job.state, job.attempt) == (State.SCHEDULED, 1)
        assert job.error is not None
        assert job.error.kind == "timeout"

    async def test_a_finished_run_has_no_deadline(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for outcome in (Succeeded(), failing(final=True), failing(), Snoozed(5.0)):
            assert (await end(storage, await start(storage, pod, timeout=60.0), outcome)).deadline is None

    async def test_a_success_after_errors_keeps_their_history(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await end(storage, await start(storage, pod), failing(after=1.0))
        clock.advance(1)
        job = await end(storage, await take_one(storage, pod), Succeeded())
        assert (job.state, job.attempt, job.error_count, len(job.errors)) == (State.SUCCEEDED, 2, 1, 1)

    async def test_an_error_is_kept_whole(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        for text in HOSTILE:
            job = await start(storage, pod)
            entry = an_error(text, type=text, trace=text * 3, place=text, pod=pod, started_at=job.started_at)
            clock.advance(1)
            kept = only((await end(storage, job, Raised(entry, final=True))).errors)
            assert (kept.type, kept.message, kept.trace, kept.place) == (text, text, text * 3, text)
            assert (kept.attempt, kept.kind, kept.pod) == (1, "error", pod)
            assert near(kept.started_at, clock.now() - 1)

    async def test_the_storages_clock_says_when_an_attempt_ended(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(17)
        job = await end(storage, job, failing())
        assert job.error is not None
        assert near(job.error.ended_at, clock.now())

    async def test_the_last_errors_are_kept_and_all_are_counted(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod, max_attempts=1000)
        for n in range(ERRORS_KEPT + 8):
            await end(storage, job, failing(after=0.0, message=f"error {n}"))
            job = await take_one(storage, pod)
        job = await end(storage, job, Succeeded())
        assert job.error_count == ERRORS_KEPT + 8
        assert [error.message for error in job.errors] == [f"error {n + 8}" for n in range(ERRORS_KEPT)]

    async def test_a_large_or_hostile_result_comes_back_whole(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for text in (*HOSTILE, "ü" * (512 * 1024)):
            assert (await end(storage, await start(storage, pod), Succeeded(f'"{text}"'))).result == f'"{text}"'

    async def test_a_finished_job_leaves_room_for_others(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        first = only(await take(storage, pod, want(limit=1)))
        await end(storage, first, Succeeded())
        assert len(await take(storage, pod)) == 1
        assert (await storage.beat(pod, LEASE, [])).held != ()


class Meta(Cases):
    async def test_every_kind_of_change_may_write_the_meta(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        outcomes = (Succeeded('"x"'), failing(final=True), failing(), Snoozed(5.0), Throttled(5.0), Interrupted())
        for outcome in outcomes:
            job = await start(storage, pod, queue=type(outcome).__name__, meta='{"who":"me"}')
            answer = await write(storage, replace(finished(job, outcome), meta='{"who":"ü"}'))
            assert answer.accepted
            job = await look(storage, job.id)
            assert (job.meta, job.result) == ('{"who":"ü"}', '"x"' if job.state is State.SUCCEEDED else None)

    async def test_a_change_that_says_nothing_of_the_meta_leaves_it(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for outcome in (Succeeded(), failing(final=True), failing(), Snoozed(5.0), Stopped(an_error(kind="cancelled"))):
            job = await start(storage, pod, meta='{"who":"me"}')
            assert (await end(storage, job, outcome)).meta == '{"who":"me"}'

    async def test_meta_may_be_wiped_and_travels_with_the_next_claim(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        await write(storage, replace(finished(job, failing(after=0.0)), meta='{"n":1}'))
        job = await take_one(storage, pod)
        assert job.meta == '{"n":1}'
        await write(storage, replace(finished(job, Succeeded()), meta=None))
        assert (await look(storage, job.id)).meta is None

    async def test_some_of_a_batch_may_write_their_meta(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job(meta='{"n":0}') for _ in range(9)))
        jobs = await take(storage, pod)
        changes = [finished(job, Succeeded()) for job in jobs]
        changes[3::3] = [replace(change, meta='{"n":1}') for change in changes[3::3]]
        assert all(answer.accepted for answer in await storage.apply(changes))
        assert [(await look(storage, job.id)).meta for job in jobs] == [
            '{"n":1}' if n in (3, 6) else '{"n":0}' for n in range(9)
        ]


class FollowUps(Cases):
    async def test_follow_ups_are_inserted_with_the_finish(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(5)
        one, other = a_job(queue="next", args='{"n":1}'), a_job(queue="later", delay=60.0)
        await end(storage, job, Succeeded(follow_ups=(one, other)))
        assert (await look(storage, one.id)).state is State.READY
        assert (await look(storage, one.id)).args == '{"n":1}'
        assert near((await look(storage, other.id)).run_at, clock.now() + 60)
        assert (await queue(storage, "later")).name == "later"

    async def test_a_follow_up_whose_id_is_taken_refuses_the_whole_finish(self, storage: Storage) -> None:
        taken = await put(storage, queue="other")
        job = await start(storage)
        fresh = a_job(queue="next")
        answer = await write(storage, finished(job, Succeeded('"x"', follow_ups=(fresh, a_job(id=taken)))))
        assert (answer.accepted, answer.state) == (False, State.RUNNING)
        assert answer.error
        assert await look(storage, job.id) == job
        assert await storage.get([fresh.id]) == []

    async def test_a_refused_finish_may_be_sent_again_without_its_follow_ups(self, storage: Storage) -> None:
        taken = await put(storage, queue="other")
        job = await start(storage)
        await write(storage, finished(job, Succeeded(follow_ups=(a_job(id=taken),))))
        answer = await write(storage, finished(job, Succeeded()))
        assert (answer.accepted, answer.repeated) == (True, False)

    async def test_a_follow_up_whose_key_is_held_is_settled_like_any_insert(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job(queue="other"))
        job = await end(storage, await start(storage), Succeeded(follow_ups=(a_unique_job(queue="other"),)))
        assert job.state is State.SUCCEEDED
        assert await ids(storage, "queue:other") == [holder]

    async def test_a_follow_up_may_take_the_key_that_its_parent_frees(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_unique_job())
        follow_up = a_unique_job(queue="next")
        await end(storage, await take_one(storage, pod), Succeeded(follow_ups=(follow_up,)))
        assert (await look(storage, follow_up.id)).state is State.READY

    async def test_of_two_finishes_with_one_follow_up_the_first_is_written(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        follow_up = a_job(queue="next")
        changes = [finished(job, Succeeded(follow_ups=(follow_up,))) for job in await take(storage, pod)]
        answers = await storage.apply(changes)
        assert [answer.accepted for answer in answers] == [True, False]
        assert (await look(storage, changes[1].id)).state is State.RUNNING

    async def test_many_finishes_with_follow_ups_may_share_a_batch(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(50)))
        jobs = await take(storage, pod)
        following = {job.id: tuple(a_job(queue=f"next-{n}") for n in range(3)) for job in jobs}
        answers = await storage.apply([finished(job, Succeeded(follow_ups=following[job.id])) for job in jobs])
        assert all(answer.accepted and answer.state is State.SUCCEEDED for answer in answers)
        for n in range(3):
            assert sorted(await ids(storage, f"queue:next-{n}")) == sorted(each[n].id for each in following.values())

    async def test_a_bad_finish_with_follow_ups_spares_the_others_of_its_batch(self, storage: Storage) -> None:
        """Each kind of bad once: a taken id, an id that another has just taken, a stale token."""
        pod = await a_live_pod(storage)
        taken = await put(storage, queue="other")
        await put(storage, *(a_job() for _ in range(9)))
        jobs = await take(storage, pod)
        new = [a_job(queue="next") for _ in jobs]
        new[1] = a_job(queue="next", id=taken)
        new[4] = new[3]
        changes = [finished(job, Succeeded(follow_ups=(each,))) for job, each in zip(jobs, new, strict=True)]
        changes[5] = replace(changes[5], token=a_token())
        answers = await storage.apply(changes)
        bad = {1, 4, 5}
        assert {n for n, answer in enumerate(answers) if not answer.accepted} == bad
        for n, job in enumerate(jobs):
            assert (await look(storage, job.id)).state is (State.RUNNING if n in bad else State.SUCCEEDED)
        assert sorted(await ids(storage, "queue:next")) == sorted(each.id for n, each in enumerate(new) if n not in bad)

    async def test_a_batch_with_follow_ups_sent_again_inserts_nothing_twice(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(5)))
        changes = [finished(job, Succeeded(follow_ups=(a_job(queue="next"),))) for job in await take(storage, pod)]
        await storage.apply(changes)
        answers = await storage.apply([*changes, finished(await start(storage, pod), Succeeded())])
        assert [answer.accepted for answer in answers] == [True] * 6
        assert [answer.repeated for answer in answers] == [True] * 5 + [False]
        assert len(await ids(storage, "queue:next")) == 5

    async def test_a_follow_up_can_be_claimed(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        follow_up = a_job()
        await end(storage, await start(storage, pod), Succeeded(follow_ups=(follow_up,)))
        assert (await take_one(storage, pod)).id == follow_up.id

    async def test_a_revived_parent_keeps_its_follow_ups_apart(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        follow_up = a_job(queue="next")
        job = await end(storage, await start(storage, pod), Succeeded(follow_ups=(follow_up,)))
        await write(storage, lifecycle.revive(job))
        await end(storage, await take_one(storage, pod), Succeeded())
        assert await ids(storage, "queue:next") == [follow_up.id]
