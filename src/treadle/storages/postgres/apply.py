"""Apply: Changes, each wholly or not at all, fenced by state and token.

The frequent ones (runs that ended or go back) are written many to a statement, by finish_2 and return_2, together with
their follow-ups if they have any (see `follow`); so is what jobs lack that were enqueued by name. What those do not
accept, and everything else, is looked at one by one: the row is locked, compared, and written inside a savepoint of its
own, so that a bad Change takes nothing with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from msgspec import UNSET

from ...core.job import CLAIMABLE, LIVE, TERMINAL, Change, ErrorEntry, QueueChange, State, cause_of
from ...ports import Applied
from . import bounds, follow, rows
from .change import apply_one
from .news import News
from .sql import call
from .talk import BEGIN, COMMIT, BadValue, Taken, Talk

# Ids and tokens travel as one text each, because asyncpg looks at every member of an array several times. The answer is
# the ids that were ended, or null: all of them, as nearly always.
FINISH: Final = """
select case when count(*) < $10::int4 then coalesce(array_agg(ended), '{}') end
from treadle.finish_2(
    $1::float8, string_to_array($2::text, ','), string_to_array($3::text, ','), $4::text[], $5::text[], $6::text[],
    $7::text[], $8::text[], $9::boolean[]
) as ended
"""
RETURN: Final = call(
    "return_2", "float8, text[], text[], float8[], float8[], int4[], int4[], text[], text[], boolean[]"
)
# Rows that another transaction holds are passed over, and looked at one by one: two that hold several never deadlock.
RESOLVE: Final = """
with new as materialized (
    select *
    from unnest($1::uuid[], $2::text[], $3::int4[], $4::float8[], $5::float8[])
        as u (id, token, max_attempts, timeout, deadline)
),
free as (
    select j.id
    from treadle.job as j
    join new on new.id = j.id and new.token = j.token
    where j.id = any ($1::uuid[]) and j.state = 'running'
    order by j.id
    for update of j skip locked
)
update treadle.job as j
set
    max_attempts = coalesce(new.max_attempts, j.max_attempts),
    timeout = coalesce(new.timeout, j.timeout),
    deadline = case when new.timeout is null then j.deadline else to_timestamp(new.deadline) end
from new join free on free.id = new.id
where j.id = any ($1::uuid[]) and j.id = new.id
returning j.id::text
"""
_RUNNING: Final = frozenset({State.RUNNING})
_RESOLVED: Final = Applied(True, state=State.RUNNING)
_SUCCEEDED: Final = Applied(True, state=State.SUCCEEDED)
_ENDED: Final = {state: Applied(True, state=state) for state in TERMINAL}
_AGAIN: Final = {False: Applied(True, state=State.READY), True: Applied(True, state=State.SCHEDULED)}


def is_quick(change: Change | QueueChange) -> bool:
    """Whether a Change ends or gives back a run and touches nothing else that somebody may hold."""
    return (
        isinstance(change, Change)
        and change.token is not None
        and "," not in change.token
        and change.expect == _RUNNING
        and follow.may_share(change)
        and change.cooling is None
        and not (change.foreign or change.if_lapsed or change.remove)
        and change.crashes is None
        and change.throttles is None
        and change.priority is None
        and change.queue is None
        and change.meta is UNSET
        and change.takes is None
        and (_is_quick_end(change) if change.to in TERMINAL else change.why == "resolved" or _is_quick_return(change))
        and rows.is_id(change.id)
    )


def _is_quick_end(change: Change) -> bool:
    if change.attempt is not None or change.snoozes is not None:
        return False
    if change.to is State.SUCCEEDED:
        return change.error is None and change.result is not UNSET and change.warning is not UNSET
    # A warning that is not named stays; one that is wiped out is rare.
    return change.result in (UNSET, None) and change.warning is not None


def _is_quick_return(change: Change) -> bool:
    return change.to in CLAIMABLE and change.result is UNSET and change.warning is not None


def split(changes: Sequence[Change | QueueChange]) -> tuple[list[int], list[int]]:
    """The positions of the quick ones, and those of the others. A job or a follow-up that is named twice is nobody's
    quick one: the order decides."""
    if all(map(is_quick, changes)):
        ends = cast("Sequence[Change]", changes)
        if len({change.id for change in ends}) == len(ends) and not [each for each in ends if each.follow_ups]:
            return list(range(len(ends))), []  # as most turns are
    named = Counter(change.id for change in changes if isinstance(change, Change))
    named.update(new.id for change in changes if isinstance(change, Change) for new in change.follow_ups)
    quick: list[int] = []
    rest: list[int] = []
    for n, change in enumerate(changes):
        single = (
            isinstance(change, Change)
            and named[change.id] == 1
            and is_quick(change)
            and (not change.follow_ups or all(named[new.id] == 1 for new in change.follow_ups))
        )
        (quick if single else rest).append(n)
    return quick, rest


def apply_quick(changes: Sequence[Change], now: float | None, news: News) -> Talk[dict[str, Applied]]:
    """Write quick Changes of different jobs; what became of those that were accepted, by id."""
    following = [change for change in changes if change.follow_ups]
    if not following:
        return (yield from _apply_plain(changes, now, news))
    yield BEGIN
    free = yield from follow.free(following)
    answers = yield from _apply_plain([*(change for change in changes if not change.follow_ups), *free], now, news)
    news.due.update((yield from follow.write(free, answers.keys(), now)))
    yield COMMIT
    return answers


def _apply_plain(changes: Sequence[Change], now: float | None, news: News) -> Talk[dict[str, Applied]]:
    answers: dict[str, Applied] = {}
    ends = [change for change in changes if change.to in TERMINAL]
    returns = [change for change in changes if change.to in CLAIMABLE]
    if ends:
        is_plain = [change.to for change in ends].count(State.SUCCEEDED) == len(ends)
        ((ended,),) = yield FINISH, (now, *_ends(ends, is_plain=is_plain), len(ends))
        ids = ended if ended is not None else [change.id for change in ends]
        news.ended.update(ids)
        if is_plain:
            answers = dict.fromkeys(ids, _SUCCEEDED)
        else:
            states = {change.id: change.to for change in ends}
            answers = {id: _ENDED[state] for id in ids if (state := states[id]) is not None}
    if returns:
        returned = yield RETURN, (now, *_returns(returns))
        for id, queue, later in returned:
            answers[id] = _AGAIN[later]
            (news.queues if later else news.due).add(queue)
    if len(ends) + len(returns) < len(changes):
        written = yield RESOLVE, tuple(_resolutions([change for change in changes if change.why == "resolved"]))
        answers |= {id: _RESOLVED for (id,) in written}
    return answers


def _resolutions(changes: Sequence[Change]) -> Iterable[list[Any]]:
    yield [change.id for change in changes]
    yield [change.token for change in changes]
    yield [change.max_attempts for change in changes]
    yield [change.timeout for change in changes]
    yield [change.deadline for change in changes]


def _ends(changes: Sequence[Change], *, is_plain: bool) -> Iterable[str | list[Any] | None]:
    yield ",".join([change.id for change in changes])
    yield ",".join([change.token or "" for change in changes])
    yield None if is_plain else [_named(change.to) for change in changes]
    yield _unless_empty([None if change.result is UNSET else change.result for change in changes])
    yield _unless_empty([None if change.warning is UNSET else change.warning for change in changes])
    if is_plain:
        yield from (None, None)
    else:
        yield _errors(changes)
        yield [_cause(change.error) for change in changes]
    guarded = [change.unless_cancel_wanted for change in changes]
    yield guarded if any(guarded) else None


def _named(state: State | None) -> str | None:
    # Nothing said means succeeded: the usual end costs no text.
    return None if state is None or state is State.SUCCEEDED else state.value


def _cause(error: ErrorEntry | None) -> str | None:
    # The statement puts the task before it.
    return None if error is None else cause_of("", error)[1:]


def _errors(changes: Sequence[Change]) -> list[Any] | None:
    return _unless_empty([None if change.error is None else rows.entry_text(change.error) for change in changes])


def _returns(changes: Sequence[Change]) -> Iterable[list[Any] | None]:
    yield [change.id for change in changes]
    yield [change.token for change in changes]
    yield [change.delay for change in changes]
    yield _unless_empty([change.run_at for change in changes])
    yield _unless_empty([change.attempt for change in changes])
    yield _unless_empty([change.snoozes for change in changes])
    yield _unless_empty([None if change.warning is UNSET else change.warning for change in changes])
    yield _errors(changes)
    yield [change.unless_cancel_wanted for change in changes]


def _unless_empty(values: list[Any]) -> list[Any] | None:
    return None if values.count(None) == len(values) else values


def apply_slowly(
    changes: Sequence[Change | QueueChange],
    time: tuple[float | None, float | None, str],
    news: News,
    *,
    within: bool = False,
) -> Talk[list[Applied | None]]:
    """Write Changes one by one, in their order and in one transaction, or within the caller's. None: somebody else
    holds the row."""
    answers: list[Applied | None] = []
    if not within:
        yield BEGIN
        yield "select set_config('lock_timeout', '2000', true)", ()
    for change in changes:
        yield "savepoint treadle_change", ()
        answers.append((yield from apply_apart(change, time, news)))
        yield "release savepoint treadle_change", ()
    if not within:
        yield COMMIT
    return answers


def apply_apart(
    change: Change | QueueChange, time: tuple[float | None, float | None, str], news: News
) -> Talk[Applied | None]:
    """One Change, of which nothing is left behind if it fails; after `savepoint treadle_change`."""
    try:
        return (yield from apply_one(change, time, news))
    except (BadValue, OverflowError, Taken) as error:
        yield "rollback to savepoint treadle_change", ()
        if isinstance(error, Taken):
            return None
        refused = Applied(False, error=str(error))
    # Its unique key may have been free when we looked, and taken when we wrote: a second look says who has it now. Or
    # what it writes is in order, and the row is not: a constraint tests all of it.
    try:
        mended = yield from _mend(change)
        if not mended and not (isinstance(change, Change) and change.to in LIVE):
            return refused
        return (yield from apply_one(change, time, news))
    except (BadValue, OverflowError, Taken):
        yield "rollback to savepoint treadle_change", ()
        return refused


def _mend(change: Change | QueueChange) -> Talk[bool]:
    """Put right what the Change is to be written to; whether anything was wrong."""
    if isinstance(change, QueueChange):
        return (yield from bounds.mend_queue(change.name))
    mended = rows.is_id(change.id) and (yield from bounds.mend([change.id]))
    if change.cooling is not None:
        mended = (yield from bounds.mend_queue(change.cooling.queue)) or mended
    return mended
