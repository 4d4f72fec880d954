"""Charts as data: what the script draws, what the legend says, and a short table for whoever does not see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from ...core.series import Point, Series
from . import words

MOST_ROWS: Final = 30
RANGES: Final = ("15m", "1h", "24h", "7d")
BAD: Final = ("failed", "timed_out", "rescued")


class Line(NamedTuple):
    name: str
    tone: str
    now: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    kind: str  # stacked, lines or bars
    unit: str  # number or seconds
    lines: tuple[Line, ...]
    plot: str  # JSON for the script
    rows: tuple[tuple[str, ...], ...]


def chart(series: Series, kind: str, unit: str, lines: Sequence[tuple[Line, Callable[[Point], float | None]]]) -> Chart:
    points = series.points
    values = [[read(point) for point in points] for _, read in lines]
    plot: dict[str, Any] = {
        "x": [int(point.at.timestamp()) for point in points],
        "y": [[None if value is None else round(value, 4) for value in line] for line in values],
        "tones": [line.tone for line, _ in lines],
        "names": [line.name for line, _ in lines],
        "step": series.step,
    }
    write = words.span if unit == "seconds" else words.number
    size = -(-len(points) // MOST_ROWS) or 1
    rows = [
        (points[at].at.strftime("%m-%d %H:%M"), *(write(_fold(line[at : at + size], unit)) for line in values))
        for at in range(0, len(points), size)
    ]
    return Chart(kind, unit, tuple(line for line, _ in lines), msgspec.json.encode(plot).decode(), tuple(rows))


def _fold(values: Sequence[float | None], unit: str) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    return max(known) if unit == "seconds" else sum(known)


def outcome(point: Point, *names: str) -> int:
    return sum(point.outcomes.get(name, 0) for name in names)


def throughput(series: Series) -> Chart:
    whole = series.whole
    return chart(
        series,
        "stacked",
        "number",
        [
            (
                Line("succeeded", "succeeded", words.number(outcome(whole, "succeeded"))),
                lambda point: outcome(point, "succeeded"),
            ),
            (
                Line("retried", "retried", words.number(outcome(whole, "retried"))),
                lambda point: outcome(point, "retried"),
            ),
            (Line("failed", "failed", words.number(outcome(whole, *BAD))), lambda point: outcome(point, *BAD)),
        ],
    )


def latency(series: Series) -> Chart:
    whole = series.whole
    return chart(
        series,
        "lines",
        "seconds",
        [
            (Line("wait p50", "p50", words.span(whole.wait.p50)), lambda point: point.wait.p50),
            (Line("wait p95", "p95", words.span(whole.wait.p95)), lambda point: point.wait.p95),
            (Line("run p95", "p99", words.span(whole.run.p95)), lambda point: point.run.p95),
        ],
    )


def run_times(series: Series) -> Chart:
    whole = series.whole
    return chart(
        series,
        "lines",
        "seconds",
        [
            (Line("run p50", "p50", words.span(whole.run.p50)), lambda point: point.run.p50),
            (Line("run p95", "p95", words.span(whole.run.p95)), lambda point: point.run.p95),
            (Line("run p99", "p99", words.span(whole.run.p99)), lambda point: point.run.p99),
        ],
    )
