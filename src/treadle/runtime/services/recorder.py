"""Recorder: writes what the Meter has counted, every two seconds, and once a minute how the pod fares.

In every pod, not only in the leader's. Nothing is written when nothing has happened. What a pass cannot write, the next
one writes; a crash loses what was counted since the last, two seconds of a chart, and never the state of a job.

Before its first row it asks, once, when history began: the first ten minutes are written by seconds too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Final

from ...core import young
from ...core.reading import Reading
from ...core.rollup import MINUTE, floor
from ...ports import Storage
from ...storages.shared.history import began
from ..meter import Meter
from ..timed import Timed
from ..usage import Usage, usage

EVERY: Final = 2.0
READ_EVERY: Final = 60.0
MOST_AT_ONCE: Final = 5_000


class Recorder:
    name = "recorder"
    every = EVERY
    jitter = 0.1

    def __init__(
        self,
        storage: Storage,
        meter: Meter,
        timed: Timed,
        *,
        label: Callable[[], str],
        slots: Callable[[], tuple[int, int]],
        lag: Callable[[], float],
    ) -> None:
        self._storage = storage
        self._meter = meter
        self._timed = timed
        self._label = label
        self._slots = slots
        self._lag = lag
        self._knows_age = False
        self._read_at = -READ_EVERY
        self._marks = timed.marks()
        self._last: tuple[float, Usage] = (time.monotonic(), usage())
        self._worst_lag = 0.0
        self.reading: Reading | None = None  # the last one, for /metrics

    async def run_once(self) -> None:
        self._worst_lag = max(self._worst_lag, self._lag())
        await self.flush()
        if time.monotonic() - self._read_at >= READ_EVERY:
            await self.read()

    async def flush(self) -> None:
        """Write what has been counted, and the lines of timelines."""
        if self._meter.has_counted and not self._knows_age:
            now = await self._storage.time()
            self._meter.fine_until = young.fine_until(await began(self._storage, now), now)
            self._knows_age = True
        if rows := self._meter.take_rows():
            try:
                await self._storage.roll_up(rows)
            except BaseException:
                self._meter.rows_not_written(rows)
                raise
        lines = self._meter.take_events()
        while lines:
            try:
                await self._storage.record(lines[:MOST_AT_ONCE])
            except BaseException:
                self._meter.events_not_written(lines)
                raise
            lines = lines[MOST_AT_ONCE:]

    async def read(self) -> None:
        """Measure this pod and its storage, and write it down."""
        now = time.monotonic()
        self._read_at = now
        vitals = await self._storage.vitals()
        at = floor(await self._storage.time(), MINUTE)
        seen = usage()
        since, before = self._last
        slots, used = self._slots()
        reading = Reading(
            resolution=MINUTE,
            at=at,
            pod=self._meter.pod,
            label=self._label(),
            cpu=max(0.0, seen.cpu_seconds - before.cpu_seconds) / max(now - since, 0.001),
            rss=seen.rss,
            lag=self._worst_lag,
            threads=seen.threads,
            slots=slots,
            used=used,
            disk_free=vitals.disk_free if vitals.disk_free is not None else _disk_free(),
            read_seconds=self._timed.mean(self._marks, writes=False),
            write_seconds=self._timed.mean(self._marks, writes=True),
            storage_bytes=vitals.bytes,
            wal_bytes=vitals.wal_bytes,
            connections=vitals.connections,
        )
        self._last, self._marks, self._worst_lag = (now, seen), self._timed.marks(), 0.0
        self.reading = reading
        await self._storage.roll_up([reading])


def _disk_free() -> int | None:
    try:
        disk = os.statvfs(".")
    except (OSError, AttributeError):
        return None
    return disk.f_bavail * disk.f_frsize
