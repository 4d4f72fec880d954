"""Answers from outside, as the client carries them: for runs that wait, and for those who answer.

A run that waits in place is woken by an answer that this process gives, and finds by polling what others do. When its
time is over it says so by a word of its own, which competes with the others: so nobody is told that his answer counts
while the run has given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ..core import answer as answering
from ..core.answer import Answer, Given, NewAnswer
from ..core.audit import AuditLine
from ..core.duration import words
from ..core.errors import AnswerExpired, AnswerNotFound, AnswerStale, ClaimLost
from ..core.event import Event
from ..core.job import Job
from ..hooks import Hooks
from ..ports import Answered, Storage

T = TypeVar("T")

FIRST_POLL: Final = 0.05
LONGEST_POLL: Final = 1.0
_A_MOMENT: Final = 0.001


class _Waiters(Protocol):
    def waiting(self, storage: Storage, id: str) -> AbstractContextManager[asyncio.Event]: ...


class Replying:
    """A part of Client."""

    if TYPE_CHECKING:
        _hooks: Hooks
        _waiters: _Waiters

        async def ask(self, verb: Callable[[Storage], Awaitable[T]]) -> T: ...
        async def get(self, job_id: str) -> Job: ...
        async def _ready(self) -> Storage: ...
        async def _write_down(self, line: Event) -> None: ...

    async def open_answer(self, id: str, job_id: str, claim: str, timeout: float, keep: str | None) -> None:
        """For a run: an answer that may be given from now on."""
        new = NewAnswer(id=id, job=job_id, claim=claim, timeout=timeout, keep=keep)
        if not await self.ask(lambda storage: storage.open_answer(new)):
            raise ClaimLost(f"job {job_id} is another run's by now, or has ended: nothing can be asked for this one")

    async def wait_for_answer(self, id: str) -> Answer:
        """For a run: the answer, once it is there."""
        storage = await self._ready()
        with self._waiters.waiting(storage, id) as given:
            pause = FIRST_POLL
            while True:
                now, found = await self.ask(lambda storage: storage.answer_of(id))
                if found is None:
                    raise AnswerNotFound("ctx.answer was given a token that no run has made")
                if found.kind is not None and found.kind != "expired":
                    return found
                if found.kind == "expired" or (found.expires_at <= now and await self._is_over(found)):
                    raise AnswerExpired(f"no answer came within {words(found.timeout)}")
                left = max(_A_MOMENT, found.expires_at - now)
                pause = max(pause, await rest(given, min(pause, left)))

    async def _is_over(self, answer: Answer) -> bool:
        """End a wait of our own; not if somebody was faster, with an answer or with a beat."""
        told = await self.ask(lambda storage: storage.answer(answer.id, answering.EXPIRED))
        if told.outcome == "stale":
            raise AnswerStale(f"job {answer.job} is another run's by now, or has ended")
        return told.outcome in ("won", "same")

    async def read_answer(self, id: str) -> Answer:
        _, found = await self.ask(lambda storage: storage.answer_of(id))
        if found is None:
            raise AnswerNotFound("the answer that this job got is not there any more")
        return found

    async def awaited(self, job_id: str) -> Answer | None:
        """The answer that a job waits for now, without a slot."""
        return await self.ask(lambda storage: storage.awaited(job_id))

    async def answer(self, id: str, given: Given, line: AuditLine | None = None) -> Answered:
        """From outside: what became of the word. The timeline hears of it, and hooks of a job that it released. The
        line stands in the audit if this answer counts."""
        told = await self.ask(lambda storage: storage.answer(id, given, line=line))
        if told.outcome == "won" and told.job is not None:
            by = None if line is None else line.by
            await self._write_down(Event(id="", job=told.job, what="answered", by=by, detail=given.kind))
            if told.released and self._hooks.released:
                self._hooks.tell("released", await self.get(told.job))
        return told

    async def beat_answer(self, id: str) -> Answered:
        return await self.ask(lambda storage: storage.beat_answer(id))


async def rest(told: asyncio.Event, pause: float) -> float:
    """Wait until somebody tells, or for the pause; how long to wait the next time."""
    try:
        async with asyncio.timeout(pause):
            await told.wait()
    except TimeoutError:
        pause = min(LONGEST_POLL, pause * 1.5)
    told.clear()
    return pause
