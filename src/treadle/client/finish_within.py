"""Desk: how a run's finish is written inside a transaction of its task's. See `transactions`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from msgspec import UNSET

from ..core import lifecycle
from ..core.errors import ClaimLost, StorageUnavailable
from ..core.job import Change
from ..ports import Applied, Storage

log = logging.getLogger("treadle.transaction")


class StorageDesk:
    """Implements `transactions.Desk`. A run has its storage open: it was claimed from there."""

    def __init__(self, storage: Callable[[], Storage], run_sync: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self._storage = storage
        self._run_sync = run_sync

    def transact(self, connection: object) -> AbstractContextManager[Any]:
        return self._storage().transact(connection)

    def transact_async(self, connection: object) -> AbstractAsyncContextManager[Any]:
        return self._storage().transact_async(connection)

    def apply(self, connection: object, change: Change) -> Change:
        borrowed = self._storage().borrow(connection)
        (answer,) = borrowed.apply((change,))
        if answer.kept is not UNSET:  # the row is ours from here on: the second answer is about the same
            change = lifecycle.take_over(change, answer.kept)
            (answer,) = borrowed.apply((change,))
        return _checked(change, answer)

    async def apply_async(self, connection: object, change: Change) -> Change:
        borrowed = self._storage().borrow_async(connection)
        (answer,) = await borrowed.apply((change,))
        if answer.kept is not UNSET:
            change = lifecycle.take_over(change, answer.kept)
            (answer,) = await borrowed.apply((change,))
        return _checked(change, answer)

    async def committed(self, change: Change) -> None:
        """Not every library tells of a commit; here it is known. Waking is a hint: its loss costs a poll."""
        if queues := {new.queue for new in change.follow_ups}:
            try:
                await self._storage().wake(queues)
            except StorageUnavailable as error:
                log.info("job %s: nobody is woken for its follow-ups: %s", change.id, error)

    def committed_sync(self, change: Change) -> None:
        if change.follow_ups:
            self._run_sync(self.committed(change))


def _checked(change: Change, answer: Applied) -> Change:
    if answer.accepted and not answer.repeated:
        return change
    if answer.error is not None:
        raise ClaimLost(f"job {change.id}: its success cannot be written: {answer.error}")
    raise ClaimLost(f"job {change.id} is no longer this run's: nothing of its transaction is written")
