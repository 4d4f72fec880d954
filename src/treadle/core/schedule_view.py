"""Schedules and their fires as people read them: the same field names in Python, on the command line and over HTTP."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from . import payload
from . import schedule as scheduling
from .errors import PayloadError
from .firing import FireRecord
from .schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """One schedule: its plan, who changed it, and how far it has come.

    >>> app.schedules.add_sync("daily", "0 9 * * *", "send", args={"user": 1}).words
    'At 09:00 every day'
    """

    name: str
    expression: str
    words: str
    zone: str
    task: str
    queue: str
    args: Any
    priority: int
    misfire: str
    catch_up: int
    overlap: str
    jitter: float
    tags: tuple[str, ...]
    next_fire: datetime | None
    last_fire: datetime | None
    paused: bool
    paused_by: str | None
    paused_at: datetime | None
    pause_reason: str | None
    fired: int
    skipped: int
    missed: int
    errors: int
    last_error: str | None
    declared: bool  # code has declared it; otherwise an operator made it
    undeclared: bool  # code has, but none that a live pod runs
    edited: tuple[str, ...]  # fields that an operator has changed; a deploy leaves them so
    edited_by: str | None
    edited_at: datetime | None
    removed_by: str | None
    removed_at: datetime | None
    created_at: datetime
    version: int
    due_at: datetime | None = None  # the fire time that is due and has not been settled


@dataclass(frozen=True, slots=True, kw_only=True)
class FireView:
    """One fire time that is settled.

    >>> schedule = app.schedules.add_sync("hourly", "0 * * * *", "send", args={"user": 1})
    >>> app.schedules.fire_sync("hourly").outcome
    'inserted'
    >>> [fire.outcome for fire in app.schedules.fires_sync("hourly")]
    ['fired']
    """

    fire_at: datetime
    at: datetime
    outcome: str  # fired or skipped
    job: str | None
    manual: bool


def schedule_view(schedule: Schedule, now: float, live: bool) -> ScheduleView:
    """`live`: the code of a live pod declares it."""
    plan, progress = schedule.plan, schedule.progress
    words, next_fire, due, problem = "", None, None, progress.last_error
    try:
        words = scheduling.describe(plan)
        if not (plan.paused or schedule.removed):
            coming = scheduling.next_fires(plan, schedule.anchor, max(now, progress.cursor), 1)
            next_fire = coming[0] if coming else None
            missed = scheduling.next_fires(plan, schedule.anchor, progress.cursor, 1)
            due = missed[0] if missed and missed[0] <= now else None
    except ValueError as error:  # written by a newer version, or its zone is missing here
        problem = problem or str(error)
    by_code = schedule.declared is not None
    return ScheduleView(
        name=schedule.name,
        expression=plan.expression,
        words=words,
        zone=plan.zone,
        task=plan.task,
        queue=plan.queue,
        args=_value(plan.args),
        priority=plan.priority,
        misfire=plan.misfire,
        catch_up=plan.catch_up,
        overlap=plan.overlap,
        jitter=plan.jitter,
        tags=plan.tags,
        next_fire=_moment(next_fire),
        last_fire=_moment(progress.last_fire),
        paused=plan.paused,
        paused_by=schedule.paused_by,
        paused_at=_moment(schedule.paused_at),
        pause_reason=schedule.pause_reason,
        fired=progress.fired,
        skipped=progress.skipped,
        missed=progress.missed,
        errors=progress.errors,
        last_error=problem,
        declared=by_code,
        undeclared=by_code and not live,
        edited=schedule.edited if by_code else (),
        edited_by=schedule.edited_by,
        edited_at=_moment(schedule.edited_at),
        removed_by=schedule.removed_by,
        removed_at=_moment(schedule.removed_at),
        created_at=datetime.fromtimestamp(schedule.created_at, UTC),
        version=schedule.version,
        due_at=_moment(due),
    )


def fire_view(record: FireRecord) -> FireView:
    return FireView(
        fire_at=datetime.fromtimestamp(record.fire_at, UTC),
        at=datetime.fromtimestamp(record.at, UTC),
        outcome=record.outcome,
        job=record.job,
        manual=record.manual,
    )


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


def _value(text: str) -> Any:
    try:
        return payload.decode_trusted(text)
    except PayloadError:
        return {"undecodable": text[:200]}
