"""Rates: how many jobs a pod may claim from queues that have a rate.

A claim needs tokens first, one for each job, and asks for no more jobs than it got: what must wait, waits in the queue.
The tokens of a queue's own rate are the whole cluster's and come from the storage, with a short lease, all queues in
one question per turn. A rate of this pod alone is kept here.

For a queue that gave all that was asked of it, as many are taken as there is room for. For any other it is one, to look
with: idling must not empty the bucket. Where tokens are rare, one that found nothing is handed back, so that the next
job need not wait for the next token.

When there is no token, it is known when there will be one: until then the queue rests, and is not asked.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from ..core import limit as limiting
from ..core.job import Job
from ..core.limit import LONGEST_LEASE, OF_A_QUEUE, Bucket, Lease, Take, Taken
from ..core.queue import Queue
from ..ports import Lane, Storage, Want

log = logging.getLogger("treadle.rates")

FIRST_LEASE: Final = 0.25
SHORTEST_LEASE: Final = 0.05
ANSWERS: Final = 4  # a lease lasts so many times as a take and its claim usually do
RARE: Final = 5.0  # below so many a second, a token that was not used is worth a question
# An operator may raise a rate at any time: nobody rests for longer without asking.
LONGEST_REST: Final = 1.0


class _Grant(Struct):
    """Tokens of one lease: by our clock until when, by the storage's what it is called."""

    amount: int
    until: float
    name: float
    refill: float


class Rates:
    def __init__(
        self,
        storage: Storage,
        settings: Callable[[], Mapping[str, Queue]],
        own: Mapping[str, tuple[int, float]] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`own` are the rates of this pod alone: queue → (capacity, refill)."""
        self.starved: set[str] = set()  # there was no token for them, and no claim has shown since that they are empty
        self._storage = storage
        self._settings = settings
        self._clock = clock or time.monotonic  # looked up now: a simulation has its own
        now = self._clock()
        self._own: dict[str, Bucket] = {
            name: limiting.fresh(name, capacity, refill, now) for name, (capacity, refill) in (own or {}).items()
        }
        self._grants: dict[str, list[_Grant]] = {}
        self._greedy: set[str] = set()
        self._resting: dict[str, float] = {}  # queue → when there may be a token for it
        self._spare: list[tuple[str, _Grant]] = []
        self._sent = 0.0
        self._usual = FIRST_LEASE / ANSWERS

    def concern(self, wants: Iterable[Want]) -> bool:
        """Whether any of these queues has a rate, or may have one: its row was not seen yet."""
        settings = self._settings()
        return any(_is_rated(settings, want.queue) or want.queue in self._own for want in wants)

    def resting(self) -> Collection[str]:
        """The queues that there is no token for."""
        if self._resting:
            now = self._clock()
            self._resting = {name: until for name, until in self._resting.items() if until > now}
        return self._resting.keys()

    def rest(self) -> float | None:
        """Seconds until one of them may have a token."""
        if not self._resting:
            return None
        until = min(self._resting.values())
        self.resting()
        return max(0.0, until - self._clock())

    async def cut(self, wants: Sequence[Want]) -> tuple[Want, ...]:
        """What of these may be claimed now. Queues with a rate are left out while the storage is away."""
        resting = self.resting()
        settings = self._settings()
        wants = [want for want in wants if want.queue not in resting]
        limits = {want.queue: self._own_limit(want) for want in wants}
        rated = [want.queue for want in wants if limits[want.queue] and _is_rated(settings, want.queue)]
        await self._fetch({name: limits[name] for name in rated})
        for name in rated:
            limits[name] = min(limits[name], self._usable(name))
        return tuple(_cut(want, limits[want.queue]) for want in wants if limits[want.queue] > 0)

    def claimed(self, wants: Sequence[Want], jobs: Sequence[Job] | None) -> None:
        """A claim was answered, or (None) may have taken everything that it asked for."""
        now = self._clock()
        if self._sent:
            self._usual = max(now - self._sent, 0.8 * self._usual)
        counts = Counter(job.queue for job in jobs) if jobs is not None else {want.queue: want.limit for want in wants}
        for want in wants:
            count = counts.get(want.queue, 0)
            if (bucket := self._own.get(want.queue)) is not None:
                spent = Take(scope=want.queue, want=count, least=0, lease=0.0)
                self._own[want.queue], _ = limiting.take(bucket, spent, now)
            if want.queue in self._grants:
                self._use(want.queue, count)
            if count >= want.limit:
                self._greedy.add(want.queue)
            else:
                self._greedy.discard(want.queue)
                self.starved.discard(want.queue)
                self._spare += [(want.queue, each) for each in self._pop_rare(want.queue)]

    async def hand_back(self) -> None:
        """Tokens that found nothing to claim, and are rare."""
        spare, self._spare = self._spare, []
        if not spare:
            return
        try:
            for queue, grant in spare:
                back = Lease(grant.amount, grant.name)
                await self._storage.take([Take(scope=OF_A_QUEUE + queue, want=0, least=0, back=back)])
        except Exception as error:
            log.debug("unused tokens are forfeited: %s", error)

    # Tokens ----------------------------------------------------------------------------------------------------------

    async def _fetch(self, limits: Mapping[str, int]) -> None:
        lease = min(LONGEST_LEASE, max(SHORTEST_LEASE, ANSWERS * self._usual))
        wishes: dict[str, Take] = {}
        for name, limit in limits.items():
            have = self._usable(name)
            want = limit - have if name in self._greedy else 1 - have
            if want > 0:
                wishes[name] = Take(scope=OF_A_QUEUE + name, want=want, least=0 if have else 1, lease=lease)
        if not wishes:
            self._sent = 0.0
            return
        self._sent = sent = self._clock()
        try:
            answers = await self._storage.take(tuple(wishes.values()))
        except Exception as error:
            log.debug("no tokens, so queues with a rate are left out: %s", error)
            self._rest(wishes, LONGEST_REST)
            return
        for name, taken in zip(wishes, answers, strict=True):
            self._note(name, taken, limits[name], sent + lease)

    def _note(self, name: str, taken: Taken, limit: int, until: float) -> None:
        if taken.capacity is None:  # it has no rate after all
            self._grants[name] = [_Grant(limit, until, 0.0, math.inf)]
        elif taken.got:
            self._grants.setdefault(name, []).append(_Grant(taken.got, until, taken.until, taken.refill))
        elif taken.wait:
            self._rest([name], taken.wait)

    def _usable(self, name: str) -> int:
        grants = self._grants.get(name)
        if not grants:
            return 0
        # The claim takes its time, too: what would end during it is not counted on.
        ending = self._clock() + self._usual
        self._grants[name] = grants = [grant for grant in grants if grant.until > ending]
        return sum(grant.amount for grant in grants)

    def _use(self, name: str, count: int) -> None:
        for grant in self._grants[name]:
            used = min(count, grant.amount)
            grant.amount -= used
            count -= used
        self._grants[name] = [grant for grant in self._grants[name] if grant.amount]

    def _pop_rare(self, name: str) -> list[_Grant]:
        rare = [grant for grant in self._grants.get(name, ()) if grant.refill < RARE]
        if rare:
            self._grants[name] = [grant for grant in self._grants[name] if grant.refill >= RARE]
        return rare

    def _rest(self, names: Collection[str], wait: float) -> None:
        until = self._clock() + min(wait, LONGEST_REST)
        self._resting.update(dict.fromkeys(names, until))
        self.starved.update(names)

    def _own_limit(self, want: Want) -> int:
        """How many the pod's own rate allows."""
        bucket = self._own.get(want.queue)
        if bucket is None:
            return want.limit
        _, taken = limiting.take(bucket, Take(scope=want.queue, want=want.limit, lease=0.0), self._clock())
        if not taken.got:
            self._rest([want.queue], taken.wait)
        return taken.got


def _is_rated(settings: Mapping[str, Queue], name: str) -> bool:
    queue = settings.get(name)
    return queue is None or queue.rate is not None


def _cut(want: Want, limit: int) -> Want:
    if limit >= want.limit:
        return want
    return Want(want.queue, limit, tuple(Lane(lane.tasks, min(lane.limit, limit)) for lane in want.lanes))
