"""Dead letters: failed jobs, grouped by their cause (task, exception, raising place), for a person to act on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from .job import Job, cause_of

# So many of the newest failures are looked at, whatever there are: a page for people must not read a whole table.
LOOKED_AT: Final = 10_000


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Failures with one cause. The filter `cause:"…"` finds them all."""

    cause: str
    task: str
    type: str  # of the exception, or how the attempt ended if none was raised
    place: str
    count: int
    first_at: float
    last_at: float
    sample: str  # the id of the last one
    message: str


class Failures(Struct, frozen=True, kw_only=True):
    """The groups, largest first. `capped`: there are more failures than were looked at."""

    groups: tuple[FailureGroup, ...]
    looked_at: int
    capped: bool = False


def group(failed: Iterable[Job], limit: int) -> tuple[FailureGroup, ...]:
    """The groups of these jobs, of which each has its last error."""
    found: dict[str, list[Job]] = {}
    for job in failed:
        assert job.error is not None
        found.setdefault(cause_of(job.task, job.error), []).append(job)
    return ranked((_grouped(cause, jobs) for cause, jobs in found.items()), limit)


def ranked(groups: Iterable[FailureGroup], limit: int) -> tuple[FailureGroup, ...]:
    return tuple(sorted(groups, key=lambda each: (-each.count, -each.last_at, each.cause))[:limit])


def parts_of(cause: str, task: str) -> tuple[str, str]:
    """The exception's type and the raising place in a cause of this task."""
    type, _, place = cause.removeprefix(f"{task}:").partition(":")
    return type, place


def _grouped(cause: str, jobs: list[Job]) -> FailureGroup:
    last = max(jobs, key=lambda job: (job.finished_at or 0.0, job.id))
    ends = [job.finished_at or 0.0 for job in jobs]
    type, place = parts_of(cause, last.task)
    return FailureGroup(
        cause=cause,
        task=last.task,
        type=type,
        place=place,
        count=len(jobs),
        first_at=min(ends),
        last_at=max(ends),
        sample=last.id,
        message=last.error.message if last.error is not None else "",
    )
