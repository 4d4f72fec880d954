"""Find: the lists that operators read. Never on the hot path, and never for longer than a second or two.

Newest first is the order of the ids, which clients make so that they grow with time: the primary key of either table
has it. The rows are walked over from the newest, a stretch at a time, and the walk ends with the page, after a second,
or, if Python must look at each row, after 100,000 of them; the page then says how far it has looked. Where an index
names all candidates and they are few (ids, tags, failures, jobs by their time), those are read instead.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts; what operators wrote goes into parameters

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Sequence
from typing import Final

from ...core import filter as filters
from ...core import keep_last
from ...core.filter import Filter
from ...core.job import Job
from ...ports import Page, Query
from . import rows, sql, terms
from .cluster import SMALL_FOR_SCANS, Time
from .talk import Row, Talk
from .terms import Terms, Where

FIRST_STRETCH: Final = 500
STRETCH: Final = 10_000
MOST_LOOKED_AT: Final = 100_000
LONGEST: Final = 1.0
A_FEW: Final = 1_000  # are looked at however long that takes: a busy machine must not hide them
RUN_AT: Final = 8  # its place in a row; a Job has it only as far as a datetime goes
NEWEST: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_OLDEST: Final = "00000000-0000-0000-0000-000000000000"
_EDGE: Final = """
select min(place::text), count(*)
from (
    select place
    from (
        (select id as place from treadle.job where id < $1::uuid order by id desc limit $2::int)
        union all
        (select id from treadle.job_history where id < $1::uuid order by id desc limit $2::int)
    ) as both_tables
    order by place desc
    limit $2::int
) as newest
"""
_JOB: Final = sql.JOB.replace("{errors}", sql.LAST_ERROR)
_HISTORY: Final = sql.HISTORY.replace("{errors}", sql.LAST_ERROR)
LIVE: Final = frozenset({"waiting", "scheduled", "ready", "running"})
# What an index names, if it is few: statements for ids, of which {0} is the parameter.
FEW: Final = 10_000
# As the indexes of 0015_parents.sql have it.
_MADE_BY: Final = (
    """strpos(meta, '"treadle:parent"') > 0 """
    """and substring(meta from '"treadle:parent"\\s*:\\s*"([^"]+)"') = any ({0}::text[])"""
)
# With limits of their own: without, a planner that knows nothing yet of parents sends several processes to look.
_BY_PARENT: Final = " union all ".join(
    f"(select id from {table} where {_MADE_BY} limit {FEW + 1})" for table in ("treadle.job", "treadle.job_history")
)
_BY_TAG: Final = (
    "(select id from treadle.job where tags is not null and tags && {0}::text[] "
    "union all select id from treadle.job_history where tags is not null and tags && {0}::text[])"
)
_BY_CAUSE: Final = "select id from treadle.job_history where cause is not null and cause = any ({0}::text[])"
_RARE: Final = "select id from treadle.job_history where state <> 'succeeded' and state = any ({0}::text[])"
_RARE_OF_A_QUEUE: Final = f"{_RARE} and queue = ({{0}}::text[])[1]"
# Of a large table only the runs that were under way at their pod's last beat are known without reading all of it.
_RETRYING: Final = f"job.state = 'ready' and job.run_at > {terms.NOW} and job.attempt > 0 and job.error_count > 0"


def retries(small: bool, most: int = MOST_LOOKED_AT) -> str:
    """Jobs that wait for their retry, with an error: of a small table all of them, of a large one those among the next
    `most` of all lanes. The limit is hidden from the planner, which would rather sort than follow the index."""
    if small:
        return f"select job.* from treadle.job as job where {_RETRYING}"
    return (
        "select job.* from treadle.lane as lane cross join lateral (select job.* from treadle.job as job "
        f"where job.queue = lane.queue and job.priority = lane.priority and job.run_at > {terms.NOW} "
        "order by job.run_at, job.seq "
        f"limit (select 1 + {most} / greatest(1, count(*)) from treadle.lane)) as job where {_RETRYING}"
    )


KEPT: Final = (
    "select kept, id::text from treadle.job where kept is not null and kept::jsonb ->> 'id' = any ($1::text[])"
)
GET: Final = sql.statement("get", sql.ALL_ERRORS)
_RUNNING: Final = "select job_id as id from treadle.run where {0}::text[] is not null"
# A job waits for nothing but its answer.
_WAITING: Final = f"select {sql.as_id('job_id')} as id from treadle.answer where waits and {{0}}::text[] is not null"
_UNDER_WAY: Final = {"running": _RUNNING, "waiting": _WAITING}


def get(ids: Sequence[str], now: float | None) -> Talk[list[Job]]:
    """The jobs with these ids, in their order, with all that is kept of their errors."""
    known = rows.ids_of(ids)
    if not known:
        return []
    found = yield GET, (now, known)
    jobs = {job.id: job for job in map(rows.job_of, found)}
    if missing := [id.lower() for id in known if id.lower() not in jobs]:
        jobs |= yield from _kept(missing, now)
    return [jobs[id.lower()] for id in known if id.lower() in jobs]


def _kept(ids: list[str], now: float | None) -> Talk[dict[str, Job]]:
    """Requests with these ids that are kept behind their holders, or have become jobs since we looked."""
    found = yield KEPT, (ids,)
    kept = {job.id: job for text, holder in found if (job := keep_last.job_of(text, holder)) is not None}
    again = yield GET, (now, ids)
    return kept | {job.id: job for job in map(rows.job_of, again)}


def the_time(time: Time) -> Talk[float]:
    if time[0] is not None:
        return round(time[0], 6)  # as exact as the instants that it is compared with
    ((now,),) = yield f"select date_part('epoch', {sql.NOW})", (None,)
    return float(now)


class Finding:
    """A page in the making, a step at a time: others who read need not wait until a long look is over."""

    def __init__(self, query: Query, time: Time) -> None:
        self._query = query
        self._time = time
        self._now = 0.0
        self._rest = query.filter
        self._found: list[tuple[Row, Job]] = []
        self._walk: Walk | None = None
        self.page: Page | None = None

    def step(self) -> Talk[None]:
        """May be repeated if its end was not heard of."""
        query = self._query
        if self._walk is None:
            self._now, small = yield from begin(self._time)
            parts = terms.take_apart(query.filter, self._time, self._now)
            if query.next_first:
                self.page = yield from _soonest(query, parts, self._now)
                return
            self._rest = parts.rest
            self._walk = Walk((yield from narrowed(parts, small)), query.cursor or NEWEST)
        walk = self._walk
        found = yield from walk.stretch(query.limit + 1 - len(self._found))
        self._found += matching(found, self._rest, self._now)
        if len(self._found) <= query.limit and not walk.over:
            return
        shown = self._found[: query.limit]
        more = len(self._found) > query.limit
        self.page = Page(
            jobs=[job for _, job in shown],
            next=shown[-1][1].id if more and shown else None,
            newest_only=walk.looked_at if walk.cut_short else None,
            resume=walk.below if walk.cut_short and not more else None,
        )


def find(query: Query, time: Time) -> Talk[Page]:
    """All steps at once."""
    finding = Finding(query, time)
    while finding.page is None:
        yield from finding.step()
    return finding.page


def narrowed(parts: Terms, small: bool) -> Talk[Terms]:
    """If an index names all candidates and they are few, only those."""
    source, given = "", list[str]()
    if parts.ids is not None:
        return parts
    if parts.tags is not None:
        source, given = _BY_TAG, list(parts.tags)
    elif parts.parents is not None:
        source, given = _BY_PARENT, list(parts.parents)
    elif parts.causes is not None or (parts.has_cause and parts.states <= {"scheduled"}):
        return (yield from _by_their_cause(parts, small))
    elif len(parts.states) == 1 and parts.states <= {*_UNDER_WAY}:
        source = "" if small else _UNDER_WAY[next(iter(parts.states))]
    elif parts.states and parts.states <= {"failed", "cancelled"}:
        source, given = _RARE, sorted(parts.states)
        if parts.queue is not None:
            source, given = _RARE_OF_A_QUEUE, [parts.queue[0], *given]
    if parts.finished and source in ("", _RARE):
        return (yield from _by_their_end(parts))
    if not source:
        return parts
    ((count,),) = yield f"select count(*) from ({source.format('$1')} limit {FEW + 1}) as few", (given,)
    return parts if count > FEW else terms.narrowed(parts, source, given)


def _by_their_cause(parts: Terms, small: bool) -> Talk[Terms]:
    """If few failed for these causes, and few wait for a retry at all, only those."""
    sources: list[str] = []
    given = list(parts.causes or ())
    if "failed" in parts.states:
        sources.append(_BY_CAUSE)
    if "scheduled" in parts.states:
        sources.append(f"select id from ({retries(small)}) as job where {{0}}::text[] is not null")
    if not sources:
        return parts  # no job can match
    source = " union all ".join(sources)
    ((count,),) = yield (
        f"select count(*) from ({source.replace('{0}', '$2')} limit {FEW + 1}) as few where $1::float8 is null or true",
        (parts.where.parameters[0], given),
    )
    return parts if count > FEW else terms.narrowed(parts, source, given)


def _by_their_end(parts: Terms) -> Talk[Terms]:
    """If few have ended in the time that is asked for, only those."""
    which = terms.ended(parts.finished)
    if len(parts.states) == 1 and "succeeded" not in parts.states:
        which += f" and {terms.RARE.format(state=next(iter(parts.states)))}"
    # Every parameter must be named somewhere.
    named = terms.ended(" and ".join(parts.where.parts))
    ((count,),) = yield (
        f"select count(*) from (select from treadle.job_history as job where {which} and (({named}) or true) "
        f"limit {FEW + 1}) as few",
        tuple(parts.where.parameters),
    )
    return (
        parts if count > FEW else terms.narrowed(parts, f"select job.id from treadle.job_history as job where {which}")
    )


def is_small() -> Talk[bool]:
    """Whether the table of live jobs may be read as a whole."""
    ((small,),) = yield f"select pg_relation_size('treadle.job') < {SMALL_FOR_SCANS}", ()
    return bool(small)


def begin(time: Time) -> Talk[tuple[float, bool]]:
    """The time, and whether the table of live jobs is small."""
    ((now, small),) = yield (
        f"select date_part('epoch', {sql.NOW}), pg_relation_size('treadle.job') < {SMALL_FOR_SCANS}",
        (time[0],),
    )
    return round(time[0], 6) if time[0] is not None else float(now), bool(small)


class Walk:
    """From the newest row to the oldest, both tables side by side, a stretch of ids at a time."""

    def __init__(self, parts: Terms, below: str, longest: float = LONGEST) -> None:
        self._parts = parts
        self._ids = None if parts.ids is None else rows.ids_of(parts.ids)
        self.below = below
        self._size = min(STRETCH, FIRST_STRETCH)
        self._until = clock.monotonic() + longest
        self.looked_at = 0
        self.over = False
        self.cut_short = False

    def stretch(self, wanted: int) -> Talk[list[Row]]:
        """The matching rows of the next stretch; no more than are wanted, unless Python has to look at them too."""
        by_python = bool(self._parts.rest.terms)
        is_late = clock.monotonic() > self._until and self.looked_at >= A_FEW
        if is_late or (by_python and self.looked_at >= MOST_LOOKED_AT):
            self.over = self.cut_short = True
            return []
        floor, count, last = _OLDEST, 0, True
        if self._ids is None and not self._parts.narrowed:
            # Where the stretch ends in both tables together: above it, nothing of either is left out.
            ((edge, count),) = yield _EDGE, (self.below, self._size)
            last = count < self._size
            floor = floor if last else edge
        found = yield from self._rows(floor, None if by_python else wanted)
        if not by_python and len(found) >= wanted:
            self.below = str(found[-1][-1])
        else:
            self.looked_at += count
            self.below = floor
            self.over = last
            self._size = min(STRETCH, self._size * 4)
        return [tuple(row)[:-1] for row in found]

    def _rows(self, floor: str, limit: int | None) -> Talk[list[Row]]:
        parts = self._parts
        where = Where([*parts.where.parts], [*parts.where.parameters])
        where.parts.append(f"job.id < {where.add(self.below)}::uuid and job.id >= {where.add(floor)}::uuid")
        if self._ids is not None:
            where.parts.append(f"job.id = any ({where.add(self._ids)}::uuid[])")
        condition = " and ".join(where.parts)
        some = "" if limit is None else f"limit {limit}"
        pieces = [
            f"(select {columns}, job.id as place from {table} as job where {which(condition)} "
            f"order by job.id desc {some})"
            for columns, table, which, states in (
                (_JOB, "treadle.job", terms.live, LIVE),
                (_HISTORY, "treadle.job_history", terms.ended, terms.ENDED),
            )
            if parts.states & states
        ]
        if not pieces:
            return []
        statement = f"select * from ({' union all '.join(pieces)}) as found order by place desc {some}"
        found: list[Row] = yield statement, tuple(where.parameters)
        return found


def matching(found: Iterable[Row], rest: Filter, now: float) -> list[tuple[Row, Job]]:
    jobs = [(row, rows.job_of(row)) for row in found]
    if not rest.terms:
        return jobs
    from ...core.view import row_of  # for whoever reads

    return [(row, job) for row, job in jobs if filters.matches(rest, row_of(job, stuck=False), now)]


def _soonest(query: Query, parts: Terms, now: float) -> Talk[Page]:
    """By run_at: each lane of the live jobs has that order, and the lanes are merged."""
    where = Where([*parts.where.parts], [*parts.where.parameters])
    at, _, seq = (query.cursor or "-inf/0").partition("/")
    if parts.states <= {"scheduled"} and float(at) < now:
        at, seq = str(now), "-1"  # what is due comes before it in this order, and may be much
    after = f"(to_timestamp({where.add(float(at))}::float8), {where.add(int(seq))}::bigint)"
    condition = " and ".join(where.parts)
    limit = MOST_LOOKED_AT if parts.rest.terms else query.limit + 1
    pieces: list[str] = []
    if parts.states & LIVE:
        pieces.append(
            f"(select {_JOB}, date_part('epoch', job.run_at) as at from treadle.lane as lane "
            "cross join lateral (select job.* from treadle.job as job "
            "where job.queue = lane.queue and job.priority = lane.priority "
            f"and (job.run_at, job.seq) > {after} and {terms.live(condition)} order by job.run_at, job.seq "
            f"limit {limit}) as job order by job.run_at, job.seq limit {limit})"
        )
    if parts.states & terms.ENDED:
        pieces.append(
            f"(select {_HISTORY}, date_part('epoch', job.run_at) as at "
            f"from (select * from treadle.job_history order by id desc limit {MOST_LOOKED_AT}) as job "
            f"where (job.run_at, job.seq) > {after} and {terms.ended(condition)} "
            f"order by job.run_at, job.seq limit {limit})"
        )
    if not pieces:
        return Page(jobs=[])
    both = " union all ".join(pieces)
    found = yield f"select * from ({both}) as found order by at, seq limit {limit}", tuple(where.parameters)
    page = matching([tuple(row)[:-1] for row in found], parts.rest, now)[: query.limit + 1]
    shown = page[: query.limit]
    more = len(page) > query.limit
    return Page(
        jobs=[job for _, job in shown],
        next=f"{shown[-1][0][RUN_AT]!r}/{shown[-1][0][0]}" if more else None,
        newest_only=MOST_LOOKED_AT if parts.rest.terms and len(found) >= limit else None,
    )
