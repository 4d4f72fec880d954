"""Schedules in the reference storage: `core.firing` decides, with the row held."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ...core import firing
from ...core.audit import AuditLine
from ...core.firing import RECORDS_KEPT, Fire, Fired, FireRecord
from ...core.job import LIVE, NewJob
from ...core.schedule import Progress, Schedule
from ...ports import Clock, Inserted, Wake
from .operations import keep_line


class MemorySchedules:
    _clock: Clock
    _lock: threading.RLock
    _rows: dict[str, Any]
    _audit: dict[str, AuditLine]

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}
        self._fires: dict[str, dict[float | str, FireRecord]] = {}  # by schedule, and by what there is one of

    def _insert(self, new: NewJob, now: float) -> Inserted:
        raise NotImplementedError  # the storage's own

    def _tell(self, wake: Wake) -> None:
        raise NotImplementedError

    async def schedules(self) -> tuple[float, Sequence[Schedule]]:
        with self._lock:
            return self._clock.now(), [schedule for _, schedule in sorted(self._schedules.items())]

    async def save_schedule(
        self, schedule: Schedule, expected_version: int, *, cursor: float | None = None, line: AuditLine | None = None
    ) -> bool:
        with self._lock:
            row = self._schedules.get(schedule.name)
            if (row.version if row else 0) != expected_version:
                # Sent again after a lost answer, it finds its own work.
                return row is not None and replace(row, progress=Progress()) == replace(schedule, progress=Progress())
            if row is not None:
                progress = row.progress if cursor is None else replace(row.progress, cursor=cursor)
                schedule = replace(schedule, progress=progress)
            self._schedules[schedule.name] = schedule
            keep_line(self._audit, line, self._clock.now())
            return True

    async def fire(self, wish: Fire) -> Fired:
        with self._lock:
            now = self._clock.now()
            row = self._schedules.get(wish.name)
            records = self._fires.setdefault(wish.name, {})
            settled = firing.settle(row, wish, self._still_live(row), records)
            if row is None or settled.final:
                return settled.told()
            jobs = [self._insert(shot.job, now).id for shot in settled.shots]
            new, progress = firing.written(row, wish, settled, jobs, now)
            records |= {record.key: record for record in new}
            if firing.sweeps(row.progress, progress):
                self._fires[wish.name] = {record.key: record for record in _newest_first(records)[:RECORDS_KEPT]}
            self._schedules[wish.name] = replace(row, progress=progress)
        self._tell(Wake(queues=frozenset(shot.job.queue for shot in settled.shots)))
        return settled.told(jobs)

    def _still_live(self, row: Schedule | None) -> set[str]:
        jobs = () if row is None else row.progress.live
        return {id for id in jobs if id in self._rows and self._rows[id].job.state in LIVE}

    async def fires(self, name: str, limit: int = 100) -> Sequence[FireRecord]:
        with self._lock:
            return _newest_first(self._fires.get(name, {}))[:limit]


def _newest_first(records: Mapping[float | str, FireRecord]) -> list[FireRecord]:
    return sorted(records.values(), key=lambda record: record.fire_at, reverse=True)
