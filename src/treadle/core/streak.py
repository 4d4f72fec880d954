"""Streak: since when something has been so without a break, read backwards from what history has of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

PATIENCE: Final = 600.0
"""So many seconds of steps in which it was not so end a streak: one good minute of a task that fails half of its runs
does not."""


class Step(NamedTuple):
    """One step of a chart: when it began, and whether it was so; None if nothing happened that would tell."""

    at: float
    is_so: bool | None


class Streak(NamedTuple):
    """`at_least`: history does not reach back to its beginning."""

    since: float
    at_least: bool = False


def find(steps: Sequence[Step], step: float, patience: float = PATIENCE) -> Streak | None:
    """The streak that the newest steps (the last of them) are in; None if there is none.

    >>> find([Step(0.0, False), Step(600.0, True), Step(1200.0, True)], 600.0)
    Streak(since=600.0, at_least=False)
    """
    since: float | None = None
    otherwise = 0.0
    for each in reversed(steps):
        if each.is_so:
            since, otherwise = each.at, 0.0
        elif each.is_so is not None:
            otherwise += step
            if otherwise >= patience:
                break
    if since is None:
        return None
    return Streak(since, at_least=otherwise == 0.0)


def not_before(found: Streak, began: float | None, known_since: float) -> Streak:
    """A step that is known to hold the first run of all says since when by that run, not by its own beginning. `began`
    is the first run after `known_since`, as far as finer steps reach back: of a streak that is older they tell nothing.

    >>> not_before(Streak(600.0), 780.0, known_since=0.0)
    Streak(since=780.0, at_least=False)
    """
    if began is None or found.since < known_since:
        return found
    return found._replace(since=max(found.since, began))
