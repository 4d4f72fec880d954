"""Rows and values: how a Job, a Queue and a Pod look in the tables, and back.

SQLite keeps any type in any column, and anybody may write to the file. A row that no code of ours can have written is
read all the same, with a plain value in place of each one that makes no sense: a bad row must not keep its neighbours
from being read. Whether it may run is another question (`claim`).
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from ...core import settings
from ...core.job import ErrorEntry, Job, State
from ...core.pod import PodCard, PodStats, Wish
from ...core.queue import Queue
from ..shared.nearest import countable, maybe_within, within
from .sql import JOB_COLUMNS, QUEUE_COLUMNS

RowTuple: TypeAlias = tuple[Any, ...]


class Database(Protocol):
    """What statements run on: our own connection, or one that was borrowed from the caller."""

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> sqlite3.Cursor: ...


_MOST: Final = 1 << 31  # what is there or beyond is not run (`take`)
_STATES: Final[dict[str, State]] = {state.value: state for state in State}
_as_tags: Final = msgspec.json.Decoder(tuple[str, ...]).decode
_as_entry: Final = msgspec.json.Decoder(ErrorEntry).decode
_WISHES: Final[dict[str, Wish]] = {"quiet": "quiet", "stop": "stop"}
_as_stats: Final = msgspec.json.Decoder(PodStats).decode
_as_card: Final = msgspec.json.Decoder(PodCard).decode
_to_json: Final = msgspec.json.Encoder().encode
_UNREADABLE: Final = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)


class Shape:
    """Which types the columns of a row may have, and what is read instead of any other."""

    def __init__(self, columns: str) -> None:
        names = columns.split(", ")
        self._allowed = [_ALLOWED.get(name, _MAYBE_TEXT) for name in names]
        self._instead = [_INSTEAD.get(name, _instead(each)) for name, each in zip(names, self._allowed, strict=True)]
        self._sound: set[tuple[type, ...]] = set()  # most rows look alike: what was found sound is remembered

    def fits(self, row: RowTuple) -> bool:
        types = tuple(map(type, row))
        if types in self._sound:
            return True
        if any(kind not in allowed for kind, allowed in zip(types, self._allowed, strict=True)):
            return False
        self._sound.add(types)
        return True

    def mended(self, row: RowTuple) -> RowTuple:
        return tuple(
            value if type(value) in allowed else _text(value) if str in allowed else instead
            for value, allowed, instead in zip(row, self._allowed, self._instead, strict=True)
        )


def _instead(allowed: frozenset[type]) -> Any:
    return None if type(None) in allowed else 0


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


_MAYBE: Final = frozenset({type(None)})
_WHOLE: Final = frozenset({int})
_REAL: Final = frozenset({float, int})  # RETURNING gives a whole number as it is stored
_TEXT: Final = frozenset({str})
_MAYBE_TEXT: Final = _TEXT | _MAYBE
_ALLOWED: Final = {
    **dict.fromkeys(["id", "task", "queue", "state", "args", "name", "card", "boot"], _TEXT),
    **dict.fromkeys(["seq", "format", "priority", "attempt", "pinned", "crashes", "snoozes", "throttles"], _WHOLE),
    **dict.fromkeys(
        ["cancel_wanted", "error_count", "has_more", "version", "paused", "cool_exponent", "lost", "running"], _WHOLE
    ),
    **dict.fromkeys(["max_attempts", "max_workers"], _WHOLE | _MAYBE),
    **dict.fromkeys(["run_at", "created_at", "beat_at", "lease_until"], _REAL),
    **dict.fromkeys(
        [
            "timeout",
            "started_at",
            "deadline",
            "finished_at",
            "paused_at",
            "paused_until",
            "cool_until",
            "stacks_at",
            "stacks_asked",
        ],
        _REAL | _MAYBE,
    ),
}
_INSTEAD: Final = {"run_at": math.inf}  # without a time it is never due
_JOB: Final = Shape(JOB_COLUMNS)
_QUEUE: Final = Shape(QUEUE_COLUMNS)
_POD: Final = Shape(
    "id, card, created_at, beat_at, lease_until, boot, lost, running, stats, wish, wish_by, stacks, stacks_at, "
    "stacks_asked"
)
_ID: Final = 1
_STATE: Final = 4


def is_sound(row: RowTuple) -> bool:
    """Whether every value in a row of JOB_COLUMNS has the type that we give it."""
    return _JOB.fits(row)


def job_of(row: RowTuple, now: float, errors: tuple[ErrorEntry, ...] = ()) -> Job | None:
    """The Job in a row of JOB_COLUMNS, as a reader sees it; None if it has no name to ask by. A state that is none of
    ours is read as failed, so that the job can be seen, removed and revived."""
    state = _STATES.get(row[_STATE]) if isinstance(row[_STATE], str) else None
    if not _JOB.fits(row):
        if not isinstance(row[_ID], str):
            return None
        row = _JOB.mended(row)
    (
        _seq, id, task, queue, state_text, args, format, priority, run_at, created_at, attempt, max_attempts, timeout,
        pinned, tags, meta, reason, unique_key, pod, slot, token, started_at, deadline, finished_at, crashes, snoozes,
        throttles, cancel_wanted, result, warning, kept, error_count,
    ) = row  # fmt: skip
    if state is None:
        state = State.FAILED
        warning = (
            f"its row in the database is damaged: its state is {state_text[:40]!r}, which no version of Treadle writes"
        )
    if state is State.READY and run_at > now:
        state = State.SCHEDULED
    return Job(
        id=id,
        task=task,
        queue=queue,
        state=state,
        args=args,
        format=format,
        priority=priority,
        run_at=within(run_at),
        created_at=within(created_at),
        attempt=countable(attempt, -_MOST, _MOST),
        max_attempts=max_attempts,
        timeout=timeout,
        pinned=bool(pinned),
        tags=tags_of(tags) if tags is not None else (),
        meta=meta,
        reason=reason,
        unique_key=unique_key,
        kept=kept,
        pod=pod,
        slot=slot,
        token=token,
        started_at=maybe_within(started_at),
        deadline=maybe_within(deadline),
        finished_at=maybe_within(finished_at),
        crashes=countable(crashes, -_MOST, _MOST),
        snoozes=countable(snoozes, -_MOST, _MOST),
        throttles=countable(throttles, -_MOST, _MOST),
        cancel_wanted=bool(cancel_wanted),
        result=result,
        warning=warning,
        error_count=countable(error_count, -_MOST, _MOST),
        errors=errors,
    )


def tags_of(text: str) -> tuple[str, ...]:
    try:
        return _as_tags(text)
    except _UNREADABLE:
        return ()  # a row that somebody damaged must not keep its neighbours from being read


def tags_text(tags: tuple[str, ...]) -> str | None:
    return json_text(tags) if tags else None


def entry_text(entry: ErrorEntry) -> str:
    return json_text(entry)


def entry_of(text: str) -> ErrorEntry:
    try:
        return _as_entry(text)
    except _UNREADABLE:
        return ErrorEntry(attempt=0, kind="error", message="this entry of the history cannot be read")


def json_text(value: object) -> str:
    return _to_json(value).decode()


def card_text(card: PodCard) -> str:
    return json_text(card)


def card_of(id: str, text: str) -> PodCard:
    """The card of a pod. One that cannot be read still has its id: by that its jobs are rescued."""
    try:
        return msgspec.structs.replace(_as_card(text), id=id)
    except _UNREADABLE:
        return PodCard(id=id, label=id, host="?", pid=0, version="?", queues={}, tasks=(), lease=0.0)


def stats_of(text: object) -> PodStats | None:
    try:
        return _as_stats(text) if isinstance(text, str) else None
    except _UNREADABLE:
        return None


def wish_of(text: object) -> Wish:
    return _WISHES.get(text, "serve") if isinstance(text, str) else "serve"


def pod_row(row: RowTuple) -> RowTuple:
    return row if _POD.fits(row) else _POD.mended(row)


def queue_of(row: RowTuple) -> Queue:
    """The Queue in a row of QUEUE_COLUMNS."""
    if not _QUEUE.fits(row):
        row = _QUEUE.mended(row)
    (
        name, version, paused, paused_by, paused_at, pause_reason, paused_until, max_workers, cool_until, exponent,
        settings_text,
    ) = row  # fmt: skip
    return Queue(
        name=name,
        version=version,
        paused=bool(paused),
        paused_by=paused_by,
        paused_at=paused_at,
        pause_reason=pause_reason,
        paused_until=paused_until,
        max_workers=max_workers,
        cool_until=cool_until,
        cool_exponent=exponent,
        **({} if settings_text is None else settings.of_text(settings_text)),
    )


def queue_values(queue: Queue) -> RowTuple:
    """A Queue as a row of QUEUE_COLUMNS."""
    return (
        queue.name, queue.version, queue.paused, queue.paused_by, queue.paused_at, queue.pause_reason,
        queue.paused_until, queue.max_workers, queue.cool_until, queue.cool_exponent, settings.text_of(queue),
    )  # fmt: skip


def last_errors(db: Database, counts: Iterable[tuple[int, int]]) -> dict[int, tuple[ErrorEntry, ...]]:
    """The last error of each (seq, error_count), by seq. Jobs without errors cost nothing."""
    found: dict[int, tuple[ErrorEntry, ...]] = {}
    for seq, count in counts:
        if count:
            row = db.execute("select entry from treadle_job_error where seq = ? and n = ?", (seq, count)).fetchone()
            if row is not None:
                found[seq] = (entry_of(row[0]),)
    return found


def all_errors(db: Database, seq: int) -> tuple[ErrorEntry, ...]:
    """Every error that is kept of one job, oldest first."""
    rows = db.execute("select entry from treadle_job_error where seq = ? order by n", (seq,))
    return tuple(entry_of(text) for (text,) in rows)


def jobs_of(db: Database, rows: Sequence[RowTuple], now: float) -> list[Job]:
    """Jobs with their last error, in the order of the rows."""
    errors = last_errors(db, ((row[0], row[-1]) for row in rows))
    jobs = (job_of(row, now, errors.get(row[0], ())) for row in rows)
    return [job for job in jobs if job is not None]
