"""What charts are made of: lines that the stream goes on, depths without a false zero, one range against another."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from treadle.core.depth import depth_series, sounding
from treadle.core.queue import Queue, QueueStats
from treadle.core.rollup import HOUR, MINUTE, Rollup
from treadle.core.series import series as series_of
from treadle.core.view import QueueView, queue_view
from treadle.web import stream
from treadle.web.pages import charts, depths
from treadle.web.points import Asked, Tails

from .test_exports import ran
from .test_streams import Reader
from .world import World, world_on

pytestmark = pytest.mark.anyio

NOON = 1_700_049_600.0


@pytest.fixture
async def site(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", pages=True) as made:
        yield made


def stats(name: str, ready: int, **more: int) -> QueueStats:
    return QueueStats(queue=Queue(name=name), ready=ready, **more)


def views(*found: QueueStats) -> list[QueueView]:
    return [queue_view(each, []) for each in found]


async def page(world: World, path: str, role: str = "admin") -> httpx.Response:
    return await world.http.get(path, headers={"X-Role": role})


def test_the_deepest_queues_have_a_line_and_the_others_one_together() -> None:
    now = [stats(f"q{n}", n) for n in range(8)]
    series = depth_series([sounding(now, NOON)], NOON, NOON + 60, 60.0)
    found = depths.of_all(series, views(*now))
    assert [line.name for line in found.lines] == ["q3", "q4", "q5", "q6", "q7", "other queues"]
    assert [line.now for line in found.lines] == ["3", "4", "5", "6", "7", "3"]
    plot = json.loads(found.plot)
    assert plot["y"][0] == [3, 3]
    assert plot["y"][-1] == [3, 3]
    assert plot["from"][0] == ["q3", "ready"] and plot["from"][-1] == ["", "ready"]


def test_depth_ends_with_what_is_true_now_and_has_no_false_zero() -> None:
    series = depth_series([sounding([stats("mail", 5)], NOON)], NOON, NOON + 180, 60.0)
    (line,) = json.loads(depths.of_all(series, views(stats("mail", 9))).plot)["y"]
    assert line == [5, None, None, 9]
    (line,) = json.loads(depths.of_all(series, views(stats("mail", 0))).plot)["y"]
    assert line == [5, None, None, 0]
    new = json.loads(depths.of_all(series, views(stats("mail", 0), stats("new", 4))).plot)
    assert new["y"] == [[5, None, None, 0], [0, None, None, 4]]


def test_a_chart_of_nothing_says_that_nothing_is_ready() -> None:
    series = depth_series([], NOON, NOON + 60, 60.0)
    found = depths.of_all(series, [])
    assert [(line.name, line.now) for line in found.lines] == [("all queues", "0")]


def test_of_an_hour_the_deepest_is_shown_also_of_the_one_that_runs() -> None:
    series = depth_series([sounding([stats("mail", 50)], NOON)], NOON, NOON + 60, float(HOUR))
    (line,) = json.loads(depths.of_all(series, views(stats("mail", 9))).plot)["y"]
    assert line == [50]


def test_one_queue_has_what_is_ready_running_and_scheduled() -> None:
    now = stats("mail", 5, scheduled=7, running=2)
    series = depth_series([sounding([now], NOON)], NOON, NOON, 60.0, "mail")
    found = depths.of_one(series, views(now)[0])
    assert [(line.name, line.now) for line in found.lines] == [("ready", "5"), ("running", "2"), ("scheduled", "7")]
    assert json.loads(found.plot)["from"] == [["mail", "ready"], ["mail", "running"], ["mail", "scheduled"]]
    assert found.rows[0][1:] == ("5", "2", "7")


async def test_a_table_of_levels_is_folded_to_the_most_and_one_of_counts_to_the_sum(world: World) -> None:
    rows = [sounding([stats("mail", n)], NOON + 60 * n) for n in range(60)]
    series = depth_series(rows, NOON, NOON + 59 * 60, 60.0)
    assert depths.of_all(series, []).rows[10][1] == "21"
    for ago in (3, 4):
        await ran(world, ago, 10)
    told = charts.throughput(await world.app.history.series(since="1h"))
    assert sum(int(row[1]) for row in told.rows) >= 20


async def test_a_line_says_what_of_a_point_it_is(world: World) -> None:
    """The script reads the points of the stream by it: both must come to the same number."""
    row = Rollup(resolution=MINUTE, at=NOON, queue="mail", task="send", outcomes={"failed": 2, "rescued": 1})
    row.run.add_all([1.0, 2.0])
    found = series_of([row], NOON, NOON, 60.0)
    plot = json.loads(charts.throughput(found).plot)
    assert plot["live"] == "series"
    assert plot["from"][2] == ["outcomes.failed", "outcomes.rescued"]
    assert plot["y"][2] == [3]
    assert json.loads(charts.latency(found).plot)["y"][0] == [None]  # nothing waited: not zero
    assert charts.points_of(found.step, queue="a b", task=None) == "step=60&queue=a+b"
    assert charts.points_of(found.step, fine=True) == "step=60&fine=true"


async def test_the_stream_tells_the_last_points_of_the_chart_that_was_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LOOK", 0.05)
    await ran(world, 1, 7)
    await ran(world, 1, 5, "other")
    async with (
        Reader(world.web, "/stream?topics=metrics&step=60&task=send") as one,
        Reader(world.web, "/stream?topics=metrics") as other,
    ):
        await one.until("event: metrics")
        await other.until("event: metrics")
        told = one.events()[0][1]
        assert told["series"]["step"] == 60.0
        assert 2 <= len(told["series"]["points"]) <= 3
        assert sum(point["outcomes"].get("succeeded", 0) for point in told["series"]["points"]) == 7
        assert told["depths"]["later"] == {"ready": 1, "scheduled": 1, "running": 0}
        assert "series" not in other.events()[0][1]
    assert (await world.get("/stream?topics=metrics&step=59")).status_code == 400


async def test_one_stream_tells_the_points_of_several_charts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser has one stream for all its tabs: each finds its own chart by what it asked for."""
    monkeypatch.setattr(stream, "LOOK", 0.05)
    monkeypatch.setattr(stream, "MOST_DEPTHS", 0)
    await ran(world, 1, 7)
    await ran(world, 1, 5, "a:b")
    send, other, later, wrong = (
        "step=60&task=send",
        "step=60&task=a%3Ab",
        "step=3600&queue=later",
        "step=60&task=no+name",
    )
    query = urlencode([("topics", "metrics"), *(("chart", each) for each in (send, other, later, wrong))])
    async with Reader(world.web, f"/stream?{query}") as reader:
        await reader.until("event: metrics")
        told = reader.events()[0][1]
    assert "series" not in told
    assert {name: chart["step"] for name, chart in told["charts"].items()} == {send: 60.0, other: 60.0, later: 3600.0}
    runs = {
        name: sum(point["outcomes"].get("succeeded", 0) for point in chart["points"])
        for name, chart in told["charts"].items()
    }
    assert runs[send] == 7 and runs[other] == 5
    assert told["depths"] == {"later": {"ready": 1, "scheduled": 1, "running": 0}}  # of the queue that is looked at


@pytest.mark.parametrize(
    "charts",
    [["step=59"], ["queue=mail"], ["step=60&depth=1"], ["step=60&step=60"], [""], ["a=b&" * 9], ["step=60"] * 9],
    ids=str,
)
async def test_a_chart_that_cannot_be_told_is_refused(world: World, charts: list[str]) -> None:
    query = urlencode([("topics", "metrics"), *(("chart", each) for each in charts)])
    answer = await world.get(f"/stream?{query}")
    assert answer.status_code == 400 and answer.json()["error"]["fields"]["field"] == "chart"
    assert world.web.hub.count == 0


async def test_the_first_ten_minutes_are_told_by_seconds_to_a_page_that_asks_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LOOK", 0.05)
    fine = (await world.get("/series?since=1h&fine=true")).json()
    coarse = (await world.get("/series?since=1h")).json()
    assert (fine["step"], coarse["step"]) == (5.0, 60.0)
    assert fine["whole"]["outcomes"] == coarse["whole"]["outcomes"]
    assert (await world.get("/series?since=1m&step=5s")).status_code == 400
    assert (await world.get("/series/depth?since=1m&step=5s")).json()["step"] == 5.0
    async with (
        Reader(world.web, "/stream?topics=metrics&step=60&fine=true") as one,
        Reader(world.web, "/stream?topics=metrics&step=60") as other,
    ):
        await one.until("event: metrics")
        await other.until("event: metrics")
        told = one.events()[0][1]["series"]
        assert told["step"] == 5.0 and len(told["points"]) == 4
        assert other.events()[0][1]["series"]["step"] == 60.0
    await ran(world, 11, 3)  # minutes ago: history is older than that
    async with Reader(world.web, "/stream?topics=metrics&step=60&fine=true") as one:
        await one.until('"series":{"step":60.0')
    assert (await world.get("/series?since=1h&fine=true")).json()["step"] == 60.0


async def test_points_are_read_once_for_all_and_those_of_hours_seldom(world: World) -> None:
    now, reads = 100.0, 0

    class History:
        async def series(self, **asked: Any) -> Any:
            nonlocal reads
            reads += 1
            return await world.app.history.series(**asked)

    class Asker:
        history = History()

    tails = Tails(Asker(), lambda: now)  # type: ignore[arg-type]
    await tails.read([Asked(60), Asked(60), Asked(3600)])
    assert reads == 2
    now += 2
    await tails.read([Asked(60), Asked(3600)])
    assert reads == 3
    now += 120
    await tails.read([Asked(3600)])
    assert reads == 4
    await tails.read([Asked(60)])  # was forgotten with whoever looked at it
    assert reads == 5


async def test_the_page_of_a_comparison(site: World) -> None:
    for task, now, before in (("steady", 100, 100), ("grown", 90, 10), ("fresh", 5, 0)):
        await ran(site, 2, now, task)
        if before:
            await ran(site, 17, before, task)
    answer = await page(site, "/performance?range=15m&compare=before&sort=runs")
    assert answer.status_code == 200
    text = answer.text
    assert text.index("grown") < text.index("steady") < text.index("fresh")
    assert "800 % more" in text and "new" in text
    assert 'aria-sort="descending"' in text
    assert "/api/v1/series/compare.csv?since=15m&amp;against=before" in text
    # Ranges keep what is compared with as far as it is kept there.
    assert "range=7d&amp;sort=runs&amp;compare=before" in text
    yesterday = (await page(site, "/performance?range=1h&compare=yesterday")).text
    assert "range=24h&amp;sort=time&amp;compare=before" in yesterday
    by_name = (await page(site, "/performance?range=15m&compare=before&sort=task")).text
    assert by_name.index("fresh") < by_name.index("grown") < by_name.index("steady")
    refused = await page(site, "/performance?range=1h&compare=week")
    assert refused.status_code == 400
    assert "minutes are kept for 3 days" in refused.text


async def test_pages_have_the_chart_of_depth_and_links_to_files(site: World) -> None:
    overview = (await page(site, "/", "viewer")).text
    assert 'id="chart-depth"' in overview and 'data-points="step=60&amp;fine=true"' in overview
    own = (await page(site, "/queues/later")).text
    assert 'id="chart-depth"' in own and 'data-points="step=60&amp;queue=later&amp;fine=true"' in own
    assert "/api/v1/jobs.csv?filter=state%3Afailed" in (await page(site, "/jobs?filter=state:failed")).text
    assert "/api/v1/failures.csv?limit=200" in (await page(site, "/failures")).text
    assert "/api/v1/series/tasks.csv?since=24h&amp;step=1h" in (await page(site, "/performance")).text
