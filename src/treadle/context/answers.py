"""Answers from outside, as a task sees them: a token to give away, and what came back.

if ctx.has_answer:
    return await ctx.answer()
token = await ctx.answer_token("1h")
await provider.start(order, callback=token)
raise Wait(token)
"""

from __future__ import annotations

import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from ..core import answer as answering
from ..core import payload
from ..core.answer import Answer
from ..core.duration import Duration, seconds
from ..core.errors import AnswerFailed
from ..core.job import Job
from ..core.outcome import AnswerAgain

T = TypeVar("T")

_BYTES: Final = 32


def new_token() -> str:
    """A token that can be an argument of a command: one in 64 would begin with a dash, and be taken for an option."""
    while (token := secrets.token_urlsafe(_BYTES)).startswith("-"):
        pass
    return token


class Asked(Protocol):
    """What is asked of the outside for it: a part of `context.Door`."""

    async def open_answer(self, id: str, job_id: str, claim: str, timeout: float, keep: str | None) -> None: ...
    async def wait_for_answer(self, id: str) -> Answer: ...
    async def read_answer(self, id: str) -> Answer: ...
    def run_sync(self, work: Coroutine[Any, Any, T]) -> T: ...


class Waiting:
    """A part of Context."""

    __slots__ = ()

    if TYPE_CHECKING:
        _job: Job

        def _outside(self) -> Asked: ...

    async def answer_token(self, timeout: Duration = answering.DEFAULT_TIMEOUT) -> str:
        """A token for somebody outside, by which this run, and no other, can be answered within `timeout`. Then
        `raise Wait(token)`, and the job waits without a slot; or `await ctx.answer(token)`. Whoever has it may answer:
        do not log it."""
        limit = seconds(timeout, "timeout")
        if limit == 0:
            raise ValueError("timeout must be longer than zero")
        token = new_token()
        door, mark = self._outside(), answering.mark_of(self._job.meta)
        had = None if mark is None else mark.id
        await door.open_answer(answering.id_of(token), self._job.id, self._job.token or "", limit, had)
        return token

    def answer_token_sync(self, timeout: Duration = answering.DEFAULT_TIMEOUT) -> str:
        return self._outside().run_sync(self.answer_token(timeout))

    @property
    def has_answer(self) -> bool:
        """Whether there is an answer for `await ctx.answer()`: an attempt of this job has waited, and was given one. It
        stays through later attempts, until another comes; an error, only until an attempt has failed by it."""
        return self.answer_kind in ("result", "error")

    @property
    def answer_kind(self) -> Literal["result", "error", "again"] | None:
        """What the last attempt that waited was told: a result, an error, or to try again."""
        mark = answering.mark_of(self._job.meta)
        return None if mark is None or mark.kind == "expired" else mark.kind

    async def answer(self, token: str | None = None) -> Any:
        """What was answered: to an earlier attempt, which waited for it; or, with a token of this run, as soon as it is
        there, waited for in this slot and this attempt. For waits of seconds.

        Raises AnswerFailed with what the other side says, if that is an error. With a token also AnswerAgain, and
        AnswerExpired if nobody answers in time.
        """
        if token is not None:
            return _value(await self._outside().wait_for_answer(answering.id_of(token)))
        mark = answering.mark_of(self._job.meta)
        if mark is None or not self.has_answer:
            raise RuntimeError("no answer has come to this job yet: ask ctx.has_answer first, or give a token")
        return _value(await self._outside().read_answer(mark.id))

    def answer_sync(self, token: str | None = None) -> Any:
        return self._outside().run_sync(self.answer(token))


def _value(found: Answer) -> Any:
    value = None if found.value is None else payload.decode_trusted(found.value)
    if found.kind == "error":
        words = value if isinstance(value, str) else str(found.value)
        raise AnswerFailed(f"the answer is an error: {words}", value)
    if found.kind == "again":
        raise AnswerAgain(found.after or 0.0)
    return value
