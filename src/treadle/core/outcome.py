"""Outcomes: what can happen in a run, and the signals by which a task chooses one.

A task that returns has succeeded; any exception is a failed attempt; the six signals below say something more exact.
They derive from `Exception` through `Signal`, not from `TreadleError`: nothing went wrong when one is raised.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .duration import Duration, seconds
from .job import ErrorEntry, NewJob

SHORTEST_SNOOZE: Final = 1.0


class Signal(Exception):
    """Base of what a task raises to choose its Outcome."""


class RetryAfter(Signal):
    """This attempt failed; try again after exactly so long. Costs an attempt, and at the last one the job fails."""

    def __init__(self, delay: Duration, message: str = "") -> None:
        self.delay = seconds(delay, "RetryAfter")
        super().__init__(message or f"retry after {self.delay:g} s")


class Snooze(Signal):
    """Not now: come back later. Costs no attempt and leaves no error."""

    def __init__(self, delay: Duration) -> None:
        self.delay = max(SHORTEST_SNOOZE, seconds(delay, "Snooze"))
        super().__init__(f"snoozed for {self.delay:g} s")


class Throttle(Signal):
    """The far side refuses us all: cool the whole queue, at least for `delay`. Costs no attempt."""

    def __init__(self, delay: Duration | None = None) -> None:
        self.delay = None if delay is None else seconds(delay, "Throttle")
        super().__init__("throttled" if self.delay is None else f"throttled for {self.delay:g} s")


class Fail(Signal):
    """This can never work: fail at once, whatever attempts remain."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class Cancel(Signal):
    """No longer wanted: end as cancelled, never retried, never counted as a failure."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class Succeeded(Struct, frozen=True, gc=False):
    result: str | None = None
    warning: str | None = None  # the result could not be kept; the effect has happened all the same
    follow_ups: tuple[NewJob, ...] = ()


class Raised(Struct, frozen=True):
    """The attempt failed. `exception` lets a retry policy look at it; `after` is RetryAfter's exact delay."""

    error: ErrorEntry
    exception: BaseException | None = None
    after: float | None = None
    final: bool = False


class TimedOut(Struct, frozen=True):
    error: ErrorEntry


class Undecodable(Struct, frozen=True):
    error: ErrorEntry


class Snoozed(Struct, frozen=True):
    delay: float


class Throttled(Struct, frozen=True):
    hint: float | None = None


class Stopped(Struct, frozen=True):
    """Ended as cancelled: by the task itself (Cancel), or because somebody asked and the run obeyed."""

    error: ErrorEntry


class Interrupted(Struct, frozen=True):
    """Given back untouched: the pod shuts down, or cannot read the payload's format. Not charged."""

    delay: float = 0.0


Outcome = Succeeded | Raised | TimedOut | Undecodable | Snoozed | Throttled | Stopped | Interrupted
