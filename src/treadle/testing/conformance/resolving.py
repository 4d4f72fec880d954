"""Jobs that were enqueued by name: what their rows lack is written under the claim's token before their runs begin."""

from __future__ import annotations

from msgspec.structs import replace

from ...core import lifecycle
from ...core.backoff import Retry
from ...core.job import NO_TIMEOUT, Change, Job, State
from ...core.outcome import Succeeded
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_job, a_token, failing, near, only, want
from .steps import Cases, a_live_pod, end, look, put, rescue, start, take, take_one, write

ONCE = Retry(max_attempts=1)


def resolving(job: Job, retry: Retry = ONCE, timeout: float = 60.0) -> Change:
    change = lifecycle.resolve(job, retry, timeout)
    assert change is not None
    return change


class Resolving(Cases):
    async def test_what_a_row_lacks_is_written(self, storage: Storage) -> None:
        job = await start(storage)
        answer = await write(storage, resolving(job))
        assert (answer.accepted, answer.state) == (True, State.RUNNING)
        row = await look(storage, job.id)
        assert (row.max_attempts, row.timeout, row.pinned) == (1, 60.0, False)
        assert near(row.deadline, (job.started_at or 0.0) + 60.0)
        # Nothing else has changed.
        own = {"max_attempts": None, "timeout": None, "deadline": None}
        assert replace(row, **own) == replace(job, **own)

    async def test_what_the_caller_chose_stays(self, storage: Storage) -> None:
        job = await start(storage, max_attempts=7, pinned=True)
        await write(storage, resolving(job))
        row = await look(storage, job.id)
        assert (row.max_attempts, row.timeout, row.pinned) == (7, 60.0, True)

    async def test_a_timeout_that_is_switched_off_leaves_no_deadline(self, storage: Storage) -> None:
        job = await start(storage)
        await write(storage, resolving(job, timeout=NO_TIMEOUT))
        row = await look(storage, job.id)
        assert (row.timeout, row.deadline) == (NO_TIMEOUT, None)

    async def test_sent_again_it_is_accepted_again(self, storage: Storage) -> None:
        job = await start(storage)
        first = await write(storage, resolving(job))
        row = await look(storage, job.id)
        assert await write(storage, resolving(job)) == first
        assert await look(storage, job.id) == row

    async def test_a_rescue_goes_by_it(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        await write(storage, resolving(job))
        clock.advance(LEASE + 1)
        found = only(await storage.abandoned(100, 1000.0))
        assert found.job.max_attempts == 1
        assert (await rescue(storage, found.job)).state is State.FAILED

    async def test_the_next_claim_finds_it(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        await write(storage, resolving(job, Retry(max_attempts=3)))
        await end(storage, job, failing(after=0.0))
        again = await take_one(storage, pod)
        assert (again.max_attempts, again.timeout) == (3, 60.0)
        assert near(again.deadline, (again.started_at or 0.0) + 60.0)

    async def test_a_claim_that_is_recovered_shows_it(self, storage: Storage) -> None:
        job = await start(storage)
        await write(storage, resolving(job))
        found = only(await storage.recover(job.pod or "", job.token or ""))
        assert (found.max_attempts, found.timeout) == (1, 60.0)

    async def test_many_are_written_by_one_call_and_a_stale_one_harms_none(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(5)))
        jobs = await take(storage, pod, want(limit=5))
        ended = jobs[2]
        await end(storage, ended, Succeeded())
        lost = replace(jobs[3], token=a_token())
        changes = [resolving(lost if job is jobs[3] else job) for job in jobs]
        answers = await storage.apply(changes)
        assert [answer.accepted for answer in answers] == [True, True, False, False, True]
        assert [answer.state for answer in answers[2:4]] == [State.SUCCEEDED, State.RUNNING]
        assert [(await look(storage, job.id)).max_attempts for job in jobs] == [1, 1, None, None, 1]

    async def test_finishes_share_the_call(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        one, other = await take(storage, pod, want(limit=2))
        done = lifecycle.finish(one, Succeeded(), Retry(), 0.5)
        assert [each.accepted for each in await storage.apply([done, resolving(other)])] == [True, True]
        assert (await look(storage, other.id)).timeout == 60.0

    async def test_a_cancel_that_is_wanted_stays_wanted(self, storage: Storage) -> None:
        job = await start(storage)
        await write(storage, lifecycle.cancel(job))
        assert (await write(storage, resolving(job))).accepted
        assert (await look(storage, job.id)).cancel_wanted
