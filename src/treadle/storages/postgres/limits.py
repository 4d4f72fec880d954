"""Rate limits and named locks: the row is locked, the core is asked, the row is saved, in one short transaction."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import msgspec

from ...core import limit as limiting
from ...core.audit import AuditLine
from ...core.limit import Bucket, Lease, Take, Taken
from ...core.lock import Lock
from ...core.queue import Queue
from . import audit, rows, sql
from .cluster import Time
from .desk import Desks
from .talk import BEGIN, BRIEFLY, COMMIT, Row, Talk

_COLUMNS: Final = "scope, version, capacity, refill, tokens, at, leases"
# The clock is read after the row's lock was had: outside of what is locked, and so row by row. Always in the order of
# the names, or two takes of several scopes could wait for each other.
_LOCKED: Final = f"""
with locked as materialized (
    select {_COLUMNS} from treadle.rate_limit where scope = any ($2::text[]) order by scope for update
)
select locked.*, date_part('epoch', {sql.CLOCK}) from locked
"""
# What tokens were taken need not be on the disk: nobody waits for it, least of all with the row locked.
_LOCKED_LIGHTLY: Final = _LOCKED.replace("locked.*,", "locked.*, set_config('synchronous_commit', 'off', true),")
_LIST: Final = f"select {_COLUMNS}, date_part('epoch', {sql.CLOCK}) from treadle.rate_limit order by scope"
_QUEUES: Final = f"select {sql.QUEUE} from treadle.queue where name = any ($1::text[])"
_MAKE: Final = f"""
insert into treadle.rate_limit ({_COLUMNS})
select $2::text, 1, $3::int, $4::float8, $3::int, date_part('epoch', {sql.CLOCK}), '[]'
on conflict (scope) do nothing
returning {_COLUMNS}, at
"""
_SAVE: Final = """
update treadle.rate_limit as b
set version = n.version, capacity = n.capacity, refill = n.refill, tokens = n.tokens, at = n.at, leases = n.leases
from
    unnest($1::text[], $2::int[], $3::int[], $4::float8[], $5::float8[], $6::float8[], $7::text[])
    as n (scope, version, capacity, refill, tokens, at, leases)
where b.scope = n.scope
"""
_FORGET: Final = "delete from treadle.rate_limit where scope = $1::text and at = $2::float8 returning 1"
_STEADY: Final = "coalesce(to_timestamp($1::float8), clock_timestamp())"
_OVER: Final = f"(until <= {_STEADY} or boot <> $2::text)"
_SEEN: Final = f"name, owner, fence, least(date_part('epoch', until) - date_part('epoch', {_STEADY}), 1e11)"
# The fence is drawn by the update that takes the row: the holders of one lock have theirs in order.
_SEIZE: Final = f"""
update treadle.named_lock
set
    fence = coalesce($6::bigint, nextval('treadle.lock_fence')),
    owner = $4::text, boot = $2::text, until = {_STEADY} + $5::float8 * interval '1 second'
where
    name = $3::text
    and case
        when $6::bigint is null then owner in ('', $4::text) or {_OVER}
        else owner = $4::text and fence = $6::bigint
    end
returning {_SEEN}
"""
_HOLDER: Final = (
    f"select {_SEEN} from treadle.named_lock where name = $3::text and owner <> '' and ($2::text is null or true)"
)
_as_leases: Final = msgspec.json.Decoder(tuple[Lease, ...]).decode


class PostgresLimits:
    """The verbs of limits and locks, as part of the storage."""

    _desks: Desks
    _now: Callable[[], float | None]
    _time: Callable[[], Time]
    _read: Callable[..., Coroutine[Any, Any, Any]]

    async def take(self, wishes: Sequence[Take]) -> Sequence[Taken]:
        now = self._now()
        # Not repeated by the line: tokens that were handed back would be handed back twice.
        return await self._desks.mine().slow.run(lambda: take(wishes, now), repeat=False)

    async def limits(self) -> Sequence[Bucket]:
        now = self._now()
        found: list[Bucket] = await self._read(lambda: limits(now))
        return found

    async def save_limit(
        self, scope: str, capacity: int, refill: float, expected: int | None = None, *, line: AuditLine | None = None
    ) -> Bucket | None:
        now = self._now()
        return await self._desks.mine().slow.run(lambda: save_limit(scope, capacity, refill, expected, line, now))

    async def drain_limit(self, scope: str) -> bool:
        now = self._now()
        return rows.is_text(scope) and await self._desks.mine().slow.run(lambda: drain(scope, now))

    async def remove_limit(self, scope: str, *, line: AuditLine | None = None) -> bool:
        statement = "delete from treadle.rate_limit where scope = $1::text returning 1"
        now = self._now()
        return rows.is_text(scope) and await self._desks.mine().slow.run(
            lambda: _remove(statement, (scope,), line, now)
        )

    async def seize(self, name: str, owner: str, ttl: float, *, fence: int | None = None) -> Lock:
        _, steady, boot = self._time()
        return await self._desks.mine().slow.run(lambda: seize(name, owner, ttl, fence, steady, boot))

    async def free(
        self, name: str, owner: str | None, *, fence: int | None = None, line: AuditLine | None = None
    ) -> bool:
        statement = (
            "delete from treadle.named_lock where name = $1::text and owner = coalesce($2::text, owner) "
            "and fence = coalesce($3::bigint, fence) returning 1"
        )
        now = self._now()
        return rows.is_text(name, owner) and await self._desks.mine().slow.run(
            lambda: _remove(statement, (name, owner, fence), line, now)
        )

    async def locks(self) -> Sequence[Lock]:
        _, steady, boot = self._time()
        found: list[Lock] = await self._read(lambda: locks(steady, boot))
        return found

    async def sweep_locks(self) -> int:
        _, steady, boot = self._time()
        statement = f"delete from treadle.named_lock where {_OVER} returning 1"
        return await self._desks.mine().slow.run(lambda: _delete(statement, (steady, boot)))


# Limits --------------------------------------------------------------------------------------------------------------


def take(wishes: Sequence[Take], now: float | None) -> Talk[list[Taken]]:
    yield BEGIN
    yield BRIEFLY  # a pod's turn waits for it, with the claims of all other queues
    scopes = [wish.scope for wish in wishes]
    queues = yield from _queues(scopes)
    loaded = yield from _load(scopes, now, _LOCKED_LIGHTLY)
    # In the order of their names, too: two who make the same buckets would wait for each other.
    for scope in sorted(scopes):
        queue = queues.get(limiting.queue_of(scope) or "")
        if scope not in loaded and queue is not None and limiting.of_queue(None, queue, scope, 0.0) is not None:
            made = yield from _make(scope, queue, now)
            loaded |= {} if made is None else {scope: made}
    saved: dict[str, Bucket] = {}
    answers: list[Taken] = []
    for wish in wishes:
        name = limiting.queue_of(wish.scope)
        found = loaded.get(wish.scope)
        queue = queues.get(name or "")
        if found is None:
            answers.append(Taken(problem="unknown") if name is None else Taken(got=wish.want))
            continue
        clock = found[1]
        bucket: Bucket | None = saved.get(wish.scope, found[0])
        if name is not None:
            bucket = limiting.of_queue(bucket, queue, wish.scope, clock)
        if bucket is None:
            answers.append(Taken(got=wish.want))
            continue
        saved[wish.scope], taken = limiting.take(bucket, wish, clock)
        answers.append(taken)
    yield from _save(list(saved.values()))
    yield COMMIT
    return answers


def limits(now: float | None) -> Talk[list[Bucket]]:
    found = yield _LIST, (now,)
    queues = yield from _queues([row[0] for row in found])
    answers: list[Bucket] = []
    for row in found:
        bucket: Bucket | None = _bucket_of(row)
        if (name := limiting.queue_of(row[0])) is not None:
            bucket = limiting.of_queue(bucket, queues.get(name), row[0], row[-1])
        if bucket is not None:  # of a queue without a rate any more, nothing is shown
            answers.append(limiting.grown(bucket, row[-1]))
    return answers


def save_limit(
    scope: str, capacity: int, refill: float, expected: int | None, line: AuditLine | None, now: float | None
) -> Talk[Bucket | None]:
    yield BEGIN
    if line is not None and (yield from audit.is_written(line.id)):
        known = (yield from _load([scope], now)).get(scope)
        yield COMMIT
        return known[0] if known is not None else None
    made = (yield _MAKE, (now, scope, capacity, refill)) if expected in (None, 0) else []
    answer: Bucket | None = None
    if made:
        answer = _bucket_of(made[0])
    elif expected != 0:
        loaded = yield from _load([scope], now)
        if scope in loaded and expected in (None, loaded[scope][0].version):
            bucket, clock = loaded[scope]
            answer = limiting.edit(bucket, capacity, refill, clock)
            yield from _save([answer])
    if answer is not None:
        yield from audit.write(line, answer.at)
    yield COMMIT
    return answer


def drain(scope: str, now: float | None) -> Talk[bool]:
    yield BEGIN
    loaded = yield from _load([scope], now, _LOCKED_LIGHTLY)
    yield from _save([limiting.drain(bucket, clock) for bucket, clock in loaded.values()])
    yield COMMIT
    return bool(loaded)


def forget(now: float | None) -> Talk[int]:
    """The buckets of queues that have no rate any more; how many. One that somebody takes from meanwhile stays."""
    found = yield _LIST, (now,)
    owned = [row for row in found if limiting.queue_of(row[0]) is not None]
    queues = yield from _queues([row[0] for row in owned])
    gone = 0
    for row in owned:
        if limiting.is_idle(_bucket_of(row), queues.get(limiting.queue_of(row[0]) or ""), row[-1]):
            gone += yield from _delete(_FORGET, (row[0], row[5]))
    return gone


def _queues(scopes: Sequence[str]) -> Talk[dict[str, Queue]]:
    """The rows of the queues whose own rates are among these."""
    named = [name for scope in scopes if (name := limiting.queue_of(scope)) is not None]
    if not named:
        return {}
    found = yield _QUEUES, (named,)
    return {queue.name: queue for queue in map(rows.queue_of, found)}


def _load(scopes: Sequence[str], now: float | None, statement: str = _LOCKED) -> Talk[dict[str, tuple[Bucket, float]]]:
    """The buckets, locked, each with the time at which it was."""
    found = yield statement, (now, list(scopes))
    return {row[0]: (_bucket_of(row), row[-1]) for row in found}


def _make(scope: str, queue: Queue, now: float | None) -> Talk[tuple[Bucket, float] | None]:
    """The first bucket of a queue's rate, or the one that somebody else has made meanwhile."""
    assert queue.rate is not None
    capacity = limiting.capacity_of(queue.rate, queue.burst)
    made = yield _MAKE, (now, scope, capacity, queue.rate)
    if made:
        return _bucket_of(made[0]), made[0][-1]
    return (yield from _load([scope], now)).get(scope)


def _save(buckets: Sequence[Bucket]) -> Talk[None]:
    if buckets:
        yield (
            _SAVE,
            (
                [bucket.scope for bucket in buckets],
                [bucket.version for bucket in buckets],
                [bucket.capacity for bucket in buckets],
                [bucket.refill for bucket in buckets],
                [bucket.tokens for bucket in buckets],
                [bucket.at for bucket in buckets],
                [rows.json_text(bucket.leases) for bucket in buckets],
            ),
        )


def _bucket_of(row: Row) -> Bucket:
    scope, version, capacity, refill, tokens, at, leases = row[:7]
    try:
        held = _as_leases(leases)
    except msgspec.MsgspecError:
        held = ()
    return limiting.mended(
        Bucket(scope=scope, version=version, capacity=capacity, refill=refill, tokens=tokens, at=at, leases=held)
    )


# Locks ---------------------------------------------------------------------------------------------------------------


def seize(name: str, owner: str, ttl: float, fence: int | None, steady: float | None, boot: str) -> Talk[Lock]:
    while True:
        found = yield _SEIZE, (steady, boot, name, owner, ttl, fence)
        if not found:
            found = yield _HOLDER, (steady, boot, name)
        if found:
            return _lock_of(found[0])
        if fence is not None:
            return Lock(name=name, owner="", fence=0, left=0.0)
        yield "insert into treadle.named_lock (name) values ($1::text) on conflict do nothing", (name,)


def locks(steady: float | None, boot: str) -> Talk[list[Lock]]:
    statement = f"select {_SEEN} from treadle.named_lock where owner <> '' and not {_OVER} order by name"
    found = yield statement, (steady, boot)
    return [_lock_of(row) for row in found]


def _lock_of(row: Row) -> Lock:
    name, owner, fence, left = row
    return Lock(name=name, owner=owner, fence=fence, left=left)


def _remove(statement: str, parameters: tuple[Any, ...], line: AuditLine | None, now: float | None) -> Talk[bool]:
    """Whether it was removed, by this sending or, as the audit knows, by an earlier one."""
    if line is None:
        return (yield from _delete(statement, parameters)) > 0
    yield BEGIN
    if (yield from _delete(statement, parameters)) > 0:
        ((clock,),) = yield f"select date_part('epoch', {sql.CLOCK})", (now,)
        yield from audit.write(line, clock)
    done = yield from audit.is_written(line.id)
    yield COMMIT
    return done


def _delete(statement: str, parameters: tuple[Any, ...]) -> Talk[int]:
    return len((yield statement, parameters))
