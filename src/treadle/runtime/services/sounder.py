"""Sounder: notes once a minute how much lies in each queue, for the chart of depths.

The leader's duty. It looks more often than it notes, so that no minute is left out because one pass came late. Numbers
are those of `queues`, which knows large ones without counting all of them; two leaders write the same row.
"""

from __future__ import annotations

from collections.abc import Callable

from ...core.depth import sounding
from ...core.rollup import MINUTE, floor
from ...ports import Storage


class Sounder:
    name = "sounder"
    every = 15.0
    jitter = 0.1

    def __init__(self, storage: Storage, leads: Callable[[], bool] = lambda: True) -> None:
        self._storage = storage
        self._leads = leads
        self._noted: float | None = None  # the minute

    async def run_once(self) -> None:
        now = await self._storage.time()
        if floor(now, MINUTE) == self._noted:
            return
        reading = sounding(await self._storage.queues(), now)
        if self._leads():
            await self._storage.roll_up([reading])
            self._noted = reading.at
