"""Borrowing from a coroutine where nothing needs to be waited for: a connection to a file, or to nothing at all."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.job import Change, Job, NewJob
from ...ports import Applied, Borrowed, Inserted


class AtOnce:
    """Implements `ports.BorrowedAsync` with a `Borrowed`."""

    def __init__(self, borrowed: Borrowed) -> None:
        self._borrowed = borrowed

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return self._borrowed.insert(jobs)

    async def apply(self, changes: Sequence[Change]) -> Sequence[Applied]:
        return self._borrowed.apply(changes)

    async def get(self, ids: Sequence[str]) -> Sequence[Job]:
        return self._borrowed.get(ids)
