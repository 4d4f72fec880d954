"""Failures by cause. The newest are found by the index of ended jobs, queue by queue, and what waits for a retry by its
own index, of each task in turn; the cause stands in the job's last error, so that no finish has to write it a second
time. What was read of a job is remembered for as long as it is among these, and only the others are looked up: how a
job has failed does not change, and an attempt that fails once more gives the retry another time."""

# ruff: noqa: S608 - the SQL is put together from our own parts

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from ...core.failure import FailureGroup, Failures, Sighting, by_turns, group
from ...core.job import ERRORS_KEPT
from . import rows
from .rows import Database
from .sql import statement

T = TypeVar("T")

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
# With the first error that is kept of it: since when it fails for the same reason.
_RETRIES: Final = f"""
select job.seq, job.task, error.entry, earlier.entry
from json_each(?1) as chosen
cross join treadle_job as job on job.seq = chosen.value
cross join treadle_job_error as error on error.seq = job.seq and error.n = job.error_count
cross join treadle_job_error as earlier
    on earlier.seq = job.seq and earlier.n = max(1, job.error_count - {ERRORS_KEPT - 1})
"""
_SAMPLE: Final = """
select job.id, error.entry
from treadle_job as job
cross join treadle_job_error as error on error.seq = job.seq and error.n = job.error_count
where job.seq = ?
"""
MERGED: Final = 64  # of so many queues SQLite itself makes one list
MOST_KNOWN: Final = 40_000
NEVER_SEQ: Final = (1 << 63) - 1  # of the very instant there is nothing more: those are due

Ended: TypeAlias = tuple[float, int]
"""When a job ended, and its number: one that failed once more is another."""

Retry: TypeAlias = tuple[float, int]
"""When a job is tried again, and its number."""


class _Said(msgspec.Struct):
    """What makes the cause, of an entry that may be long: the rest is passed over."""

    type: str | None = None
    kind: str | None = None
    place: str | None = None
    message: str | None = None
    ended_at: float | None = None

    def cause(self, task: str) -> str | None:
        kind = self.type or self.kind
        return None if kind is None else f"{task}:{kind}:{self.place or ''}"


_as_said: Final = msgspec.json.Decoder(_Said).decode


class Causes:
    """The causes that were looked up. Safe for several threads: whoever comes second writes the same."""

    def __init__(self) -> None:
        self._failed: dict[Ended, Sighting | None] = {}
        self._retries: dict[Retry, Sighting | None] = {}
        self._texts: dict[str, str] = {}

    def of(self, db: Database, newest: Sequence[Ended]) -> list[Sighting]:
        """Of those that failed."""
        self._failed = self._kept(self._failed, newest)
        ends = {seq: at for at, seq in newest}
        known = _looked_up(self._failed, newest, lambda numbers: dict(self._read(db, numbers, ends)), None)
        return [each for each in known if each is not None]

    def of_retries(self, db: Database, retries: Sequence[Retry]) -> list[Sighting]:
        self._retries = self._kept(self._retries, retries)
        known = _looked_up(self._retries, retries, lambda numbers: dict(self._read_retries(db, numbers)), None)
        return [each for each in known if each is not None]

    def _kept(
        self, known: dict[tuple[float, int], T], asked: Sequence[tuple[float, int]]
    ) -> dict[tuple[float, int], T]:
        if len(known) <= MOST_KNOWN:
            return known
        self._texts = {}
        return {each: known[each] for each in asked if each in known}

    def _read(self, db: Database, numbers: list[int], ends: dict[int, float]) -> Iterator[tuple[int, Sighting]]:
        for seq, id, task, entry in db.execute(_FAILED, (rows.json_text(numbers),)):
            said = _read(entry)
            cause = said.cause(task) if said is not None and isinstance(task, str) and isinstance(id, str) else None
            if cause is not None:
                yield seq, Sighting(self._text(cause), self._text(task), ends[seq], ends[seq], sample=seq)

    def _read_retries(self, db: Database, numbers: list[int]) -> Iterator[tuple[int, Sighting]]:
        for seq, task, entry, earlier in db.execute(_RETRIES, (rows.json_text(numbers),)):
            said, first = _read(entry), _read(earlier)
            if said is None or said.ended_at is None or not isinstance(task, str):
                continue
            if (cause := said.cause(task)) is not None:
                began = said.ended_at
                if first is not None and first.ended_at is not None and first.cause(task) == cause:
                    began = min(began, first.ended_at)
                yield seq, Sighting(self._text(cause), self._text(task), began, said.ended_at, True, 1, seq)

    def _text(self, text: str) -> str:
        return self._texts.setdefault(text, text)


def _looked_up(
    known: dict[tuple[float, int], T],
    asked: Sequence[tuple[float, int]],
    read: Callable[[list[int]], dict[int, T]],
    nothing: T,
) -> list[T]:
    """In their order."""
    missing = [each for each in asked if each not in known]
    if missing:
        found = read([seq for _, seq in missing])
        known.update({each: found.get(each[1], nothing) for each in missing})
    return [known[each] for each in asked]


def failures(
    db: Database, causes: Causes, queue: str | None, task: str | None, limit: int, most: int, now: float
) -> Failures:
    found = _newest(db, queue, task, most + 1)
    newest = found[:most]
    retries = _retries(db, queue, task, most + 1, now)
    seen = [*causes.of(db, newest), *causes.of_retries(db, retries[:most])]
    return Failures(
        groups=tuple(_with_sample(db, each, cast("int", last)) for each, last in group(seen, limit)),
        looked_at=len(newest) + min(most, len(retries)),
        capped=len(found) > most or len(retries) > most,
        known_since=newest[-1][0] if len(found) > most else None,
        all_retries=len(retries) <= most,
    )


def _retries(db: Database, queue: str | None, task: str | None, most: int, now: float) -> list[Retry]:
    """What waits for its retry, of each queue and task the next ones in turn."""
    queues = [queue] if queue is not None else _queues(db)
    keys = [
        (name, head)
        for name in queues
        for head, later in db.execute(statement("retry_heads"), (name, now)).fetchall()
        if task in (None, head) and isinstance(later, float)
    ]
    found: dict[tuple[str, str], list[Retry]] = {key: [] for key in keys}
    # More of those that have more, for as long as there is room.
    sizes = dict.fromkeys(keys, 0)
    while open_ends := [key for key in keys if len(found[key]) == sizes[key]]:
        room = most - sum(map(len, found.values()))
        if room <= 0:
            break
        for key in open_ends:
            sizes[key] += -(-room // len(open_ends))
            rows_of = db.execute(statement("upcoming_retries"), (*key, now, NEVER_SEQ, sizes[key])).fetchall()
            found[key] = [row for row in rows_of if isinstance(row[0], float)]
    return by_turns(list(found.values()), most)


def _newest(db: Database, queue: str | None, task: str | None, most: int) -> list[Ended]:
    queues = [queue] if queue is not None else _queues(db)
    sql, given = (_OF_QUEUE, ()) if task is None else (f"{_OF_QUEUE} and task = ?", (task,))
    if not queues:
        return []
    if len(queues) <= MERGED:
        whole = f"{' union all '.join([sql] * len(queues))} {_IN_ORDER}"
        return db.execute(whole, (*(value for name in queues for value in (name, *given)), most)).fetchall()
    ends: list[Any] = [db.execute(f"{sql} {_IN_ORDER}", (name, *given, most)) for name in queues]
    return list(itertools.islice(heapq.merge(*ends, reverse=True), most))


def _queues(db: Database) -> list[str]:
    return [name for (name,) in db.execute("select name from treadle_queue")]


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
