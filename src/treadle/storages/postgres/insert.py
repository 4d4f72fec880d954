"""Insert: new jobs, and what a unique key makes of them. The reasoning is in 0002_verbs.sql."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...core.job import NewJob
from ...ports import Inserted
from . import rows
from .sql import call
from .talk import Talk

_COLUMNS: Final = (
    "float8, text[], text[], text[], text[], int2[], float8[], float8[], int4[], float8[], boolean[], int2[], "
    "text[], text[], text[]"
)
INSERT: Final = call("insert_1", _COLUMNS)
INSERT_ONE: Final = call("insert_one_1", _COLUMNS.replace("[]", ""))
INSERT_TOLD: Final = call("insert_told_1", _COLUMNS.replace("[]", "")).replace("select * from", "call", 1)
INSERT_KEYED: Final = call("insert_keyed_2", f"{_COLUMNS}, text[], float8[], boolean[], text[], float8[], float8[]")
ENSURE: Final = call("ensure_1", "text[], int2[]")


def is_keyed(jobs: Iterable[NewJob]) -> bool:
    return any(new.unique is not None for new in jobs)


def insert(jobs: Sequence[NewJob], now: float | None) -> Talk[list[Inserted]]:
    """Write the jobs in their order, in one statement, and answer for each."""
    if not jobs:
        return []
    if is_keyed(jobs):
        return (yield from _insert_keyed(jobs, now))
    if len(jobs) == 1:
        yield INSERT_ONE, (now, *rows.values_of(jobs[0]))
        return [Inserted(jobs[0].id, "inserted")]
    yield INSERT, (now, *rows.columns_of(jobs))
    # Without a key only the id can be taken, and then the answer is that of the first time.
    return [Inserted(new.id, "inserted") for new in jobs]


def insert_told(new: NewJob, now: float | None) -> Talk[list[Inserted]]:
    """Write a job without a key, and tell other processes right after the commit."""
    yield INSERT_TOLD, (now, *rows.values_of(new))
    return [Inserted(new.id, "inserted")]


def _insert_keyed(jobs: Sequence[NewJob], now: float | None) -> Talk[list[Inserted]]:
    rules = [new.unique for new in jobs]
    answers = yield (
        INSERT_KEYED,
        (
            now,
            *rows.columns_of(jobs),
            [None if rule is None else rule.key for rule in rules],
            [None if rule is None else rule.period for rule in rules],
            [rule is not None and rule.include_succeeded for rule in rules],
            [None if rule is None else rule.on_conflict for rule in rules],
            [None if rule is None else rule.cap for rule in rules],
            [new.asked_at for new in jobs],
        ),
    )
    by_number = {n: Inserted(id, outcome) for n, id, outcome in answers}
    return [by_number[n] for n in range(1, len(jobs) + 1)]


def ensure(lanes: Iterable[tuple[str, int]]) -> Talk[bool]:
    """A queue exists as soon as somebody enqueues to it or serves it, and a claim must know its priorities."""
    known = sorted(lanes)
    answer = yield ENSURE, ([queue for queue, _ in known], [priority for _, priority in known])
    return bool(answer[0][0])
