"""Queue: a named lane with live settings, and the arithmetic of its cool-down.

A missing row means the built-in settings: a queue exists as soon as somebody enqueues to it or serves it.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from .job import NO_TIMEOUT, Job, QueueChange, RetryOverride, State
from .names import HIGHEST_PRIORITY

COOL_BASE: Final = 5.0
COOL_CAP: Final = 1800.0
MAX_EXPONENT: Final = 30
# A success this long after the end of a cool-down proves the far side well again.
COOL_CLEAR_AFTER: Final = 120.0
DAY: Final = 86_400.0
# How long ended jobs are kept where the queue's row says nothing.
KEEP: Final = {State.SUCCEEDED: 7 * DAY, State.CANCELLED: 7 * DAY, State.FAILED: 30 * DAY}
# In a row of retention: kept without end. (None means the built-in, as in every setting.)
FOR_EVER: Final = -1.0


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
    rate: float | None = None  # claims a second, of the whole cluster; None: no limit
    burst: int | None = None  # how many may come at once after a rest; None: what a second gives, at least 1
    aging: float | None = None  # one step of priority for every so many seconds of waiting; None: off
    timeout: float | None = None  # replaces that of jobs whose caller gave none
    retry: RetryOverride | None = None
    cool_base: float | None = None
    cool_cap: float | None = None
    keep_succeeded: float | None = None  # seconds; None: the built-in; FOR_EVER; 0: goes with the next pass
    keep_failed: float | None = None
    keep_cancelled: float | None = None


SETTINGS: Final = (
    "paused",
    "paused_by",
    "pause_reason",
    "paused_until",
    "max_workers",
    "cool_until",
    "rate",
    "burst",
    "aging",
    "timeout",
    "retry",
    "cool_base",
    "cool_cap",
    "keep_succeeded",
    "keep_failed",
    "keep_cancelled",
)


COUNTED: Final = frozenset({"ready", "scheduled", "running"})
"""The states whose jobs are counted to the last one."""


class QueueStats(Struct, frozen=True, kw_only=True):
    """A queue with its counts, as operators read it. Those of `COUNTED` states are exact; those of waiting and of ended
    jobs stop at `capped_at`. Where there are thousands, a storage may tell a number that is up to ten seconds old."""

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


def aged(priority: int, run_at: float, aging: float | None, now: float) -> int:
    """The priority by which a due job is claimed: one step more for every `aging` seconds that it has waited."""
    if aging is None:
        return priority
    return int(min(HIGHEST_PRIORITY, priority + max(0.0, now - run_at) // aging))


def timeout_of(timeout: float | None, pinned: bool, live: float | None) -> float | None:
    """The timeout of an attempt: the queue's live setting replaces one that the caller did not choose."""
    return timeout if pinned or live is None else live


def as_claimed(job: Job) -> Job:
    """A running job with the timeout that its claim gave it: the row keeps the caller's, and the deadline."""
    if job.deadline is None:
        timeout = NO_TIMEOUT if job.timeout else job.timeout
    else:
        timeout = round(job.deadline - (job.started_at or 0.0), 3)
    same = timeout == job.timeout or (timeout and job.timeout and abs(timeout - job.timeout) < 0.001)
    return job if same else msgspec.structs.replace(job, timeout=timeout)


def cool(queue: Queue, hint: float | None, now: float) -> tuple[float, int]:
    """The queue's (cool_until, exponent) after one more Throttle.

    The exponent rises once per window: ten pods that meet the same refusal together must not multiply the wait by a
    thousand. Inside the window a larger hint may still lengthen it.
    """
    if queue.cool_until is not None and queue.cool_until > now:
        return max(queue.cool_until, now + (hint or 0.0)), queue.cool_exponent
    base = COOL_BASE if queue.cool_base is None else queue.cool_base
    cap = COOL_CAP if queue.cool_cap is None else queue.cool_cap
    curve = min(base * 2 ** min(queue.cool_exponent, MAX_EXPONENT), cap)
    return now + max(curve, hint or 0.0), min(queue.cool_exponent + 1, MAX_EXPONENT)


def is_warmed(queue: Queue, change: QueueChange, now: float) -> bool:
    """Whether an edit ends a cool-down that is under way: what it has thrown back until its end is then due at once.
    (That is what was throttled and is due within it; what is scheduled for later, or never was throttled, stays.)"""
    return change.cool_until is None and queue.cool_until is not None and queue.cool_until > now


def is_recovered(queue: Queue, now: float) -> bool:
    """A success now would clear the exponent. Asked only while it is above zero, so a healthy queue's row rests."""
    return queue.cool_exponent > 0 and now >= (queue.cool_until or 0.0) + COOL_CLEAR_AFTER


def edit(queue: Queue, change: QueueChange, now: float) -> Queue:
    """The row after an operator's edit. The caller has compared the versions."""
    fields: dict[str, Any] = {name: value for name in SETTINGS if (value := getattr(change, name)) is not UNSET}
    if change.paused is True:  # a new pause inherits nothing from the last, least of all its end
        fields = {"paused_by": None, "pause_reason": None, "paused_until": None} | fields | {"paused_at": now}
    elif change.paused is False:
        fields |= {"paused_at": None, "paused_by": None, "pause_reason": None, "paused_until": None}
    if change.cool_until is None:
        fields["cool_exponent"] = 0
    return msgspec.structs.replace(queue, version=queue.version + 1, **fields)


def kept(queue: Queue | None, state: State) -> float | None:
    """For how many seconds after its end a job of this queue is kept; None: for ever."""
    chosen = None
    if queue is not None:
        chosen = {
            State.SUCCEEDED: queue.keep_succeeded,
            State.FAILED: queue.keep_failed,
            State.CANCELLED: queue.keep_cancelled,
        }[state]
    found = KEEP[state] if chosen is None else chosen
    return None if found == FOR_EVER else found
