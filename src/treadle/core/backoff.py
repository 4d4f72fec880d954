"""How long until the next attempt, and whether there is one.

The curve is capped first and jittered after, so that jobs which failed together do not come back together even at the
cap. How many attempts a job has is not decided here: `lifecycle` compares `attempt` with the job's own `max_attempts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import iscoroutinefunction
from typing import Final, Literal, Self, TypeAlias, cast

from .duration import Duration, seconds
from .job import RetryOverride
from .names import check_attempts
from .outcome import Elsewhere

ExceptionClass: TypeAlias = type[BaseException]
ExceptionClasses: TypeAlias = tuple[ExceptionClass, ...] | ExceptionClass
_Classes: TypeAlias = tuple[ExceptionClass, ...]  # as a Retry keeps them
Curve: TypeAlias = Literal["exponential", "fixed", "linear", "custom"]
Function: TypeAlias = Callable[[int, BaseException | None], Duration | None]

# factor ** n stays below e ** 700, which a float can hold.
_LARGEST_LOGARITHM: Final = 700.0
_LARGEST_ATTEMPT: Final = 10**9
_NO_JITTER: Final = 0.5


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a task is tried, and how long it rests in between: exponential, if nothing else is said.

    The delay after the n-th attempt is base · factor^(n−1), at most `cap`, give or take `jitter` of itself. With
    `retry_on`, only these exceptions are retried; `give_up_on` wins over it. Both match as `except` does, and do not
    concern a run that ended without an exception (its pod was lost).

    >>> Retry(max_attempts=5, base="10s", give_up_on=KeyError).cap
    3600.0
    """

    max_attempts: int = 10
    base: Duration = 5.0
    factor: float = 2.0
    cap: Duration = 3600.0
    jitter: float = 0.25
    retry_on: ExceptionClasses | None = None
    give_up_on: ExceptionClasses = ()
    curve: Curve = "exponential"
    function: Function | None = None

    def __new__(cls, *_: object, **options: object) -> Self:
        if unknown := options.keys() - cls.__dataclass_fields__.keys():
            from .hints import unknown_option

            raise TypeError(unknown_option("Retry", min(unknown), cls.__dataclass_fields__, at="Retry"))
        return object.__new__(cls)

    def __post_init__(self) -> None:
        check_attempts(self.max_attempts)
        for name in ("base", "cap"):
            object.__setattr__(self, name, seconds(getattr(self, name), f"retry {name}"))
        if not _is_number(self.factor) or not 1 <= self.factor < math.inf:
            raise ValueError(f"retry factor must be a number of at least 1, not {self.factor!r}")
        if not _is_number(self.jitter) or not 0 <= self.jitter < 1:
            raise ValueError(f"retry jitter must be at least 0 and below 1, not {self.jitter!r}")
        if self.retry_on is not None:
            object.__setattr__(self, "retry_on", _classes("retry_on", self.retry_on))
        object.__setattr__(self, "give_up_on", _classes("give_up_on", self.give_up_on))
        if self.curve not in ("exponential", "fixed", "linear", "custom"):
            raise ValueError(f"retry curve must be exponential, fixed, linear or custom, not {self.curve!r}")
        if (self.curve == "custom") != (self.function is not None):
            raise ValueError("retry: a custom curve and its function need each other; use Retry.custom(function)")
        if self.function is not None and (not callable(self.function) or iscoroutinefunction(self.function)):
            raise ValueError("retry function must be a plain function of (attempt, exception)")

    @staticmethod
    def none() -> Retry:
        """One attempt, and no other."""
        return Retry(max_attempts=1, base=0.0, jitter=0.0, curve="fixed")

    @staticmethod
    def fixed(
        delay: Duration,
        max_attempts: int = 10,
        *,
        jitter: float = 0.25,
        retry_on: ExceptionClasses | None = None,
        give_up_on: ExceptionClasses = (),
    ) -> Retry:
        """The same delay after each attempt, however long: `cap` is for delays that grow."""
        return Retry(max_attempts, delay, jitter=jitter, retry_on=retry_on, give_up_on=give_up_on, curve="fixed")

    @staticmethod
    def linear(
        step: Duration,
        max_attempts: int = 10,
        *,
        cap: Duration = 3600.0,
        jitter: float = 0.25,
        retry_on: ExceptionClasses | None = None,
        give_up_on: ExceptionClasses = (),
    ) -> Retry:
        """step · n after the n-th attempt, at most `cap`."""
        return Retry(max_attempts, step, 1.0, cap, jitter, retry_on, give_up_on, "linear")

    @staticmethod
    def exponential(
        base: Duration = 5.0,
        factor: float = 2.0,
        cap: Duration = 3600.0,
        max_attempts: int = 10,
        *,
        jitter: float = 0.25,
        retry_on: ExceptionClasses | None = None,
        give_up_on: ExceptionClasses = (),
    ) -> Retry:
        """The default curve, with its numbers first."""
        return Retry(max_attempts, base, factor, cap, jitter, retry_on, give_up_on)

    @staticmethod
    def custom(
        function: Function,
        max_attempts: int = 10,
        *,
        retry_on: ExceptionClasses | None = None,
        give_up_on: ExceptionClasses = (),
    ) -> Retry:
        """`function(attempt, exception)` answers with the exact delay, or None to give up.

        If it raises, or answers with anything else, the default curve is used and the job carries a warning.
        """
        return Retry(max_attempts, retry_on=retry_on, give_up_on=give_up_on, curve="custom", function=function)


def override(retry: Retry, live: RetryOverride | None) -> Retry:
    """The rule under a queue's live override. Which exceptions are retried stays the task's affair.

    A curve that the operator changes in part needs one to be changed: a task's own function, and a task that is tried
    once (whose delay is none), give way to the default curve.
    """
    if live is None:
        return retry
    attempts = retry.max_attempts if live.max_attempts is None else live.max_attempts
    curved = (live.base, live.cap, live.curve) != (None, None, None)
    replaces = (curved and retry.curve == "custom") or (attempts > 1 and retry.max_attempts == 1)
    own = Retry(retry_on=retry.retry_on, give_up_on=retry.give_up_on) if replaces else retry
    return replace(
        own,
        max_attempts=attempts,
        base=own.base if live.base is None else live.base,
        cap=own.cap if live.cap is None else live.cap,
        curve=own.curve if live.curve is None else live.curve,
    )


@dataclass(frozen=True, slots=True)
class Decision:
    """`delay` in seconds, or None: give up. `warning` is for the job, if something about the rule was wrong."""

    delay: float | None
    warning: str | None = None


def delay(retry: Retry, attempt: int, chance: float) -> float:
    """Seconds to rest after the n-th attempt; `chance` in [0, 1) chooses within the jitter."""
    return _capped(retry, max(attempt, 1)) * (1 + retry.jitter * (2 * chance - 1))


def decide(retry: Retry, attempt: int, exception: BaseException | None, chance: float) -> Decision:
    """What follows a failed attempt, as far as the rule can say: the attempts may be used up all the same."""
    if exception is not None:
        if _is_one_of(exception, retry.give_up_on):
            return Decision(None)
        if retry.retry_on is not None and not _is_one_of(exception, retry.retry_on):
            return Decision(None)
    if retry.function is None:
        return Decision(delay(retry, attempt, chance))
    try:
        answer = retry.function(attempt, exception)
    except BaseException as error:  # not even a SystemExit in somebody's rule may end the pod
        wrong = f"raised {type(error).__name__}"
    else:
        try:
            return Decision(None if answer is None else seconds(answer))
        except ValueError:
            wrong = f"answered with a {type(answer).__name__} that is no duration (ValueError)"
    return Decision(delay(retry, attempt, chance), f"the retry function {wrong}: the default curve was used")


def table(retry: Retry) -> list[tuple[int, float]]:
    """(attempt, delay after it without jitter) for each attempt but the last: what the documentation shows."""
    rows: list[tuple[int, float]] = []
    for attempt in range(1, retry.max_attempts):
        rest = decide(retry, attempt, None, _NO_JITTER).delay
        if rest is None:
            break
        rows.append((attempt, rest))
    return rows


def _is_one_of(exception: BaseException, classes: ExceptionClasses) -> bool:
    """As `except` matches; one that was raised in another process is known by the names of its classes."""
    if not isinstance(exception, Elsewhere):
        return isinstance(exception, classes)
    return any(f"{each.__module__}.{each.__qualname__}" in exception.types for each in cast("_Classes", classes))


def _capped(retry: Retry, attempt: int) -> float:
    base, cap = cast("float", retry.base), cast("float", retry.cap)
    if retry.curve == "fixed":
        return base
    if retry.curve == "linear":
        return min(base * min(attempt, _LARGEST_ATTEMPT), cap)
    # Clamped before the power is taken: 2.0 ** 1024 does not give infinity, it raises.
    exponent = min(attempt - 1, _LARGEST_LOGARITHM / (math.log(retry.factor) or 1.0))
    growth: float = retry.factor**exponent
    return min(base * growth, cap)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _classes(name: str, given: ExceptionClasses) -> tuple[ExceptionClass, ...]:
    classes = given if isinstance(given, tuple) else (given,)
    for each in cast("tuple[object, ...]", classes):
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise ValueError(f"retry {name} must be an exception class or a tuple of them, not {each!r}")
    return classes
