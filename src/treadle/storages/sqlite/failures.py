"""Failures by cause. The newest are found by the index of ended jobs, queue by queue; the cause stands in the job's
last error, so that no finish has to write it a second time."""

from __future__ import annotations

import heapq
from typing import Final

from ...core.failure import FailureGroup, Failures, parts_of, ranked
from . import rows
from .rows import Database

_NEWEST: Final = """
select finished_at, seq
from treadle_job
where queue = ?1 and state = 'failed' and finished_at is not null and (?2 is null or task = ?2)
order by finished_at desc
limit ?3
"""
# Of a group, the columns that are not counted are those of the row with the latest end: SQLite promises that for max().
_GROUPS: Final = """
with failed as (
    select
        job.id, job.task, job.finished_at, coalesce(json_extract(error.entry, '$.message'), '') as message,
        coalesce(nullif(json_extract(error.entry, '$.type'), ''), json_extract(error.entry, '$.kind')) as type,
        coalesce(json_extract(error.entry, '$.place'), '') as place
    from json_each(?1) as chosen
    join treadle_job as job on job.seq = chosen.value
    join treadle_job_error as error on error.seq = job.seq and error.n = job.error_count
    where json_valid(error.entry)
)
select task || ':' || type || ':' || place as cause, task, count(*), min(finished_at), max(finished_at), id, message
from failed
group by 1, 2
"""


def failures(db: Database, queue: str | None, task: str | None, limit: int, most: int) -> Failures:
    queues = [queue] if queue is not None else [name for (name,) in db.execute("select name from treadle_queue")]
    ends = (db.execute(_NEWEST, (name, task, most + 1)).fetchall() for name in queues)
    newest = heapq.nlargest(most + 1, (row for found in ends for row in found if isinstance(row[0], float)))
    chosen = [seq for _, seq in newest[:most]]
    groups = [
        FailureGroup(
            cause=cause,
            task=name,
            type=parts_of(cause, name)[0],
            place=parts_of(cause, name)[1],
            count=count,
            first_at=first,
            last_at=last,
            sample=sample,
            message=str(message),
        )
        for cause, name, count, first, last, sample, message in db.execute(_GROUPS, (rows.json_text(chosen),))
        if isinstance(cause, str) and isinstance(name, str) and isinstance(sample, str)  # else somebody damaged it
    ]
    return Failures(groups=ranked(groups, limit), looked_at=len(chosen), capped=len(newest) > most)
