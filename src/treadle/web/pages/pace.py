"""A queue with its pace: how fast it goes, and when what is ready will have run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from ...core import rollup
from ...core.series import PairSeries
from ...core.view import PodView, QueueView
from . import charts

OVER: Final = 900.0  # seconds: the pace is that of the last quarter of an hour
STEP: Final = "5m"
_STEPS: Final = 4  # three whole ones and the one that has begun


class Paced(Struct):
    queue: QueueView
    gate: str  # paused, cooling or nothing
    pace: tuple[int, ...]  # runs that ended in each step of the last hour
    drain: float | None  # seconds until what is ready has run; None: nothing is ready
    per_minute: float
    pods: tuple[str, ...]  # labels of the live pods that serve it


def paced(queue: QueueView, pods: Iterable[PodView], pairs: Sequence[PairSeries], now: datetime) -> Paced:
    """`pairs` are of the last hour, in steps of five minutes."""
    own = [pair.series for pair in pairs if pair.queue == queue.name]
    points: dict[datetime, int] = {}
    for series in own:
        for point in series.points:
            points[point.at] = points.get(point.at, 0) + point.finished
    ended = sum(
        charts.outcome(point, "succeeded", "failed", "cancelled") for series in own for point in series.points[-_STEPS:]
    )
    return Paced(
        queue=queue,
        gate=gate(queue, now),
        pace=tuple(points[at] for at in sorted(points)[:-1]),  # the last one has only begun
        drain=None if not queue.ready else rollup.drain_seconds(queue.ready, ended, OVER),
        per_minute=ended * 60 / OVER,
        pods=tuple(pod.label for pod in pods if pod.live and queue.name in pod.queues),
    )


def gate(queue: QueueView, now: datetime) -> str:
    if queue.paused:
        return "paused"
    return "cooling" if queue.cool_until is not None and queue.cool_until > now else ""
