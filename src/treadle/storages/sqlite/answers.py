"""Answers from outside: the rows are loaded, the core is asked, and everything is written in the writer's transaction.
All of it waits for the disk: whoever was told that his word counts has told it for good."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...core import answer as answering
from ...core import lifecycle
from ...core.answer import Answer, Given, NewAnswer
from ...core.audit import AuditLine
from ...core.job import Job, State
from ...ports import Answered, Clock, WaitOver
from . import answer_rows, apply, audit, find
from .news import News
from .rows import Database
from .writer import Operation

T = TypeVar("T")


class SQLiteAnswers:
    """The verbs. `_read` and `_write` are the storage's own."""

    _clock: Clock

    async def open_answer(self, new: NewAnswer) -> bool:
        return await self._write(lambda db, _: answer_rows.open_(db, new, self._clock.now()), grows=True)

    async def answer(self, id: str, given: Given, *, line: AuditLine | None = None) -> Answered:
        return await self._write(lambda db, news: answer(db, id, given, self._clock, news, line), grows=True)

    async def beat_answer(self, id: str) -> Answered:
        return await self._write(lambda db, _: beat(db, id, self._clock))

    async def answer_of(self, id: str) -> tuple[float, Answer | None]:
        now = self._clock.now()
        return now, await self._read(lambda db: answer_rows.load(db, id))

    async def awaited(self, job_id: str) -> Answer | None:
        return await self._read(lambda db: awaited(db, job_id, self._clock))

    async def waits_over(self, limit: int) -> Sequence[WaitOver]:
        while True:
            found, left = await self._read(lambda db: over(db, limit, self._clock))
            if not left or not await self._write(_leaving(left), relaxed=True) or len(found) == limit:
                return found

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError

    async def _write(
        self, operation: Operation[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
    ) -> T:
        raise NotImplementedError


def answer(db: Database, id: str, given: Given, clock: Clock, news: News, line: AuditLine | None = None) -> Answered:
    row = answer_rows.load(db, id)
    job = _job_of(db, row, clock)
    now = clock.now()
    settled = answering.settle(row, job, given, now)
    if settled.answer is not None:
        answer_rows.save(db, settled.answer)
        audit.write(db, line, now)
        news.ended.add(id)
        if settled.releases and job is not None:
            apply.apply(db, (lifecycle.answered(job, settled.answer),), clock, news)
    return Answered.of(settled, row)


def beat(db: Database, id: str, clock: Clock) -> Answered:
    row = answer_rows.load(db, id)
    settled = answering.keep_alive(row, _job_of(db, row, clock), clock.now())
    if settled.answer is not None:
        answer_rows.save(db, settled.answer)
        db.execute(
            "update treadle_job set deadline = ? where id = ? and state = 'waiting' and ?",
            (settled.answer.expires_at, settled.answer.job, settled.answer.waits),
        )
    return Answered.of(settled, row)


def awaited(db: Database, job_id: str, clock: Clock) -> Answer | None:
    """The newest of the job's open answers that the job waits for."""
    found = db.execute(
        f"select {answer_rows.COLUMNS} from treadle_answer where job_id = ? and waits order by opened_at desc",
        (job_id,),
    ).fetchall()
    for each in [answer_rows.answer_of(row) for row in found]:
        job = _job_of(db, each, clock)
        if each is not None and job is not None and answering.awaits(job, each):
            return each
    return None


def over(db: Database, limit: int, clock: Clock) -> tuple[list[WaitOver], list[str]]:
    """Waits that are over, and the ids of answers that nobody waits for any more."""
    found = db.execute(
        f"select {answer_rows.COLUMNS} from treadle_answer where waits and expires_at <= ? order by expires_at limit ?",
        (clock.now(), limit),
    ).fetchall()
    waits: list[WaitOver] = []
    left: list[str] = []
    for row, each in [(row, answer_rows.answer_of(row)) for row in found]:
        job = _job_of(db, each, clock)
        if each is not None and job is not None and job.state is State.WAITING and job.token == each.claim:
            waits.append(WaitOver(job, each))
        else:
            left.append(row[0])
    return waits, left


def _leaving(ids: Sequence[str]) -> Operation[int]:
    return lambda db, _: leave(db, ids)


def leave(db: Database, ids: Sequence[str]) -> int:
    """Their jobs went elsewhere while they waited. How many are still of nobody: that was a moment ago."""
    return sum(
        db.execute(
            "update treadle_answer set waits = 0 where id = ?1 and waits and not exists ("
            "select 1 from treadle_job as job "
            "where job.id = treadle_answer.job_id and job.state = 'waiting' and job.token = treadle_answer.claim)",
            (id,),
        ).rowcount
        for id in ids
    )


def _job_of(db: Database, row: Answer | None, clock: Clock) -> Job | None:
    found = [] if row is None else find.get(db, (row.job,), clock)
    return found[0] if found else None
