"""Counts, and queues with theirs: what operators read.

Where an index alone tells who matches, a count walks over that and stops at its cap. Otherwise rows are looked at:
those that an index names, or all of them from the newest, for no longer than a second.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts; what operators wrote goes into parameters

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec

from ...core.counted import Counted
from ...core.filter import STATES, Filter
from ...core.job import State
from ...core.queue import Queue, QueueStats
from ...ports import Clock
from ..shared.depths import Depths
from . import find, places, rows, terms
from .rows import Database
from .sql import statement
from .terms import Terms

# To look so many rows up costs less than to walk over a million of them.
FEW: Final = 100_000


def count(db: Database, filter: Filter, cap: int, clock: Clock) -> dict[State, int]:
    now = clock.now()
    parts = terms.take_apart(filter, clock)
    counts: dict[State, int] = {}
    if parts.by_place:
        heads = places.Heads(db, parts, now)
        for state in sorted(parts.states):
            if found := _count_state(db, state, parts, heads, cap, now):
                counts[State(state)] = found
        return counts
    walk = find.Walk(db, parts)
    if parts.rest.terms:
        for _, job in find.matching(db, walk, find.newest(db, walk, parts, None), parts.rest, now):
            counts[job.state] = counts.get(job.state, 0) + 1
    else:
        for name, found in _counted(db, walk, parts, now):
            if name in STATES:
                counts[State(name)] = counts.get(State(name), 0) + found
    unsure = [State(state) for state in parts.states] if walk.cut_short else []
    return Counted({state: min(cap, found) for state, found in counts.items()}, unsure)


def _counted(db: Database, walk: find.Walk, parts: Terms, now: float) -> Iterable[tuple[str, int]]:
    if parts.tag is not None:
        runs = places.source(db, parts) if parts.states <= {"running"} else None
        return walk.tagged_counts(parts.tag, now) if runs is None else walk.few_counts(runs, now, tag=parts.tag)
    source = find.few(db, parts, FEW)
    return walk.newest_counts(now) if source is None else walk.few_counts(source, now)


def _count_state(db: Database, state: str, parts: Terms, heads: places.Heads, cap: int, now: float) -> int:
    where = terms.joined((*parts.conditions, terms.in_state(state, now)))
    found = 0
    is_by_time = state in ("ready", "scheduled") and not parts.retrying
    pieces = heads.pieces(state) if is_by_time else places.of_state(db, state, _only(parts, state))
    for piece in pieces:
        sql = f"select count(*) from (select 1 {piece.rows} and {where.sql} limit ?)"
        given = (*piece.where.parameters, *where.parameters, cap - found)
        found += db.execute(sql, given).fetchone()[0]
        if found >= cap:
            break
    return found


def _only(parts: Terms, state: str) -> Terms:
    return msgspec.structs.replace(parts, states=frozenset({state}))


Head: TypeAlias = tuple[str, str, int]
"""What lies ready in one queue, of one task, with one priority; or what waits or has ended there, in one state."""
_CAPPED: Final = -(1 << 31)  # no priority
_STATES: Final = ("waiting", *sorted(terms.ENDED))
_CAP: Final = QueueStats(queue=Queue(name="any")).capped_at


def queues(db: Database, clock: Clock, depths: Depths[Head]) -> list[QueueStats]:
    now = clock.now()
    running = dict(db.execute("select queue, count(*) from treadle_job where state = 'running' group by queue"))
    found = [rows.queue_of(row) for row in db.execute(statement("queues")).fetchall()]
    first_at: dict[Head, float] = {
        (queue.name, task, priority): at
        for queue in found
        for task, priority, at, _ in db.execute(statement("claim_heads"), (queue.name, now)).fetchall()
    }
    capped: list[Head] = [(queue.name, state, _CAPPED) for queue in found for state in _STATES]
    counts = _depths(db, [*first_at, *capped], depths, now)
    heads: dict[str, list[Head]] = {}
    for head in first_at:
        heads.setdefault(head[0], []).append(head)
    own = {name: [(first_at[head], *counts[head]) for head in some] for name, some in heads.items()}
    return [_stats(queue, own.get(queue.name, []), counts, running.get(queue.name, 0), now) for queue in found]


def _depths(db: Database, heads: list[Head], depths: Depths[Head], now: float) -> dict[Head, tuple[int, int]]:
    asked_at = time.monotonic()
    unknown, counts = depths.split(heads, asked_at)
    for head in unknown:
        queue, state, _ = head
        if head[2] != _CAPPED:
            due, later = db.execute(statement("count_due"), (*head, now)).fetchone()
        elif state == "waiting":
            due, later = db.execute(statement("count_waiting"), (queue, _CAP)).fetchone()[0], 0
        else:
            due, later = db.execute(statement("count_ended"), (queue, state, _CAP)).fetchone()[0], 0
        depths.keep(head, due, later, asked_at)
        counts[head] = (due, later)
    return counts


def _stats(
    queue: Queue,
    own: list[tuple[float, int, int]],
    counts: dict[Head, tuple[int, int]],
    running: int,
    now: float,
) -> QueueStats:
    oldest = min((at for at, due, _ in own if due and isinstance(at, float) and at <= now), default=None)
    others: dict[str, Any] = {state: counts[queue.name, state, _CAPPED][0] for state in _STATES}
    return QueueStats(
        queue=queue,
        ready=sum(due for _, due, _ in own),
        scheduled=sum(later for _, _, later in own),
        running=running,
        oldest_ready_seconds=None if oldest is None else max(0.0, now - oldest),
        **others,
    )
