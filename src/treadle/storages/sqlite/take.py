"""Take: the rows that a claim has chosen become a pod's, and jobs.

Most jobs have nothing but their task, arguments and times, and jobs of one claim differ in little more than their ids.
So they are read as one text, with a mark on those that have more (`claim_read`), which are then read row by row. This
is not for the sake of the statement: pysqlite lets go of the interpreter for every row, and beside a busy event loop it
takes a tenth of a millisecond to have it back.

A row that no code of ours can have written (`rows`) is failed where it would have been claimed, as undecodable: a pod
is given sound jobs only, and nobody has to look at the bad one twice.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from ...core.job import ErrorEntry, Job, State
from ...core.queue import Queue
from . import apply, connect, rows
from .rows import Database
from .sql import statement

_READ: Final = statement("claim_read")
_TAKE: Final = statement("claim_take")
_MOST: Final = 1 << 31
_TICKS: Final = 2147483648.0  # of a second, in which claim_read tells the time
# What SQLite says of a value that JSON cannot hold, and of an answer that is too long.
_OF_VALUES: Final = frozenset({sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG})

# seq, id, task, args, format, priority, run_at, created_at, attempt, max_attempts, timeout, whether there is more.
_Plain: TypeAlias = tuple[int, str, str, str, int, int, int, int, int, int | None, float | None, int]
_as_plain: Final = msgspec.json.Decoder(list[_Plain]).decode


def take(db: Database, pod: str, token: str, queue: Queue, chosen: list[int], now: float) -> list[Job]:
    """The jobs, in the order in which they were chosen."""
    numbers = rows.json_text(chosen)
    found = _read(db, numbers)
    db.execute(_TAKE, (pod, token, now, numbers, queue.timeout))
    if found is None:
        jobs = _whole(db, chosen, queue, now)
    else:
        jobs, left = _plain(found, pod, token, queue, now)
        if not left:
            return list(jobs.values())
        jobs |= _whole(db, left, queue, now)
    return [jobs[seq] for seq in chosen if seq in jobs]


def fail(db: Database, seq: int, now: float) -> None:
    """The end of a row that cannot be run."""
    db.execute(statement("fail_damaged"), (seq, now))
    told = ErrorEntry(
        attempt=0,
        kind="undecodable",
        message="its row in the database is damaged: it holds values that no version of Treadle writes",
        started_at=now,
    )
    apply.remember(db, seq, told, now)


def _read(db: Database, numbers: str) -> list[_Plain] | None:
    """The rows, before they are taken; None if one of them holds a value that has no place there."""
    try:
        return _as_plain(db.execute(_READ, (numbers,)).fetchone()[0])
    except msgspec.MsgspecError:
        return None
    except sqlite3.Error as error:
        if connect.code_of(error) & 0xFF in _OF_VALUES:
            return None
        raise


def _plain(found: list[_Plain], pod: str, token: str, queue: Queue, now: float) -> tuple[dict[int, Job], list[int]]:
    """The jobs of the rows that were told wholly, by number; and the numbers of all others."""
    jobs: dict[int, Job] = {}
    left: list[int] = []
    models: dict[tuple[str, int, int, int, int | None, float | None], Job] = {}
    for (
        seq, id, task, args, format, priority, run_at, created_at, attempt, max_attempts, timeout, has_more,
    ) in found:  # fmt: skip
        if has_more:
            left.append(seq)
            continue
        key = (task, format, priority, attempt, max_attempts, timeout)
        model = models.get(key)
        if model is None:
            seconds = timeout if queue.timeout is None else queue.timeout
            model = Job(
                id=id,
                task=task,
                queue=queue.name,
                state=State.RUNNING,
                format=format,
                priority=priority,
                attempt=attempt,
                max_attempts=max_attempts,
                timeout=seconds,
                pod=pod,
                token=token,
                started_at=now,
                deadline=now + seconds if seconds else None,
            )
            if not _is_sound(model):
                left.append(seq)
                continue
            models[key] = model
        # A copy costs a third of a new one.
        jobs[seq] = replace(model, id=id, args=args, run_at=run_at / _TICKS, created_at=created_at / _TICKS)
    return jobs, left


def _whole(db: Database, numbers: list[int], queue: Queue, now: float) -> dict[int, Job]:
    """The jobs of rows that have been taken, read column by column; those that are damaged are failed."""
    found = db.execute(statement("get_by_seq"), (rows.json_text(numbers),)).fetchall()
    jobs = dict(_sound(db, found, queue, now))
    for row in found:
        if row[0] not in jobs:
            fail(db, row[0], now)
    return jobs


def _sound(db: Database, found: Iterable[rows.RowTuple], queue: Queue, now: float) -> Iterable[tuple[int, Job]]:
    for row in found:
        job = next(iter(rows.jobs_of(db, [row], now)), None) if rows.is_sound(row) else None
        if job is None or not _is_sound(job):
            continue
        if queue.timeout is not None and not job.pinned:
            job = replace(job, timeout=queue.timeout)
        # Whoever runs it has nothing to do with what is kept behind it.
        yield row[0], job if job.kept is None else replace(job, kept=None)


def _is_sound(job: Job) -> bool:
    """Whether its numbers make sense: attempts are bounded only if they count upwards from zero."""
    return (
        0 < job.attempt < _MOST
        and (job.max_attempts is None or job.max_attempts > 0)
        and (job.timeout is None or 0 <= job.timeout < math.inf)
        and min(job.crashes, job.snoozes, job.throttles) >= 0
    )
