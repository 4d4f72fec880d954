"""Recovery: a success long after a queue's cool-down shows that the far side is well again, and clears its exponent.

Nothing is written while the exponent is zero, as it is of a healthy queue. It is written against the version of the row
that was seen: if the queue was throttled or edited since, nothing happens, and the next beat tells what is true.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from ..core import queue as queueing
from ..core.job import QueueChange
from ..core.queue import Queue
from ..ports import Storage

log = logging.getLogger("treadle.recovery")


class Recovery:
    def __init__(
        self,
        storage: Storage,
        settings: Callable[[], Mapping[str, Queue]],
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._clock = clock or time.monotonic  # looked up now: a simulation has its own
        self._ahead = 0.0  # of the storage's clock before ours
        self._sent: dict[str, int] = {}  # queue → the version that was sent
        self.is_awaited = False  # any queue has an exponent: asked once a job, so it is known beforehand

    def heard(self, now: float) -> None:
        """The storage's clock, as a beat told it, together with the settings that are in force now."""
        self._ahead = now - self._clock()
        self.is_awaited = any(queue.cool_exponent > 0 for queue in self._settings().values())

    def is_due(self, name: str) -> bool:
        """Whether a success in this queue, now, clears its exponent."""
        queue = self._settings().get(name)
        return (
            queue is not None
            and queue.cool_exponent > 0
            and self._sent.get(name) != queue.version
            and queueing.is_recovered(queue, self._clock() + self._ahead)
        )

    async def clear(self, name: str) -> None:
        version = self._settings()[name].version
        self._sent[name] = version
        try:
            await self._storage.apply([QueueChange(name=name, version=version, cool_until=None)])
        except Exception as error:
            self._sent.pop(name, None)
            log.debug("queue %s: its throttle exponent is not cleared yet: %s", name, error)
