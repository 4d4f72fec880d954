"""Finishes with follow-ups, many at once.

A finish and its follow-ups are written together or not at all, and a follow-up whose id is taken refuses its finish.
So a batch looks first which ids are taken, ends the runs whose follow-ups are all free, and inserts the follow-ups of
those that it ended, in one transaction: five statements for any number of finishes. Whoever is left out is looked at
one by one, as every finish is that a batch does not accept.

Follow-ups with unique keys are never among them: a key may have to wait for somebody's transaction, and its neighbours
would wait with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from ...core.job import TERMINAL, Change
from . import insert, rows
from .insert import INSERT
from .talk import BadValue, Talk

CHUNK: Final = 5_000
_TAKEN: Final = (
    "select id::text from treadle.job where id = any ($1::uuid[]) "
    "union all select id::text from treadle.job_history where id = any ($1::uuid[])"
)


def may_share(change: Change) -> bool:
    """Whether the follow-ups of a Change may be written in one statement with those of others."""
    if not change.follow_ups:
        return True
    ids = {new.id for new in change.follow_ups}
    return (
        change.to in TERMINAL
        and len(ids) == len(change.follow_ups)
        and not insert.is_keyed(change.follow_ups)
        and all(map(rows.is_id, ids))
    )


def free(changes: Sequence[Change]) -> Talk[list[Change]]:
    """Those whose follow-ups nobody has yet: neither the tables nor a Change before them."""
    wanted = [new.id for change in changes for new in change.follow_ups]
    found = yield _TAKEN, (wanted,)
    taken = {id for (id,) in found}
    left: list[Change] = []
    for change in changes:
        ids = {new.id for new in change.follow_ups}
        if taken.isdisjoint(ids):
            taken |= ids
            left.append(change)
    return left


def write(changes: Sequence[Change], ended: Collection[str], now: float | None) -> Talk[set[str]]:
    """Insert the follow-ups of the runs that were ended; the queues that have something new."""
    jobs = [new for change in changes if change.id in ended for new in change.follow_ups]
    for start in range(0, len(jobs), CHUNK):
        some = jobs[start : start + CHUNK]
        ((written,),) = yield INSERT, (now, *rows.columns_of(some))
        if written < len(some):  # somebody was faster, after we had looked
            raise BadValue("a follow-up's id is taken")
    return {new.queue for new in jobs}
