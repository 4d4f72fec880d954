"""Counts: how many jobs match, by state. One statement, and no more rows than the cap needs.

Claimable jobs are counted lane by lane in the order of their index, and where nothing is asked but what this index
tells, it says by itself that there are more than the cap. Ended ones are looked at from the newest, by the index of
their end. Rows that are looked at in vain are at most 100,000 in each state: a term that no index serves has a second.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts; what operators wrote goes into parameters

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ...core.counted import Counted
from ...core.filter import STATES, Filter
from ...core.job import State
from . import find, rows, sql, terms
from .cluster import Time
from .find import MOST_LOOKED_AT, STRETCH
from .talk import Talk
from .tally import COUNTED_TO, Tally
from .terms import Terms, Where

# A page asks for several counts beside its list, which has a second.
LONGEST: Final = 0.3
_LEAST_ROW: Final = 150  # bytes
# No index tells who waits, or by queue who has succeeded.
_REMEMBERED: Final = frozenset({"waiting", "succeeded"})
_SMALL: Final = """
select
    case when job.state = 'ready' and job.run_at > {now} then 'scheduled' else job.state end as seen,
    count(*)
from treadle.job as job
where {where}
group by 1
"""
_IN_LANES: Final = """
select
from treadle.lane as lane
cross join lateral (
    select job.*
    from treadle.job as job
    where job.queue = lane.queue and job.priority = lane.priority and {time}
    order by job.run_at, job.seq
    limit ({most})
) as job
where {lanes} and {where}
limit {limit}
"""
_NEWEST: Final = """
select
from (select job.* from treadle.job as job order by job.id desc limit (select {most})) as job
where {where}
limit {limit}
"""
_ENDED: Final = """
select
from (
    select job.* from treadle.job_history as job where {which} order by {newest} limit (select {most})
) as job
where {where}
limit {limit}
"""
_UNDER_WAY: Final = {
    "running": "job.id in (select job_id from treadle.run)",
    "waiting": f"job.id in (select {sql.as_id('job_id')} from treadle.answer where waits)",
}
# The order of a lane tells neither who runs nor who waits: so many more are looked at, with room for those who have
# begun since the last beat of their pod.
_ENOUGH: Final = """
with enough as materialized (
    select
        {cap}::bigint * 3 / 2 + (select count(*) from treadle.run)
        + (select count(*) from (select from treadle.answer where waits limit {cap}) as waiting) as n
)
"""


def count(filter: Filter, cap: int, time: Time, tally: Tally) -> Talk[Counted[State]]:
    now, small = yield from find.begin(time)
    parts = terms.take_apart(filter, time, now)
    found = yield from _count(filter, parts, cap, now, small, tally)
    if isinstance(found, Counted):
        return found
    doubtful = {state for state in _states(parts) if found.get(State(state), 0) < cap and not _is_sure(state, parts)}
    if doubtful & terms.ENDED and not (yield from _is_long()):
        doubtful -= terms.ENDED
    return Counted(found, [State(state) for state in doubtful - (find.LIVE if small else frozenset())])


def _is_sure(state: str, parts: Terms) -> bool:
    """Whether every row that could match was looked at, however many there are."""
    if parts.ids is not None or parts.tags is not None or parts.causes is not None or state in _UNDER_WAY:
        return True
    if state not in terms.ENDED:
        return parts.in_lanes
    # Of those that have not succeeded there is an index by queue, for one queue.
    by_queue = {"queue"} if state != "succeeded" and parts.queue is not None else set[str]()
    return parts.keys <= {"state", "finished"} | by_queue


def _is_long() -> Talk[bool]:
    """Whether there may be more ended jobs than are looked at."""
    ((rows, size),) = yield (
        "select reltuples, pg_relation_size(oid) from pg_class where oid = 'treadle.job_history'::regclass",
        (),
    )
    return bool(rows > MOST_LOOKED_AT if rows >= 0 else size > MOST_LOOKED_AT * _LEAST_ROW)


def _count(filter: Filter, parts: Terms, cap: int, now: float, small: bool, tally: Tally) -> Talk[dict[State, int]]:
    if parts.rest.terms:
        return (yield from _walked((yield from find.narrowed(parts, small)), cap, now))
    if parts.ids is not None:  # as text, an id has no index
        where = Where([*parts.where.parts], [*parts.where.parameters])
        where.parts.append(f"job.id = any ({where.add(rows.ids_of(parts.ids))}::uuid[])")
        return (yield from _counted({state: _plain(state, where) for state in _states(parts)}, where, cap))
    if parts.tags is not None or parts.causes is not None:
        parts = yield from find.narrowed(parts, small)
        pieces = {state: _plain(state, parts.where) for state in _states(parts)}
        return (yield from _counted(pieces, parts.where, cap))
    counts: dict[State, int] = {}
    known = frozenset[str]()
    if small and parts.states & find.LIVE:
        known |= find.LIVE
        condition = terms.live(" and ".join(parts.where.parts))
        found = yield _SMALL.format(now=terms.NOW, where=condition), tuple(parts.where.parameters)
        counts = {State(state): min(cap, number) for state, number in found if state in parts.states}
    if parts.queues is not None and cap <= COUNTED_TO:
        by_queue = yield from tally.by_queue(state for state in _REMEMBERED if state in parts.states - known)
        for state, numbers in by_queue.items():
            if number := sum(numbers.get(queue, 0) for queue in {*(parts.queues or numbers)}):
                counts[State(state)] = min(cap, number)
        known |= _REMEMBERED
    where = Where([*parts.where.parts], [*parts.where.parameters])
    pieces = {state: _piece(state, parts, where, cap) for state in _states(parts) if state not in known}
    rest = _counted(pieces, where, cap)
    if is_retrying(filter) and not small:
        return (yield from tally.remembered(f"{filter} {cap}", rest))
    return counts | (yield from rest)


def is_retrying(filter: Filter) -> bool:
    """Whether it asks for retries, and for nothing else but their queue: every page does, and no index tells them from
    what is scheduled."""
    terms = {term.key: term.values[0].text for term in filter.terms if not term.negated}
    return terms.get("is") == "retrying" and {*terms} <= {"is", "queue"} and len(terms) == len(filter.terms)


def _walked(parts: Terms, cap: int, now: float) -> Talk[dict[State, int]]:
    """Row by row, because Python must look at each."""
    counts: dict[State, int] = {}
    walk = find.Walk(parts, find.NEWEST, LONGEST)
    while not walk.over:
        found = yield from walk.stretch(STRETCH)
        for _, job in find.matching(found, parts.rest, now):
            counts[job.state] = counts.get(job.state, 0) + 1
    numbers = {state: min(cap, number) for state, number in counts.items()}
    return Counted(numbers, [State(state) for state in _states(parts)] if walk.cut_short else ())


def _states(parts: Terms) -> list[str]:
    return sorted(parts.states & frozenset(STATES))


def _counted(pieces: Mapping[str, str], where: Where, cap: int) -> Talk[dict[State, int]]:
    if not pieces:
        return {}
    numbers = ", ".join(f"({piece.replace('{limit}', str(int(cap)))})" for piece in pieces.values())
    enough = _ENOUGH.format(cap=int(cap)) if "from enough" in numbers else ""
    (found,) = yield f"{enough}select {numbers}", tuple(where.parameters)
    return {State(state): number for state, number in zip(pieces, found, strict=True) if number}


def _number(rows_of: str) -> str:
    return f"select count(*) from ({rows_of}) as found"


def _plain(state: str, where: Where) -> str:
    """Wherever the planner looks for them: the conditions name few."""
    table, which = ("treadle.job_history", terms.ended) if state in terms.ENDED else ("treadle.job", terms.live)
    condition = which(" and ".join(where.parts))
    return _number(f"select from {table} as job where {terms.in_state(state)} and {condition} limit {{limit}}")


def _piece(state: str, parts: Terms, where: Where, cap: int) -> str:
    condition = " and ".join(parts.where.parts)
    if state in terms.ENDED:
        return _ended(state, parts, where, condition, max(cap, MOST_LOOKED_AT))
    if state in _UNDER_WAY:
        what = f"job.state = '{state}' and {_UNDER_WAY[state]} and {terms.live(condition)}"
        return _number(f"select from treadle.job as job where {what} limit {{limit}}")
    return _claimable(state, parts, condition, cap)


def _ended(state: str, parts: Terms, where: Where, condition: str, most: int) -> str:
    which = ["true"]
    if state != "succeeded":
        which = [terms.RARE.format(state=state), *([] if parts.queue is None else [parts.queue[1]])]
    which += [terms.ended(each) for each in parts.ended]
    if math.isfinite(parts.since):
        which.append(f"job.finished_at >= to_timestamp({where.add(parts.since)}::float8)")
    wanted = f"{terms.in_state(state)} and {terms.ended(condition)}"
    newest = "job.finished_at desc" if state == "succeeded" else terms.RARE_NEWEST
    return _number(_ENDED.format(which=" and ".join(which), newest=newest, most=most, where=wanted, limit="{limit}"))


def _claimable(state: str, parts: Terms, condition: str, cap: int) -> str:
    wanted = f"{terms.in_state(state)} and {terms.live(condition)}"
    if parts.by_age:
        return _number(_NEWEST.format(most=max(cap, MOST_LOOKED_AT), where=wanted, limit="{limit}"))
    lanes = " and ".join(["true", *(_of_a_lane(each) for each in parts.lanes)])
    sign = "<=" if state == "ready" else ">"
    time = " and ".join([f"job.run_at {sign} {terms.NOW}", *map(terms.live, parts.due)])
    # Not as a number: a planner that sees many wanted would sort the whole lane.
    share = f"select 1 + {max(cap, MOST_LOOKED_AT)} / greatest(1, count(*)) from treadle.lane as lane where {lanes}"
    enough = "select n from enough"
    exact = _IN_LANES.format(
        time=time,
        most=enough if parts.in_lanes else share,
        lanes=lanes,
        where=wanted,
        limit="{limit}",
    )
    if not parts.in_lanes:
        return _number(exact)
    many = _IN_LANES.format(time=time, most=enough, lanes=lanes, where="true", limit=f"({enough})")
    return f"select case when ({_number(many)}) >= ({enough}) then {{limit}} else ({_number(exact)}) end"


def _of_a_lane(condition: str) -> str:
    return condition.replace("job.queue", "lane.queue").replace("job.priority", "lane.priority")
