"""Many at once, in numbers. On one loop and from several threads, each with a loop of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

import pytest

from ...core import lifecycle
from ...core.job import Change, Job, State
from ...core.outcome import Succeeded
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_token, a_unique_job, finished, only, want
from .steps import Cases, a_live_pod, end, ids, look, put, start, take

Answer = TypeVar("Answer")


async def on_threads(calls: list[Callable[[], Coroutine[Any, Any, Answer]]]) -> list[Answer]:
    """Each call on a thread and a loop of its own, all at once."""

    def run(call: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        return asyncio.run(call())

    return await asyncio.gather(*(asyncio.to_thread(run, call) for call in calls))


async def claim_all(storage: Storage, pod: str, limit: int) -> list[str]:
    """Claim until nothing is left."""
    taken: list[str] = []
    while jobs := (await storage.claim(pod, a_token(), [want(limit=limit)])).jobs:
        taken += [job.id for job in jobs]
    return taken


class Concurrency(Cases):
    async def test_20_claimers_and_1000_jobs_give_1000_distinct_claims(self, storage: Storage) -> None:
        jobs = [a_job() for _ in range(1_000)]
        await storage.insert(jobs)
        pods = [await a_live_pod(storage) for _ in range(20)]
        taken = await asyncio.gather(*(claim_all(storage, pod, 10) for pod in pods))
        everything = [id for each in taken for id in each]
        assert len(everything) == 1_000
        assert set(everything) == {job.id for job in jobs}

    async def test_claimers_on_4_threads_share_nothing(self, storage: Storage) -> None:
        await storage.insert([a_job() for _ in range(200)])
        pods = [await a_live_pod(storage) for _ in range(4)]
        taken = await on_threads([partial(claim_all, storage, pod, 7) for pod in pods])
        everything = Counter(id for each in taken for id in each)
        assert len(everything) == 200
        assert set(everything.values()) == {1}

    async def test_every_claimed_job_is_charged_once(self, storage: Storage) -> None:
        await storage.insert([a_job() for _ in range(100)])
        pods = [await a_live_pod(storage) for _ in range(10)]
        taken = await asyncio.gather(*(take(storage, pod, want(limit=15)) for pod in pods))
        assert sum(len(jobs) for jobs in taken) == 100
        found = await storage.get([job.id for jobs in taken for job in jobs])
        assert {job.attempt for job in found} == {1}

    async def test_64_inserters_of_one_key_give_one_job_and_all_name_it(self, storage: Storage) -> None:
        answers = await asyncio.gather(*(storage.insert([a_unique_job()]) for _ in range(64)))
        assert Counter(answer.outcome for (answer,) in answers) == {"inserted": 1, "duplicate": 63}
        id = only(await ids(storage))
        assert {answer.id for (answer,) in answers} == {id}

    async def test_inserters_of_one_key_on_4_threads_give_one_job(self, storage: Storage) -> None:
        async def insert_ten() -> list[str]:
            return [(await storage.insert([a_unique_job()]))[0].id for _ in range(10)]

        answers = await on_threads([insert_ten] * 4)
        id = only(await ids(storage))
        assert {each for ids_of_one in answers for each in ids_of_one} == {id}

    async def test_one_insert_sent_16_times_at_once_is_one_job(self, storage: Storage) -> None:
        new = a_job()
        answers = await asyncio.gather(*(storage.insert([new]) for _ in range(16)))
        assert {(answer.id, answer.outcome) for (answer,) in answers} == {(new.id, "inserted")}
        assert await ids(storage) == [new.id]

    async def test_of_8_cancels_of_one_job_exactly_one_is_accepted(self, storage: Storage) -> None:
        change = lifecycle.cancel(await look(storage, await put(storage)))
        assert await winners(storage, *[change] * 8) == 1

    async def test_of_8_revives_of_one_job_exactly_one_is_accepted(self, storage: Storage) -> None:
        change = lifecycle.revive(await end(storage, await start(storage), Succeeded()))
        assert await winners(storage, *[change] * 8) == 1

    async def test_of_8_rescues_of_one_job_exactly_one_is_accepted(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        assert await winners(storage, *[lifecycle.rescue(job, "pod")] * 8) == 1
        assert (await look(storage, job.id)).crashes == 1

    async def test_of_a_finish_and_a_rescue_exactly_one_wins(self, storage: Storage, clock: FakeClock) -> None:
        for _ in range(10):
            job = await start(storage)
            clock.advance(LEASE + 1)
            assert await winners(storage, finished(job, Succeeded()), lifecycle.rescue(job, "pod")) == 1
            await clear(storage, job)

    async def test_of_a_beat_and_a_rescue_exactly_one_wins(self, storage: Storage, clock: FakeClock) -> None:
        for _ in range(10):
            job = await start(storage)
            clock.advance(LEASE + 1)
            beaten, (rescued,) = await asyncio.gather(
                storage.beat(job.pod or "", LEASE, []), storage.apply([lifecycle.rescue(job, "pod")])
            )
            assert beaten.lost == rescued.accepted
            await clear(storage, job)

    async def test_of_a_claim_and_a_cancel_exactly_one_wins(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        for _ in range(10):
            change = lifecycle.cancel(await look(storage, await put(storage)))
            assert change is not None
            jobs, (answer,) = await asyncio.gather(take(storage, pod), storage.apply([change]))
            assert answer.accepted == (len(jobs) == 0)

    async def test_of_10_pods_that_want_to_lead_exactly_one_does(self, storage: Storage) -> None:
        pods = [await a_live_pod(storage) for _ in range(10)]
        terms = await asyncio.gather(*(storage.lead(pod, 15.0) for pod in pods))
        assert len([term for term in terms if term is not None]) == 1

    async def test_a_finish_sent_from_4_threads_is_written_once(self, storage: Storage) -> None:
        follow_up = a_job(queue="next")
        change = finished(await start(storage), Succeeded(follow_ups=(follow_up,)))

        async def apply() -> tuple[bool, bool]:
            answer = only(await storage.apply([change]))
            return answer.accepted, answer.repeated

        answers = await on_threads([apply] * 4)
        assert Counter(answers) == {(True, False): 1, (True, True): 3}
        assert await ids(storage, "queue:next") == [follow_up.id]

    async def test_a_turns_apply_and_claim_may_be_sent_together(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(60)))
        jobs = list(await take(storage, pod, want(limit=20)))
        seen = len(jobs)
        while jobs:
            answers, more = await asyncio.gather(
                storage.apply([finished(job, Succeeded()) for job in jobs]), take(storage, pod, want(limit=20))
            )
            assert all(answer.accepted for answer in answers)
            jobs = list(more)
            seen += len(jobs)
        assert seen == 60
        assert len(await ids(storage, "state:succeeded", limit=100)) == 60

    async def test_a_heart_may_beat_on_its_own_thread(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await storage.insert([a_job() for _ in range(50)])

        async def beat() -> list[str]:
            return [str((await storage.beat(pod, LEASE, [])).lost) for _ in range(10)]

        beats, taken = await asyncio.gather(on_threads([beat]), claim_all(storage, pod, 5))
        assert beats == [["False"] * 10]
        assert len(taken) == 50


class Sharing(Cases):
    """Two handles on one place, where the storage has the capability `shared`."""

    async def both(self, storage: Storage, clock: FakeClock, use: Callable[[Storage], Awaitable[None]]) -> None:
        if not storage.capabilities.shared:
            pytest.skip("needs the capability: shared")
        other = await self.make(clock)
        await other.open()
        try:
            await use(other)
        finally:
            await other.close()

    async def test_what_one_handle_wrote_the_other_reads(self, storage: Storage, clock: FakeClock) -> None:
        async def use(other: Storage) -> None:
            id = await put(storage)
            assert (await look(other, id)).state is State.READY

        await self.both(storage, clock, use)

    async def test_two_handles_never_claim_the_same_job(self, storage: Storage, clock: FakeClock) -> None:
        async def use(other: Storage) -> None:
            await storage.insert([a_job() for _ in range(200)])
            pods = [await a_live_pod(storage) for _ in range(4)]
            handles = (storage, other, storage, other)
            claims = zip(handles, pods, strict=True)
            taken = await asyncio.gather(*(claim_all(handle, pod, 9) for handle, pod in claims))
            everything = [id for each in taken for id in each]
            assert (len(everything), len(set(everything))) == (200, 200)

        await self.both(storage, clock, use)

    async def test_two_handles_insert_one_key_once(self, storage: Storage, clock: FakeClock) -> None:
        async def use(other: Storage) -> None:
            calls = (handle.insert([a_unique_job()]) for handle in (storage, other) * 16)
            answers = await asyncio.gather(*calls)
            assert Counter(answer.outcome for (answer,) in answers) == {"inserted": 1, "duplicate": 31}

        await self.both(storage, clock, use)

    async def test_a_claim_of_one_handle_is_finished_through_the_other(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        async def use(other: Storage) -> None:
            change = finished(await start(storage), Succeeded())
            first = only(await other.apply([change]))
            again = only(await storage.apply([change]))
            assert (first.accepted, first.repeated) == (True, False)
            assert (again.accepted, again.repeated) == (True, True)

        await self.both(storage, clock, use)


async def winners(storage: Storage, *changes: Change | None) -> int:
    """How many callers, each with one Change and all at once, are told that they won."""
    answers = await asyncio.gather(*(storage.apply([change]) for change in changes if change is not None))
    return sum(answer.accepted and not answer.repeated for (answer,) in answers)


async def clear(storage: Storage, job: Job) -> None:
    """Take the job out of the way of the next round."""
    now = await look(storage, job.id)
    if now.state is State.RUNNING:
        await end(storage, now, Succeeded())
    elif (change := lifecycle.cancel(now)) is not None:
        await storage.apply([change])
