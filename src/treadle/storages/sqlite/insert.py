"""Insert: new jobs, and what a unique key makes of them.

Rows go in many to a statement, not by `executemany`: each step of a statement gives the interpreter's lock away, and
beside a busy event loop it may take milliseconds to get it back.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts; what operators wrote goes into parameters

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from ...core import keep_last, unique
from ...core.job import NewJob, UniqueClaim
from ...ports import Inserted
from . import progress, rows
from .rows import Database
from .sql import statement

_COLUMNS: Final = (
    "id", "queue", "task", "priority", "run_at", "max_attempts", "timeout", "pinned", "format", "unique_key", "tags",
    "reason", "meta", "args",
)  # fmt: skip
_ROW: Final = f"(?1, 'ready', {', '.join('?' * len(_COLUMNS))})"
# What jobs that are enqueued together mostly have in common: all but the id and the arguments.
_COMMON: Final = slice(1, -1)
_ASKED: Final = "update treadle_job set created_at = ? where seq = ?"
_MOST_ROWS: Final = 256
_HOLDER: Final = "select seq, tags, state, unique_key, kept, created_at from treadle_job where id = ?"


@functools.cache
def _insert_sql(count: int) -> str:
    # No conflict target: the id and the unique key may both be taken, and either way nothing is written.
    return (
        f"insert into treadle_job (created_at, state, {', '.join(_COLUMNS)}) "
        f"values {', '.join([_ROW] * count)} on conflict do nothing"
    )


@functools.cache
def _insert_alike_sql(count: int) -> str:
    """The time, what they have in common, and then the id and the arguments of each."""
    first_own = len(_COLUMNS)
    common = ", ".join(f"?{n}" for n in range(2, first_own))
    each = [f"(?1, 'ready', ?{n}, {common}, ?{n + 1})" for n in range(first_own, first_own + 2 * count, 2)]
    return _insert_sql(1).replace(_ROW, ", ".join(each))


def insert(db: Database, jobs: Sequence[NewJob], now: float) -> list[Inserted]:
    """Write the jobs in their order and answer for each."""
    answers: list[Inserted] = []
    plain: list[tuple[Any, ...]] = []
    queues: set[str] = set()
    for new in jobs:
        if new.unique is None and not new.tags:
            # Without a key only the id can be taken, and then the answer is that of the first time.
            plain.append(_values(new, now, None))
            answers.append(Inserted(new.id, "inserted"))
            queues.add(new.queue)
            continue
        if plain:
            _write(db, plain, now)
            plain = []
        answer = _insert_one(db, new, now)
        answers.append(answer)
        if answer.outcome == "inserted":
            queues.add(new.queue)
    if plain:
        _write(db, plain, now)
    for name in queues:
        ensure_queue(db, name)
    return answers


def ensure_queue(db: Database, name: str) -> None:
    """A queue exists as soon as somebody enqueues to it or serves it."""
    db.execute("insert into treadle_queue (name) values (?) on conflict do nothing", (name,))


def _write(db: Database, values: list[tuple[Any, ...]], now: float) -> None:
    for start in range(0, len(values), _MOST_ROWS):
        batch = values[start : start + _MOST_ROWS]
        # A few sizes of statement serve all numbers of rows: a row that is repeated to fill up is a known id.
        size = min(_MOST_ROWS, 1 << (len(batch) - 1).bit_length())
        batch += batch[-1:] * (size - len(batch))
        common = batch[0][_COMMON]
        if all(row[_COMMON] == common for row in batch):
            # To give SQLite a value costs as much as to store it, and a null, which must first be found to need no
            # adapter, twice that.
            own = chain.from_iterable([(row[0], row[-1]) for row in batch])
            db.execute(_insert_alike_sql(size), (now, *common, *own))
        else:
            db.execute(_insert_sql(size), (now, *chain.from_iterable(batch)))


def _insert_one(db: Database, new: NewJob, now: float) -> Inserted:
    key = None
    if new.unique is not None:
        key = unique.full_key(new.unique.key, new.unique.period, now)
        # A repeat is told before the key is looked at: its own job may hold it, even as a success.
        if db.execute("select 1 from treadle_job where id = ?", (new.id,)).fetchone() is not None:
            return Inserted(new.id, "inserted")
        holder = _holder(db, key, now)
        if holder is not None:
            return _settle(db, holder, new, new.unique, now)
    cursor = db.execute(_insert_sql(1), (now, *_values(new, now, key)))
    if cursor.rowcount == 1:
        if new.tags:
            _tag(db, cursor.lastrowid, new.tags)
        if new.asked_at is not None:
            db.execute(_ASKED, (new.asked_at, cursor.lastrowid))
        if new.unique is not None and new.unique.include_succeeded and new.unique.period is not None:
            until = unique.period_end(new.unique.period, now)
            db.execute("insert or replace into treadle_held (key, id, until) values (?, ?, ?)", (key, new.id, until))
    return Inserted(new.id, "inserted")


def _holder(db: Database, key: str, now: float) -> str | None:
    holder = db.execute(statement("holder"), (key,)).fetchone()
    if holder is None:
        holder = db.execute(statement("holder_succeeded"), (key, now)).fetchone()
    return None if holder is None else holder[0]


def _settle(db: Database, holder: str, new: NewJob, rule: UniqueClaim, now: float) -> Inserted:
    if rule.on_conflict == "skip":
        return Inserted(holder, "duplicate")
    seq, old_tags, state, key, kept, created_at = db.execute(_HOLDER, (holder,)).fetchone()
    # What was kept behind a job stays there while it goes to and fro between an answer and the next run.
    if rule.on_conflict == "keep_last" and (state in ("running", "waiting") or kept is not None):
        text = keep_last.keep(new, key, now, kept)
        db.execute("update treadle_job set kept = ? where seq = ?", (text, seq))
        return Inserted(keep_last.id_of(text) or new.id, "kept")
    if state != "ready":
        return Inserted(holder, "duplicate")
    due = unique.due(new, now, created_at)
    db.execute(
        statement("replace"),
        (new.args, new.format, due, new.priority, rows.tags_text(new.tags), new.meta, new.reason, seq),
    )
    untag(db, seq, old_tags)
    _tag(db, seq, new.tags)
    progress.forget_reports(db, (holder,))
    return Inserted(holder, "replaced")


def untag(db: Database, seq: int, tags: str | None) -> None:
    """Forget a job's tags, as its row has them."""
    for tag in rows.tags_of(tags) if tags is not None else ():
        db.execute("delete from treadle_job_tag where tag = ? and seq = ?", (tag, seq))


def _tag(db: Database, seq: int | None, tags: tuple[str, ...]) -> None:
    for tag in tags:
        db.execute("insert into treadle_job_tag (tag, seq) values (?, ?) on conflict do nothing", (tag, seq))


def _values(new: NewJob, now: float, key: str | None) -> tuple[Any, ...]:
    return (
        new.id, new.queue, new.task, new.priority, due_at(new, now), new.max_attempts, new.timeout, new.pinned,
        new.format, key, rows.tags_text(new.tags) if new.tags else None, new.reason, new.meta, new.args,
    )  # fmt: skip


def due_at(new: NewJob, now: float) -> float:
    return max(now, new.run_at) if new.run_at is not None else now + new.delay
