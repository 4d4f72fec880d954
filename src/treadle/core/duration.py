"""How long: seconds, a timedelta, or text such as "1h30m" become seconds, or are refused where they were written.

Text is strict on purpose. "1h30" or "30m1h" is more likely a slip than a wish, and a slip in a timeout or a retry
delay shows itself only weeks later, in production.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final, TypeAlias, cast

Duration: TypeAlias = float | int | timedelta | str

# One century. A longer wait is a mistake of units, and would overflow the instants that storages can keep.
LONGEST: Final = 36_525 * 86_400.0

_UNITS: Final = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_ORDER: Final = list(_UNITS)
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_TEXT: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?[^0-9.\s]+)+")
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([^0-9.\s]+)")
_LONGEST_TEXT: Final = 64
_EXAMPLE: Final = 'for example 90, timedelta(minutes=5) or "1h30m"'


def seconds(value: Duration, name: str = "duration") -> float:
    """The duration in seconds; ValueError, which calls the value by `name`, if it is none.

    >>> seconds("1h30m")
    5400.0
    """
    given = cast("object", value)  # callers without a type checker send anything
    if isinstance(given, str):
        found = _parse(given, name)
    elif isinstance(given, timedelta):
        found = given.total_seconds()
    elif isinstance(given, float | int) and not isinstance(given, bool):
        found = given
    else:
        raise ValueError(
            f"{name} must be a number of seconds, a timedelta or text, not {type(value).__name__}: {_EXAMPLE}"
        )
    if found != found:  # NaN, of a float subclass too; math.isnan would overflow on a huge int
        raise ValueError(f"{name} is not a number: {_EXAMPLE}")
    if found < 0:
        raise ValueError(f"{name} must not be negative: {_EXAMPLE}")
    if found > LONGEST:
        raise ValueError(f"{name} must be at most 100 years: {_EXAMPLE}")
    return found + 0.0  # an int becomes a float, and -0.0 becomes 0.0


def words(seconds: float) -> str:
    """The duration as people write it, to the millisecond: "1h30m", "45s", "250ms", "0s".

    Days are the largest unit: "30d" says more than "4w2d". What it says, `seconds` reads again; only a negative
    value (a clock that was set back) gets a minus sign that `seconds` refuses.

    >>> words(5400.0)
    '1h30m'
    """
    if not math.isfinite(seconds * 1000):
        return str(seconds)
    if seconds < 0:
        return f"-{words(-seconds)}"
    left = round(seconds * 1000)
    if 0 < left < 1000:
        return f"{left}ms"
    said = ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        count, left = divmod(left, size)
        if count:
            said += f"{count}{unit}"
    if left or not said:
        whole, thousandths = divmod(left, 1000)
        said += f"{whole}.{thousandths:03}".rstrip("0").rstrip(".") + "s"
    return said


def _parse(text: str, name: str) -> float:
    stripped = text.strip()
    if not stripped:
        raise ValueError(f"{name} is empty: {_EXAMPLE}")
    if len(stripped) > _LONGEST_TEXT:
        raise ValueError(f"{name} is longer than {_LONGEST_TEXT} characters: {_EXAMPLE}")
    if _NUMBER.fullmatch(stripped):
        return float(stripped)
    if stripped.startswith("-"):
        raise ValueError(f"{name} must not be negative: {_EXAMPLE}")
    if not _TEXT.fullmatch(stripped):
        raise ValueError(f"{name} {stripped!r} is not a duration: {_EXAMPLE}")
    total, last = 0.0, -1
    for count, unit in _PART.findall(stripped):
        if unit not in _UNITS:
            raise ValueError(f"{name} {stripped!r} has the unknown unit {unit!r} (w d h m s ms): {_EXAMPLE}")
        rank = _ORDER.index(unit)
        if rank <= last:
            raise ValueError(f"{name} {stripped!r} must name each unit once, the largest first: {_EXAMPLE}")
        total += float(count) * _UNITS[unit]
        last = rank
    return total
