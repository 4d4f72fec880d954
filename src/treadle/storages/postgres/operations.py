"""Operations and the audit: rows that hold one text each, with the columns that they are found by beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ...core import operation, retention
from ...core.audit import AuditLine
from ...core.job import Change
from ...core.operation import Operation
from ...ports import Applied
from . import apply, audit, limits, many, rows
from .cluster import Time
from .find import the_time
from .news import News
from .talk import BEGIN, COMMIT, Talk

# A row that somebody else's open transaction holds is refused by itself: the others of its chunk do not wait for long.
_PATIENCE: Final = ("select set_config('lock_timeout', '500', true)", ())
_HELD: Final = Applied(False, error="another open transaction holds its row")
_SAVE: Final = """
insert into treadle.operation (id, state, version, created_at, finished_at, body)
values ($1::text, $2::text, $3::int, $4::float8, $5::float8, $6::text)
on conflict (id) do update
set state = excluded.state, version = excluded.version, finished_at = excluded.finished_at, body = excluded.body
where operation.version = excluded.version - 1
"""
_NEWEST: Final = (
    "select body from treadle.operation "
    "order by state in ('running', 'stopping') desc, created_at desc, id desc limit $1::int"
)
_AUDIT: Final = (
    "select body from treadle.audit where (at, id) < ($1::float8, $2::text) order by at desc, id desc limit $3::int"
)
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


def get(id: str) -> Talk[Operation | None]:
    found = yield "select body from treadle.operation where id = $1::text", (id,)
    return _as_operation(found[0][0]) if found else None


def newest(limit: int) -> Talk[list[Operation]]:
    found = yield _NEWEST, (limit,)
    return [read for (body,) in found if (read := _as_operation(body)) is not None]


def save(new: Operation, expected: int | None, time: Time) -> Talk[Operation | None]:
    yield BEGIN
    before = yield from _locked(new.id)
    if expected is None and before is not None:
        saved: Operation | None = before
    elif expected is not None and (before is None or before.version != expected):
        saved = None
    else:
        saved = yield from _write(new, before, time)
    yield COMMIT
    return saved


def advance(
    found: Operation,
    changes: Sequence[Change],
    then: Callable[[Sequence[Applied]], Operation],
    time: Time,
    news: News,
) -> Talk[Operation | None]:
    yield BEGIN
    yield _PATIENCE
    before = yield from _locked(found.id)
    saved = None
    if before is not None and before.version == found.version:
        answers = yield from _apply(changes, time, news)
        saved = yield from _write(then(answers), before, time)
    yield COMMIT
    return saved


def _apply(changes: Sequence[Change], time: Time, news: News) -> Talk[list[Applied]]:
    done = yield from many.apply_many(changes, time, news)
    left = [change for change in changes if change.id not in done]
    answers = yield from apply.apply_slowly(left, time, news, within=True)
    one_by_one = iter(answers)
    return [done.get(change.id) or next(one_by_one) or _HELD for change in changes]


def _locked(id: str) -> Talk[Operation | None]:
    found = yield "select body from treadle.operation where id = $1::text for update", (id,)
    return _as_operation(found[0][0]) if found else None


def _write(new: Operation, before: Operation | None, time: Time) -> Talk[Operation]:
    now = yield from the_time(time)
    row = operation.written(new, before, now)
    yield _SAVE, (row.id, row.state, row.version, row.created_at, row.finished_at, rows.json_text(row))
    if before is None:
        # Two may have sent a new one at once: it is what the first has written.
        known = yield from _locked(row.id)
        assert known is not None
        row = known
    yield from audit.write(operation.line(row, before), row.updated_at)
    return row


def note(lines: Sequence[AuditLine], time: Time) -> Talk[None]:
    now = yield from the_time(time)
    for line in lines:
        yield from audit.write(line, now)


def audit_lines(limit: int, before: str | None) -> Talk[list[AuditLine]]:
    place = (float("inf"), "")
    if before is not None:
        known = yield "select at, id from treadle.audit where id = $1::text", (before,)
        if not known:
            return []
        place = (known[0][0], known[0][1])
    found = yield _AUDIT, (*place, limit)
    return [line for (body,) in found if (line := _as_line(body)) is not None]


# One statement for each kind of thing that is forgotten, with the age that it is kept for.
_SWEEPS: Final[dict[str, tuple[str, float]]] = {
    "operations": ("delete from treadle.operation where finished_at <= $1::float8 returning 1", retention.RECORDS_KEPT),
    "keys": (
        "delete from treadle.held where key = any (array("
        "select key from treadle.held where until <= to_timestamp($1::float8) limit 10000 for update skip locked"
        ")) returning 1",
        0.0,
    ),
}
_AT_ONCE: Final = 10_000
# Of keys there may be any number: a statement that cannot end before its deadline would never remove one of them.
_MOST_ROUNDS: Final = 20


def sweep(time: Time) -> Talk[dict[str, int]]:
    now = yield from the_time(time)
    swept: dict[str, int] = {}
    for name, (statement, age) in _SWEEPS.items():
        swept[name] = 0
        for _ in range(_MOST_ROUNDS):
            gone = yield statement, (now - age,)
            swept[name] += len(gone)
            if len(gone) < _AT_ONCE:
                break
    # By a function, which knows how long: nobody has the right to delete from the audit.
    ((swept["audit"],),) = yield "select * from treadle.prune_audit_1($1::float8)", (now,)
    swept["limits"] = yield from limits.forget(time[0])
    return swept
