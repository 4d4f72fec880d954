"""One bad member of a batch is refused alone; its neighbours are written."""

from __future__ import annotations

from msgspec.structs import replace

from ...core import lifecycle
from ...core.job import Change, QueueChange, State
from ...core.outcome import Snoozed, Succeeded, Throttled
from ...ports import Applied, Storage
from ..clock import FakeClock
from .builders import a_job, a_token, a_unique_job, an_id, failing, finished
from .steps import Cases, a_live_pod, end, look, put, start, start_and_lose, take, take_one


async def between_neighbours(storage: Storage, pod: str, bad: Change | QueueChange | None) -> Applied:
    """Apply a Change between two good ones, which must be written all the same; the answer to the one between."""
    assert bad is not None
    await put(storage, a_job(queue="good"), a_job(queue="good"))
    first, last = [await take_one(storage, pod, "good") for _ in "ab"]
    before, answer, after = await storage.apply([finished(first, Succeeded()), bad, finished(last, Succeeded())])
    assert (before.accepted, after.accepted) == (True, True)
    for job in (first, last):
        assert (await look(storage, job.id)).state is State.SUCCEEDED
    return answer


class Neighbours(Cases):
    async def test_an_unknown_job_spares_its_neighbours(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        ghost = replace(await start(storage, pod), id=an_id())
        answer = await between_neighbours(storage, pod, finished(ghost, Succeeded()))
        assert (answer.accepted, answer.state) == (False, None)

    async def test_a_stale_token_spares_its_neighbours(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        answer = await between_neighbours(storage, new.pod or "", finished(old, Succeeded()))
        assert (answer.accepted, answer.state) == (False, State.RUNNING)
        assert (await look(storage, old.id)).token == new.token

    async def test_a_taken_follow_up_spares_its_neighbours(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        taken = await put(storage, queue="other")
        job = await start(storage, pod)
        answer = await between_neighbours(storage, pod, finished(job, Succeeded(follow_ups=(a_job(id=taken),))))
        assert not answer.accepted
        assert await look(storage, job.id) == job

    async def test_a_taken_key_spares_its_neighbours(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_unique_job())
        ended = await end(storage, await take_one(storage, pod), Succeeded())
        await put(storage, a_unique_job())
        assert not (await between_neighbours(storage, pod, lifecycle.revive(ended))).accepted

    async def test_a_wanted_cancel_spares_its_neighbours(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        await storage.apply([change for change in [lifecycle.cancel(job)] if change is not None])
        assert (await between_neighbours(storage, pod, finished(job, failing()))).cancel_wanted

    async def test_a_refused_edit_spares_its_neighbours(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        answer = await between_neighbours(storage, pod, QueueChange(name="default", paused=True, version=99))
        assert not answer.accepted

    async def test_a_refused_rescue_spares_its_neighbours(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        assert not (await between_neighbours(storage, pod, lifecycle.rescue(job, "pod"))).accepted

    async def test_answers_come_in_the_order_of_the_changes(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(10)))
        jobs = await take(storage, pod)
        changes = [finished(job if n % 2 else replace(job, token=a_token()), Succeeded()) for n, job in enumerate(jobs)]
        answers = await storage.apply(changes)
        assert [answer.accepted for answer in answers] == [n % 2 == 1 for n in range(10)]

    async def test_all_kinds_of_change_may_share_a_batch(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(5)))
        one, two, three, four, five = await take(storage, pod)
        answers = await storage.apply(
            [
                finished(one, Succeeded('"x"')),
                finished(two, failing()),
                finished(three, Snoozed(5.0)),
                finished(four, Throttled(5.0)),
                finished(five, failing(final=True)),
            ]
        )
        assert [answer.accepted for answer in answers] == [True] * 5
        states = [(await look(storage, job.id)).state for job in (one, two, three, four, five)]
        assert states == [State.SUCCEEDED, State.SCHEDULED, State.SCHEDULED, State.SCHEDULED, State.FAILED]

    async def test_of_two_changes_of_one_job_in_one_batch_the_first_wins(self, storage: Storage) -> None:
        job = await look(storage, await put(storage))
        cancel, move = lifecycle.cancel(job), lifecycle.reschedule(job, delay=60.0)
        assert cancel is not None
        assert move is not None
        answers = await storage.apply([cancel, move])
        assert [answer.accepted for answer in answers] == [True, False]
        assert (await look(storage, job.id)).state is State.CANCELLED

    async def test_a_change_sees_what_the_one_before_it_wrote(self, storage: Storage) -> None:
        job = await start(storage)
        cancel = lifecycle.cancel(job)
        assert cancel is not None
        asked, refused = await storage.apply([cancel, finished(job, failing())])
        assert asked.accepted
        assert (refused.accepted, refused.cancel_wanted) == (False, True)

    async def test_an_empty_batch_is_no_error(self, storage: Storage) -> None:
        assert list(await storage.apply([])) == []
