"""Bulk: many new jobs without unique keys, by COPY.

Arrays cost asyncpg a look at every element of every column, and the server an unnest; COPY costs neither (`binary`),
and the server works while the rest is still being encoded. What COPY cannot do is settle a conflict. Without keys there
is one kind only, an id that is there already (a repeat after a lost answer): then all of it is undone, and the ordinary
insert does it. A repeat whose job has ended meanwhile meets no conflict. So, as in insert_1, under a new snapshot: what
is in the history goes again. The ids of one bulk are close together, because clients make them so that they grow with
time, and nearly always the look finds nothing between the smallest and the greatest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...core.job import NewJob
from ...ports import Inserted
from . import binary, insert
from .talk import BEGIN, COMMIT, COPY, BadValue, Talk

LEAST: Final = 500
"""From so many jobs on COPY is faster than arrays."""

CHUNK: Final = 5_000
_START: Final = (
    "select coalesce(to_timestamp($1::float8), clock_timestamp()), has_table_privilege('treadle.job', 'insert')"
)
_ENDED: Final = "select from treadle.job_history where id between $1::uuid and $2::uuid limit 1"
_FORGET: Final = (
    "delete from treadle.job "
    "where id = any (array(select h.id from treadle.job_history as h where h.id = any ($1::uuid[])))"
)


def insert_many(jobs: Sequence[NewJob], now: float | None) -> Talk[list[Inserted]]:
    """Write the jobs in their order, in one transaction, and answer for each."""
    if len(jobs) < LEAST:
        return (yield from insert.insert(jobs, now))
    yield BEGIN
    ((clock, may_copy),) = yield _START, (now,)
    if may_copy:
        try:
            yield COPY, ("job", binary.COLUMNS, binary.stream(jobs, clock))
            ids = [new.id for new in jobs]
            ended = yield _ENDED, (min(ids), max(ids))
            if ended:
                yield _FORGET, (ids,)
            yield COMMIT
            return [Inserted(id, "inserted") for id in ids]
        except BadValue:
            yield "rollback", ()
            yield BEGIN
    answers: list[Inserted] = []
    for start in range(0, len(jobs), CHUNK):
        answers += yield from insert.insert(jobs[start : start + CHUNK], now)
    yield COMMIT
    return answers
