"""Schedules: the row is locked, the core is asked, and everything is written in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ...core import firing
from ...core import schedule as scheduling
from ...core.audit import AuditLine
from ...core.firing import RECORDS_KEPT, Fire, Fired, FireRecord
from ...core.schedule import Progress, Schedule
from . import audit, insert, rows, sql
from .desk import Desks
from .news import News
from .talk import BEGIN, BRIEFLY, COMMIT, Row, Talk

_ROW: Final = "select name, version, definition, progress from treadle.schedule"
_SCHEDULES: Final = f"""
select date_part('epoch', {sql.NOW}), s.name, s.version, s.definition, s.progress
from (select) as one
left join treadle.schedule as s on true
order by s.name
"""  # noqa: S608 - the SQL is put together from our own parts
_RECORD: Final = "select fire_at, at, outcome, job, manual from treadle.fire where name = $1::text"
_INSERT: Final = """
insert into treadle.schedule (name, version, definition, progress)
values ($1::text, $2::int, $3::text, $4::text)
on conflict do nothing
returning 1
"""
# Two by hand at one instant may stand for one job, where it has a unique key: they are one record. A second fire of a
# scheduled time still fails, by the other index.
_RECORDS: Final = """
insert into treadle.fire (name, fire_at, at, outcome, job, manual)
select $1::text, new.fire_at, $2::float8, new.outcome, new.job, $3::boolean
from unnest($4::float8[], $5::text[], $6::text[]) as new (fire_at, outcome, job)
on conflict on constraint fire_pkey do nothing
"""
_SWEEP: Final = """
delete from treadle.fire
where name = $1::text
    and fire_at < (
        select f.fire_at from treadle.fire as f where f.name = $1::text order by f.fire_at desc limit 1 offset $2::int
    )
"""


class PostgresSchedules:
    """The verbs of schedules, as part of the storage."""

    _desks: Desks
    _now: Callable[[], float | None]
    _read: Callable[..., Coroutine[Any, Any, Any]]
    _tell: Callable[[News], None]

    async def schedules(self) -> tuple[float, Sequence[Schedule]]:
        now = self._now()
        found: tuple[float, list[Schedule]] = await self._read(lambda: schedules(now))
        return found

    async def save_schedule(
        self, schedule: Schedule, expected_version: int, *, cursor: float | None = None, line: AuditLine | None = None
    ) -> bool:
        now = self._now()
        return await self._desks.mine().slow.run(lambda: save(schedule, expected_version, cursor, line, now))

    async def fire(self, wish: Fire) -> Fired:
        now = self._now()
        fired = await self._desks.mine().slow.run(lambda: fire(wish, now))
        if fired.jobs and not fired.repeated:
            news = News()
            news.due.update(shot.job.queue for shot in wish.shots)
            self._tell(news)
        return fired

    async def fires(self, name: str, limit: int = 100) -> Sequence[FireRecord]:
        found: list[FireRecord] = await self._read(lambda: fires(name, limit)) if rows.is_text(name) else []
        return found


def schedules(now: float | None) -> Talk[tuple[float, list[Schedule]]]:
    # One question, for it is asked every second: the clock is that of its beginning, also where there is no schedule.
    found = yield (
        _SCHEDULES,
        (now,),
    )
    return found[0][0], [scheduling.of_text(*row[1:]) for row in found if row[1] is not None]


def _load(name: str) -> Talk[Schedule | None]:
    found = yield f"{_ROW} where name = $1::text for update", (name,)
    return scheduling.of_text(*found[0]) if found else None


def save(
    schedule: Schedule, expected: int, cursor: float | None, line: AuditLine | None, now: float | None
) -> Talk[bool]:
    yield BEGIN
    saved = yield from _save(schedule, expected, cursor)
    if saved and line is not None:
        ((clock,),) = yield f"select date_part('epoch', {sql.CLOCK})", (now,)
        yield from audit.write(line, clock)
    yield COMMIT
    return saved


def _save(schedule: Schedule, expected: int, cursor: float | None) -> Talk[bool]:
    definition = scheduling.definition_text(schedule)
    if expected == 0:
        values = (schedule.name, schedule.version, definition, scheduling.progress_text(schedule.progress))
        if (yield _INSERT, values):
            return True
    row = yield from _load(schedule.name)
    if row is None or row.version != expected:
        # Sent again after a lost answer, it finds its own work.
        same = "select 1 from treadle.schedule where name = $1::text and definition = $2::text"
        return bool((yield same, (schedule.name, definition)))
    progress = row.progress if cursor is None else replace(row.progress, cursor=cursor)
    yield (
        "update treadle.schedule set version = $2::int, definition = $3::text, progress = $4::text "
        "where name = $1::text",
        (schedule.name, schedule.version, definition, scheduling.progress_text(progress)),
    )
    return True


def fire(wish: Fire, now: float | None) -> Talk[Fired]:
    yield BEGIN
    yield BRIEFLY  # whoever fires has other schedules to fire
    fired = yield from _fire(wish, now)
    yield COMMIT
    return fired


def _fire(wish: Fire, now: float | None) -> Talk[Fired]:
    row = yield from _load(wish.name)
    settled = firing.settle(row, wish, (yield from _still_live(row)), (yield from _known(wish)))
    if row is None or settled.final:
        return settled.told()
    shots = [shot.job for shot in settled.shots]
    if shots and not insert.is_keyed(shots):
        yield from insert.ensure({(job.queue, job.priority) for job in shots})
    inserted = yield from insert.insert(shots, now)
    jobs = [answer.id for answer in inserted]
    ((clock,),) = yield f"select date_part('epoch', {sql.CLOCK})", (now,)
    records, progress = firing.written(row, wish, settled, jobs, clock)
    if records:
        columns = ([r.fire_at for r in records], [r.outcome for r in records], [r.job or "" for r in records])
        yield _RECORDS, (wish.name, clock, wish.manual, *columns)
    yield from _write_progress(wish.name, row.progress, progress)
    return settled.told(jobs)


def _write_progress(name: str, old: Progress, new: Progress) -> Talk[None]:
    if firing.sweeps(old, new):
        yield _SWEEP, (name, RECORDS_KEPT - 1)
    text = scheduling.progress_text(new)
    yield "update treadle.schedule set progress = $2::text where name = $1::text", (name, text)


def _still_live(row: Schedule | None) -> Talk[set[str]]:
    if row is None or not row.progress.live:
        return set()
    found = yield "select id::text from treadle.job where id = any ($1::uuid[])", (list(row.progress.live),)
    return {id for (id,) in found}


def _known(wish: Fire) -> Talk[dict[float | str, FireRecord]]:
    if not wish.shots:
        return {}
    if wish.manual:
        found = yield f"{_RECORD} and manual and job = any ($2::text[])", (wish.name, [s.job.id for s in wish.shots])
    else:
        times = [shot.fire_at for shot in wish.shots]
        found = yield f"{_RECORD} and not manual and fire_at = any ($2::float8[])", (wish.name, times)
    return {record.key: record for record in map(_record_of, found)}


def fires(name: str, limit: int) -> Talk[list[FireRecord]]:
    found = yield f"{_RECORD} order by fire_at desc limit $2::int", (name, limit)
    return [_record_of(row) for row in found]


def _record_of(row: Row) -> FireRecord:
    fire_at, at, outcome, job, manual = row
    return FireRecord(fire_at=fire_at, at=at, outcome=outcome, job=job or None, manual=manual)
