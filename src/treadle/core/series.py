"""Series: history as people and charts read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .event import Event
from .histogram import Histogram
from .reading import Reading
from .rollup import Rollup, add_counts, floor

_SHARES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Spread:
    """How long something took, in seconds; None where nothing was measured.

    >>> app.history.series_sync(queue="mail").whole.wait.count
    2
    """

    count: int
    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What happened in one step of a chart.

    >>> point = app.history.series_sync(queue="mail").whole
    >>> point.run.count >= 0
    True
    """

    at: datetime
    outcomes: dict[str, int]
    wait: Spread  # from due to claimed; in what ends now also of jobs that still wait, from due to now
    run: Spread
    total: Spread  # from enqueued to ended for good

    @property
    def finished(self) -> int:
        """Runs that ended, however."""
        return sum(self.outcomes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A chart: evenly spaced points, the empty ones among them, and the whole as one.

    >>> series = app.history.series_sync(queue="mail")
    >>> series.whole.outcomes
    {'failed': 1, 'succeeded': 1}
    """

    step: float  # seconds
    points: tuple[Point, ...]
    whole: Point


@dataclass(frozen=True, slots=True)
class PairSeries:
    """The chart of one queue and task.

    >>> [(pair.queue, pair.task) for pair in app.history.tasks_sync()]
    [('mail', 'send')]
    """

    queue: str
    task: str
    series: Series


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """One line of a job's timeline.

    >>> [event.what for event in app.history.timeline_sync(failed.id)]
    ['enqueued', 'claimed', 'failed']
    """

    at: datetime | None
    what: str
    attempt: int
    pod: str | None
    by: str | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingView:
    """How a pod and its storage fared, at one moment of a chart.

    >>> for reading in app.history.pods_sync():
    ...     print(reading.label, reading.cpu, reading.rss)
    """

    at: datetime
    pod: str
    label: str
    cpu: float
    rss: int
    lag: float
    threads: int
    slots: int
    used: float
    disk_free: int | None
    read_seconds: float | None
    write_seconds: float | None
    storage_bytes: int | None
    wal_bytes: int | None
    connections: int | None


def series(rows: Iterable[Rollup], since: float, until: float, step: float, waiting: Histogram | None = None) -> Series:
    """A chart of these rows, over all queues, tasks and pods that they are of. Jobs that still wait, `waiting` by their
    ages, count in the step that ends now, and in the whole."""
    first = floor(since, step)
    folded: dict[float, Rollup] = {}
    whole = _empty(first)
    for row in rows:
        at = floor(row.at, step)
        if at not in folded:
            folded[at] = _empty(at)
        folded[at].absorb(row)
        whole.absorb(row)
    last = max([floor(until, step), *folded])
    count = int((last - first) / step) + 1
    moments = [first + n * step for n in range(count)]
    if waiting is not None:
        now = folded.setdefault(moments[-1], _empty(moments[-1]))
        now.wait.absorb(waiting)
        whole.wait.absorb(waiting)
    return Series(
        step=step,
        points=tuple(_point(folded.get(at) or _empty(at)) for at in moments),
        whole=_point(whole),
    )


def by_pair(
    rows: Iterable[Rollup],
    since: float,
    until: float,
    step: float,
    waiting: Mapping[tuple[str, str], Histogram] | None = None,
) -> tuple[PairSeries, ...]:
    """A chart for each queue and task, in the order of their names: those that ran, and those that still wait."""
    waits = waiting or {}
    pairs: dict[tuple[str, str], list[Rollup]] = {pair: [] for pair in waits}
    for row in rows:
        pairs.setdefault((row.queue, row.task), []).append(row)
    return tuple(PairSeries(*key, series(pairs[key], since, until, step, waits.get(key))) for key in sorted(pairs))


def finished_by_queue(rows: Iterable[Rollup]) -> dict[str, int]:
    """How many jobs ended for good, queue by queue: the pace at which a backlog shrinks."""
    counts: dict[str, int] = {}
    for row in rows:
        add_counts(counts, {row.queue: sum(row.outcomes.get(each, 0) for each in ("succeeded", "failed", "cancelled"))})
    return counts


def event_view(event: Event) -> EventView:
    return EventView(
        at=None if event.at is None else _moment(event.at),
        what=event.what,
        attempt=event.attempt,
        pod=event.pod,
        by=event.by,
        detail=event.detail,
    )


def reading_view(reading: Reading) -> ReadingView:
    own = {field.name for field in dataclasses.fields(ReadingView)} - {"at"}
    return ReadingView(at=_moment(reading.at), **{name: getattr(reading, name) for name in own})


def as_json(view: Series | PairSeries | Point | Spread | EventView | ReadingView) -> dict[str, Any]:
    """The view as JSON values, in the shape that CLI and HTTP print."""
    return {field.name: _plain(getattr(view, field.name)) for field in dataclasses.fields(view)}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, Series | Point | Spread):
        return as_json(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, float):
        return round(value, 6)
    return value


def _empty(at: float) -> Rollup:
    return Rollup(resolution=0, at=at, queue="", task="")


def _point(row: Rollup) -> Point:
    return Point(
        at=_moment(row.at),
        outcomes=dict(sorted(row.outcomes.items())),
        wait=_spread(row.wait),
        run=_spread(row.run),
        total=_spread(row.total),
    )


def _spread(times: Histogram) -> Spread:
    p50, p95, p99 = times.quantiles(_SHARES)
    count = times.count
    return Spread(count, times.mean, p50, p95, p99, times.max if count else None)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
