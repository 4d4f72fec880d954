"""Firing: which times of a schedule are due, and what a fire writes.

The leader asks `due`, makes a Fire of the answer and sends it to the storage, which holds the row and asks `settle`
what to write. Everything that could have changed since the row was read is compared again there: the version, pause
and removal, the cursor, and whether a time was recorded before. So of any number of leaders one fires, and a Fire that
is sent again changes nothing.

Ids of jobs are made of the schedule's name and the fire time. Even where a record were lost, the same fire would ask
for the same job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Final, Literal

import msgspec
from msgspec import Struct

from . import cron, ids, payload
from .job import NewJob
from .schedule import Plan, Progress, Schedule

LATE: Final = 60.0  # `skip` drops what is later than this
COUNTED: Final = 1000  # so many times are looked at one by one; the rest are counted by the calendar
LIVE_KEPT: Final = 32
RECORDS_KEPT: Final = 1000
RECORDS_SWEPT_EVERY: Final = 100
LONGEST_ERROR: Final = 1000
META_SCHEDULE: Final = "treadle:schedule"
META_FIRE_AT: Final = "treadle:fire_at"
META_MANUAL: Final = "treadle:manual"


class Due(Struct, frozen=True, kw_only=True):
    """What a look at the clock found: the times to fire, oldest first, and how many more have gone by."""

    times: tuple[float, ...]
    missed: int
    cursor: float  # the newest of all of them


class Shot(Struct, frozen=True):
    fire_at: float
    job: NewJob


class Fire(Struct, frozen=True, kw_only=True):
    """A wish to fire, with what it was decided from. A manual one leaves the cursor; one with an `error` fires nothing
    and says why."""

    name: str
    version: int
    cursor: float = 0.0  # as it was
    to: float = 0.0
    shots: tuple[Shot, ...] = ()
    missed: int = 0
    manual: bool = False
    error: str | None = None


class FireRecord(Struct, frozen=True, kw_only=True):
    """One fire time that is settled, as people read it."""

    fire_at: float
    at: float  # when it was recorded
    outcome: Literal["fired", "skipped"]
    job: str | None = None
    manual: bool = False

    @property
    def key(self) -> float | str:
        """What there is only one of: a scheduled fire's time, the job of one by hand."""
        return str(self.job) if self.manual else self.fire_at


class Fired(Struct, frozen=True, kw_only=True):
    """`stale`: the schedule is not as the Fire expects it, and nothing was written."""

    outcome: Literal["fired", "skipped", "noted", "stale"]
    jobs: tuple[str, ...] = ()
    repeated: bool = False  # all of it had been written before


class Settled(Struct, frozen=True, kw_only=True):
    """What a storage is to do about a Fire: nothing if it is final; else insert the jobs of `shots`, and write what
    `written` answers."""

    outcome: Literal["fired", "skipped", "noted", "stale"]
    shots: tuple[Shot, ...] = ()
    skipped: tuple[Shot, ...] = ()
    known: tuple[str, ...] = ()  # jobs of an earlier sending of the same Fire
    repeated: bool = False
    live: tuple[str, ...] = ()

    @property
    def final(self) -> bool:
        return self.repeated or self.outcome == "stale"

    def told(self, jobs: Sequence[str] = ()) -> Fired:
        return Fired(outcome=self.outcome, jobs=(*self.known, *jobs), repeated=self.repeated)


# ---------------------------------------------------------------------------------------------------------------------
# The leader's side


def due(schedule: Schedule, now: float) -> Due | None:
    """The fire times after the cursor that have come; None if there are none. Found from now backwards, so it costs no
    more after a month away than after a second."""
    plan, cursor = schedule.plan, schedule.progress.cursor
    if plan.paused or schedule.removed:
        return None
    newest_first = cron.fires_until(plan.expression, plan.zone, schedule.anchor, now)
    seen = list(islice(takewhile(lambda at: at > cursor, newest_first), COUNTED + 1))
    if not seen:
        return None
    if plan.misfire == "skip":
        times = [at for at in seen if at >= now - LATE]
    else:
        times = seen[: plan.catch_up if plan.misfire == "catch_up" else 1]
    missed = len(seen) - len(times)
    if len(seen) > COUNTED:
        missed += cron.count(plan.expression, plan.zone, schedule.anchor, cursor, seen[-1]) - 1
    return Due(times=tuple(reversed(times)), missed=missed, cursor=seen[0])


def next_fire(schedule: Schedule) -> float | None:
    """When the next time after the cursor comes; None if it never does."""
    plan = schedule.plan
    if plan.paused or schedule.removed:
        return None
    return next(cron.fires_after(plan.expression, plan.zone, schedule.anchor, schedule.progress.cursor), None)


def late(schedule: Schedule, now: float) -> float:
    """For how many seconds the next time after the cursor has been due: above a few, nobody fires. ValueError if its
    expression or its zone cannot be read."""
    coming = next_fire(schedule)
    return 0.0 if coming is None else max(0.0, now - coming)


def fire(schedule: Schedule, found: Due) -> Fire:
    return Fire(
        name=schedule.name,
        version=schedule.version,
        cursor=schedule.progress.cursor,
        to=found.cursor,
        shots=tuple(Shot(at, job_of(schedule.name, schedule.plan, at)) for at in found.times),
        missed=found.missed,
    )


def fire_now(schedule: Schedule, now: float, job_id: str) -> Fire:
    job = job_of(schedule.name, schedule.plan, now, manual=job_id)
    return Fire(name=schedule.name, version=schedule.version, shots=(Shot(now, job),), manual=True)


def failed(schedule: Schedule, error: str) -> Fire:
    return Fire(name=schedule.name, version=schedule.version, error=error[:LONGEST_ERROR])


def job_of(name: str, plan: Plan, fire_at: float, *, manual: str | None = None) -> NewJob:
    """The job of one fire. Its id and its share of the jitter follow from the name and the time alone."""
    drawn = hashlib.sha256(f"{name}\n{fire_at!r}".encode()).digest()
    meta: dict[str, object] = {META_SCHEDULE: name, META_FIRE_AT: iso(fire_at)}
    if manual is not None:
        meta[META_MANUAL] = True
    spread = plan.jitter * int.from_bytes(drawn[16:20]) / 2**32
    return NewJob(
        id=manual or ids.text(ids.uuid7(int(fire_at * 1000), 0, int.from_bytes(drawn[:10]))),
        task=plan.task,
        queue=plan.queue,
        args=plan.args,
        priority=plan.priority,
        run_at=fire_at + spread if spread and manual is None else None,
        max_attempts=plan.max_attempts,
        timeout=plan.timeout,
        pinned=plan.pinned,
        tags=plan.tags,
        meta=payload.encode(meta, what="meta"),
        reason=f"schedule {name}",
        unique=plan.unique,
    )


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


# ---------------------------------------------------------------------------------------------------------------------
# The storage's side


def settle(row: Schedule | None, wish: Fire, live: Collection[str], known: Mapping[float | str, FireRecord]) -> Settled:
    """What to do about a Fire, with the row held. `live` are those of its jobs that are still alive; `known` the
    records there are, by their keys."""
    if row is None or row.removed or not row.readable:
        # One that cannot be read shows so by itself. To write here would lose what another version can read: a cursor
        # that is gone would fire all of the past.
        return Settled(outcome="stale")
    alive = tuple(id for id in row.progress.live if id in live)
    if wish.error is not None:
        return Settled(outcome="noted", live=alive)
    before = [known.get(shot.job.id if wish.manual else shot.fire_at) for shot in wish.shots]
    if (wish.shots and all(before)) and (wish.manual or row.progress.cursor != wish.cursor):
        jobs = tuple(record.job for record in before if record is not None and record.job is not None)
        return Settled(outcome="fired" if jobs else "skipped", known=jobs, repeated=True)
    if row.version != wish.version or (not wish.manual and (row.plan.paused or row.progress.cursor != wish.cursor)):
        return Settled(outcome="stale")
    fresh = [shot for shot, record in zip(wish.shots, before, strict=True) if record is None]
    if row.plan.overlap == "skip" and not wish.manual:
        fired, skipped = ([], fresh) if alive else (fresh[:1], fresh[1:])
    else:
        fired, skipped = fresh, []
    outcome: Literal["fired", "skipped"] = "fired" if fired else "skipped"
    return Settled(outcome=outcome, shots=tuple(fired), skipped=tuple(skipped), live=alive)


def written(
    row: Schedule, wish: Fire, settled: Settled, jobs: Sequence[str], now: float
) -> tuple[list[FireRecord], Progress]:
    """The records and the progress to write, once the jobs were inserted; `jobs` are the ids that now stand for them
    (with a unique key perhaps somebody else's)."""
    old = row.progress
    if wish.error is not None:
        return [], msgspec.structs.replace(old, errors=old.errors + 1, last_error=wish.error, last_error_at=now)
    records = [
        FireRecord(fire_at=shot.fire_at, at=now, outcome="fired", job=job, manual=wish.manual)
        for shot, job in zip(settled.shots, jobs, strict=True)
    ]
    records += [FireRecord(fire_at=shot.fire_at, at=now, outcome="skipped") for shot in settled.skipped]
    progress = msgspec.structs.replace(
        old,
        last_fire=max([old.last_fire or 0.0, *(shot.fire_at for shot in settled.shots)]) or None,
        live=(*settled.live, *jobs)[-LIVE_KEPT:],
        fired=old.fired + len(settled.shots),
        skipped=old.skipped + len(settled.skipped),
        last_error=None,
    )
    if not wish.manual:
        progress = msgspec.structs.replace(progress, cursor=wish.to, missed=old.missed + wish.missed)
    return records, progress


def sweeps(old: Progress, new: Progress) -> bool:
    """Whether it is time to forget all but the newest records."""
    return (old.fired + old.skipped) // RECORDS_SWEPT_EVERY != (new.fired + new.skipped) // RECORDS_SWEPT_EVERY
