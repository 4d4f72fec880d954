"""Retention: the history is walked from its oldest end, a stretch at a time, and what its queue lets go is deleted.

There is no index by queue: every finish would pay for it. So jobs that are kept longer than others are passed over, and
a mark says how far the walk has come; whoever prunes goes on from there, and begins anew at the end. What may go is
read first and deleted by its ids, passing over rows that somebody has locked: nothing here waits, and a claim never
touches this table.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from typing import Final

from ...core import retention
from ...core.job import State
from ...ports import Pruned
from . import history, rows, sql
from .cluster import Time
from .find import the_time
from .talk import BEGIN, COMMIT, Talk

# Marks count in whole microseconds: a float would be off by one now and then, and could stand still.
_INSTANT: Final = "to_timestamp(0) + {} * interval '1 microsecond'"
_AFTER: Final = _INSTANT.format("$1::bigint")
_OLD: Final = f"""
select
    h.id::text, h.queue, h.state, (extract(epoch from h.finished_at) * 1000000)::bigint,
    h.unique_key is not null and exists (
        select from treadle.held as held
        where held.key = h.unique_key and held.id = h.id and held.until > to_timestamp($3::float8)
    )
from (
    select id, queue, state, finished_at, unique_key
    from treadle.job_history
    where finished_at >= {_AFTER} and (finished_at, id) > ({_AFTER}, $2::uuid)
        and finished_at <= to_timestamp($4::float8) and {{which}}
    order by finished_at, id
    limit $5::int
) as h
order by h.finished_at, h.id
"""
_ANY_OLD: Final = _OLD.replace("{which}", "$6::text = 'succeeded'")
_RARE_OLD: Final = _OLD.replace("{which}", "state <> 'succeeded' and state = $6::text")
_REMOVE: Final = f"""
delete from treadle.job_history
where id = any (array(
    select id from treadle.job_history
    where id = any ($1::uuid[]) and finished_at <= {_INSTANT.format("$2::bigint")}
    for update skip locked
))
returning id::text
"""
# In the order of the index, and no further than the limit: a plan that sorts reads all that is old for every chunk. And
# what the power loss brings back is removed by the next pass: nobody waits for the disk.
PLANNING: Final = (
    "select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), "
    "set_config('enable_sort', 'off', true), set_config('synchronous_commit', 'off', true)",
    (),
)
_START: Final = (-50_000_000_000_000_000, "00000000-0000-0000-0000-000000000000")


def prune(state: State, queue: str | None, mark: str | None, limit: int, time: Time) -> Talk[Pruned]:
    now = yield from the_time(time)
    found = yield f"select {sql.QUEUE} from treadle.queue", ()
    rules = retention.rules(map(rows.queue_of, found), state, now, queue)
    latest = rules.latest()
    if latest is None:
        return Pruned(0)
    after = _START
    if mark is not None:
        at, _, id = mark.partition("/")
        after = (int(at), id)
    yield BEGIN
    yield PLANNING
    statement = _ANY_OLD if state is State.SUCCEEDED else _RARE_OLD
    old = yield statement, (*after, now, latest, limit, state.value)
    ids = [
        id
        for id, name, ended_as, at, holds in old
        if ended_as == state.value and not holds and rules.lets_go(name, at / 1e6)
    ]
    removed = 0
    if ids:
        removed = yield from _remove(ids, old[-1][3])
    yield COMMIT
    return Pruned(removed, f"{old[-1][3]}/{old[-1][0]}" if len(old) == limit else None)


def _remove(ids: list[str], latest: int) -> Talk[int]:
    """Those that still are what was found: one that lives again, or has ended anew, is not."""
    found = yield _REMOVE, (ids, latest)
    gone = [id for (id,) in found]
    if gone:
        yield "delete from treadle.job_error where job_id = any ($1::uuid[])", (gone,)
        yield from history.forget_events(gone)
    return len(gone)
