"""Claim: which due jobs a pod gets, in which order, and what it should know of the next ones."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ...core import queue as queueing
from ...core.job import Job
from ...ports import Claimed, Want
from . import rows
from .rows import Database
from .sql import statement

_HEADS: Final = statement("claim_heads")
_DUE: Final = statement("claim_due")
_TAKE: Final = statement("claim_take")
_GATE: Final = f"select {rows.QUEUE_COLUMNS} from treadle_queue where name = ?"
_to_json: Final = msgspec.json.Encoder().encode


def claim(db: Database, pod: str, token: str, wants: Sequence[Want], now: float) -> Claimed:
    """Take what is due for a pod that is known to be live."""
    jobs: list[Job] = []
    next_due = math.inf
    more = False
    for want in wants:
        closed_until = _closed_until(db, want.queue, now)
        if closed_until is not None:
            next_due = min(next_due, closed_until)
            continue
        levels, upcoming = _survey(db, want, now)
        next_due = min(next_due, upcoming)
        chosen = _choose(db, want, levels, now)
        if chosen:
            jobs += _take(db, pod, token, chosen, now)
        more = more or len(chosen) >= want.limit
    return Claimed(jobs, None if next_due == math.inf else max(0.0, next_due - now), more)


def _closed_until(db: Database, queue: str, now: float) -> float | None:
    row = db.execute(_GATE, (queue,)).fetchone()
    return None if row is None else queueing.gate(rows.queue_of(row), now)


def _survey(db: Database, want: Want, now: float) -> tuple[dict[int, list[str]], float]:
    """The tasks that have something due, by priority, highest first; and when the next job falls due."""
    known = frozenset[str]().union(*(lane.tasks for lane in want.lanes))
    levels: dict[int, list[str]] = {}
    upcoming = math.inf
    for task, priority, first_at, next_at in db.execute(_HEADS, (want.queue, now)):
        if task in known:
            if first_at <= now:
                levels.setdefault(priority, []).append(task)
            if next_at is not None:
                upcoming = min(upcoming, next_at)
    return dict(sorted(levels.items(), reverse=True)), upcoming


def _choose(db: Database, want: Want, levels: dict[int, list[str]], now: float) -> list[int]:
    """The rows to take, in the order in which they should start."""
    left = [lane.limit for lane in want.lanes]
    full: set[str] = set()
    chosen: list[int] = []
    for priority, tasks in levels.items():
        # Only the tasks' own order is stored; the queue's order comes from reading them side by side.
        due = [_due(db, want.queue, task, priority, now, full) for task in tasks]
        for _run_at, seq, task in heapq.merge(*due) if len(due) > 1 else due[0]:
            if len(chosen) >= want.limit:
                return chosen
            place = next((n for n, lane in enumerate(want.lanes) if left[n] > 0 and task in lane.tasks), None)
            if place is None:
                full.add(task)
                continue
            left[place] -= 1
            chosen.append(seq)
    return chosen


def _due(
    db: Database, queue: str, task: str, priority: int, now: float, full: set[str]
) -> Iterator[tuple[float, int, str]]:
    for run_at, seq in db.execute(_DUE, (queue, task, priority, now)):
        if task in full:
            return
        yield run_at, seq, task


def _take(db: Database, pod: str, token: str, chosen: list[int], now: float) -> list[Job]:
    taken = db.execute(_TAKE, (pod, token, now, _to_json(chosen).decode())).fetchall()
    # RETURNING promises no order.
    by_seq = {row[0]: row for row in taken}
    return rows.jobs_of(db, [by_seq[seq] for seq in chosen], now)
