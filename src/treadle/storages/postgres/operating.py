"""The verbs for operators of many jobs: operations, audit, failures, retention."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from ...core.audit import AuditLine
from ...core.failure import LOOKED_AT, Failures
from ...core.job import Change, State
from ...core.operation import Operation
from ...core.retention import CHUNK
from ...ports import Applied, Pruned
from . import failures, operations, retention, rows
from .cluster import Time
from .desk import Desks
from .news import News
from .talk import Talk


class Operating:
    _desks: Desks
    _causes: failures.Causes
    _now: Callable[[], float | None]
    _time: Callable[[], Time]
    _tell: Callable[[News], None]
    _read: Callable[..., Coroutine[Any, Any, Any]]

    async def failures(
        self, *, queue: str | None = None, task: str | None = None, limit: int = 50, most: int = LOOKED_AT
    ) -> Failures:
        now = self._now()
        if not rows.is_text(queue, task):
            return Failures(groups=(), looked_at=0)
        found: Failures = await self._read(lambda: failures.failures(self._causes, queue, task, limit, most, now))
        return found

    async def save_operation(self, operation: Operation, expected: int | None) -> Operation | None:
        moment = self._time()
        return await self._desks.mine().slow.run(lambda: operations.save(operation, expected, moment))

    async def operation(self, id: str) -> Operation | None:
        if not rows.is_text(id):
            return None
        found: Operation | None = await self._read(lambda: operations.get(id))
        return found

    async def operations(self, limit: int = 50) -> Sequence[Operation]:
        found: list[Operation] = await self._read(lambda: operations.newest(limit))
        return found

    async def advance(
        self, operation: Operation, changes: Sequence[Change], then: Callable[[Sequence[Applied]], Operation]
    ) -> Operation | None:
        moment = self._time()
        told: list[News] = []

        def make() -> Talk[Operation | None]:
            told[:] = [News()]
            return operations.advance(operation, changes, then, moment, told[0])

        done = await self._desks.mine().slow.run(make)
        if done is not None:
            self._tell(told[0])
        return done

    async def note(self, lines: Sequence[AuditLine]) -> None:
        moment = self._time()
        await self._desks.mine().slow.run(lambda: operations.note(lines, moment))

    async def audit(self, limit: int = 100, before: str | None = None) -> Sequence[AuditLine]:
        if not rows.is_text(before):
            return []
        found: list[AuditLine] = await self._read(lambda: operations.audit_lines(limit, before))
        return found

    async def prune(
        self, state: State, *, queue: str | None = None, mark: str | None = None, limit: int = CHUNK
    ) -> Pruned:
        moment = self._time()
        return await self._desks.mine().slow.run(lambda: retention.prune(state, queue, mark, limit, moment))

    async def sweep(self) -> Mapping[str, int]:
        moment = self._time()
        return await self._desks.mine().slow.run(lambda: operations.sweep(moment))
