"""Failures by cause, which each failed job's row has."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from typing import Final

import msgspec

from ...core.failure import FailureGroup, Failures, parts_of, ranked
from . import terms
from .find import MOST_LOOKED_AT, get
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
_GROUPS: Final = f"""
with grouped as materialized (
    select cause, task, count(*) as number, min(finished_at) as first_at, max(finished_at) as last_at
    from ({_NEWEST}) as newest
    group by cause, task
)
select
    grouped.cause, grouped.task, grouped.number, date_part('epoch', grouped.first_at),
    date_part('epoch', grouped.last_at), last.id
from grouped
left join lateral (
    select job.id::text as id
    from treadle.job_history as job
    where
        job.cause = grouped.cause and job.finished_at = grouped.last_at and job.task = grouped.task
        and job.state = 'failed' and {{by_queue}}
    order by job.id desc
    limit 1
) as last on true
"""
_COUNT: Final = f"select count(*) from ({_NEWEST}) as newest"


def failures(queue: str | None, task: str | None, limit: int, most: int, now: float | None) -> Talk[Failures]:
    """Of each group the sample is looked up by the index of causes: to carry all ids along and to sort them would cost
    more than the rest."""
    given: list[str] = []
    conditions = {"by_queue": "true", "by_task": "true"}
    for name, column, value in (("by_queue", "job.queue", queue), ("by_task", "job.task", task)):
        if value is not None:
            given.append(value)
            conditions[name] = f"{column} = ${len(given) + 1}::text"
    found = yield _GROUPS.format(**conditions), (most, *given)
    known = sum(count for _, _, count, *_ in found)
    capped = False
    if known >= most:
        ((more,),) = yield _COUNT.format(**conditions), (most + 1, *given)
        capped = more > most
    groups = ranked(
        (
            FailureGroup(
                cause=cause,
                task=name,
                type=parts_of(cause, name)[0],
                place=parts_of(cause, name)[1],
                count=count,
                first_at=first,
                last_at=last,
                sample=sample,
                message="",
            )
            for cause, name, count, first, last, sample in found
            if cause is not None
        ),
        limit,
    )
    jobs = yield from get([group.sample for group in groups], now)
    said = {job.id: job.error.message for job in jobs if job.error is not None}
    told = tuple(msgspec.structs.replace(group, message=said.get(group.sample, "")) for group in groups)
    return Failures(groups=told, looked_at=known, capped=capped)
