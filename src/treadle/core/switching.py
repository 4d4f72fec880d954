"""How long a thread of a worker process keeps the interpreter before another may have it (ADR 11).

Short is right beside a busy event loop: the Heart and SQLite's writer must not wait. But every thread that waits for
the interpreter wakes up once per interval: with fifty plain functions that compute, a tenth of a millisecond makes half
a million wakes a second, for which the jobs pay (ADR 31 has the figures). So while many threads compute, the interval
grows with their number.
"""

from __future__ import annotations

from typing import Final

SHORTEST: Final = 0.0001  # seconds
LONGEST: Final = 0.002
FEW: Final = 8  # so many threads share the interpreter well at the shortest interval
COMPUTING: Final = 0.5  # of a processor: from here on the threads are taken to compute, and not to wait


def interval(busy: int, used: float) -> float:
    """For `busy` threads with a plain function; all threads but the loop's `used` so much of a processor."""
    if busy <= FEW or used < COMPUTING:
        return SHORTEST
    return min(LONGEST, busy * SHORTEST / 5)
