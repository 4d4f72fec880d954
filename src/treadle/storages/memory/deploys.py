"""Versions of the user's code that pods have registered with, in the reference storage."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ...core import deploy
from ...core.deploy import KEPT, Deploy
from ...core.pod import PodCard
from ...ports import Clock


class MemoryDeploys:
    _clock: Clock
    _lock: threading.RLock

    def __init__(self) -> None:
        self._deploys: dict[str, tuple[float, float]] = {}  # version → when it was first seen, and when last

    def _see_version(self, card: PodCard) -> None:
        """A pod has come: its version was first seen now, or is seen again."""
        if not card.worker_version:
            return
        now = self._clock.now()
        first_at, _ = self._deploys.get(card.worker_version, (now, now))
        self._deploys[card.worker_version] = first_at, now
        if len(self._deploys) > KEPT:
            del self._deploys[min(self._deploys, key=lambda version: (self._deploys[version][1], version))]

    async def deploys(self) -> Sequence[Deploy]:
        with self._lock:
            return deploy.in_order((version, *seen) for version, seen in self._deploys.items())
