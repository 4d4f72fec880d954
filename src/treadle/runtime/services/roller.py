"""Roller: folds minutes into hours and hours into days, and forgets what is too old.

The leader's duty, once a minute unless the settings say otherwise (`roll_up`). A fold is made anew from the finer rows
and replaces what was there: made twice, or by two leaders at once, it comes to the same. The hour and the day that are
running are folded too, so that a chart over a month ends now and not an hour ago; an hour that is over is looked at
once more for a quarter of an hour, for pods that were cut off and write late. After that its minutes may go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ...core.reading import Reading, fold_readings
from ...core.rollup import DAY, HOUR, KEEP, MINUTE, Rollup, What, floor, fold
from ...ports import Storage

LATE: Final = 900.0
CHUNK: Final = 1_000
MOST_CHUNKS: Final = 20  # a pass


class Roller:
    name = "roller"
    jitter = 0.1

    def __init__(self, storage: Storage, leads: Callable[[], bool] = lambda: True, *, every: float = 60.0) -> None:
        self.every = every
        self._storage = storage
        self._leads = leads
        self._folded_until: float | None = None  # hours before it are done with

    async def run_once(self) -> None:
        now = await self._storage.time()
        since = await self._since(now)
        for hour in _steps(since, now, HOUR):
            await self._fold_hour(hour)
        for day in _steps(since, now, DAY):
            await self._fold_day(day)
        if self._leads():
            self._folded_until = floor(now - LATE, HOUR)
            await self._forget()

    async def _since(self, now: float) -> float:
        """The first hour that may not be folded yet. A leader that is new to it begins at the newest hour there is."""
        oldest = floor(now - KEEP["minutes"], HOUR) + HOUR  # of the hour before, some minutes are gone
        if self._folded_until is not None:
            return max(oldest, self._folded_until)
        hours = await self._storage.rollups(HOUR, oldest)
        return max([oldest, *(row.at - HOUR for row in hours[-1:])])

    async def _fold_hour(self, hour: float) -> None:
        rows: list[Rollup | Reading] = []
        rows += fold(await self._storage.rollups(MINUTE, hour, hour + HOUR), HOUR)
        rows += fold_readings(await self._storage.readings(MINUTE, hour, hour + HOUR), HOUR)
        await self._write(rows)

    async def _fold_day(self, day: float) -> None:
        await self._write(fold(await self._storage.rollups(HOUR, day, day + DAY), DAY))

    async def _write(self, rows: Sequence[Rollup | Reading]) -> None:
        # The read took its time, and this process may have stood still: another leader may have folded newer rows.
        if rows and self._leads():
            await self._storage.roll_up(rows)

    async def _forget(self) -> None:
        kinds: tuple[What, ...] = tuple(KEEP)
        for what in kinds:
            for _ in range(MOST_CHUNKS):
                if await self._storage.forget_history(what, KEEP[what], CHUNK) < CHUNK:
                    break


def _steps(since: float, now: float, step: int) -> list[float]:
    first = floor(since, step)
    return [first + n * step for n in range(int((now - first) / step) + 1)]
