"""Young: while a storage has less than ten minutes of history, charts have points of five seconds instead of minutes.

A pod counts its first runs by steps of five seconds (`rollup.FINE`) and adds the steps up to the minute, so both tell
the same numbers. It goes on so until history is ten minutes old, and always to the end of a minute: a minute is known
by its steps wholly, or not at all. A chart of seconds is drawn only if each minute of it is known so; a pod of an older
version, or one that joined later, makes it a chart of minutes, and never one with a part of the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .rollup import DAY, FINE, HOUR, MINUTE, Rollup, floor

YOUNG: Final = 600.0
LEAST_SPAN: Final = 60.0
"""A chart of seconds shows a minute at least: the first jobs of all are a step in it, and not all of it."""
MOST_MINUTES: Final = 600
"""Rows of minutes that are read by their seconds, at most: twelve times as many make a chart as dear as one of an hour.
Beyond it a fleet is large enough to do without."""


def older(now: float) -> tuple[tuple[int, float], ...]:
    """Where history lies that no minute tells of any more: rows of this resolution before this moment."""
    return (HOUR, now - 2 * HOUR), (DAY, now - 2 * DAY)


def is_young(began: float | None, now: float) -> bool:
    """Whether history that began then is drawn by seconds; None: nothing has run yet, and there is nothing to draw."""
    return began is not None and now < began + YOUNG


def fine_until(began: float | None, now: float) -> float:
    """The first minute that a pod counts by minutes alone, if history began then, or begins now."""
    return (floor(now, MINUTE) if began is None else began) + YOUNG


def is_sounded_finely(began: float | None, led_since: float, now: float) -> bool:
    """Whether depths are noted by seconds: while history is young, and for as long after a leader came to a storage
    that has none; an idle one is not looked at so often for ever."""
    return now < (led_since if began is None else began) + YOUNG


def covers(steps: Iterable[Rollup], minutes: Sequence[Rollup]) -> bool:
    """Whether each of these minutes is known by its steps."""
    if len(minutes) > MOST_MINUTES:
        return False
    known = {(floor(row.at, MINUTE), row.queue, row.task, row.pod) for row in steps}
    return all((row.at, row.queue, row.task, row.pod) in known for row in minutes)


def begins(steps: Iterable[Rollup], now: float) -> float:
    """Where a chart of these steps begins: with them, or a minute ago."""
    return floor(min([now - LEAST_SPAN, *(row.at for row in steps)]), FINE)
