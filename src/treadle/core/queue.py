"""Queue: a named lane with live settings, and the arithmetic of its cool-down.

A missing row means the built-in settings: a queue exists as soon as somebody enqueues to it or serves it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

COOL_BASE: Final = 5.0
COOL_CAP: Final = 1800.0
MAX_EXPONENT: Final = 30
# A success this long after the end of a cool-down proves the far side well again.
COOL_CLEAR_AFTER: Final = 120.0


class Queue(Struct, frozen=True, kw_only=True):
    """A queue's row: its live settings and where its cool-down stands."""

    name: str
    version: int = 0
    paused: bool = False
    paused_by: str | None = None
    paused_at: float | None = None
    pause_reason: str | None = None
    paused_until: float | None = None
    max_workers: int | None = None  # of the whole cluster; None: no limit
    cool_until: float | None = None
    cool_exponent: int = 0


class QueueStats(Struct, frozen=True, kw_only=True):
    """A queue with its counts, as operators read it. Counts of ended jobs stop at `capped_at`."""

    queue: Queue
    ready: int = 0
    scheduled: int = 0
    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    oldest_ready_seconds: float | None = None
    capped_at: int = 10_000


def gate(queue: Queue, now: float) -> float | None:
    """Until when nothing may be claimed from this queue; None if it is open, infinity if only a person can open it."""
    closed_until = 0.0
    if queue.paused:
        closed_until = queue.paused_until if queue.paused_until is not None else float("inf")
    if queue.cool_until is not None:
        closed_until = max(closed_until, queue.cool_until)
    return closed_until if closed_until > now else None


def cool(queue: Queue, hint: float | None, now: float) -> tuple[float, int]:
    """The queue's (cool_until, exponent) after one more Throttle.

    The exponent rises once per window: ten pods that meet the same refusal together must not multiply the wait by a
    thousand. Inside the window a larger hint may still lengthen it.
    """
    if queue.cool_until is not None and queue.cool_until > now:
        return max(queue.cool_until, now + (hint or 0.0)), queue.cool_exponent
    curve = min(COOL_BASE * 2 ** min(queue.cool_exponent, MAX_EXPONENT), COOL_CAP)
    return now + max(curve, hint or 0.0), min(queue.cool_exponent + 1, MAX_EXPONENT)


def is_recovered(queue: Queue, now: float) -> bool:
    """A success now would clear the exponent. Asked only while it is above zero, so a healthy queue's row rests."""
    return queue.cool_exponent > 0 and now >= (queue.cool_until or 0.0) + COOL_CLEAR_AFTER
