"""What a pod counts, what it writes of it and when, and what is lost with it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from treadle import App
from treadle.core import event as events
from treadle.core import lifecycle, rollup
from treadle.core.backoff import Retry
from treadle.core.job import Change, Job, State
from treadle.core.outcome import Interrupted, Outcome, Snoozed, Succeeded
from treadle.core.rollup import FINE, HOUR, MINUTE, OTHER, Rollup
from treadle.executors.async_ import AsyncExecutor
from treadle.runtime.meter import Meter
from treadle.runtime.run import Run
from treadle.runtime.services.recorder import Recorder
from treadle.runtime.services.roller import Roller
from treadle.runtime.services.sounder import Sounder
from treadle.runtime.timed import Timed
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock

from .conftest import World

pytestmark = pytest.mark.anyio

NOON = 1_700_049_600.0


def a_job(at: float = NOON, **fields: Any) -> Job:
    own = {"id": "j", "task": "send", "queue": "mail", "state": State.RUNNING, "token": "k", "pod": "p", "attempt": 1}
    return Job(**(own | {"started_at": at, "run_at": at - 2.0, "created_at": at - 10.0} | fields))


def a_change(job: Job, outcome: Outcome | None = None) -> Change:
    return lifecycle.finish(job, outcome or Succeeded(), Retry(), 0.5)


def a_run(job: Job, seconds: float) -> Run:
    run = Run(job, cast("Any", SimpleNamespace(timeout=None)), AsyncExecutor(), 1, 0.0)
    run.seconds = seconds
    return run


def finish(
    meter: Meter, at: float = NOON, *, seconds: float = 1.0, outcome: Outcome | None = None, **fields: Any
) -> None:
    job = a_job(at, **fields)
    meter.finished([a_change(job, outcome)], [a_run(job, seconds)])


def a_meter() -> Meter:
    meter = Meter()
    meter.pod = "p"
    meter.fine_until = 0.0  # history is old, unless a test says otherwise
    return meter


def a_recorder(storage: Any, meter: Meter) -> Recorder:
    timed = Timed(storage)
    return Recorder(
        timed.storage, meter, timed, label=lambda: "web-1", slots=lambda: (10, 4), lag=lambda: 0.25
    )  # fmt: skip


async def test_a_minute_counts_outcomes_and_times() -> None:
    meter = a_meter()
    finish(meter, seconds=1.0)
    finish(meter, seconds=3.0)
    finish(meter, outcome=Snoozed(5.0))
    (row,) = meter.take_rows()
    assert row.key == (MINUTE, NOON, "mail", "send", "p")
    assert row.outcomes == {"succeeded": 2, "snoozed": 1}
    assert (row.wait.count, row.wait.max) == (3, 2.0)
    assert (row.run.count, row.run.max) == (3, 3.0)
    assert (row.total.count, row.total.max) == (2, 13.0)  # what is snoozed has not ended


async def test_nothing_is_taken_when_nothing_has_happened_since() -> None:
    meter = a_meter()
    assert meter.take_rows() == []
    finish(meter)
    assert len(meter.take_rows()) == 1
    assert meter.take_rows() == []


async def test_the_row_of_a_running_minute_is_written_again_with_higher_numbers() -> None:
    meter, storage = a_meter(), MemoryStorage()
    recorder = a_recorder(storage, meter)
    for runs in (1, 2, 3):
        finish(meter)
        await recorder.flush()
        (row,) = await storage.rollups(MINUTE, 0.0)
        assert row.outcomes == {"succeeded": runs}


async def test_a_minute_that_is_over_is_written_once_more_and_stays() -> None:
    meter, storage = a_meter(), MemoryStorage()
    recorder = a_recorder(storage, meter)
    finish(meter, NOON)
    await recorder.flush()
    finish(meter, NOON + 58)  # ends in this minute
    finish(meter, NOON + 59.5)  # and this one in the next
    await recorder.flush()
    finish(meter, NOON + 30)  # too late: the minute is over
    await recorder.flush()
    assert [(row.at - NOON, row.outcomes["succeeded"]) for row in await storage.rollups(MINUTE, 0.0)] == [
        (0.0, 2),
        (60.0, 2),
    ]
    (whole,) = meter.totals()
    assert (whole.outcomes, whole.run.count) == ({"succeeded": 4}, 4)


async def test_what_could_not_be_written_is_written_by_the_next_pass() -> None:
    meter = a_meter()

    class Away(MemoryStorage):
        away = True

        async def roll_up(self, rows: Any) -> None:
            if self.away:
                raise OSError("away")
            await super().roll_up(rows)

    storage = Away()
    recorder = a_recorder(storage, meter)
    finish(meter, NOON)
    finish(meter, NOON + 120)
    with pytest.raises(OSError):
        await recorder.flush()
    finish(meter, NOON + 121)
    storage.away = False
    await recorder.flush()
    assert [row.outcomes["succeeded"] for row in await storage.rollups(MINUTE, 0.0)] == [1, 2]


async def test_a_rescue_is_counted_when_it_happens_and_not_when_its_run_began() -> None:
    meter = a_meter()
    job = a_job(NOON)
    meter.rescued(lifecycle.rescue(job, "other"), job, NOON + 3600)
    poison = a_job(NOON, crashes=2)
    meter.rescued(lifecycle.rescue(poison, "other"), poison, NOON + 3601)
    assert [(row.at, row.outcomes) for row in meter.take_rows()] == [(NOON + 3600, {"rescued": 1, "failed": 1})]
    assert meter.counts["poison",] == 1


async def test_very_many_tasks_are_counted_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.runtime.meter.MOST_PAIRS", 3)
    meter = a_meter()
    for n in range(6):
        finish(meter, task=f"t{n}")
    finish(meter, task="t0")
    assert {row.task: row.outcomes["succeeded"] for row in meter.take_rows()} == {"t0": 2, "t1": 1, "t2": 1, OTHER: 3}


async def test_lines_of_timelines_are_buffered_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_BUFFERED", 3)
    meter = a_meter()
    for _ in range(5):
        finish(meter, outcome=Interrupted())
    finish(meter)  # a success writes none
    assert meter.dropped == 2
    lines = meter.take_events()
    assert [line.what for line in lines] == ["released"] * 3
    assert len({line.id for line in lines}) == 3
    finish(meter, outcome=Interrupted())
    meter.events_not_written(lines)
    assert meter.dropped == 3
    assert meter.take_events() == lines


async def test_a_reading_says_how_the_pod_fares() -> None:
    clock = FakeClock(NOON + 7)
    storage, meter = MemoryStorage(clock), a_meter()
    recorder = a_recorder(storage, meter)
    await recorder.run_once()
    (reading,) = await storage.readings(MINUTE, 0.0)
    assert reading.key == (MINUTE, NOON, "p")
    assert (reading.label, reading.slots, reading.used, reading.lag) == ("web-1", 10, 4, 0.25)
    assert reading.rss > 1_000_000
    assert reading.threads >= 1
    assert reading.disk_free
    assert recorder.reading == reading
    clock.advance(60)
    await recorder.run_once()
    assert len(await storage.readings(MINUTE, 0.0)) == 1  # once a minute, by this process' own clock


# The Roller ----------------------------------------------------------------------------------------------------------


async def test_minutes_become_hours_and_days_and_the_old_go() -> None:
    clock = FakeClock(NOON + 90 * MINUTE)
    storage, meter = MemoryStorage(clock), a_meter()
    for minute in range(90):
        finish(meter, NOON + 60 * minute)
    recorder, roller = a_recorder(storage, meter), Roller(storage)
    await recorder.flush()
    for _ in range(2):  # twice comes to the same
        await roller.run_once()
        assert [row.outcomes["succeeded"] for row in await storage.rollups(HOUR, 0.0)] == [60, 30]
        assert [row.outcomes["succeeded"] for row in await storage.rollups(rollup.DAY, 0.0)] == [90]
    clock.advance(rollup.KEEP["minutes"])
    await roller.run_once()
    assert await storage.rollups(MINUTE, 0.0) == []
    assert [row.outcomes["succeeded"] for row in await storage.rollups(HOUR, 0.0)] == [60, 30]
    clock.advance(rollup.KEEP["hours"])
    await roller.run_once()
    assert await storage.rollups(HOUR, 0.0) == []
    assert [row.outcomes["succeeded"] for row in await storage.rollups(rollup.DAY, 0.0)] == [90]


async def test_a_late_row_is_folded_and_a_new_leader_goes_on_where_the_last_one_was() -> None:
    clock = FakeClock(NOON + HOUR + 5)
    storage, meter = MemoryStorage(clock), a_meter()
    recorder, roller = a_recorder(storage, meter), Roller(storage)
    await roller.run_once()
    finish(meter, NOON + HOUR - 30)
    await recorder.flush()
    clock.advance(60)
    await roller.run_once()
    assert [row.outcomes for row in await storage.rollups(HOUR, 0.0)] == [{"succeeded": 1}]
    for minute in range(0, 300, 10):
        finish(meter, NOON + HOUR + 60 * minute)
    await recorder.flush()
    clock.advance(5 * HOUR)
    await Roller(storage).run_once()
    assert sum(row.outcomes["succeeded"] for row in await storage.rollups(HOUR, 0.0)) == 31


async def test_an_hour_whose_minutes_are_half_gone_is_not_folded_anew() -> None:
    clock = FakeClock(NOON + HOUR)
    storage, meter = MemoryStorage(clock), a_meter()
    recorder = a_recorder(storage, meter)
    for minute in range(60):
        finish(meter, NOON + 60 * minute)
    await recorder.flush()
    await Roller(storage).run_once()
    clock.advance(rollup.KEEP["minutes"] - HOUR / 2)
    await Roller(storage).run_once()
    await Roller(storage).run_once()
    assert len(await storage.rollups(MINUTE, 0.0)) == 30
    assert [row.outcomes["succeeded"] for row in await storage.rollups(HOUR, 0.0)] == [60]


async def test_who_leads_again_after_days_does_not_fold_what_is_half_gone() -> None:
    """It remembers how far it was; others have led since, and of the oldest hour half the minutes are gone."""
    clock = FakeClock(NOON)
    storage, meter = MemoryStorage(clock), a_meter()
    recorder, first = a_recorder(storage, meter), Roller(storage)
    await first.run_once()
    for minute in range(60):
        finish(meter, NOON + 60 * minute)
    await recorder.flush()
    clock.advance(HOUR)
    await Roller(storage).run_once()
    clock.advance(rollup.KEEP["minutes"] - HOUR / 2)
    await Roller(storage).run_once()
    await first.run_once()
    assert [row.outcomes["succeeded"] for row in await storage.rollups(HOUR, 0.0)] == [60]


async def test_a_roller_that_stood_still_after_its_read_writes_nothing() -> None:
    clock = FakeClock(NOON + 30 * MINUTE)
    storage, meter = MemoryStorage(clock), a_meter()
    finish(meter, NOON)
    await a_recorder(storage, meter).flush()
    leads = [True]

    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(storage, name)

        async def rollups(self, *args: Any, **kwargs: Any) -> Any:
            found = await storage.rollups(*args, **kwargs)
            leads[0] = False  # its lease has ended meanwhile
            return found

    roller = Roller(Slow(), lambda: leads[0])  # type: ignore[arg-type]
    await roller.run_once()
    assert await storage.rollups(HOUR, 0.0) == []
    leads[0] = True
    await Roller(storage, lambda: leads[0]).run_once()
    assert len(await storage.rollups(HOUR, 0.0)) == 1


# In a pod ------------------------------------------------------------------------------------------------------------


async def test_a_thousand_jobs_write_a_handful_of_rows(world: World) -> None:
    """No row updated once per job: history is as cheap for a thousand jobs as for one."""
    written = 0

    class Watched(MemoryStorage):
        async def roll_up(self, rows: Any) -> None:
            nonlocal written
            written += len(rows)
            await super().roll_up(rows)

        async def record(self, events: Any) -> None:
            raise AssertionError("a job that goes well writes no line")

    world.storage = Watched()
    world.client._keeper.current = world.storage  # type: ignore[attr-defined]
    async with world.pod(slots=100) as pod:
        handles = await world.client.enqueue_many([world.quick.bind("return") for _ in range(1000)])
        async with asyncio.timeout(20):
            await pod.turner.idle.wait()
    assert len(handles) == 1000
    assert written <= 10
    rows = await world.storage.rollups(MINUTE, 0.0)
    assert sum(row.outcomes["succeeded"] for row in rows) == 1000
    assert sum(row.total.count for row in rows) == 1000


async def test_what_a_pod_counted_is_written_before_it_leaves(world: World) -> None:
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "snooze")
        await world.wait_for(id, State.SCHEDULED, check=lambda job: job.snoozes == 1)
        own = pod.id
    (row,) = await world.storage.rollups(MINUTE, 0.0)
    assert (row.outcomes, row.pod, row.task) == ({"snoozed": 1}, own, "act")
    (line,) = await world.storage.timeline(id)
    assert (line.what, line.pod, line.attempt, line.detail) == ("snoozed", own, 1, "for 1h")


async def test_a_storage_that_is_timed_is_the_storage() -> None:
    storage = MemoryStorage()
    timed = Timed(storage)
    assert timed.storage.capabilities is storage.capabilities
    await timed.storage.get(["x"])
    await timed.storage.apply([])
    assert (timed.seconds["get"].count, timed.seconds["apply"].count) == (1, 1)
    marks = timed.marks()
    assert timed.mean(marks, writes=True) is None
    await timed.storage.get(["x"])
    assert timed.mean(marks, writes=False) is not None
    with pytest.raises(ValueError):
        await timed.storage.backup("x")
    assert timed.errors == {"backup": 1}
    assert timed.age < 5


# The first ten minutes -----------------------------------------------------------------------------------------------


def a_young_meter() -> Meter:
    meter = Meter()
    meter.pod = "p"
    return meter


def counts(rows: Any) -> list[tuple[float, int]]:
    return [(row.at - NOON, sum(row.outcomes.values())) for row in rows]


async def test_the_first_minutes_are_written_by_steps_too_and_the_steps_make_up_the_minute() -> None:
    meter, storage = a_young_meter(), MemoryStorage(FakeClock(NOON))
    recorder = a_recorder(storage, meter)
    for at in (0, 1, 8, 21, 58, 59.5, 70):  # each ends a second later
        finish(meter, NOON + at, seconds=1.0 + at / 100)
        await recorder.flush()
    assert counts(await storage.rollups(FINE, 0.0)) == [(0, 2), (5, 1), (20, 1), (55, 1), (60, 1), (70, 1)]
    minutes = await storage.rollups(MINUTE, 0.0)
    assert counts(minutes) == [(0, 5), (60, 2)]
    for minute in minutes:
        steps = [row for row in await storage.rollups(FINE, 0.0) if rollup.floor(row.at, MINUTE) == minute.at]
        (whole,) = rollup.fold(steps, MINUTE)
        assert (whole.outcomes, whole.run, whole.wait, whole.total) == (
            minute.outcomes,
            minute.run,
            minute.wait,
            minute.total,
        )
    (total,) = meter.totals()
    assert (total.outcomes, total.run.count) == ({"succeeded": 7}, 7)


async def test_a_step_that_comes_late_is_counted_in_the_running_one() -> None:
    meter = a_young_meter()
    finish(meter, NOON + 10)
    finish(meter, NOON + 3)
    finish(meter, NOON + 12)
    rows = meter.take_rows()
    assert counts(row for row in rows if row.resolution == FINE) == [(10, 3)]
    assert counts(row for row in rows if row.resolution == MINUTE) == [(0, 3)]


async def test_a_turn_over_the_end_of_a_step_counts_each_run_where_it_ended() -> None:
    meter = a_young_meter()
    jobs = [a_job(NOON + at) for at in (3.0, 4.5, 9.5)]
    meter.finished([a_change(job) for job in jobs], [a_run(job, 1.0) for job in jobs])
    assert counts(row for row in meter.take_rows() if row.resolution == FINE) == [(0, 1), (5, 1), (10, 1)]


async def test_rescues_of_the_first_minutes_are_counted_by_steps() -> None:
    meter = a_young_meter()
    job = a_job(NOON)
    meter.rescued(lifecycle.rescue(job, "other"), job, NOON + 12)
    rows = meter.take_rows()
    assert [(row.resolution, row.at - NOON, row.outcomes) for row in rows] == [
        (FINE, 10.0, {"rescued": 1}),
        (MINUTE, 0.0, {"rescued": 1}),
    ]


async def test_steps_end_with_the_minute_in_which_history_is_ten_minutes_old() -> None:
    clock = FakeClock(NOON + 30)
    meter, storage = a_young_meter(), MemoryStorage(clock)
    recorder = a_recorder(storage, meter)
    for _ in range(70):  # one every ten seconds
        finish(meter, clock.now(), seconds=0.5)
        await recorder.flush()
        clock.advance(10)
    minutes = await storage.rollups(MINUTE, 0.0)
    assert sum(row.outcomes["succeeded"] for row in minutes) == 70
    steps = await storage.rollups(FINE, 0.0)
    assert {rollup.floor(row.at, MINUTE) - NOON for row in steps} == {60.0 * n for n in range(10)}
    assert sum(row.outcomes["succeeded"] for row in steps) == 57
    (total,) = meter.totals()
    assert total.outcomes == {"succeeded": 70}


@pytest.mark.parametrize(
    ("resolution", "age"), [(MINUTE, 11 * 60.0), (MINUTE, 2 * 86_400.0), (HOUR, 20 * 86_400.0), (86_400, 90 * 86_400.0)]
)
async def test_a_pod_that_joins_a_storage_with_history_writes_no_steps(resolution: int, age: float) -> None:
    clock = FakeClock(NOON + 31)
    meter, storage = a_young_meter(), MemoryStorage(clock)
    old = Rollup(resolution=resolution, at=rollup.floor(NOON - age, resolution), queue="q", task="t", pod="other")
    await storage.roll_up([old])
    recorder = a_recorder(storage, meter)
    for at in (31, 36, 47, 58, 63):
        finish(meter, NOON + at)
        await recorder.flush()
    assert await storage.rollups(FINE, 0.0) == []
    assert counts(row for row in await storage.rollups(MINUTE, NOON)) == [(0, 4), (60, 1)]
    (total,) = meter.totals()
    assert total.outcomes == {"succeeded": 5}


async def test_a_pod_that_joins_young_history_stops_with_the_others() -> None:
    clock = FakeClock(NOON + 301)
    storage, joined = MemoryStorage(clock), a_young_meter()
    await storage.roll_up([Rollup(resolution=MINUTE, at=NOON, queue="q", task="t", pod="other")])
    finish(joined, clock.now())
    await a_recorder(storage, joined).flush()
    assert joined.fine_until == NOON + 600
    assert len(await storage.rollups(FINE, 0.0)) == 1


async def test_a_pod_that_waited_for_its_first_job_for_long_counts_its_first_minutes_so() -> None:
    clock = FakeClock(NOON)
    meter, storage = a_young_meter(), MemoryStorage(clock)
    recorder = a_recorder(storage, meter)
    await recorder.flush()
    clock.advance(3600)
    finish(meter, clock.now())
    await recorder.flush()
    assert counts(await storage.rollups(FINE, 0.0)) == [(3600, 1)]


async def test_the_age_of_history_is_asked_for_again_if_the_storage_was_away() -> None:
    meter, away = a_young_meter(), True

    class Away(MemoryStorage):
        async def rollups(self, *args: Any, **kwargs: Any) -> Any:
            if away:
                raise OSError("away")
            return await super().rollups(*args, **kwargs)

    storage = Away(FakeClock(NOON))
    recorder = a_recorder(storage, meter)
    finish(meter)
    with pytest.raises(OSError, match="away"):
        await recorder.flush()
    away = False
    await recorder.flush()
    assert counts(await storage.rollups(FINE, 0.0)) == [(0, 1)]


async def test_a_chart_changes_over_to_minutes_when_history_is_ten_minutes_old_and_tells_the_same_number() -> None:
    clock = FakeClock(NOON + 20)
    storage, meter = MemoryStorage(clock), a_young_meter()
    app, recorder, sounder = App(storage=storage), a_recorder(storage, meter), Sounder(storage)
    steps: list[tuple[float, float]] = []
    async with app:
        for n in range(1, 160):  # thirteen minutes
            finish(meter, clock.now() - 1.0, seconds=0.5)
            await recorder.flush()
            await sounder.run_once()
            chart = await app.history.series(fine=True, since="1h")
            coarse = await app.history.series(since="1h")
            assert chart.whole.outcomes == coarse.whole.outcomes == {"succeeded": n}
            assert sum(point.finished for point in chart.points) == n
            steps.append((clock.now() - NOON, chart.step))
            clock.advance(5)
        depth = await app.history.depth(since=datetime.fromtimestamp(NOON + 20, UTC), step="5s")
    assert {step for at, step in steps if at < 600} == {FINE}
    assert {step for at, step in steps if at >= 600} == {MINUTE}
    assert [point.ready for point in depth.points[:116]] == [0] * 116
    assert depth.points[117].ready is None  # nobody noted it by seconds any more
