"""Claim: which due jobs a pod gets, in which order, and what it should know of the next ones."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Final

from ...core import queue as queueing
from ...core.job import Job, State
from ...ports import Claimed, Want
from . import rows
from .rows import Database
from .sql import statement

_HEADS: Final = statement("claim_heads")
_DUE: Final = statement("claim_due")
_TAKE: Final = statement("claim_take")
_GATE: Final = statement("queue")


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
            jobs += _take(db, pod, token, want.queue, chosen, now)
        more = more or len(chosen) >= want.limit
    return Claimed(jobs, None if next_due == math.inf else max(0.0, next_due - now), more)


def recover(db: Database, pod: str, token: str, now: float) -> list[Job]:
    """The running jobs of one claim, in the order in which they should start."""
    return rows.jobs_of(db, db.execute(statement("recover"), (pod, token)).fetchall(), now)


def _closed_until(db: Database, queue: str, now: float) -> float | None:
    row = db.execute(_GATE, (queue,)).fetchone()
    return None if row is None else queueing.gate(rows.queue_of(row), now)


def _survey(db: Database, want: Want, now: float) -> tuple[dict[int, list[str]], float]:
    """The tasks that have something due, by priority, highest first; and when the next job falls due."""
    known = frozenset[str]().union(*(lane.tasks for lane in want.lanes))
    levels: dict[int, list[str]] = {}
    upcoming = math.inf
    for task, priority, first_at, next_at in db.execute(_HEADS, (want.queue, now)):
        # A row that somebody damaged is passed over: it has no place in the order.
        if task in known and isinstance(priority, int) and isinstance(first_at, float):
            if first_at <= now:
                levels.setdefault(priority, []).append(task)
            if isinstance(next_at, float):
                upcoming = min(upcoming, next_at)
    return dict(sorted(levels.items(), reverse=True)), upcoming


def _choose(db: Database, want: Want, levels: dict[int, list[str]], now: float) -> list[int]:
    """The rows to take, in the order in which they should start."""
    places = _Places(want)
    chosen: list[int] = []
    for priority, tasks in levels.items():
        # Only the order within a task is stored; that of the queue comes from reading the tasks side by side.
        due = [
            _due(db, want.queue, task, priority, now, min(places.for_task(task), want.limit - len(chosen)))
            for task in tasks
        ]
        if len(due) == 1:
            ordered = list(due[0])
            places.take(tasks[0], len(ordered))
            chosen += [seq for _, seq, _ in ordered]
            continue
        for _run_at, seq, task in heapq.merge(*due):
            if len(chosen) >= want.limit:
                return chosen
            if places.take(task, 1):
                chosen.append(seq)
    return chosen


class _Places:
    """The free places of a want: how many a task may still take, lane by lane."""

    def __init__(self, want: Want) -> None:
        self._lanes = want.lanes
        self._left = [lane.limit for lane in want.lanes]

    def for_task(self, task: str) -> int:
        return sum(left for lane, left in zip(self._lanes, self._left, strict=True) if task in lane.tasks)

    def take(self, task: str, count: int) -> int:
        """Take up to so many places for a task, from the first lanes that have them; how many it got."""
        wanted = count
        for number, lane in enumerate(self._lanes):
            if wanted and task in lane.tasks:
                taken = min(wanted, self._left[number])
                self._left[number] -= taken
                wanted -= taken
        return count - wanted


def _due(
    db: Database, queue: str, task: str, priority: int, now: float, limit: int
) -> Iterator[tuple[float, int, str]]:
    for run_at, seq in db.execute(_DUE, (queue, task, priority, now, limit)):
        yield run_at, seq, task


def _take(db: Database, pod: str, token: str, queue: str, chosen: list[int], now: float) -> list[Job]:
    taken = db.execute(_TAKE, (pod, token, now, rows.json_text(chosen))).fetchall()
    # RETURNING promises no order.
    jobs = {row[0]: _job_of(db, row, pod, token, queue, now) for row in taken}
    return [job for seq in chosen if (job := jobs.get(seq)) is not None]


def _job_of(db: Database, row: rows.RowTuple, pod: str, token: str, queue: str, now: float) -> Job | None:
    seq, id, task, args, format, priority, run_at, created_at, attempt, max_attempts, timeout, has_more = row
    if has_more:
        full = db.execute(statement("get_by_seq"), (seq,)).fetchall()
        return next(iter(rows.jobs_of(db, full, now)), None)
    return Job(
        id=id,
        task=task,
        queue=queue,
        state=State.RUNNING,
        args=args,
        format=format,
        priority=priority,
        run_at=run_at,
        created_at=created_at,
        attempt=attempt,
        max_attempts=max_attempts,
        timeout=timeout,
        pod=pod,
        token=token,
        started_at=now,
        deadline=now + timeout if timeout else None,
    )
