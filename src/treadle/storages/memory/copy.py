"""Rows out of and into the reference storage."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from ...core import record as records
from ...core.job import LIVE, Job, State
from ...core.queue import Queue
from ...core.record import Record
from ...ports import Dumped, Loaded

_BAD = (msgspec.ValidationError, KeyError, TypeError)


class MemoryCopy:
    """Queues, jobs, and the keys that a success goes on holding: what the suite speaks of. What does not survive its
    process is never copied, so the tables that join by their names have no records here."""

    _lock: threading.RLock
    _rows: dict[str, Any]
    _keys: dict[str, str]
    _held: dict[str, tuple[str, float]]
    _queues: dict[str, Queue]
    _seq: itertools.count[int]

    def kinds(self) -> Sequence[str]:
        return ("queue", "job", "held")

    async def dump(self, kind: str, cursor: str | None = None, limit: int = 500) -> Dumped:
        with self._lock:
            found = self._records(kind)
        start = int(cursor or 0)
        page = found[start : start + limit]
        return Dumped(page, str(start + limit) if start + limit < len(found) else None)

    def _records(self, kind: str) -> list[Record]:
        if kind == "job":
            rows = sorted(self._rows.values(), key=lambda row: row.seq)
            return [self._job_record(row) for row in rows]
        if kind == "queue":
            return [msgspec.to_builtins(queue) for _, queue in sorted(self._queues.items())]
        if kind == "held":
            return [{"key": key, "id": id, "until": until} for key, (id, until) in sorted(self._held.items())]
        raise ValueError(f'there is no kind "{kind}"; there are {", ".join(self.kinds())}')

    def _job_record(self, row: Any) -> Record:
        return {**msgspec.to_builtins(row.job), "seq": row.seq, "finished_token": row.finished_token}

    async def load(self, kind: str, records: Sequence[Record]) -> Sequence[Loaded]:
        with self._lock:
            return [self._load(kind, record) for record in records]

    def _load(self, kind: str, record: Record) -> Loaded:
        try:
            if kind == "job":
                return self._load_job(record)
            if kind == "queue":
                return self._load_queue(record)
            return self._load_held(record)
        except _BAD as error:
            return Loaded("refused", f"{type(error).__name__}: {error}")

    def _load_queue(self, record: Record) -> Loaded:
        queue = msgspec.convert(record, Queue)
        there = self._queues.get(queue.name)
        if there is not None:
            compared = _compared(msgspec.to_builtins(there), record)
            if compared.outcome == "same" or there.version != 0:
                return compared
        self._queues[queue.name] = queue
        return Loaded("written")

    def _load_held(self, record: Record) -> Loaded:
        key = record["key"]
        if key in self._held:
            id, until = self._held[key]
            return _compared({"key": key, "id": id, "until": until}, record)
        self._held[key] = (record["id"], record["until"])
        return Loaded("written")

    def _load_job(self, record: Record) -> Loaded:
        there = self._rows.get(record["id"])
        if there is not None:
            return _compared(self._job_record(there), record)
        fields = {name: value for name, value in record.items() if name in Job.__struct_fields__ and value is not None}
        job = msgspec.convert({**fields, "tags": fields.get("tags", ())}, Job, strict=False)
        if job.state is State.SCHEDULED:
            return Loaded("refused", "there is no state 'scheduled'")
        if job.unique_key is not None and job.state in LIVE:
            if job.unique_key in self._keys:
                return Loaded("refused", f"another job holds its unique key {job.unique_key}")
            self._keys[job.unique_key] = job.id
        taken = {row.seq for row in self._rows.values()}
        place = record.get("seq")
        if place is None or place in taken:
            place = max(taken, default=0) + 1
        self._add_row(self._a_row(job, place, record.get("finished_token")))
        self._seq = itertools.count(max([place, *taken]) + 1)
        self._queues.setdefault(job.queue, Queue(name=job.queue))
        return Loaded("written")

    def _a_row(self, job: Job, seq: int, finished_token: str | None) -> Any:
        raise NotImplementedError

    def _add_row(self, row: Any) -> None:
        raise NotImplementedError


def _compared(there: Record, record: Record) -> Loaded:
    differing = records.differing(there, record)
    return Loaded("differs", ", ".join(differing)) if differing else Loaded("same")
