"""Rescuer: gives the jobs of dead pods to the living, and ends runs that are far beyond their deadline.

Safe to run in every pod at once: each rescue is a Change that names the claim's token and is refused if the pod has
come back to life meanwhile. The loser of the race changes nothing.

After a pause of its own (the process was stopped, could not reach the storage, or has only just started) every lease
may look over, that of the living too. So it then waits one beat before it acts on a lease, for live pods to speak; what
a pod that is known to be gone has left is taken up at once. That its own pod's beats are not
answered is the surest sign: where reads go on while somebody holds the write lock, it would otherwise see the leases
end, and its first rescue would race with the beats of the living.
"""

from __future__ import annotations

import logging
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from ...config import Timing
from ...core import lifecycle
from ...core.job import Change, Job, RetryOverride
from ...ports import Abandoned, Storage

log = logging.getLogger("treadle.rescuer")

CHUNK: Final = 500
UNHEARD: Final = 1.5  # so many beats without an answer are more than jitter


class Rescuer:
    name = "rescuer"

    def __init__(
        self,
        storage: Storage,
        timing: Timing,
        chance: random.Random,
        *,
        every: float,
        jitter: float,
        rescued: Callable[[Change, Job], None],
        beat_age: Callable[[], float],
        override: Callable[[str], RetryOverride | None] = lambda queue: None,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self.every = every
        self.jitter = jitter
        self.counts: Counter[str] = Counter()
        self._storage = storage
        self._timing = timing
        self._chance = chance
        self._rescued = rescued
        self._beat_age = beat_age
        self._override = override
        self._may_act = may_act
        self._looked: float | None = None
        self._hold_until = 0.0

    async def run_once(self) -> None:
        now = time.monotonic()
        was_away = self._looked is None or now - self._looked > max(3 * self.every, self._timing.beat)
        if was_away or self._beat_age() > UNHEARD * self._timing.beat:
            self._hold_until = now + self._timing.beat
        self._looked = now
        while await self._pass() == CHUNK:
            pass
        self._looked = time.monotonic()

    async def _pass(self) -> int:
        """One chunk. Answers with how many were rescued."""
        found = await self._storage.abandoned(CHUNK, self._timing.overdue)
        if time.monotonic() < self._hold_until:
            found = [each for each in found if each.why == "gone"]
        if not found or not self._may_act():  # the read took its time: another pod may lead by now
            return 0
        changes = [self._change(each) for each in found]
        rescued = 0
        for each, change, answer in zip(found, changes, await self._storage.apply(changes), strict=True):
            if answer.accepted:
                rescued += 1
                self.counts[each.why] += 1
                self._rescued(change, each.job)
                log.warning("job %s (%s) of pod %s: %s", each.job.id, each.job.task, each.label, _told(each, change))
        return rescued

    def _change(self, abandoned: Abandoned) -> Change:
        live = self._override(abandoned.job.queue)
        if abandoned.why == "deadline":
            return lifecycle.expire(abandoned.job, self._chance.random(), live)
        return lifecycle.rescue(abandoned.job, abandoned.label, live)


def _told(abandoned: Abandoned, change: Change) -> str:
    cause = "it ran past its deadline" if abandoned.why == "deadline" else "its pod is gone"
    return f"{cause}; {change.why} after attempt {abandoned.job.attempt}"
