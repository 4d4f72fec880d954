"""Rate limits and named locks in the reference storage."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec import Struct

from ...core import limit as limiting
from ...core.audit import AuditLine
from ...core.limit import Bucket, Take, Taken
from ...core.lock import Lock
from ...core.queue import Queue
from ...ports import Clock
from .operations import keep_line


class _LockRow(Struct, frozen=True):
    owner: str
    fence: int
    until: float  # steady
    boot: str


class MemoryLimits:
    _clock: Clock
    _lock: threading.RLock
    _queues: dict[str, Queue]
    _audit: dict[str, AuditLine]

    def __init__(self) -> None:
        self._buckets: dict[str, Bucket] = {}
        self._locks: dict[str, _LockRow] = {}
        self._fence = 0  # the last that was given, of any lock

    async def take(self, wishes: Sequence[Take]) -> Sequence[Taken]:
        with self._lock:
            return [self._take_tokens(wish, self._clock.now()) for wish in wishes]

    def _take_tokens(self, wish: Take, now: float) -> Taken:
        bucket = self._buckets.get(wish.scope)
        if (queue := limiting.queue_of(wish.scope)) is not None:
            bucket = limiting.of_queue(bucket, self._queues.get(queue), wish.scope, now)
        if bucket is None:
            return Taken(problem="unknown") if queue is None else Taken(got=wish.want)
        self._buckets[wish.scope], taken = limiting.take(bucket, wish, now)
        return taken

    async def limits(self) -> Sequence[Bucket]:
        with self._lock:
            now = self._clock.now()
            found = [self._as_now(bucket, now) for _, bucket in sorted(self._buckets.items())]
            return [limiting.grown(bucket, now) for bucket in found if bucket is not None]

    def _as_now(self, bucket: Bucket, now: float) -> Bucket | None:
        """With the settings that its queue has now; None if that has no rate any more."""
        queue = limiting.queue_of(bucket.scope)
        return bucket if queue is None else limiting.of_queue(bucket, self._queues.get(queue), bucket.scope, now)

    async def save_limit(
        self, scope: str, capacity: int, refill: float, expected: int | None = None, *, line: AuditLine | None = None
    ) -> Bucket | None:
        with self._lock:
            now = self._clock.now()
            bucket = self._buckets.get(scope)
            if line is not None and line.id in self._audit:
                return bucket
            if expected is not None and expected != (bucket.version if bucket else 0):
                return None
            keep_line(self._audit, line, now)
            if bucket is None:
                bucket = limiting.fresh(scope, capacity, refill, now)
            else:
                bucket = limiting.edit(bucket, capacity, refill, now)
            self._buckets[scope] = bucket
            return bucket

    async def drain_limit(self, scope: str) -> bool:
        with self._lock:
            bucket = self._buckets.get(scope)
            if bucket is not None:
                self._buckets[scope] = limiting.drain(bucket, self._clock.now())
            return bucket is not None

    async def remove_limit(self, scope: str, *, line: AuditLine | None = None) -> bool:
        with self._lock:
            return self._done(self._buckets.pop(scope, None) is not None, line)

    async def seize(self, name: str, owner: str, ttl: float, *, fence: int | None = None) -> Lock:
        with self._lock:
            row = self._locks.get(name)
            if fence is not None:
                if row is None or (row.owner, row.fence) != (owner, fence):
                    return Lock(name=name, owner="", fence=0, left=0.0) if row is None else self._seen_lock(name, row)
            elif row is not None and row.owner != owner and self._left(row) > 0:
                return self._seen_lock(name, row)
            else:
                self._fence += 1
                fence = self._fence
            row = self._locks[name] = _LockRow(owner, fence, self._clock.steady() + ttl, self._clock.boot())
            return self._seen_lock(name, row)

    async def free(
        self, name: str, owner: str | None, *, fence: int | None = None, line: AuditLine | None = None
    ) -> bool:
        with self._lock:
            row = self._locks.get(name)
            if row is None or row.owner != (owner or row.owner) or row.fence != (fence or row.fence):
                return self._done(False, line)
            del self._locks[name]
            return self._done(True, line)

    def _done(self, removed: bool, line: AuditLine | None) -> bool:
        """Whether it was removed, by this sending or, as the audit knows, by an earlier one."""
        if removed:
            keep_line(self._audit, line, self._clock.now())
        return removed or (line is not None and line.id in self._audit)

    async def locks(self) -> Sequence[Lock]:
        with self._lock:
            return [self._seen_lock(name, row) for name, row in sorted(self._locks.items()) if self._left(row) > 0]

    async def sweep_locks(self) -> int:
        with self._lock:
            over = [name for name, row in self._locks.items() if self._left(row) <= 0]
            for name in over:
                del self._locks[name]
            return len(over)

    def _left(self, row: _LockRow) -> float:
        return row.until - self._clock.steady() if row.boot == self._clock.boot() else 0.0

    def _seen_lock(self, name: str, row: _LockRow) -> Lock:
        return Lock(name=name, owner=row.owner, fence=row.fence, left=self._left(row))
