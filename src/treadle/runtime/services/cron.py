"""Cron: fires schedules when they are due, and keeps their rows in step with what code declares.

Right when two pods run it at once: a fire names what it was decided from, and the storage carries it out once. A fire
that fails leaves the cursor where it is, so the next tick tries again; a schedule that cannot be read is flagged, and
the others go on.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ...core import firing
from ...core import schedule as scheduling
from ...core.errors import StorageUnavailable
from ...core.histogram import Histogram
from ...core.schedule import Declared, Schedule
from ...ports import Storage

log = logging.getLogger("treadle.cron")

TICK: Final = 1.0
SOON: Final = 0.01
SYNC_EVERY: Final = 60.0
SAY_AGAIN_AFTER: Final = 60.0


class Cron:
    name = "cron"
    jitter = 0.0  # one pod runs it, and a fire should not be late by chance

    def __init__(
        self,
        storage: Storage,
        declared: Callable[[], Mapping[str, Declared]],
        *,
        term: Callable[[], int | None] = lambda: None,
        steady: Callable[[], float] | None = None,
        fired: Callable[[str, str, tuple[str, ...], int], None] = lambda schedule, task, jobs, skipped: None,
    ) -> None:
        """`term` is that of the leadership: with a new one, what code declares is looked at anew. `fired` is told of
        the fire times that were settled: schedule, task, jobs, and how many were skipped."""
        self.counts: Counter[str] = Counter()
        self.fires: Counter[tuple[str, str]] = Counter()  # (schedule, fired | skipped | missed) → fire times
        self.late = Histogram()  # by how many seconds
        self._storage = storage
        self._declared = declared
        self._term = term
        self._fired = fired
        self._steady = steady or time.monotonic  # looked up now: a simulation has its own
        self._synced: tuple[int | None, float] | None = None  # in which term, and when
        self._next: dict[str, tuple[int, float, float | None]] = {}  # name → version, cursor, next fire
        self._said: dict[str, tuple[str, float]] = {}  # name → the error that was noted last, and when
        self._look_at = 0.0  # steady

    @property
    def every(self) -> float:
        """A tick, or less if a fire comes before."""
        left = self._look_at - self._steady()
        if left > 0:
            return min(TICK, max(SOON, left))
        return SOON if left > -TICK else TICK

    async def run_once(self) -> None:
        begun = self._steady()
        now, schedules = await self._storage.schedules()
        if self._is_sync_due(begun):
            if await self._sync(now, schedules):
                now, schedules = await self._storage.schedules()
            self._synced = (self._term(), begun)
        self._next = {each.name: self._next[each.name] for each in schedules if each.name in self._next}
        trouble: list[tuple[str, StorageUnavailable]] = []
        for schedule in schedules:
            try:
                await self._tend(schedule, now)
            except StorageUnavailable as error:
                # One may be the row that somebody holds: the others fire on time all the same, and it is tried again
                # with the next tick. With the second it is the storage.
                self._next.pop(schedule.name, None)
                trouble.append((schedule.name, error))
                if len(trouble) > 1:
                    break
        coming = [at for _, _, at in self._next.values() if at is not None]
        self._look_at = begun + max(0.0, min(coming, default=now + TICK) - now)
        if len(trouble) > 1:
            raise trouble[0][1]
        for name, why in trouble:
            self._complain(name, f"is not fired yet: {type(why).__name__}: {why}")

    def _is_sync_due(self, steady: float) -> bool:
        return self._synced is None or self._synced[0] != self._term() or steady - self._synced[1] >= SYNC_EVERY

    async def _sync(self, now: float, schedules: Sequence[Schedule]) -> bool:
        """Write what code declares and the storage does not have so; whether anything was written."""
        existing = {schedule.name: schedule for schedule in schedules}
        wrote = False
        for name, declared in self._declarations().items():
            edit = scheduling.merge(existing.get(name), name, declared, now)
            if edit is None:
                continue
            try:
                # Refused if somebody was faster: the next sync sees what they wrote.
                wrote = await self._storage.save_schedule(edit.schedule, edit.expected, cursor=edit.cursor) or wrote
            except StorageUnavailable:
                raise
            except Exception as error:
                self._complain(name, f"cannot be written: {type(error).__name__}: {error}")
            else:
                log.info("schedule %s is as its code declares it, version %d", name, edit.schedule.version)
        return wrote

    def _declarations(self) -> Mapping[str, Declared]:
        try:
            return self._declared()
        except Exception as error:  # a router that chooses no queue; what is known already goes on
            self._complain("*", f"are not in step with their code: {type(error).__name__}: {error}")
            return {}

    async def _tend(self, schedule: Schedule, now: float) -> None:
        """Fire one schedule if it is due."""
        version, cursor, coming = self._next.get(schedule.name, (0, 0.0, None))
        if (version, cursor) == (schedule.version, schedule.progress.cursor) and (coming is None or coming > now):
            return
        try:
            found = firing.due(schedule, now)
            if found is not None:
                await self._fire(schedule, firing.fire(schedule, found), now)
                schedule = replace(schedule, progress=replace(schedule.progress, cursor=found.cursor))
            self._next[schedule.name] = (schedule.version, schedule.progress.cursor, firing.next_fire(schedule))
        except StorageUnavailable:
            raise
        except Exception as error:
            self._next.pop(schedule.name, None)
            await self._note(schedule, f"{type(error).__name__}: {error}")

    async def _fire(self, schedule: Schedule, wish: firing.Fire, now: float) -> None:
        fired = await self._storage.fire(wish)
        if fired.outcome == "stale" or fired.repeated:
            return
        self._said.pop(schedule.name, None)
        self.counts["fired"] += len(fired.jobs)
        self.counts["skipped"] += len(wish.shots) - len(fired.jobs)
        self.counts["missed"] += wish.missed
        self.fires[wish.name, "fired"] += len(fired.jobs)
        self.fires[wish.name, "skipped"] += len(wish.shots) - len(fired.jobs)
        self.fires[wish.name, "missed"] += wish.missed
        for shot in wish.shots:
            self.late.add(now - shot.fire_at)
        self._fired(wish.name, schedule.plan.task, tuple(fired.jobs), len(wish.shots) - len(fired.jobs))
        if wish.missed:
            log.warning("schedule %s: %d fire times were missed (%s)", wish.name, wish.missed, schedule.plan.misfire)

    async def _note(self, schedule: Schedule, words: str) -> None:
        """Flag a schedule that cannot be fired, in its row too."""
        if self._complain(schedule.name, f"cannot be fired: {words}"):
            await self._storage.fire(firing.failed(schedule, words))

    def _complain(self, name: str, words: str) -> bool:
        """Count an error, and log it unless the same was said within the last minute."""
        self.counts["errors"] += 1
        said, at = self._said.get(name, ("", 0.0))
        if said == words and self._steady() - at < SAY_AGAIN_AFTER:
            return False
        self._said[name] = (words, self._steady())
        log.error("schedule %s %s", name, words)
        return True
