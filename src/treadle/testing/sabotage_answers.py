"""Storages whose answers from outside are broken on purpose. See `sabotage`."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from ..core import answer as answering
from ..core.answer import Answer, Given, NewAnswer
from ..core.audit import AuditLine
from ..core.job import Change, Job, State
from ..ports import Answered, Applied, Wake
from ..storages.memory.operations import keep_line
from ..storages.memory.storage import _Row  # pyright: ignore[reportPrivateUsage] - it knows its victim
from .sabotage import Sabotaged


class AnswerIgnoresTheClaim(Sabotaged):
    caught_by = "test_a_token_ends_with_its_attempt"

    def _job_of(self, row: Answer | None) -> Job | None:
        job = super()._job_of(row)
        return None if row is None or job is None else replace(job, token=row.claim, state=State.WAITING)


class TheLastWordWins(Sabotaged):
    caught_by = "test_of_many_words_at_once_exactly_one_wins"

    async def answer(self, id: str, given: Given, *, line: AuditLine | None = None) -> Answered:
        if (row := self._answers.get(id)) is not None:
            self._answers[id] = replace(row, kind=None)
        return await super().answer(id, given, line=line)


class EarlyAnswerIsForgotten(Sabotaged):
    """The lost wake-up: the wait looks for no answer, and the answer has found nobody who waits."""

    caught_by = "test_an_answer_that_is_faster_than_the_wait_is_kept"

    def _meet(self, change: Change, now: float) -> Answer | None:
        row = super()._meet(change, now)
        return row if row is None else replace(row, kind=None)


class AnyAnswerMayBeWaitedFor(Sabotaged):
    caught_by = "test_a_run_waits_only_for_an_answer_of_its_own"

    def _meet(self, change: Change, now: float) -> Answer | None:
        return self._answers.get(change.answer or "")


class EndOfTheWaitIgnoresTheBeat(Sabotaged):
    caught_by = "test_a_beat_moves_the_limit"

    def _meet(self, change: Change, now: float) -> Answer | None:
        return super()._meet(change, now if change.why == "waits" else now + answering.DEFAULT_TIMEOUT)


class BeatIsNotWritten(Sabotaged):
    caught_by = "test_a_beat_moves_the_limit"

    async def beat_answer(self, id: str) -> Answered:
        before = self._answers.get(id)
        told = await super().beat_answer(id)
        if before is not None:
            self._answers[id] = before
        return told


class OpenIgnoresTheClaim(Sabotaged):
    caught_by = "test_a_token_ends_with_its_attempt"

    async def open_answer(self, new: NewAnswer) -> bool:
        self._answers.setdefault(new.id, answering.opened(new, self._clock.now()))
        return True


class OpenedAgainItStartsAnew(Sabotaged):
    caught_by = "test_an_answer_may_be_opened_again"

    async def open_answer(self, new: NewAnswer) -> bool:
        self._answers.pop(new.id, None)
        return await super().open_answer(new)


class AnswersOutliveTheirJob(Sabotaged):
    caught_by = "test_answers_go_with_their_job"

    def _forget_answers(self, job_id: str) -> None:
        pass


class WaitingJobIsClaimed(Sabotaged):
    caught_by = "test_a_job_that_waits_is_nobodys"

    def _apply_met(self, row: _Row, job: Job, change: Change, now: float) -> Applied:
        applied = super()._apply_met(row, job, change, now)
        if row.job.state is State.WAITING:
            row.job = replace(row.job, state=State.READY, run_at=now)
        return applied


class AnswerKeepsTheCharge(Sabotaged):
    caught_by = "test_an_answer_releases_it_and_returns_its_charge"

    def _apply(self, change: Change, now: float) -> Applied:
        return super()._apply(replace(change, attempt=None) if change.why == "answered" else change, now)


class ReleaseForgetsTheMark(Sabotaged):
    caught_by = "test_an_answer_releases_it_and_returns_its_charge"

    def _apply(self, change: Change, now: float) -> Applied:
        return super()._apply(replace(change, meta=UNSET) if change.why == "answered" else change, now)


class ChangeForgetsTheMeta(Sabotaged):
    caught_by = "test_every_kind_of_change_may_write_the_meta"

    def _apply(self, change: Change, now: float) -> Applied:
        return super()._apply(replace(change, meta=UNSET), now)


class AnswerWakesNobody(Sabotaged):
    caught_by = "test_listeners_hear_of_an_answer"

    async def answer(self, id: str, given: Given, *, line: AuditLine | None = None) -> Answered:
        listeners, self._listeners = self._listeners, {}
        told = await super().answer(id, given, line=line)
        self._listeners = listeners
        return told


class EarlyReleaseWakesNobody(Sabotaged):
    caught_by = "test_listeners_hear_of_a_wait_that_was_answered_before"

    def _tell(self, wake: Wake) -> None:
        if not any(row.job.meta is not None for row in self._rows.values()):
            super()._tell(wake)


class AwaitedIgnoresTheClaim(Sabotaged):
    caught_by = "test_a_waiting_job_names_the_answer_that_it_waits_for"

    async def awaited(self, job_id: str) -> Answer | None:
        return next((each for each in self._answers.values() if each.job == job_id), None)


class RefusedAnswerLeavesALine(Sabotaged):
    caught_by = "test_an_answer_that_counts_brings_its_line_into_the_audit"

    async def answer(self, id: str, given: Given, *, line: AuditLine | None = None) -> Answered:
        told = await super().answer(id, given)
        keep_line(self._audit, line, self._clock.now())
        return told
