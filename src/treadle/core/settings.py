"""Settings of a queue: what each may be, how it is written and read, and how the row keeps it.

One table, `SETTINGS`, from which the check of `app.queues.set`, the flags of `treadle queues set`, the keys of a queue
in treadle.toml and the page of the documentation are made. A value is checked here, once, before anything is written:
a setting that a storage holds is sound, unless somebody wrote to the database by hand; then the built-in counts.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypedDict, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from . import duration, names
from .duration import Duration, seconds
from .job import NO_TIMEOUT, QueueChange, RetryOverride
from .queue import FOR_EVER, Queue

# What aging means for whoever only says that it should be on.
AGING: Final = 60.0
MOST_WORKERS: Final = 1_000_000
HIGHEST_RATE: Final = 1_000_000.0
CURVES: Final = ("exponential", "fixed", "linear")
SHORTEST, LONGEST = 1.0, 86_400.0  # of the curves: from a second to a day

_RATE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*/\s*([0-9]*)\s*([smhd])")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_Positive = Annotated[float, Meta(gt=0, le=duration.LONGEST)]
_Bounded = Annotated[float, Meta(ge=SHORTEST, le=LONGEST)]
_AtOnceOrBounded = Annotated[float, Meta(ge=0, le=LONGEST)]
_Kept = Annotated[float, Meta(ge=FOR_EVER, le=duration.LONGEST)]


class QueueSettings(TypedDict, total=False):
    """The settings of a queue as keywords. None is the built-in; what is left out stays as it is."""

    max_workers: int | UnsetType | None
    rate: float | str | None
    burst: int | None
    aging: Duration | bool | None
    timeout: Duration | None
    max_attempts: int | None
    backoff: Literal["exponential", "fixed", "linear"] | None
    backoff_base: Duration | None
    backoff_cap: Duration | None
    cool_base: Duration | None
    cool_cap: Duration | None
    keep_succeeded: Duration | None
    keep_failed: Duration | None
    keep_cancelled: Duration | None


class Setting(Struct, frozen=True, kw_only=True):
    """One live setting: what people read of it, and what may be written."""

    name: str  # of the keyword, of the flag and of the key in treadle.toml
    says: str
    built_in: str  # what counts while it is not set
    example: str
    read: Callable[[Any], Any]  # a value as people write it → as the row keeps it; ValueError
    words: Callable[[Any], str] = str


def _number(what: str, low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        found = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
        if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
            raise ValueError(f"{what} must be a whole number from {low} to {high:,}, not {_shown(value)}")
        return found

    return read


def rate(value: object) -> float:
    """So many a second: a number, or text such as "100/m", "5/s", "1000/h".

    >>> rate("90/m")
    1.5
    """
    given, found = value, math.nan
    if isinstance(given, str):
        if match := _RATE.fullmatch(given.strip()):
            over = float(match[2] or 1) * _UNITS[match[3]]
            found = float(match[1]) / over if over else math.nan
        elif re.fullmatch(r"[0-9]+(\.[0-9]+)?", given.strip()):
            found = float(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        found = float(given)
    if not 0 < found <= HIGHEST_RATE:
        raise ValueError(
            f'rate must be above zero and at most {HIGHEST_RATE:,.0f} a second, for example "100/m" or 2.5 (a second), '
            f"not {_shown(value)}; to stop a queue, pause it"
        )
    return found


def rate_words(value: float) -> str:
    """The rate as people write it, in the unit that gives the smallest whole number.

    >>> rate_words(1.5)
    '90/m'
    """
    for unit, size in _UNITS.items():
        count = value * size
        if count >= 1 and math.isclose(count, round(count), rel_tol=1e-9):
            return f"{round(count)}/{unit}"
    return f"{value:g}/s"


def _aging(value: object) -> float | None:
    if value is True or value == "on":
        return AGING
    if value is False or value == "off":
        return None
    found = seconds(cast("Duration", value), "aging")
    if found == 0:
        raise ValueError('aging must be longer than zero; "off" switches it off')
    return found


def _timeout(value: object) -> float:
    if value == "off":
        return NO_TIMEOUT
    found = seconds(cast("Duration", value), "timeout")
    if found == 0:
        raise ValueError('timeout must be longer than zero; "off" lets jobs run for ever')
    return found


def _bounded(what: str, *, at_once: bool = False) -> Callable[[object], float]:
    """From a second to a day; `at_once`: or zero, which nobody gets by leaving something out."""

    def read(value: object) -> float:
        found = seconds(cast("Duration", value), what)
        if not SHORTEST <= found <= LONGEST and not (at_once and found == 0):
            zero = ", or 0 for at once" if at_once else ""
            raise ValueError(f"{what} must be from 1s to 24h{zero}, not {duration.words(found)}")
        return found

    return read


def _curve(value: object) -> str:
    if not isinstance(value, str) or value not in CURVES:
        raise ValueError(f"backoff must be one of {', '.join(CURVES)}, not {_shown(value)}")
    return value


def _kept(what: str) -> Callable[[object], float]:
    def read(value: object) -> float:
        if value == "forever":
            return FOR_EVER
        if isinstance(value, str) and value.strip().lower() == "none":
            raise ValueError(f'{what}: say "forever" to keep them without end, or "default" for the built-in')
        return seconds(cast("Duration", value), what)

    return read


def _kept_words(value: float) -> str:
    return "forever" if value == FOR_EVER else duration.words(value)


def _timeout_words(value: float) -> str:
    return "off" if value == NO_TIMEOUT else duration.words(value)


SETTINGS: Final = (
    Setting(
        name="max_workers",
        says="jobs that may run at once in the whole cluster; 0 claims nothing",
        built_in="no limit",
        example="10",
        read=_number("max_workers", 0, MOST_WORKERS),
    ),
    Setting(
        name="rate",
        says="claims in a time, in the whole cluster",
        built_in="no limit",
        example="100/m",
        read=rate,
        words=rate_words,
    ),
    Setting(
        name="burst",
        says="how many may come at once after a rest",
        built_in="what the rate gives in a second",
        example="20",
        read=_number("burst", 1, MOST_WORKERS),
    ),
    Setting(
        name="aging",
        says="a waiting job gains one step of priority every so often",
        built_in="off",
        example="60s",
        read=_aging,
        words=duration.words,
    ),
    Setting(
        name="timeout",
        says="of an attempt, for jobs whose caller gave none; `off` for no limit",
        built_in="the task's",
        example="10m",
        read=_timeout,
        words=_timeout_words,
    ),
    Setting(
        name="max_attempts",
        says="for jobs whose caller gave none",
        built_in="the task's",
        example="5",
        read=_number("max_attempts", 1, names.MOST_ATTEMPTS),
    ),
    Setting(
        name="backoff",
        says="curve of the retry delays: exponential, linear or fixed",
        built_in="the task's",
        example="linear",
        read=_curve,
    ),
    Setting(
        name="backoff_base",
        says="first retry delay; 0 to try again at once",
        built_in="the task's",
        example="30s",
        read=_bounded("backoff_base", at_once=True),
        words=duration.words,
    ),
    Setting(
        name="backoff_cap",
        says="longest retry delay",
        built_in="the task's",
        example="2h",
        read=_bounded("backoff_cap"),
        words=duration.words,
    ),
    Setting(
        name="cool_base",
        says="first cool-down after a Throttle",
        built_in="5s",
        example="10s",
        read=_bounded("cool_base"),
        words=duration.words,
    ),
    Setting(
        name="cool_cap",
        says="longest cool-down, unless a Throttle asks for more",
        built_in="30m",
        example="1h",
        read=_bounded("cool_cap"),
        words=duration.words,
    ),
    Setting(
        name="keep_succeeded",
        says="how long a job is kept after its end; `forever`, or 0 for the next pass",
        built_in="7d",
        example="30d",
        read=_kept("keep_succeeded"),
        words=_kept_words,
    ),
    Setting(
        name="keep_failed",
        says="the same for jobs that failed",
        built_in="30d",
        example="forever",
        read=_kept("keep_failed"),
        words=_kept_words,
    ),
    Setting(
        name="keep_cancelled",
        says="the same for jobs that were cancelled",
        built_in="7d",
        example="1d",
        read=_kept("keep_cancelled"),
        words=_kept_words,
    ),
)
BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
# Keyword → field of the RetryOverride: together they are one value of the row.
RETRY: Final = {
    "max_attempts": "max_attempts",
    "backoff": "curve",
    "backoff_base": "base",
    "backoff_cap": "cap",
}


def read(given: Mapping[str, object]) -> dict[str, Any]:
    """Settings as people write them → as a row keeps them. None and "default" are the built-in; UNSET is left out."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in BY_NAME:
            near = names.suggest(name, BY_NAME)
            raise ValueError(f"a queue has no setting {name!r}" + (f"; did you mean {near}?" if near else ""))
        if value is UNSET:
            continue
        is_built_in = value is None or (isinstance(value, str) and value.strip().lower() == "default")
        found[name] = None if is_built_in else BY_NAME[name].read(value)
    check_pairs(found)
    return found


def check_pairs(found: Mapping[str, Any]) -> None:
    """Settings that make sense alone, but not together."""
    for base, cap in (("backoff_base", "backoff_cap"), ("cool_base", "cool_cap")):
        if (found.get(base) or 0.0) > (found.get(cap) or math.inf):
            raise ValueError(f"{base} must not be longer than {cap}")


def is_partial(settings: Iterable[str]) -> bool:
    """Whether an edit needs the row first: the parts of the retry override are one value there."""
    return not RETRY.keys().isdisjoint(settings)


def change(name: str, settings: Mapping[str, Any], version: int | None, now: RetryOverride | None) -> QueueChange:
    """The edit that makes these (checked) settings so; `now` is the retry override that is in force."""
    plain = {key: value for key, value in settings.items() if key not in RETRY}
    parts = {RETRY[key]: value for key, value in settings.items() if key in RETRY}
    if parts:
        override = msgspec.structs.replace(now or RetryOverride(), **parts)
        if (override.base or 0.0) > (override.cap or math.inf):
            raise ValueError("backoff_base must not be longer than backoff_cap")
        plain["retry"] = None if override == RetryOverride() else override
    return QueueChange(name=name, version=version, **plain)


def values(queue: Queue) -> dict[str, Any]:
    """Every setting of a row by its name here; None where the built-in counts."""
    found = {setting.name: getattr(queue, setting.name, None) for setting in SETTINGS}
    if queue.retry is not None:
        found |= {key: getattr(queue.retry, field) for key, field in RETRY.items()}
    return found


def words(name: str, value: Any) -> str:
    """A setting as people write it; where the built-in counts, what that is."""
    return BY_NAME[name].built_in if value is None else BY_NAME[name].words(value)


# In a row ------------------------------------------------------------------------------------------------------------


class _Retry(Struct, omit_defaults=True):
    max_attempts: Annotated[int, Meta(ge=1, le=names.MOST_ATTEMPTS)] | None = None
    base: _AtOnceOrBounded | None = None
    cap: _Bounded | None = None
    curve: Literal["exponential", "fixed", "linear"] | None = None


class _Stored(Struct, omit_defaults=True):
    """The settings that no statement of a storage tests, as one JSON text beside those that have their own columns."""

    rate: Annotated[float, Meta(gt=0, le=HIGHEST_RATE)] | None = None
    burst: Annotated[int, Meta(ge=1, le=MOST_WORKERS)] | None = None
    aging: _Positive | None = None
    timeout: Annotated[float, Meta(ge=0, le=duration.LONGEST)] | None = None
    retry: _Retry | None = None
    cool_base: _Bounded | None = None
    cool_cap: _Bounded | None = None
    keep_succeeded: _Kept | None = None
    keep_failed: _Kept | None = None
    keep_cancelled: _Kept | None = None


_FIELDS: Final = tuple(each for each in _Stored.__struct_fields__ if each != "retry")
_as_stored: Final = msgspec.json.Decoder(_Stored).decode
_to_json: Final = msgspec.json.Encoder().encode


def text_of(queue: Queue) -> str | None:
    """The settings of a row that have no column of their own; None: all are built in."""
    stored = _Stored(**{name: getattr(queue, name) for name in _FIELDS})
    if queue.retry is not None:
        stored.retry = _Retry(**{name: getattr(queue.retry, name) for name in RETRY.values()})
    text = _to_json(stored).decode()
    return None if text == "{}" else text


@functools.lru_cache(1_000)
def of_text(text: str) -> Mapping[str, Any]:
    """The fields of a Queue that the text holds. Damaged, it holds none: the built-in settings let everything go on."""
    try:
        stored = _as_stored(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    found = {name: value for name in _FIELDS if (value := getattr(stored, name)) is not None}
    if stored.retry is not None:
        found["retry"] = RetryOverride(**{name: getattr(stored.retry, name) for name in RETRY.values()})
    return found


def _shown(value: object) -> str:
    return ascii(value)[:60] if isinstance(value, str | int | float) else f"a value of type {type(value).__name__}"
