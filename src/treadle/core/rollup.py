"""Rollup: what became of the jobs of one queue and task in one minute, hour or day; and how many of them make a chart.

Rows and their life
-------------------
A pod counts in its own memory and writes, every two seconds, the row of the running minute *as it stands*: the same row
again, with higher numbers. So a lost answer is repaired by sending it again, and a crash loses two seconds of a chart.
The leader folds minutes into hours and hours into days, over all pods; a fold is made anew from the finer rows and
replaces what was there, so that it may be made twice.

A row is about 400 bytes. A fleet of five pods with twenty busy tasks writes 144,000 of them a day, some 55 MB: minutes
are kept for three days, hours (a few MB a month, for they are one for the fleet) for thirty, days for four hundred.

While history is young, a pod writes rows of five seconds too (see `young`). No fold reads them, and they are kept for
an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from .histogram import Histogram

T = TypeVar("T")

FINE: Final = 5
MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400
RESOLUTIONS: Final = (MINUTE, HOUR, DAY)
LATE: Final = 900.0
"""Pods that were cut off write late: so long after its end a fold may still change."""
MOST_POINTS: Final = 2_000
MOST_PAIRS: Final = 1_000
"""So many pairs of queue and task are counted apart in one pod; what comes later is counted as `OTHER`."""
OTHER: Final = "other"
BAD: Final = ("failed", "retried", "rescued")
"""How runs end that did not go well: for good, with another attempt to come, with their worker."""

What = Literal["seconds", "minutes", "hours", "days", "fine readings", "readings", "hourly readings", "events"]
KEEP: Final[dict[What, float]] = {
    "seconds": 1.0 * HOUR,
    "minutes": 3.0 * DAY,
    "hours": 30.0 * DAY,
    "days": 400.0 * DAY,
    "fine readings": 1.0 * HOUR,
    "readings": 3.0 * DAY,
    "hourly readings": 30.0 * DAY,
    "events": 30.0 * DAY,
}
# Which rows a name of KEEP means, where they are told apart by their resolution.
RESOLUTION_OF: Final[dict[What, int]] = {
    "seconds": FINE,
    "minutes": MINUTE,
    "hours": HOUR,
    "days": DAY,
    "fine readings": FINE,
    "readings": MINUTE,
    "hourly readings": HOUR,
}
_AGES: Final = {MINUTE: KEEP["minutes"], HOUR: KEEP["hours"], DAY: KEEP["days"]}


class Rollup(Struct, kw_only=True):
    """Counts and times of one queue and task, from `at` for `resolution` seconds. `pod` is empty in a fold."""

    resolution: int
    at: float
    queue: str
    task: str
    pod: str = ""
    outcomes: dict[str, int] = {}  # why a run ended (`succeeded`, `retried` …) → how often
    wait: Histogram = field(default_factory=Histogram)  # from due to claimed
    run: Histogram = field(default_factory=Histogram)
    total: Histogram = field(default_factory=Histogram)  # from enqueued to ended for good

    @property
    def key(self) -> tuple[int, float, str, str, str]:
        return self.resolution, self.at, self.queue, self.task, self.pod

    def absorb(self, other: Rollup) -> None:
        add_counts(self.outcomes, other.outcomes)
        self.wait.absorb(other.wait)
        self.run.absorb(other.run)
        self.total.absorb(other.total)


def add_counts(into: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        into[name] = into.get(name, 0) + count


def readable(decode: Callable[[Any], T], entries: Iterable[Any]) -> list[T]:
    """Rows of history as a storage keeps them, without those that somebody damaged: one must not keep a whole chart, or
    the fold of its hour, from being made."""
    found: list[T] = []
    for entry in entries:
        try:
            found.append(decode(entry))
        except (msgspec.MsgspecError, ValueError, TypeError):
            continue
    return found


def floor(at: float, step: float) -> float:
    """When the step began that `at` lies in."""
    return at - at % step


def fold(rows: Iterable[Rollup], resolution: int) -> list[Rollup]:
    """The rows of a coarser resolution, over all pods, oldest first."""
    folded: dict[tuple[float, str, str], Rollup] = {}
    for row in rows:
        at = floor(row.at, resolution)
        key = (at, row.queue, row.task)
        whole = folded.get(key)
        if whole is None:
            whole = folded[key] = Rollup(resolution=resolution, at=at, queue=row.queue, task=row.task)
        whole.absorb(row)
    return [folded[key] for key in sorted(folded)]


def resolution_for(age: float, step: float) -> int:
    """Which rows to read for a chart that begins `age` seconds ago and has points of `step` seconds: the coarsest that
    divide the step, unless the finer ones are gone."""
    fitting = [each for each in RESOLUTIONS if step % each == 0]
    kept = [each for each in RESOLUTIONS if age <= _AGES[each]]
    usable = [each for each in fitting if each in kept]
    return max(usable, default=min(kept, default=DAY))


def parts(
    resolution: int, since: float, now: float, until: float | None = None
) -> list[tuple[int, float, float | None]]:
    """Which rows make up a chart, as (resolution, since, until): those of the resolution as far as they are surely
    folded, and finer ones for what is younger. The leader folds once a minute, if there is one: a chart that only read
    folds would end too early, and with nobody leading it would show nothing where something ran."""
    found: list[tuple[int, float, float | None]] = []
    for each in reversed(RESOLUTIONS):
        if each > resolution:
            continue
        folded = None if each == MINUTE else floor(now - LATE, each)
        ends = folded if until is None else until if folded is None else min(folded, until)
        if ends is None or ends > since:
            found.append((each, since, ends))
            since = now if ends is None else ends
    return found


def step_for(span: float, asked: float | None) -> float:
    """The step of a chart over `span` seconds: what was asked for, or a round one that gives about a hundred points.
    It is whole minutes, and no chart has more than 2,000 points."""
    if asked is None:
        return next((float(step) for step in _ROUND if span / step <= _NICE), float(_ROUND[-1]))
    if asked < MINUTE or asked % MINUTE:
        raise ValueError("step must be whole minutes, for example 1m, 5m or 1h")
    if span / asked > MOST_POINTS:
        raise ValueError(f"that would be {span / asked:,.0f} points, and a chart has at most {MOST_POINTS:,}")
    return asked


_NICE: Final = 150
_ROUND: Final = (60, 300, 600, 1800, HOUR, 6 * HOUR, DAY, 7 * DAY)
