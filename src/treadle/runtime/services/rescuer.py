"""Rescuer: gives the jobs of dead pods to the living, ends runs that are far beyond their deadline, and waits for
answers that nobody has given in time.

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
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from ...config import Timing
from ...core import lifecycle
from ...core.backoff import Retry
from ...core.job import Change, Job, RetryOverride
from ...ports import Abandoned, Storage, WaitOver

log = logging.getLogger("treadle.rescuer")

CHUNK: Final = 500
MOST_ROUNDS: Final = 5  # of a race with whoever asks for what it rescues; the next pass goes on
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
        ended: Callable[[Change, Job], None] = lambda change, job: None,
        beat_age: Callable[[], float],
        override: Callable[[str], RetryOverride | None] = lambda queue: None,
        retry_of: Callable[[str], Retry | None] = lambda task: None,
        may_act: Callable[[], bool] = lambda: True,
        declared: Callable[[Change, Job], Change] = lambda change, job: change,
    ) -> None:
        self.every = every
        self.jitter = jitter
        self.counts: Counter[str] = Counter()
        self._storage = storage
        self._timing = timing
        self._chance = chance
        self._rescued = rescued
        self._ended = ended  # told of waits that are over
        self._beat_age = beat_age
        self._override = override
        self._retry_of = retry_of  # for waits that are over: how a task is tried again, where this pod knows it
        self._may_act = may_act
        self._declared = declared
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
        await self.end_waits()
        self._looked = time.monotonic()

    async def _pass(self) -> int:
        """One chunk. Answers with how many were rescued."""
        found = await self._storage.abandoned(CHUNK, self._timing.overdue)
        if time.monotonic() < self._hold_until:
            found = [each for each in found if each.why == "gone"]
        if not found or not self._may_act():  # the read took its time: another pod may lead by now
            return 0
        return await self._write(found, [self._change(each) for each in found])

    async def end_waits(self) -> None:
        """The attempts of jobs that have waited in vain."""
        while True:
            found = await self._storage.waits_over(CHUNK)
            if not found or not self._may_act():
                return
            waits = [Abandoned(each.job, "answer", "") for each in found]
            if await self._write(waits, [*map(self._in_vain, found)]) < CHUNK:
                return

    async def _write(self, found: Sequence[Abandoned], plain: list[Change]) -> int:
        rescued = 0
        changes = [self._taken_over(each.job, own, each.job.kept) for each, own in zip(found, plain, strict=True)]
        for _ in range(MOST_ROUNDS):
            again: list[tuple[Abandoned, Change, Change]] = []
            answers = await self._storage.apply(changes)
            for each, own, change, answer in zip(found, plain, changes, answers, strict=True):
                if answer.accepted:
                    rescued += 1
                    self._note(each, change)
                elif answer.kept is not UNSET:  # somebody has asked for it since we looked
                    again.append((each, own, self._taken_over(each.job, own, answer.kept)))
                elif answer.error is not None and change.follow_ups:  # refused for ever, nobody would ever run it again
                    left = "job %s: %s is written without its follow-ups: %s"
                    log.error(left, change.id, change.why, answer.error)
                    again.append((each, *_with_less(own, change)))
            if not again:
                break
            found, plain, changes = ([*column] for column in zip(*again, strict=True))
        return rescued

    def _taken_over(self, job: Job, plain: Change, kept: str | None) -> Change:
        change = lifecycle.take_over(plain, kept)
        return change if change.why == plain.why else self._declared(change, job)  # superseded: that is another end

    def _note(self, rescued: Abandoned, change: Change) -> None:
        self.counts[rescued.why] += 1
        job = rescued.job
        if rescued.why == "answer":
            self._ended(change, job)
        else:
            self._rescued(change, job)

    def _in_vain(self, wait: WaitOver) -> Change:
        job, answer = wait.job, wait.answer
        live = self._override(job.queue)
        retry = self._retry_of(job.task) or Retry()
        change = lifecycle.expired(job, answer.id, answer.timeout, retry, self._chance.random(), live)
        return self._declared(change, job)

    def _change(self, abandoned: Abandoned) -> Change:
        live = self._override(abandoned.job.queue)
        if abandoned.why == "deadline":
            change = lifecycle.expire(abandoned.job, self._chance.random(), live)
        else:
            change = lifecycle.rescue(abandoned.job, abandoned.label, live, abandoned.beat_at)
        return self._declared(change, abandoned.job)


def _with_less(plain: Change, change: Change) -> tuple[Change, Change]:
    """The same without what its task declares; and if that is not at fault, without the kept request: its id is taken,
    so it is there already."""
    bare = replace(plain, follow_ups=())
    barer = lifecycle.take_over(bare, change.takes)
    return bare, barer if barer != change else replace(change, follow_ups=())
