"""`app.history`: charts, timelines and readings, as a user asks for them."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from treadle import App, Context, JobNotFound, RetryAfter, Snooze
from treadle.core.rollup import DAY, HOUR, Rollup
from treadle.runtime.services.roller import Roller
from treadle.runtime.services.sounder import Sounder

from . import postgres_server

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    if request.param == "postgres":
        monkeypatch.setenv("TREADLE_SCHEMA", postgres_server.a_schema())
        app = App(postgres_server.shared_url())
    else:
        app = App(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="plain")
    async def plain() -> None: ...

    @app.task(name="moody", queue="moods")
    async def moody(ctx: Context) -> None:
        if (await app.jobs.get(ctx.job_id)).snoozes == 0:
            raise Snooze("1ms")
        if ctx.attempt == 1:
            raise RetryAfter("1ms")

    return app


async def run(app: App, *names: str) -> list[str]:
    async with app.worker({"default": 10, "moods": 5}):
        handles = [await app.enqueue(name) for name in names]
        for handle in handles:
            await handle.result(timeout=20)
    return [handle.id for handle in handles]


async def test_a_chart_of_what_ran(app: App) -> None:
    async with app:
        await run(app, "plain", "plain", "moody")
        chart = await app.history.series()
        assert chart.whole.outcomes == {"retried": 1, "snoozed": 1, "succeeded": 3}
        assert sum(point.finished for point in chart.points) == 5
        assert chart.step == 600
        own = await app.history.series(queue="moods", task="moody", since="1h", step="1m")
        assert (own.whole.finished, own.step, len(own.points)) == (3, 60, pytest.approx(61, abs=1))
        assert own.whole.total.count == 1
        assert (await app.history.series(queue="other")).whole.finished == 0
        pairs = await app.history.tasks(since=datetime.now(UTC) - timedelta(hours=2))
        assert [(each.queue, each.task, each.series.whole.finished) for each in pairs] == [
            ("default", "plain", 2),
            ("moods", "moody", 3),
        ]


async def test_what_cannot_be_drawn_is_refused(app: App) -> None:
    async with app:
        with pytest.raises(ValueError, match="whole minutes"):
            await app.history.series(step="90s")
        with pytest.raises(ValueError, match="at most 2,000"):
            await app.history.series(since="30d", step="1m")
        with pytest.raises(ValueError, match="longer than nothing"):
            await app.history.series(since="0s")
        with pytest.raises(ValueError, match="queue"):
            await app.history.series(queue="no such name!")
        with pytest.raises(ValueError, match="task"):
            await app.history.tasks(task="no such name!")


async def test_the_first_ten_minutes_are_drawn_by_seconds(app: App) -> None:
    async with app:
        empty = await app.history.series(fine=True, since="1h")
        assert empty.step == 60  # nothing has run yet
        await run(app, "plain", "plain", "moody")
        chart = await app.history.series(fine=True, since="24h")
        assert (chart.step, len(chart.points) >= 13) == (5, True)
        coarse = await app.history.series(since="24h")
        assert chart.whole.outcomes == coarse.whole.outcomes == {"retried": 1, "snoozed": 1, "succeeded": 3}
        assert (chart.whole.run, chart.whole.total) == (coarse.whole.run, coarse.whole.total)
        assert sum(point.finished for point in chart.points) == 5
        own = await app.history.series(fine=True, queue="moods")
        assert (own.step, own.whole.finished) == (5, 3)
        assert (await app.history.series(fine=True, queue="other")).whole.finished == 0
        # A pod of another version counts by minutes alone: then all of it is drawn so, and none of its runs is missing.
        now = await app.storage.time()
        at = now - now % 60
        await app.storage.roll_up(
            [Rollup(resolution=60, at=at, queue="mail", task="send", pod="old", outcomes={"succeeded": 4})]
        )
        assert (await app.history.series(fine=True, since="1h")).step == 60
        assert (await app.history.series(fine=True, since="1h")).whole.outcomes["succeeded"] == 7


async def test_after_ten_minutes_of_history_charts_are_of_minutes(app: App) -> None:
    async with app:
        now = await app.storage.time()
        minute = now - now % 60
        rows = [
            Rollup(resolution=size, at=minute, queue="mail", task="send", pod="p", outcomes={"succeeded": 4})
            for size in (5, 60)
        ]
        await app.storage.roll_up(rows)
        assert (await app.history.series(fine=True, since="1h")).step == 5
        old = Rollup(resolution=60, at=minute - 660, queue="mail", task="send", pod="p", outcomes={"succeeded": 1})
        await app.storage.roll_up([old])
        chart = await app.history.series(fine=True, since="1h")
        assert (chart.step, chart.whole.outcomes) == (60, {"succeeded": 5})


@pytest.mark.parametrize(("resolution", "age"), [(HOUR, 10 * DAY), (DAY, 100 * DAY)])
async def test_history_that_only_folds_tell_of_is_history(app: App, resolution: int, age: float) -> None:
    async with app:
        now = await app.storage.time()
        names = {"queue": "mail", "task": "send", "outcomes": {"succeeded": 4}}
        for size in (5, 60):
            await app.storage.roll_up([Rollup(resolution=size, at=now - now % size, pod="p", **names)])  # type: ignore[arg-type]
        then = now - age
        await app.storage.roll_up([Rollup(resolution=resolution, at=then - then % resolution, **names)])  # type: ignore[arg-type]
        assert (await app.history.series(fine=True, since="1h")).step == 60


async def test_depth_can_be_asked_for_by_seconds_for_an_hour(app: App) -> None:
    async with app:
        await app.enqueue("plain")
        await Sounder(app.storage).run_once()
        chart = await app.history.depth(since="1m", step="5s")
        assert (chart.step, len(chart.points)) == (5, pytest.approx(13, abs=1))
        assert [point.ready for point in chart.points if point.ready is not None] == [1]
        with pytest.raises(ValueError, match="whole minutes"):
            await app.history.depth(since="2h", step="5s")
        with pytest.raises(ValueError, match="whole minutes"):
            await app.history.series(since="1m", step="5s")


async def test_a_timeline_of_a_job_with_a_past(app: App) -> None:
    async with app:
        (id,) = await run(app, "moody")
        lines = await app.history.timeline(id)
        assert [(line.what, line.attempt) for line in lines] == [
            ("enqueued", 0),
            ("claimed", 1),
            ("snoozed", 1),
            ("claimed", 1),
            ("retried", 1),
            ("claimed", 2),
            ("succeeded", 2),
        ]
        assert all(line.at is not None for line in lines)
        with pytest.raises(JobNotFound):
            await app.history.timeline("019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")


async def test_what_people_do_to_a_job_is_in_its_timeline(app: App) -> None:
    async with app:
        handle = await app.enqueue("plain", delay="1h")
        await app.jobs.reschedule(handle.id, delay="2h")
        await app.jobs.cancel(handle.id)
        await app.jobs.revive(handle.id, delay="1h")
        lines = await app.history.timeline(handle.id)
        assert [line.what for line in lines] == ["enqueued", "rescheduled", "cancelled", "revived"]
        assert [line.detail for line in lines if line.what in ("rescheduled", "revived")] == ["for 2h", "for 1h"]
        # By the `run_at` that the revival gave it: as much later as the lines above took.
        assert re.fullmatch(r"due 1h(\d+m)?(\d+s)? later", lines[0].detail)


async def test_a_cancel_of_what_runs_is_in_its_timeline(app: App) -> None:
    begun = asyncio.Event()

    @app.task(name="long")
    async def long() -> None:
        begun.set()
        await asyncio.sleep(60)

    async with app.worker(["default"]):
        handle = await app.enqueue("long")
        await begun.wait()
        await app.jobs.cancel(handle.id)
        with pytest.raises(Exception, match="cancel"):
            await handle.result(timeout=20)
        told = [line.what for line in await app.history.timeline(handle.id)]
    assert told == ["enqueued", "claimed", "cancel_asked", "cancelled"]


async def test_what_a_pod_measures_of_itself(app: App) -> None:
    async with app.worker(["default"], label="web-1") as pod:
        await pod.recorder.run_once()
        (reading,) = await app.history.pods()
        assert (reading.label, reading.pod, reading.slots) == ("web-1", pod.id, 50)
        assert reading.rss > 0
        assert reading.storage_bytes
        assert reading.storage_bytes > 0
        assert await app.history.pods(pod="nobody", since="30d") == []


async def test_how_deep_queues_are(app: App) -> None:
    async with app:
        for name in ("plain", "plain", "moody"):
            await app.enqueue(name)
        await app.enqueue("moody", delay="1h")
        await Sounder(app.storage).run_once()
        chart = await app.history.depth(since="15m")
        noted = [point for point in chart.points if point.ready is not None]
        assert [(point.ready, point.scheduled, point.running) for point in noted] == [(3, 1, 0)]
        assert {each.queue for each in chart.queues} == {"default", "moods"}
        own = await app.history.depth(queue="moods", since="15m")
        assert [point.ready for point in own.points if point.ready is not None] == [1]
        with pytest.raises(ValueError, match="queue"):
            await app.history.depth(queue="")


async def test_one_range_against_another(app: App) -> None:
    async with app:
        now = await app.storage.time()
        minute = now - now % 60
        rows = [
            Rollup(resolution=60, at=minute - ago * 60, queue="mail", task="send", outcomes={"succeeded": runs})
            for ago, runs in ((1, 30), (16, 10), (24 * 60 + 1, 15))
        ]
        await app.storage.roll_up(rows)
        for against, before in (("before", 10), ("yesterday", 15)):
            found = await app.history.compare(since="15m", against=against)  # type: ignore[arg-type]
            (pair,) = found.items
            assert (pair.now.finished, pair.runs.before, pair.runs.word) == (30, before, "more")
            assert found.until - found.since == found.before_until - found.before_since == timedelta(minutes=15)
        assert (await app.history.compare(since="15m", queue="other")).items == ()
        with pytest.raises(ValueError, match="kept for 3 days"):
            await app.history.compare(since="15m", against="week")
        with pytest.raises(ValueError, match="since"):
            await app.history.compare(since=0)


async def test_what_the_services_of_a_pod_write_and_see(app: App) -> None:
    async with app.worker(["default"]) as pod:
        handle = await app.enqueue("plain")
        await handle.result(timeout=20)
        async with asyncio.timeout(20):
            while not list(pod.meter.totals()):
                await asyncio.sleep(0.01)
        await pod.recorder.run_once()
        await pod.surveyor.run_once()
        await Roller(app.storage).run_once()
        survey = pod.surveyor.survey
        assert survey is not None
        assert survey.finished == {"default": 1}
        assert [each.queue.name for each in survey.queues] == ["default"]
        assert [each.card.id for each in survey.pods] == [pod.id]
        for resolution in (HOUR, DAY):
            (row,) = await app.storage.rollups(resolution, 0.0)
            assert (row.outcomes, row.pod) == ({"succeeded": 1}, "")
        (hourly,) = await app.storage.readings(HOUR, 0.0, pod=pod.id)
        assert (hourly.pod, hourly.slots) == (pod.id, 50)


def test_all_of_it_has_sync_twins(app: App) -> None:
    try:
        id = app.enqueue_sync("plain").id
        assert app.history.series_sync(since="1h", fine=True).whole.finished == 0
        assert app.history.tasks_sync(waiting=False) == ()
        (pair,) = app.history.tasks_sync()  # it still waits
        assert (pair.task, pair.series.whole.finished, pair.series.whole.wait.count) == ("plain", 0, 1)
        assert [line.what for line in app.history.timeline_sync(id)] == ["enqueued"]
        assert app.history.pods_sync() == []
        assert app.history.depth_sync(since="1h").queues == ()
        assert app.history.compare_sync(since="1h").items == ()
    finally:
        app.close_sync()
