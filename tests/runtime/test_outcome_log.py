"""The log of jobs: what a pod says of them, when, and what it never says."""

from __future__ import annotations

import asyncio
import logging

import pytest
from msgspec.structs import replace

from treadle.core.backoff import Retry
from treadle.core.job import Change, Job, State
from treadle.core.outcome_log import LOGGER
from treadle.core.pod import PodCard
from treadle.ports import Lane, Want
from treadle.runtime.outcome_log import OutcomeLog

from .conftest import ONCE, World

pytestmark = pytest.mark.anyio


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == LOGGER]


async def until_told(caplog: pytest.LogCaptureFixture, words: str) -> logging.LogRecord:
    """A job is told of after it is written: so its state may be seen a moment before its line."""
    async with asyncio.timeout(10):
        while True:
            for record in lines(caplog):
                if words in record.getMessage():
                    return record
            await asyncio.sleep(0.002)


async def test_a_job_that_fails_is_told_with_each_attempt_and_in_the_end_with_its_trace(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose jobs all failed said nothing of it, at any level."""
    async with world.pod():
        job = await world.enqueue(world.act, "raise")
        await world.wait_for(job, State.FAILED)
        await until_told(caplog, "failed for good")
    first, second, last = lines(caplog)
    assert first.getMessage() == f"act {job} failed, attempt 1 of 3: ValueError: no luck; runs again now"
    assert "attempt 2 of 3" in second.getMessage()
    assert [each.levelno for each in (first, second, last)] == [logging.WARNING, logging.WARNING, logging.ERROR]
    assert last.getMessage() == f"act {job} failed for good, attempt 3 of 3: ValueError: no luck"
    assert vars(last)["job_id"] == job
    shown = logging.Formatter("%(message)s").format(last)  # as a host's own handler shows it
    assert 'raise ValueError("no luck")' in shown
    assert all(line.startswith("    ") for line in shown.splitlines()[1:])


async def test_a_finish_that_came_too_late_is_no_failure(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The claim was taken over meanwhile: the storage refuses the Change, and what the run raised concerns nobody."""

    @world.registry.task(name="late", retry=ONCE)
    async def late() -> None:
        world.started.set()
        await world.release.wait()
        raise ValueError("too late")

    async with world.pod() as pod:
        id = await world.enqueue(late)
        await world.started.wait()
        row = world.storage._rows[id]
        row.job = replace(row.job, token="of another claim")
        world.release.set()
        async with asyncio.timeout(10):
            while not pod.turner.counts["stale"] + pod.turner.counts["lost"]:
                await asyncio.sleep(0.002)
    assert lines(caplog) == []


async def test_successes_cost_no_call_unless_they_are_told(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    called: list[str] = []

    def ended(self: OutcomeLog, change: Change, job: Job) -> None:
        called.append(change.why)

    monkeypatch.setattr(OutcomeLog, "ended", ended)
    monkeypatch.setattr(OutcomeLog, "started", lambda self, job: called.append("started"))
    async with world.pod():
        for _ in range(5):
            await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        await world.wait_for(await world.enqueue(world.act, "fail"), State.FAILED)
        async with asyncio.timeout(10):
            while not called:
                await asyncio.sleep(0.002)
    assert called == ["failed"]


@pytest.mark.parametrize(("log_jobs", "level"), [(True, logging.INFO), (False, logging.DEBUG)])
async def test_starts_and_successes_are_told_if_they_are_asked_for(
    world: World, caplog: pytest.LogCaptureFixture, log_jobs: bool, level: int
) -> None:
    caplog.set_level(level, LOGGER)
    async with world.pod(log_jobs=log_jobs):
        job = await world.enqueue(world.act, "return")
        await until_told(caplog, "succeeded")
    assert [(each.levelno, each.getMessage()) for each in lines(caplog)] == [
        (level, f"act {job} started, attempt 1, queue default"),
        (level, f"act {job} succeeded, attempt 1 of 3"),
    ]


async def test_throttles_cancels_and_snoozes_are_told(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)
    async with world.pod(queues={"default": 5, "other": 5}):
        await world.enqueue(world.act, "snooze")
        await world.enqueue(world.act, "cancel")
        await world.enqueue(world.act, "throttle", queue="other")
        assert (await until_told(caplog, "snoozed; runs again in 1h")).levelno == logging.DEBUG
        assert (await until_told(caplog, "was cancelled, attempt 1 of 3: ")).levelno == logging.INFO
        assert (await until_told(caplog, "queue other rests for 30s or longer, until ")).levelno == logging.INFO


async def test_a_rescue_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    card = PodCard(id="dead", label="web-1", host="h", pid=1, version="", queues={"default": 1}, tasks=(), lease=0.01)
    job = await world.enqueue(world.act, "return")
    wanted = (Want("default", 1, (Lane(frozenset({"act"}), 1),)),)
    await world.storage.register(card)
    while not (await world.storage.claim(card.id, "t", wanted)).jobs:  # its lease was over before the claim
        card = replace(card, id=f"{card.id}-again")
        await world.storage.register(card)
    async with world.pod():
        await world.wait_for(job, State.SUCCEEDED)
    (record,) = lines(caplog)
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"act {job} failed, attempt 1 of 3: worker_lost: pod web-1 is gone; it was running attempt 1; runs again now"
    )


async def test_a_flood_is_cut_to_ten_lines_and_a_number(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async with world.pod() as pod:
        for _ in range(25):
            await world.enqueue(world.plain, "stop-iteration")
        other = await world.enqueue(world.act, "fail")
        async with asyncio.timeout(10):
            while pod.turner.counts["failed"] < 26:
                await asyncio.sleep(0.002)
    told = [record.getMessage() for record in lines(caplog)]
    assert len([each for each in told if each.startswith("plain ")]) == 10
    assert [each for each in told if each.startswith("15 more like this within a minute, the last one: plain ")]
    assert [each for each in told if each.startswith(f"act {other} failed for good")]  # another task: counted apart
    assert len(told) == 12


async def test_after_a_minute_the_number_is_told_and_the_count_begins_anew(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("treadle.runtime.line_throttle.time.monotonic", lambda: now)
    log = OutcomeLog(each=False, most=lambda job: 3, now=lambda: 0.0)
    change = Change(id="j", why="failed", expect=frozenset({State.RUNNING}), to=State.FAILED)
    job = Job(id="j", task="t", queue="q", state=State.RUNNING, attempt=1)
    for _ in range(12):
        log.ended(change, job)
    now += 61
    log.ended(change, job)
    assert [record.getMessage().partition(" ")[0] for record in lines(caplog)] == [*"tttttttttt", "2", "t"]
    for _ in range(11):
        log.ended(change, job)
    now += 61
    log._throttle._on_timer()  # nothing else happens: the number is told by the timer
    assert lines(caplog)[-1].getMessage().startswith("2 more like this")
    log.close()


async def test_a_pod_configures_nothing_of_logging(world: World) -> None:
    """What is shown, where, and from which level on is for the program that embeds it to say."""

    def configured() -> dict[str, tuple[int, list[logging.Handler], bool]]:
        loggers = {name: logging.getLogger(name) for name in ("root", "treadle", LOGGER, "treadle.pod")}
        return {name: (each.level, list(each.handlers), each.disabled) for name, each in loggers.items()}

    before = configured()
    async with world.pod(log_jobs=True):
        await world.wait_for(await world.enqueue(world.act, "raise"), State.FAILED)
        assert configured() == before
    assert configured() == before


async def test_errors_are_masked_as_they_are_stored_and_arguments_are_never_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)

    @world.registry.task(name="leaks", retry=Retry.fixed(0, max_attempts=2, jitter=0))
    async def leaks(card: str) -> None:
        raise ValueError("cannot connect: password=hunter2")

    async with world.pod(log_jobs=True):
        job = await world.enqueue(leaks, "4111-1111")
        await world.wait_for(job, State.FAILED)
        await until_told(caplog, "failed for good")
    told = "\n".join(f"{logging.Formatter().format(each)} {vars(each)}" for each in lines(caplog))
    assert "password=***" in told
    assert "hunter2" not in told
    assert "4111" not in told


async def test_a_newline_of_a_job_begins_no_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    @world.registry.task(name="forger", retry=ONCE)
    async def forger() -> None:
        raise ValueError("x\n2026-01-01T00:00:00Z info treadle.pod: all is well")

    async with world.pod():
        await world.enqueue(forger)
        record = await until_told(caplog, "failed for good")
    shown = logging.Formatter("%(message)s").format(record).splitlines()
    assert "x\\n2026-01-01T00:00:00Z info" in shown[0]
    assert not [line for line in shown if line.startswith("2026")]


async def test_a_handler_that_raises_keeps_no_job_from_being_settled(world: World) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no room for logs")

    broken = Broken()
    logging.getLogger(LOGGER).addHandler(broken)
    try:
        async with world.pod() as pod:
            for _ in range(5):
                await world.wait_for(await world.enqueue(world.act, "raise"), State.FAILED)
            async with asyncio.timeout(10):
                while pod.roster.in_hand:
                    await asyncio.sleep(0.002)
            assert pod.turner.counts["errors"] == 0
    finally:
        logging.getLogger(LOGGER).removeHandler(broken)
