"""What somebody outside says to a job that waits: `app.answers`. The token is the credential; see `ctx.answer_token`.

Of any number of callers one wins. Whoever says the same again is told so, and all is well; something else is a
Conflict. An attempt that is over takes no answers: AnswerStale.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from .client import Client
from .core import answer as answering
from .core.answer import Given
from .core.duration import Duration
from .core.errors import AnswerNotFound, AnswerStale, Conflict
from .ports import Answered

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
        told = await self._client.answer(answering.id_of(token), given)
        if told.outcome == "won":
            return "won"
        if told.outcome == "same":
            return "same"
        raise _refused(told)

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

    def beat_sync(self, token: str) -> datetime:
        return self._client.run_sync(self.beat(token))


def _refused(told: Answered) -> Conflict | AnswerStale | AnswerNotFound:
    if told.outcome == "unknown":
        return unknown_token()
    if told.outcome == "conflict":
        return Conflict(f"job {told.job} has been given another answer")
    return AnswerStale(f"job {told.job} does not wait for this answer any more: that attempt is over")


def unknown_token() -> AnswerNotFound:
    return AnswerNotFound("there is no such token; it is the text that ctx.answer_token gave, whole")
