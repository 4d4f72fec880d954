"""Apply: Changes, each wholly or not at all, fenced by state and token."""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from ...core import audit as auditing
from ...core import lifecycle
from ...core import queue as queueing
from ...core.answer import Answer
from ...core.job import (
    CLAIMABLE,
    ENDS_RUN,
    ERRORS_KEPT,
    LIVE,
    TERMINAL,
    WRITTEN,
    Change,
    ErrorEntry,
    QueueChange,
    State,
)
from ...core.queue import Queue
from ...ports import Applied, Clock
from . import answer_rows, audit, cluster, find, history, insert, progress, rows
from .news import News
from .rows import Database
from .sql import statement

_FIND: Final = statement("apply_find")
_SUCCEED_BARE: Final = statement("succeed_bare")
_SUCCEEDED: Final = Applied(True, state=State.SUCCEEDED)
_STATES: Final[dict[str, State]] = {state.value: state for state in State}
_MOST_ROWS: Final = 256
# What a Change may hold that SQLite cannot store: it is refused alone.
_BAD_VALUES: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    TypeError,
    ValueError,
)
_RUNNING: Final = frozenset({State.RUNNING})


class _Row(Struct):
    """What must be known of a job before a Change is written."""

    seq: int
    state: State | None
    token: str | None
    finished_token: str | None
    cancel_wanted: bool
    pod: str | None
    unique_key: str | None
    error_count: int
    queue: str
    tags: str | None
    kept: str | None


def apply(db: Database, changes: Sequence[Change | QueueChange], clock: Clock, news: News) -> list[Applied]:
    """Write the Changes in their order and answer for each."""
    now = clock.now()
    answers: list[Applied] = []
    successes: list[Change] = []
    for change in changes:
        if isinstance(change, Change) and _is_plain_success(change):
            successes.append(change)
            continue
        if successes:
            answers += _succeed(db, successes, clock, now, news)
            successes = []
        answers.append(_apply(db, change, clock, now, news))
    if successes:
        answers += _succeed(db, successes, clock, now, news)
    return answers


# The hot arm ---------------------------------------------------------------------------------------------------------


def _is_plain_success(change: Change) -> bool:
    """A success that touches nothing but its job's row: one UPDATE, by which its unique key frees itself."""
    return (
        change.why == "succeeded"
        and change.to is State.SUCCEEDED
        and change.token is not None
        and change.expect == _RUNNING
        and change.result is not UNSET
        and change.warning is not UNSET
        and change.meta is UNSET
        and change.takes is None
        and not change.follow_ups
        and change.error is None
        and change.cooling is None
        and not (change.unless_cancel_wanted or change.if_lapsed or change.foreign)
        and change.attempt is None
        and change.crashes is None
        and change.snoozes is None
        and change.throttles is None
        and change.priority is None
        and change.queue is None
    )


@functools.cache
def _succeed_sql(count: int) -> str:
    return statement("succeed").replace("(values)", f"(values {', '.join(['(?, ?, ?, ?)'] * count)})")


def _succeed(db: Database, changes: list[Change], clock: Clock, now: float, news: News) -> list[Applied]:
    answers: list[Applied] = []
    for start in range(0, len(changes), _MOST_ROWS):
        batch = changes[start : start + _MOST_ROWS]
        if _succeed_all(db, batch, now):
            answers += [_SUCCEEDED] * len(batch)
            news.ended.update([change.id for change in batch])
        else:
            answers += [_apply(db, change, clock, now, news) for change in batch]
    return answers


def _succeed_all(db: Database, changes: list[Change], now: float) -> bool:
    """Write many successes by few statements; if one of them is stale, none, and each must be asked by itself."""
    bare: dict[str | None, list[str]] = {}  # by token: the jobs of one claim end close to each other
    telling: list[tuple[Any, ...]] = []
    for change in changes:
        if change.result is None and change.warning is None:
            bare.setdefault(change.token, []).append(change.id)
        else:
            telling.append((change.id, change.token, change.result, change.warning))
    db.execute("savepoint successes")
    try:
        written = sum(
            db.execute(_SUCCEED_BARE, (now, token, rows.json_text(ids))).rowcount for token, ids in bare.items()
        )
        if telling:
            size = min(_MOST_ROWS, 1 << (len(telling) - 1).bit_length())
            telling += telling[-1:] * (size - len(telling))
            written += db.execute(_succeed_sql(size), (now, *chain.from_iterable(telling))).rowcount
    except _BAD_VALUES as error:
        _undo(db, "successes", error)
        return False
    if written < len(changes):
        db.execute("rollback to successes")
    db.execute("release successes")
    return written == len(changes)


# Every other arm -----------------------------------------------------------------------------------------------------


def _apply(db: Database, change: Change | QueueChange, clock: Clock, now: float, news: News) -> Applied:
    db.execute("savepoint change")
    try:
        if isinstance(change, QueueChange):
            answer = edit_queue(db, change, now)
            news.queues.add(change.name)
            news.settings = news.settings or answer.accepted
        else:
            answer = _change(db, change, clock, now, news)
            if answer.accepted and not answer.repeated:
                history.record(db, () if change.event is None else (change.event,), now)
                audit.write(db, change.line, now)
    except _BAD_VALUES as error:
        _undo(db, "change", error)
        return Applied(False, error=f"{type(error).__name__}: {error}")
    db.execute("release change")
    return answer


def _undo(db: Database, savepoint: str, error: BaseException) -> None:
    """Back to before the Change; if SQLite has rolled back everything (SQLITE_FULL does), the group must be told."""
    try:
        db.execute(f"rollback to {savepoint}")
        db.execute(f"release {savepoint}")
    except sqlite3.Error:
        raise error from None


def _change(db: Database, change: Change, clock: Clock, now: float, news: News) -> Applied:
    found = db.execute(_FIND, (change.id, now)).fetchone()
    if found is None:
        return Applied(False)
    row = _row_of(found)
    if _is_finish(change) and row.finished_token == change.token:
        return Applied(True, repeated=True, state=row.state)
    if not _expected(row, change):
        return Applied(False, state=row.state)
    if change.unless_cancel_wanted and row.cancel_wanted:
        return Applied(False, state=row.state, cancel_wanted=True)
    if (change.takes is not None or change.why in ENDS_RUN) and change.takes != row.kept:
        return Applied(False, state=row.state, kept=row.kept)
    if change.if_lapsed and row.pod is not None and cluster.is_live(db, row.pod, clock):
        return Applied(False, state=row.state)
    if change.remove:
        return _remove(db, change.id, row)
    if change.answer is None:
        return _write(db, row, change, now, news)
    answer = answer_rows.meet(db, change, now)
    if answer is None:
        strange = "it waits for an answer that is none of its own, or is over" if change.why == "waits" else None
        return Applied(False, state=row.state, error=strange)
    if answer.kind is not None:
        (job,) = find.get(db, (change.id,), clock)
        change = lifecycle.meet(change, job, answer)
    applied = _write(db, row, change, now, news, answer)
    if applied.accepted:
        answer_rows.met(db, answer, change)
    return applied


def _row_of(found: rows.RowTuple) -> _Row:
    seq, state, token, finished_token, cancel_wanted, pod, unique_key, error_count, queue, tags, kept = found
    # What is no number is none (as in `rows`): else a rescue would be refused for a cancel that nobody sees.
    wanted = isinstance(cancel_wanted, int) and cancel_wanted != 0
    return _Row(
        seq, _STATES.get(state, State.FAILED), token, finished_token, wanted, pod, unique_key, error_count, queue, tags,
        kept,
    )  # fmt: skip


def _expected(row: _Row, change: Change) -> bool:
    if change.token is not None and row.token != change.token:
        return False
    return row.state in change.expect or (row.state in CLAIMABLE and bool(change.expect & CLAIMABLE))


def _is_finish(change: Change) -> bool:
    """Written by the claim's owner to end its run: repeatable by its token, as nobody else's Change is."""
    return change.token is not None and change.to is not State.RUNNING and not change.foreign


def _remove(db: Database, id: str, row: _Row) -> Applied:
    history.forget_events(db, (id,))
    insert.untag(db, row.seq, row.tags)
    if row.error_count:
        db.execute("delete from treadle_job_error where seq = ?", (row.seq,))
    db.execute("delete from treadle_job where seq = ?", (row.seq,))
    return Applied(True)


def _write(db: Database, row: _Row, change: Change, now: float, news: News, answer: Answer | None = None) -> Applied:
    if row.unique_key is not None and change.to in LIVE:
        holder = db.execute(statement("holder"), (row.unique_key,)).fetchone()
        if holder is not None and holder[0] != change.id:
            return Applied(False, state=row.state, error="a live job holds its unique key")
    for new in change.follow_ups:
        if db.execute("select 1 from treadle_job where id = ?", (new.id,)).fetchone() is not None:
            return Applied(False, state=row.state, error="a follow-up's id is taken")
    sets = _sets(db, change, now)
    if change.to is State.WAITING and answer is not None:
        sets |= {"run_at": change.run_at, "deadline": answer.expires_at}
    if sets:
        names = ", ".join(f"{name} = ?" for name in sets)
        # The fence once more, in the statement that writes.
        db.execute(
            f"update treadle_job set {names} where seq = ? and token is ?",  # noqa: S608 - names are ours
            (*sets.values(), row.seq, row.token),
        )
    if change.error is not None:
        remember(db, row.seq, change.error, now)
    if change.why == "revived" and row.state is State.SUCCEEDED:
        progress.forget_reports(db, (change.id,))
    if change.if_lapsed and row.pod is not None:
        cluster.declare_lost(db, [row.pod])
    if change.queue is not None:
        insert.ensure_queue(db, change.queue)
    if change.follow_ups:
        insert.insert(db, change.follow_ups, now)
    _tell(news, change, row)
    return Applied(True, state=_state_after(row, change, sets, now))


def _state_after(row: _Row, change: Change, sets: dict[str, Any], now: float) -> State | None:
    if change.to in CLAIMABLE:
        return State.SCHEDULED if sets["run_at"] > now else State.READY
    return change.to if change.to is not None else row.state


def _sets(db: Database, change: Change, now: float) -> dict[str, Any]:
    """The columns that a Change writes, by name."""
    sets: dict[str, Any] = {}
    for name in WRITTEN:
        if (value := getattr(change, name)) is not None:
            sets[name] = value
    if change.result is not UNSET:
        sets["result"] = change.result
    if change.warning is not UNSET:
        sets["warning"] = change.warning
    if change.meta is not UNSET:
        sets["meta"] = change.meta
    if change.takes is not None:
        sets["kept"] = None
    if change.to is not None and change.to is not State.RUNNING:
        sets |= {"state": "ready" if change.to in CLAIMABLE else change.to.value, "deadline": None, "cancel_wanted": 0}
    if _is_finish(change):
        sets["finished_token"] = change.token
    if change.to in CLAIMABLE:
        sets |= {"pod": None, "slot": None, "finished_at": None}
        sets["run_at"] = max(now, change.run_at) if change.run_at is not None else now + (change.delay or 0.0)
    if change.to in TERMINAL:
        sets["finished_at"] = now
    if change.cooling is not None:
        sets["run_at"] = _cool(db, change.cooling.queue, change.cooling.hint, now)
    return sets


def remember(db: Database, seq: int, error: ErrorEntry, now: float) -> None:
    """Put an entry at the end of a job's history."""
    (count,) = db.execute(
        "update treadle_job set error_count = error_count + 1 where seq = ? returning error_count", (seq,)
    ).fetchone()
    entry = rows.entry_text(msgspec.structs.replace(error, ended_at=now))
    db.execute("insert or replace into treadle_job_error (seq, n, entry) values (?, ?, ?)", (seq, count, entry))
    if count > ERRORS_KEPT:
        db.execute("delete from treadle_job_error where seq = ? and n <= ?", (seq, count - ERRORS_KEPT))


def _tell(news: News, change: Change, row: _Row) -> None:
    if change.to in TERMINAL:
        news.ended.add(change.id)
    elif change.to in CLAIMABLE or change.why in ("moved", "reprioritised"):
        news.queues.add(change.queue or row.queue)
    if change.why == "cancel_asked":
        news.cancels = True
    news.queues.update(new.queue for new in change.follow_ups)


# Queues --------------------------------------------------------------------------------------------------------------


def _queue(db: Database, name: str) -> Queue:
    found = db.execute(statement("queue"), (name,)).fetchone()
    return Queue(name=name) if found is None else rows.queue_of(found)


def _cool(db: Database, name: str, hint: float | None, now: float) -> float:
    until, exponent = queueing.cool(_queue(db, name), hint, now)
    db.execute(statement("queue_cool"), (name, until, exponent))
    return until


def edit_queue(db: Database, change: QueueChange, now: float) -> Applied:
    """An operator's edit, refused if somebody else was faster."""
    queue = _queue(db, change.name)
    if change.version is not None and change.version != queue.version:
        if audit.is_written(db, change.audit):
            return Applied(True, repeated=True)
        return Applied(False, error=f"queue {change.name} has changed meanwhile (version {queue.version})")
    if queueing.is_warmed(queue, change, now):
        db.execute(
            "update treadle_job set run_at = ?2 "
            "where queue = ?1 and state = 'ready' and run_at > ?2 and run_at <= ?3 and throttles > 0",
            (change.name, now, queue.cool_until),
        )
    db.execute(statement("queue_save"), rows.queue_values(queueing.edit(queue, change, now)))
    audit.write(db, auditing.of_queue(change), now)
    return Applied(True)
