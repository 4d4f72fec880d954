"""What somebody outside says to a job that waits: `app.answers`. The token is the credential; see `ctx.answer_token`.

Of any number of callers one wins. Whoever says the same again is told so, and all is well; something else is a
Conflict. An attempt that is over takes no answers: AnswerStale.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from ..client.client import Client, new_id
from ..core import answer as answering
from ..core import names
from ..core.answer import Given
from ..core.audit import AuditLine
from ..core.duration import Duration
from ..core.errors import AnswerNotFound, AnswerStale, Conflict
from ..core.event import clean
from ..ports import Answered

AnswerOutcome = Literal["won", "same"]


class Answers:
    """`app.answers`: what somebody outside says to a job that waits for it, by its token.

    >>> app.answers.give_sync("no-such-token", {"id": "r-1"})
    Traceback (most recent call last):
    treadle.AnswerNotFound: …
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def give(self, token: str, result: object = None) -> AnswerOutcome:
        """Answer with a result: any JSON, 1 MiB at most. The job runs again and sees it. `won`, or `same` if it was
        given before; Conflict, AnswerStale, AnswerNotFound, PayloadError."""
        return await self.say(token, answering.result(result))

    async def fail(self, token: str, error: object) -> AnswerOutcome:
        """Answer with an error, mostly text, 16 KiB at most: AnswerFailed where the task reads it."""
        return await self.say(token, answering.error(error))

    async def again(self, token: str, after: Duration) -> AnswerOutcome:
        """Not now: the job runs again after so long, at no cost, and may ask anew."""
        return await self.say(token, answering.again(after))

    async def say(self, token: str, given: Given) -> AnswerOutcome:
        """One of the three above, as it comes in the body of a request."""
        return _told(await self._client.answer(answering.id_of(token), given))

    async def say_job(
        self, job_id: str, given: Given, *, by: str | None = None, reason: str | None = None
    ) -> AnswerOutcome:
        """The same to the job instead of its token, for operators: the job must wait, without a slot. Conflict if it
        does not; JobNotFound. With `by`, the act stands in the job's timeline and, with the `reason`, in the audit."""
        if reason is not None:
            names.check_reason(reason)
        found = await self._client.awaited(job_id)
        if found is None:
            job = await self._client.get(job_id)
            raise Conflict(f"job {job_id} is {job.state}: it does not wait for an answer")
        line = None
        if by is not None:
            said = "answered with an error" if given.kind == "error" else f"answered: {given.kind}"
            line = AuditLine(id=new_id(), act="jobs.answer", subject=job_id, by=clean(by), reason=reason, detail=said)
        return _told(await self._client.answer(found.id, given, line))

    async def give_job(
        self, job_id: str, result: object = None, *, by: str | None = None, reason: str | None = None
    ) -> AnswerOutcome:
        """`give`, to a job that waits."""
        return await self.say_job(job_id, answering.result(result), by=by, reason=reason)

    async def fail_job(
        self, job_id: str, error: object, *, by: str | None = None, reason: str | None = None
    ) -> AnswerOutcome:
        """`fail`, to a job that waits."""
        return await self.say_job(job_id, answering.error(error), by=by, reason=reason)

    async def beat(self, token: str) -> datetime:
        """Still at it: the wait may last its whole time from now on. Answers with its new limit; AnswerStale,
        AnswerNotFound."""
        told = await self._client.beat_answer(answering.id_of(token))
        if told.until is None:
            raise _refused(told)
        return datetime.fromtimestamp(told.until, UTC)

    def give_sync(self, token: str, result: object = None) -> AnswerOutcome:
        return self._client.run_sync(self.give(token, result))

    def fail_sync(self, token: str, error: object) -> AnswerOutcome:
        return self._client.run_sync(self.fail(token, error))

    def again_sync(self, token: str, after: Duration) -> AnswerOutcome:
        return self._client.run_sync(self.again(token, after))

    def give_job_sync(
        self, job_id: str, result: object = None, *, by: str | None = None, reason: str | None = None
    ) -> AnswerOutcome:
        return self._client.run_sync(self.give_job(job_id, result, by=by, reason=reason))

    def fail_job_sync(
        self, job_id: str, error: object, *, by: str | None = None, reason: str | None = None
    ) -> AnswerOutcome:
        return self._client.run_sync(self.fail_job(job_id, error, by=by, reason=reason))

    def beat_sync(self, token: str) -> datetime:
        return self._client.run_sync(self.beat(token))


def _told(told: Answered) -> AnswerOutcome:
    if told.outcome == "won":
        return "won"
    if told.outcome == "same":
        return "same"
    raise _refused(told)


def _refused(told: Answered) -> Conflict | AnswerStale | AnswerNotFound:
    if told.outcome == "unknown":
        return unknown_token()
    if told.outcome == "conflict":
        return Conflict(f"job {told.job} has been given another answer")
    return AnswerStale(f"job {told.job} does not wait for this answer any more: that attempt is over")


def unknown_token() -> AnswerNotFound:
    return AnswerNotFound("there is no such token; it is the text that ctx.answer_token gave, whole")
