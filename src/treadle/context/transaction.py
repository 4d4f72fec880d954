"""The finish of a run inside the task's own transaction: what it wrote, its follow-ups and its success commit together.

Why that is exactly once
------------------------
A job runs at least once: a worker may die after the task's effect and before the finish, and the effect then happens
again. Where the effect is a row in the very database that holds the jobs, both can be one commit. A worker that is
killed anywhere leaves all or nothing, and a run that has lost its claim meanwhile is refused by the finish, which is
the transaction's last statement: its effect is rolled back with it.

What comes after
----------------
Once committed, the job has succeeded, whatever the task does then. The pod sends the same finish once more, with its
next turn, and is told that it was known: a finish may be repeated by its token.

Between the commit and the moment when its pod hears of it, a beat may see that the job has ended, and would take the
claim for lost. So the pod is told before the commit, too (`commits`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Protocol

from msgspec.structs import replace

from ..core import lifecycle, payload
from ..core.backoff import Retry
from ..core.job import Change, Job, NewJob
from ..core.outcome import Succeeded


class Desk(Protocol):
    """What a transaction asks of the outside. `apply` answers with the Change that was written: what is kept
    behind the job takes over with it. It raises ClaimLost for one that is not accepted."""

    def transact(self, connection: object) -> AbstractContextManager[Any]: ...
    def transact_async(self, connection: object) -> AbstractAsyncContextManager[Any]: ...
    def apply(self, connection: object, change: Change) -> Change: ...
    async def apply_async(self, connection: object, change: Change) -> Change: ...
    async def committed(self, change: Change) -> None: ...
    def committed_sync(self, change: Change) -> None: ...


class Transaction:
    """`connection` is in a transaction that commits with the job's success. `result` becomes the job's result."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.result: object = None


@asynccontextmanager
async def finish_within_async(desk: Desk, connection: object, job: Job, settle: _Settle) -> AsyncGenerator[Transaction]:
    try:
        async with desk.transact_async(connection) as own:
            transaction = Transaction(own)
            yield transaction
            outcome, change = _finish(job, transaction, settle)
            change = await desk.apply_async(own, change)
            settle.commits(True)
    except BaseException:
        settle.commits(False)
        raise
    settle.settled(outcome)
    await desk.committed(change)


@contextmanager
def finish_within(desk: Desk, connection: object, job: Job, settle: _Settle) -> Generator[Transaction]:
    try:
        with desk.transact(connection) as own:
            transaction = Transaction(own)
            yield transaction
            outcome, change = _finish(job, transaction, settle)
            change = desk.apply(own, change)
            settle.commits(True)
    except BaseException:
        settle.commits(False)
        raise
    settle.settled(outcome)
    desk.committed_sync(change)


class _Settle(Protocol):
    """The run's own side: what follows it, and who must hear that it has ended."""

    @property
    def follow_ups(self) -> tuple[NewJob, ...]: ...
    @property
    def new_meta(self) -> str | None: ...
    def followed(self, change: Change) -> Change: ...
    def commits(self, is_next: bool, /) -> None: ...
    def settled(self, outcome: Succeeded) -> None: ...


def _finish(job: Job, transaction: Transaction, settle: _Settle) -> tuple[Succeeded, Change]:
    # Here a result that cannot be kept is an error: nothing has happened yet that would be repeated.
    text = None if transaction.result is None else payload.encode(transaction.result, what="result")
    outcome = Succeeded(text, None, settle.follow_ups)
    change = lifecycle.finish(job, outcome, Retry(), 0.0)
    if settle.new_meta is not None:
        change = replace(change, meta=settle.new_meta)
    return outcome, settle.followed(change)
