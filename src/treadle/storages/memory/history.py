"""History in memory: roll-ups, readings and the lines of timelines."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ...core.blocker import Blocker
from ...core.event import MOST_LINES, Event
from ...core.reading import Reading
from ...core.rollup import RESOLUTION_OF, Rollup, What
from ...ports import Clock, Vitals

if TYPE_CHECKING:
    from .storage import _Row  # pyright: ignore[reportPrivateUsage]


class Kept(Struct):
    """All history. Rows are copied on their way in and out: a roll-up goes on counting where it came from."""

    rollups: dict[tuple[int, float, str, str, str], Rollup] = {}
    readings: dict[tuple[int, float, str], Reading] = {}
    events: dict[str, dict[str, Event]] = {}  # job → id → line


class MemoryHistory:
    """The verbs about history, for the storage that has a lock, a clock and jobs."""

    _lock: threading.RLock
    _clock: Clock
    _rows: dict[str, _Row]
    _history: Kept

    async def roll_up(self, rows: Sequence[Rollup | Reading]) -> None:
        with self._lock:
            for row in rows:
                if isinstance(row, Reading):
                    self._history.readings[row.key] = row
                else:
                    self._history.rollups[row.key] = _copied(row)

    async def rollups(
        self,
        resolution: int,
        since: float,
        until: float | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Rollup]:
        with self._lock:
            found = [
                row
                for _, row in sorted(self._history.rollups.items())
                if row.resolution == resolution
                and since <= row.at
                and (until is None or row.at < until)
                and queue in (None, row.queue)
                and task in (None, row.task)
            ]
            return [_copied(row) for row in found[:limit]]

    async def readings(
        self, resolution: int, since: float, until: float | None = None, *, pod: str | None = None
    ) -> Sequence[Reading]:
        with self._lock:
            return [
                reading
                for _, reading in sorted(self._history.readings.items())
                if reading.resolution == resolution
                and since <= reading.at
                and (until is None or reading.at < until)
                and pod in (None, reading.pod)
            ]

    async def record(self, events: Sequence[Event]) -> None:
        with self._lock:
            now = self._clock.now()
            for event in events:
                self._keep_event(event, now)

    def _keep_event(self, event: Event, now: float) -> None:
        if event.job in self._rows:
            timed = event if event.at is not None else msgspec.structs.replace(event, at=now)
            self._history.events.setdefault(event.job, {}).setdefault(event.id, timed)

    async def timeline(self, job_id: str) -> Sequence[Event]:
        with self._lock:
            lines = self._history.events.get(job_id, {}).values()
            return sorted(lines, key=lambda line: (line.at or 0.0, line.id))[-MOST_LINES:]

    def _forget_events(self, job_id: str) -> None:
        """The job's row goes: its lines go with it."""
        self._history.events.pop(job_id, None)

    async def forget_history(self, what: What, age: float, limit: int = 1000) -> int:
        with self._lock:
            before = self._clock.now() - age
            if what == "events":
                return self._forget_old_events(before, limit)
            rows: dict[Any, Any] = self._history.readings if "readings" in what else self._history.rollups
            old = [key for key in sorted(rows) if key[0] == RESOLUTION_OF[what] and key[1] < before][:limit]
            for key in old:
                del rows[key]
            return len(old)

    def _forget_old_events(self, before: float, limit: int) -> int:
        lines = [line for own in self._history.events.values() for line in own.values()]
        old = sorted((line for line in lines if (line.at or 0.0) < before), key=lambda line: line.at or 0.0)[:limit]
        for line in old:
            del self._history.events[line.job][line.id]
        return len(old)

    async def vitals(self) -> Vitals:
        return Vitals()

    async def blockers(self) -> Sequence[Blocker]:
        return ()

    async def is_writable(self) -> bool:
        return True


def _copied(row: Rollup) -> Rollup:
    return msgspec.structs.replace(
        row, outcomes=dict(row.outcomes), wait=row.wait.copy(), run=row.run.copy(), total=row.total.copy()
    )
