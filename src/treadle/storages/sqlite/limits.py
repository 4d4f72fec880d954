"""Rate limits and named locks: the row is loaded, the core is asked, the row is saved, in the writer's transaction."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from ...core import limit as limiting
from ...core.audit import AuditLine
from ...core.limit import Bucket, Lease, Take, Taken
from ...core.lock import Lock
from ...core.queue import Queue
from ...ports import Clock
from . import audit, rows
from .rows import Database
from .sql import statement
from .writer import Operation

T = TypeVar("T")

_COLUMNS: Final = "scope, version, capacity, refill, tokens, at, leases"
# A lock that somebody has damaged is nobody's.
_SOUND: Final = "typeof(fence) = 'integer' and typeof(until) in ('real', 'integer')"
_as_leases: Final = msgspec.json.Decoder(tuple[Lease, ...]).decode


class SQLiteLimits:
    """The verbs of limits and locks. `_read`, `_write` and `_clock` are the storage's own."""

    _clock: Clock

    async def take(self, wishes: Sequence[Take]) -> Sequence[Taken]:
        # Tokens that a power failure brings back were used before it: nobody needs them on the disk.
        return await self._write(lambda db, _: take(db, wishes, self._clock.now()), relaxed=True)

    async def limits(self) -> Sequence[Bucket]:
        return await self._read(lambda db: limits(db, self._clock.now()))

    async def save_limit(
        self, scope: str, capacity: int, refill: float, expected: int | None = None, *, line: AuditLine | None = None
    ) -> Bucket | None:
        def operation(db: sqlite3.Connection, _: object) -> Bucket | None:
            now = self._clock.now()
            if line is not None and audit.is_written(db, line.id):
                return _load(db, scope)
            saved = save_limit(db, scope, capacity, refill, expected, now)
            audit.write(db, line if saved is not None else None, now)
            return saved

        return await self._write(operation, grows=True)

    async def drain_limit(self, scope: str) -> bool:
        return await self._write(lambda db, _: drain(db, scope, self._clock.now()), relaxed=True)

    async def remove_limit(self, scope: str, *, line: AuditLine | None = None) -> bool:
        return await self._write(lambda db, _: self._remove(db, line, "treadle_limit where scope = ?", scope))

    async def seize(self, name: str, owner: str, ttl: float, *, fence: int | None = None) -> Lock:
        return await self._write(lambda db, _: seize(db, name, owner, ttl, fence, self._clock), grows=True)

    async def free(
        self, name: str, owner: str | None, *, fence: int | None = None, line: AuditLine | None = None
    ) -> bool:
        whose = "treadle_lock where name = ?1 and owner = coalesce(?2, owner) and (?3 is null or fence = ?3)"
        return await self._write(lambda db, _: self._remove(db, line, whose, name, owner, fence))

    def _remove(self, db: Database, line: AuditLine | None, which: str, *parameters: object) -> bool:
        """Whether it was removed, by this sending or, as the audit knows, by an earlier one."""
        if _delete(db, which, *parameters):
            audit.write(db, line, self._clock.now())
            return True
        return line is not None and audit.is_written(db, line.id)

    async def locks(self) -> Sequence[Lock]:
        return await self._read(lambda db: locks(db, self._clock))

    async def sweep_locks(self) -> int:
        over = "treadle_lock where until <= ?1 or boot <> ?2"
        if not await self._read(lambda db: db.execute(f"select 1 from {over}", self._moment()).fetchone()):  # noqa: S608
            return 0
        return await self._write(lambda db, _: _delete(db, over, *self._moment()))

    def _moment(self) -> tuple[float, str]:
        return self._clock.steady(), self._clock.boot()

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError

    async def _write(
        self, operation: Operation[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
    ) -> T:
        raise NotImplementedError


# Limits --------------------------------------------------------------------------------------------------------------


def take(db: Database, wishes: Sequence[Take], now: float) -> list[Taken]:
    return [_take(db, wish, now) for wish in wishes]


def _take(db: Database, wish: Take, now: float) -> Taken:
    bucket = _load(db, wish.scope)
    if (queue := limiting.queue_of(wish.scope)) is not None:
        bucket = limiting.of_queue(bucket, _queue(db, queue), wish.scope, now)
    if bucket is None:
        return Taken(problem="unknown") if queue is None else Taken(got=wish.want)
    bucket, taken = limiting.take(bucket, wish, now)
    _save(db, bucket)
    return taken


def limits(db: Database, now: float) -> list[Bucket]:
    found = db.execute(f"select {_COLUMNS} from treadle_limit order by scope").fetchall()  # noqa: S608
    buckets = (_bucket_of(row) for row in found)
    as_now = (_as_now(db, bucket, now) for bucket in buckets if bucket is not None)
    return [limiting.grown(bucket, now) for bucket in as_now if bucket is not None]


def _as_now(db: Database, bucket: Bucket, now: float) -> Bucket | None:
    """With the settings that its queue has now; None if that has no rate any more."""
    queue = limiting.queue_of(bucket.scope)
    return bucket if queue is None else limiting.of_queue(bucket, _queue(db, queue), bucket.scope, now)


def save_limit(
    db: Database, scope: str, capacity: int, refill: float, expected: int | None, now: float
) -> Bucket | None:
    bucket = _load(db, scope)
    if expected is not None and expected != (bucket.version if bucket else 0):
        return None
    if bucket is None:
        bucket = limiting.fresh(scope, capacity, refill, now)
    else:
        bucket = limiting.edit(bucket, capacity, refill, now)
    _save(db, bucket)
    return bucket


def drain(db: Database, scope: str, now: float) -> bool:
    bucket = _load(db, scope)
    if bucket is not None:
        _save(db, limiting.drain(bucket, now))
    return bucket is not None


def forget(db: Database, now: float) -> int:
    """The buckets of queues that have no rate any more; how many."""
    found = db.execute(
        f"select {_COLUMNS} from treadle_limit where scope >= ? and scope < ?",  # noqa: S608
        (limiting.OF_A_QUEUE, limiting.OF_A_QUEUE + "\U0010ffff"),
    ).fetchall()
    buckets = [bucket for bucket in map(_bucket_of, found) if bucket is not None]
    queues = {bucket.scope: _queue(db, limiting.queue_of(bucket.scope) or "") for bucket in buckets}
    idle = [bucket.scope for bucket in buckets if limiting.is_idle(bucket, queues[bucket.scope], now)]
    return sum(_delete(db, "treadle_limit where scope = ?", scope) for scope in idle)


def _queue(db: Database, name: str) -> Queue | None:
    found = db.execute(statement("queue"), (name,)).fetchone()
    return None if found is None else rows.queue_of(found)


def _load(db: Database, scope: str) -> Bucket | None:
    found = db.execute(f"select {_COLUMNS} from treadle_limit where scope = ?", (scope,)).fetchone()  # noqa: S608
    return None if found is None else _bucket_of(found)


def _bucket_of(row: rows.RowTuple) -> Bucket | None:
    """None for a row that somebody has damaged: it is as if it were not there, and the next save mends it."""
    scope, version, capacity, refill, tokens, at, leases = row
    numbers = (refill, tokens, at)
    sound = isinstance(capacity, int) and all(isinstance(each, int | float) and math.isfinite(each) for each in numbers)
    if not (isinstance(scope, str) and sound and refill > 0):
        return None
    try:
        held = _as_leases(leases)
    except (msgspec.MsgspecError, TypeError):
        held = ()
    version = version if isinstance(version, int) else 1
    return limiting.mended(
        Bucket(scope=scope, version=version, capacity=capacity, refill=refill, tokens=tokens, at=at, leases=held)
    )


def _save(db: Database, bucket: Bucket) -> None:
    db.execute(
        f"insert or replace into treadle_limit ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        (
            bucket.scope, bucket.version, bucket.capacity, bucket.refill, bucket.tokens, bucket.at,
            rows.json_text(bucket.leases),
        ),
    )  # fmt: skip


def _delete(db: Database, which: str, *parameters: object) -> int:
    return db.execute(f"delete from {which}", parameters).rowcount  # noqa: S608


# Locks ---------------------------------------------------------------------------------------------------------------


def seize(db: Database, name: str, owner: str, ttl: float, fence: int | None, clock: Clock) -> Lock:
    steady, boot = clock.steady(), clock.boot()
    held = db.execute(
        f"select owner, fence, until, boot from treadle_lock where name = ? and {_SOUND}",  # noqa: S608
        (name,),
    ).fetchone()
    left = held[2] - steady if held is not None and held[3] == boot else 0.0
    if fence is not None:
        if held is None:
            return Lock(name=name, owner="", fence=0, left=0.0)
        if held[:2] != (owner, fence):
            return Lock(name=name, owner=held[0], fence=held[1], left=left)
    elif held is not None and held[0] != owner and left > 0:
        return Lock(name=name, owner=held[0], fence=held[1], left=left)
    own: int = fence or db.execute("update treadle_fence set last = last + 1 returning last").fetchone()[0]
    db.execute(
        "insert or replace into treadle_lock (name, owner, fence, until, boot) values (?, ?, ?, ?, ?)",
        (name, owner, own, steady + ttl, boot),
    )
    return Lock(name=name, owner=owner, fence=own, left=ttl)


def locks(db: Database, clock: Clock) -> list[Lock]:
    steady = clock.steady()
    found = db.execute(
        f"select name, owner, fence, until from treadle_lock where until > ? and boot = ? and {_SOUND} order by name",  # noqa: S608
        (steady, clock.boot()),
    ).fetchall()
    return [Lock(name=name, owner=owner, fence=fence, left=until - steady) for name, owner, fence, until in found]
