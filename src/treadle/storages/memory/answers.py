"""Answers from outside in the reference storage: `core.answer` decides, with the job's row held."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...core import answer as answering
from ...core import lifecycle
from ...core.answer import Answer, Given, NewAnswer, Settled
from ...core.audit import AuditLine
from ...core.job import NEVER, Change, Job, State
from ...ports import Answered, Applied, Clock, WaitOver, Wake
from .operations import keep_line

if TYPE_CHECKING:
    from .storage import _Row  # pyright: ignore[reportPrivateUsage]


class MemoryAnswers:
    """The verbs about answers, for the storage that has a lock, a clock and jobs."""

    _clock: Clock
    _lock: threading.RLock
    _rows: dict[str, _Row]
    _audit: dict[str, AuditLine]

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}  # by id, in the order of opening

    if TYPE_CHECKING:

        def _tell(self, wake: Wake) -> None: ...

        def _apply(self, change: Change, now: float) -> Applied: ...

        def _write(self, row: _Row, job: Job, change: Change, now: float) -> Applied: ...

    async def open_answer(self, new: NewAnswer) -> bool:
        with self._lock:
            row = self._rows.get(new.job)
            if row is None or row.job.state is not State.RUNNING or row.job.token != new.claim:
                return False
            self._answers.setdefault(new.id, answering.opened(new, self._clock.now()))
            own = [each for each in self._answers.values() if each.job == new.job]
            for old in own[: -answering.KEPT]:
                if old.claim != new.claim and old.id != new.keep:
                    del self._answers[old.id]
            return True

    async def answer(self, id: str, given: Given, *, line: AuditLine | None = None) -> Answered:
        with self._lock:
            now = self._clock.now()
            row = self._answers.get(id)
            job = self._job_of(row)
            settled = answering.settle(row, job, given, now)
            self._keep(settled)
            if settled.outcome == "won":
                keep_line(self._audit, line, now)
            if settled.releases and job is not None and settled.answer is not None:
                self._apply(lifecycle.answered(job, settled.answer), now)
        if settled.outcome == "won" and job is not None:
            self._tell(Wake(queues=frozenset({job.queue} if settled.releases else ()), ended=frozenset({id})))
        return Answered.of(settled, row)

    async def beat_answer(self, id: str) -> Answered:
        with self._lock:
            row = self._answers.get(id)
            settled = answering.keep_alive(row, self._job_of(row), self._clock.now())
            self._keep(settled)
            if row is not None and row.waits and settled.answer is not None:
                waiting = self._rows[row.job]
                waiting.job = replace(waiting.job, deadline=settled.answer.expires_at)
            return Answered.of(settled, row)

    async def answer_of(self, id: str) -> tuple[float, Answer | None]:
        with self._lock:
            return self._clock.now(), self._answers.get(id)

    async def awaited(self, job_id: str) -> Answer | None:
        with self._lock:
            row = self._rows.get(job_id)
            own = [each for each in self._answers.values() if row is not None and answering.awaits(row.job, each)]
            return own[-1] if own else None

    async def waits_over(self, limit: int) -> Sequence[WaitOver]:
        with self._lock:
            now = self._clock.now()
            over = sorted(
                (each for each in self._answers.values() if each.waits and answering.is_over(each, now)),
                key=lambda each: each.expires_at,
            )
            waiting = [(self._rows[each.job].job, each) for each in over]
            return [WaitOver(job, each) for job, each in waiting if _waits_for(job, each)][:limit]

    def _job_of(self, row: Answer | None) -> Job | None:
        known = None if row is None else self._rows.get(row.job)
        return None if known is None else known.job

    def _keep(self, settled: Settled) -> None:
        if settled.answer is not None:
            self._answers[settled.answer.id] = settled.answer

    def _meet(self, change: Change, now: float) -> Answer | None:
        """The answer that a Change names, if the Change may be written: for a wait, one of the run's own, given or not;
        for the end of one, an answer that has not come in time."""
        row = self._answers.get(change.answer or "")
        if change.why == "waits":
            return None if answering.meet(row, change.id, change.token) == "refused" else row
        return row if answering.is_over(row, now) else None

    def _apply_met(self, row: _Row, job: Job, change: Change, now: float) -> Applied:
        """A Change that begins a wait or ends it in vain."""
        answer = self._meet(change, now)
        if answer is None:
            strange = "it waits for an answer that is none of its own, or is over" if change.why == "waits" else None
            return Applied(False, state=job.state, error=strange)
        if answer.kind is not None:
            change = lifecycle.meet(change, job, answer)
        applied = self._write(row, job, change, now)
        if applied.accepted:
            waits = change.to is State.WAITING
            self._answers[answer.id] = replace(answer, waits=waits)
            if waits:
                row.job = replace(row.job, run_at=change.run_at or NEVER, deadline=answer.expires_at)
        return applied

    def _forget_answers(self, job_id: str) -> None:
        """The job's row goes: its answers go with it."""
        for id in [each.id for each in self._answers.values() if each.job == job_id]:
            del self._answers[id]


def _waits_for(job: Job, answer: Answer) -> bool:
    return job.state is State.WAITING and job.token == answer.claim
