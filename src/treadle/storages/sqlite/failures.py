"""Failures by cause. The newest are found by the index of ended jobs, queue by queue; the cause stands in the job's
last error, so that no finish has to write it a second time. How a job has failed does not change: what was read of one
is remembered for as long as it is among the newest, and only the others are looked up."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from ...core.failure import FailureGroup, Failures, parts_of, ranked
from . import rows
from .rows import Database

_OF_QUEUE: Final = """
select finished_at, seq
from treadle_job indexed by treadle_job_ended
where queue = ? and state = 'failed' and finished_at is not null
"""
_IN_ORDER: Final = "order by finished_at desc, seq desc limit ?"
_FAILED: Final = """
select job.seq, job.id, job.task, job.finished_at, error.entry
from json_each(?1) as chosen
cross join treadle_job as job on job.seq = chosen.value
cross join treadle_job_error as error on error.seq = job.seq and error.n = job.error_count
"""
_SAMPLE: Final = """
select job.id, error.entry
from treadle_job as job
cross join treadle_job_error as error on error.seq = job.seq and error.n = job.error_count
where job.seq = ?
"""
MERGED: Final = 64  # of so many queues SQLite itself makes one list
MOST_KNOWN: Final = 40_000

Known: TypeAlias = tuple[float, str | None, str]
"""When it ended; its cause, unless somebody damaged it; its task."""


class _Said(msgspec.Struct):
    """What makes the cause, of an entry that may be long: the rest is passed over."""

    type: str | None = None
    kind: str | None = None
    place: str | None = None
    message: str | None = None


_as_said: Final = msgspec.json.Decoder(_Said).decode


class _Group(msgspec.Struct):
    task: str
    first_at: float
    last_at: float
    last: int
    count: int = 0


class Causes:
    """The causes of failures that were looked up. Safe for several threads: whoever comes second writes the same."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._texts: dict[str, str] = {}

    def of(self, db: Database, newest: Sequence[tuple[float, int]]) -> Iterator[Known]:
        """In their order."""
        known = self._known
        if len(known) > MOST_KNOWN:
            known = self._known = {seq: known[seq] for _, seq in newest if seq in known}
            self._texts = {}
        nobody = (None,)
        missing = {seq: at for at, seq in newest if known.get(seq, nobody)[0] != at}
        if missing:
            found = dict(self._read(db, list(missing)))
            known.update({seq: found.get(seq, (at, None, "")) for seq, at in missing.items()})
        return (known[seq] for _, seq in newest)

    def _read(self, db: Database, numbers: list[int]) -> Iterator[tuple[int, Known]]:
        texts = self._texts
        for seq, id, task, ended_at, entry in db.execute(_FAILED, (rows.json_text(numbers),)):
            said = _read(entry)
            kind = None if said is None else said.type or said.kind
            if said is not None and kind is not None and isinstance(task, str) and isinstance(id, str):
                cause = f"{task}:{kind}:{said.place or ''}"
                yield seq, (ended_at, texts.setdefault(cause, cause), texts.setdefault(task, task))


def failures(db: Database, causes: Causes, queue: str | None, task: str | None, limit: int, most: int) -> Failures:
    found = _newest(db, queue, task, most + 1)
    newest = found[:most]
    groups: dict[str, _Group] = {}
    # From the newest: the first of a group is its last.
    for (_, seq), (ended_at, cause, name) in zip(newest, causes.of(db, newest), strict=True):
        if cause is None:
            continue
        group = groups.get(cause)
        if group is None:
            group = groups[cause] = _Group(name, ended_at, ended_at, seq)
        group.count += 1
        group.first_at = ended_at
    shown = ranked(_told(groups), limit)
    return Failures(
        groups=tuple(_with_sample(db, each, groups[each.cause].last) for each in shown),
        looked_at=len(newest),
        capped=len(found) > most,
    )


def _newest(db: Database, queue: str | None, task: str | None, most: int) -> list[tuple[float, int]]:
    queues = [queue] if queue is not None else [name for (name,) in db.execute("select name from treadle_queue")]
    sql, given = (_OF_QUEUE, ()) if task is None else (f"{_OF_QUEUE} and task = ?", (task,))
    found: Iterable[Any]
    if not queues:
        return []
    if len(queues) <= MERGED:
        whole = f"{' union all '.join([sql] * len(queues))} {_IN_ORDER}"
        found = db.execute(whole, (*(value for name in queues for value in (name, *given)), most)).fetchall()
    else:
        ends = [db.execute(f"{sql} {_IN_ORDER}", (name, *given, most)) for name in queues]
        found = itertools.islice(heapq.merge(*map(_with_a_time, ends), reverse=True), most)
    return list(_with_a_time(found))


def _told(groups: dict[str, _Group]) -> Iterator[FailureGroup]:
    for cause, group in groups.items():
        type, place = parts_of(cause, group.task)
        yield FailureGroup(
            cause=cause,
            task=group.task,
            type=type,
            place=place,
            count=group.count,
            first_at=group.first_at,
            last_at=group.last_at,
            sample="",
            message="",
        )


def _with_sample(db: Database, group: FailureGroup, last: int) -> FailureGroup:
    """What the last of them said."""
    id, entry = db.execute(_SAMPLE, (last,)).fetchone() or (None, None)
    said = _read(entry)
    if said is None or not isinstance(id, str):
        return group
    return msgspec.structs.replace(group, sample=id, message=said.message or "")


def _with_a_time(found: Iterable[Any]) -> Iterator[tuple[float, int]]:
    return (row for row in found if isinstance(row[0], float))


def _read(entry: object) -> _Said | None:
    try:
        return _as_said(entry) if isinstance(entry, str) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
