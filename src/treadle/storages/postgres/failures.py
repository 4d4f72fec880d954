"""Failures by cause, which each failed job's row has. Of a job that waits for its retry the cause stands in its last
error; what was read of one is remembered for as long as it is among those that are looked at."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from ...core.failure import Failures, Sighting, group
from ...core.job import ERRORS_KEPT, ErrorEntry, cause_of
from . import find, rows, terms
from .find import MOST_LOOKED_AT, get, is_small
from .talk import Talk

# The limits are hidden from the planner, which would rather sort than follow the index if it knew of so many.
_NEWEST: Final = f"""
    select job.*
    from (
        select job.*
        from treadle.job_history as job
        where {terms.RARE.format(state="failed")} and {{by_queue}}
        order by {terms.RARE_NEWEST}
        limit (select {MOST_LOOKED_AT})
    ) as job
    where {{by_task}}
    limit (select $1::int)
"""
# By the hour: how long a cause was silent can be told from that, too.
_GROUPS: Final = f"""
select
    cause, task, count(*), date_part('epoch', min(finished_at)) as first_at, date_part('epoch', max(finished_at))
from ({_NEWEST}) as newest
where cause is not null
group by cause, task, floor(date_part('epoch', finished_at) / 3600)
"""
_COUNT: Final = f"select count(*) from ({_NEWEST}) as newest"
_LAST: Final = """
select asked.place, last.id
from unnest($1::text[], $2::text[], $3::float8[]) with ordinality as asked (cause, task, at, place)
cross join lateral (
    select job.id::text as id
    from treadle.job_history as job
    where
        job.cause = asked.cause and job.task = asked.task and job.state = 'failed'
        and job.finished_at <= to_timestamp(asked.at + 0.001) and {by_queue}
    order by job.finished_at desc, job.id desc
    limit 1
) as last
"""
# Of each queue and task the next ones in turn: no task takes the room of all others.
_RETRIES: Final = """
select id::text, error_count, task
from (
    select
        job.id, job.error_count, job.task,
        row_number() over (partition by job.queue, job.task order by job.run_at) as turn
    from ({retries}) as job
    where {by_queue} and {by_task}
) as job
order by turn
limit (select $2::int)
"""
# One by one, by the index: a join would rather read the whole table of errors.
_ERRORS: Final = """
select asked.id::text, asked.n, date_part('epoch', error.ended_at), error.entry
from unnest($1::text[]::uuid[], $2::int[]) as asked (id, n)
cross join lateral (
    select error.ended_at, error.entry
    from treadle.job_error as error
    where error.job_id = asked.id and error.n = asked.n
    limit 1
) as error
"""
AT_ONCE: Final = 1_000
MOST_KNOWN: Final = 40_000
NEAREST: Final = 10_000  # of a large table: so many of what is next, over all lanes, are looked through for retries

Retry: TypeAlias = tuple[str, int]
"""A job that waits for its retry, and how many errors it has had."""


class Causes:
    """The causes of retries that were looked up. Safe for several threads: whoever comes second writes the same."""

    def __init__(self) -> None:
        self._known: dict[Retry, Sighting | None] = {}

    def of(self, retries: Sequence[tuple[str, int, str]]) -> Talk[list[Sighting]]:
        if len(self._known) > MOST_KNOWN:
            self._known = {(id, n): self._known[id, n] for id, n, _ in retries if (id, n) in self._known}
        known = self._known
        missing = [each for each in retries if each[:2] not in known]
        for start in range(0, len(missing), AT_ONCE):
            some = missing[start : start + AT_ONCE]
            wanted = {(id, number) for id, n, _ in some for number in (n, _first(n))}
            found = yield _ERRORS, ([id for id, _ in wanted], [n for _, n in wanted])
            errors = {(id, n): rows.entry_of(ended_at, entry) for id, n, ended_at, entry in found}
            known |= {
                (id, n): _seen(id, task, errors.get((id, n)), errors.get((id, _first(n)))) for id, n, task in some
            }
        return [each for id, n, _ in retries if (each := known.get((id, n))) is not None]


def _first(n: int) -> int:
    """The first error that is kept of a job with so many."""
    return max(1, n - ERRORS_KEPT + 1)


def _seen(id: str, task: str, last: ErrorEntry | None, first: ErrorEntry | None) -> Sighting | None:
    if last is None:
        return None
    at, cause = last.ended_at or 0.0, cause_of(task, last)
    began = at
    if first is not None and first.ended_at is not None and cause_of(task, first) == cause:
        began = min(at, first.ended_at)
    return Sighting(cause, task, began, at, retrying=True, sample=id)


def failures(
    causes: Causes, queue: str | None, task: str | None, limit: int, most: int, now: float | None
) -> Talk[Failures]:
    """Of each group the sample is looked up by the index of causes: to carry all ids along and to sort them would cost
    more than the rest."""
    conditions, given = _conditions(queue, task, 2)
    found = yield _GROUPS.format(**conditions), (most, *given)
    failed = [Sighting(cause, name, first, last, count=count) for cause, name, count, first, last in found]
    known = sum(each.count for each in failed)
    capped = False
    if known >= most:
        ((more,),) = yield _COUNT.format(**conditions), (most + 1, *given)
        capped = more > most
    small = yield from is_small()
    retries = yield from _retries(queue, task, most + 1, now, small)
    all_retries = small and len(retries) <= most  # a large table may hold more of them
    retrying = yield from causes.of(retries[:most])
    groups = group([*failed, *retrying], limit)
    last = yield from _last([(each.cause, each.task, each.last_at) for each, sample in groups if not sample], queue)
    told = [msgspec.structs.replace(each, sample=str(sample) or next(last)) for each, sample in groups]
    jobs = yield from get([each.sample for each in told if each.sample], now)
    said = {job.id: job.error.message for job in jobs if job.error is not None}
    return Failures(
        groups=tuple(msgspec.structs.replace(each, message=said.get(each.sample, "")) for each in told),
        looked_at=known + min(most, len(retries)),
        capped=capped or not all_retries,
        known_since=min(each.first_at for each in failed) if capped else None,
        all_retries=all_retries,
    )


def _conditions(queue: str | None, task: str | None, place: int) -> tuple[dict[str, str], list[str]]:
    given: list[str] = []
    conditions = {"by_queue": "true", "by_task": "true"}
    for name, column, value in (("by_queue", "job.queue", queue), ("by_task", "job.task", task)):
        if value is not None:
            conditions[name] = f"{column} = ${len(given) + place}::text"
            given.append(value)
    return conditions, given


def _retries(
    queue: str | None, task: str | None, most: int, now: float | None, small: bool
) -> Talk[list[tuple[str, int, str]]]:
    conditions, given = _conditions(queue, task, 3)
    statement = _RETRIES.format(retries=find.retries(small, NEAREST), **conditions)
    found: list[tuple[str, int, str]] = yield statement, (now, most, *given)
    return [(id, n, name) for id, n, name in found]


def _last(groups: Sequence[tuple[str, str, float]], queue: str | None) -> Talk[Iterator[str]]:
    """The ids of the jobs that failed last with these causes."""
    if not groups:
        return iter(())
    by_queue, given = ("true", []) if queue is None else ("job.queue = $4::text", [queue])
    columns = ([each[n] for each in groups] for n in range(3))
    found = dict((yield _LAST.format(by_queue=by_queue), (*columns, *given)))
    return iter([found.get(place, "") for place in range(1, len(groups) + 1)])
