"""Watcher: says once, in the log, what is wrong in the cluster and will not mend itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from ...core import warnings
from ...ports import Storage

log = logging.getLogger("treadle.watcher")

EVERY: Final = 30.0


class Watcher:
    name = "watcher"
    jitter = 0.1

    def __init__(self, storage: Storage, *, every: float = EVERY, clock: Callable[[], float] | None = None) -> None:
        self.every = every
        self.found: tuple[warnings.ClusterWarning, ...] = ()
        self._storage = storage
        self._clock = clock or time.monotonic
        self._since: dict[str, float] = {}
        self._told: frozenset[str] = frozenset()

    async def run_once(self) -> None:
        queues, pods = await self._storage.queues(), await self._storage.pods()
        self.found = warnings.find(queues, pods, await self._storage.due_tasks())
        self._since, self._told, say = warnings.tell(self.found, self._since, self._told, self._clock())
        for each in say:
            log.warning("%s; %s [%s]", each.text, each.remedy, each.code)
