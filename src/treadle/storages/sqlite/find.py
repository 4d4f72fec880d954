"""Find, count and queues: what operators read.

Where an index narrows the search to a few thousand rows (running jobs, failures, one tag), those are read and sorted.
Otherwise the rows are walked over from the newest, a stretch at a time, and the walk ends with the page, after a
second, or, if Python must look at each row, after 100,000 of them; the page then says how far it has looked.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts; what operators wrote goes into parameters

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from ...core import filter as filters
from ...core import keeping
from ...core.filter import STATES, Filter
from ...core.job import Job, State
from ...core.queue import QueueStats
from ...core.view import row_of
from ...ports import Clock, Page, Query
from . import rows, terms
from .rows import Database, RowTuple
from .sql import JOB_COLUMNS, statement
from .terms import Condition, Terms

FEW: Final = 20_000
STRETCH: Final = 20_000
MOST_LOOKED_AT: Final = 100_000
PATIENT_WITH: Final = 60_000
LONGEST: Final = 1.0
_COLUMNS: Final = ", ".join(f"job.{name}" for name in JOB_COLUMNS.split(", "))
_SEEN: Final = "case when job.state = 'ready' and job.run_at > ? then 'scheduled' else job.state end"
_FIRST: Final = (-1e308, 0)


class _Walk:
    """Where candidates come from, how far they were looked at, and whether that was far enough."""

    def __init__(self, db: Database, parts: Terms) -> None:
        self._db = db
        self._where = terms.joined(parts.conditions)
        self._by_python = bool(parts.rest.terms)
        self._until = time.monotonic() + LONGEST
        self.looked_at = 0
        self.cut_short = False
        self.place: int | None = None  # from the newest down to this row, all were looked at

    def is_late(self) -> bool:
        """Whether even the looking at what was found has taken too long."""
        if time.monotonic() > self._until + LONGEST:
            self.cut_short = True
        return self.cut_short

    def newest(self, below: int | None, places: Condition | None = None) -> Iterator[RowTuple]:
        """All rows, from the newest, a stretch of row numbers at a time; soon only those in the right places."""
        sql = f"select {_COLUMNS} from treadle_job as job where job.seq >= ? and job.seq < ? and {self._where.sql}"
        for low, high in self._stretches(below):
            if places is not None and self.looked_at >= PATIENT_WITH:
                yield from self._in_places(places, high)
                return
            yield from self._db.execute(f"{sql} order by job.seq desc", (low, high, *self._where.parameters))

    def _in_places(self, places: Condition, below: int) -> Iterator[RowTuple]:
        """The same, but by way of an index of the states in question: what is asked for is rare among the newest."""
        newest = f"select seq from ({places.sql}) where seq < ? order by seq desc limit ?"
        sql = f"select {_COLUMNS} from treadle_job as job where job.seq = ? and {self._where.sql}"
        while numbers := self._db.execute(newest, (*places.parameters, below, STRETCH)).fetchall():
            for (below,) in numbers:
                yield from self._db.execute(sql, (below, *self._where.parameters))
                self.place = below
                if self.is_enough():
                    return
            self.looked_at += len(numbers)

    def is_enough(self) -> bool:
        """Whether the time is up, or Python has looked at all that it may."""
        if time.monotonic() > self._until or (self._by_python and self.looked_at >= MOST_LOOKED_AT):
            self.cut_short = True
        return self.cut_short

    def _stretches(self, below: int | None) -> Iterator[tuple[int, int]]:
        """Ranges of row numbers, from the newest, until it has been enough."""
        (top,) = self._db.execute("select coalesce(max(seq), 0) from treadle_job").fetchone()
        high = top + 1 if below is None else min(below, top + 1)
        while high > 0:
            if self.is_enough():
                return
            low = max(0, high - STRETCH)
            yield low, high
            self.looked_at += high - low
            self.place = high = low

    def newest_counts(self, now: float) -> Iterator[tuple[str, int]]:
        """How many of them are in which state."""
        sql = (
            f"select {_SEEN}, count(*) from treadle_job as job where job.seq >= ? and job.seq < ? and {self._where.sql}"
        )
        for low, high in self._stretches(None):
            yield from self._db.execute(f"{sql} group by 1", (now, low, high, *self._where.parameters)).fetchall()

    def few_counts(self, source: Condition, now: float) -> Iterator[tuple[str, int]]:
        sql = (
            f"select {_SEEN}, count(*) from treadle_job as job where job.seq in ({source.sql}) "
            f"and {self._where.sql} group by 1"
        )
        yield from self._db.execute(sql, (now, *source.parameters, *self._where.parameters)).fetchall()

    def few(self, source: Condition, below: int | None) -> Iterator[RowTuple]:
        """The rows that an index names, from the newest."""
        sql = (
            f"select {_COLUMNS} from treadle_job as job where job.seq in ({source.sql}) and job.seq < ? "
            f"and {self._where.sql} order by job.seq desc"
        )
        limit = (1 << 62) if below is None else below
        yield from self._db.execute(sql, (*source.parameters, limit, *self._where.parameters))

    def few_by_time(self, source: Condition, after: tuple[float, int]) -> Iterator[RowTuple]:
        sql = (
            f"select {_COLUMNS} from treadle_job as job where job.seq in ({source.sql}) "
            f"and (job.run_at, job.seq) > (?, ?) and {self._where.sql} order by job.run_at, job.seq"
        )
        yield from self._db.execute(sql, (*source.parameters, *after, *self._where.parameters))

    def upcoming(self, queues: Iterable[str], after: tuple[float, int], now: float) -> Iterator[RowTuple]:
        """Claimable jobs of many tasks by their run_at: each task's own order is stored, and they are merged."""
        heads = [
            (queue, task, priority)
            for queue in queues
            for task, priority, *_ in self._db.execute(statement("claim_heads"), (queue, now)).fetchall()
        ]
        sql = f"select {_COLUMNS} from treadle_job as job where job.seq = ? and {self._where.sql}"
        streams = [self._db.execute(statement("upcoming"), (*head, *after)) for head in heads]
        for _run_at, seq in heapq.merge(*map(_with_a_time, streams)):
            self.looked_at += 1
            if self.is_enough():
                return
            yield from self._db.execute(sql, (seq, *self._where.parameters))


def find(db: Database, query: Query, clock: Clock) -> Page:
    now = clock.now()
    parts = terms.take_apart(query.filter, clock)
    walk = _Walk(db, parts)
    candidates = _soonest(db, walk, query, parts, now) if query.next_first else _newest(db, walk, query, parts)
    matching = _matching(db, walk, candidates, parts.rest, now)
    page = list(itertools.islice(matching, query.limit + 1))
    shown = page[: query.limit]
    return Page(
        jobs=[job for _, job in shown],
        next=_cursor(shown[-1][0], query) if len(page) > query.limit and shown else None,
        newest_only=walk.looked_at if walk.cut_short else None,
        resume=str(walk.place) if walk.cut_short and walk.place is not None and not query.next_first else None,
    )


def _newest(db: Database, walk: _Walk, query: Query, parts: Terms) -> Iterator[RowTuple]:
    below = int(query.cursor) if query.cursor else None
    source = _source(db, parts)
    if source is not None:
        return walk.few(source, below)
    # Successes are everywhere; any other state may be rare among the newest.
    return walk.newest(below, None if "succeeded" in parts.states else _places(db, parts))


def _soonest(db: Database, walk: _Walk, query: Query, parts: Terms, now: float) -> Iterator[RowTuple]:
    after = _FIRST
    if query.cursor:
        run_at, _, seq = query.cursor.partition("/")
        after = (float(run_at), int(seq))
    source = _source(db, parts)
    if source is not None:
        return (row for row in walk.few_by_time(source, after) if isinstance(row[8], float))
    if parts.states <= {"ready", "scheduled"}:
        return walk.upcoming(_queues(db, parts), after, now)
    newest = sorted((row for row in walk.newest(None) if isinstance(row[8], float)), key=_by_time)
    return (row for row in newest if _by_time(row) > after)


def _with_a_time(rows: Iterable[tuple[Any, int]]) -> Iterator[tuple[float, int]]:
    """Without rows that somebody damaged: they have no place in this order."""
    return (row for row in rows if isinstance(row[0], float))


def _by_time(row: RowTuple) -> tuple[float, int]:
    return (row[8], row[0])


def _cursor(row: RowTuple, query: Query) -> str:
    return f"{row[8]!r}/{row[0]}" if query.next_first else str(row[0])


def _matching(
    db: Database, walk: _Walk, candidates: Iterable[RowTuple], rest: Filter, now: float
) -> Iterator[tuple[RowTuple, Job]]:
    for row in candidates:
        errors = rows.last_errors(db, [(row[0], row[-1])]) if row[-1] else {}
        job = rows.job_of(row, now, errors.get(row[0], ()))
        if job is None:
            continue
        if not rest.terms or filters.matches(rest, row_of(job, stuck=False), now):
            yield row, job
        elif walk.is_late():
            walk.place = row[0]
            return


# Where an index leads ------------------------------------------------------------------------------------------------


def _source(db: Database, parts: Terms) -> Condition | None:
    """A statement for the row numbers of all candidates, if an index has them and they are few."""
    for source in (*parts.named, _places(db, parts)):
        counting = f"select count(*) from (select 1 from ({source.sql}) limit ?)"
        (count,) = db.execute(counting, (*source.parameters, FEW + 1)).fetchone()
        if count <= FEW:
            return source
    return None


def _places(db: Database, parts: Terms) -> Condition:
    """A statement for the row numbers of all jobs in the states and queues in question, each by its index."""
    pieces = [piece for state in sorted(parts.states) for piece in _pieces(db, state, parts)]
    return Condition(
        " union all ".join(piece.sql for piece in pieces) or "select null as seq where false",
        tuple(parameter for piece in pieces for parameter in piece.parameters),
    )


def _pieces(db: Database, state: str, parts: Terms) -> list[Condition]:
    if state in ("waiting", "running"):
        return [Condition(f"select seq from treadle_job where state = '{state}'")]
    if state == "scheduled" and "ready" in parts.states:
        return []  # one piece serves both
    queues = _queues(db, parts)
    if state in terms.ENDED:
        sql = "select seq from treadle_job where queue = ? and state = ? and finished_at is not null"
        return [Condition(sql, (queue, state)) for queue in queues]
    return [Condition("select seq from treadle_job where queue = ? and state = 'ready'", (queue,)) for queue in queues]


def _queues(db: Database, parts: Terms) -> tuple[str, ...]:
    if parts.queues is not None:
        return parts.queues
    return tuple(name for (name,) in db.execute("select name from treadle_queue order by name"))


# Numbers -------------------------------------------------------------------------------------------------------------


def count(db: Database, filter: Filter, cap: int, clock: Clock) -> dict[State, int]:
    now = clock.now()
    parts = terms.take_apart(filter, clock)
    counts: dict[State, int] = {}
    if parts.by_place:
        for state in sorted(parts.states):
            if found := _count_state(db, state, parts, cap, now):
                counts[State(state)] = found
        return counts
    source = _source(db, parts)
    walk = _Walk(db, parts)
    if parts.rest.terms:
        candidates = walk.newest(None) if source is None else walk.few(source, None)
        for _, job in _matching(db, walk, candidates, parts.rest, now):
            counts[job.state] = counts.get(job.state, 0) + 1
    else:
        for name, found in walk.newest_counts(now) if source is None else walk.few_counts(source, now):
            if name in STATES:
                counts[State(name)] = counts.get(State(name), 0) + found
    return {state: min(cap, found) for state, found in counts.items()}


def _count_state(db: Database, state: str, parts: Terms, cap: int, now: float) -> int:
    where = terms.joined((*parts.conditions, terms.in_state(state, now)))
    found = 0
    for piece in _pieces(db, state, _only(parts, state)):
        indexed = piece.sql.replace("select seq from treadle_job where", "select 1 from treadle_job as job where")
        sql = f"select count(*) from ({indexed} and {where.sql} limit ?)"
        found += db.execute(sql, (*piece.parameters, *where.parameters, cap)).fetchone()[0]
    return min(cap, found)


def _only(parts: Terms, state: str) -> Terms:
    return msgspec.structs.replace(parts, states=frozenset({state}))


def queues(db: Database, clock: Clock) -> list[QueueStats]:
    now = clock.now()
    running = dict(db.execute("select queue, count(*) from treadle_job where state = 'running' group by queue"))
    waiting = dict(db.execute("select queue, count(*) from treadle_job where state = 'waiting' group by queue"))
    found = db.execute(statement("queues")).fetchall()
    return [_stats(db, row, running, waiting, now) for row in found]


def _stats(db: Database, row: RowTuple, running: dict[str, int], waiting: dict[str, int], now: float) -> QueueStats:
    queue = rows.queue_of(row)
    cap = QueueStats(queue=queue).capped_at
    ready = scheduled = 0
    oldest: float | None = None
    for task, priority, first_at, _ in db.execute(statement("claim_heads"), (queue.name, now)).fetchall():
        due, later = db.execute(statement("count_due"), (queue.name, task, priority, now)).fetchone()
        ready, scheduled = ready + due, scheduled + later
        if due:
            oldest = first_at if oldest is None else min(oldest, first_at)
    ended: dict[str, Any] = {
        state: db.execute(statement("count_ended"), (queue.name, state, cap)).fetchone()[0] for state in terms.ENDED
    }
    return QueueStats(
        queue=queue,
        ready=ready,
        scheduled=scheduled,
        waiting=waiting.get(queue.name, 0),
        running=running.get(queue.name, 0),
        oldest_ready_seconds=None if oldest is None else max(0.0, now - oldest),
        **ended,
    )


def get(db: Database, ids: Iterable[str], clock: Clock) -> list[Job]:
    """The jobs with these ids, in their order, with all that is kept of their errors."""
    now = clock.now()
    jobs: list[Job] = []
    for id in ids:
        row = db.execute(statement("get"), (id,)).fetchone()
        if row is not None:
            job = rows.job_of(row, now, rows.all_errors(db, row[0]) if row[-1] else ())
            if job is not None:
                jobs.append(job)
            continue
        kept = db.execute(statement("kept"), (id,)).fetchone()
        # Between the two looks it may have become a job.
        row = db.execute(statement("get"), (id,)).fetchone()
        job = rows.job_of(row, now, ()) if row is not None else keeping.job_of(*kept) if kept is not None else None
        if job is not None:
            jobs.append(job)
    return jobs
