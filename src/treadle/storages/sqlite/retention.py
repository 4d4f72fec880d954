"""Retention: queue by queue, each by the index of its ended jobs, so that nothing is looked at but what goes.

What may go is looked for by a reader; the writer only removes it, so that no claim waits for the search. A job that was
revived in between, or has ended anew, is no longer what was found, and stays.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from ...core import retention
from ...core.job import State
from ...ports import Clock
from . import history, insert, rows
from .rows import Database
from .sql import statement

_BATCH: Final = 200
_OLD: Final = """
select seq, id, finished_at, tags, error_count
from treadle_job as job
where queue = ?1 and state = ?2 and finished_at <= ?3
    and not exists (
        select 1 from treadle_held as held
        where held.key = job.unique_key and held.id = job.id and held.until > ?4
    )
order by finished_at, seq
limit ?5
"""


class Old(Struct, frozen=True):
    """A job that may go."""

    seq: int
    id: str
    finished_at: float
    tags: str | None
    errors: int


class Found(Struct, frozen=True):
    old: list[Old]
    mark: str | None


def find(db: Database, state: State, queue: str | None, mark: str | None, limit: int, clock: Clock) -> Found:
    """The oldest that may go, from the queue on that the mark names."""
    now = clock.now()
    rules = retention.rules(map(rows.queue_of, db.execute(statement("queues"))), state, now, queue)
    old: list[Old] = []
    for name, until in sorted(rules.until.items()):
        if until is None or (mark is not None and name < mark):
            continue
        left = limit - len(old)
        found = db.execute(_OLD, (name, state.value, until, now, left)).fetchall()
        old += [Old(*row) for row in found]
        if len(old) == limit:
            return Found(old, name)
    return Found(old, None)


def remove(db: Database, state: State, old: Sequence[Old]) -> int:
    """Those that are still what was found, with all that hangs on them."""
    removed = 0
    for start in range(0, len(old), _BATCH):
        batch = {each.seq: each for each in old[start : start + _BATCH]}
        places = ", ".join("?" * len(batch))
        gone = db.execute(
            f"delete from treadle_job where seq in ({places}) and state = ? and finished_at <= ? returning seq",
            (*batch, state.value, max(each.finished_at for each in batch.values())),
        ).fetchall()
        for (seq,) in gone:
            insert.untag(db, seq, batch[seq].tags)
            if batch[seq].errors:
                db.execute("delete from treadle_job_error where seq = ?", (seq,))
        history.forget_events(db, [batch[seq].id for (seq,) in gone])
        removed += len(gone)
    return removed
