"""Sounder: notes once a minute how much lies in each queue, for the chart of depths.

The leader's duty. It looks more often than it notes, so that no minute is left out because one pass came late. Numbers
are those of `queues`, which knows large ones without counting all of them; two leaders write the same row. While
history is young (see `core.young`), it notes each step of five seconds too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...core import young
from ...core.depth import sounding
from ...core.rollup import FINE, MINUTE, floor
from ...ports import Storage
from ...storages.shared.history import began

EVERY: Final = 15.0
SOON: Final = FINE / 2  # no step is left out


class Sounder:
    name = "sounder"
    jitter = 0.1

    def __init__(self, storage: Storage, leads: Callable[[], bool] = lambda: True) -> None:
        self._storage = storage
        self._leads = leads
        self._noted: dict[int, float] = {}  # by resolution: the minute, and the step
        self._since: float | None = None
        self._is_fine = True

    @property
    def every(self) -> float:
        return SOON if self._is_fine else EVERY

    async def run_once(self) -> None:
        now = await self._storage.time()
        if self._since is None:
            self._since = now
        self._is_fine = young.is_sounded_finely(await began(self._storage, now), self._since, now)
        wanted = (FINE, MINUTE) if self._is_fine else (MINUTE,)
        due = [each for each in wanted if self._noted.get(each) != floor(now, each)]
        if not due:
            return
        queues = await self._storage.queues()
        if self._leads():
            await self._storage.roll_up([sounding(queues, now, each) for each in due])
            self._noted.update({each: floor(now, each) for each in due})
