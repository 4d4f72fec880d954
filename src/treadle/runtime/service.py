"""A Service: one periodic duty. The work (`run_once`) is apart from the loop, so that it can be tested without it.

Each service has its own timer and jitter: a slow one never delays another. An error is logged once, counted, and the
duty tried again with a growing pause; it never ends the pod.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Protocol

from ..core.histogram import Histogram

log = logging.getLogger("treadle.service")

LONGEST_PAUSE = 30.0


class Service(Protocol):
    name: str
    jitter: float  # ± this part of `every`

    @property
    def every(self) -> float: ...

    async def run_once(self) -> None: ...


class Round:
    """Runs one service for as long as the pod lives."""

    def __init__(self, service: Service, chance: random.Random, wanted: Callable[[], bool]) -> None:
        self.service = service
        self.errors = 0
        self.overruns = 0
        self.seconds = 0.0  # of the last pass
        self.times = Histogram()  # of all
        self._chance = chance
        self._wanted = wanted
        self._nudged = asyncio.Event()

    def nudge(self) -> None:
        """Do not wait for the next turn: there is something to do. Called on the loop."""
        self._nudged.set()

    async def run(self) -> None:
        pause = 0.0
        while True:
            await self._rest(self._interval() + pause)
            if not self._wanted():
                continue
            begun = time.monotonic()
            try:
                await self.service.run_once()
            except Exception as error:
                if not pause:
                    log.warning("%s: %s: %s", self.service.name, type(error).__name__, error)
                pause = min(LONGEST_PAUSE, pause * 2 or self.service.every)
                self.errors += 1
            else:
                pause = 0.0
            self.seconds = time.monotonic() - begun
            self.times.add(self.seconds)
            self.overruns += self.seconds > self.service.every

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._nudged.wait()
        except TimeoutError:
            pass
        self._nudged.clear()

    def _interval(self) -> float:
        spread = self.service.jitter * (2 * self._chance.random() - 1)
        return self.service.every * (1 + spread)
