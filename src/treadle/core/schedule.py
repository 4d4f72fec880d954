"""Schedule: a plan by which a task is fired, who changed it, and how far it has come.

A schedule has two parts that are written apart. Its *definition* (the plan, what code last declared, what an operator
edited) changes by compare-and-set on a version, and every change is decided here. Its *progress* (the cursor, counters,
the last error) changes with every fire; `core.firing` decides that, so a fire never spoils an operator's edit.

Sync from code goes field by field: what an operator has edited stays until it is reset, and what was removed stays
removed. Code never removes anything: another deployment may declare it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct

from . import cron, names, payload
from .errors import PayloadError
from .job import NewJob, UniqueClaim

Misfire: TypeAlias = Literal["coalesce", "skip", "catch_up"]
Overlap: TypeAlias = Literal["allow", "skip"]

MISFIRES: Final[tuple[Misfire, ...]] = ("coalesce", "skip", "catch_up")
OVERLAPS: Final[tuple[Overlap, ...]] = ("allow", "skip")
MOST_CATCH_UP: Final = 1000
LONGEST_JITTER: Final = 86_400.0
# A first fire at once lies this long after the cursor of a new schedule.
_AT_ONCE: Final = 0.5


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When to fire, and the job that a fire asks for."""

    expression: str
    task: str
    queue: str
    zone: str = "UTC"
    args: str = "{}"
    priority: int = 0
    max_attempts: int | None = None
    timeout: float | None = None
    pinned: bool = False
    tags: tuple[str, ...] = ()
    unique: UniqueClaim | None = None
    misfire: Misfire = "coalesce"
    catch_up: int = MOST_CATCH_UP  # how many missed times `catch_up` fires at most
    overlap: Overlap = "allow"
    jitter: float = 0.0  # each job is due up to so many seconds after its fire time
    paused: bool = False


FIELDS: Final = Plan.__struct_fields__


class Declared(Struct, frozen=True, kw_only=True):
    """A schedule as code declares it."""

    plan: Plan
    at_once: bool = False  # also fire when it is first registered


class Progress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a schedule has come. Every fire time up to the cursor is settled."""

    cursor: float = 0.0
    last_fire: float | None = None
    live: tuple[str, ...] = ()  # the latest jobs, as far as they were still alive at the last fire
    fired: int = 0
    skipped: int = 0  # because the last one still ran
    missed: int = 0
    errors: int = 0
    last_error: str | None = None  # None again after a fire
    last_error_at: float | None = None


class Schedule(Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    version: int
    plan: Plan
    anchor: float  # intervals count from here
    created_at: float
    declared: Plan | None = None  # what code said last
    declared_at: float | None = None
    edited: tuple[str, ...] = ()  # the plan's fields that are an operator's now
    edited_by: str | None = None
    edited_at: float | None = None
    paused_by: str | None = None
    paused_at: float | None = None
    pause_reason: str | None = None
    removed_by: str | None = None
    removed_at: float | None = None  # a tombstone: it never fires, and code does not bring it back
    progress: Progress = Progress()

    @property
    def removed(self) -> bool:
        return self.removed_at is not None

    @property
    def readable(self) -> bool:
        """Whether this version could read its row."""
        return bool(self.plan.expression)


class Edit(Struct, frozen=True, kw_only=True):
    """A definition to be written over the version before it (0: there is none yet). With a cursor, that moves too."""

    schedule: Schedule
    cursor: float | None = None

    @property
    def expected(self) -> int:
        return self.schedule.version - 1


# ---------------------------------------------------------------------------------------------------------------------
# Plans


def plan_of(job: NewJob, expression: str, **fields: Any) -> Plan:
    """A checked plan for jobs like this one."""
    found = Plan(
        expression=expression,
        task=job.task,
        queue=job.queue,
        args=job.args,
        priority=job.priority,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        pinned=job.pinned,
        tags=job.tags,
        unique=job.unique,
    )
    return check(msgspec.structs.replace(found, **fields))


def check(plan: Plan) -> Plan:
    """The plan, with its expression tidied; ValueError, with what is wrong."""
    cron.parse(plan.expression)
    cron.zone(plan.zone)
    names.check_name("task", plan.task)
    names.check_name("queue", plan.queue)
    names.check_priority(plan.priority)
    if plan.misfire not in MISFIRES:
        raise ValueError(f"misfire must be one of {', '.join(MISFIRES)}, not {plan.misfire!r}")
    if plan.overlap not in OVERLAPS:
        raise ValueError(f"overlap must be one of {', '.join(OVERLAPS)}, not {plan.overlap!r}")
    if type(plan.catch_up) is not int or not 1 <= plan.catch_up <= MOST_CATCH_UP:
        raise ValueError(f"catch_up must be from 1 to {MOST_CATCH_UP}")
    if not 0.0 <= plan.jitter <= LONGEST_JITTER:
        raise ValueError("jitter must be from 0 to 24h")
    if type(plan.paused) is not bool:
        raise ValueError("paused must be true or false")
    try:
        args: object = payload.decode_trusted(plan.args)
    except PayloadError as error:
        raise ValueError(f"args: {error}") from None
    if not isinstance(args, dict):
        raise ValueError("args must be an object: the arguments by name")
    return msgspec.structs.replace(plan, expression=" ".join(plan.expression.split()))


def describe(plan: Plan) -> str:
    """The expression in words, with its zone where that matters."""
    said = cron.words(plan.expression)
    if isinstance(cron.parse(plan.expression), cron.Interval) or plan.zone == "UTC":
        return said
    return f"{said}, {plan.zone}"


def fires_after(plan: Plan, anchor: float, after: float) -> Iterator[float]:
    return cron.fires_after(plan.expression, plan.zone, anchor, after)


def next_fires(plan: Plan, anchor: float, after: float, count: int) -> list[float]:
    """The next fire times, oldest first; fewer than asked for if the calendar ends before."""
    return list(islice(fires_after(plan, anchor, after), count))


# ---------------------------------------------------------------------------------------------------------------------
# Definitions


def add(
    name: str, plan: Plan, now: float, *, by: str | None = None, at_once: bool = False, over: Schedule | None = None
) -> Edit:
    """A schedule that an operator makes, over the tombstone of one that was removed. All of its fields are the
    operator's: code that declares the name later changes none of them."""
    fields: dict[str, Any] = {"edited": FIELDS, "edited_by": by, "edited_at": now}
    if over is not None:
        fields |= {"declared": over.declared, "declared_at": over.declared_at}
    return _new(name, check(plan), now, at_once=at_once, over=over, fields=fields)


def put(
    existing: Schedule | None, name: str, plan: Plan, now: float, *, by: str | None = None, at_once: bool = False
) -> Edit | None:
    """The schedule as an operator wants it, whether it is there or not; None if it is so already. Its clock goes on,
    unless its expression or zone is another one."""
    if existing is None or existing.removed or not existing.readable:
        return add(name, plan, now, by=by, at_once=at_once, over=existing)
    if check(plan) == existing.plan:
        return None
    return _changed(existing, plan, now, edited=FIELDS, edited_by=by, edited_at=now)


def merge(existing: Schedule | None, name: str, declared: Declared, now: float) -> Edit | None:
    """What a sync from code writes; None if there is nothing to write."""
    plan = declared.plan
    if existing is None or (existing.removed and existing.declared is None):
        fields = {"declared": plan, "declared_at": now}
        return _new(name, plan, now, at_once=declared.at_once, over=existing, fields=fields)
    if existing.declared == plan:
        return None
    own = {field: getattr(plan, field) for field in FIELDS if field not in existing.edited}
    merged = msgspec.structs.replace(existing.plan, **own)
    return _changed(existing, merged, now, declared=plan, declared_at=now)


def edit(existing: Schedule, fields: Mapping[str, Any], now: float, *, by: str | None = None) -> Edit:
    """An operator's edit: these fields are the operator's from now on. ValueError if the plan would be no plan."""
    plan = check(msgspec.structs.replace(existing.plan, **fields))
    edited = tuple(field for field in FIELDS if field in existing.edited or field in fields)
    return _changed(existing, plan, now, edited=edited, edited_by=by, edited_at=now)


def pause(existing: Schedule, now: float, *, by: str | None = None, reason: str | None = None) -> Edit:
    changed = edit(existing, {"paused": True}, now, by=by)
    schedule = msgspec.structs.replace(changed.schedule, paused_by=by, paused_at=now, pause_reason=reason)
    return msgspec.structs.replace(changed, schedule=schedule)


def resume(existing: Schedule, now: float, *, by: str | None = None) -> Edit:
    """Fire again from now on: the time spent paused is not missed."""
    return msgspec.structs.replace(edit(existing, {"paused": False}, now, by=by), cursor=now)


def remove(existing: Schedule, now: float, *, by: str | None = None) -> Edit:
    schedule = msgspec.structs.replace(existing, version=existing.version + 1, removed_at=now, removed_by=by)
    return Edit(schedule=schedule)


def reset(existing: Schedule, now: float) -> Edit:
    """As code declares it, whatever operators did; ValueError if no code does."""
    if existing.declared is None:
        raise ValueError(f"schedule {existing.name} is declared by no code: edit or remove it")
    back = _changed(
        existing, existing.declared, now, edited=(), edited_by=None, edited_at=None, removed_at=None, removed_by=None
    )
    return msgspec.structs.replace(back, cursor=now) if existing.removed else back


def _new(name: str, plan: Plan, now: float, *, at_once: bool, over: Schedule | None, fields: dict[str, Any]) -> Edit:
    names.check_name("schedule", name)
    anchor = _anchor(now)
    cursor = anchor - _AT_ONCE if at_once and isinstance(cron.parse(plan.expression), cron.Interval) else now
    schedule = Schedule(
        name=name,
        version=1 if over is None else over.version + 1,
        plan=plan,
        anchor=anchor,
        created_at=now,
        paused_at=now if plan.paused else None,
        progress=Progress(cursor=cursor),
        **fields,
    )
    return Edit(schedule=schedule, cursor=cursor)


def _anchor(now: float) -> float:
    """Now to the millisecond, and never later: the anchor itself is a fire time that a new cursor must have passed."""
    return math.floor(now * 1000) / 1000


def _changed(existing: Schedule, plan: Plan, now: float, **fields: Any) -> Edit:
    """The next version. With another expression or zone it starts anew: what the new line would have fired in the past
    was not missed."""
    old = existing.plan
    moved = (plan.expression, plan.zone) != (old.expression, old.zone)
    if plan.paused != old.paused:
        fields |= {"paused_by": None, "paused_at": now if plan.paused else None, "pause_reason": None}
    if plan.expression != old.expression:
        fields["anchor"] = _anchor(now)
    schedule = msgspec.structs.replace(existing, version=existing.version + 1, plan=plan, **fields)
    return Edit(schedule=schedule, cursor=now if moved or (old.paused and not plan.paused) else None)


# ---------------------------------------------------------------------------------------------------------------------
# As text, for storages


_read_schedule: Final = msgspec.json.Decoder(Schedule).decode
_read_progress: Final = msgspec.json.Decoder(Progress).decode
_LAST_INSTANT: Final = 1e11  # in the year 5138: an anchor beyond it would have no steps that a float can tell apart
_UNREADABLE: Final = "the definition cannot be read: remove it, or add it anew"


def _instants(schedule: Schedule) -> list[float]:
    progress = schedule.progress
    found = (
        *(schedule.anchor, schedule.created_at, schedule.declared_at, schedule.edited_at, schedule.paused_at),
        *(schedule.removed_at, progress.cursor, progress.last_fire, progress.last_error_at),
    )
    return [at for at in found if at is not None]


def definition_text(schedule: Schedule) -> str:
    return msgspec.json.encode(msgspec.structs.replace(schedule, progress=Progress())).decode()


def progress_text(progress: Progress) -> str:
    return msgspec.json.encode(progress).decode()


def of_text(name: str, version: int, definition: str, progress: str) -> Schedule:
    """A row, read again. One that somebody damaged, or a newer version wrote, stays visible: it has an empty plan,
    which fires nothing."""
    try:
        found = _read_schedule(definition)
        found = msgspec.structs.replace(found, name=name, version=version, progress=_read_progress(progress))
        if all(abs(at) < _LAST_INSTANT for at in _instants(found)):
            return found
        raise ValueError("an instant that no calendar has")
    except (msgspec.DecodeError, ValueError):
        broken = Progress(errors=1, last_error=_UNREADABLE)
        plan = Plan(expression="", task="", queue="")
        return Schedule(name=name, version=version, plan=plan, anchor=0.0, created_at=0.0, progress=broken)
