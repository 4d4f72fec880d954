"""One Change, looked at by itself: the row is locked and compared, and only then written."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import math
from typing import Any, Final

from msgspec import UNSET, Struct

from ...core import audit as auditing
from ...core import lifecycle, settings
from ...core import queue as queueing
from ...core.job import CLAIMABLE, ENDS_RUN, ERRORS_KEPT, LIVE, TERMINAL, WRITTEN, Change, QueueChange, State, cause_of
from ...core.queue import Queue
from ...ports import Applied
from . import answer_rows, audit, bounds, find, history, insert, progress, rows, sql
from .news import News
from .talk import Talk

_STATES: Final[dict[str, State]] = {state.value: state for state in State}
_FIND: Final = sql.statement("apply_find")
_FIND_ENDED: Final = sql.statement("apply_find_ended")
_KNOWN: Final = (
    "select 1 from treadle.job where id = any ($1::uuid[]) "
    "union all select 1 from treadle.job_history where id = any ($1::uuid[])"
)
_FIND_QUEUE: Final = f"select {sql.QUEUE} from treadle.queue where name = $1::text for update"
# The pod's row is locked: of a beat and a rescue, exactly one wins.
_DECLARE_LOST: Final = f"""
update treadle.pod as job
set lost = true, {bounds.mended("pod")}
where id = $1::text and not (not lost and not gone and boot = $3::text
    and lease_until > coalesce(to_timestamp($2::float8), clock_timestamp()))
returning 1
"""
TIMES: Final = frozenset({"run_at", "deadline"})


class _Row(Struct):
    """What must be known of a job before a Change is written."""

    now: float
    state: State
    token: str | None
    finished_token: str | None
    cancel_wanted: bool
    pod: str | None
    unique_key: str | None
    error_count: int
    queue: str
    task: str
    kept: str | None
    ended: bool


def apply_one(change: Change | QueueChange, time: tuple[float | None, float | None, str], news: News) -> Talk[Applied]:
    if isinstance(change, QueueChange):
        answer = yield from edit_queue(change, time[0])
        news.due.add(change.name)
        news.settings = news.settings or answer.accepted
        return answer
    if not rows.is_id(change.id):
        return Applied(False)
    applied = yield from _apply_one(change, time, news)
    if applied.accepted and not applied.repeated and (change.event is not None or change.line is not None):
        ((clock,),) = yield f"select date_part('epoch', {sql.CLOCK})", (time[0],)
        if change.event is not None:
            yield from history.record_lines((change.event,), clock)
        yield from audit.write(change.line, clock)
    return applied


def _apply_one(change: Change, time: tuple[float | None, float | None, str], news: News) -> Talk[Applied]:
    row = yield from _find(change.id, time[0])
    if row is None:
        return Applied(False)
    if _is_finish(change) and row.finished_token == change.token:
        return Applied(True, repeated=True, state=row.state)
    if not _is_expected(row, change):
        return Applied(False, state=row.state)
    if change.unless_cancel_wanted and row.cancel_wanted:
        return Applied(False, state=row.state, cancel_wanted=True)
    if (change.takes is not None or change.why in ENDS_RUN) and change.takes != row.kept:
        return Applied(False, state=row.state, kept=row.kept)
    if change.if_lapsed and row.pod is not None and not (yield from _declare_lost(row.pod, time)):
        return Applied(False, state=row.state)
    if change.remove:
        yield from _remove(change.id, row)
        return Applied(True)
    if change.answer is not None:
        return (yield from _write_met(row, change, time[0], news))
    return (yield from _write(row, change, time[0], news))


def _write_met(row: _Row, change: Change, now: float | None, news: News) -> Talk[Applied]:
    """A Change that begins a wait or ends it in vain."""
    answer = yield from answer_rows.meet(change, row.now)
    if answer is None:
        strange = "it waits for an answer that is none of its own, or is over" if change.why == "waits" else None
        return Applied(False, state=row.state, error=strange)
    if answer.kind is not None:
        (job,) = yield from find.get((change.id,), now)
        change = lifecycle.meet(change, job, answer)
    applied = yield from _write(row, change, now, news)
    if applied.accepted:
        yield from answer_rows.met(answer, change)
        if change.to is State.WAITING:
            until = "update treadle.job set deadline = to_timestamp($2::float8) where id = $1::uuid"
            yield until, (change.id, answer.expires_at)
    return applied


def _find(id: str, now: float | None) -> Talk[_Row | None]:
    # A job may move between the tables while we wait for its row: then it is in the other one.
    for _ in range(4):
        found = yield _FIND, (now, id)
        if found:
            return _row_of(found[0], ended=False)
        found = yield _FIND_ENDED, (now, id)
        if found:
            return _row_of(found[0], ended=True)
        known = yield _KNOWN, ([id],)
        if not known:
            return None
    return None


def _row_of(found: Any, *, ended: bool) -> _Row:
    now, state, token, finished_token, cancel_wanted, pod, unique_key, error_count, queue, task, kept = found
    known = _STATES.get(state, State.FAILED)  # as a reader sees it (`rows`)
    return _Row(
        now, known, token, finished_token, cancel_wanted, pod, unique_key, error_count, queue, task, kept, ended
    )  # fmt: skip


def _is_expected(row: _Row, change: Change) -> bool:
    if change.token is not None and row.token != change.token:
        return False
    return row.state in change.expect or (row.state in CLAIMABLE and bool(change.expect & CLAIMABLE))


def _is_finish(change: Change) -> bool:
    """Written by the claim's owner to end its run: repeatable by its token, as nobody else's Change is."""
    return change.token is not None and change.to is not State.RUNNING and not change.foreign


def _declare_lost(pod: str, time: tuple[float | None, float | None, str]) -> Talk[bool]:
    """Whether the pod has no live lease; if it is known, it is lost from now on."""
    if (yield _DECLARE_LOST, (pod, *time[1:])):
        return True
    known = yield "select 1 from treadle.pod where id = $1::text", (pod,)
    return not known


def _remove(id: str, row: _Row) -> Talk[None]:
    if row.error_count:
        yield "delete from treadle.job_error where job_id = $1::uuid", (id,)
    yield from history.forget_events((id,))
    table = "treadle.job_history" if row.ended else "treadle.job"
    yield f"delete from {table} where id = $1::uuid", (id,)


def _write(row: _Row, change: Change, now: float | None, news: News) -> Talk[Applied]:
    if row.unique_key is not None and row.ended and change.to in LIVE:
        holder = yield "select 1 from treadle.job where unique_key = $1::text", (row.unique_key,)
        if holder:
            return Applied(False, state=row.state, error="a live job holds its unique key")
    if change.follow_ups:
        known = yield _KNOWN, ([new.id for new in change.follow_ups],)
        if known:
            return Applied(False, state=row.state, error="a follow-up's id is taken")
    if row.ended and change.to in LIVE:
        yield sql.statement("restore"), (change.id,)
    if change.why == "revived" and row.state is State.SUCCEEDED:
        yield from progress.forget_reports((change.id,))
    sets = yield from _sets(row, change)
    if sets:
        names = ", ".join(
            f"{name} = to_timestamp(${n}::float8)" if name in TIMES else f"{name} = ${n}"
            for n, name in enumerate(sets, 2)
        )
        yield f"update treadle.job set {names} where id = $1::uuid", (change.id, *sets.values())
    if change.error is not None:
        yield from _remember(row, change, now)
    if change.to in TERMINAL:
        yield from _retire(row, change, now)
    elif change.queue or change.priority is not None or row.ended:
        yield from _ensure(change.id)
    if change.follow_ups:
        if not insert.is_keyed(change.follow_ups):
            yield from insert.ensure({(new.queue, new.priority) for new in change.follow_ups})
        yield from insert.insert(change.follow_ups, now)
    _tell(news, change, row, sets)
    return Applied(True, state=_state_after(row, change, sets))


def _retire(row: _Row, change: Change, now: float | None) -> Talk[None]:
    assert change.to is not None
    error = change.error
    cause = cause_of(row.task, error) if change.to is State.FAILED and error is not None else None
    result = None if change.result is UNSET else change.result
    token = change.token if _is_finish(change) else None
    yield sql.statement("retire"), (now, change.id, change.to.value, result, token, cause)


def _ensure(id: str) -> Talk[None]:
    found = yield "select queue, priority from treadle.job where id = $1::uuid", (id,)
    yield from insert.ensure([(queue, priority) for queue, priority in found])


def _state_after(row: _Row, change: Change, sets: dict[str, Any]) -> State:
    if change.to in CLAIMABLE:
        return State.SCHEDULED if sets["run_at"] > row.now else State.READY
    return change.to if change.to is not None else row.state


def columns(change: Change, now: float) -> Talk[dict[str, Any]]:
    """The columns of a live job that a Change writes, whatever the job; for one that cools no queue."""
    nobody = _Row(now, State.READY, None, None, False, None, None, 0, "", "", None, False)
    return (yield from _sets(nobody, change))


def _sets(row: _Row, change: Change) -> Talk[dict[str, Any]]:
    """The columns of a live job that a Change writes, by name."""
    sets: dict[str, Any] = {}
    for name in WRITTEN:
        if (value := getattr(change, name)) is not None:
            sets[name] = value
    if change.timeout is not None:
        sets["deadline"] = change.deadline  # none, if it is switched off
    if change.warning is not UNSET:
        sets["warning"] = change.warning
    if change.meta is not UNSET:
        sets["meta"] = change.meta
    if change.takes is not None:
        sets["kept"] = None
    if change.to is not None and change.to is not State.RUNNING:
        sets |= {"deadline": None, "cancel_wanted": False}
        if change.to in LIVE:
            sets["state"] = "ready" if change.to in CLAIMABLE else change.to.value
    if _is_finish(change):
        sets["finished_token"] = change.token
    if change.to in CLAIMABLE:
        sets |= {"pod": None, "slot": None}
        sets["run_at"] = max(row.now, change.run_at) if change.run_at is not None else row.now + (change.delay or 0.0)
    if change.to is State.WAITING:
        sets["run_at"] = change.run_at
    if change.cooling is not None:
        sets["run_at"] = yield from _cool(change.cooling.queue, change.cooling.hint, row.now)
    if not math.isfinite(sets.get("run_at", 0.0)):
        raise OverflowError("a job cannot be due at no time at all")
    return sets


def _remember(row: _Row, change: Change, now: float | None) -> Talk[None]:
    assert change.error is not None
    count = row.error_count + 1
    entry = rows.entry_text(change.error)
    yield "update treadle.job set error_count = $2::int where id = $1::uuid", (change.id, count)
    yield (
        f"insert into treadle.job_error (job_id, n, ended_at, entry) values ($2::uuid, $3::int, {sql.CLOCK}, $4::text)",
        (now, change.id, count, entry),
    )
    if count > ERRORS_KEPT:
        yield (
            "delete from treadle.job_error where job_id = $1::uuid and n <= $2::int",
            (change.id, count - ERRORS_KEPT),
        )


def _tell(news: News, change: Change, row: _Row, sets: dict[str, Any]) -> None:
    if change.to in TERMINAL:
        news.ended.add(change.id)
    elif change.to in CLAIMABLE:
        later = sets["run_at"] > row.now
        (news.queues if later else news.due).add(change.queue or row.queue)
    elif change.why in ("moved", "reprioritised"):
        news.due.add(change.queue or row.queue)
    if change.why == "cancel_asked":
        news.cancels = True
    news.due.update(new.queue for new in change.follow_ups)


# Queues --------------------------------------------------------------------------------------------------------------


def _queue(name: str, version: int | None = None) -> Talk[Queue]:
    """The queue's row, locked. It is made if it is not there, unless a version is expected that a new one has not."""
    found = yield _FIND_QUEUE, (name,)
    if not found and version in (None, 0):
        yield "insert into treadle.queue (name) values ($1::text) on conflict do nothing", (name,)
        found = yield _FIND_QUEUE, (name,)
    return rows.queue_of(found[0]) if found else Queue(name=name)


def _cool(name: str, hint: float | None, now: float) -> Talk[float]:
    queue = yield from _queue(name)
    until, exponent = queueing.cool(queue, hint, now)
    yield (
        "update treadle.queue set version = version + 1, cool_until = to_timestamp($2::float8), "
        "cool_exponent = $3::int where name = $1::text",
        (name, until, exponent),
    )
    return until


def edit_queue(change: QueueChange, now: float | None) -> Talk[Applied]:
    """An operator's edit, refused if somebody else was faster."""
    queue = yield from _queue(change.name, change.version)
    if change.version is not None and change.version != queue.version:
        if (yield from audit.is_written(change.audit)):
            return Applied(True, repeated=True)
        return Applied(False, error=f"queue {change.name} has changed meanwhile (version {queue.version})")
    ((clock,),) = yield f"select date_part('epoch', {sql.CLOCK})", (now,)
    if queueing.is_warmed(queue, change, clock):
        yield (
            "update treadle.job set run_at = to_timestamp($2::float8) where queue = $1::text and state = 'ready' "
            "and run_at > to_timestamp($2::float8) and run_at <= to_timestamp($3::float8) and throttles > 0",
            (change.name, clock, queue.cool_until),
        )
    yield from save_queue(queueing.edit(queue, change, clock))
    yield from audit.write(auditing.of_queue(change), clock)
    return Applied(True)


def save_queue(queue: Queue) -> Talk[None]:
    """Write a queue's row."""
    yield (
        "update treadle.queue set version = $2::int, paused = $3::boolean, paused_by = $4::text, "
        "paused_at = to_timestamp($5::float8), pause_reason = $6::text, paused_until = to_timestamp($7::float8), "
        "max_workers = $8::int, cool_until = to_timestamp($9::float8), cool_exponent = $10::int, "
        "aging = $11::float8, timeout = $12::float8, settings = $13::text where name = $1::text",
        (
            queue.name, queue.version, queue.paused, queue.paused_by, queue.paused_at, queue.pause_reason,
            queue.paused_until, queue.max_workers, queue.cool_until, queue.cool_exponent, queue.aging, queue.timeout,
            settings.text_of(queue),
        ),
    )  # fmt: skip
