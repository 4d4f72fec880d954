"""Operations and the audit: rows that hold one text each, with the columns that they are found by beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ...core import operation, retention
from ...core.audit import AuditLine
from ...core.job import Change
from ...core.operation import Operation
from ...ports import Applied, Clock
from . import apply, audit, limits, rows
from .news import News
from .rows import Database

_operations: Final = msgspec.json.Decoder(Operation)
_lines: Final = msgspec.json.Decoder(AuditLine)


def _as_operation(body: str) -> Operation | None:
    try:
        return _operations.decode(body)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None  # a row that somebody damaged must not keep its neighbours from being read


def _as_line(body: str) -> AuditLine | None:
    try:
        return _lines.decode(body)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None


def get(db: Database, id: str) -> Operation | None:
    found = db.execute("select body from treadle_operation where id = ?", (id,)).fetchone()
    return None if found is None else _as_operation(found[0])


def newest(db: Database, limit: int) -> list[Operation]:
    found = db.execute(
        "select body from treadle_operation "
        "order by state in ('running', 'stopping') desc, created_at desc, id desc limit ?",
        (limit,),
    )
    return [read for (body,) in found if (read := _as_operation(body)) is not None]


def save(db: Database, new: Operation, expected: int | None, clock: Clock) -> Operation | None:
    before = get(db, new.id)
    if expected is None and before is not None:
        return before
    if expected is not None and (before is None or before.version != expected):
        return None
    return _write(db, new, before, clock.now())


def advance(
    db: Database,
    found: Operation,
    changes: Sequence[Change],
    then: Callable[[Sequence[Applied]], Operation],
    clock: Clock,
    news: News,
) -> Operation | None:
    before = get(db, found.id)
    if before is None or before.version != found.version:
        return None
    answers = apply.apply(db, changes, clock, news)
    return _write(db, then(answers), before, clock.now())


def _write(db: Database, new: Operation, before: Operation | None, now: float) -> Operation:
    row = operation.written(new, before, now)
    db.execute(
        "insert or replace into treadle_operation (id, state, version, created_at, finished_at, body) "
        "values (?, ?, ?, ?, ?, ?)",
        (row.id, row.state, row.version, row.created_at, row.finished_at, rows.json_text(row)),
    )
    audit.write(db, operation.line(row, before), now)
    return row


def note(db: Database, lines: Sequence[AuditLine], clock: Clock) -> None:
    now = clock.now()
    for line in lines:
        audit.write(db, line, now)


def audit_lines(db: Database, limit: int, before: str | None) -> list[AuditLine]:
    place = (float("inf"), "")
    if before is not None:
        known = db.execute("select at, id from treadle_audit where id = ?", (before,)).fetchone()
        if known is None:
            return []
        place = known
    found = db.execute(
        "select body from treadle_audit where (at, id) < (?, ?) order by at desc, id desc limit ?", (*place, limit)
    )
    return [line for (body,) in found if (line := _as_line(body)) is not None]


# One statement for each kind of thing that is forgotten, with the age that it is kept for.
_SWEEPS: Final[dict[str, tuple[str, float]]] = {
    "operations": ("delete from treadle_operation where finished_at <= ?", retention.RECORDS_KEPT),
    "audit": ("delete from treadle_audit where at <= ?", retention.RECORDS_KEPT),
}
KEYS_AT_ONCE: Final = 1_000


def sweep(db: Database, clock: Clock) -> dict[str, int]:
    now = clock.now()
    swept = {name: db.execute(statement, (now - age,)).rowcount for name, (statement, age) in _SWEEPS.items()}
    return swept | {"limits": limits.forget(db, now)}


def old_keys(db: Database, clock: Clock) -> list[str]:
    """Some of the unique keys that nobody holds any more. A reader looks: no index leads to them."""
    found = db.execute("select key from treadle_held where until <= ? limit ?", (clock.now(), KEYS_AT_ONCE))
    return [key for (key,) in found]


def forget_keys(db: Database, keys: Sequence[str], clock: Clock) -> int:
    """Those that are still free."""
    statement = "delete from treadle_held where key in (select value from json_each(?)) and until <= ?"
    return db.execute(statement, (rows.json_text(list(keys)), clock.now())).rowcount
