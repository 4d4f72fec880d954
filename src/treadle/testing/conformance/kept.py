"""What is kept behind a run: how it is found, cancelled, put off and raced for, and a holder that waits."""

from __future__ import annotations

import asyncio

from ...core import keep_last, lifecycle
from ...core.backoff import Retry
from ...core.job import Job, State
from ...core.outcome import Succeeded, Waits
from ...ports import Inserted, Storage
from ..clock import FakeClock
from .answers import MINUTE, YES, a_waiting_job, in_vain, over
from .answers import ask as open_answer
from .builders import a_job, a_token, a_unique_job, finished, near, only, want
from .keeping import LAST, ask, begin, conclude, obey
from .steps import Cases, a_live_pod, end, ids, look, put, take, take_one, write


class LookingAtKept(Cases):
    async def test_it_is_found_through_its_holder(self, storage: Storage) -> None:
        holder = await begin(storage)
        kept = await ask(storage, args='{"n":2}', tags=("t",))
        job = await look(storage, kept.id)
        assert (job.id, job.behind, job.state) == (kept.id, holder.id, State.WAITING)
        assert (job.args, job.tags, job.task, job.queue) == ('{"n":2}', ("t",), "work", "default")

    async def test_it_is_found_among_others(self, storage: Storage) -> None:
        holder = await begin(storage)
        kept = await ask(storage)
        found = await storage.get([kept.id, holder.id, a_job().id])
        assert {job.id for job in found} == {kept.id, holder.id}

    async def test_lists_and_counts_know_jobs_only(self, storage: Storage) -> None:
        holder = await begin(storage)
        await ask(storage)
        assert await ids(storage) == [holder.id]

    async def test_cancelling_it_empties_the_place(self, storage: Storage) -> None:
        holder = await begin(storage)
        kept = await ask(storage)
        assert (await write(storage, lifecycle.cancel(await look(storage, kept.id)))).accepted
        assert list(await storage.get([kept.id])) == []
        assert (await look(storage, holder.id)).kept is None
        await end(storage, holder, Succeeded())
        assert await ids(storage) == [holder.id]

    async def test_a_cancel_of_older_content_is_refused(self, storage: Storage) -> None:
        await begin(storage)
        kept = await ask(storage, args='{"n":1}')
        change = lifecycle.cancel(await look(storage, kept.id))
        await ask(storage, args='{"n":2}')
        assert not (await write(storage, change)).accepted
        assert (await look(storage, kept.id)).args == '{"n":2}'

    async def test_an_emptied_place_is_filled_by_the_next_request(self, storage: Storage) -> None:
        await begin(storage)
        first = await ask(storage)
        await write(storage, lifecycle.cancel(await look(storage, first.id)))
        second = await ask(storage)
        assert (second.outcome, second.id == first.id) == ("kept", False)

    async def test_it_travels_with_its_holder(self, storage: Storage) -> None:
        await begin(storage)
        kept = await ask(storage, args='{"n":2}')
        page = await storage.dump("job")
        assert keep_last.id_of(only(page.records)["kept"]) == kept.id


class Debouncing(Cases):
    async def test_each_request_puts_it_off(self, storage: Storage, clock: FakeClock) -> None:
        first = await ask(storage, delay=5.0, cap=60.0)
        clock.advance(3)
        assert await ask(storage, delay=5.0, cap=60.0, args='{"n":2}') == Inserted(first.id, "replaced")
        job = await look(storage, first.id)
        assert near(job.run_at, clock.now() + 5)
        assert job.args == '{"n":2}'

    async def test_never_beyond_the_cap(self, storage: Storage, clock: FakeClock) -> None:
        asked = clock.now()
        first = await ask(storage, delay=5.0, cap=12.0)
        for _ in range(3):
            clock.advance(4)
            await ask(storage, delay=5.0, cap=12.0)
        assert near((await look(storage, first.id)).run_at, asked + 12)
        clock.advance(4)  # overdue, and nobody has taken it yet
        await ask(storage, delay=5.0, cap=12.0)
        job = await look(storage, first.id)
        assert (job.state, near(job.run_at, clock.now())) == (State.READY, True)

    async def test_without_a_cap_it_may_be_put_off_for_ever(self, storage: Storage, clock: FakeClock) -> None:
        first = await ask(storage, delay=5.0)
        for _ in range(5):
            clock.advance(4)
            await ask(storage, delay=5.0)
        assert near((await look(storage, first.id)).run_at, clock.now() + 5)

    async def test_what_is_kept_is_put_off_too_and_its_cap_counts_from_its_first(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        holder = await begin(storage)
        clock.advance(100)
        asked = clock.now()
        kept = await ask(storage, delay=5.0, cap=12.0)
        for _ in range(2):
            clock.advance(4)
            assert await ask(storage, delay=5.0, cap=12.0) == kept
        assert near((await look(storage, kept.id)).run_at, asked + 12)
        await conclude(storage, holder, Succeeded())
        clock.advance(2)
        assert await ask(storage, delay=5.0, cap=12.0) == Inserted(kept.id, "replaced")
        assert near((await look(storage, kept.id)).run_at, asked + 12)


class RacesOverAPlace(Cases):
    async def test_requests_at_once_agree_on_one_place(self, storage: Storage) -> None:
        holder = await begin(storage)
        answers = await asyncio.gather(*(ask(storage, args=f'{{"n":{n}}}') for n in range(24)))
        assert {answer.outcome for answer in answers} == {"kept"}
        assert len({answer.id for answer in answers}) == 1
        await conclude(storage, holder, Succeeded())
        assert len(await ids(storage, "state:ready")) == 1

    async def test_a_request_and_the_end_of_the_run_at_once_lose_nothing(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for n in range(8):
            key = f"key-{n}"
            id = await put(storage, a_unique_job(key, **LAST))
            job = await take_one(storage, pod)
            (_, ended), asked = await asyncio.gather(
                obey(storage, finished(job, Succeeded())), ask(storage, key, args='{"n":2}')
            )
            assert ended.accepted
            assert asked.outcome in ("kept", "inserted")
            assert (await look(storage, id)).state is State.SUCCEEDED
            left = await look(storage, asked.id)
            assert (left.state, left.args) == (State.READY, '{"n":2}')
            jobs = (await storage.claim(pod, a_token(), (want(),))).jobs
            await end(storage, only(jobs), Succeeded())

    async def test_a_cancel_of_the_kept_and_the_end_of_the_run_at_once(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for n in range(8):
            key = f"key-{n}"
            await put(storage, a_unique_job(key, **LAST))
            job = await take_one(storage, pod)
            kept = await ask(storage, key)
            (_, ended), cancelled = await asyncio.gather(
                obey(storage, finished(job, Succeeded())),
                write(storage, lifecycle.cancel(await look(storage, kept.id))),
            )
            assert ended.accepted
            left = [job for job in await storage.get([kept.id]) if job.behind is None]
            assert bool(left) is not cancelled.accepted
            for job in await take(storage, pod):
                await end(storage, job, Succeeded())


class KeptBehindAWait(Cases):
    """A job that waits for an answer from outside is under way: its run has not ended."""

    async def waiting(self, storage: Storage) -> tuple[Job, str, str]:
        """The job that waits, the id of its answer, and that of the request behind it."""
        job, answer = await a_waiting_job(storage, unique=a_unique_job(**LAST).unique)
        kept = await ask(storage, args='{"n":1}')
        assert kept.outcome == "kept"
        return job, answer, kept.id

    async def test_a_request_is_kept_behind_a_waiting_holder(self, storage: Storage) -> None:
        job, _, kept = await self.waiting(storage)
        assert (await look(storage, job.id)).state is State.WAITING
        assert (await look(storage, kept)).behind == job.id

    async def test_what_is_kept_when_a_run_begins_to_wait_stays(self, storage: Storage) -> None:
        job = await begin(storage)
        kept = await ask(storage)
        answer = await open_answer(storage, job)
        assert (await write(storage, finished(job, Waits(answer)))).accepted
        assert (await look(storage, kept.id)).behind == job.id

    async def test_an_answer_leaves_the_place_and_the_next_end_hands_it_over(self, storage: Storage) -> None:
        job, answer, kept = await self.waiting(storage)
        assert (await storage.answer(answer, YES)).outcome == "won"
        assert (await look(storage, job.id)).state is State.READY
        # It goes on with its run: what is asked for now is still kept behind it.
        assert await ask(storage, args='{"n":2}') == Inserted(kept, "kept")
        again = await take_one(storage, await a_live_pod(storage))
        assert (again.id, again.args) == (job.id, "{}")
        assert (await conclude(storage, again, Succeeded())).state is State.SUCCEEDED
        assert (await look(storage, kept)).args == '{"n":2}'

    async def test_a_wait_in_vain_is_superseded(self, storage: Storage, clock: FakeClock) -> None:
        job, answer, kept = await self.waiting(storage)
        clock.advance(MINUTE + 1)
        _, applied = await obey(storage, in_vain(await over(storage)))
        assert applied.accepted
        assert (await look(storage, job.id)).state is State.CANCELLED
        assert (await look(storage, kept)).state is State.READY
        assert (await storage.answer(answer, YES)).outcome != "won"

    async def test_a_wait_that_was_answered_meanwhile_is_not_superseded(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        job, answer, kept = await self.waiting(storage)
        clock.advance(MINUTE - 1)
        seen = await look(storage, job.id)
        assert (await storage.answer(answer, YES)).outcome == "won"
        change = lifecycle.expired(seen, answer, MINUTE, Retry(), 0.5)
        assert not (await write(storage, lifecycle.take_over(change, seen.kept))).accepted
        assert (await look(storage, kept)).behind == job.id

    async def test_a_cancel_of_a_waiting_holder_hands_over(self, storage: Storage) -> None:
        job, _, kept = await self.waiting(storage)
        assert (await write(storage, lifecycle.cancel(await look(storage, job.id)))).accepted
        assert (await look(storage, job.id)).state is State.CANCELLED
        assert (await look(storage, kept)).state is State.READY
