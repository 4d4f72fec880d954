"""Rows and values: how a Job, a Queue and a Pod come out of the tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from ...core import settings
from ...core.job import ErrorEntry, Job, NewJob, State
from ...core.pod import PodCard, PodStats, Wish
from ...core.queue import Queue
from ..shared.nearest import countable, maybe_within, within
from .talk import Row

UNKNOWN_STATE: Final = "its row in the database is damaged: its state is {!r}, which no version of Treadle writes"
_MOST: Final = 1_000_000_000  # within the bounds, with room to count on
_STATES: Final[dict[str, State]] = {state.value: state for state in State}
_as_entry: Final = msgspec.json.Decoder(ErrorEntry).decode
# When an entry was written, and its text. An instant that is infinite, as JSON has it, is a text.
Entry: TypeAlias = tuple[float | str, str]
_as_entries: Final = msgspec.json.Decoder(tuple[Entry, ...]).decode
_as_card: Final = msgspec.json.Decoder(PodCard).decode
_as_stats: Final = msgspec.json.Decoder(PodStats).decode
_WISHES: Final[dict[str, Wish]] = {"quiet": "quiet", "stop": "stop"}
_to_json: Final = msgspec.json.Encoder().encode


def job_of(row: Row) -> Job:
    """The Job in a row of sql.JOB or sql.HISTORY. One that holds what no code of ours can have written (see `bounds`)
    is read all the same: a state that is none of ours as failed, so that it can be seen, removed and revived."""
    (
        _seq, id, task, queue, state, args, format, priority, run_at, created_at, attempt, max_attempts, timeout,
        pinned, tags, meta, reason, unique_key, pod, slot, token, started_at, deadline, finished_at, crashes, snoozes,
        throttles, cancel_wanted, result, warning, kept, error_count, errors,
    ) = row  # fmt: skip
    known = _STATES.get(state)
    if known is None:
        warning = UNKNOWN_STATE.format(state[:40])
    return Job(
        id=id,
        task=task,
        queue=queue,
        state=known or State.FAILED,
        args=args,
        format=format,
        priority=priority,
        run_at=within(run_at),
        created_at=within(created_at),
        attempt=countable(attempt, 0, _MOST),
        max_attempts=max_attempts,
        timeout=timeout,
        pinned=pinned,
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if tags else (),
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
        crashes=countable(crashes, 0, _MOST),
        snoozes=countable(snoozes, 0, _MOST),
        throttles=countable(throttles, 0, _MOST),
        cancel_wanted=cancel_wanted,
        result=result,
        warning=warning,
        error_count=countable(error_count, 0, _MOST),
        errors=entries_of(_as_entries(errors)) if errors else (),
    )


def entries_of(found: Iterable[Entry]) -> tuple[ErrorEntry, ...]:
    return tuple(entry_of(ended_at, text) for ended_at, text in found)


def entry_of(ended_at: float | str, text: str) -> ErrorEntry:
    try:
        return msgspec.structs.replace(_as_entry(text), ended_at=None if isinstance(ended_at, str) else ended_at)
    except (msgspec.DecodeError, TypeError):
        return ErrorEntry(attempt=0, kind="error", message="this entry of the history cannot be read")


def entry_text(entry: ErrorEntry) -> str:
    # ended_at has a column of its own: the storage's clock writes it.
    return json_text(msgspec.structs.replace(entry, ended_at=None))


def json_text(value: object) -> str:
    return _to_json(value).decode()


def card_text(card: PodCard) -> str:
    return json_text(card)


def card_of(id: str, text: str) -> PodCard:
    """The card of a pod. One that cannot be read still has its id: by that its jobs are rescued."""
    try:
        return msgspec.structs.replace(_as_card(text), id=id)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return PodCard(id=id, label=id, host="?", pid=0, version="?", queues={}, tasks=(), lease=0.0)


def stats_of(text: str | None) -> PodStats | None:
    try:
        return None if text is None else _as_stats(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def wish_of(text: str) -> Wish:
    return _WISHES.get(text, "serve")


def queue_of(row: Row) -> Queue:
    """The Queue in a row of sql.QUEUE."""
    (
        name, version, paused, paused_by, paused_at, pause_reason, paused_until, max_workers, cool_until, exponent,
        aging, timeout, text,
    ) = row  # fmt: skip
    live: Mapping[str, Any] = {} if text is None else settings.of_text(text)
    return Queue(
        name=name,
        version=version,
        paused=paused,
        paused_by=paused_by,
        paused_at=paused_at,
        pause_reason=pause_reason,
        paused_until=paused_until,
        max_workers=max_workers,
        cool_until=cool_until,
        cool_exponent=exponent,
        **{**live, "aging": aging, "timeout": timeout},  # the columns are what the claim goes by
    )


def ids_of(ids: Iterable[str]) -> list[str]:
    """Those that can be ids at all: every other one is unknown, and no error."""
    return [id for id in ids if is_id(id)]


_is_id: Final = re.compile("[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}").fullmatch


_unstorable: Final = re.compile("[\x00\ud800-\udfff]").search


def is_text(*texts: str | None) -> bool:
    """Whether the database could hold them. What it cannot hold is nowhere in it, and need not be asked for."""
    return all(text is None or _unstorable(text) is None for text in texts)


def is_id(text: str) -> bool:
    return _is_id(text) is not None


def array_text(tags: Sequence[str]) -> str | None:
    """Tags as the text of a PostgreSQL array: lists of different lengths cannot travel as one array of arrays."""
    if not tags:
        return None
    quoted = (tag.replace("\\", "\\\\").replace('"', '\\"') for tag in tags)
    return "{" + ",".join(f'"{tag}"' for tag in quoted) + "}"


def columns_of(jobs: Sequence[NewJob]) -> list[list[Any] | None]:
    """The jobs as the arrays that insert_1 and insert_keyed_2 begin with. A column in which nothing is said is null."""
    return [
        [new.id for new in jobs],
        [new.queue for new in jobs],
        [new.task for new in jobs],
        [new.args for new in jobs],
        _unless_all([new.priority for new in jobs], 0),
        _unless_all([new.delay for new in jobs], 0.0),
        _unless_all([new.run_at for new in jobs], None),
        _unless_all([new.max_attempts for new in jobs], None),
        _unless_all([new.timeout for new in jobs], None),
        _unless_all([new.pinned for new in jobs], False),
        _unless_all([new.format for new in jobs], 1),
        _unless_all([array_text(new.tags) for new in jobs], None),
        _unless_all([new.meta for new in jobs], None),
        _unless_all([new.reason for new in jobs], None),
    ]


def values_of(new: NewJob) -> tuple[Any, ...]:
    """One job as insert_one_1 takes it."""
    return (
        new.id, new.queue, new.task, new.args, new.priority, new.delay or None, new.run_at, new.max_attempts,
        new.timeout, new.pinned, new.format, array_text(new.tags), new.meta, new.reason,
    )  # fmt: skip


def _unless_all(values: list[Any], usual: object) -> list[Any] | None:
    return None if values.count(usual) == len(values) else values
