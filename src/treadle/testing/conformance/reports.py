"""What runs say of themselves: progress, checkpoints, and the lines of logs."""

from __future__ import annotations

from typing import Any

from ...core import lifecycle
from ...core.job import Job, State
from ...core.logline import MOST_BYTES, MOST_LINES, LogLine
from ...core.outcome import Interrupted, Snoozed, Succeeded, Throttled
from ...core.progress import Progress, Report, Reported
from ...core.rollup import DAY
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, a_token, a_unique_job, failing, near, only
from .steps import Cases, a_live_pod, end, put, rescue, start, start_and_lose, take, take_one, write

GONE = "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11"


def says(job: Job, done: float = 1.0, **fields: Any) -> Report:
    return Report(id=job.id, token=job.token or "", attempt=job.attempt, progress=Progress(done=done), **fields)


def saves(job: Job, value: str = "1") -> Report:
    return Report(id=job.id, token=job.token or "", attempt=job.attempt, checkpoint=value)


def is_over(job: Job) -> Report:
    return Report(id=job.id, token=job.token or "", attempt=job.attempt, over=True)


async def done(storage: Storage, id: str) -> float | None:
    found = await storage.progress([id])
    return only(found).progress.done if found else None


async def saved(storage: Storage, id: str) -> str | None:
    found = await storage.checkpoint(id)
    return None if found is None else found.value


def line(job_id: str, n: int = 1, text: str = "a line", **fields: Any) -> LogLine:
    own: dict[str, Any] = {"attempt": 1, "level": "info"}
    return LogLine(job_id=job_id, n=n, text=text, **(own | fields))


class Reports(Cases):
    async def test_progress_comes_back_as_it_was_reported(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(5)
        progress = Progress(done=4.0, total=10.0, note="page 4 'ü'", data='{"a":[1,"x"]}')
        report = Report(id=job.id, token=job.token or "", attempt=1, progress=progress)
        assert list(await storage.report([report])) == [True]
        found = only(await storage.progress([job.id]))
        assert near(found.at, clock.now())
        assert found == Reported(id=job.id, attempt=1, at=found.at, progress=progress)

    async def test_the_last_word_counts(self, storage: Storage) -> None:
        job = await start(storage)
        await storage.report([says(job, 1.0)])
        assert list(await storage.report([says(job, 2.0), says(job, 3.0)])) == [True, True]
        assert await done(storage, job.id) == 3.0

    async def test_of_many_jobs_only_those_are_told_that_have_reported(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        one, other, silent = [await start(storage, pod) for _ in range(3)]
        assert list(await storage.report([says(one, 1.0), says(other, 2.0)])) == [True, True]
        found = await storage.progress([silent.id, other.id, GONE, one.id, "no id at all"])
        assert {each.id: each.progress.done for each in found} == {one.id: 1.0, other.id: 2.0}
        assert list(await storage.progress([])) == []
        assert list(await storage.report([])) == []

    async def test_a_checkpoint_comes_back_as_it_was_saved(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        assert await storage.checkpoint(job.id) is None
        assert list(await storage.report([saves(job, '{"page":3,"who":"ü"}')])) == [True]
        assert list(await storage.report([says(job)])) == [True]
        found = await storage.checkpoint(job.id)
        assert found is not None
        assert (found.value, found.attempt) == ('{"page":3,"who":"ü"}', 1)
        assert near(found.at, clock.now())
        assert await storage.checkpoint(GONE) is None
        assert await storage.checkpoint("no id at all") is None

    async def test_progress_and_a_checkpoint_in_one_report(self, storage: Storage) -> None:
        job = await start(storage)
        both = Report(id=job.id, token=job.token or "", attempt=1, progress=Progress(done=7.0), checkpoint="7")
        assert list(await storage.report([both])) == [True]
        assert (await done(storage, job.id), await saved(storage, job.id)) == (7.0, "7")

    async def test_a_run_that_lost_its_claim_is_not_heard(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        await storage.report([says(new, 2.0), saves(new, '"new"')])
        assert list(await storage.report([says(old, 1.0), saves(old, '"old"'), is_over(old)])) == [False] * 3
        assert (await done(storage, new.id), await saved(storage, new.id)) == (2.0, '"new"')

    async def test_a_run_that_was_rescued_from_is_not_heard(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        assert list(await storage.report([says(job), saves(job)])) == [False, False]
        assert (await done(storage, job.id), await saved(storage, job.id)) == (None, None)

    async def test_of_two_claims_in_one_call_each_is_told_its_own(self, storage: Storage, clock: FakeClock) -> None:
        old, new = await start_and_lose(storage, clock)
        assert list(await storage.report([says(new, 2.0), says(old, 1.0)])) == [True, False]
        assert list(await storage.report([saves(old, "1"), saves(new, "2")])) == [False, True]
        assert (await done(storage, new.id), await saved(storage, new.id)) == (2.0, "2")

    async def test_nobody_reports_for_what_never_ran_or_is_not_there(self, storage: Storage) -> None:
        id = await put(storage)
        nobody = Report(id=id, token=a_token(), attempt=0, progress=Progress(done=1.0))
        gone = Report(id=GONE, token=a_token(), attempt=0, progress=Progress(done=1.0), checkpoint="1")
        odd = Report(id="no id at all", token=a_token(), attempt=0, progress=Progress(done=1.0))
        assert list(await storage.report([nobody, gone, odd])) == [False, False, False]
        assert await done(storage, id) is None

    async def test_progress_may_come_just_after_the_runs_own_finish(self, storage: Storage) -> None:
        job = await start(storage)
        await end(storage, job, failing(after=0.0))
        assert list(await storage.report([says(job, 9.0)])) == [True]
        assert await done(storage, job.id) == 9.0

    async def test_and_after_its_last(self, storage: Storage) -> None:
        job = await start(storage)
        await end(storage, job, failing(final=True))
        assert list(await storage.report([says(job, 9.0)])) == [True]
        assert await done(storage, job.id) == 9.0

    async def test_but_not_once_somebody_has_claimed_the_job_again(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        await end(storage, job, failing(after=0.0))
        await take_one(storage, pod)
        assert list(await storage.report([says(job, 9.0)])) == [False]

    async def test_a_checkpoint_needs_a_claim_that_holds(self, storage: Storage) -> None:
        job = await start(storage)
        await end(storage, job, Interrupted())
        assert list(await storage.report([saves(job)])) == [False]
        assert await saved(storage, job.id) is None

    async def test_what_is_kept_outlives_retry_snooze_throttle_release_and_rescue(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        for outcome in (failing(after=0.0), Snoozed(1.0), Throttled(1.0), Interrupted()):
            await storage.report([says(job, 5.0), saves(job, "5")])
            await end(storage, job, outcome)
            clock.advance(5)
            assert (await done(storage, job.id), await saved(storage, job.id)) == (5.0, "5")
            job = await take_one(storage, pod)
        clock.advance(LEASE + 1)
        await rescue(storage, job)
        assert (await done(storage, job.id), await saved(storage, job.id)) == (5.0, "5")

    async def test_a_failed_job_shows_how_far_it_came_and_goes_on_when_revived(self, storage: Storage) -> None:
        job = await start(storage)
        await storage.report([says(job, 5.0), saves(job, "5")])
        ended = await end(storage, job, failing(final=True))
        assert await done(storage, job.id) == 5.0
        assert (await write(storage, lifecycle.revive(ended))).accepted
        assert (await done(storage, job.id), await saved(storage, job.id)) == (5.0, "5")

    async def test_after_a_success_there_is_nothing_to_show(self, storage: Storage) -> None:
        job = await start(storage)
        await storage.report([says(job, 5.0), saves(job, "5")])
        await end(storage, job, Succeeded())
        assert (await done(storage, job.id), await saved(storage, job.id)) == (None, None)

    async def test_a_job_that_is_revived_after_a_success_begins_with_nothing(self, storage: Storage) -> None:
        job = await start(storage)
        await storage.report([says(job, 5.0), saves(job, "5")])
        ended = await end(storage, job, Succeeded())
        assert (await write(storage, lifecycle.revive(ended))).accepted
        assert (await done(storage, job.id), await saved(storage, job.id)) == (None, None)

    async def test_and_so_do_many_that_are_revived_at_once(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        jobs = [await start(storage, pod) for _ in range(3)]
        await storage.report([each for job in jobs for each in (says(job), saves(job))])
        ended = [await end(storage, job, Succeeded()) for job in jobs]
        revivals = [change for job in ended if (change := lifecycle.revive(job)) is not None]
        assert all(answer.accepted for answer in await storage.apply(revivals))
        assert list(await storage.progress([job.id for job in jobs])) == []
        assert [await saved(storage, job.id) for job in jobs] == [None] * 3

    async def test_a_job_that_is_replaced_begins_with_nothing(self, storage: Storage) -> None:
        # What it asks for now is something else: to go on where the last attempt was would leave out half of it.
        pod = await a_live_pod(storage)
        await put(storage, a_unique_job("key"), a_unique_job("other"))
        one, other = await take(storage, pod)
        for job in (one, other):
            await storage.report([says(job), saves(job)])
            await end(storage, job, failing(after=60.0))
        again = a_unique_job(one.unique_key or "", on_conflict="replace")
        assert only(await storage.insert([again])).outcome == "replaced"
        assert (await done(storage, one.id), await saved(storage, one.id)) == (None, None)
        assert (await done(storage, other.id), await saved(storage, other.id)) == (1.0, "1")

    async def test_what_is_over_is_removed_and_nothing_else(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job, other = await start(storage, pod), await start(storage, pod)
        await storage.report([says(job), saves(job), says(other), saves(other)])
        await storage.record_logs([line(job.id)])
        await end(storage, job, Succeeded())
        assert list(await storage.report([is_over(job)])) == [True]
        assert list(await storage.report([is_over(job)])) == [True]
        assert await done(storage, other.id) == 1.0
        assert await saved(storage, other.id) == "1"
        assert len(await storage.logs(job.id)) == 1

    async def test_a_job_that_goes_takes_all_that_it_said_with_it(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        removed, pruned = await start(storage, pod), await start(storage, pod)
        for job in (removed, pruned):
            await storage.report([says(job), saves(job)])
            await storage.record_logs([line(job.id)])
        assert (await write(storage, lifecycle.remove(await end(storage, removed, failing(final=True))))).accepted
        await end(storage, pruned, failing(final=True))
        clock.advance(365 * DAY)
        assert (await storage.prune(State.FAILED)).removed == 1
        for job in (removed, pruned):
            assert list(await storage.progress([job.id])) == []
            assert await storage.checkpoint(job.id) is None
            assert list(await storage.logs(job.id)) == []


class Logs(Cases):
    async def test_lines_of_a_log_come_back_in_their_order(self, storage: Storage) -> None:
        id, other = await put(storage), await put(storage)
        lines = [line(id, n, f"line {n} 'ü'\nand more", attempt=1 + n // 3, level="error") for n in range(1, 6)]
        await storage.record_logs([lines[4], lines[0], line(other), lines[2]])
        await storage.record_logs([lines[1], lines[3]])
        assert list(await storage.logs(id)) == lines

    async def test_a_reader_goes_on_behind_the_last_line_that_it_has_seen(self, storage: Storage) -> None:
        id = await put(storage)
        await storage.record_logs([line(id, n) for n in range(1, 11)])
        assert [each.n for each in await storage.logs(id, after=7)] == [8, 9, 10]
        assert [each.n for each in await storage.logs(id, limit=2)] == [9, 10]
        assert list(await storage.logs(id, after=10)) == []
        assert list(await storage.logs(GONE)) == []

    async def test_a_log_line_that_is_sent_again_is_there_once(self, storage: Storage) -> None:
        id = await put(storage)
        await storage.record_logs([line(id, 1, "first")])
        await storage.record_logs([line(id, 1, "first"), line(id, 2)])
        assert [each.n for each in await storage.logs(id)] == [1, 2]

    async def test_log_lines_about_a_job_that_is_not_there_are_dropped(self, storage: Storage) -> None:
        id = await put(storage)
        await storage.record_logs([line(GONE), line("no id at all"), line(id)])
        await storage.record_logs([])
        assert list(await storage.logs(GONE)) == []
        assert len(await storage.logs(id)) == 1

    async def test_of_an_attempt_the_last_thousand_lines_are_kept(self, storage: Storage) -> None:
        id = await put(storage)
        await storage.record_logs([line(id, 1, attempt=1)])
        for start_at in (10, 710):
            lines = [line(id, n, "x", attempt=2) for n in range(start_at, start_at + 700)]
            await storage.record_logs(lines)
        found = await storage.logs(id, limit=5000)
        assert [each.n for each in found] == [1, *range(1410 - MOST_LINES, 1410)]

    async def test_and_no_more_than_its_bytes(self, storage: Storage) -> None:
        id = await put(storage)
        await storage.record_logs(
            [line(id, n, "ü" * 2040) for n in range(1, 31)]
        )  # 4 KiB each, with what counts for it
        found = await storage.logs(id)
        assert [each.n for each in found] == list(range(31 - MOST_BYTES // 4096, 31))
