"""Failures by cause. The newest are found by the index of ended jobs, queue by queue; the cause stands in the job's
last error, so that no finish has to write it a second time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ...core.failure import FailureGroup, Failures, parts_of, ranked
from . import rows
from .rows import Database

_NEWEST: Final = """
select finished_at, seq
from treadle_job indexed by treadle_job_ended
where queue = ?1 and state = 'failed' and finished_at is not null and (?2 is null or task = ?2)
order by finished_at desc, seq desc
limit ?3
"""
_FAILED: Final = """
select job.id, job.task, job.finished_at, error.entry
from json_each(?1) as chosen
cross join treadle_job as job on job.seq = chosen.value
cross join treadle_job_error as error on error.seq = job.seq and error.n = job.error_count
"""


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
    sample: str
    message: str
    count: int = 0


def failures(db: Database, queue: str | None, task: str | None, limit: int, most: int) -> Failures:
    queues = [queue] if queue is not None else [name for (name,) in db.execute("select name from treadle_queue")]
    ends = [_with_a_time(db.execute(_NEWEST, (name, task, most + 1))) for name in queues]
    newest = [seq for _, seq in itertools.islice(heapq.merge(*ends, reverse=True), most + 1)]
    groups: dict[str, _Group] = {}
    # From the newest: the first of a group is its last.
    for id, name, ended_at, entry in db.execute(_FAILED, (rows.json_text(newest[:most]),)):
        said = _read(entry)
        kind = None if said is None else said.type or said.kind
        if said is None or kind is None or not isinstance(name, str) or not isinstance(id, str):
            continue  # somebody damaged it
        cause = f"{name}:{kind}:{said.place or ''}"
        group = groups.get(cause)
        if group is None:
            group = groups[cause] = _Group(name, ended_at, ended_at, id, said.message or "")
        group.count += 1
        group.first_at = ended_at
    return Failures(groups=ranked(_told(groups), limit), looked_at=len(newest[:most]), capped=len(newest) > most)


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
            sample=group.sample,
            message=group.message,
        )


def _with_a_time(found: Iterator[Any]) -> Iterator[tuple[float, int]]:
    return (row for row in found if isinstance(row[0], float))


def _read(entry: object) -> _Said | None:
    try:
        return _as_said(entry) if isinstance(entry, str) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
