"""What the reference storage does for operators of many jobs: operations, audit, failures, retention."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...core import failure, operation, retention
from ...core import limit as limiting
from ...core.audit import AuditLine
from ...core.failure import LOOKED_AT, Failures
from ...core.job import Change, Job, QueueChange, State
from ...core.limit import Bucket
from ...core.operation import UNDER_WAY, Operation
from ...core.queue import Queue
from ...ports import Applied, Clock, Pruned

if TYPE_CHECKING:
    from .storage import _Row  # pyright: ignore[reportPrivateUsage]


def keep_line(kept: dict[str, AuditLine], line: AuditLine | None, now: float) -> None:
    """A line of the audit says when it was written; one that is there already stays as it is."""
    if line is not None:
        kept.setdefault(line.id, replace(line, at=now))


class MemoryOperations:
    _clock: Clock
    _lock: threading.RLock
    _rows: dict[str, _Row]
    _held: dict[str, tuple[str, float]]
    _queues: dict[str, Queue]
    _operations: dict[str, Operation]
    _audit: dict[str, AuditLine]
    _buckets: dict[str, Bucket]

    if TYPE_CHECKING:

        async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]: ...

        def _seen(self, row: _Row, now: float) -> Job: ...

        def _forget_events(self, job_id: str) -> None: ...

        def _forget_said(self, job_id: str) -> None: ...

        def _forget_answers(self, job_id: str) -> None: ...

    async def failures(
        self, *, queue: str | None = None, task: str | None = None, limit: int = 50, most: int = LOOKED_AT
    ) -> Failures:
        with self._lock:
            now = self._clock.now()
            jobs = [
                self._seen(row, now)
                for row in self._rows.values()
                if row.job.errors and queue in (None, row.job.queue) and task in (None, row.job.task)
            ]
            failed = sorted(
                (job for job in jobs if job.state is State.FAILED), key=lambda job: job.finished_at or 0.0, reverse=True
            )
            retries = sorted(
                (job for job in jobs if job.state is State.SCHEDULED and job.attempt), key=lambda job: job.run_at
            )
            pieces: dict[tuple[str, str], list[Job]] = {}
            for job in retries:
                pieces.setdefault((job.queue, job.task), []).append(job)
            seen = [*failed[:most], *failure.by_turns(list(pieces.values()), most)]
            groups = failure.group(map(failure.sighting, seen), limit)
            by_id = {job.id: job for job in seen}
            return Failures(
                groups=tuple(
                    replace(each, sample=str(sample), message=by_id[str(sample)].errors[-1].message)
                    for each, sample in groups
                ),
                looked_at=len(seen),
                capped=len(failed) > most or len(retries) > most,
                known_since=failed[most - 1].finished_at if len(failed) > most else None,
                all_retries=len(retries) <= most,
            )

    # Operations and the audit ----------------------------------------------------------------------------------------

    async def save_operation(self, operation: Operation, expected: int | None) -> Operation | None:
        with self._lock:
            before = self._operations.get(operation.id)
            if expected is None and before is not None:
                return before
            if expected is not None and (before is None or before.version != expected):
                return None
            return self._write_operation(operation, before)

    def _write_operation(self, new: Operation, before: Operation | None) -> Operation:
        row = self._operations[new.id] = operation.written(new, before, self._clock.now())
        keep_line(self._audit, operation.line(row, before), row.updated_at)
        return row

    async def operation(self, id: str) -> Operation | None:
        with self._lock:
            return self._operations.get(id)

    async def operations(self, limit: int = 50) -> Sequence[Operation]:
        with self._lock:
            found = sorted(self._operations.values(), key=lambda each: (each.created_at, each.id), reverse=True)
            return sorted(found, key=lambda each: each.state not in UNDER_WAY)[:limit]

    async def advance(
        self, operation: Operation, changes: Sequence[Change], then: Callable[[Sequence[Applied]], Operation]
    ) -> Operation | None:
        with self._lock:
            before = self._operations.get(operation.id)
            if before is None or before.version != operation.version:
                return None
            return self._write_operation(then(await self.apply(changes)), before)

    async def note(self, lines: Sequence[AuditLine]) -> None:
        with self._lock:
            now = self._clock.now()
            for line in lines:
                keep_line(self._audit, line, now)

    async def audit(self, limit: int = 100, before: str | None = None) -> Sequence[AuditLine]:
        with self._lock:
            lines = sorted(self._audit.values(), key=lambda line: (line.at, line.id), reverse=True)
            if before is not None:
                ids = [line.id for line in lines]
                lines = lines[ids.index(before) + 1 :] if before in ids else []
            return lines[:limit]

    # Retention -------------------------------------------------------------------------------------------------------

    async def prune(
        self, state: State, *, queue: str | None = None, mark: str | None = None, limit: int = retention.CHUNK
    ) -> Pruned:
        with self._lock:
            now = self._clock.now()
            rules = retention.rules(self._queues.values(), state, now, queue)
            ended = sorted(
                (row.job.finished_at or 0.0, row.seq, id)
                for id, row in self._rows.items()
                if row.job.state is state and rules.lets_go(row.job.queue, row.job.finished_at or 0.0)
            )
            after = (float(mark.split("/")[0]), int(mark.split("/")[1])) if mark else (float("-inf"), 0)
            seen = [each for each in ended if each[:2] > after][:limit]
            gone = [id for _, _, id in seen if not self._still_holds(id, now)]
            for id in gone:
                del self._rows[id]
                self._forget_events(id)
                self._forget_said(id)
                self._forget_answers(id)
            more = len(seen) == limit
            return Pruned(len(gone), f"{seen[-1][0]!r}/{seen[-1][1]}" if more else None)

    def _still_holds(self, id: str, now: float) -> bool:
        """Whether a success keeps others from being enqueued under its key."""
        holder, until = self._held.get(self._rows[id].job.unique_key or "", ("", 0.0))
        return holder == id and until > now

    async def sweep(self) -> Mapping[str, int]:
        with self._lock:
            now = self._clock.now()
            old = now - retention.RECORDS_KEPT
            over = {
                "operations": [each.id for each in self._operations.values() if (each.finished_at or now) <= old],
                "audit": [each.id for each in self._audit.values() if each.at <= old],
                "keys": [key for key, (_, until) in self._held.items() if until <= now],
                "limits": [
                    scope
                    for scope, bucket in self._buckets.items()
                    if (queue := limiting.queue_of(scope)) is not None
                    and limiting.is_idle(bucket, self._queues.get(queue), now)
                ],
            }
            for id in over["operations"]:
                del self._operations[id]
            for id in over["audit"]:
                del self._audit[id]
            for key in over["keys"]:
                del self._held[key]
            for scope in over["limits"]:
                del self._buckets[scope]
            return {name: len(gone) for name, gone in over.items()}
