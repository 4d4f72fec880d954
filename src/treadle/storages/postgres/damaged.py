"""Damaged rows: jobs whose rows hold what no version of Treadle writes, ended where they would have been claimed.

A claim is one statement for many rows. If one of them cannot be claimed (an attempt that cannot be counted further, a
value that its constraint refuses), the statement fails as a whole; nothing of this costs a claim that goes well. The
caller then looks for the rows at fault, here, ends them as failed, as SQLite's storage does, and claims again. So each
is met once, and is found by everybody under its id, with what is wrong.

A row that can neither be claimed nor ended (somebody's own trigger or constraint refuses it) holds up its own queue
only: the others are then claimed from one by one.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from ...core import lifecycle
from ...core.job import CLAIMABLE, Change, ErrorEntry, State
from . import bounds, sql
from .apply import apply_apart
from .cluster import Time
from .news import News
from .talk import BEGIN, COMMIT, Row, Talk

log = logging.getLogger("treadle.postgres")

MOST: Final = 500
_DUE: Final = f"""
select job.id::text, job.task, job.queue, job.kept, {bounds.what("job")}
from treadle.job as job
where
    job.queue = any ($2::text[]) and job.state = 'ready' and job.run_at <= {sql.NOW}
    and {bounds.is_broken("job")}
order by job.id
limit {MOST}
for update skip locked
"""
_CLAIMED: Final = f"""
select job.id::text, job.task, job.queue, job.kept, {bounds.what("job")}
from treadle.job as job
where job.id = any ($1::uuid[]) and job.state = 'running' and job.token = $2::text
order by job.id
for update skip locked
"""


def end_due(queues: Sequence[str], time: Time, news: News) -> Talk[int]:
    """End the damaged rows that are due in these queues; how many there were."""
    yield BEGIN
    found = yield _DUE, (time[0], list(queues))
    number = yield from _end(found, None, time, news)
    yield COMMIT
    return number


def end_claimed(ids: Sequence[str], token: str, time: Time, news: News) -> Talk[int]:
    """End rows that were claimed by a token before anybody saw that they are damaged."""
    yield BEGIN
    found = yield _CLAIMED, (list(ids), token)
    number = yield from _end(found, token, time, news)
    yield COMMIT
    return number


def _end(found: Sequence[Row], token: str | None, time: Time, news: News) -> Talk[int]:
    number = 0
    for id, task, queue, kept, what in found:
        said = f"its row in the database is damaged: {what or 'it holds values that no version of Treadle writes'}"
        change = Change(
            id=id,
            why="failed",
            expect=CLAIMABLE if token is None else frozenset({State.RUNNING}),
            token=token,
            to=State.FAILED,
            error=ErrorEntry(attempt=0, kind="undecodable", message=said),
        )
        yield "savepoint treadle_change", ()
        applied = yield from apply_apart(lifecycle.take_over(change, kept), time, news)
        yield "release savepoint treadle_change", ()
        if applied is not None and applied.accepted:
            number += 1
            log.error("job %s (queue %s, task %s) is ended as failed: %s", id, queue[:128], task[:128], said)
        else:
            refused = None if applied is None else applied.error
            log.error("job %s (queue %s) can neither be claimed nor ended: %s; %s", id, queue[:128], what, refused)
    return number
