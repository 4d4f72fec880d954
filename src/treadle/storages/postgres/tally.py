"""Queues with their counts.

While the table of live jobs is small it is read as a whole. Of a large one each lane is counted by its index, which
cannot tell the running and the waiting from the ready: those are few, and are taken off.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import time as clock
from typing import Any, Final, TypeAlias

from ...core.filter import STATES
from ...core.queue import Queue, QueueStats
from ..depths import Depths
from . import rows, sql
from .find import MOST_LOOKED_AT, is_small
from .talk import Talk

Lane: TypeAlias = tuple[str, int]
_LIVE_COUNTS: Final = f"""
select
    job.queue,
    case when job.state = 'ready' and job.run_at > {sql.NOW} then 'scheduled' else job.state end as seen,
    count(*),
    date_part('epoch', {sql.NOW}) - date_part('epoch', min(job.run_at))
from treadle.job as job
group by 1, 2
"""
_ENDED_COUNTS: Final = f"""
select queue, state, count(*)
from (select queue, state from treadle.job_history order by finished_at desc limit {MOST_LOOKED_AT}) as job
group by 1, 2
"""


_HEADS: Final = f"""
select lane.queue, lane.priority, date_part('epoch', {sql.NOW}) - date_part('epoch', head.run_at)
from treadle.lane as lane
left join lateral (
    select job.run_at
    from treadle.job as job
    where job.queue = lane.queue and job.priority = lane.priority and job.state = 'ready'
    order by job.run_at, job.seq
    limit 1
) as head on true
"""
_LANES: Final = f"""
select lane.queue, lane.priority, found.due, found.later
from unnest($2::text[], $3::int2[]) as lane (queue, priority)
cross join lateral (
    select
        count(*) filter (where job.run_at <= {sql.NOW}) as due,
        count(*) filter (where job.run_at > {sql.NOW}) as later
    from treadle.job as job
    where job.queue = lane.queue and job.priority = lane.priority
) as found
"""
_UNDER_WAY: Final = """
select job.queue, job.state, count(*)
from treadle.job as job
where
    job.state <> 'ready'
    and job.id in (
        select job_id from treadle.run
        union all
        select job_id::uuid from treadle.answer where waits
    )
group by 1, 2
"""


def queues(now: float | None, depths: Depths[Lane]) -> Talk[list[QueueStats]]:
    found = yield f"select {sql.QUEUE} from treadle.queue order by name", ()
    counts: dict[str, dict[str, int]] = {}
    oldest: dict[str, float] = {}
    if (yield from is_small()):
        live = yield _LIVE_COUNTS, (now,)
        for name, state, number, age in live:
            counts.setdefault(name, {})[state] = number
            if state == "ready":
                oldest[name] = max(0.0, age)
    else:
        oldest = yield from _by_lane(counts, now, depths)
    for name, state, number in (yield _ENDED_COUNTS, ()):
        counts.setdefault(name, {})[state] = min(number, 10_000)
    return [_stats(queue, counts.get(queue.name, {}), oldest) for queue in map(rows.queue_of, found)]


def _by_lane(counts: dict[str, dict[str, int]], now: float | None, depths: Depths[Lane]) -> Talk[dict[str, float]]:
    """The counts of live jobs, put in their places; how long the oldest ready job of each queue has waited."""
    heads = yield _HEADS, (now,)
    asked_at = clock.monotonic()
    unknown, known = depths.split([(queue, priority) for queue, priority, _ in heads], asked_at)
    names, priorities = [lane[0] for lane in unknown], [lane[1] for lane in unknown]
    for queue, priority, due, later in (yield _LANES, (now, names, priorities)):
        depths.keep((queue, priority), due, later, asked_at)
        known[queue, priority] = (due, later)
    for (queue, _), (due, later) in known.items():
        own = counts.setdefault(queue, {})
        own["ready"] = own.get("ready", 0) + due
        own["scheduled"] = own.get("scheduled", 0) + later
    for queue, state, number in (yield _UNDER_WAY, ()):
        own = counts.setdefault(queue, {})
        own[state] = number
        own["ready"] = max(0, own.get("ready", 0) - number)
    oldest: dict[str, float] = {}
    for queue, _, age in heads:
        if age is not None and age >= 0:
            oldest[queue] = max(oldest.get(queue, 0.0), age)
    return oldest


def _stats(queue: Queue, counts: dict[str, int], oldest: dict[str, float]) -> QueueStats:
    found: dict[str, Any] = {state: number for state, number in counts.items() if state in STATES}
    return QueueStats(queue=queue, oldest_ready_seconds=oldest.get(queue.name), **found)
