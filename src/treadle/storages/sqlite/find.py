"""Find: the lists that operators read.

Where an index narrows the search to a few thousand rows (running jobs, failures, one tag), those are read and sorted.
Otherwise the rows are walked over from the newest, a stretch at a time, and the walk ends with the page, after a
second, or, if Python must look at each row, after 100,000 of them; the page then says how far it has looked.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts; what operators wrote goes into parameters

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from ...core import filter as filters
from ...core import keep_last
from ...core.filter import Filter
from ...core.job import Job
from ...ports import Clock, Page, Query
from . import places, rows, soonest, terms
from .rows import Database, RowTuple
from .sql import JOB_COLUMNS, statement
from .terms import Condition, Terms

FEW: Final = 20_000
STRETCH: Final = 20_000
MOST_LOOKED_AT: Final = 100_000
PATIENT_WITH: Final = 60_000
CHUNK: Final = 64
LONGEST: Final = 1.0
A_FEW: Final = 1_000  # are looked at however long that takes: a busy machine must not hide them
_COLUMNS: Final = ", ".join(f"job.{name}" for name in JOB_COLUMNS.split(", "))
SEEN: Final = "case when job.state = 'ready' and job.run_at > ? then 'scheduled' else job.state end"
Place: TypeAlias = tuple[float, int]
_FIRST: Final[Place] = (-1e308, 0)
_ANY: Final = 1 << 62
_TAGGED: Final = (
    "from treadle_job_tag as named cross join treadle_job as job on job.seq = named.seq where named.tag = ?"
)
# Left to itself the planner takes the index of a queue that is asked for, and sorts all that is in it.
_STRETCH: Final = "from treadle_job as job not indexed where job.seq >= ? and job.seq < ?"


class Walk:
    """Where candidates come from, how far they were looked at, and whether that was far enough."""

    def __init__(self, db: Database, parts: Terms) -> None:
        self._db = db
        self._where = terms.joined(parts.conditions)
        self._by_python = bool(parts.rest.terms)
        self._until = time.monotonic() + LONGEST
        self.looked_at = 0
        self.cut_short = False
        self._high = 0  # where the stretch begins that is looked at
        self.place: int | None = None  # from the newest down to this row, all were looked at

    def is_late(self, seq: int, seen: int) -> bool:
        """Whether the time is up while Python looks at what was found: it has come as far as to this row, by way of so
        many others."""
        if not self.cut_short and seen >= A_FEW and time.monotonic() > self._until:
            self.cut_short = True
            self.looked_at = max(seen, self.looked_at + self._high - seq if self._high else 0)
            self.place = seq
        return self.cut_short

    def newest(self, below: int | None, places: Condition | None = None) -> Iterator[RowTuple]:
        """All rows, from the newest, a stretch of row numbers at a time; soon only those in the right places."""
        sql = f"select {_COLUMNS} {_STRETCH} and {self._where.sql}"
        for low, high in self._stretches(below):
            if places is not None and self.looked_at >= PATIENT_WITH:
                yield from self._in_places(places, high)
                return
            yield from self._db.execute(f"{sql} order by job.seq desc", (low, high, *self._where.parameters))

    def _in_places(self, places: Condition, below: int) -> Iterator[RowTuple]:
        """The same, but by way of an index of the states in question: what is asked for is rare among the newest."""
        newest = f"select seq from ({places.sql}) where seq < ? order by seq desc limit ?"
        size = CHUNK * 4
        while numbers := self._db.execute(newest, (*places.parameters, below, size)).fetchall():
            yield from self._these([seq for (seq,) in numbers])
            self.place = below = numbers[-1][0]
            self.looked_at += len(numbers)
            if self.is_enough():
                return
            size = STRETCH

    def tagged(self, tag: str, below: int | None) -> Iterator[RowTuple]:
        """All that have the tag, from the newest: the tags are stored in this order."""
        sql = f"select {_COLUMNS} {_TAGGED} and named.seq < ? and {self._where.sql} order by named.seq desc"
        yield from self._db.execute(sql, (tag, _ANY if below is None else below, *self._where.parameters))

    def _these(self, numbers: Sequence[int]) -> Iterator[RowTuple]:
        """Those of the rows that match, in their order."""
        sql = (
            f"select {_COLUMNS} from json_each(?) as chosen cross join treadle_job as job on job.seq = chosen.value "
            f"where {self._where.sql}"
        )
        found = self._db.execute(sql, (rows.json_text(numbers), *self._where.parameters)).fetchall()
        by_number = {row[0]: row for row in found}
        yield from (by_number[seq] for seq in numbers if seq in by_number)

    def is_enough(self) -> bool:
        """Whether the time is up, or Python has looked at all that it may."""
        is_late = self.looked_at >= A_FEW and time.monotonic() > self._until
        if is_late or (self._by_python and self.looked_at >= MOST_LOOKED_AT):
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
            self._high = high
            yield low, high
            self._high = 0
            self.looked_at += high - low
            self.place = high = low

    def newest_counts(self, now: float) -> Iterator[tuple[str, int]]:
        """How many of them are in which state."""
        sql = f"select {SEEN}, count(*) {_STRETCH} and {self._where.sql} group by 1"
        for low, high in self._stretches(None):
            yield from self._db.execute(sql, (now, low, high, *self._where.parameters)).fetchall()

    def few_counts(self, source: Condition, now: float, tag: str | None = None) -> Iterator[tuple[str, int]]:
        """How many of the rows that an index names; of those with the tag, if one is asked for."""
        where = self._where if tag is None else terms.joined((self._where, terms.tagged(tag)))
        sql = (
            f"select {SEEN}, count(*) from treadle_job as job not indexed where job.seq in ({source.sql}) "
            f"and {where.sql} group by 1"
        )
        yield from self._db.execute(sql, (now, *source.parameters, *where.parameters)).fetchall()

    def tagged_counts(self, tag: str, now: float) -> Iterator[tuple[str, int]]:
        sql = f"select {SEEN}, count(*) {_TAGGED} and {self._where.sql} group by 1"
        yield from self._db.execute(sql, (now, tag, *self._where.parameters)).fetchall()

    def few(self, source: Condition, below: int | None) -> Iterator[RowTuple]:
        """The rows that an index names, from the newest."""
        sql = (
            f"select {_COLUMNS} from treadle_job as job not indexed "
            f"where job.seq in ({source.sql}) and job.seq < ? and {self._where.sql} order by job.seq desc"
        )
        given = (*source.parameters, _ANY if below is None else below, *self._where.parameters)
        yield from self._db.execute(sql, given)

    def few_by_time(self, sources: Iterable[Condition], after: Place, most: int) -> Iterator[RowTuple]:
        """Of the rows that each `from … where …` has, those that are next."""
        streams = [
            self._db.execute(
                f"select job.run_at, job.seq {source.sql} and {self._where.sql} and (job.run_at, job.seq) > (?, ?) "
                "order by job.run_at, job.seq limit ?",
                (*source.parameters, *self._where.parameters, *after, most),
            )
            for source in sources
        ]
        return self._in_order(heapq.merge(*map(_with_a_time, streams)))

    def newest_by_time(self, after: Place, most: int) -> Iterator[RowTuple]:
        """Of all rows from the newest, those that are next: of each stretch no more than can be shown."""
        sql = (
            f"select job.run_at, job.seq {_STRETCH} and {self._where.sql} and (job.run_at, job.seq) > (?, ?) "
            "order by job.run_at, job.seq limit ?"
        )
        found: list[Place] = []
        for low, high in self._stretches(None):
            given = (low, high, *self._where.parameters, *after, most)
            found = heapq.nsmallest(most, [*found, *_with_a_time(self._db.execute(sql, given))])
        return self._in_order(found)

    def upcoming(self, parts: Terms, after: Place, now: float) -> Iterator[RowTuple]:
        """Jobs that lie ready, or wait for their retry, by their run_at: each task's own order is stored, and they are
        merged. Where only what is due is asked for, nobody looks at what is scheduled behind it."""
        until = now if parts.states <= {"ready"} else math.inf
        for chunk in _chunks(soonest.merged(self._db, parts, after, until)):
            yield from self._these(chunk)
            self.looked_at += len(chunk)
            if self.is_enough():
                return

    def _in_order(self, found: Iterable[Place]) -> Iterator[RowTuple]:
        for chunk in _chunks(iter(found)):
            yield from self._these(chunk)


def find(db: Database, query: Query, clock: Clock) -> Page:
    now = clock.now()
    parts = terms.take_apart(query.filter, clock)
    walk = Walk(db, parts)
    candidates = _soonest(db, walk, query, parts, now) if query.next_first else newest(db, walk, parts, query.cursor)
    found = matching(db, walk, candidates, parts.rest, now)
    page = list(itertools.islice(found, query.limit + 1))
    shown = page[: query.limit]
    return Page(
        jobs=[job for _, job in shown],
        next=_cursor(shown[-1][0], query) if len(page) > query.limit and shown else None,
        newest_only=walk.looked_at if walk.cut_short else None,
        resume=str(walk.place) if walk.cut_short and walk.place is not None and not query.next_first else None,
    )


def newest(db: Database, walk: Walk, parts: Terms, cursor: str | None) -> Iterator[RowTuple]:
    below = int(cursor) if cursor else None
    if parts.tag is not None:
        return walk.tagged(parts.tag, below)
    source = few(db, parts, FEW)
    if source is not None:
        return walk.few(source, below)
    # Successes are everywhere; any other state may be rare among the newest.
    return walk.newest(below, None if "succeeded" in parts.states else places.source(db, parts))


def _soonest(db: Database, walk: Walk, query: Query, parts: Terms, now: float) -> Iterator[RowTuple]:
    after = _FIRST
    if query.cursor:
        run_at, _, seq = query.cursor.partition("/")
        after = (float(run_at), int(seq))
    if parts.states <= {"scheduled"}:
        after = max(after, (now, -1))  # what is due comes before it in this order, and may be much
    most = _ANY if parts.rest.terms else query.limit + 1
    if parts.tag is not None:
        return walk.few_by_time([Condition(_TAGGED, (parts.tag,))], after, most)
    if parts.states <= {"ready", "scheduled"} and not parts.named:
        return walk.upcoming(parts, after, now)
    source = few(db, parts, FEW)
    if source is not None:
        named = f"from treadle_job as job not indexed where job.seq in ({source.sql})"
        return walk.few_by_time([Condition(named, source.parameters)], after, most)
    if parts.states <= {"ready", "scheduled"}:
        return walk.upcoming(parts, after, now)
    return walk.newest_by_time(after, min(most, MOST_LOOKED_AT))


def _chunks(found: Iterator[Place]) -> Iterator[list[int]]:
    """Row numbers, a few at first: mostly they make the page."""
    size = CHUNK
    while chunk := [seq for _, seq in itertools.islice(found, size)]:
        yield chunk
        size = min(size * 4, STRETCH)


def _with_a_time(rows: Iterable[tuple[Any, int]]) -> Iterator[Place]:
    """Without rows that somebody damaged: they have no place in this order."""
    return (row for row in rows if isinstance(row[0], float))


def _cursor(row: RowTuple, query: Query) -> str:
    return f"{row[8]!r}/{row[0]}" if query.next_first else str(row[0])


def matching(
    db: Database, walk: Walk, candidates: Iterable[RowTuple], rest: Filter, now: float
) -> Iterator[tuple[RowTuple, Job]]:
    from ...core.view import row_of  # for whoever reads

    for seen, row in enumerate(candidates, 1):
        errors = rows.last_errors(db, [(row[0], row[-1])]) if row[-1] else {}
        job = rows.job_of(row, now, errors.get(row[0], ()))
        if job is None:
            continue
        if not rest.terms or filters.matches(rest, row_of(job, stuck=False), now):
            yield row, job
        if rest.terms and walk.is_late(row[0], seen):
            return


def few(db: Database, parts: Terms, most: int) -> Condition | None:
    """A statement for the row numbers of all candidates, if an index has them and they are few."""
    for source in (*parts.named, places.source(db, parts)):
        counting = f"select count(*) from (select 1 from ({source.sql}) limit ?)"
        (count,) = db.execute(counting, (*source.parameters, most + 1)).fetchone()
        if count <= most:
            return source
    return None


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
        job = rows.job_of(row, now, ()) if row is not None else keep_last.job_of(*kept) if kept is not None else None
        if job is not None:
            jobs.append(job)
    return jobs
