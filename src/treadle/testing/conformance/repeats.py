"""The same call again, because its answer was lost."""

from __future__ import annotations

from ...core import lifecycle
from ...core.job import State
from ...core.outcome import Interrupted, Snoozed, Succeeded, Throttled
from ...ports import Storage
from ..clock import FakeClock
from .builders import a_job, a_token, a_unique_job, failing, finished, only, want
from .steps import Cases, a_live_pod, end, ids, look, put, queue, start, take_one, write


class Repeats(Cases):
    async def test_an_insert_sent_again_is_one_job(self, storage: Storage) -> None:
        jobs = [a_job(), a_job()]
        first = await storage.insert(jobs)
        assert await storage.insert(jobs) == first
        assert len(await ids(storage)) == 2

    async def test_an_insert_sent_again_with_other_content_changes_nothing(self, storage: Storage) -> None:
        new = a_job(args='{"n":1}')
        await storage.insert([new])
        before = await look(storage, new.id)
        answer = only(await storage.insert([a_job(id=new.id, args='{"n":2}', queue="other", priority=9)]))
        assert (answer.id, answer.outcome) == (new.id, "inserted")
        assert await look(storage, new.id) == before

    async def test_an_insert_sent_again_leaves_a_running_job_alone(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        new = a_job()
        await storage.insert([new])
        running = await take_one(storage, pod)
        answer = only(await storage.insert([new]))
        assert answer.outcome == "inserted"
        assert await look(storage, new.id) == running

    async def test_an_insert_sent_again_does_not_bring_back_what_has_ended(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        new = a_job()
        await storage.insert([new])
        await end(storage, await take_one(storage, pod), Succeeded())
        answer = only(await storage.insert([new]))
        assert (answer.id, answer.outcome) == (new.id, "inserted")
        assert (await look(storage, new.id)).state is State.SUCCEEDED

    async def test_one_id_twice_in_one_call_is_one_job(self, storage: Storage) -> None:
        new = a_job()
        answers = await storage.insert([new, new])
        assert [answer.id for answer in answers] == [new.id, new.id]
        assert await ids(storage) == [new.id]

    async def test_a_unique_insert_sent_again_is_no_duplicate_of_itself(self, storage: Storage) -> None:
        new = a_unique_job()
        await storage.insert([new])
        answer = only(await storage.insert([new]))
        assert (answer.id, answer.outcome) == (new.id, "inserted")

    async def test_a_batch_that_is_half_known_inserts_the_other_half(self, storage: Storage) -> None:
        known, fresh = a_job(), a_job()
        await storage.insert([known])
        answers = await storage.insert([known, fresh])
        assert [answer.outcome for answer in answers] == ["inserted", "inserted"]
        assert await ids(storage) == [fresh.id, known.id]

    async def test_a_finish_sent_again_stays_accepted(self, storage: Storage) -> None:
        change = finished(await start(storage), Succeeded('"done"'))
        first = await write(storage, change)
        assert (first.accepted, first.repeated) == (True, False)
        after = await look(storage, change.id)
        again = await write(storage, change)
        assert (again.accepted, again.repeated, again.state) == (True, True, State.SUCCEEDED)
        assert await look(storage, change.id) == after

    async def test_a_finish_twice_in_one_batch_is_written_once(self, storage: Storage) -> None:
        change = finished(await start(storage), failing())
        first, again = await storage.apply([change, change])
        assert (first.accepted, first.repeated) == (True, False)
        assert (again.accepted, again.repeated) == (True, True)
        assert (await look(storage, change.id)).error_count == 1

    async def test_a_finish_sent_again_later_does_not_move_its_end(self, storage: Storage, clock: FakeClock) -> None:
        change = finished(await start(storage), Succeeded())
        await write(storage, change)
        before = await look(storage, change.id)
        clock.advance(5)
        await write(storage, change)
        assert await look(storage, change.id) == before

    async def test_a_retry_sent_again_is_one_error(self, storage: Storage, clock: FakeClock) -> None:
        change = finished(await start(storage), failing(after=10.0))
        await write(storage, change)
        before = await look(storage, change.id)
        clock.advance(3)
        again = await write(storage, change)
        assert (again.accepted, again.repeated) == (True, True)
        assert await look(storage, change.id) == before

    async def test_a_throttle_sent_again_cools_once(self, storage: Storage, clock: FakeClock) -> None:
        change = finished(await start(storage), Throttled())
        await write(storage, change)
        before = await queue(storage)
        clock.advance(60)
        again = await write(storage, change)
        assert (again.accepted, again.repeated) == (True, True)
        assert await queue(storage) == before

    async def test_a_finish_sent_again_leaves_the_next_claim_alone(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        for outcome in (failing(after=1.0), Snoozed(1.0), Interrupted(1.0)):
            change = finished(await start(storage, pod), outcome)
            await write(storage, change)
            clock.advance(1)
            running = await take_one(storage, pod)
            again = await write(storage, change)
            assert (again.accepted, again.repeated, again.state) == (True, True, State.RUNNING)
            now = await look(storage, change.id)
            assert (now.token, now.attempt, now.state) == (running.token, running.attempt, State.RUNNING)
            await end(storage, running, Succeeded())

    async def test_a_finish_sent_again_after_a_revive_does_not_end_it(self, storage: Storage) -> None:
        job = await start(storage)
        change = finished(job, Succeeded())
        await write(storage, change)
        await write(storage, lifecycle.revive(await look(storage, job.id)))
        again = await write(storage, change)
        assert (again.accepted, again.repeated) == (True, True)
        assert (await look(storage, job.id)).state is State.READY

    async def test_a_finish_sent_again_inserts_its_follow_ups_once(self, storage: Storage) -> None:
        follow_up = a_job(queue="next")
        change = finished(await start(storage), Succeeded(follow_ups=(follow_up,)))
        await write(storage, change)
        again = await write(storage, change)
        assert (again.accepted, again.repeated) == (True, True)
        assert await ids(storage, "queue:next") == [follow_up.id]

    async def test_a_finish_sent_again_does_not_bring_back_a_removed_follow_up(self, storage: Storage) -> None:
        follow_up = a_job(queue="next")
        change = finished(await start(storage), Succeeded(follow_ups=(follow_up,)))
        await write(storage, change)
        await write(storage, lifecycle.cancel(await look(storage, follow_up.id)))
        await write(storage, lifecycle.remove(await look(storage, follow_up.id)))
        assert (await write(storage, change)).accepted
        assert await ids(storage, "queue:next") == []

    async def test_a_finish_sent_again_after_the_job_was_removed_finds_nothing(self, storage: Storage) -> None:
        change = finished(await start(storage), Succeeded())
        await write(storage, change)
        await write(storage, lifecycle.remove(await look(storage, change.id)))
        assert (await write(storage, change)).state is None

    async def test_a_claim_is_recovered_by_its_token(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job(priority=5), a_job())
        token = a_token()
        claimed = await storage.claim(pod, token, [want()])
        assert len(claimed.jobs) == 3
        assert list(await storage.recover(pod, token)) == list(claimed.jobs)

    async def test_recovering_charges_nothing(self, storage: Storage) -> None:
        job = await start(storage)
        assert job.pod is not None
        assert job.token is not None
        await storage.recover(job.pod, job.token)
        again = only(await storage.recover(job.pod, job.token))
        assert again.attempt == 1

    async def test_a_recovered_claim_can_be_finished(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        token = a_token()
        await storage.claim(pod, token, [want()])
        job = only(await storage.recover(pod, token))
        assert (await end(storage, job, Succeeded())).state is State.SUCCEEDED

    async def test_what_has_been_finished_is_not_recovered(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        token = a_token()
        one, other = (await storage.claim(pod, token, [want()])).jobs
        await end(storage, one, Succeeded())
        assert [job.id for job in await storage.recover(pod, token)] == [other.id]

    async def test_nothing_is_recovered_by_another_token_or_for_another_pod(self, storage: Storage) -> None:
        job = await start(storage)
        other = await a_live_pod(storage)
        assert job.pod is not None
        assert job.token is not None
        assert list(await storage.recover(job.pod, a_token())) == []
        assert list(await storage.recover(other, job.token)) == []

    async def test_a_cancel_sent_again_is_told_what_is_true(self, storage: Storage) -> None:
        job = await look(storage, await put(storage))
        change = lifecycle.cancel(job)
        assert (await write(storage, change)).accepted
        again = await write(storage, change)
        assert again.state is State.CANCELLED
        assert (await look(storage, job.id)).error_count == 1

    async def test_signing_off_twice_is_no_error(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await storage.sign_off(pod)
        await storage.sign_off(pod)
        assert list(await storage.pods()) == []
