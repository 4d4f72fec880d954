"""Compare: how tasks fared in one range against the same length of another, as numbers and as words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from . import series
from .rollup import DAY, HOUR, KEEP, MINUTE, Rollup, floor
from .series import PairSeries, Point, Spread

Against = Literal["before", "yesterday", "week"]
BAD_ENDS: Final = ("failed", "retried", "timed_out", "rescued")
# Buckets of times grow by a tenth: what lies in the next one may not differ at all.
NEARLY: Final = 0.15
NEARLY_RUNS: Final = 0.05
NEARLY_SHARE: Final = 0.005


class Window(NamedTuple):
    since: float
    until: float


@dataclass(frozen=True, slots=True)
class Difference:
    """What was, and by how much it changed: by which share of what was; for `bad`, in shares of all runs. The word
    says which way it went, for whoever does not see a colour.

    >>> for change in app.history.compare_sync(since="1h").items:
    ...     print(change.bad.before, change.bad.word)
    """

    before: float | None
    by: float | None
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PairChange:
    """One queue and task: in the range, and before.

    >>> for change in app.history.compare_sync(since="1h").items:
    ...     print(change.task, change.runs.word)
    """

    queue: str
    task: str
    now: Point
    before: Point
    runs: Difference
    bad: Difference
    wait_p50: Difference
    wait_p95: Difference
    run_p50: Difference
    run_p95: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One range of time against another, queue by queue and task by task.
    Both ranges are whole minutes, or whole hours from a day on, and equally long.

    >>> comparison = app.history.compare_sync(since="1h")
    >>> comparison.until - comparison.since == comparison.before_until - comparison.before_since
    True
    """

    since: datetime
    until: datetime
    before_since: datetime
    before_until: datetime
    items: tuple[PairChange, ...]


def step_of(span: float) -> int:
    return HOUR if span >= DAY else MINUTE


def windows(span: float, against: Against, now: float) -> tuple[Window, Window]:
    """The range and the one to compare it with; ValueError if nothing is kept of that any more."""
    step = step_of(span)
    until = floor(now, step)
    since = until - -(-span // step) * step
    back = {"before": until - since, "yesterday": float(DAY), "week": 7.0 * DAY}[against]
    kept, what = (KEEP["hours"], "hours") if step == HOUR else (KEEP["minutes"], "minutes")
    if back < until - since:
        raise ValueError(f"{against} lies within the range: compare it with before or with week")
    if now - (since - back) > kept:
        raise ValueError(f"{what} are kept for {kept / DAY:.0f} days: choose another range to compare with {against}")
    return Window(since, until), Window(since - back, until - back)


def compare(now_rows: Iterable[Rollup], now: Window, before_rows: Iterable[Rollup], before: Window) -> Comparison:
    step = step_of(now.until - now.since)
    found = _wholes(series.by_pair(now_rows, now.since, now.until - step, step))
    then = _wholes(series.by_pair(before_rows, before.since, before.until - step, step))
    nothing = series.series((), now.since, now.since, step).whole
    return Comparison(
        since=_moment(now.since),
        until=_moment(now.until),
        before_since=_moment(before.since),
        before_until=_moment(before.until),
        items=tuple(_pair(*key, found.get(key, nothing), then.get(key, nothing)) for key in sorted({*found, *then})),
    )


def bad_runs(point: Point) -> int:
    return sum(point.outcomes.get(each, 0) for each in BAD_ENDS)


def bad_share(point: Point) -> float | None:
    return bad_runs(point) / point.finished if point.finished else None


def as_json(found: Comparison) -> dict[str, Any]:
    """In the shape that CLI and HTTP print."""
    own = {name: _text(getattr(found, name)) for name in ("since", "until", "before_since", "before_until")}
    return {**own, "items": [pair_as_json(each) for each in found.items]}


def pair_as_json(pair: PairChange) -> dict[str, Any]:
    return {
        field.name: value if isinstance(value := getattr(pair, field.name), str) else _plain(value)
        for field in dataclasses.fields(pair)
    }


def _plain(value: Point | Difference) -> dict[str, Any]:
    if isinstance(value, Point):
        return series.as_json(value)
    return {
        "before": None if value.before is None else round(value.before, 6),
        "by": None if value.by is None else round(value.by, 6),
        "word": value.word,
    }


def _wholes(pairs: Iterable[PairSeries]) -> dict[tuple[str, str], Point]:
    return {(each.queue, each.task): each.series.whole for each in pairs}


def _pair(queue: str, task: str, now: Point, before: Point) -> PairChange:
    def time(read: str, share: str) -> Difference:
        was: Spread = getattr(before, read)
        return _relative(getattr(getattr(now, read), share), getattr(was, share), "slower", "faster", NEARLY)

    share, was = bad_share(now), bad_share(before)
    by = None if share is None or was is None else share - was
    return PairChange(
        queue=queue,
        task=task,
        now=now,
        before=before,
        runs=_relative(now.finished, before.finished, "more", "fewer", NEARLY_RUNS),
        bad=Difference(was, by, "" if by is None else _word(by, "worse", "better", NEARLY_SHARE)),
        wait_p50=time("wait", "p50"),
        wait_p95=time("wait", "p95"),
        run_p50=time("run", "p50"),
        run_p95=time("run", "p95"),
    )


def _relative(now: float | None, before: float | None, up: str, down: str, nearly: float) -> Difference:
    if now is None or before is None:
        return Difference(before, None, "")
    if not before:
        return Difference(before, None if now else 0.0, "new" if now else "same")
    by = now / before - 1
    return Difference(before, by, "gone" if not now and up == "more" else _word(by, up, down, nearly))


def _word(by: float, up: str, down: str, nearly: float) -> str:
    if abs(by) < nearly:
        return "same"
    return up if by > 0 else down


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
