"""History: roll-ups, readings and the lines of timelines. Losing the last of it loses no job, so no commit here waits
for the disk."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ...core.event import MOST_LINES, Event
from ...core.reading import Reading
from ...core.rollup import RESOLUTION_OF, Rollup, What, readable
from ...ports import Vitals
from . import answer_rows, progress, rows, sql
from .sql import Schema
from .talk import BEGIN, COMMIT, Ask, Talk

if TYPE_CHECKING:
    from .desk import Desks

_encode: Final = msgspec.json.Encoder().encode
_as_rollup: Final = msgspec.json.Decoder(Rollup).decode
_as_reading: Final = msgspec.json.Decoder(Reading).decode
_as_event: Final = msgspec.json.Decoder(Event).decode

_RELAXED: Final[Ask] = ("select set_config('synchronous_commit', 'off', true)", ())
_ROLL_UP: Final = """
insert into treadle.rollup (resolution, at, queue, task, pod, entry)
select * from unnest($1::int[], $2::float8[], $3::text[], $4::text[], $5::text[], $6::text[])
on conflict (resolution, at, queue, task, pod) do update set entry = excluded.entry
"""
_NOTE: Final = """
insert into treadle.reading (resolution, at, pod, entry)
select * from unnest($1::int[], $2::float8[], $3::text[], $4::text[])
on conflict (resolution, at, pod) do update set entry = excluded.entry
"""
_RECORD: Final = f"""
insert into treadle.event (job_id, id, at, entry)
select n.job::text, n.id, coalesce(n.at, date_part('epoch', {sql.CLOCK})), n.entry
from unnest($2::uuid[], $3::text[], $4::float8[], $5::text[]) as n (job, id, at, entry)
where
    exists (select from treadle.job as j where j.id = n.job)
    or exists (select from treadle.job_history as h where h.id = n.job)
on conflict do nothing
"""


class PostgresHistory:
    """The verbs of history, as part of the storage."""

    _schema: Schema
    _desks: Desks
    _now: Callable[[], float | None]
    _read: Callable[..., Coroutine[Any, Any, Any]]

    async def roll_up(self, rows: Sequence[Rollup | Reading]) -> None:
        if rows:
            await self._desks.mine().slow.run(lambda: roll_up(rows))

    async def record(self, events: Sequence[Event]) -> None:
        now = self._now()
        if events:
            await self._desks.mine().slow.run(lambda: record(events, now))

    async def rollups(
        self,
        resolution: int,
        since: float,
        until: float | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Rollup]:
        if not rows.is_text(queue, task):
            return []
        found: list[Rollup] = await self._read(lambda: rollups(resolution, since, until, queue, task, limit))
        return found

    async def readings(
        self, resolution: int, since: float, until: float | None = None, *, pod: str | None = None
    ) -> Sequence[Reading]:
        if not rows.is_text(pod):
            return []
        found: list[Reading] = await self._read(lambda: readings(resolution, since, until, pod))
        return found

    async def timeline(self, job_id: str) -> Sequence[Event]:
        if not rows.is_text(job_id):
            return []
        found: list[Event] = await self._read(lambda: timeline(job_id))
        return found

    async def forget_history(self, what: What, age: float, limit: int = 1000) -> int:
        now = self._now()
        return await self._desks.mine().slow.run(lambda: forget(what, age, limit, now))

    async def vitals(self) -> Vitals:
        found: Vitals = await self._read(lambda: vitals(self._schema.name))
        return found


def roll_up(given: Sequence[Rollup | Reading]) -> Talk[None]:
    # In one order, for two leaders at once; and each key once, because a statement cannot write a row twice.
    counted = dict(sorted({row.key: row for row in given if isinstance(row, Rollup)}.items()))
    measured = dict(sorted({row.key: row for row in given if isinstance(row, Reading)}.items()))
    yield BEGIN
    yield _RELAXED
    if counted:
        yield _ROLL_UP, (*_columns(counted, 5), [_encode(row).decode() for row in counted.values()])
    if measured:
        yield _NOTE, (*_columns(measured, 3), [_encode(row).decode() for row in measured.values()])
    yield COMMIT


def _columns(keys: Iterable[tuple[Any, ...]], count: int) -> list[list[Any]]:
    listed = list(keys)
    return [[key[n] for key in listed] for n in range(count)]


def rollups(
    resolution: int, since: float, until: float | None, queue: str | None, task: str | None, limit: int | None = None
) -> Talk[list[Rollup]]:
    found = yield (
        "select entry from treadle.rollup where resolution = $1::int and at >= $2::float8 "
        "and at < coalesce($3::float8, 'infinity') and ($4::text is null or queue = $4::text) "
        "and ($5::text is null or task = $5::text) order by at, queue, task, pod limit $6::int",
        (resolution, since, until, queue, task, limit),
    )
    return readable(_as_rollup, (entry for (entry,) in found))


def readings(resolution: int, since: float, until: float | None, pod: str | None) -> Talk[list[Reading]]:
    found = yield (
        "select entry from treadle.reading where resolution = $1::int and at >= $2::float8 "
        "and at < coalesce($3::float8, 'infinity') and ($4::text is null or pod = $4::text) order by at, pod",
        (resolution, since, until, pod),
    )
    return readable(_as_reading, (entry for (entry,) in found))


def record(events: Sequence[Event], now: float | None) -> Talk[None]:
    yield BEGIN
    yield _RELAXED
    yield from record_lines(events, now)
    yield COMMIT


def record_lines(events: Sequence[Event], now: float | None) -> Talk[None]:
    """The same, as part of a transaction that is open."""
    known = [event for event in events if rows.is_id(event.job)]
    yield (
        _RECORD,
        (
            now,
            [event.job for event in known],
            [event.id for event in known],
            [event.at for event in known],
            [_encode(event).decode() for event in known],
        ),
    )


def timeline(job_id: str) -> Talk[list[Event]]:
    found = yield (
        'select at, entry from treadle.event where job_id = $1::text order by at desc, id collate "C" desc '
        "limit $2::int",
        (job_id, MOST_LINES),
    )
    return readable(lambda row: msgspec.structs.replace(_as_event(row[1]), at=row[0]), reversed(found))


def forget_events(job_ids: Sequence[str]) -> Talk[None]:
    """The rows of these jobs go: their lines go with them, and what their runs have said."""
    yield "delete from treadle.event where job_id = any ($1::text[])", (list(job_ids),)
    yield from progress.forget(job_ids)
    yield from answer_rows.forget(job_ids)


def forget(what: What, age: float, limit: int, now: float | None) -> Talk[int]:
    resolution: int | None = None
    if what == "events":
        table = "treadle.event"
    else:
        table = "treadle.reading" if "readings" in what else "treadle.rollup"
        resolution = RESOLUTION_OF[what]
    its = "" if resolution is None else f"resolution = {resolution} and "
    # Rows that somebody else is removing just now are left to that one.
    gone = yield (
        f"delete from {table} where ctid = any (array(select ctid from {table} where {its}"
        f"at < date_part('epoch', {sql.CLOCK}) - $2::float8 order by at limit $3::int for update skip locked)) "
        "returning 1",
        (now, age, limit),
    )
    return len(gone)


def vitals(schema: str) -> Talk[Vitals]:
    ((size, connections, may_look),) = yield (
        "select (select sum(pg_total_relation_size(c.oid))::bigint from pg_class as c "
        "where c.relnamespace = to_regnamespace($1::text)::oid and c.relkind = 'r'), "
        "(select count(*) from pg_stat_activity where application_name like 'treadle%'), "
        "has_function_privilege('pg_catalog.pg_ls_waldir()', 'execute')",
        (f'"{schema}"',),
    )
    wal = None
    if may_look:
        ((wal,),) = yield "select sum(size)::bigint from pg_ls_waldir()", ()
    return Vitals(bytes=size, wal_bytes=wal, connections=connections)
