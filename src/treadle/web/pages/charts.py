"""Charts as data: what the script draws, what the legend says, and a short table for whoever does not see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from ...core import rollup
from ...core.series import Point, Series
from . import words

MOST_ROWS: Final = 30
RANGES: Final = ("15m", "1h", "24h", "7d")
# Charts draw retries by themselves.
BAD: Final = tuple(each for each in rollup.BAD if each != "retried")


class Line(NamedTuple):
    name: str
    tone: str
    now: str = ""


@dataclass(frozen=True, slots=True)
class Chart:
    kind: str  # stacked, area or lines
    unit: str  # number or seconds
    lines: tuple[Line, ...]
    plot: str  # JSON for the script
    rows: tuple[tuple[str, ...], ...]


Values = Sequence[float | None]


def chart(
    kind: str,
    unit: str,
    lines: Sequence[Line],
    moments: Sequence[datetime],
    values: Sequence[Values],
    step: float,
    live: dict[str, Any],
) -> Chart:
    """`live` says how the script appends what the stream tells: see `static/charts.js`."""
    plot: dict[str, Any] = {
        "x": [int(at.timestamp()) for at in moments],
        "y": [[None if value is None else round(value, 4) for value in line] for line in values],
        "tones": [line.tone for line in lines],
        "names": [line.name for line in lines],
        "step": step,
        **live,
    }
    write = words.span if unit == "seconds" else words.number
    size = -(-len(moments) // MOST_ROWS) or 1
    fold = sum if kind == "stacked" else max
    rows = [
        (
            moments[at].strftime("%m-%d %H:%M" if step >= rollup.MINUTE else "%H:%M:%S"),
            *(write(_fold(line[at : at + size], fold)) for line in values),
        )
        for at in range(0, len(moments), size)
    ]
    return Chart(kind, unit, tuple(lines), msgspec.json.encode(plot).decode(), tuple(rows))


def _fold(values: Values, fold: Callable[[list[float]], float]) -> float | None:
    known = [value for value in values if value is not None]
    return fold(known) if known else None


def of_series(series: Series, kind: str, unit: str, lines: Sequence[tuple[str, str, tuple[str, ...]]]) -> Chart:
    """Each line is a name, a tone, and what of a point it is the sum of: `outcomes.failed`, `wait.p95`."""
    write = words.span if unit == "seconds" else words.number
    return chart(
        kind,
        unit,
        [Line(name, tone, write(_sum(series.whole, parts))) for name, tone, parts in lines],
        [point.at for point in series.points],
        [[_sum(point, parts) for point in series.points] for _, _, parts in lines],
        series.step,
        {"live": "series", "from": [parts for _, _, parts in lines]},
    )


def _sum(point: Point, parts: tuple[str, ...]) -> float | None:
    known = [value for value in (_part(point, each) for each in parts) if value is not None]
    return sum(known) if known else None


def _part(point: Point, part: str) -> float | None:
    whole, _, name = part.partition(".")
    return point.outcomes.get(name, 0) if whole == "outcomes" else getattr(getattr(point, whole), name)


def points_of(step: float, *, fine: bool = False, **of: str | None) -> str:
    """What a page asks the stream for, so that its charts go on by themselves. `fine`: it shows seconds while history
    is young, and `step` after that."""
    named = {name: value for name, value in of.items() if value is not None}
    return urlencode({"step": int(step), **named, **({"fine": "true"} if fine else {})})


def is_fine(series: Series) -> bool:
    return series.step < rollup.MINUTE


def outcome(point: Point, *names: str) -> int:
    return sum(point.outcomes.get(name, 0) for name in names)


def throughput(series: Series) -> Chart:
    return of_series(
        series,
        "stacked",
        "number",
        [
            ("succeeded", "succeeded", ("outcomes.succeeded",)),
            ("retried", "retried", ("outcomes.retried",)),
            ("failed or rescued", "failed", tuple(f"outcomes.{each}" for each in BAD)),
        ],
    )


def latency(series: Series) -> Chart:
    return of_series(
        series,
        "lines",
        "seconds",
        [
            ("wait p50", "p50", ("wait.p50",)),
            ("wait p95", "p95", ("wait.p95",)),
            ("run p95", "p99", ("run.p95",)),
        ],
    )


def run_times(series: Series) -> Chart:
    return of_series(
        series,
        "lines",
        "seconds",
        [("run p50", "p50", ("run.p50",)), ("run p95", "p95", ("run.p95",)), ("run p99", "p99", ("run.p99",))],
    )
