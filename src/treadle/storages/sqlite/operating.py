"""The verbs for operators of many jobs: operations, audit, failures, retention."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from ...core.audit import AuditLine
from ...core.failure import LOOKED_AT, Failures
from ...core.job import Change, State
from ...core.operation import Operation
from ...core.retention import CHUNK
from ...ports import Applied, Clock, Pruned
from . import failures, operations, retention
from .news import News
from .writer import Operation as Write

T = TypeVar("T")

MOST_ROUNDS: Final = 100


class Operating:
    _clock: Clock
    _causes: failures.Causes

    if TYPE_CHECKING:

        async def _write(
            self, operation: Write[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
        ) -> T: ...

        async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T: ...

    async def failures(
        self, *, queue: str | None = None, task: str | None = None, limit: int = 50, most: int = LOOKED_AT
    ) -> Failures:
        now = self._clock.now()
        return await self._read(lambda db: failures.failures(db, self._causes, queue, task, limit, most, now))

    async def save_operation(self, operation: Operation, expected: int | None) -> Operation | None:
        return await self._write(lambda db, _: operations.save(db, operation, expected, self._clock))

    async def operation(self, id: str) -> Operation | None:
        return await self._read(lambda db: operations.get(db, id))

    async def operations(self, limit: int = 50) -> Sequence[Operation]:
        return await self._read(lambda db: operations.newest(db, limit))

    async def advance(
        self, operation: Operation, changes: Sequence[Change], then: Callable[[Sequence[Applied]], Operation]
    ) -> Operation | None:
        def write(db: sqlite3.Connection, news: News) -> Operation | None:
            return operations.advance(db, operation, changes, then, self._clock, news)

        return await self._write(write)

    async def note(self, lines: Sequence[AuditLine]) -> None:
        await self._write(lambda db, _: operations.note(db, lines, self._clock))

    async def audit(self, limit: int = 100, before: str | None = None) -> Sequence[AuditLine]:
        return await self._read(lambda db: operations.audit_lines(db, limit, before))

    async def prune(
        self, state: State, *, queue: str | None = None, mark: str | None = None, limit: int = CHUNK
    ) -> Pruned:
        found = await self._read(lambda db: retention.find(db, state, queue, mark, limit, self._clock))
        removed = 0
        if found.old:
            # What power loss brings back is removed by the next pass.
            removed = await self._write(lambda db, _: retention.remove(db, state, found.old), relaxed=True)
        return Pruned(removed, found.mark)

    async def sweep(self) -> Mapping[str, int]:
        swept = await self._write(lambda db, _: operations.sweep(db, self._clock), relaxed=True)
        return {**swept, "keys": await self._sweep_keys()}

    async def _sweep_keys(self) -> int:
        gone = 0
        for _ in range(MOST_ROUNDS):
            keys = await self._read(lambda db: operations.old_keys(db, self._clock))
            gone += await self._forget_keys(keys) if keys else 0
            if len(keys) < operations.KEYS_AT_ONCE:
                break
        return gone

    async def _forget_keys(self, keys: Sequence[str]) -> int:
        return await self._write(lambda db, _: operations.forget_keys(db, keys, self._clock), relaxed=True)
