"""Drain: when what is ready in a queue will have run, or why it will not.

From the net flow of the last minutes: what came in and what ended, over the time that was really watched. A queue that
was empty until two minutes ago is judged by these two minutes. What will hold it up is known beforehand: a pause or a
cool-down with its end is waited for, a rate bounds the pace, and where nothing can run at all the reason is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

from msgspec import Struct

from .series import PairSeries
from .view import QueueView

OVER: Final = 300.0  # seconds that are looked back
LEAST_WATCHED: Final = 10.0  # a minute that began a moment ago tells no pace
STEADY: Final = 0.5 / 60  # a second: what grows or shrinks by less than half a job a minute does neither
UNSERVED: Final = "no worker serves it"
# How runs end after which a job is no longer in the queue.
ENDS: Final = ("succeeded", "failed", "cancelled")


class Flow(Struct, frozen=True):
    """What moved in a queue of late, in jobs a second."""

    out: float = 0.0  # ended for good
    growth: float | None = None  # of what is ready; None: it was not noted


class Drain(Struct, frozen=True):
    """`in`: after `seconds`; `grows`: by `per_minute`; `never`, or `unknown`, with the `reason`; `empty`: nothing is
    ready."""

    kind: Literal["empty", "in", "grows", "steady", "never", "unknown"]
    seconds: float = 0.0
    per_minute: float = 0.0
    reason: str = ""


def drain(queue: QueueView, flow: Flow, now: datetime) -> Drain:
    if not queue.ready:
        return Drain("empty")
    if reason := _stands_still(queue):
        return Drain("never", reason=reason)
    pace = flow.out
    if queue.rate is not None:
        # A rate so slow that nothing need have ended while it was watched is the pace.
        pace = min(pace, queue.rate) if pace or queue.rate * OVER >= 1 else queue.rate
    if not pace:
        return Drain("unknown", reason="nothing has ended in the last minutes")
    coming = 0.0 if flow.growth is None else max(0.0, flow.growth + flow.out)
    net = pace - coming
    if coming and net <= STEADY:
        return Drain("steady") if net > -STEADY else Drain("grows", per_minute=-net * 60)
    held = _held_for(queue, now)
    seconds = held + (queue.ready + coming * held) / net
    return Drain("in", seconds=seconds)


def seconds(found: Drain) -> float:
    """As one number, for metrics: infinity where it grows, does not shrink, never drains or cannot be told."""
    return 0.0 if found.kind == "empty" else found.seconds if found.kind == "in" else float("inf")


def seconds_to_scale_by(found: Drain, most: float) -> float:
    """As one number for autoscalers, no more than `most`. A queue that somebody has stopped is as good as empty to
    them: more workers would not run anything of it."""
    if found.kind == "never" and found.reason != UNSERVED:
        return 0.0
    return min(most, seconds(found))


def _stands_still(queue: QueueView) -> str:
    if queue.paused and queue.paused_until is None:
        return "paused"
    if not queue.pods:
        return UNSERVED
    if queue.max_workers == 0:
        return "max_workers is 0"
    return "its rate is 0" if queue.rate == 0 else ""


def _held_for(queue: QueueView, now: datetime) -> float:
    ends = [queue.paused_until if queue.paused else None, queue.cool_until]
    return max([0.0, *((at - now).total_seconds() for at in ends if at is not None)])


def flow(
    pairs: Iterable[PairSeries],
    ready: Sequence[tuple[datetime, int | None]],
    left: int,
    now: datetime,
    began: datetime | None = None,
) -> Flow:
    """The flow of a queue. `pairs` are its roll-ups by the minute, `ready` is what was noted of its depth, and so many
    are `left` now. A minute in which all `began` was watched from then on."""
    minutes: dict[datetime, int] = {}
    for pair in pairs:
        for point in pair.series.points:
            if (now - point.at).total_seconds() < OVER + pair.series.step:
                ended = sum(point.outcomes.get(each, 0) for each in ENDS)
                minutes[point.at] = minutes.get(point.at, 0) + ended
    busy = [at for at, ended in minutes.items() if ended]
    if not busy:
        return Flow(growth=_growth(ready, left, now, None))
    first = min(busy)
    since = first if began is None else max(first, began)
    watched = max(LEAST_WATCHED, (now - since).total_seconds())
    return Flow(out=sum(minutes.values()) / watched, growth=_growth(ready, left, now, since))


def began(pairs: Iterable[PairSeries], starts: Iterable[datetime]) -> datetime | None:
    """Since when anything has been watched, as far as these roll-ups by the minute tell; None: nothing has run. In the
    first minute itself it was when the first pod started."""
    busy = [(point.at, pair.series.step) for pair in pairs for point in pair.series.points if point.outcomes]
    if not busy:
        return None
    first, step = min(busy)
    return min((at for at in starts if 0 <= (at - first).total_seconds() < step), default=first)


def per_minute(
    pairs: Iterable[PairSeries], now: datetime, began: datetime | None = None, of: Sequence[str] = ENDS
) -> float:
    """Jobs that ended for good, a minute, over the last five and what has begun of this one; over less if all `began`
    later."""
    ended, first = 0, now
    for pair in pairs:
        for point in pair.series.points:
            if (now - point.at).total_seconds() < OVER + pair.series.step:
                ended += sum(point.outcomes.get(each, 0) for each in of)
                first = min(first, point.at)
    since = first if began is None else max(first, began)
    return ended * 60 / max(LEAST_WATCHED, (now - since).total_seconds())


def _growth(
    ready: Sequence[tuple[datetime, int | None]], left: int, now: datetime, since: datetime | None
) -> float | None:
    noted = [
        ((now - at).total_seconds(), number)
        for at, number in ready
        if number is not None and (now - at).total_seconds() >= LEAST_WATCHED and (since is None or at >= since)
    ]
    within = [each for each in noted if each[0] <= OVER]
    if not within:
        return None
    age, number = max(within)
    return (left - number) / age
