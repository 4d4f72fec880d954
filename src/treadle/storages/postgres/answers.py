"""Answers from outside: the rows are locked, the core is asked, and everything is written in one transaction."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...core import answer as answering
from ...core import lifecycle
from ...core.answer import Answer, Given, NewAnswer
from ...core.audit import AuditLine
from ...core.job import Job, State
from ...ports import Answered, WaitOver
from . import answer_rows, audit, bounds, find, rows, sql
from .change import apply_one
from .cluster import Time
from .news import News
from .talk import BEGIN, COMMIT, Ask, BadValue, Talk

if TYPE_CHECKING:
    from .desk import Desks

_PATIENCE: Final[Ask] = ("select set_config('lock_timeout', '2000', true)", ())
_JOB: Final = "select job_id from treadle.answer where id = $1::text"
_HOLD: Final = "select 1 from treadle.job where id = $1::uuid for update"
_LIMIT: Final = "update treadle.job set deadline = to_timestamp($2::float8) where id = $1::uuid and state = 'waiting'"
_OVER: Final = f"""
select {answer_rows.COLUMNS}
from treadle.answer
where waits and expires_at <= $1::float8
order by expires_at
limit $2::int
"""
_OF_JOB: Final = (
    f"select {answer_rows.COLUMNS} from treadle.answer where job_id = $1::text and waits order by opened_at desc"
)
# Its job went elsewhere while it waited: looked at once more, because that may have been a moment ago.
_LEAVE: Final = f"""
update treadle.answer as job
set waits = false, {bounds.mended("answer")}
where job.id = any ($1::text[]) and job.waits and not exists (
    select from treadle.job as j
    where j.id = {sql.as_id("job.job_id")} and j.state = 'waiting' and j.token = job.claim
)
returning 1
"""


class PostgresAnswers:
    """The verbs of answers, as part of the storage."""

    _desks: Desks
    _time: Callable[[], Time]
    _read: Callable[..., Coroutine[Any, Any, Any]]
    _tell: Callable[[News], None]

    async def open_answer(self, new: NewAnswer) -> bool:
        moment = self._time()
        return await self._desks.mine().slow.run(lambda: open_answer(new, moment))

    async def answer(self, id: str, given: Given, *, line: AuditLine | None = None) -> Answered:
        moment = self._time()
        told: list[News] = []

        def make() -> Talk[Answered]:
            told[:] = [News()]
            return answer(id, given, moment, told[0], line)

        answered = await self._desks.mine().slow.run(make)
        self._tell(told[0])
        return answered

    async def beat_answer(self, id: str) -> Answered:
        moment = self._time()
        return await self._desks.mine().slow.run(lambda: beat(id, moment))

    async def answer_of(self, id: str) -> tuple[float, Answer | None]:
        moment = self._time()
        found: tuple[float, Answer | None] = await self._read(lambda: look(id, moment))
        return found

    async def awaited(self, job_id: str) -> Answer | None:
        if not rows.is_id(job_id):
            return None
        moment = self._time()
        found: Answer | None = await self._read(lambda: awaited(job_id.lower(), moment))
        return found

    async def waits_over(self, limit: int) -> Sequence[WaitOver]:
        moment = self._time()
        while True:
            found: tuple[list[WaitOver], list[str]] = await self._read(lambda: over(limit, moment))
            waits, left = found
            if not left or not await self._desks.mine().slow.run(_leaving(left)) or len(waits) == limit:
                return waits


def open_answer(new: NewAnswer, time: Time) -> Talk[bool]:
    yield BEGIN
    yield _PATIENCE
    opened = yield from answer_rows.open_(new, (yield from find.the_time(time)))
    yield COMMIT
    return opened


def answer(id: str, given: Given, time: Time, news: News, line: AuditLine | None = None) -> Talk[Answered]:
    yield BEGIN
    yield _PATIENCE
    row, job = yield from _held(id, time)
    now = yield from find.the_time(time)
    settled = answering.settle(row, job, given, now)
    if settled.answer is not None:
        yield from answer_rows.save(settled.answer)
        yield from audit.write(line, now)
        news.ended.add(id)
        if settled.releases and job is not None:
            applied = yield from apply_one(lifecycle.answered(job, settled.answer), time, news)
            if not applied.accepted:  # its row is ours: nothing can have come in between
                raise BadValue(f"job {job.id} cannot be released: {applied.error or applied.state}")
    yield COMMIT
    return Answered.of(settled, row)


def beat(id: str, time: Time) -> Talk[Answered]:
    yield BEGIN
    yield _PATIENCE
    row, job = yield from _held(id, time)
    settled = answering.keep_alive(row, job, (yield from find.the_time(time)))
    if settled.answer is not None:
        yield from answer_rows.save(settled.answer)
        if settled.answer.waits:
            yield _LIMIT, (settled.answer.job, settled.answer.expires_at)
    yield COMMIT
    return Answered.of(settled, row)


def _held(id: str, time: Time) -> Talk[tuple[Answer | None, Job | None]]:
    """The answer and its job, both locked."""
    found = [] if "\0" in id else (yield _JOB, (id,))
    if not found:
        return None, None
    yield _HOLD, (found[0][0],)
    row = yield from answer_rows.load(id)
    jobs = [] if row is None else (yield from find.get((row.job,), time[0]))
    return row, jobs[0] if jobs else None


def look(id: str, time: Time) -> Talk[tuple[float, Answer | None]]:
    now = yield from find.the_time(time)
    return now, (yield from answer_rows.load(id, lock=False))


def awaited(job_id: str, time: Time) -> Talk[Answer | None]:
    """The newest of the job's open answers that the job waits for."""
    found = yield _OF_JOB, (job_id,)
    jobs = (yield from find.get((job_id,), time[0])) if found else []
    answers = [answer_rows.answer_of(row) for row in found]
    return next((each for each in answers for job in jobs if answering.awaits(job, each)), None)


def over(limit: int, time: Time) -> Talk[tuple[list[WaitOver], list[str]]]:
    """Waits that are over, and the ids of answers that nobody waits for any more."""
    now = yield from find.the_time(time)
    found = yield _OVER, (now, limit)
    if not found:
        return [], []
    answers = [answer_rows.answer_of(row) for row in found]
    jobs = {job.id: job for job in (yield from find.get([each.job for each in answers], time[0]))}
    waits = [
        WaitOver(job, each)
        for each in answers
        if (job := jobs.get(each.job)) is not None and job.state is State.WAITING and job.token == each.claim
    ]
    waiting = {each.answer.id for each in waits}
    return waits, [each.id for each in answers if each.id not in waiting]


def _leaving(ids: list[str]) -> Callable[[], Talk[int]]:
    def leave() -> Talk[int]:
        left = yield _LEAVE, (ids,)
        return len(left)

    return leave
