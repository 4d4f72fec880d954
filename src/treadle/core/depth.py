"""Depth: how much lay in queues over time, from what the leader has noted once a minute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from .queue import QueueStats
from .reading import FLEET, Depth, Reading, deepest
from .rollup import MINUTE, floor

MOST_QUEUES: Final = 200
"""So many queues are noted apart, the deepest; the others only in the sum."""
ALL: Final = ""


@dataclass(frozen=True, slots=True)
class DepthPoint:
    """The most that lay there in one step of a chart; None where nobody has looked.

    >>> newest = app.history.depth_sync(since="1h").points[-1]
    >>> newest.ready  # None: nobody has looked yet
    """

    at: datetime
    ready: int | None
    scheduled: int | None
    running: int | None


@dataclass(frozen=True, slots=True)
class QueueDepths:
    """How much lay in one queue, step by step.

    >>> for each in app.history.depth_sync(since="1h").queues:
    ...     print(each.queue, each.points[-1].ready)
    """

    queue: str
    points: tuple[DepthPoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthSeries:
    """A chart: all queues together, and each by itself, the deepest first.

    >>> app.history.depth_sync(since="1h").step
    60.0
    """

    step: float  # seconds
    points: tuple[DepthPoint, ...]
    queues: tuple[QueueDepths, ...]


def sounding(found: Iterable[QueueStats], now: float, resolution: int = MINUTE) -> Reading:
    """What is to be noted of this minute, or of this step. Empty queues are left out: they are known by not being
    there."""
    depths = {each.queue.name: Depth(each.ready, each.scheduled, each.running) for each in found}
    kept = sorted((name for name in depths if any(depths[name])), key=lambda name: (-sum(depths[name]), name))
    whole = Depth(*map(sum, zip(*depths.values(), strict=True))) if depths else Depth(0, 0, 0)
    return Reading(
        resolution=resolution,
        at=floor(now, resolution),
        pod=FLEET,
        depths={ALL: whole, **{name: depths[name] for name in kept[:MOST_QUEUES]}},
    )


def depth_series(
    readings: Iterable[Reading], since: float, until: float, step: float, queue: str | None = None
) -> DepthSeries:
    """A chart of these readings; of one queue only, if it is named."""
    parts: dict[float, list[dict[str, Depth]]] = {}
    for each in readings:
        if ALL in each.depths:
            parts.setdefault(floor(each.at, step), []).append(each.depths)
    folded = {at: deepest(found) for at, found in parts.items()}
    first = floor(since, step)
    last = max([floor(until, step), *folded])
    moments = [first + n * step for n in range(int((last - first) / step) + 1)]
    names = {name for depths in folded.values() for name in depths if name != ALL}
    if queue is not None:
        names &= {queue}
    ranked = sorted(names, key=lambda name: (-sum(sum(each[name]) for each in folded.values() if name in each), name))
    return DepthSeries(
        step=step,
        points=_points(folded, moments, ALL if queue is None else queue),
        queues=tuple(QueueDepths(name, _points(folded, moments, name)) for name in ranked),
    )


def _points(folded: dict[float, dict[str, Depth]], moments: Sequence[float], name: str) -> tuple[DepthPoint, ...]:
    return tuple(DepthPoint(datetime.fromtimestamp(at, UTC), *_depth(folded.get(at), name)) for at in moments)


def _depth(depths: dict[str, Depth] | None, name: str) -> tuple[int | None, int | None, int | None]:
    if depths is None:
        return None, None, None
    if name in depths:
        return depths[name]
    # It was empty; or there were so many deeper ones that it was not noted.
    return (None, None, None) if len(depths) > MOST_QUEUES else (0, 0, 0)


def as_json(found: DepthSeries) -> dict[str, Any]:
    """In the shape that CLI and HTTP print."""
    return {
        "step": found.step,
        "points": [_plain(point) for point in found.points],
        "queues": [{"queue": each.queue, "points": [_plain(point) for point in each.points]} for each in found.queues],
    }


def _plain(point: DepthPoint) -> dict[str, Any]:
    at = point.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"at": at, "ready": point.ready, "scheduled": point.scheduled, "running": point.running}
