"""Performance: how long tasks wait and run, how often they fail, and where the time goes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from ...core.compare import Against
from ...core.heat import Band, Heat
from ...core.records import DeployView
from ...core.rollup import BAD
from ...core.series import PairSeries
from ..routing import Call, Routes
from . import charts, compared, words
from .frame import render
from .listed import listed

routes = Routes()

Range = Literal["15m", "1h", "24h", "7d"]


class Asked(Struct):
    range: Range = "24h"
    sort: Literal["time", "runs", "bad", "wait50", "wait", "run50", "run", "task"] = "time"
    compare: Against | None = None
    name: Annotated[str, Meta(max_length=128)] = ""
    page: Annotated[int, Meta(ge=1, le=1_000_000)] = 1


class Row(Struct):
    """One queue and task."""

    pair: PairSeries
    runs: int
    bad: int
    seconds: float  # of all its runs together
    share: float


@routes.page("GET", "/performance", action="see", query=Asked)
async def performance(call: Call[Asked, None]) -> Response:
    """All tasks that ran, by where the time goes; or how they fare against another range."""
    asked = call.query.range
    if call.query.compare is not None:
        return await _against(call, call.query.compare)
    step = "1h" if asked == "24h" else None  # a day in hours is 24 rows for each task, not 1,440
    pairs = await call.web.counts.get(("performance", asked), lambda: call.app.history.tasks(since=asked, step=step))
    shown = listed(call, _rows(pairs, call.query.sort), lambda row: f"{row.pair.task} {row.pair.queue}")
    return await render(
        call,
        "performance.html",
        title="Performance",
        page="performance",
        topics="metrics",
        range=asked,
        sort=call.query.sort,
        list=shown,
        rows=shown.rows,
        against=None,
        ways=(f"treadle stats --since {asked}",),
        csv=call.url("/api/v1/series/tasks.csv", since=asked, step=step),
        **_choices(call),
    )


async def _against(call: Call[Asked, None], against: Against) -> Response:
    asked, sort = call.query.range, call.query.sort
    found = await call.web.counts.get(
        ("compare", asked, against), lambda: call.app.history.compare(since=asked, against=against)
    )
    shown = listed(call, compared.rows(found, sort), lambda row: f"{row.task} {row.queue}")
    return await render(
        call,
        "performance.html",
        title="Performance",
        page="performance",
        topics="metrics",
        range=asked,
        sort="run" if sort == "time" else sort,
        list=shown,
        rows=shown.rows,
        against=found,
        ways=(f"treadle stats --since {asked} --against {against}",),
        csv=call.url("/api/v1/series/compare.csv", since=asked, against=against),
        **_choices(call),
    )


def _choices(call: Call[Asked, None]) -> dict[str, Any]:
    """Links to the other ranges, and to what this one can be compared with."""
    asked, sort, against = call.query.range, call.query.sort, call.query.compare

    def there(chosen: str, against: Against | None) -> str:
        return call.url("/performance", range=chosen, sort=sort, compare=against)

    return {
        "ranges": [(each, there(each, compared.kept(each, against))) for each in charts.RANGES],
        "others": [("nothing", there(asked, None))]
        + [(compared.WORDS[each], there(asked, each)) for each in compared.OFFERED[asked]],
        "other": "nothing" if against is None else compared.WORDS[against],
        "compare": against,
    }


def _rows(pairs: Sequence[PairSeries], sort: str) -> list[Row]:
    rows: list[Row] = []
    for pair in pairs:
        whole = pair.series.whole
        bad = sum(whole.outcomes.get(each, 0) for each in BAD)
        rows.append(Row(pair, whole.finished, bad, (whole.run.mean or 0.0) * whole.run.count, 0.0))
    total = sum(row.seconds for row in rows) or 1.0
    found = [msgspec.structs.replace(row, share=row.seconds / total) for row in rows]
    if sort == "task":
        return sorted(found, key=lambda row: (row.pair.task, row.pair.queue))
    return sorted(found, key=lambda row: -_measure(row, sort))


def _measure(row: Row, sort: str) -> float:
    match sort:
        case "runs":
            return row.runs
        case "bad":
            return row.bad / row.runs if row.runs else 0.0
        case "wait":
            return row.pair.series.whole.wait.p95 or 0.0
        case "run":
            return row.pair.series.whole.run.p95 or 0.0
        case _:
            return row.seconds


class Of(Struct):
    task: Annotated[str, Meta(max_length=128)]
    queue: Annotated[str, Meta(max_length=128)] | None = None
    range: Range = "24h"


class Cell(Struct):
    x: float
    y: float
    opacity: float
    title: str


class Mark(Struct):
    """A deploy. Where many are close together, some have a line and no label."""

    x: float
    title: str
    label: str = ""
    left: bool = False  # the label stands on the left of the line, or it would be cut off


WIDTH, HEIGHT, LEFT = 720.0, 220.0, 56.0
LABEL, LONGEST_LABEL = 90.0, 14  # how wide a label of so many characters is


@routes.page("GET", "/performance/task", action="see", query=Of)
async def task(call: Call[Of, None]) -> Response:
    """One task: percentiles, a histogram, a heat map with deploy marks."""
    asked = call.query
    series, heat, deploys, known, failures = await asyncio.gather(
        call.app.history.series(task=asked.task, queue=asked.queue, since=asked.range),
        call.app.history.heat(task=asked.task, queue=asked.queue, since=asked.range),
        call.app.pods.deploys(),
        call.app.catalog.task(asked.task),
        call.app.jobs.failures(task=asked.task, limit=5),
    )
    tall = max((band.count for band in heat.histogram), default=1) or 1
    return await render(
        call,
        "task.html",
        title=asked.task,
        page="performance",
        topics="metrics",
        points=charts.points_of(series.step, queue=asked.queue, task=asked.task),
        charts=True,
        asked=asked,
        known=known,
        whole=series.whole,
        bad=sum(series.whole.outcomes.get(each, 0) for each in BAD),
        throughput=charts.throughput(series),
        times=charts.run_times(series),
        cells=_cells(heat),
        size=cell_size(heat),
        bands=_labels(heat),
        hours=_hours(heat),
        marks=_marks(heat, deploys),
        histogram=[(band, round(120 * band.count / tall, 1)) for band in heat.histogram],
        failures=failures.groups,
        deploy=failures.deploy,
    )


def _size(heat: Heat) -> tuple[float, float]:
    return (WIDTH - LEFT) / max(1, len(heat.moments)), (HEIGHT - 24) / max(1, len(heat.bands))


def _cells(heat: Heat) -> list[Cell]:
    wide, high = _size(heat)
    most = max((count for column in heat.cells for count in column), default=0) or 1
    return [
        Cell(
            x=round(LEFT + n * wide, 2),
            y=round(HEIGHT - 24 - (m + 1) * high, 2),
            # A root, so that one run in a column of hundreds can still be seen.
            opacity=round(0.12 + 0.88 * (count / most) ** 0.5, 3),
            title=f"{heat.moments[n]:%m-%d %H:%M}: {count:,} × {_band(heat.bands[m])}",
        )
        for n, column in enumerate(heat.cells)
        for m, count in enumerate(column)
        if count
    ]


def _band(band: Band) -> str:
    return f"{words.span(band.low)}–{words.span(band.high)}"


def _labels(heat: Heat) -> list[tuple[float, str]]:
    _, high = _size(heat)
    every = max(1, -(-len(heat.bands) // 6))
    return [
        (round(HEIGHT - 24 - n * high, 2), words.span(band.low)) for n, band in enumerate(heat.bands) if n % every == 0
    ]


def _hours(heat: Heat) -> list[tuple[float, str]]:
    wide, _ = _size(heat)
    every = max(1, len(heat.moments) // 6)
    return [
        (round(LEFT + n * wide, 2), f"{at:%H:%M}" if heat.step < 3600 else f"{at:%m-%d}")
        for n, at in enumerate(heat.moments)
        if n % every == 0 and LEFT + n * wide < WIDTH - 30
    ]


def _marks(heat: Heat, deploys: Sequence[DeployView]) -> list[Mark]:
    """Where the first worker of each version registered."""
    if not heat.moments:
        return []
    wide, _ = _size(heat)
    first = heat.moments[0]
    marks: list[Mark] = []
    free = WIDTH + LABEL  # up to where no label stands yet: the newest deploy has its own first
    for each in sorted(deploys, key=lambda each: each.first_at, reverse=True):
        x = round(LEFT + (each.first_at - first).total_seconds() / heat.step * wide, 2)
        if not LEFT <= x <= WIDTH:
            continue
        mark = Mark(x, f"{each.version}, deployed {each.first_at:%m-%d %H:%M}", left=x > WIDTH - LABEL)
        starts = x - LABEL if mark.left else x
        if starts + LABEL <= free:
            mark.label, free = _short(each.version), starts
        marks.append(mark)
    return marks


def _short(version: str) -> str:
    return version if len(version) <= LONGEST_LABEL else f"{version[: LONGEST_LABEL - 1]}…"


def cell_size(heat: Heat) -> tuple[float, float]:
    wide, high = _size(heat)
    return round(max(0.5, wide - 1), 2), round(max(0.5, high - 1), 2)
