"""What runs report: progress, checkpoints, and the lines of logs. Only a checkpoint is worth an fsync."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ...core.logline import MOST_BYTES, MOST_LINES, LogLine
from ...core.progress import Checkpoint, Progress, Report, Reported
from ...core.rollup import readable
from ...ports import Clock
from .rows import Database
from .writer import Operation

T = TypeVar("T")

_BATCH: Final = 500
_encode: Final = msgspec.json.Encoder().encode
_as_progress: Final = msgspec.json.Decoder(Progress).decode
_TRIM: Final = f"""
delete from treadle_job_log where job_id = ?1 and n in (
    select n from (
        select
            n,
            row_number() over (order by n desc) as place,
            sum(length(cast(text as blob)) + 16) over (order by n desc) as bytes
        from treadle_job_log
        where job_id = ?1 and attempt = ?2
    )
    where place > {MOST_LINES} or bytes > {MOST_BYTES}
)
"""


class SQLiteProgress:
    """The verbs. `_read` and `_write` are the storage's own."""

    _clock: Clock

    async def report(self, reports: Sequence[Report]) -> Sequence[bool]:
        if not reports:
            return []
        relaxed = all(report.checkpoint is None for report in reports)
        return await self._write(
            lambda db, _: [report_one(db, report, self._clock.now()) for report in reports], grows=True, relaxed=relaxed
        )

    async def progress(self, job_ids: Sequence[str]) -> Sequence[Reported]:
        return await self._read(lambda db: progress(db, job_ids)) if job_ids else []

    async def checkpoint(self, job_id: str) -> Checkpoint | None:
        return await self._read(lambda db: checkpoint(db, job_id))

    async def record_logs(self, lines: Sequence[LogLine]) -> None:
        if lines:
            await self._write(lambda db, _: record_logs(db, lines), grows=True, relaxed=True)

    async def logs(self, job_id: str, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        return await self._read(lambda db: logs(db, job_id, after, limit))

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError

    async def _write(
        self, operation: Operation[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
    ) -> T:
        raise NotImplementedError


def report_one(db: Database, report: Report, now: float) -> bool:
    row = db.execute("select state, token, finished_token from treadle_job where id = ?", (report.id,)).fetchone()
    if row is None or not _is_taken(report, *row):
        return False
    if report.over:
        forget_reports(db, (report.id,))
    if report.progress is not None:
        db.execute(
            "insert or replace into treadle_job_progress (job_id, attempt, at, entry) values (?, ?, ?, ?)",
            (report.id, report.attempt, now, _encode(report.progress).decode()),
        )
    if report.checkpoint is not None:
        db.execute(
            "insert or replace into treadle_job_checkpoint (job_id, attempt, at, value) values (?, ?, ?, ?)",
            (report.id, report.attempt, now, report.checkpoint),
        )
    return True


def _is_taken(report: Report, state: str, token: str | None, finished_token: str | None) -> bool:
    """Whether the run that reports has its claim; or had it last, and only says something that may come late."""
    if token != report.token:
        return False
    return state == "running" or (report.checkpoint is None and finished_token == report.token)


def progress(db: Database, job_ids: Sequence[str]) -> list[Reported]:
    found: list[Any] = []
    for batch in _batches(job_ids):
        places = ", ".join("?" * len(batch))
        found += db.execute(
            "select p.job_id, p.attempt, p.at, p.entry from treadle_job_progress as p "
            f"join treadle_job as j on j.id = p.job_id and j.state <> 'succeeded' where p.job_id in ({places})",
            batch,
        ).fetchall()
    return readable(_reported, found)


def _reported(row: Any) -> Reported:
    return Reported(id=row[0], attempt=row[1], at=row[2], progress=_as_progress(row[3]))


def checkpoint(db: Database, job_id: str) -> Checkpoint | None:
    found = db.execute(
        "select c.attempt, c.at, c.value from treadle_job_checkpoint as c "
        "join treadle_job as j on j.id = c.job_id and j.state <> 'succeeded' where c.job_id = ?",
        (job_id,),
    ).fetchone()
    return None if found is None else Checkpoint(attempt=found[0], at=found[1], value=found[2])


def record_logs(db: Database, lines: Sequence[LogLine]) -> None:
    known = {
        id: db.execute("select 1 from treadle_job where id = ?", (id,)).fetchone() is not None
        for id in {line.job_id for line in lines}
    }
    own = [line for line in lines if known[line.job_id]]
    for line in own:
        db.execute(
            "insert or ignore into treadle_job_log (job_id, n, attempt, level, text) values (?, ?, ?, ?, ?)",
            (line.job_id, line.n, line.attempt, line.level, line.text),
        )
    for touched in {(line.job_id, line.attempt) for line in own}:
        db.execute(_TRIM, touched)


def logs(db: Database, job_id: str, after: int, limit: int) -> list[LogLine]:
    found = db.execute(
        "select n, attempt, level, text from treadle_job_log where job_id = ? and n > ? order by n desc limit ?",
        (job_id, after, limit),
    ).fetchall()
    return [LogLine(job_id, *row) for row in reversed(found)]


def forget_reports(db: Database, job_ids: Iterable[str]) -> None:
    """What these jobs' runs have left is worth nothing to them any more."""
    _delete(db, ("job_progress", "job_checkpoint"), list(job_ids))


def forget(db: Database, job_ids: Iterable[str]) -> None:
    """The rows of these jobs go: all that they said goes with them."""
    _delete(db, ("job_progress", "job_checkpoint", "job_log"), list(job_ids))


def _delete(db: Database, tables: Sequence[str], job_ids: Sequence[str]) -> None:
    for batch in _batches(job_ids):
        places = ", ".join("?" * len(batch))
        for table in tables:
            db.execute(f"delete from treadle_{table} where job_id in ({places})", batch)


def _batches(job_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (job_ids[start : start + _BATCH] for start in range(0, len(job_ids), _BATCH))
