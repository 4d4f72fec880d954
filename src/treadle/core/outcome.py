"""Outcomes: what can happen in a run, and the signals by which a task chooses one.

A task that returns has succeeded; any exception is a failed attempt; the signals below say something more exact.
They derive from `Exception` through `Signal`, not from `TreadleError`: nothing went wrong when one is raised.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from .duration import Duration, seconds
from .job import ErrorEntry, NewJob

SHORTEST_SNOOZE: Final = 1.0


class Signal(Exception):
    """Base of what a task raises to choose its Outcome."""


class RetryAfter(Signal):
    """This attempt failed; try again after exactly so long. Costs an attempt, and at the last one the job fails.

    >>> def fetch(answer: dict[str, str]) -> None:
    ...     if answer["status"] == "busy":
    ...         raise RetryAfter("10s")
    >>> fetch({"status": "busy"})
    Traceback (most recent call last):
    treadle.RetryAfter: retry after 10 s
    """

    def __init__(self, delay: Duration, message: str = "") -> None:
        self.delay = seconds(delay, "RetryAfter")
        super().__init__(message or f"retry after {self.delay:g} s")


class Snooze(Signal):
    """Not now: come back later. Costs no attempt and leaves no error.

    >>> raise Snooze("10m")
    Traceback (most recent call last):
    treadle.Snooze: snoozed for 600 s
    """

    def __init__(self, delay: Duration) -> None:
        self.delay = max(SHORTEST_SNOOZE, seconds(delay, "Snooze"))
        super().__init__(f"snoozed for {self.delay:g} s")


class Throttle(Signal):
    """The far side refuses us all: cool the whole queue, at least for `delay`. Costs no attempt.

    >>> raise Throttle("30s")
    Traceback (most recent call last):
    treadle.Throttle: throttled for 30 s
    """

    def __init__(self, delay: Duration | None = None) -> None:
        self.delay = None if delay is None else seconds(delay, "Throttle")
        super().__init__("throttled" if self.delay is None else f"throttled for {self.delay:g} s")


class Fail(Signal):
    """This can never work: fail at once, whatever attempts remain.

    >>> raise Fail("this card does not exist")
    Traceback (most recent call last):
    treadle.Fail: this card does not exist
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class Cancel(Signal):
    """No longer wanted: end as cancelled, never retried, never counted as a failure.

    >>> raise Cancel("the order was withdrawn")
    Traceback (most recent call last):
    treadle.Cancel: the order was withdrawn
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(message)


class Wait(Signal):
    """Wait for an answer from outside, without a slot: the job runs again when it is there. The token is one that
    `ctx.answer_token` made in this run.

    >>> async def pay(ctx: Context) -> object:
    ...     if ctx.has_answer:
    ...         return await ctx.answer()
    ...     raise Wait(await ctx.answer_token("1h"))
    """

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__("waits for an answer from outside")  # not the token: who has it may answer


class AnswerAgain(Snooze):
    """`await ctx.answer(token)`: whoever was asked says, not now. Not caught, the job comes back after so long, at no
    cost, and may ask again.

    >>> async def poll(ctx: Context, token: str) -> object:
    ...     try:
    ...         return await ctx.answer(token)
    ...     except AnswerAgain as later:
    ...         raise Snooze(later.delay) from None
    """


class Release(Signal):
    """Give the run back as if it had not begun: due now, uncharged. `ctx.iterate` raises it when the pod stops; a task
    that raised it at will would run for ever."""

    def __init__(self) -> None:
        super().__init__("given back: the pod stops")


class Halt(Exception):
    """The run was asked to end, and does. Which Outcome that is, depends on who asked."""


class ChildLost(Exception):
    """The child process that ran a call is gone, and with it what it was doing: killed, crashed, out of memory.

    Raised by executors, never by tasks. `kind` says whether the run hurt itself (`worker_lost`: counted as a crash, and
    three make the job poison) or met a limit that was set for it (`limit`)."""

    def __init__(self, message: str, kind: Literal["worker_lost", "limit"] = "worker_lost") -> None:
        self.kind: Literal["worker_lost", "limit"] = kind
        super().__init__(message)


class Elsewhere(Exception):
    """What a call raised in another process: told by its entry, since the exception itself cannot travel. `types` are
    the names of its class and of its bases, as `module.Name`, for a retry policy to look at. `signal` is what it
    was, if it was one of ours."""

    def __init__(self, error: ErrorEntry, types: tuple[str, ...] = (), signal: Signal | None = None) -> None:
        self.error = error
        self.types = types
        self.signal = signal
        super().__init__(f"{error.type}: {error.message}")


class NotBegun(Exception):
    """Nothing of the call has run: there was no child to run it in. Raised by executors; the job is given back,
    uncharged, and comes back after `delay`."""

    def __init__(self, message: str, delay: float = 1.0) -> None:
        self.delay = delay
        super().__init__(message)


class Brought(Struct, frozen=True):
    """What a call returned in another process, as the text that is stored, or why that cannot be kept."""

    result: str | None = None
    warning: str | None = None


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


class Crashed(Struct, frozen=True):
    """The attempt took its own process with it, and nothing else. Charged, and counted as a crash."""

    error: ErrorEntry


class Waits(Struct, frozen=True):
    """The run has ended without an end: it goes on when the answer with this id is there. The id is not the token."""

    answer: str


class Interrupted(Struct, frozen=True):
    """Given back untouched: the pod shuts down, or cannot read the payload's format. Not charged."""

    delay: float = 0.0


Outcome = Succeeded | Raised | TimedOut | Undecodable | Snoozed | Throttled | Stopped | Crashed | Waits | Interrupted
