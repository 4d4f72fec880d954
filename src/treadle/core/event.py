"""Event: one line of a job's timeline; which of them are written, and how the others are read off the job itself.

A job that goes well writes no event at all. When it was enqueued, claimed and finished, and by which pod, stands in its
row, and how each attempt failed stands in its error history: `timeline` tells those lines from there. Written are only
the lines that the row forgets: that it was snoozed, throttled or given back, and what people did to it. A row per line
would have cost more than the job (docs/adr/0015).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

from .duration import words
from .job import Change, ErrorEntry, Job, State, Why

EventName = Literal[
    "enqueued",
    "claimed",
    "succeeded",
    "retried",
    "timed_out",
    "failed",
    "rescued",
    "cancelled",
    "snoozed",
    "throttled",
    "released",
    "cancel_asked",
    "revived",
    "rescheduled",
    "moved",
    "reprioritised",
    "replaced",
    "waiting",
    "answered",
]
MOST_BUFFERED: Final = 50_000
LONGEST_DETAIL: Final = 500
MOST_LINES: Final = 1_000

# A Change's reason → the line that is written for it. The others can be read off the row.
WRITTEN: Final[dict[Why, EventName]] = {
    "snoozed": "snoozed",
    "throttled": "throttled",
    "released": "released",
    "waits": "waiting",
    "cancel_asked": "cancel_asked",
    "revived": "revived",
    "rescheduled": "rescheduled",
    "moved": "moved",
    "reprioritised": "reprioritised",
}


class Event(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One line. The id is made by whoever writes it, so that it may be sent again; `at` is the storage's clock, and
    None before it is written means: when it is written."""

    id: str
    job: str
    what: EventName
    at: float | None = None
    attempt: int = 0
    pod: str | None = None
    started_at: float | None = None  # of the attempt that ended with it
    by: str | None = None  # whoever did it, where a person did
    detail: str = ""


def of_change(
    job: Job, change: Change, *, id: str, at: float | None = None, by: str | None = None, detail: str = ""
) -> Event | None:
    """The line to write about a Change that was accepted; None where the row itself remembers."""
    what = WRITTEN.get(change.why)
    if change.why == "cancelled" and by is not None:
        what = "cancelled"  # the row says that it was cancelled, and not by whom
    if what is None:
        return None
    ran = job.state is State.RUNNING
    return Event(
        id=id,
        job=job.id,
        what=what,
        at=at,
        attempt=job.attempt,
        pod=job.pod if ran else None,
        started_at=job.started_at if ran else None,
        by=None if by is None else clean(by),
        detail=clean(", ".join(part for part in (_detail(job, change), detail) if part)),
    )


def _detail(job: Job, change: Change) -> str:
    parts: list[str] = []
    if change.queue is not None:
        parts.append(f"from {job.queue} to {change.queue}")
    if change.priority is not None:
        parts.append(f"priority {change.priority}")
    if change.why != "released" and change.delay:
        parts.append(f"for {words(_rounded(change.delay))}")
    return ", ".join(parts)


def _rounded(seconds: float) -> float:
    return float(round(seconds)) if seconds >= 10 else round(seconds, 2)


def clean(text: str) -> str:
    """Text that every storage can hold, and not too much of it."""
    told = text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
    return told if len(told) <= LONGEST_DETAIL else told[: LONGEST_DETAIL - 1] + "…"


def timeline(job: Job, stored: Iterable[Event]) -> tuple[Event, ...]:
    """All lines about a job, oldest first."""
    written = [*stored]
    lines = [_line(job, "enqueued", job.created_at, detail=_enqueued(job)), *written]
    told = {event.started_at for event in written}
    lines += [_claimed(job, event.attempt, event.pod, event.started_at) for event in written if event.started_at]
    for n, entry in enumerate(job.errors):
        is_last = n == len(job.errors) - 1
        if entry.started_at is not None and entry.started_at not in told:
            told.add(entry.started_at)
            lines.append(_claimed(job, entry.attempt, entry.pod, entry.started_at))
        lines.append(_ended(job, entry, is_end=is_last and job.state in _BADLY))
    if job.started_at is not None and job.started_at not in told:
        lines.append(_claimed(job, job.attempt, job.pod, job.started_at))
    if job.state is State.SUCCEEDED:
        lines.append(_line(job, "succeeded", job.finished_at, attempt=job.attempt, pod=job.pod))
    # Enqueued comes first and the end last, whatever the clocks of several hosts have written in between.
    return tuple(sorted(_once(lines), key=lambda line: (line.what != "enqueued", line.at or 0.0, _ORDER[line.what])))


_BADLY: Final = frozenset({State.FAILED, State.CANCELLED})
_ORDER: Final[dict[EventName, int]] = {
    "enqueued": 0,
    "replaced": 1,
    "claimed": 2,
    "cancel_asked": 3,
    "retried": 4,
    "timed_out": 4,
    "rescued": 4,
    "snoozed": 4,
    "throttled": 4,
    "released": 4,
    "waiting": 4,
    "answered": 5,
    "failed": 5,
    "cancelled": 5,
    "succeeded": 5,
    "revived": 6,
    "rescheduled": 6,
    "moved": 6,
    "reprioritised": 6,
}


def _once(lines: list[Event]) -> list[Event]:
    """Without the row's own word about a cancel that somebody's name is known of."""
    named = any(line.what == "cancelled" and line.by is not None for line in lines)
    return [line for line in lines if not (named and line.what == "cancelled" and line.by is None and not line.pod)]


def _line(
    job: Job, what: EventName, at: float | None, *, attempt: int = 0, pod: str | None = None, detail: str = ""
) -> Event:
    return Event(id="", job=job.id, what=what, at=at, attempt=attempt, pod=pod, detail=detail)


def _claimed(job: Job, attempt: int, pod: str | None, at: float | None) -> Event:
    return _line(job, "claimed", at, attempt=attempt, pod=pod)


def _enqueued(job: Job) -> str:
    later = job.run_at - job.created_at
    told = f"due {words(_rounded(later))} later" if job.attempt == 0 and later > 1 else ""
    return ", ".join(part for part in (told, job.reason or "") if part)


def _ended(job: Job, entry: ErrorEntry, *, is_end: bool) -> Event:
    what: EventName
    if entry.kind == "cancelled":
        what = "cancelled"
    elif is_end:
        what = "failed"
    else:
        what = {"worker_lost": "rescued", "timeout": "timed_out"}.get(entry.kind, "retried")  # type: ignore[assignment]
    said = f"{entry.type}: {entry.message}" if entry.type else entry.message
    first = said.splitlines()[0] if said else entry.kind
    return _line(job, what, entry.ended_at, attempt=entry.attempt, pod=entry.pod, detail=clean(first))
