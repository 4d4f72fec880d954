"""Failures by cause. The newest are found by the index of ended jobs, queue by queue; the cause stands in the job's
last error, so that no finish has to write it a second time. How a job has failed does not change: what was read of one
is remembered for as long as it is among the newest, and only the others are looked up."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from ...core.failure import FailureGroup, Failures, parts_of, ranked
from . import rows
from .rows import Database

_OF_QUEUE: Final = """
select finished_at, seq
from treadle_job indexed by treadle_job_ended
where queue = ? and state = 'failed' and finished_at is not null and typeof(finished_at) = 'real'
"""
_IN_ORDER: Final = "order by finished_at desc, seq desc limit ?"
_FAILED: Final = """
select job.seq, job.id, job.task, error.entry
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

Ended: TypeAlias = tuple[float, int]
"""When a job ended, and its number: one that failed once more is another."""

Known: TypeAlias = tuple[str | None, str]
"""Its cause, unless somebody damaged it; its task."""

NOTHING: Final[Known] = (None, "")


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
    count: int


class Causes:
    """The causes of failures that were looked up. Safe for several threads: whoever comes second writes the same."""

    def __init__(self) -> None:
        self._known: dict[Ended, Known] = {}
        self._texts: dict[str, str] = {}

    def of(self, db: Database, newest: Sequence[Ended]) -> list[Known]:
        """In their order."""
        known = self._known
        if len(known) > MOST_KNOWN:
            known = self._known = {ended: known[ended] for ended in newest if ended in known}
            self._texts = {}
        answer = list(map(known.get, newest))
        if None in answer:
            missing = [ended for ended, each in zip(newest, answer, strict=True) if each is None]
            found = dict(self._read(db, [seq for _, seq in missing]))
            known.update({ended: found.get(ended[1], NOTHING) for ended in missing})
            answer = list(map(known.get, newest))
        return cast("list[Known]", answer)

    def _read(self, db: Database, numbers: list[int]) -> Iterator[tuple[int, Known]]:
        texts = self._texts
        for seq, id, task, entry in db.execute(_FAILED, (rows.json_text(numbers),)):
            said = _read(entry)
            kind = None if said is None else said.type or said.kind
            if said is not None and kind is not None and isinstance(task, str) and isinstance(id, str):
                cause = f"{task}:{kind}:{said.place or ''}"
                yield seq, (texts.setdefault(cause, cause), texts.setdefault(task, task))


def failures(db: Database, causes: Causes, queue: str | None, task: str | None, limit: int, most: int) -> Failures:
    found = _newest(db, queue, task, most + 1)
    newest = found[:most]
    groups = _grouped(newest, causes.of(db, newest))
    shown = ranked(_told(groups), limit)
    return Failures(
        groups=tuple(_with_sample(db, each, groups[each.cause].last) for each in shown),
        looked_at=len(newest),
        capped=len(found) > most,
    )


def _grouped(newest: Sequence[Ended], known: Sequence[Known]) -> dict[str, _Group]:
    """By cause. There may be ten thousand of them for every look at a page: no step of Python for each."""
    causes = [cause for cause, _ in known]
    tasks = dict(zip(causes, known, strict=True))
    # Of several with one key a dict keeps the last: the oldest, and from behind the newest.
    first = dict(zip(causes, newest, strict=True))
    last = dict(zip(reversed(causes), reversed(newest), strict=True))
    return {
        cause: _Group(tasks[cause][1], first[cause][0], *last[cause], count)
        for cause, count in Counter(causes).items()
        if cause is not None
    }


def _newest(db: Database, queue: str | None, task: str | None, most: int) -> list[Ended]:
    queues = [queue] if queue is not None else [name for (name,) in db.execute("select name from treadle_queue")]
    sql, given = (_OF_QUEUE, ()) if task is None else (f"{_OF_QUEUE} and task = ?", (task,))
    if not queues:
        return []
    if len(queues) <= MERGED:
        whole = f"{' union all '.join([sql] * len(queues))} {_IN_ORDER}"
        return db.execute(whole, (*(value for name in queues for value in (name, *given)), most)).fetchall()
    ends: list[Any] = [db.execute(f"{sql} {_IN_ORDER}", (name, *given, most)) for name in queues]
    return list(itertools.islice(heapq.merge(*ends, reverse=True), most))


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


def _read(entry: object) -> _Said | None:
    try:
        return _as_said(entry) if isinstance(entry, str) else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
