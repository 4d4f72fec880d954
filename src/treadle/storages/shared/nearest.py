"""Values that somebody has damaged, as a reader is given them: the nearest that can be computed with. Instants lie in
the years 1 to 9999, as a datetime has them, and what is counted can be counted further."""

from __future__ import annotations

from typing import Final

FIRST: Final = -62135596800.0
AFTER_LAST: Final = 253402300800.0


def within(at: float) -> float:
    """An instant."""
    if FIRST <= at < AFTER_LAST:
        return at
    return FIRST if at < FIRST else AFTER_LAST - 1.0


def maybe_within(at: float | None) -> float | None:
    return None if at is None else within(at)


def countable(number: int, least: int, most: int) -> int:
    """A count."""
    return number if least <= number <= most else least if number < least else most
