"""Schedules: the row is loaded, the core is asked, and everything is written in the writer's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ...core import firing
from ...core import schedule as scheduling
from ...core.audit import AuditLine
from ...core.firing import RECORDS_KEPT, Fire, Fired, FireRecord
from ...core.schedule import Schedule
from ...ports import Clock
from . import audit, insert, rows
from .news import News
from .rows import Database

_SCHEDULES: Final = "select name, version, definition, progress from treadle_schedule"
_RECORDS: Final = (
    "select fire_at, at, outcome, job, manual from treadle_fire "
    "where name = ?1 and typeof(fire_at) = 'real' and typeof(at) = 'real'"
)
_LIVE: Final = (
    "select id from treadle_job where id in (select value from json_each(?)) "
    "and state in ('waiting', 'ready', 'running')"
)
_SWEEP: Final = (
    "delete from treadle_fire where name = ?1 and fire_at < "
    "(select fire_at from treadle_fire where name = ?1 order by fire_at desc limit 1 offset ?2)"
)


class SQLiteSchedules:
    """The verbs of schedules, as part of the storage."""

    _clock: Clock
    _read: Callable[..., Coroutine[Any, Any, Any]]
    _write: Callable[..., Coroutine[Any, Any, Any]]

    async def schedules(self) -> tuple[float, Sequence[Schedule]]:
        now = self._clock.now()
        found: list[Schedule] = await self._read(schedules)
        return now, found

    async def save_schedule(
        self, schedule: Schedule, expected_version: int, *, cursor: float | None = None, line: AuditLine | None = None
    ) -> bool:
        def operation(db: sqlite3.Connection, _: News) -> bool:
            saved = save(db, schedule, expected_version, cursor)
            audit.write(db, line if saved else None, self._clock.now())
            return saved

        saved: bool = await self._write(operation, grows=True)
        return saved

    async def fire(self, wish: Fire) -> Fired:
        def operation(db: sqlite3.Connection, news: News) -> Fired:
            return fire(db, wish, self._clock.now(), news)

        fired: Fired = await self._write(operation, grows=True)
        return fired

    async def fires(self, name: str, limit: int = 100) -> Sequence[FireRecord]:
        def read(db: sqlite3.Connection) -> list[FireRecord]:
            return fires(db, name, limit)

        found: list[FireRecord] = await self._read(read)
        return found


def schedules(db: Database) -> list[Schedule]:
    return [_schedule_of(row) for row in db.execute(f"{_SCHEDULES} order by name")]


def _schedule_of(row: rows.RowTuple) -> Schedule:
    name, version, definition, progress = row
    number = version if isinstance(version, int) else 0  # somebody may have written anything
    return scheduling.of_text(str(name), number, str(definition), str(progress))


def _load(db: Database, name: str) -> Schedule | None:
    row = db.execute(f"{_SCHEDULES} where name = ?", (name,)).fetchone()
    return None if row is None else _schedule_of(row)


def save(db: Database, schedule: Schedule, expected: int, cursor: float | None) -> bool:
    row = _load(db, schedule.name)
    definition = scheduling.definition_text(schedule)
    if (row.version if row else 0) != expected:
        # Sent again after a lost answer, it finds its own work.
        same = "select 1 from treadle_schedule where name = ? and definition = ?"
        return db.execute(same, (schedule.name, definition)).fetchone() is not None
    progress = schedule.progress
    if row is not None:
        progress = row.progress if cursor is None else replace(row.progress, cursor=cursor)
    db.execute(
        "insert or replace into treadle_schedule (name, version, definition, progress) values (?, ?, ?, ?)",
        (schedule.name, schedule.version, definition, scheduling.progress_text(progress)),
    )
    return True


def fire(db: Database, wish: Fire, now: float, news: News) -> Fired:
    row = _load(db, wish.name)
    settled = firing.settle(row, wish, _still_live(db, row), _known(db, wish))
    if row is None or settled.final:
        return settled.told()
    shots = [shot.job for shot in settled.shots]
    jobs = [answer.id for answer in insert.insert(db, shots, now)]
    records, progress = firing.written(row, wish, settled, jobs, now)
    for each in records:
        db.execute(
            # Two by hand at one instant may stand for one job, where it has a unique key. A second fire of a scheduled
            # time still fails, by the other index.
            "insert into treadle_fire (name, fire_at, at, outcome, job, manual) values (?, ?, ?, ?, ?, ?) "
            "on conflict (name, fire_at, job) do nothing",
            (wish.name, each.fire_at, each.at, each.outcome, each.job or "", each.manual),
        )
    if firing.sweeps(row.progress, progress):
        db.execute(_SWEEP, (wish.name, RECORDS_KEPT - 1))
    db.execute(
        "update treadle_schedule set progress = ? where name = ?", (scheduling.progress_text(progress), wish.name)
    )
    news.queues.update(job.queue for job in shots)
    return settled.told(jobs)


def _still_live(db: Database, row: Schedule | None) -> set[str]:
    if row is None or not row.progress.live:
        return set()
    return {id for (id,) in db.execute(_LIVE, (rows.json_text(list(row.progress.live)),))}


def _known(db: Database, wish: Fire) -> dict[float | str, FireRecord]:
    if wish.manual:
        which, values = "manual and job", rows.json_text([shot.job.id for shot in wish.shots])
    else:
        which, values = "not manual and fire_at", rows.json_text([shot.fire_at for shot in wish.shots])
    found = db.execute(f"{_RECORDS} and {which} in (select value from json_each(?2))", (wish.name, values))  # noqa: S608
    return {record.key: record for record in map(_record_of, found)}


def fires(db: Database, name: str, limit: int) -> list[FireRecord]:
    return [_record_of(row) for row in db.execute(f"{_RECORDS} order by fire_at desc limit ?2", (name, limit))]


def _record_of(row: rows.RowTuple) -> FireRecord:
    fire_at, at, outcome, job, manual = row
    return FireRecord(fire_at=fire_at, at=at, outcome=outcome, job=job or None, manual=bool(manual))
