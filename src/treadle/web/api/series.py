"""Charts over HTTP: roll-ups of what ran, what pods measured of themselves, and a number for autoscalers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from ...core.compare import Against, Comparison
from ...core.depth import DepthSeries
from ...core.drain import seconds_to_scale_by
from ...core.series import PairSeries, ReadingView, Series
from ..pages import pace
from ..problem import Problem
from ..routing import Call, Routes
from .acts import instant
from .shapes import LARGEST, Cursor, Limit, Name, PageQuery, listed

routes = Routes()

LONGEST: Final = 86_400.0
MOST_COMPARED: Final = 1_000
MOST_POINTS: Final = 3_000  # of a page, over all its pairs: about 300 bytes each

Since = Annotated[str, Meta(max_length=40, description="How long ago (`24h`), or a moment.")]


class SeriesQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    queue: Name | None = None
    task: Name | None = None
    since: Since = "24h"
    until: Annotated[str, Meta(max_length=40, description="A moment; left out: now.")] | None = None
    step: Annotated[str, Meta(max_length=20, description="What one point stands for: whole minutes.")] | None = None


class WholeQuery(SeriesQuery, forbid_unknown_fields=True, kw_only=True):
    fine: Annotated[
        bool,
        Meta(description="Points of 5 s over all there is, while the storage has less than ten minutes of history."),
    ] = False


class DepthQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    queue: Name | None = None
    since: Since = "24h"
    until: Annotated[str, Meta(max_length=40, description="A moment; left out: now.")] | None = None
    step: Annotated[str, Meta(max_length=20, description="What one point stands for: whole minutes, or 5s.")] | None = (
        None
    )


class CompareQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    queue: Name | None = None
    task: Name | None = None
    since: Annotated[str, Meta(max_length=20, description="How long both ranges are.")] = "24h"
    against: Annotated[
        Against, Meta(description="The same length just before, a day earlier (`yesterday`) or a week earlier.")
    ] = "before"
    limit: Annotated[int, Meta(ge=1, le=MOST_COMPARED, description="How many at most.")] = MOST_COMPARED


class PodQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    pod: Name | None = None
    since: Since = "1h"


class PairsQuery(SeriesQuery, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = LARGEST
    cursor: Cursor | None = None


class Pairs(Struct, kw_only=True):
    """By queue and task; `next` as in every list. A page has 3,000 points at most, and so fewer pairs than `limit`
    where each has many."""

    items: list[PairSeries]
    next: str | None


class Readings(Struct):
    items: list[ReadingView]


class ScaleQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    queue: Name


class Scale(Struct, kw_only=True):
    """`value`: seconds until what is ready has run, by what came and ended in the last five minutes, with pause, rate
    and cool-down; at most a day, and a day where it grows, nothing ends or no worker serves it. 0 where nothing is
    ready, and where somebody has stopped the queue (paused without an end, `max_workers` or rate 0): more workers would
    not help. `ready` and `oldest_ready_seconds` are what else one may scale by."""

    value: float
    ready: int
    oldest_ready_seconds: float


def since(text: str) -> str | datetime:
    return instant(text) or text if text[4:5] == "-" else text


def _range(query: SeriesQuery) -> dict[str, Any]:
    return {
        "queue": query.queue,
        "task": query.task,
        "since": since(query.since),
        "until": instant(query.until),
        "step": query.step,
    }


@routes.api("GET", "/series", action="see", query=WholeQuery, answer=Series)
async def series(call: Call[WholeQuery, None]) -> Any:
    """How many runs ended how, and how long they waited and took, over time. At most 2,000 points."""
    return await call.app.history.series(**_range(call.query), fine=call.query.fine)


@routes.api("GET", "/series/tasks", action="see", query=PairsQuery, answer=Pairs)
async def tasks(call: Call[PairsQuery, None]) -> Any:
    """The same for each queue and task by itself."""
    query, found = call.query, await pairs_of(call)
    points = max((len(pair.series.points) for pair in found), default=1)
    page = PageQuery(limit=min(query.limit, max(1, MOST_POINTS // points)), cursor=query.cursor)
    return listed(found, lambda pair: f"{pair.queue} {pair.task}", page)


async def pairs_of(call: Call[Any, Any]) -> Sequence[PairSeries]:
    return await call.app.history.tasks(**_range(call.query))


@routes.api("GET", "/series/depth", action="see", query=DepthQuery, answer=DepthSeries)
async def depth(call: Call[DepthQuery, None]) -> Any:
    """How much was ready, scheduled and running over time: all queues together, and each, the deepest first. null:
    nobody looked then."""
    query = call.query
    return await call.app.history.depth(
        queue=query.queue, since=since(query.since), until=instant(query.until), step=query.step
    )


@routes.api("GET", "/series/compare", action="see", query=CompareQuery, answer=Comparison)
async def comparison(call: Call[CompareQuery, None]) -> Any:
    """How each queue and task fared in the last `since`, against the same length of another time."""
    found = await compared_of(call)
    return replace(found, items=found.items[: call.query.limit])


async def compared_of(call: Call[Any, Any]) -> Comparison:
    query = call.query
    return await call.app.history.compare(queue=query.queue, task=query.task, since=query.since, against=query.against)


@routes.api("GET", "/series/pods", action="see", query=PodQuery, answer=Readings)
async def pods(call: Call[PodQuery, None]) -> Any:
    """What pods have measured of themselves and of their storage."""
    return {"items": await call.app.history.pods(pod=call.query.pod, since=since(call.query.since))}


@routes.api("GET", "/scale", action="see", query=ScaleQuery, answer=Scale)
async def scale(call: Call[ScaleQuery, None]) -> Any:
    """A number for autoscalers, such as KEDA's metrics-api: time to drain, not depth."""
    name = call.query.queue
    queues = await call.web.counts.get(("queues",), call.app.queues.list)
    found = next((each for each in queues if each.name == name), None)
    if found is None:
        raise Problem("not_found", "there is no such queue")
    (paced,) = pace.paced([found], (), await pace.lately(call.web), datetime.now(UTC))
    return {
        "value": seconds_to_scale_by(paced.drain, LONGEST),
        "ready": found.ready,
        "oldest_ready_seconds": found.oldest_ready_seconds or 0.0,
    }
