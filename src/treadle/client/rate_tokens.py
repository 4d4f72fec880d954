"""Broker: where this process gets tokens of rate limits, for tasks and for everybody else.

Tokens come from the storage, with a lease: to be used before it ends, or never. Each event loop has a stock of them.
Where the rate is low, just what is asked for is taken. Where it is high (20 a second or more) a tenth of a second's
worth is taken at once, so that the limit's row is written ten times a second by a busy process, and not once per call.

A lease is as long as the storage needs to answer, four times over, and never longer than a second: while it lasts, a
full bucket does not refill behind it. It counts from before the question left, by this process' own clock, so that it
ends here no later than there. An answer that took longer than its lease is worth nothing; the next one is given more
time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from ..core import names
from ..core.errors import UnknownLimit
from ..core.limit import LONGEST_LEASE, Take, Taken
from ..ports import Storage

T = TypeVar("T")

FAST: Final = 20.0  # from so many a second on, tokens are taken ahead
AHEAD: Final = 0.1  # so many seconds' worth
SHORTEST_LEASE: Final = 0.05
ANSWERS: Final = 4  # a lease lasts so many times the usual answer
SHORTEST_SLEEP: Final = 0.001
MOST_LATE: Final = 3


class _Stock:
    """What one event loop has of one scope."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self.turn = asyncio.Lock()
        self.asked = 0  # tokens that callers here wait for
        self.answers = 0  # questions that were answered
        self.lack: tuple[int, float] | None = None  # of the last answer: so many were not there, and for how long
        self.usual = 0.0  # how long the storage takes to answer
        self.capacity: int | None = None
        self.refill = 0.0
        self._leases: list[tuple[int, float]] = []

    def usable(self, now: float) -> int:
        self._leases = [lease for lease in self._leases if lease[1] > now]
        return sum(amount for amount, _ in self._leases)

    def use(self, n: int, now: float) -> bool:
        """All or none; those that end first, first."""
        if self.usable(now) < n:
            return False
        while n:
            amount, until = self._leases[0]
            self._leases[:1] = [(amount - n, until)] if amount > n else []
            n -= min(n, amount)
        return True

    def add(self, amount: int, until: float) -> None:
        self._leases = sorted([*self._leases, (amount, until)], key=lambda lease: lease[1])

    def forget(self) -> None:
        self._leases = []

    def wish(self, n: int, now: float) -> Take:
        have = self.usable(now)
        if self.capacity is not None and n > self.capacity:
            have = 0  # whatever is here: the storage shall say whether there can be so many
        ahead, lease = 0, max(SHORTEST_LEASE, self.usual * ANSWERS)
        if self.refill >= FAST and self.capacity is not None:
            # No more than a quarter of all: others want some, and what is not used is lost.
            ahead = int(min(self.refill * AHEAD, self.capacity / 4))
            lease = max(lease, min(2 * AHEAD, self.capacity / self.refill / 4))
        want = max(n, self.asked, ahead) - have
        return Take(scope=self.scope, want=want, least=n - have, lease=min(lease, LONGEST_LEASE))

    def note(self, wish: Take, taken: Taken, sent: float, now: float) -> None:
        self.answers += 1
        self.usual = max(now - sent, self.usual * 0.8)
        self.capacity, self.refill = taken.capacity, taken.refill
        self.lack = None
        if taken.got:
            self.add(taken.got, sent + wish.lease)
        else:
            self.lack = (wish.least, now + taken.wait)


class Broker:
    def __init__(
        self,
        ask: Callable[[Callable[[Storage], Awaitable[Any]]], Awaitable[Any]],
        *,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.declared: dict[str, tuple[int, float]] = {}  # in code: scope → (capacity, refill)
        self.limited: Counter[str] = Counter()  # scope → how often somebody had to wait, or was refused
        self._ask_storage = ask
        self._clock = clock or time.monotonic  # looked up now: a simulation has its own
        self._sleep = sleep
        self._stocks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Stock]] = WeakKeyDictionary()

    async def take(self, scope: str, n: int, wait: float) -> float | None:
        """Take n tokens, all or none, waiting for at most so many seconds. None if they are had; otherwise in how many
        seconds they could be there. UnknownLimit; ValueError if there can never be so many."""
        stock = self._stock(scope)
        until = self._clock() + wait
        is_first = True
        while True:
            missing = await self._try(stock, n)
            if missing is None:
                return None
            self.limited[scope] += is_first
            is_first = False
            if self._clock() + missing > until:
                return missing
            await self._sleep(max(missing, SHORTEST_SLEEP))

    async def drain(self, scope: str) -> None:
        for stocks in list(self._stocks.values()):
            if (stock := stocks.get(scope)) is not None:
                stock.forget()
        known = await self._ask_storage(lambda storage: storage.drain_limit(scope))
        if not known:
            await self._seed(scope)
            await self._ask_storage(lambda storage: storage.drain_limit(scope))

    async def seed(self) -> None:
        """Write the declared limits that the storage does not know yet."""
        for scope in self.declared:
            await self._seed(scope)

    async def _seed(self, scope: str) -> None:
        if scope not in self.declared:
            near = names.suggest(scope, self.declared)
            remedy = f'did you mean "{near}"?' if near else f'declare it: app.limit("{scope}", "100/m")'
            raise UnknownLimit(f"there is no limit {scope}; {remedy}")
        capacity, refill = self.declared[scope]
        await self._ask_storage(lambda storage: storage.save_limit(scope, capacity, refill, 0))

    def _stock(self, scope: str) -> _Stock:
        stocks = self._stocks.setdefault(asyncio.get_running_loop(), {})
        return stocks.setdefault(scope, _Stock(scope))

    async def _try(self, stock: _Stock, n: int) -> float | None:
        answers = stock.answers
        stock.asked += n
        try:
            async with stock.turn:
                for _ in range(MOST_LATE):
                    if stock.use(n, self._clock()):
                        return None
                    if stock.answers > answers and stock.lack is not None and n >= stock.lack[0]:
                        # Somebody has asked while we waited for our turn, or we have: the answer is the same.
                        return max(0.0, stock.lack[1] - self._clock())
                    await self._ask(stock, n)
                return stock.usual  # every answer came later than its lease: the storage is too slow just now
        finally:
            stock.asked -= n

    async def _ask(self, stock: _Stock, n: int) -> None:
        wish = stock.wish(n, self._clock())
        taken, sent = await self._send(wish)
        if taken.problem == "unknown":
            await self._seed(stock.scope)
            taken, sent = await self._send(wish)
        if taken.problem is not None:
            raise ValueError(
                f"limit {stock.scope} never holds more than {taken.capacity or 0} tokens, and {n} are wanted at once: "
                "give it a larger burst"
            )
        stock.note(wish, taken, sent, self._clock())

    async def _send(self, wish: Take) -> tuple[Taken, float]:
        sent = 0.0

        async def send(storage: Storage) -> Taken:
            nonlocal sent
            sent = self._clock()
            (taken,) = await storage.take([wish])
            return taken

        return await self._ask_storage(send), sent
