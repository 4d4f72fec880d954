"""Overview: what is wrong first, then how much there is, how fast it goes, and where."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Literal

from msgspec import Struct
from starlette.responses import Response

from ...core import drain as draining
from ...core import rollup
from ...core.duration import seconds
from ...core.listing import listing
from ...core.queue import COUNTED
from ...core.view import QueueView
from ..mending import buttons
from ..routing import Call, Routes
from . import charts, depths
from .frame import render
from .listed import rank
from .pace import Lately, began, lately, paced

routes = Routes()

MOST_CAUSES: Final = 5
MOST_QUEUES: Final = 50
STATES: Final = ("ready", "scheduled", "waiting", "running", "succeeded", "failed", "cancelled")
# A day in hours is 24 rows for each task, not 1,440.
STEPS: Final = {"15m": None, "1h": None, "24h": "1h", "7d": None}


class Range(Struct):
    range: Literal["15m", "1h", "24h", "7d"] = "1h"


@routes.page("GET", "/", action="see", query=Range)
async def overview(call: Call[Range, None]) -> Response:
    """What is wrong, how much there is, how fast it goes."""
    app, counts, asked = call.app, call.web.counts, call.query.range
    now_reads = asyncio.gather(
        call.web.attending.gather(),
        counts.get(("failures", "", "", "50"), lambda: app.jobs.failures(limit=50)),
        counts.jobs("is:retrying"),
    )
    past_reads = asyncio.gather(
        counts.get(("series", asked), lambda: app.history.series(since=asked, step=STEPS[asked], fine=True)),
        counts.get(("runs", "24h"), lambda: app.history.series(since="24h", step=STEPS["24h"], waiting=False)),
        lately(call.web),
        counts.get(("depth", asked), lambda: app.history.depth(since=asked, step=STEPS[asked])),
    )
    (evidence, failures, retrying), (series, day, paces, depth) = await asyncio.gather(now_reads, past_reads)
    if charts.is_fine(series):
        depth = await depths.beside(app, series)
        paces = Lately(paces.pairs, depth)
    queues, pods, now = evidence.queues, evidence.pods, evidence.now
    items = call.web.attending.judge(evidence)
    shown = listing(queues, lambda each: each.name, rank=rank, most=MOST_QUEUES)
    return await render(
        call,
        "overview.html",
        title="Overview",
        page="overview",
        topics="jobs queues pods schedules operations metrics",
        points=charts.points_of(_step(asked), fine=True),
        fine=charts.is_fine(series),
        charts=True,
        range=asked,
        attention=[item for item in items if item.acknowledged is None],
        acknowledged=[item for item in items if item.acknowledged is not None],
        buttons=partial(buttons, may=call.may),
        may_acknowledge=call.access.may("mute"),
        now=now,
        totals=_totals(queues),
        retrying=sum(retrying.values()),
        failed_day=charts.outcome(day.whole, "failed"),
        failed_points=[charts.outcome(point, *charts.BAD) for point in day.points],
        per_minute=draining.per_minute(paces.pairs, now, began(paces, pods), of=("succeeded",)),
        oldest=max((queue.oldest_ready_seconds or 0.0 for queue in queues), default=0.0),
        succeeded_points=[charts.outcome(point, "succeeded") for point in series.points[:-1]],
        throughput=charts.throughput(series),
        latency=charts.latency(series),
        depth=depths.of_all(depth, queues),
        queues=paced(shown.rows, pods, paces, now),
        all_queues=len(queues),
        failures=[
            replace(group, message=call.web.redact.text(group.message)) for group in failures.groups if not group.muted
        ][:MOST_CAUSES],
        deploy=failures.deploy,
        live_pods=sum(pod.live for pod in pods),
        has_any=any(getattr(queue, state) for queue in queues for state in STATES),
        has_run=bool(series.whole.finished or day.whole.finished),
        ways=("treadle queues list", f"treadle stats --since {asked}", "treadle doctor"),
    )


def _totals(queues: Sequence[QueueView]) -> dict[str, int]:
    """What the queues of this page hold together, by state. Of the states that are shown every job is counted."""
    return {state: sum(getattr(queue, state) for queue in queues) for state in sorted(COUNTED)}


def _step(asked: str) -> float:
    """What a point stands for once history is older than its first minutes."""
    step = STEPS[asked]
    return rollup.step_for(seconds(asked, "range"), None if step is None else seconds(step, "step"))
