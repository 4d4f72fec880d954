"""Progress and checkpoints: what a run says of itself while it runs.

Progress is for people: how much is done, of how much, and a note. It is the one write that a task can repeat at will,
so its rate is bounded: a pod keeps the newest word of each run, and writes it at most once a second. A checkpoint is
for the job's next attempt: it is written when the task asks for it, and the task waits until it is durable.

Both are fenced by the token of the claim. A checkpoint is taken from a run that has its claim, and from no other.
Progress may also come just after the run's own finish, until somebody claims the job again: a pod sends it on its own
time, and what the last attempt left must not depend on who was faster. A run that was rescued from is heard no more.

Both stay with the job through retry, snooze, throttle, rescue and release. After a success neither means anything: it
is not shown, the pod removes it when it has time, and a job that is revived after a success begins with nothing.
So does one that a newer request has replaced: it asks for something else now.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from . import payload
from .text import cut

LONGEST_NOTE: Final = 1024  # bytes, as all of these
LARGEST_DATA: Final = 16 * 1024
LARGEST_CHECKPOINT: Final = 64 * 1024
EVERY: Final = 1.0


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """How far a run has come. `data` is JSON text, for whoever shows more than a bar."""

    done: float = 0.0
    total: float | None = None
    note: str = ""
    data: str | None = None


class Report(Struct, frozen=True, kw_only=True, gc=False):
    """What one run wants written about itself. `over`: it has succeeded, and what was kept of it may go."""

    id: str
    token: str
    attempt: int
    progress: Progress | None = None
    checkpoint: str | None = None  # JSON text
    over: bool = False


class Reported(Struct, frozen=True, kw_only=True, gc=False):
    """The last progress of a job, as a storage keeps it: which attempt said so, and when by the storage's clock."""

    id: str
    attempt: int
    at: float
    progress: Progress


class Checkpoint(Struct, frozen=True, kw_only=True, gc=False):
    """The last checkpoint of a job. `value` is JSON text."""

    attempt: int
    at: float
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressView:
    """How far a job has come. `share` is from 0 to 1, where a total is known.

    >>> app.jobs.progress_sync(failed.id).note
    'half'
    """

    done: float
    total: float | None
    share: float | None
    note: str
    data: Any
    at: datetime
    attempt: int


def progress_of(done: float, total: float | str | None = None, note: str = "", data: object = None) -> Progress:
    """What `ctx.progress` was given, checked. `progress(0.4, "page 4")` is a share of the whole, `progress(4, 10)` a
    count, `progress(4)` a count of who knows how many. A note is cut; data that is too large is refused."""
    if isinstance(total, str):
        note, total = total, None
    if total is None and isinstance(done, float) and 0.0 <= done <= 1.0:
        total = 1.0
    for name, number in (("done", done), ("total", total)):
        if number is not None and not (math.isfinite(number) and number >= 0):
            raise ValueError(f"progress: {name} must be a number from 0 on, not {number!r}")
    return Progress(
        done=float(done),
        total=None if total is None else float(total),
        note=cut(note, LONGEST_NOTE),
        data=None if data is None else payload.encode(data, what="progress data", limit=LARGEST_DATA),
    )


def checkpoint_of(value: object) -> str:
    return payload.encode(value, what="checkpoint", limit=LARGEST_CHECKPOINT)


def wait_for(last: float | None, now: float) -> float:
    """Seconds until a pod may write again, if it wrote last at this moment."""
    return 0.0 if last is None else max(0.0, last + EVERY - now)


def share(progress: Progress) -> float | None:
    """From 0 to 1; None if nobody knows of how much."""
    if not progress.total:
        return None
    return min(1.0, progress.done / progress.total)


def words(progress: Progress | ProgressView) -> str:
    """`40 %  page 4 of 10`, for a line of text."""
    if progress.total == 1.0:
        told = f"{int(100 * min(1.0, progress.done))} %"
    elif progress.total:
        told = f"{progress.done:,.10g}/{progress.total:,.10g}"
    else:
        told = f"{progress.done:,.10g}"
    return f"{told}  {progress.note}".rstrip()


def by_id(found: Iterable[Reported]) -> dict[str, Reported]:
    return {each.id: each for each in found}
