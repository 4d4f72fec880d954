"""Claim: which due jobs a pod gets, in which order, and what it should know of the next ones."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ...core import queue as queueing
from ...core.job import Job
from ...core.queue import Queue
from ...ports import Claimed, Want
from . import rows, take
from .rows import Database
from .sql import statement

_HEADS: Final = statement("claim_heads")
_DUE: Final = statement("claim_due")
_FIRST: Final = statement("claim_first")
_GATE: Final = statement("queue")
_as_numbers: Final = msgspec.json.Decoder(list[int]).decode


def claim(db: Database, pod: str, token: str, wants: Sequence[Want], now: float) -> Claimed:
    """Take what is due for a pod that is known to be live."""
    jobs: list[Job] = []
    next_due = math.inf
    more = False
    for want in wants:
        row = db.execute(_GATE, (want.queue,)).fetchone()
        queue = Queue(name=want.queue) if row is None else rows.queue_of(row)
        closed_until = queueing.gate(queue, now)
        if closed_until is not None:
            next_due = min(next_due, closed_until)
            continue
        levels, upcoming, damaged = _survey(db, want, now)
        for task in damaged:
            for (seq,) in db.execute(statement("damaged"), (want.queue, task)).fetchall():
                take.fail(db, seq, now)
        next_due = min(next_due, upcoming)
        if queue.aging is None:
            chosen = _choose(db, want, levels, now)
        else:
            chosen = _choose_aged(db, want, levels, queue.aging, now)
        if chosen:
            jobs += take.take(db, pod, token, queue, chosen, now)
        more = more or len(chosen) >= want.limit
    return Claimed(jobs, None if next_due == math.inf else max(0.0, next_due - now), more)


def recover(db: Database, pod: str, token: str, now: float) -> list[Job]:
    """The running jobs of one claim, in the order in which they should start."""
    found = rows.jobs_of(db, db.execute(statement("recover"), (pod, token)).fetchall(), now)
    return [queueing.as_claimed(job) for job in found]


def _survey(db: Database, want: Want, now: float) -> tuple[dict[int, list[str]], float, set[str]]:
    """The tasks that have something due, by priority, highest first; when the next job falls due; and the tasks that
    have rows without a place in the order."""
    known = frozenset[str]().union(*(lane.tasks for lane in want.lanes))
    levels: dict[int, list[str]] = {}
    upcoming = math.inf
    damaged: set[str] = set()
    for task, priority, first_at, next_at in db.execute(_HEADS, (want.queue, now)):
        if task not in known:
            continue
        if not isinstance(priority, int) or not isinstance(first_at, float):
            damaged.add(task)
            continue
        if first_at <= now:
            levels.setdefault(priority, []).append(task)
        if isinstance(next_at, float):
            upcoming = min(upcoming, next_at)
        elif next_at is not None:
            damaged.add(task)
    return dict(sorted(levels.items(), reverse=True)), upcoming, damaged


def _choose(db: Database, want: Want, levels: dict[int, list[str]], now: float) -> list[int]:
    """The rows to take, in the order in which they should start."""
    places = _Places(want)
    chosen: list[int] = []
    for priority, tasks in levels.items():
        # Only the order within a task is stored; that of the queue comes from reading the tasks side by side.
        left = want.limit - len(chosen)
        if len(tasks) == 1:
            limit = min(places.for_task(tasks[0]), left)
            first = _as_numbers(db.execute(_FIRST, (want.queue, tasks[0], priority, now, limit)).fetchone()[0])
            places.take(tasks[0], len(first))
            chosen += first
            continue
        due = [_due(db, want.queue, task, priority, now, min(places.for_task(task), left)) for task in tasks]
        for _run_at, seq, task in heapq.merge(*due):
            if len(chosen) >= want.limit:
                return chosen
            if places.take(task, 1):
                chosen.append(seq)
    return chosen


def _choose_aged(db: Database, want: Want, levels: dict[int, list[str]], aging: float, now: float) -> list[int]:
    """The same where waiting raises the priority. Within a task and a priority nothing overtakes, so the stored order
    still holds there; between them the priority of this moment decides."""
    places = _Places(want)

    def aged(due: Iterator[tuple[float, int, str]], priority: int) -> Iterator[tuple[int, float, int, str]]:
        for run_at, seq, task in due:
            yield -queueing.aged(priority, run_at, aging, now), run_at, seq, task

    streams = [
        aged(_due(db, want.queue, task, priority, now, min(places.for_task(task), want.limit)), priority)
        for priority, tasks in levels.items()
        for task in tasks
    ]
    chosen: list[int] = []
    for _priority, _run_at, seq, task in heapq.merge(*streams):
        if len(chosen) >= want.limit:
            break
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
