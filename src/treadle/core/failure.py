"""Failures: why attempts fail. Jobs that failed for good and jobs that wait for a retry, grouped by their cause (task,
exception, raising place), for a person to act on."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias, TypeVar, cast

from msgspec import Struct

from .deploy import Deploy
from .job import Job, State, cause_of

# So many of the newest failures are looked at, and so many retries, whatever there are: a page for people must not read
# a whole table.
LOOKED_AT: Final = 10_000

DAY: Final = 86_400.0
# A cause that was not seen for so long had gone. More than a day, and more than the longest one (when clocks are put
# back): what fails once a day, by a schedule, has not been silent.
SILENCE: Final = DAY + 2 * 3_600.0
# A deploy counts as the last one for so long; a cause that comes up later is not news of that deploy.
DEPLOY_COUNTS: Final = 7 * DAY

T = TypeVar("T")
_OVER: Final = object()
Mark: TypeAlias = Literal["new", "regressed"]


class Sighting(Struct, frozen=True, gc=False):
    """Jobs with one cause in one stretch of time, as a storage found them: one by one, or some at once."""

    cause: str
    task: str
    first_at: float
    last_at: float
    retrying: bool = False
    count: int = 1
    sample: str | int = ""  # what the storage finds the last one by


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Jobs with one cause. The filter `cause:"…"` finds them all."""

    cause: str
    task: str
    type: str  # of the exception, or how the attempt ended if none was raised
    place: str
    failed: int = 0  # given up: they failed for good
    retrying: int = 0  # they wait for their next attempt
    first_at: float
    last_at: float
    back_at: float | None = None  # when it was seen again after its last silence, if there was one
    sample: str  # the id of the last one
    message: str

    @property
    def count(self) -> int:
        return self.failed + self.retrying


class Failures(Struct, frozen=True, kw_only=True):
    """The groups, largest first. `capped`: there are more failures, or more retries, than were looked at."""

    groups: tuple[FailureGroup, ...]
    looked_at: int
    capped: bool = False
    # Before that, causes are not known, because there were too many failures since; None: as far as jobs are kept.
    known_since: float | None = None
    all_retries: bool = True  # whether all jobs that wait for a retry were looked at


def sighting(job: Job) -> Sighting:
    """What a job with its errors tells: when its cause was first and last seen in it."""
    last = job.errors[-1]
    cause = cause_of(job.task, last)
    if job.state is State.FAILED:
        return Sighting(cause, job.task, job.finished_at or 0.0, job.finished_at or 0.0, sample=job.id)
    at = last.ended_at or 0.0
    first = job.errors[0]
    began = at if cause_of(job.task, first) != cause or first.ended_at is None else min(at, first.ended_at)
    return Sighting(cause, job.task, began, at, retrying=True, sample=job.id)


def group(seen: Iterable[Sighting], limit: int) -> list[tuple[FailureGroup, str | int]]:
    """The largest groups, each with what its last job is found by. They have no sample and no message yet."""
    found: dict[tuple[str, str], list[Sighting]] = {}
    for each in seen:
        own = found.get((each.cause, each.task))
        if own is None:
            found[each.cause, each.task] = [each]
        else:
            own.append(each)
    groups = [_grouped(own) for own in found.values()]
    return sorted(groups, key=lambda each: (-each[0].count, -each[0].last_at, each[0].cause))[:limit]


def by_turns(pieces: Sequence[Sequence[T]], most: int) -> list[T]:
    """The first of each piece, then the second of each, and so on: no piece takes the room of all others."""
    turns = itertools.chain.from_iterable(itertools.zip_longest(*pieces, fillvalue=_OVER))
    return list(itertools.islice((cast("T", each) for each in turns if each is not _OVER), most))


def parts_of(cause: str, task: str) -> tuple[str, str]:
    """The exception's type and the raising place in a cause of this task."""
    type, _, place = cause.removeprefix(f"{task}:").partition(":")
    return type, place


def _grouped(own: list[Sighting]) -> tuple[FailureGroup, str | int]:
    newest = max(each.last_at for each in own)
    last = max((each for each in own if each.last_at == newest), key=lambda each: str(each.sample))
    type, place = parts_of(last.cause, last.task)
    retrying = sum(each.count for each in own if each.retrying)
    told = FailureGroup(
        cause=last.cause,
        task=last.task,
        type=type,
        place=place,
        failed=sum(each.count for each in own) - retrying,
        retrying=retrying,
        first_at=min(each.first_at for each in own),
        last_at=last.last_at,
        back_at=_back_at(own),
        sample="",
        message="",
    )
    return told, last.sample


def _back_at(own: Sequence[Sighting]) -> float | None:
    """When it began again after the last silence. A job that is tried again and again was never silent between."""
    newest = sorted(own, key=lambda each: each.last_at, reverse=True)
    began = newest[0].first_at
    for each in newest:
        if began - each.last_at >= SILENCE:
            return began
        began = min(began, each.first_at)
    return None


# What a person should know of first -------------------------------------------------------------------------------


def last_deploy(deploys: Iterable[Deploy], now: float) -> Deploy | None:
    """The version that was first seen last, if that is not too long ago for anything to be new since. A first sight in
    the future (a clock was put back) counts when its time has come: until then nothing could be new. A version that
    comes again, as after a rollback, is not deployed anew: see docs/adr/0044."""
    known = (each for each in deploys if each.first_at <= now)
    newest = max(known, key=lambda each: (each.first_at, each.version), default=None)
    return newest if newest is not None and now - newest.first_at <= DEPLOY_COUNTS else None


def new_since(deploy: Deploy | None, now: float) -> float:
    """From when on a cause that was not seen before is new: the last deploy, or the last 24 hours."""
    return now - DAY if deploy is None else deploy.first_at


def mark(found: Failures, each: FailureGroup, deploy: Deploy | None, now: float) -> Mark | None:
    """`new`: first seen since the last deploy or, where none is known, in the last 24 hours. `regressed`: back, since
    then, after a silence of a day. Where older failures were not looked at, nobody can say that one is new."""
    since = new_since(deploy, now)
    if each.back_at is not None:
        return "regressed" if each.back_at >= min(since, now - DAY) else None
    if each.first_at < since:
        return None
    knows = found.known_since is None or found.known_since <= since
    return "new" if knows and (found.all_retries or not each.retrying) else None
