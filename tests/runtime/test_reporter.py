"""The Reporter: what runs say is written together, once a second, and never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from treadle.core.backoff import Retry
from treadle.core.errors import ClaimLost, StorageUnavailable
from treadle.core.job import Job, State
from treadle.core.lifecycle import finish
from treadle.core.logline import LogLine
from treadle.core.outcome import Succeeded
from treadle.core.progress import Progress, Report
from treadle.runtime import reporter as reporters
from treadle.runtime.reporter import Reporter
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.conformance.builders import a_job, a_pod, failing, finished, want

pytestmark = pytest.mark.anyio

HALF = Progress(done=0.5, total=1.0)
WHOLE = Progress(done=1.0, total=1.0)


class Watched(MemoryStorage):
    """Remembers what it was asked, and is away when told to be."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[float, list[Report]]] = []
        self.lines: list[list[LogLine]] = []
        self.away = False

    async def report(self, reports: Sequence[Report]) -> Sequence[bool]:
        if self.away:
            raise StorageUnavailable("away")
        self.asked.append((time.monotonic(), list(reports)))
        return await super().report(reports)

    async def record_logs(self, lines: Sequence[LogLine]) -> None:
        if self.away:
            raise StorageUnavailable("away")
        self.lines.append(list(lines))
        await super().record_logs(lines)


@pytest.fixture
def storage() -> Watched:
    return Watched()


async def a_run(storage: MemoryStorage) -> Job:
    card = a_pod()
    await storage.register(card)
    await storage.insert([a_job()])
    (job,) = (await storage.claim(card.id, "token", [want()])).jobs
    return job


def a_reporter(storage: MemoryStorage, *jobs: Job, **fields: Any) -> Reporter:
    in_hand = {(job.id, job.token or "") for job in jobs}
    return Reporter(storage, **{"least": logging.INFO, "in_hand": in_hand, **fields})


async def idle(reporter: Reporter) -> None:
    async with asyncio.timeout(5):
        while reporter._sending is not None:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)


async def test_a_thousand_words_are_two_writes(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage, job)
    reporter.progress(job, HALF)
    await asyncio.sleep(0.05)
    for n in range(1000):
        reporter.progress(job, Progress(done=float(n)))
    await idle(reporter)
    (first, [one]), (second, [other]) = storage.asked
    assert (one.progress, other.progress) == (HALF, Progress(done=999.0))
    assert second - first >= 0.95, "at most once a second"


async def test_runs_share_a_write(storage: Watched) -> None:
    jobs = [await a_run(storage) for _ in range(3)]
    reporter = a_reporter(storage, *jobs)
    for job in jobs:
        reporter.progress(job, HALF)
        reporter.line(job, logging.INFO, "hello")
    await idle(reporter)
    assert [len(reports) for _, reports in storage.asked] == [3]
    assert [len(lines) for lines in storage.lines] == [3]


async def test_a_word_from_a_thread_never_waits_and_is_written(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage, job)
    thread = threading.Thread(target=lambda: reporter.progress(job, HALF))
    thread.start()
    thread.join()
    assert storage.asked == [], "the thread came back before anything was written"
    await asyncio.sleep(0.01)
    await idle(reporter)
    assert len(storage.asked) == 1


async def test_what_an_absent_storage_does_not_take_is_kept_and_the_newest_word_counts(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage, job)
    storage.away = True
    reporter.progress(job, HALF)
    reporter.line(job, logging.INFO, "first")
    with pytest.raises(StorageUnavailable):
        await reporter.send()
    reporter.progress(job, WHOLE)
    reporter.line(job, logging.INFO, "second")
    storage.away = False
    await idle(reporter)
    ((_, [report]),) = storage.asked
    assert report.progress == WHOLE
    assert [line.text for line in await storage.logs(job.id)] == ["first", "second"]


async def test_lines_are_bounded_for_a_run_and_for_all_of_them(
    storage: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporters, "MOST_BYTES", 100_000)
    jobs = [await a_run(storage) for _ in range(3)]
    reporter = a_reporter(storage, *jobs)
    for job in jobs:
        for _ in range(200):
            reporter.line(job, logging.INFO, "x" * 1000)
    assert reporter._bytes <= 100_000 + 1016  # pyright: ignore[reportPrivateUsage]
    told = reporter.dropped
    assert told > 450
    await idle(reporter)
    assert sum(map(len, storage.lines)) < 150
    assert reporter._bytes == 0  # pyright: ignore[reportPrivateUsage]
    reporter.line(jobs[0], logging.INFO, "there is room again")
    assert reporter.dropped == told
    await idle(reporter)


async def test_after_a_success_what_was_kept_is_removed_and_nothing_more_is_said(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage)
    reporter.progress(job, HALF)
    await reporter.save(job, "1")
    reporter.progress(job, WHOLE)
    change = finished(job, Succeeded())
    await storage.apply([change])
    reporter.ended(change, job)
    await idle(reporter)
    assert [report.over for _, reports in storage.asked for report in reports] == [False, True]
    assert storage._said.progress == storage._said.checkpoints == {}  # pyright: ignore[reportPrivateUsage]
    assert not reporter.is_used


async def test_a_success_of_a_run_that_kept_nothing_writes_nothing(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage)
    storage.away = True
    reporter.progress(job, HALF)
    storage.away = False
    change = finish(job, Succeeded(), Retry(), 0.0)
    reporter.ended(change, job)
    await idle(reporter)
    assert storage.asked == []
    assert not reporter.is_used


async def test_the_last_word_of_a_run_that_failed_is_written_after_its_finish(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage)
    reporter.progress(job, WHOLE)
    change = finished(job, failing())
    await storage.apply([change])
    reporter.ended(change, job)
    await idle(reporter)
    (reported,) = await storage.progress([job.id])
    assert reported.progress == WHOLE
    assert not reporter.is_used


async def test_a_run_that_is_lost_leaves_nothing_behind(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage)  # it is in nobody's hand
    reporter.progress(job, HALF)
    await reporter.last_progress(job)
    await idle(reporter)
    assert not reporter.is_used


async def test_a_checkpoint_takes_the_waiting_progress_along(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage, job)
    reporter.progress(job, HALF)
    await reporter.save(job, "7")
    ((_, [report]),) = storage.asked
    assert (report.progress, report.checkpoint) == (HALF, "7")
    assert await reporter.saved(job) == "7"
    await idle(reporter)
    assert len(storage.asked) == 1


async def test_a_checkpoint_waits_for_a_storage_that_is_away(storage: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage, job)
    storage.away = True
    saving = asyncio.create_task(reporter.save(job, "7"))
    await asyncio.sleep(0.15)
    assert not saving.done()
    storage.away = False
    await saving
    assert await reporter.saved(job) == "7"
    monkeypatch.setattr(reporters, "PAUSES", (0.0,))
    storage.away = True
    with pytest.raises(StorageUnavailable):
        await reporter.save(job, "8")


async def test_a_checkpoint_of_a_lost_run_is_refused(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage, job)
    await storage.apply([finished(job, failing())])
    with pytest.raises(ClaimLost, match="no longer this run's"):
        await reporter.save(job, "7")
    assert await storage.checkpoint(job.id) is None


async def test_flush_writes_and_is_itself_bound_to_once_a_second(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage, job)
    await reporter.flush(job)
    assert storage.asked == []
    begun = time.monotonic()
    for _ in range(2):
        reporter.progress(job, HALF)
        await reporter.flush(job)
    assert len(storage.asked) == 2
    assert time.monotonic() - begun >= 0.95
    reporter.close()


async def test_what_a_thread_says_that_was_left_behind_is_not_written(storage: Watched) -> None:
    job = await a_run(storage)
    reporter = a_reporter(storage, job)
    reporter.progress(job, HALF)
    reporter.close()
    reporter.progress(job, WHOLE)
    reporter.line(job, logging.INFO, "too late")
    await asyncio.sleep(0.05)
    assert storage.asked == []


async def test_many_lines_are_several_writes(storage: Watched) -> None:
    jobs = [await a_run(storage) for _ in range(5)]
    reporter = a_reporter(storage, *jobs)
    for job in jobs:
        for n in range(500):
            reporter.line(job, logging.INFO, str(n))
    await reporter.send()
    assert [len(lines) for lines in storage.lines] == [1000, 1000, 500]
    reporter.close()


async def test_a_reporter_that_keeps_no_lines_captures_none(storage: Watched) -> None:
    job = await a_run(storage)
    before = logging.getLogRecordFactory()
    reporter = a_reporter(storage, job, least=None)
    reporter.serve("p")
    assert logging.getLogRecordFactory() is before
    reporter.line(job, logging.CRITICAL, "nobody hears it")
    assert not reporter.is_used
    assert job.state is State.RUNNING
    reporter.close()
