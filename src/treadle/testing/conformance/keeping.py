"""`keep_last`: while one runs, the newest request is kept inside its row, and becomes a job when the run ends."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ...core import keep_last, lifecycle
from ...core.job import Change, Job, State
from ...core.outcome import Interrupted, Outcome, Snoozed, Stopped, Succeeded, Throttled
from ...ports import Applied, Inserted, Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_unique_job, an_error, failing, finished, near, only
from .signals import Ear
from .steps import Cases, a_live_pod, end, ids, look, put, take, take_one, write

LAST: Final[dict[str, Any]] = {"on_conflict": "keep_last"}
ENDS: Final = (Succeeded('"done"'), failing(final=True), Stopped(an_error(kind="cancelled")))
RETURNS: Final = (failing(after=10.0), Snoozed(10.0), Throttled(10.0), Interrupted())


async def ask(storage: Storage, key: str = "key", /, **fields: Any) -> Inserted:
    return only(await storage.insert([a_unique_job(key, **{**LAST, **fields})]))


async def begin(storage: Storage, pod: str | None = None, **fields: Any) -> Job:
    """A running job that holds the key."""
    id = await put(storage, a_unique_job(**{**LAST, **fields}))
    job = await take_one(storage, pod or await a_live_pod(storage))
    assert job.id == id
    return job


async def obey(storage: Storage, change: Change) -> tuple[Change, Applied]:
    """Write a Change as whoever ends runs does: the storage's word about what is kept is taken to the core."""
    sent, answer = change, await write(storage, change)
    while not isinstance(answer.kept, msgspec.UnsetType):
        assert not answer.accepted
        sent = lifecycle.take_over(change, answer.kept)
        answer = await write(storage, sent)
    return sent, answer


async def conclude(storage: Storage, job: Job, outcome: Outcome) -> Job:
    """End a run, obeying, and see what became of the job."""
    _, answer = await obey(storage, finished(job, outcome))
    assert answer.accepted
    return await look(storage, job.id)


class Keeping(Cases):
    async def test_keep_last_without_a_holder_is_an_insert(self, storage: Storage) -> None:
        assert (await ask(storage)).outcome == "inserted"

    async def test_keep_last_replaces_a_holder_that_has_not_started(self, storage: Storage) -> None:
        holder = await put(storage, a_unique_job(delay=60.0))
        assert await ask(storage, args='{"n":2}') == Inserted(holder, "replaced")
        job = await look(storage, holder)
        assert (job.args, job.state, job.kept) == ('{"n":2}', State.READY, None)

    async def test_a_request_is_kept_behind_a_running_holder(self, storage: Storage) -> None:
        holder = await begin(storage)
        new = a_unique_job(**LAST, args='{"n":2}')
        assert only(await storage.insert([new])) == Inserted(new.id, "kept")
        found = await look(storage, holder.id)
        assert (found.state, found.args, keep_last.id_of(found.kept)) == (State.RUNNING, "{}", new.id)
        assert await ids(storage) == [holder.id]

    async def test_later_requests_overwrite_the_content_and_keep_the_id(self, storage: Storage) -> None:
        holder = await begin(storage)
        first = await ask(storage, args='{"n":1}', tags=("old",))
        assert await ask(storage, args='{"n":2}', priority=5) == first
        await conclude(storage, holder, Succeeded())
        job = await look(storage, first.id)
        assert (job.args, job.tags, job.priority) == ('{"n":2}', (), 5)

    async def test_skip_and_replace_leave_the_place_alone(self, storage: Storage) -> None:
        holder = await begin(storage)
        await ask(storage, args='{"n":1}')
        before = await look(storage, holder.id)
        for rule in ("skip", "replace"):
            assert await ask(storage, args='{"n":2}', on_conflict=rule) == Inserted(holder.id, "duplicate")
        assert await look(storage, holder.id) == before

    async def test_of_equal_keys_in_one_call_the_last_is_what_is_kept(self, storage: Storage) -> None:
        holder = await begin(storage)
        jobs = [a_unique_job(**LAST, args=f'{{"n":{n}}}') for n in range(3)]
        answers = await storage.insert(jobs)
        assert list(answers) == [Inserted(jobs[0].id, "kept")] * 3
        await conclude(storage, holder, Succeeded())
        assert (await look(storage, jobs[0].id)).args == '{"n":2}'

    async def test_it_becomes_a_job_in_the_write_that_ends_the_run(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for outcome in ENDS:
            holder = await begin(storage, pod)
            kept = await ask(storage, args='{"n":2}', reason="again", meta='{"m":1}', max_attempts=3, timeout=7.0)
            ended = await conclude(storage, holder, outcome)
            assert (ended.state, ended.kept) == (finished(holder, outcome).to, None)
            job = await take_one(storage, pod)
            assert (job.id, job.args, job.attempt, job.unique_key) == (kept.id, '{"n":2}', 1, "key")
            assert (job.reason, job.meta, job.max_attempts, job.timeout) == ("again", '{"m":1}', 3, 7.0)
            await end(storage, job, Succeeded())

    async def test_a_run_that_would_go_on_is_superseded(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        for outcome in RETURNS:
            holder = await begin(storage, pod)
            kept = await ask(storage)
            ended = await conclude(storage, holder, outcome)
            assert (ended.state, ended.attempt) == (State.CANCELLED, 1)
            assert ended.error is not None
            assert (ended.error.kind, kept.id in ended.error.message) == ("cancelled", True)
            clock.advance(20)  # a throttle cools the queue
            await storage.beat(pod, LEASE, [])
            job = await take_one(storage, pod)
            assert job.id == kept.id
            await end(storage, job, Succeeded())

    async def test_a_lost_pod_s_run_is_superseded(self, storage: Storage, clock: FakeClock) -> None:
        holder = await begin(storage)
        kept = await ask(storage)
        clock.advance(LEASE + 1)
        _, answer = await obey(storage, lifecycle.rescue(holder, "pod-on-test"))
        assert answer.accepted
        ended = await look(storage, holder.id)
        assert (ended.state, ended.crashes) == (State.CANCELLED, 1)
        assert (await take_one(storage, await a_live_pod(storage))).id == kept.id

    async def test_a_change_that_ends_the_run_is_refused_and_says_what_is_kept(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        holder = await begin(storage, pod)
        await ask(storage, args='{"n":2}')
        before = await look(storage, holder.id)
        for outcome in (*ENDS, *RETURNS):
            answer = await write(storage, finished(holder, outcome))
            assert answer == Applied(False, state=State.RUNNING, kept=before.kept)
            assert await look(storage, holder.id) == before
        assert keep_last.request_of(before.kept or "") is not None

    async def test_its_neighbours_are_written(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        holder = await begin(storage, pod)
        others = [a_job(), a_job()]
        await storage.insert(others)
        running = await take(storage, pod)
        await ask(storage)
        answers = await storage.apply([finished(job, Succeeded()) for job in (running[0], holder, running[1])])
        assert [answer.accepted for answer in answers] == [True, False, True]

    async def test_a_change_that_takes_what_is_no_longer_kept_is_refused(self, storage: Storage) -> None:
        holder = await begin(storage)
        await ask(storage, args='{"n":1}')
        plain = finished(holder, Succeeded())
        change = lifecycle.take_over(plain, (await look(storage, holder.id)).kept)
        kept = await ask(storage, args='{"n":2}')
        now = (await look(storage, holder.id)).kept
        assert await write(storage, change) == Applied(False, state=State.RUNNING, kept=now)
        assert (await write(storage, lifecycle.take_over(plain, now))).accepted
        assert (await look(storage, kept.id)).args == '{"n":2}'

    async def test_a_change_that_takes_what_was_cancelled_is_refused(self, storage: Storage) -> None:
        holder = await begin(storage)
        kept = await ask(storage)
        plain = finished(holder, Snoozed(5.0))
        change = lifecycle.take_over(plain, (await look(storage, holder.id)).kept)
        assert (await write(storage, lifecycle.cancel(await look(storage, kept.id)))).accepted
        assert await write(storage, change) == Applied(False, state=State.RUNNING, kept=None)
        assert (await write(storage, plain)).accepted
        assert await ids(storage) == [holder.id]

    async def test_a_taken_over_finish_may_be_sent_again(self, storage: Storage) -> None:
        holder = await begin(storage)
        kept = await ask(storage)
        sent, answer = await obey(storage, finished(holder, Succeeded()))
        assert answer.accepted
        again = await write(storage, sent)
        assert (again.accepted, again.repeated) == (True, True)
        assert sorted(await ids(storage)) == sorted([holder.id, kept.id])

    async def test_follow_ups_are_written_beside_it(self, storage: Storage) -> None:
        holder = await begin(storage)
        kept = await ask(storage)
        follow_up, rival = a_job(), a_unique_job()  # one of them asks for the very key
        await conclude(storage, holder, Succeeded(None, None, (follow_up, rival)))
        assert sorted(await ids(storage, "state:ready")) == sorted([kept.id, follow_up.id])

    async def test_a_cancel_that_is_wanted_ends_the_holder_alone(self, storage: Storage) -> None:
        holder = await begin(storage)
        kept = await ask(storage)
        assert (await write(storage, lifecycle.cancel(await look(storage, holder.id)))).accepted
        answer = await write(storage, finished(holder, failing(after=1.0)))
        assert answer.cancel_wanted
        _, answer = await obey(storage, lifecycle.obey_cancel(finished(holder, failing(after=1.0))))
        assert answer.accepted
        assert (await look(storage, holder.id)).state is State.CANCELLED
        assert (await look(storage, kept.id)).state is State.READY

    async def test_what_moves_a_job_without_ending_its_run_leaves_the_place(self, storage: Storage) -> None:
        holder = await begin(storage)
        await ask(storage)
        before = await look(storage, holder.id)
        assert (await write(storage, lifecycle.cancel(before))).accepted  # asks it
        assert (await look(storage, holder.id)).kept == before.kept

    async def test_its_delay_counts_from_the_request(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        holder = await begin(storage, pod)
        asked = clock.now()
        kept = await ask(storage, delay=20.0)
        clock.advance(5)
        await conclude(storage, holder, Succeeded())
        job = await look(storage, kept.id)
        assert job.state is State.SCHEDULED
        assert near(job.run_at, asked + 20)
        assert near(job.created_at, asked)

    async def test_what_is_overdue_when_the_run_ends_is_due_at_once(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        holder = await begin(storage, pod)
        kept = await ask(storage, delay=2.0)
        clock.advance(5)
        await conclude(storage, holder, Succeeded())
        assert (await take_one(storage, pod)).id == kept.id

    async def test_it_keeps_the_key_of_the_window_that_it_was_asked_in(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        clock.step_wall(3600 - clock.now() % 3600)
        pod = await a_live_pod(storage)
        holder = await begin(storage, pod, period=3600.0)
        kept = await ask(storage, period=3600.0)
        clock.advance(3600)
        newer = await ask(storage, period=3600.0)
        assert newer.outcome == "inserted"
        await conclude(storage, holder, Succeeded())
        assert (await look(storage, kept.id)).unique_key == holder.unique_key
        assert sorted(await ids(storage, "state:ready")) == sorted([kept.id, newer.id])

    async def test_there_is_one_live_job_per_key_through_it_all(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await begin(storage, pod)
        for n in range(5):
            kept = await ask(storage, args=f'{{"n":{n}}}')
            assert len(await ids(storage, "state:ready,running,scheduled,waiting")) == 1
            await conclude(storage, job, (*ENDS, *RETURNS[:1], Interrupted())[n])
            assert await ids(storage, "state:ready,running,scheduled,waiting") == [kept.id]
            job = await take_one(storage, pod)

    async def test_a_repeat_after_it_has_become_a_job_is_a_repeat(self, storage: Storage) -> None:
        holder = await begin(storage)
        new = a_unique_job(**LAST)
        await storage.insert([new])
        await conclude(storage, holder, Succeeded())
        before = await look(storage, new.id)
        assert only(await storage.insert([new])).id == new.id
        assert await look(storage, new.id) == before

    async def test_whoever_listens_is_woken_for_it(self, storage: Storage) -> None:
        holder = await begin(storage)
        await ask(storage, queue="elsewhere")
        ear = Ear(storage)
        await conclude(storage, holder, Succeeded())
        assert await ear.hears_of("elsewhere")
        ear.stop()

    async def test_hostile_content_is_kept_like_any_other(self, storage: Storage) -> None:
        args = '{"text":"\\u0000\\ud83d\\"\'; drop table job; --","n":1e400}'
        holder = await begin(storage)
        kept = await ask(storage, args=args, tags=("a,b", '"{}'), reason="ключ 🗝 \\ \n")
        await conclude(storage, holder, Succeeded())
        job = await look(storage, kept.id)
        assert (job.args, job.tags, job.reason) == (args, ("a,b", '"{}'), "ключ 🗝 \\ \n")
