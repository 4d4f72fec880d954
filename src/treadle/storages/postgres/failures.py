"""Failures by cause, which each failed job's row has."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from typing import Final

import msgspec

from ...core.failure import FailureGroup, Failures, parts_of, ranked
from .find import get
from .talk import Talk

_NEWEST: Final = """
    select id, task, cause, finished_at
    from treadle.job_history
    where
        state <> 'succeeded' and state = 'failed'
        and ($1::text is null or queue = $1::text) and ($2::text is null or task = $2::text)
    order by finished_at desc
    limit $3::int
"""
_GROUPS: Final = f"""
select
    cause, task, count(*), date_part('epoch', min(finished_at)), date_part('epoch', max(finished_at)),
    (array_agg(id::text order by finished_at desc, id desc))[1]
from ({_NEWEST}) as newest
where cause is not null
group by cause, task
"""
_COUNT: Final = f"select count(*) from ({_NEWEST}) as newest"


def failures(queue: str | None, task: str | None, limit: int, most: int, now: float | None) -> Talk[Failures]:
    ((known,),) = yield _COUNT, (queue, task, most + 1)
    found = yield _GROUPS, (queue, task, most)
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
        ),
        limit,
    )
    jobs = yield from get([group.sample for group in groups], now)
    said = {job.id: job.error.message for job in jobs if job.error is not None}
    told = tuple(msgspec.structs.replace(group, message=said.get(group.sample, "")) for group in groups)
    return Failures(groups=told, looked_at=min(known, most), capped=known > most)
