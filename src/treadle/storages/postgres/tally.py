"""Queues with their counts.

While the table of live jobs is small it is read as a whole. Of a large one each lane is counted by its index, which
cannot tell the running and the waiting from the ready: those are few, and are taken off. Of those that have succeeded
the newest are looked at. Where there are many, the numbers are remembered for a while (see `Depths`): whoever asks
again counts some of them anew, and not all at once.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from ...core.filter import STATES
from ...core.job import State
from ...core.queue import Queue, QueueStats
from ..shared.depths import Depths
from . import rows, sql
from .find import MOST_LOOKED_AT, is_small
from .talk import Talk
from .terms import ENDED, RARE, RARE_NEWEST

Lane: TypeAlias = tuple[str, int]
ByQueue: TypeAlias = Mapping[str, int]
COUNTED_TO: Final = QueueStats(queue=Queue(name="any")).capped_at
# Fewer are counted whenever somebody asks: that costs nothing.
MANY: Final = 2_000
_NO_LANE: Final = -(1 << 31)  # no priority

_LIVE_COUNTS: Final = f"""
select
    job.queue,
    case when job.state = 'ready' and job.run_at > {sql.NOW} then 'scheduled' else job.state end as seen,
    count(*),
    date_part('epoch', {sql.NOW}) - date_part('epoch', min(job.run_at))
from treadle.job as job
group by 1, 2
"""
# The limit is hidden from the planner, which would rather sort than follow the index if it knew of so many.
_SUCCEEDED: Final = f"""
select queue, count(*) filter (where state = 'succeeded'), count(*)
from (
    select queue, state from treadle.job_history order by finished_at desc limit (select {MOST_LOOKED_AT})
) as job
group by 1
"""
# What has not succeeded has an index by queue.
_RARE: Final = f"""
select queue.name, found.number, found.number
from treadle.queue as queue
cross join lateral (
    select count(*) as number
    from (
        select from treadle.job_history as job
        where job.queue = queue.name and {RARE}
        order by {RARE_NEWEST}
        limit (select {COUNTED_TO})
    ) as job
) as found
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
select job.queue, count(*), count(*)
from treadle.job as job
where job.state = '{state}' and job.id in ({ids})
group by 1
"""
_RUNNING: Final = _UNDER_WAY.format(state="running", ids="select job_id from treadle.run")
_STATES: Final = {
    "waiting": _UNDER_WAY.format(state="waiting", ids=f"select {sql.as_id('job_id')} from treadle.answer where waits"),
    "succeeded": _SUCCEEDED,
    "failed": _RARE.format(state="failed"),
    "cancelled": _RARE.format(state="cancelled"),
}


class Tally:
    """What is remembered of large numbers."""

    def __init__(self) -> None:
        self._depths: Depths[Lane] = Depths()
        self._by_queue: dict[str, ByQueue] = {}
        self._others: dict[str, dict[State, int]] = {}

    def by_queue(self, states: Iterable[str]) -> Talk[dict[str, ByQueue]]:
        """How many are in these states, by queue; of those that have succeeded, how many of the newest."""
        found, _ = yield from self.count([], [*states], None)
        return found

    def remembered(self, name: str, ask: Talk[dict[State, int]]) -> Talk[dict[State, int]]:
        """Any other count that is dear, if it has found many."""
        asked_at = clock.monotonic()
        unknown, _ = self._depths.split([(name, _NO_LANE)], asked_at)
        if not unknown:
            ask.close()
            return dict(self._others[name])
        found = yield from ask
        number = sum(found.values())
        if number >= MANY:
            self._others[name] = found
        self._depths.keep((name, _NO_LANE), number if number >= MANY else 0, 0, asked_at)
        return found

    def count(
        self, lanes: list[Lane], states: list[str], now: float | None
    ) -> Talk[tuple[dict[str, ByQueue], dict[Lane, tuple[int, int]]]]:
        """How many there are of these states, by queue; and how many are due and later in these lanes."""
        asked_at = clock.monotonic()
        unknown, known = self._depths.split([*lanes, *((state, _NO_LANE) for state in states)], asked_at)
        anew = [lane for lane in unknown if lane[1] != _NO_LANE]
        if anew:
            given = (now, [queue for queue, _ in anew], [priority for _, priority in anew])
            for queue, priority, due, later in (yield _LANES, given):
                self._depths.keep((queue, priority), due, later, asked_at)
                known[queue, priority] = (due, later)
        by_state: dict[str, ByQueue] = {}
        for state in states:
            if (state, _NO_LANE) in unknown:
                yield from self._look(state, asked_at)
            by_state[state] = self._by_queue[state]
        return by_state, {lane: known[lane] for lane in lanes}

    def _look(self, state: str, asked_at: float) -> Talk[None]:
        found = yield _STATES[state], ()
        by_queue = {queue: number for queue, number, _ in found if number}
        looked_at = sum(looked for *_, looked in found)
        self._by_queue[state] = by_queue
        self._depths.keep((state, _NO_LANE), looked_at if looked_at >= MANY else 0, 0, asked_at)


def queues(now: float | None, tally: Tally) -> Talk[list[QueueStats]]:
    found = yield f"select {sql.QUEUE} from treadle.queue order by name", ()
    counts: dict[str, dict[str, int]] = {}
    oldest: dict[str, float] = {}
    if (yield from is_small()):
        live = yield _LIVE_COUNTS, (now,)
        for name, state, number, age in live:
            counts.setdefault(name, {})[state] = number
            if state == "ready":
                oldest[name] = max(0.0, age)
        ended = yield from tally.by_queue(ENDED)
    else:
        ended, oldest = yield from _by_lane(counts, now, tally)
    for state, by_queue in ended.items():
        for name, number in by_queue.items():
            counts.setdefault(name, {})[state] = min(number, COUNTED_TO)
    return [_stats(queue, counts.get(queue.name, {}), oldest) for queue in map(rows.queue_of, found)]


def _by_lane(
    counts: dict[str, dict[str, int]], now: float | None, tally: Tally
) -> Talk[tuple[dict[str, ByQueue], dict[str, float]]]:
    """The counts of live jobs, put in their places; those of the ended; how long the oldest ready job of each queue has
    waited."""
    heads = yield _HEADS, (now,)
    states, lanes = yield from tally.count(
        [(queue, priority) for queue, priority, _ in heads], ["waiting", *ENDED], now
    )
    for (queue, _), (due, later) in lanes.items():
        own = counts.setdefault(queue, {})
        own["ready"] = own.get("ready", 0) + due
        own["scheduled"] = own.get("scheduled", 0) + later
    running = yield _RUNNING, ()
    for state, by_queue in (
        ("running", {queue: number for queue, number, _ in running}),
        ("waiting", states.pop("waiting")),
    ):
        for queue, number in by_queue.items():
            own = counts.setdefault(queue, {})
            own[state] = number
            own["ready"] = max(0, own.get("ready", 0) - number)
    oldest: dict[str, float] = {}
    for queue, _, age in heads:
        if age is not None and age >= 0:
            oldest[queue] = max(oldest.get(queue, 0.0), age)
    return states, oldest


def _stats(queue: Queue, counts: dict[str, int], oldest: dict[str, float]) -> QueueStats:
    found: dict[str, Any] = {state: number for state, number in counts.items() if state in STATES}
    return QueueStats(queue=queue, oldest_ready_seconds=oldest.get(queue.name), **found)
