"""Charts of depth: how much was ready in the deepest queues, and what one queue held. They end with what is so now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ...core.depth import DepthPoint, DepthSeries
from ...core.series import Series
from ...core.view import QueueView
from . import words
from .charts import Chart, Line, chart

if TYPE_CHECKING:
    from ...app import App

MOST_LINES: Final = 5
OTHERS: Final = ""  # to the script: all queues together, less those that have a line
_STATES: Final = (("ready", "q1"), ("running", "q5"), ("scheduled", "q4"))


async def beside(app: App, series: Series, queue: str | None = None) -> DepthSeries:
    """Depths for the range and the step of a chart of seconds."""
    return await app.history.depth(queue=queue, since=series.points[0].at, step=series.step)


def of_all(series: DepthSeries, queues: Sequence[QueueView]) -> Chart:
    """Ready jobs, the deepest queues one upon the other. A queue keeps its colour as long as the same ones are deep."""
    now = {each.name: each.ready for each in queues}
    found = {each.queue: _values(series, each.points, "ready", now.get(each.queue, 0)) for each in series.queues}
    for name, ready in now.items():
        if ready and name not in found:
            found[name] = _values(series, (), "ready", ready)
    deepest = sorted(found, key=lambda name: (-sum(value or 0 for value in found[name]), name))
    shown = sorted(name for name in deepest[:MOST_LINES] if any(found[name]))
    lines = [Line(name, f"q{n}", words.number(now.get(name, 0))) for n, name in enumerate(shown, 1)]
    values = [found[name] for name in shown]
    total = sum(now.values())
    whole = _values(series, series.points, "ready", total)
    rest = [
        None if each is None else max(0, each - sum(line[n] or 0 for line in values)) for n, each in enumerate(whole)
    ]
    if any(rest) or not shown:
        left = total - sum(now.get(name, 0) for name in shown)
        lines.append(Line("other queues" if shown else "all queues", "other", words.number(left)))
        values.append(rest)
    sources = [[name, "ready"] for name in shown] + ([[OTHERS, "ready"]] if len(lines) > len(shown) else [])
    return _chart("area", lines, series, values, sources)


def of_one(series: DepthSeries, queue: QueueView) -> Chart:
    """What is ready, running and scheduled in one queue."""
    values = [_values(series, series.points, state, getattr(queue, state)) for state, _ in _STATES]
    lines = [Line(state, tone, words.number(getattr(queue, state))) for state, tone in _STATES]
    return _chart("lines", lines, series, values, [[queue.name, state] for state, _ in _STATES])


def _values(series: DepthSeries, points: Sequence[DepthPoint], state: str, now: int) -> list[int | None]:
    """One line; its last point is that of the running step, and there the number of now is known."""
    read: Callable[[DepthPoint], int | None] = lambda point: getattr(point, state)  # noqa: E731
    known = [read(point) for point in points] or [None if each.ready is None else 0 for each in series.points]
    before = 0 if series.step <= 60 else known[-1] or 0
    return [*known[:-1], max(now, before)]


def _chart(
    kind: str,
    lines: Sequence[Line],
    series: DepthSeries,
    values: Sequence[Sequence[int | None]],
    sources: list[list[str]],
) -> Chart:
    moments = [point.at for point in series.points]
    return chart(kind, "number", lines, moments, values, series.step, {"live": "depth", "from": sources})
