"""Many Changes of one kind, by a few statements: what an operation does to a chunk of jobs.

One by one, five hundred Changes are four thousand round trips, and where the database is a millisecond away the chunk
would meet its deadline. Here the rows of all Changes that differ in nothing but the job are locked at once, passing
over what others hold, and written together. Whatever is not found as expected (held, claimed meanwhile, with a unique
key to be looked at) is left to `apply_slowly`, which says what is true of it.
"""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ...core.job import CLAIMABLE, ERRORS_KEPT, TERMINAL, Change, State
from ...ports import Applied
from . import change as one
from . import history, insert, progress, rows, sql
from .cluster import Time
from .find import the_time
from .news import News
from .talk import BadValue, Taken, Talk

KINDS: Final = frozenset({"moved", "reprioritised", "rescheduled", "cancelled", "revived", "removed"})
_SEEN: Final = f"case when state = 'ready' and run_at > {sql.CLOCK} then 'scheduled' else state end"
_LOCK: Final = f"""
select id::text, {_SEEN}, queue
from treadle.job
where id = any ($2::uuid[]) and state = any ($3::text[]) and kept is null and error_count < {ERRORS_KEPT}
order by id
for update skip locked
"""
_LOCK_ENDED: Final = """
select id::text, state, queue
from treadle.job_history
where id = any ($1::uuid[]) and state = any ($2::text[]) and (unique_key is null or $3::boolean)
order by id
for update skip locked
"""
_COUNT_ERROR: Final = (
    "update treadle.job set error_count = error_count + 1, deadline = null, cancel_wanted = false "
    "where id = any ($1::uuid[])"
)
_REMEMBER: Final = f"""
insert into treadle.job_error (job_id, n, ended_at, entry)
select job.id, job.error_count, {sql.CLOCK}, new.entry
from treadle.job as job
join unnest($2::uuid[], $3::text[]) as new (id, entry) on new.id = job.id
where job.id = any ($2::uuid[])
"""
_RETIRE: Final = sql.statement("retire").replace("id = $2::uuid", "id = any ($2::uuid[])")
_RESTORE: Final = sql.statement("restore").replace("id = $1::uuid", "id = any ($1::uuid[])")
_LANES: Final = "select distinct queue, priority from treadle.job where id = any ($1::uuid[])"
_STATES: Final = {state.value: state for state in State}


def apply_many(changes: Sequence[Change], time: Time, news: News) -> Talk[dict[str, Applied]]:
    """Write what can be written together, within the caller's transaction; what was accepted, by id."""
    answers: dict[str, Applied] = {}
    now = yield from the_time(time)
    for alike in _alike(changes):
        told = News()
        yield "savepoint treadle_many", ()
        try:
            answers |= yield from _apply(alike, time[0], now, told)
            news.due |= told.due
            news.queues |= told.queues
            news.ended |= told.ended
        except (BadValue, OverflowError, Taken):
            yield "rollback to savepoint treadle_many", ()  # one of them is bad: each is looked at by itself
        yield "release savepoint treadle_many", ()
    return answers


def _alike(changes: Sequence[Change]) -> list[list[Change]]:
    """Changes that differ in nothing but the job, and in what is remembered of it."""
    named = Counter(change.id for change in changes)
    found: dict[Change, list[Change]] = {}
    for change in changes:
        if change.why in KINDS and change.token is None and named[change.id] == 1 and rows.is_id(change.id):
            shape = msgspec.structs.replace(change, id="", error=None)
            found.setdefault(shape, []).append(change)
    return [alike for alike in found.values() if len(alike) > 1]


def _apply(alike: list[Change], time: float | None, now: float, news: News) -> Talk[dict[str, Applied]]:
    first = alike[0]
    known = {change.id.lower(): change for change in alike}
    states = sorted({"ready" if state in CLAIMABLE else state.value for state in first.expect})
    if first.why in ("revived", "removed"):
        locked = yield _LOCK_ENDED, (list(known), states, first.remove)
    else:
        locked = yield _LOCK, (time, list(known), states)
    ids = [id for id, _, _ in locked]
    if not ids:
        return {}
    if first.remove:
        yield from _remove(ids)
        return {known[id].id: Applied(True) for id in ids}
    if first.to in TERMINAL:
        yield from _end([known[id] for id in ids], time)
        news.ended.update(ids)
        return {known[id].id: Applied(True, state=first.to) for id in ids}
    if first.why == "revived":
        yield _RESTORE, (ids,)
        if State.SUCCEEDED in first.expect:
            yield from progress.forget_reports(ids)
    sets = yield from one.columns(first, now)
    yield from _update(ids, sets)
    lanes = yield _LANES, (ids,)
    yield from insert.ensure([(queue, priority) for queue, priority in lanes])
    later = first.to in CLAIMABLE and sets["run_at"] > now
    (news.queues if later else news.due).update(queue for queue, _ in lanes)
    after = State.SCHEDULED if later else State.READY
    return {
        known[id].id: Applied(True, state=after if first.to in CLAIMABLE else _STATES[state]) for id, state, _ in locked
    }


def _remove(ids: list[str]) -> Talk[None]:
    yield "delete from treadle.job_error where job_id = any ($1::uuid[])", (ids,)
    yield from history.forget_events(ids)
    yield "delete from treadle.job_history where id = any ($1::uuid[])", (ids,)


def _end(changes: list[Change], time: float | None) -> Talk[None]:
    first, ids = changes[0], [change.id for change in changes]
    assert first.to is not None
    yield _COUNT_ERROR, (ids,)
    entries = [rows.entry_text(change.error) for change in changes if change.error is not None]
    yield _REMEMBER, (time, ids, entries)
    yield _RETIRE, (time, ids, first.to.value, None, None, None)


def _update(ids: list[str], sets: dict[str, Any]) -> Talk[None]:
    names = ", ".join(
        f"{name} = to_timestamp(${n}::float8)" if name in one.TIMES else f"{name} = ${n}"
        for n, name in enumerate(sets, 2)
    )
    yield f"update treadle.job set {names} where id = any ($1::uuid[])", (ids, *sets.values())
