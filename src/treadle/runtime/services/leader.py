"""Leader: takes and keeps the lead, so that duties which need doing once are not done by everybody.

Leadership saves work; it gives no safety. Every service is right when two pods run it at once. Still a leader that
cannot renew stops leading before its lease ends, by its own monotonic clock counted from when it asked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ...ports import Storage

log = logging.getLogger("treadle.leader")


class Leader:
    name = "leader"
    jitter = 0.1

    def __init__(
        self,
        storage: Storage,
        pod: Callable[[], str],
        *,
        ttl: float,
        every: float,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.every = every
        self.term: int | None = None
        self._storage = storage
        self._pod = pod
        self._ttl = ttl
        self._clock = clock or time.monotonic
        self._trusted_until = 0.0

    @property
    def leads(self) -> bool:
        return self.term is not None and self._clock() < self._trusted_until

    async def run_once(self) -> None:
        asked = self._clock()
        term = await self._storage.lead(self._pod(), self._ttl)
        if term is not None and term != self.term:
            log.info("this pod leads, term %d", term)
        elif term is None and self.term is not None:
            log.info("this pod leads no more: another one does")
        self.term = term
        # A fifth of the lease is the margin for a clock that runs a little slow and a pass that is under way.
        self._trusted_until = asked + self._ttl * 0.8

    async def step_down(self) -> None:
        if self.term is not None:
            self.term = None
            await self._storage.step_down(self._pod())
