"""Rows of answers, and what they make of a Change that names one.

Whoever needs both locks the job's row first and the answer's after it: a wait and its answer meet at the job, and the
second of them finds what the first has written.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ...core import answer as answering
from ...core.answer import Answer, NewAnswer
from ...core.job import Change, State
from . import rows
from .talk import Talk

# In the order of Answer's fields.
COLUMNS: Final = "id, job_id, claim, timeout, opened_at, expires_at, waits, kind, value, delay, at"
_FIELDS: Final = tuple(Answer.__struct_fields__)
# Against whoever would take the claim away: the run may wait for its answer once this is committed.
_RUNNING: Final = "select 1 from treadle.job where id = $1::uuid and state = 'running' and token = $2::text for share"
_OPEN: Final = f"""
insert into treadle.answer ({COLUMNS})
values ($1::text, $2::text, $3::text, $4::float8, $5::float8, $6::float8, false, null, null, null, null)
on conflict do nothing
"""
_OLD: Final = f"""
delete from treadle.answer
where
    job_id = $1::text and claim <> $2::text and id is distinct from $3::text
    and id = any (array(
        select id from treadle.answer where job_id = $1::text order by opened_at desc offset {answering.KEPT}
    ))
"""
_SAVE: Final = """
update treadle.answer
set expires_at = $2::float8, waits = $3::boolean, kind = $4::text, value = $5::text, delay = $6::float8, at = $7::float8
where id = $1::text
"""


def answer_of(row: Sequence[Any]) -> Answer:
    return Answer(**dict(zip(_FIELDS, row, strict=True)))


def load(id: str | None, *, lock: bool = True) -> Talk[Answer | None]:
    held = " for update" if lock else ""
    found = yield f"select {COLUMNS} from treadle.answer where id = $1::text{held}", (_storable(id),)
    return answer_of(found[0]) if found else None


def _storable(id: str | None) -> str | None:
    return None if id is None or "\0" in id else id


def save(answer: Answer) -> Talk[None]:
    values = (answer.expires_at, answer.waits, answer.kind, answer.value, answer.after, answer.at)
    yield _SAVE, (answer.id, *values)


def open_(new: NewAnswer, now: float) -> Talk[bool]:
    if not rows.is_id(new.job) or not (yield _RUNNING, (new.job, new.claim)):
        return False
    answer = answering.opened(new, now)
    job = answer.job.lower()
    yield _OPEN, (answer.id, job, answer.claim, answer.timeout, answer.opened_at, answer.expires_at)
    yield _OLD, (job, answer.claim, new.keep)
    return True


def meet(change: Change, now: float) -> Talk[Answer | None]:
    """The answer that a Change names, if the Change may be written: for a wait, one of the run's own, given or not; for
    the end of one, an answer that has not come in time."""
    row = yield from load(change.answer)
    if change.why == "waits":
        return None if answering.meet(row, change.id.lower(), change.token) == "refused" else row
    return row if answering.is_over(row, now) else None


def met(answer: Answer, change: Change) -> Talk[None]:
    """The Change is written: somebody waits for the answer from now on, or nobody any more."""
    yield from save(msgspec.structs.replace(answer, waits=change.to is State.WAITING))


def forget(job_ids: Sequence[str]) -> Talk[None]:
    """The rows of these jobs go: their answers go with them."""
    yield "delete from treadle.answer where job_id = any ($1::text[])", ([id.lower() for id in job_ids],)
