"""History: roll-ups, readings and the lines of timelines. Written relaxed: losing the last of it loses no job."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ...core.event import MOST_LINES, Event
from ...core.reading import Reading
from ...core.rollup import RESOLUTION_OF, Rollup, What, readable
from ...ports import Clock, Vitals
from . import answer_rows, progress
from .rows import Database
from .writer import Operation

T = TypeVar("T")

_encode: Final = msgspec.json.Encoder().encode
_as_rollup: Final = msgspec.json.Decoder(Rollup).decode
_as_reading: Final = msgspec.json.Decoder(Reading).decode
_as_event: Final = msgspec.json.Decoder(Event).decode


class SQLiteHistory:
    """The verbs of history. `_read` and `_write` are the storage's own."""

    _clock: Clock

    async def roll_up(self, rows: Sequence[Rollup | Reading]) -> None:
        if rows:
            await self._write(lambda db, _: roll_up(db, rows), grows=True, relaxed=True)

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
        return await self._read(lambda db: rollups(db, resolution, since, until, queue, task, limit))

    async def readings(
        self, resolution: int, since: float, until: float | None = None, *, pod: str | None = None
    ) -> Sequence[Reading]:
        return await self._read(lambda db: readings(db, resolution, since, until, pod))

    async def record(self, events: Sequence[Event]) -> None:
        if events:
            await self._write(lambda db, _: record(db, events, self._clock.now()), grows=True, relaxed=True)

    async def timeline(self, job_id: str) -> Sequence[Event]:
        return await self._read(lambda db: timeline(db, job_id))

    async def forget_history(self, what: What, age: float, limit: int = 1000) -> int:
        before = self._clock.now() - age
        if not await self._read(lambda db: is_anything_older(db, what, before)):
            return 0
        return await self._write(lambda db, _: forget(db, what, before, limit), relaxed=True)

    async def vitals(self) -> Vitals:
        return await self._read(vitals)

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError

    async def _write(
        self, operation: Operation[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
    ) -> T:
        raise NotImplementedError


def roll_up(db: Database, rows: Sequence[Rollup | Reading]) -> None:
    for row in rows:
        if isinstance(row, Rollup):
            into = "treadle_rollup (resolution, at, queue, task, pod, entry) values (?, ?, ?, ?, ?, ?)"
        else:
            into = "treadle_reading (resolution, at, pod, entry) values (?, ?, ?, ?)"
        db.execute(f"insert or replace into {into}", (*row.key, _encode(row).decode()))


def rollups(
    db: Database,
    resolution: int,
    since: float,
    until: float | None,
    queue: str | None,
    task: str | None,
    limit: int | None = None,
) -> list[Rollup]:
    where, values = _between(resolution, since, until, {"queue": queue, "task": task})
    statement = f"select entry from treadle_rollup where {where} order by at, queue, task, pod limit ?"
    found = db.execute(statement, (*values, -1 if limit is None else limit))
    return readable(_as_rollup, (entry for (entry,) in found.fetchall()))


def readings(db: Database, resolution: int, since: float, until: float | None, pod: str | None) -> list[Reading]:
    where, values = _between(resolution, since, until, {"pod": pod})
    found = db.execute(f"select entry from treadle_reading where {where} order by at, pod", values)
    return readable(_as_reading, (entry for (entry,) in found.fetchall()))


def _between(
    resolution: int, since: float, until: float | None, equal: dict[str, str | None]
) -> tuple[str, tuple[Any, ...]]:
    terms: dict[str, Any] = {"resolution = ?": resolution, "at >= ?": since}
    if until is not None:
        terms["at < ?"] = until
    terms |= {f"{name} = ?": value for name, value in equal.items() if value is not None}
    return " and ".join(terms), tuple(terms.values())


def record(db: Database, events: Sequence[Event], now: float) -> None:
    for event in events:
        timed = event if event.at is not None else msgspec.structs.replace(event, at=now)
        db.execute(
            "insert or ignore into treadle_event (job_id, id, at, entry) select ?1, ?2, ?3, ?4 "
            "where exists (select 1 from treadle_job where id = ?1)",
            (timed.job, timed.id, timed.at, _encode(timed).decode()),
        )


def timeline(db: Database, job_id: str) -> list[Event]:
    found = db.execute(
        "select entry from treadle_event where job_id = ? order by at desc, id desc limit ?", (job_id, MOST_LINES)
    ).fetchall()
    return readable(_as_event, (entry for (entry,) in reversed(found)))


def forget_events(db: Database, job_ids: Iterable[str]) -> None:
    """The rows of these jobs go: their lines go with them, and what their runs have said."""
    ids = list(job_ids)
    for id in ids:
        db.execute("delete from treadle_event where job_id = ?", (id,))
    progress.forget(db, ids)
    answer_rows.forget(db, ids)


def is_anything_older(db: Database, what: What, before: float) -> bool:
    table, _, terms, values = _old(what, before)
    return db.execute(f"select 1 from {table} where {terms} limit 1", values).fetchone() is not None


def forget(db: Database, what: What, before: float, limit: int) -> int:
    table, keys, terms, values = _old(what, before)
    chosen = f"select {keys} from {table} where {terms} order by at limit ?"
    return db.execute(f"delete from {table} where ({keys}) in ({chosen})", (*values, limit)).rowcount


def _old(what: What, before: float) -> tuple[str, str, str, tuple[Any, ...]]:
    """The table, its key, and which of its rows are older."""
    if what == "events":
        return "treadle_event", "job_id, id", "at < ?", (before,)
    terms, values = "resolution = ? and at < ?", (RESOLUTION_OF[what], before)
    if "readings" in what:
        return "treadle_reading", "resolution, at, pod", terms, values
    return "treadle_rollup", "resolution, at, queue, task, pod", terms, values


def vitals(db: Database) -> Vitals:
    _, _, path = db.execute("pragma database_list").fetchone()
    (pages,) = db.execute("pragma page_count").fetchone()
    (size,) = db.execute("pragma page_size").fetchone()
    try:
        wal = os.stat(f"{path}-wal").st_size
    except OSError:
        wal = 0
    try:
        disk = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return Vitals(bytes=pages * size, wal_bytes=wal)
    return Vitals(bytes=pages * size, wal_bytes=wal, disk_free=disk.f_bavail * disk.f_frsize)
