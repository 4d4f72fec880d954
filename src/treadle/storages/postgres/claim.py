"""Claim: what is asked of claim_2, and what its answer means. Why the statement has its shape is said there.

The watermark
-------------
Finished jobs leave dead entries at the front of their lane's index until vacuum takes them away, and vacuum cannot
while any session holds an old snapshot. A claim that starts at the front walks over all of them. So a lane remembers
the last place that it claimed, and starts there.

Nothing is lost by it, because it is only a hint:

* It never comes closer to the present than `MARGIN`: jobs that are enqueued now, retries and rescues land behind it.
* A job may still appear in front of it: its transaction was open for longer than the margin, or a claim that had it
  locked was rolled back. So every lane is swept from its very front once a second (less often if that takes long), and
  that is how long such a job may wait.
* It is kept for one set of tasks: a lane that serves others starts at the front. Tasks that nobody here knows are
  passed by it; jobs that were left for want of a place are not, because they are behind what was taken.
* Without need there is none: as long as a scan from the front is quick, every claim is a sweep.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...core import queue as queueing
from ...core.job import Job, State
from ...core.names import HIGHEST_PRIORITY, MOST_TAGS
from ...ports import Claimed, Want
from ..shared.nearest import AFTER_LAST, FIRST
from . import rows, sql
from .bounds import LONGEST, MOST
from .talk import Row, Talk

CLAIM: Final = sql.call(
    "claim_2",
    "float8, float8, text, text, text, text[], int4[], int4[], int4[], int2[], text[], int4[], float8[], int8[], "
    "boolean, int4",
)
MARGIN: Final = 0.25
# From when on a scan from the front is slow: clean ones take 0.1 ms, 1 µs for a job and 20 µs for a lane. More than
# that in front of every claim would cost a worker a third of its rate. One may be slow for another reason (a new
# session makes its plans, the machine is busy), several in a row are not.
SLOW_SCAN: Final = 0.0005
SLOW_JOB: Final = 0.000_003
SLOW_LANE: Final = 0.000_05
SLOW_IN_A_ROW: Final = 4
SWEEP_EVERY: Final = 1.0
SWEEP_SHARE: Final = 20.0  # a sweep may take one part in twenty of the time

# Queue, priority, tasks.
LaneKey: TypeAlias = tuple[str, int, frozenset[str]]
Mark: TypeAlias = tuple[float, int]
_FRONT: Final[Mark] = (-math.inf, 0)
_PLACE: Final = itemgetter(7, 0)  # run_at and seq, of a row


class _Rest(Struct):
    """What only some jobs have."""

    pinned: bool
    cancel_wanted: bool
    error_count: int
    crashes: int
    snoozes: int
    throttles: int
    unique_key: str | None
    tags: tuple[str, ...]
    meta: str | None
    reason: str | None
    warning: str | None
    errors: tuple[rows.Entry, ...] | None


class _Tail(Struct):
    """What the last row of an answer says."""

    now: float
    scan: float
    due: float | None = None
    order: tuple[int, ...] | None = None  # where a queue ages: the jobs' seqs as they should start
    lanes: tuple[tuple[str, int], ...] | None = None


_as_rest: Final = msgspec.json.Decoder(_Rest).decode
_as_tail: Final = msgspec.json.Decoder(_Tail).decode


class Lanes:
    """What one storage object knows of the lanes: which there are, and how far each has been claimed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._priorities: dict[str, tuple[int, ...]] = {}
        self._marks: dict[LaneKey, Mark] = {}
        self._swept_at = -math.inf  # by the caller's monotonic clock
        self._sweep_took = 0.0
        self._slow_in_a_row = 0
        self._now = -math.inf
        self.slow = False  # scans from the front are slow: marks are in use

    def priorities(self, queue: str) -> tuple[int, ...]:
        return self._priorities.get(queue, ())

    def note(self, lanes: Iterable[tuple[str, int]], queues: Iterable[str]) -> None:
        """Remember which lanes there are."""
        found: dict[str, list[int]] = {queue: [] for queue in queues}
        for queue, priority in lanes:
            found.setdefault(queue, []).append(priority)
        self._priorities |= {queue: tuple(each) for queue, each in found.items()}

    def is_sweep_due(self, steady: float) -> bool:
        return not self.slow or steady - self._swept_at >= max(SWEEP_EVERY, SWEEP_SHARE * self._sweep_took)

    def mark(self, key: LaneKey) -> Mark:
        return self._marks.get(key, _FRONT)

    def swept(self, took: float, steady: float, jobs: int, lanes: int) -> None:
        """A claim from the front of every lane has been answered."""
        slow = took > SLOW_SCAN + SLOW_JOB * jobs + SLOW_LANE * lanes
        self._slow_in_a_row = self._slow_in_a_row + 1 if slow else 0
        self.slow = self._slow_in_a_row >= SLOW_IN_A_ROW
        self._swept_at, self._sweep_took = steady, took
        if not self.slow:
            self._marks.clear()

    def claimed(self, jobs: Sequence[tuple[LaneKey, Mark]], now: float) -> None:
        """Move the marks of the lanes that gave something."""
        with self._lock:
            if now < self._now:  # the server's clock was set back: what lies behind a mark is unknown
                self._marks.clear()
                self._swept_at = -math.inf
            self._now = now
            if self.slow:
                limit = (now - MARGIN, 0)
                for key, place in jobs:
                    self._marks[key] = max(self.mark(key), min(place, limit))


class Question:
    """One claim: its lanes, as claim_2 wants them."""

    def __init__(self, wants: Sequence[Want], lanes: Lanes, *, sweep: bool) -> None:
        self.wants = [want for want in wants if want.limit > 0]
        # Lanes are read priority by priority: what they have room for together is the queue's limit too.
        self.rooms = [min(want.limit, sum(lane.limit for lane in want.lanes)) for want in self.wants]
        self.sweep = sweep
        self.merge = False
        self._lanes_of: dict[str, list[frozenset[str]]] = {}
        self.known = sum(len(lanes.priorities(queue)) for queue in {want.queue for want in self.wants})
        columns: list[tuple[Any, ...]] = []
        for number, want in enumerate(self.wants, 1):
            open_lanes = [lane for lane in want.lanes if lane.limit > 0 and lane.tasks]
            self._lanes_of[want.queue] = [lane.tasks for lane in open_lanes]
            self.merge = self.merge or len(open_lanes) > 1
            for priority in lanes.priorities(want.queue):
                for which, lane in enumerate(open_lanes):
                    at, seq = _FRONT if sweep else lanes.mark((want.queue, priority, lane.tasks))
                    places = min(lane.limit, want.limit)
                    columns.append((number, which, priority, "\x1f".join(lane.tasks), places, at, seq))
        self.lanes = len(columns)
        self.columns: list[list[Any]] = [[each[n] for each in columns] for n in range(7)]

    def keys(self, jobs: Sequence[tuple[int, Job]]) -> list[tuple[LaneKey, Mark]]:
        """The last place that was claimed in each lane."""
        last = {(job.queue, job.priority, job.task): (job.run_at, seq) for seq, job in jobs}
        keys: list[tuple[LaneKey, Mark]] = []
        for (queue, priority, task), place in last.items():
            tasks = next((each for each in self._lanes_of[queue] if task in each), None)
            if tasks is not None:
                keys.append(((queue, priority, tasks), place))
        return keys


def claim(
    question: Question, pod: str, token: str, time: tuple[float | None, float | None, str]
) -> Talk[tuple[list[tuple[int, Job]], list[str], _Tail | None]]:
    """Take what is due for a pod, if it is live: jobs with their seq, in the order in which they should start; and the
    ids of those whose rows turned out to be damaged, which nobody must run."""
    now, steady, boot = time
    queues = [want.queue for want in question.wants]
    answer = yield (
        CLAIM,
        (now, steady, boot, pod, token, queues, question.rooms, *question.columns, question.merge, question.known),
    )
    if not answer:
        return [], [], None
    tail = _as_tail(answer[-1][-1])
    found = answer[:-1]
    # RETURNING promises no order.
    if tail.order is not None:
        place = {seq: n for n, seq in enumerate(tail.order)}
        found.sort(key=lambda row: place[row[0]])
    elif question.lanes == 1:
        found.sort(key=_PLACE)
    else:
        order = {queue: n for n, queue in enumerate(queues)}
        found.sort(key=lambda row: (order[row[2]], -row[6], row[7], row[0]))
    return (*_jobs_of(found, pod, token), tail)


def claimed(jobs: Sequence[Job], wants: Sequence[Want], due: float | None, damaged: int = 0) -> Claimed:
    """`damaged` of the places were taken by rows that are ended already: there may be more behind them."""
    taken: dict[str, int] = {}
    for job in jobs:
        taken[job.queue] = taken.get(job.queue, 0) + 1
    more = damaged > 0 or any(taken.get(want.queue, 0) >= want.limit for want in wants)
    return Claimed(jobs, due, more)


def recover(pod: str, token: str, now: float | None) -> Talk[tuple[list[Job], list[str]]]:
    """The running jobs of one claim, in the order in which they should start; and the ids of those that are damaged."""
    found = yield sql.statement("recover"), (now, pod, token)
    jobs = [queueing.as_claimed(rows.job_of(row)) for row in found]
    return [job for job in jobs if _is_sound(job)], [job.id for job in jobs if not _is_sound(job)]


def _jobs_of(found: Sequence[Row], pod: str, token: str) -> tuple[list[tuple[int, Job]], list[str]]:
    """The jobs, with their seq, and the ids of damaged rows. Jobs of one claim differ in little: a copy of one, with
    that changed, costs a third of a new one."""
    jobs: list[tuple[int, Job]] = []
    damaged: list[str] = []
    models: dict[tuple[Any, ...], Job] = {}
    for row in found:
        (
            seq, id, queue, task, args, format, priority, run_at, created_at, attempt, max_attempts, timeout,
            started_at, rest,
        ) = row  # fmt: skip
        key = (queue, task, format, priority, attempt, max_attempts, timeout, started_at)
        model = models.get(key)
        if model is None:
            model = Job(
                id=id,
                task=task,
                queue=queue,
                state=State.RUNNING,
                format=format,
                priority=priority,
                run_at=run_at,
                created_at=created_at,
                attempt=attempt,
                max_attempts=max_attempts,
                timeout=timeout,
                pod=pod,
                token=token,
                started_at=started_at,
                deadline=started_at + timeout if timeout else None,
            )
            if not _is_sound(model):
                damaged.append(id)
                continue
            models[key] = model
        job = replace(model, id=id, args=args, run_at=run_at, created_at=created_at)
        whole = job if rest is None else _with_rest(job, rest)
        if whole is None or not (FIRST <= created_at < AFTER_LAST and run_at >= FIRST):
            damaged.append(id)
        else:
            jobs.append((seq, whole))
    return jobs, damaged


def _is_sound(job: Job) -> bool:
    """Whether what the claim answers with is within the bounds; its attempt is counted already."""
    counts = (job.attempt - 1, job.crashes, job.snoozes, job.throttles, job.error_count)
    return (
        0 <= min(counts) <= max(counts) <= MOST
        and -HIGHEST_PRIORITY <= job.priority <= HIGHEST_PRIORITY
        and (job.max_attempts is None or 0 <= job.max_attempts <= MOST)
        and (job.timeout is None or 0 <= job.timeout <= LONGEST)
        and len(job.tags) <= MOST_TAGS
        and all(FIRST <= at < AFTER_LAST for at in (job.run_at, job.created_at, job.started_at or 0.0))
    )


def _with_rest(job: Job, rest: str) -> Job | None:
    """The job with what only some have; None if that is damaged."""
    try:
        more = _as_rest(rest)
    except msgspec.ValidationError:  # a tag that is null, tags in two dimensions
        return None
    whole = replace(
        job,
        pinned=more.pinned,
        cancel_wanted=more.cancel_wanted,
        error_count=more.error_count,
        crashes=more.crashes,
        snoozes=more.snoozes,
        throttles=more.throttles,
        unique_key=more.unique_key,
        tags=more.tags,
        meta=more.meta,
        reason=more.reason,
        warning=more.warning,
        errors=rows.entries_of(more.errors) if more.errors else (),
    )
    return whole if _is_sound(whole) else None
