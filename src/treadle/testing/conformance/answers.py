"""Answers from outside: a job waits, somebody answers, and exactly one word counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from msgspec.structs import replace

from ...core import answer as answering
from ...core import lifecycle
from ...core.answer import Answer, Given, NewAnswer
from ...core.audit import AuditLine
from ...core.backoff import Retry
from ...core.job import NEVER, Change, Job, State
from ...core.outcome import Interrupted, Succeeded, Waits
from ...ports import Answered, Applied, Storage, WaitOver
from ..clock import FakeClock
from .builders import LEASE, a_job, a_token, a_unique_job, failing, finished, near, only
from .insert import HOSTILE
from .signals import Ear
from .steps import Cases, a_live_pod, end, look, rescue, start, start_and_lose, take, take_one, write

MINUTE = 60.0
YES = answering.result("yes")
NO = answering.error("no")


async def ask(storage: Storage, job: Job, timeout: float = MINUTE, **fields: Any) -> str:
    """The id of an answer that this run may wait for."""
    id = a_token()
    assert await storage.open_answer(NewAnswer(id=id, job=job.id, claim=job.token or "", timeout=timeout, **fields))
    return id


async def wait(storage: Storage, job: Job, answer: str) -> Applied:
    return await write(storage, finished(job, Waits(answer)))


async def a_waiting_job(storage: Storage, pod: str | None = None, **fields: Any) -> tuple[Job, str]:
    """A job that waits, and the id of its answer."""
    timeout = fields.pop("within", MINUTE)
    job = await start(storage, pod, **fields)
    answer = await ask(storage, job, timeout)
    assert (await wait(storage, job, answer)).accepted
    return await look(storage, job.id), answer


async def read(storage: Storage, id: str) -> Answer:
    _, found = await storage.answer_of(id)
    assert found is not None
    return found


async def over(storage: Storage) -> WaitOver:
    return only(await storage.waits_over(10))


def in_vain(wait: WaitOver) -> Change:
    return lifecycle.expired(wait.job, wait.answer.id, wait.answer.timeout, Retry(), 0.5)


class Waiting(Cases):
    async def test_a_job_that_waits_is_nobodys(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod, timeout=5.0)
        answer = await ask(storage, job)
        clock.advance(1)
        answered = await wait(storage, job, answer)
        assert (answered.accepted, answered.repeated, answered.state) == (True, False, State.WAITING)
        job = await look(storage, job.id)
        assert (job.state, job.attempt, job.error_count, job.run_at) == (State.WAITING, 1, 0, NEVER)
        assert near(job.deadline, clock.now() + MINUTE - 1)
        clock.advance(LEASE - 2)
        assert len(await take(storage, pod)) == 0
        assert (await storage.beat(pod, LEASE, [])).held == ()
        assert len(await storage.abandoned(10, 0.0)) == 0

    async def test_an_answer_releases_it_and_returns_its_charge(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job, answer = await a_waiting_job(storage, pod, meta='{"who":"me"}')
        clock.advance(5)
        told = await storage.answer(answer, YES)
        assert told == Answered(outcome="won", job=job.id, released=True)
        job = await look(storage, job.id)
        assert (job.state, job.attempt, job.deadline, job.error_count) == (State.READY, 0, None, 0)
        assert near(job.run_at, clock.now())
        row = await read(storage, answer)
        assert (row.kind, row.value, row.job, row.waits) == ("result", '"yes"', job.id, False)
        assert near(row.at, clock.now())
        again = await take_one(storage, pod)
        assert (again.id, again.attempt) == (job.id, 1)
        assert again.meta == f'{{"treadle:answer":{{"id":"{answer}","kind":"result"}},"who":"me"}}'

    async def test_a_waiting_job_names_the_answer_that_it_waits_for(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        running = await start(storage, pod)
        early = await ask(storage, running)
        assert await storage.awaited(running.id) is None, "it has a slot: it does not wait"
        job, answer = await a_waiting_job(storage, pod)
        found = await storage.awaited(job.id)
        assert found == await read(storage, answer)
        await storage.answer(answer, YES)
        assert await storage.awaited(job.id) is None, "it has its answer"
        again = await take_one(storage, pod)
        second = await ask(storage, again)
        assert (await wait(storage, again, second)).accepted
        found = await storage.awaited(job.id)
        assert found is not None
        assert found.id == second
        assert (await wait(storage, running, early)).accepted
        assert (await write(storage, lifecycle.cancel(await look(storage, running.id)))).accepted
        assert await storage.awaited(running.id) is None, "it is cancelled"
        for strange in (a_token(), "no such", *HOSTILE):
            assert await storage.awaited(strange) is None

    async def test_an_answer_that_counts_brings_its_line_into_the_audit(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        _, answer = await a_waiting_job(storage, pod)
        line = AuditLine(id="won", act="jobs.answer", by="ann", detail="answered: result")
        clock.advance(1)
        assert (await storage.answer(answer, YES, line=line)).outcome == "won"
        assert (await storage.answer(answer, YES, line=replace(line, id="same"))).outcome == "same"
        assert (await storage.answer(answer, NO, line=replace(line, id="late"))).outcome == "conflict"
        assert (await storage.answer("no such", NO, line=replace(line, id="none"))).outcome == "unknown"
        kept = only(await storage.audit(10))
        assert replace(kept, at=0.0) == line
        assert near(kept.at, clock.now())

    async def test_an_answer_that_is_faster_than_the_wait_is_kept(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        answer = await ask(storage, job)
        assert await storage.answer(answer, NO) == Answered(outcome="won", job=job.id)
        running = await look(storage, job.id)
        assert (running.state, running.attempt, running.token) == (State.RUNNING, 1, job.token)
        clock.advance(1)
        answered = await wait(storage, job, answer)
        assert (answered.accepted, answered.state) == (True, State.READY)
        assert (await look(storage, job.id)).attempt == 0
        assert len(await storage.waits_over(10)) == 0
        again = await take_one(storage, pod)
        assert answering.mark_of(again.meta) == answering.Mark(answer, "error")

    async def test_what_the_run_said_is_written_with_the_wait_in_both_orders(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for early in (True, False):
            job = await start(storage, pod, meta='{"n":0}')
            answer = await ask(storage, job)
            if early:
                await storage.answer(answer, YES)
            follow_up = a_job(queue="next")
            change = replace(finished(job, Waits(answer)), meta='{"n":1}', follow_ups=(follow_up,))
            assert (await write(storage, change)).accepted
            if not early:
                await storage.answer(answer, YES)
            again = await take_one(storage, pod)
            assert again.meta == f'{{"n":1,"treadle:answer":{{"id":"{answer}","kind":"result"}}}}'
            assert (await look(storage, follow_up.id)).state is State.READY

    async def test_again_comes_back_later_in_both_orders(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job, answer = await a_waiting_job(storage, pod)
        assert (await storage.answer(answer, answering.again("10m"))).outcome == "won"
        early = await start(storage, pod)
        other = await ask(storage, early)
        await storage.answer(other, answering.again("10m"))
        assert (await wait(storage, early, other)).state is State.SCHEDULED
        for each in (job, early):
            found = await look(storage, each.id)
            assert (found.state, found.attempt) == (State.SCHEDULED, 0)
            assert near(found.run_at, clock.now() + 600)

    async def test_the_same_word_twice_is_fine_and_another_is_a_conflict(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job, answer = await a_waiting_job(storage, pod)
        await storage.answer(answer, YES)
        for _ in range(2):  # also when the next attempt runs
            assert await storage.answer(answer, YES) == Answered(outcome="same", job=job.id)
            assert (await storage.answer(answer, answering.result("no"))).outcome == "conflict"
            assert (await storage.answer(answer, NO)).outcome == "conflict"
            assert (await read(storage, answer)).value == '"yes"'
            await take(storage, pod)

    async def test_a_token_ends_with_its_attempt(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        for outcome in (failing(after=0.0), Interrupted(), Succeeded(), failing(final=True)):
            job = await start(storage, pod)
            answer = await ask(storage, job)
            await end(storage, job, outcome)
            assert (await storage.answer(answer, YES)).outcome == "stale"
            assert (await storage.beat_answer(answer)).outcome == "stale"
            await take(storage, pod)  # the same, when another claim has it
            assert await storage.answer(answer, YES) == Answered(outcome="stale", job=job.id)
        old, new = await start_and_lose(storage, clock, queue="lost")
        stale = NewAnswer(id=a_token(), job=old.id, claim=old.token or "")
        assert not await storage.open_answer(stale)
        assert (await storage.answer(stale.id, YES)).outcome == "unknown"
        assert (await look(storage, new.id)).state is State.RUNNING

    async def test_a_token_that_was_never_made_is_unknown(self, storage: Storage) -> None:
        assert await storage.answer("no such", YES) == Answered(outcome="unknown")
        assert await storage.beat_answer("no such") == Answered(outcome="unknown")
        assert (await storage.answer_of("no such"))[1] is None
        assert not await storage.open_answer(NewAnswer(id=a_token(), job="no such", claim="x"))

    async def test_an_answer_may_be_opened_again(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        new = NewAnswer(id=a_token(), job=job.id, claim=job.token or "", timeout=5.0)
        assert await storage.open_answer(new)
        first = await read(storage, new.id)
        clock.advance(1)
        assert await storage.open_answer(new)
        now, again = await storage.answer_of(new.id)
        assert again == first
        assert near(now, clock.now())
        assert near(first.expires_at, clock.now() + 4)

    async def test_a_wait_that_is_sent_again_is_accepted_again(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        answer = await ask(storage, job)
        change = finished(job, Waits(answer))
        await write(storage, change)
        assert await write(storage, change) == Applied(True, repeated=True, state=State.WAITING)
        await storage.answer(answer, YES)
        assert await write(storage, change) == Applied(True, repeated=True, state=State.READY)
        assert (await take_one(storage, pod)).attempt == 1

    async def test_a_run_waits_only_for_an_answer_of_its_own(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        other, its = await a_waiting_job(storage, pod)
        job = await start(storage, pod)
        gone = await ask(storage, job)
        await end(storage, job, failing(after=0.0))
        job = await take_one(storage, pod)
        over = await ask(storage, job, 1.0)
        clock.advance(1)
        assert (await storage.answer(over, answering.EXPIRED)).outcome == "won"
        for answer in (its, gone, over, "no such"):
            refused = await wait(storage, job, answer)
            assert (refused.accepted, refused.state) == (False, State.RUNNING)
            assert refused.error
        assert await look(storage, job.id) == replace(job, errors=(await look(storage, job.id)).errors)
        assert (await look(storage, other.id)).state is State.WAITING

    async def test_a_cancel_that_was_asked_for_comes_before_the_wait(self, storage: Storage) -> None:
        job = await start(storage)
        answer = await ask(storage, job)
        await write(storage, lifecycle.cancel(job))
        refused = await wait(storage, job, answer)
        assert (refused.accepted, refused.cancel_wanted) == (False, True)

    async def test_several_answers_of_one_run_are_apart(self, storage: Storage) -> None:
        job = await start(storage)
        one, other = await ask(storage, job), await ask(storage, job)
        await wait(storage, job, one)
        assert await storage.answer(other, NO) == Answered(outcome="won", job=job.id)
        assert (await look(storage, job.id)).state is State.WAITING
        assert (await storage.answer(one, YES)).released
        assert (await read(storage, other)).kind == "error"

    async def test_a_large_or_hostile_answer_comes_back_whole(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for text in (*HOSTILE, "ü" * (512 * 1024 - 1)):
            job = await start(storage, pod)
            answer = await ask(storage, job)
            given = Given(kind="result", value=f'"{text}"')
            assert (await storage.answer(answer, given)).outcome == "won"
            assert (await read(storage, answer)).value == f'"{text}"'
            await end(storage, job, Succeeded())

    async def test_a_waiting_job_holds_its_unique_key(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await storage.insert([a_unique_job()])
        job = await take_one(storage, pod)
        answer = await ask(storage, job)
        await wait(storage, job, answer)
        assert only(await storage.insert([a_unique_job()])).outcome == "duplicate"
        assert only(await storage.insert([a_unique_job(on_conflict="replace")])).outcome == "duplicate"
        await storage.answer(answer, YES)
        assert (await look(storage, job.id)).state is State.READY

    async def test_listeners_hear_of_an_answer(self, storage: Storage) -> None:
        _, answer = await a_waiting_job(storage, queue="mail")
        ear = Ear(storage)
        await storage.answer(answer, YES)
        assert await ear.hears_of("mail")
        assert await ear.hears(lambda wake: answer in wake.ended)
        ear.stop()

    async def test_listeners_hear_of_a_wait_that_was_answered_before(self, storage: Storage) -> None:
        job = await start(storage, await a_live_pod(storage, queues={"mail": 1}), queue="mail")
        answer = await ask(storage, job)
        await storage.answer(answer, YES)
        ear = Ear(storage)
        await wait(storage, job, answer)
        assert await ear.hears_of("mail")
        ear.stop()


class WaitsOver(Cases):
    async def test_a_wait_in_vain_is_a_failed_attempt(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        job, answer = await a_waiting_job(storage, pod)
        clock.advance(MINUTE - 1)
        assert len(await storage.waits_over(10)) == 0
        clock.advance(1)
        found = await over(storage)
        assert (found.job.id, found.job.state, found.answer.id) == (job.id, State.WAITING, answer)
        assert (found.job.attempt, found.job.token, found.answer.timeout) == (1, job.token, MINUTE)
        written = await write(storage, in_vain(found))
        assert (written.accepted, written.state) == (True, State.SCHEDULED)
        job = await look(storage, job.id)
        assert (job.attempt, job.error_count, job.deadline) == (1, 1, None)
        assert job.error is not None
        assert (job.error.kind, job.error.message) == ("expired", "no answer came within 1m")
        assert len(await storage.waits_over(10)) == 0
        assert (await storage.answer(answer, YES)).outcome == "stale"
        clock.advance(60)
        await storage.beat(pod, LEASE, [])
        assert (await take_one(storage, pod)).attempt == 2

    async def test_a_wait_in_vain_fails_the_job_at_its_last_attempt(self, storage: Storage, clock: FakeClock) -> None:
        job, answer = await a_waiting_job(storage, max_attempts=1)
        clock.advance(MINUTE)
        assert (await write(storage, in_vain(await over(storage)))).state is State.FAILED
        assert (await storage.answer(answer, YES)).outcome == "stale"
        assert near((await look(storage, job.id)).finished_at, clock.now())

    async def test_an_answer_is_faster_than_the_end_of_the_wait(self, storage: Storage, clock: FakeClock) -> None:
        job, answer = await a_waiting_job(storage)
        clock.advance(MINUTE + 5)
        found = await over(storage)
        assert (await storage.answer(answer, YES)).outcome == "won"  # late, and nobody has acted on it
        refused = await write(storage, in_vain(found))
        assert (refused.accepted, refused.state) == (False, State.READY)
        assert (await look(storage, job.id)).error_count == 0

    async def test_a_beat_moves_the_limit(self, storage: Storage, clock: FakeClock) -> None:
        job, answer = await a_waiting_job(storage)
        clock.advance(MINUTE)
        found = await over(storage)
        told = await storage.beat_answer(answer)
        assert (told.outcome, told.job) == ("won", job.id)
        assert near(told.until, clock.now() + MINUTE)
        refused = await write(storage, in_vain(found))
        assert (refused.accepted, refused.state) == (False, State.WAITING)
        assert near((await look(storage, job.id)).deadline, clock.now() + MINUTE)
        assert len(await storage.waits_over(10)) == 0
        clock.advance(MINUTE)
        assert (await write(storage, in_vain(await over(storage)))).accepted

    async def test_a_beat_after_the_answer_is_stale(self, storage: Storage) -> None:
        _, answer = await a_waiting_job(storage)
        await storage.answer(answer, YES)
        assert (await storage.beat_answer(answer)).outcome == "stale"

    async def test_a_run_that_waits_in_place_ends_its_wait_itself(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        answer = await ask(storage, job)
        assert (await storage.answer(answer, answering.EXPIRED)).outcome == "early"
        clock.advance(MINUTE - 1)
        await storage.beat_answer(answer)
        clock.advance(1)
        assert (await storage.answer(answer, answering.EXPIRED)).outcome == "early"
        clock.advance(MINUTE)
        assert len(await storage.waits_over(10)) == 0  # it has a slot: nobody else ends it
        assert (await storage.answer(answer, answering.EXPIRED)).outcome == "won"
        assert (await storage.answer(answer, answering.EXPIRED)).outcome == "same"
        assert (await storage.answer(answer, YES)).outcome == "stale"
        assert (await look(storage, job.id)).state is State.RUNNING

    async def test_the_longest_over_come_first_and_no_more_than_asked(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        waiting = [(await a_waiting_job(storage, pod, within=float(n)))[0].id for n in (5, 1, 4, 2, 3, 60)]
        clock.advance(10)
        assert [each.job.id for each in await storage.waits_over(3)] == [waiting[n] for n in (1, 3, 4)]
        for each in await storage.waits_over(3):
            await write(storage, in_vain(each))
        assert [each.job.id for each in await storage.waits_over(3)] == [waiting[n] for n in (2, 0)]

    async def test_what_waits_no_more_is_no_wait_that_is_over(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        cancelled, of_cancelled = await a_waiting_job(storage, pod)
        await write(storage, lifecycle.cancel(cancelled))
        _, answered = await a_waiting_job(storage, pod)
        await storage.answer(answered, YES)
        job, _ = await a_waiting_job(storage, pod, queue="other")
        await write(storage, lifecycle.cancel(job))
        await write(storage, lifecycle.revive(await look(storage, job.id)))
        clock.advance(MINUTE)
        await storage.beat(pod, LEASE, [])
        for _ in range(2):
            assert len(await storage.waits_over(1)) == 0
        assert (await storage.answer(of_cancelled, YES)).outcome == "stale"
        assert (await take_one(storage, pod, "other")).attempt == 1


class WaitingOperators(Cases):
    async def test_a_waiting_job_may_be_cancelled(self, storage: Storage, clock: FakeClock) -> None:
        job, answer = await a_waiting_job(storage)
        assert (await write(storage, lifecycle.cancel(job))).state is State.CANCELLED
        job = await look(storage, job.id)
        assert (job.state, job.deadline) == (State.CANCELLED, None)
        assert near(job.finished_at, clock.now())
        assert (await storage.answer(answer, YES)).outcome == "stale"

    async def test_a_waiting_job_may_be_moved(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job, answer = await a_waiting_job(storage, pod)
        await write(storage, lifecycle.move(job, "other"))
        await write(storage, lifecycle.set_priority(job, 7))
        moved = await look(storage, job.id)
        assert (moved.state, moved.queue, moved.priority, moved.deadline) == (State.WAITING, "other", 7, job.deadline)
        assert (await storage.answer(answer, YES)).released
        assert len(await take(storage, pod)) == 0
        assert (await take_one(storage, pod, "other")).id == job.id

    async def test_answers_go_with_their_job(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        answers: list[str] = []
        for _ in range(2):
            _, answer = await a_waiting_job(storage, pod)
            await storage.answer(answer, YES)
            await end(storage, await take_one(storage, pod), Succeeded())
            answers.append(answer)
        await write(storage, lifecycle.remove(await look(storage, (await read(storage, answers[1])).job)))
        assert (await storage.answer_of(answers[1]))[1] is None
        assert (await storage.answer_of(answers[0]))[1] is not None
        clock.advance(400 * 86_400)
        assert (await storage.prune(State.SUCCEEDED)).removed == 1
        assert (await storage.answer(answers[0], YES)).outcome == "unknown"

    async def test_of_a_job_that_asks_for_ever_the_last_answers_are_kept(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        job, first = await a_waiting_job(storage, pod, max_attempts=1000)
        await storage.answer(first, YES)
        job = await take_one(storage, pod)
        own: list[str] = []
        for _ in range(answering.KEPT + 5):
            clock.advance(0.01)
            own.append(await ask(storage, job, keep=first))
        assert (await read(storage, first)).kind == "result"
        assert [(await read(storage, each)).claim for each in own] == [job.token] * len(own)
        await end(storage, job, Interrupted())
        job = await take_one(storage, pod)
        last = await ask(storage, job, keep=first)
        assert (await read(storage, first)).value == '"yes"'
        assert (await storage.answer_of(own[0]))[1] is None
        assert (await storage.answer(own[-1], YES)).outcome == "stale"
        assert (await read(storage, last)).claim == job.token

    async def test_a_rescued_run_takes_its_token_with_it(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        answer = await ask(storage, job)
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        assert (await storage.answer(answer, YES)).outcome == "stale"

    async def test_a_lost_pod_leaves_what_waits_alone(self, storage: Storage, clock: FakeClock) -> None:
        job, answer = await a_waiting_job(storage, within=3600.0)
        clock.advance(LEASE + 1)
        assert len(await storage.abandoned(10, 0.0)) == 0
        assert (await storage.answer(answer, YES)).released
        assert (await take_one(storage, await a_live_pod(storage))).id == job.id


class AnswersAtOnce(Cases):
    async def test_of_many_words_at_once_exactly_one_wins(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for waits in (True, False):
            job = await start(storage, pod)
            answer = await ask(storage, job)
            if waits:
                await wait(storage, job, answer)
            words = [answering.result(n % 8) for n in range(32)]
            told = await asyncio.gather(*(storage.answer(answer, word) for word in words))
            (winner,) = [word for word, each in zip(words, told, strict=True) if each.outcome == "won"]
            assert (await read(storage, answer)).value == winner.value
            assert Counter(each.outcome for each in told) == {"won": 1, "same": 3, "conflict": 28}
            assert [each.outcome for each, word in zip(told, words, strict=True) if word == winner].count("same") == 3
            if not waits:
                await wait(storage, job, answer)
            assert (await take_one(storage, pod)).attempt == 1

    async def test_a_wait_and_its_answer_at_once_never_miss_each_other(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for n in range(20):
            job = await start(storage, pod)
            answer = await ask(storage, job)
            pair = (wait(storage, job, answer), storage.answer(answer, YES))
            done: list[Any] = await asyncio.gather(*(pair if n % 2 else reversed(pair)))
            told, waited = sorted(done, key=lambda each: isinstance(each, Applied))
            assert (told.outcome, waited.accepted) == ("won", True)
            # Whoever came second has released it.
            assert told.released is (waited.state is State.WAITING)
            released = await take_one(storage, pod)
            assert (released.id, released.attempt) == (job.id, 1)
            await end(storage, released, Succeeded())

    async def test_of_an_answer_a_beat_and_the_end_of_the_wait_one_wins(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        for n in range(12):
            job, answer = await a_waiting_job(storage, pod, queue=f"q{n}")
            clock.advance(MINUTE)
            await storage.beat(pod, LEASE, [])
            found = await over(storage)
            acts = [storage.answer(answer, YES), storage.beat_answer(answer), storage.apply([in_vain(found)])]
            acts = acts[n % 3 :] + acts[: n % 3]
            told: list[Any] = await asyncio.gather(*acts)
            told = told[-(n % 3) :] + told[: -(n % 3)] if n % 3 else told
            given, beaten, (ended,) = told
            job = await look(storage, job.id)
            if ended.accepted:
                assert (job.state, given.outcome, beaten.outcome) == (State.SCHEDULED, "stale", "stale")
            else:
                assert (job.state, given.outcome, job.error_count) == (State.READY, "won", 0)
