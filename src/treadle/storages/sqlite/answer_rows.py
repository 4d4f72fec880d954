"""Rows of answers, and what they make of a Change that names one."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ...core import answer as answering
from ...core.answer import Answer, NewAnswer
from ...core.job import Change, State
from . import rows
from .rows import Database

# In the order of Answer's fields.
COLUMNS: Final = "id, job_id, claim, timeout, opened_at, expires_at, waits, kind, value, delay, at"
_FIELDS: Final = tuple(Answer.__struct_fields__)
_OLD: Final = f"""
delete from treadle_answer
where
    job_id = ?1 and claim <> ?2 and id is not ?3
    and id in (select id from treadle_answer where job_id = ?1 order by opened_at desc limit -1 offset {answering.KEPT})
"""


def answer_of(row: rows.RowTuple) -> Answer | None:
    """The answer in a row of COLUMNS; None if no code of ours can have written it."""
    try:
        return msgspec.convert(dict(zip(_FIELDS, (*row[:6], bool(row[6]), *row[7:]), strict=True)), Answer)
    except msgspec.ValidationError:
        return None


def load(db: Database, id: str | None) -> Answer | None:
    row = db.execute(f"select {COLUMNS} from treadle_answer where id = ?", (id,)).fetchone()
    return None if row is None else answer_of(row)


def save(db: Database, answer: Answer) -> None:
    db.execute(
        "update treadle_answer set expires_at = ?, waits = ?, kind = ?, value = ?, delay = ?, at = ? where id = ?",
        (answer.expires_at, answer.waits, answer.kind, answer.value, answer.after, answer.at, answer.id),
    )


def open_(db: Database, new: NewAnswer, now: float) -> bool:
    running = "select 1 from treadle_job where id = ? and state = 'running' and token = ?"
    if db.execute(running, (new.job, new.claim)).fetchone() is None:
        return False
    db.execute(
        f"insert or ignore into treadle_answer ({COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        msgspec.structs.astuple(answering.opened(new, now)),
    )
    db.execute(_OLD, (new.job, new.claim, new.keep))
    return True


def meet(db: Database, change: Change, now: float) -> Answer | None:
    """The answer that a Change names, if the Change may be written: for a wait, one of the run's own, given or not; for
    the end of one, an answer that has not come in time."""
    row = load(db, change.answer)
    if change.why == "waits":
        return None if answering.meet(row, change.id, change.token) == "refused" else row
    return row if answering.is_over(row, now) else None


def met(db: Database, answer: Answer, change: Change) -> None:
    """The Change is written: somebody waits for the answer from now on, or nobody any more."""
    save(db, msgspec.structs.replace(answer, waits=change.to is State.WAITING))


def forget(db: Database, job_ids: Iterable[str]) -> None:
    """The rows of these jobs go: their answers go with them."""
    ids = rows.json_text(list(job_ids))
    db.execute("delete from treadle_answer where job_id in (select value from json_each(?))", (ids,))
