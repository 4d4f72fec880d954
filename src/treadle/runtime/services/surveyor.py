"""Surveyor: looks at queues and pods for `/metrics`, every fifteen seconds, and only while somebody scrapes.

A scrape itself asks the storage nothing: it would then be slow when the storage is, and a scraper in a hurry would be a
load. It shows what was last seen, and that is how the Surveyor knows that it is wanted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from ...core import filter as filters
from ...core.job import State
from ...core.pod import Pod
from ...core.queue import QueueStats
from ...core.rollup import MINUTE, Rollup
from ...core.warnings import DueTask
from ...ports import Storage

EVERY: Final = 15.0
WANTED_FOR: Final = 60.0
PACE_OVER: Final = 300.0  # the drain estimate goes by the last five minutes
MOST_RETRYING: Final = 10_000
# Retries are found by a look at every scheduled job. Where there are more, that look costs more than it tells.
MOST_LOOKED_AT: Final = 100_000

_RETRYING: Final = filters.parse("is:retrying")


class Survey(Struct, frozen=True, kw_only=True):
    """What was seen, and when (by the storage's clock)."""

    at: float
    queues: Sequence[QueueStats]
    pods: Sequence[Pod]
    due_tasks: Sequence[DueTask]
    finished: dict[str, int]  # queue → jobs that ended in the last PACE_OVER seconds
    drains: dict[str, float] = {}  # queue → seconds until what is ready has run; infinite if it will not
    retrying: int | None = None  # None: too many are scheduled to look at each


class Surveyor:
    name = "surveyor"
    every = EVERY
    jitter = 0.1

    def __init__(self, storage: Storage) -> None:
        self.survey: Survey | None = None
        self._storage = storage
        self._wanted_at = self._seen_at = -math.inf

    def want(self) -> None:
        """Somebody scrapes. From any thread."""
        self._wanted_at = time.monotonic()

    @property
    def is_wanted(self) -> bool:
        return time.monotonic() - self._wanted_at < WANTED_FOR

    @property
    def age(self) -> float:
        """How old the last survey is; infinite if there is none."""
        return time.monotonic() - self._seen_at

    async def run_once(self) -> None:
        from ...core.series import finished_by_queue  # only where somebody scrapes

        now = await self._storage.time()
        queues, pods = await self._storage.queues(), await self._storage.pods()
        rows = await self._storage.rollups(MINUTE, now - PACE_OVER)
        self.survey = Survey(
            at=now,
            queues=queues,
            pods=pods,
            due_tasks=await self._storage.due_tasks(),
            finished=finished_by_queue(rows),
            drains=await self._drains(queues, pods, rows, now),
            retrying=await self._retrying(sum(stats.scheduled for stats in queues)),
        )
        self._seen_at = time.monotonic()

    async def _drains(
        self, queues: Sequence[QueueStats], pods: Sequence[Pod], rows: Sequence[Rollup], now: float
    ) -> dict[str, float]:
        from ...core import drain
        from ...core.depth import depth_series
        from ...core.reading import FLEET
        from ...core.series import PairSeries, by_pair
        from ...core.view import queue_view

        begin, moment = now - PACE_OVER, datetime.fromtimestamp(now, UTC)
        readings = await self._storage.readings(MINUTE, begin, pod=FLEET)
        depths = depth_series(readings, begin, now, float(MINUTE)).queues
        noted = {each.queue: [(point.at, point.ready) for point in each.points] for each in depths}
        own: dict[str, list[PairSeries]] = {}
        for pair in by_pair(rows, begin, now, float(MINUTE)):
            own.setdefault(pair.queue, []).append(pair)
        found: dict[str, float] = {}
        for stats in queues:
            name = stats.queue.name
            flow = drain.flow(own.get(name, ()), noted.get(name, ()), stats.ready, moment)
            found[name] = drain.seconds(drain.drain(queue_view(stats, [*pods]), flow, moment))
        return found

    async def _retrying(self, scheduled: int) -> int | None:
        if not 0 < scheduled <= MOST_LOOKED_AT:
            return None if scheduled else 0
        return (await self._storage.count(_RETRYING, MOST_RETRYING)).get(State.SCHEDULED, 0)
