"""Limits: token buckets that a whole cluster draws from, and the arithmetic that keeps them exact.

A bucket stores tokens, which grow by `refill` a second. Who takes tokens gets a lease on them: so many, to be used
within the lease or never. A lease counts in full until it ends, used or not, and the stored tokens grow only up to
what the leases leave of the capacity: stored + leased ≤ capacity, always.

That is why no window ever sees too much, wherever inside its lease a token is used. What is used in a window of w
seconds was leased when the window began, or was stored then, or has grown since: at most capacity + refill · w.

The price: while a lease lasts, a full bucket does not refill behind it. So leases are short, and whoever holds tokens
that he will not use may hand them back before their lease ends.
"""

from __future__ import annotations

import itertools
import math
from typing import Final, Literal

import msgspec
from msgspec import Struct

from . import names, settings
from .queue import Queue

LONGEST_LEASE: Final = 1.0
MOST_TOKENS: Final = 1_000_000
# So many leases are told apart; beyond that, neighbours are counted as one that ends with the later.
MOST_LEASES: Final = 16
# Tokens that a sum of fractions may fall short of a whole one.
DUST: Final = 1e-6
_MOST: Final = (1 << 30) - 1
_FARTHEST: Final = 2.5e11  # seconds: within the years that a datetime can have
# The bucket of a queue's own rate. Nobody else's name may begin so.
OF_A_QUEUE: Final = "queue:"

Problem = Literal["unknown", "too many"]


class Lease(Struct, frozen=True, array_like=True, gc=False):
    amount: int
    until: float


class Bucket(Struct, frozen=True, kw_only=True):
    """A limit's row. `tokens` were stored at the instant `at`; leases are sorted by their end."""

    scope: str
    capacity: int
    refill: float  # tokens a second
    tokens: float
    at: float
    version: int = 1
    leases: tuple[Lease, ...] = ()

    @property
    def leased(self) -> int:
        """How many tokens are out. Those of leases that are over by `at` are not among them."""
        return sum(lease.amount for lease in self.leases)


class Take(Struct, frozen=True, kw_only=True, gc=False):
    """A wish for tokens of one scope: as many as there are up to `want`, but no fewer than `least`.

    They are leased for `lease` seconds. `back` names a lease, by its end, and how many of its tokens will not be used.
    """

    scope: str
    want: int
    least: int = 1
    lease: float = LONGEST_LEASE
    back: Lease | None = None


class Taken(Struct, frozen=True, kw_only=True, gc=False):
    """What became of a Take. With nothing got, `wait` says in how many seconds `least` tokens could be there.

    `until` is the end of the lease by the storage's clock: its name, if some of it is handed back. `capacity` is None
    for a queue without a rate: it gives all that is wanted.
    """

    got: int = 0
    wait: float = 0.0
    until: float = 0.0
    capacity: int | None = None
    refill: float = math.inf
    problem: Problem | None = None


def mended(bucket: Bucket) -> Bucket:
    """A bucket read from a storage, with damaged values replaced: a rate that is not a positive number becomes one
    token a second, and the tokens are kept between minus and plus the capacity."""
    capacity = min(max(bucket.capacity, 1), _MOST)
    refill, tokens, at = bucket.refill, bucket.tokens, bucket.at
    if not (0 < refill <= _FARTHEST and abs(at) <= _FARTHEST and math.isfinite(tokens)):
        refill, tokens, at = 1.0, 0.0, 0.0
    elif capacity == bucket.capacity and 0 <= bucket.version < _MOST and abs(tokens) <= capacity:
        return bucket
    return msgspec.structs.replace(
        bucket,
        capacity=capacity,
        refill=refill,
        tokens=min(max(tokens, -float(capacity)), float(capacity)),
        at=at,
        version=bucket.version if 0 <= bucket.version < _MOST else 1,
    )


def fresh(scope: str, capacity: int, refill: float, now: float) -> Bucket:
    """A new bucket is full."""
    return Bucket(scope=scope, capacity=capacity, refill=refill, tokens=float(capacity), at=now)


def grown(bucket: Bucket, now: float) -> Bucket:
    """The bucket as it stands now: leases that are over are gone, and tokens have grown as far as there was room.

    A clock that was set back makes nothing grow, and no lease last longer than leases may.
    """
    latest = now + LONGEST_LEASE
    # At one of them, or before it if the clock was set back: nothing of it may be counted twice.
    tokens, at, leased = bucket.tokens, min(bucket.at, now), bucket.leased
    left: list[Lease] = []
    for lease in bucket.leases:
        if lease.until <= now:
            tokens = _fill(bucket, tokens, leased, lease.until - at)
            at = max(at, lease.until)
            leased -= lease.amount
        else:
            left.append(lease if lease.until <= latest else Lease(lease.amount, latest))
    tokens = _fill(bucket, tokens, leased, now - at)
    return msgspec.structs.replace(bucket, tokens=tokens, at=now, leases=tuple(left))


def take(bucket: Bucket, wish: Take, now: float) -> tuple[Bucket, Taken]:
    """The bucket afterwards, and the answer."""
    bucket = grown(bucket, now)
    if wish.back is not None:
        bucket = _put_back(bucket, wish.back, now)
    known = Taken(capacity=bucket.capacity, refill=bucket.refill)
    if wish.least > bucket.capacity:
        return bucket, msgspec.structs.replace(known, problem="too many")
    got = min(wish.want, math.floor(bucket.tokens + DUST))
    if got < wish.least:
        return bucket, msgspec.structs.replace(known, wait=_until(bucket, wish.least))
    if got <= 0:
        return bucket, known
    until = now + min(max(wish.lease, 0.0), LONGEST_LEASE)
    leases = _joined(sorted((*bucket.leases, Lease(got, until)), key=lambda lease: lease.until))
    bucket = msgspec.structs.replace(bucket, tokens=bucket.tokens - got, leases=leases)
    return bucket, msgspec.structs.replace(known, got=got, until=until)


def next_token(bucket: Bucket, now: float) -> float | None:
    """Seconds until one token is there, if nobody else takes any; None: it is there."""
    return take(bucket, Take(scope=bucket.scope, want=1), now)[1].wait or None


def drain(bucket: Bucket, now: float) -> Bucket:
    """Nothing is left: the far side has refused. What is leased already may still be used."""
    return msgspec.structs.replace(grown(bucket, now), tokens=0.0)


def edit(bucket: Bucket, capacity: int, refill: float, now: float) -> Bucket:
    """Other settings from now on. Tokens are cut to the new capacity; what has grown so far, grew by the old rate."""
    bucket = grown(bucket, now)
    room = max(0.0, capacity - bucket.leased)
    return msgspec.structs.replace(
        bucket, capacity=capacity, refill=refill, tokens=min(bucket.tokens, room), version=bucket.version + 1
    )


def capacity_of(refill: float, burst: int | None) -> int:
    """How many may come at once: the burst, or what a second gives, at least 1."""
    return max(1, math.floor(refill + DUST)) if burst is None else burst


def of_queue(bucket: Bucket | None, queue: Queue | None, scope: str, now: float) -> Bucket | None:
    """The bucket of a queue's rate, as the queue's row wants it now; None if the queue has no rate."""
    if queue is None or queue.rate is None or queue.rate <= 0:
        return None
    capacity = capacity_of(queue.rate, queue.burst)
    if bucket is None:
        return fresh(scope, capacity, queue.rate, now)
    if (bucket.capacity, bucket.refill) == (capacity, queue.rate):
        return bucket
    return edit(bucket, capacity, queue.rate, now)


def is_idle(bucket: Bucket, queue: Queue | None, now: float) -> bool:
    """Whether the bucket of a queue that has no rate any more can be forgotten: one that is made anew is full, and so
    must this one be, or a rate that is taken back and set again would give its burst twice."""
    if of_queue(bucket, queue, bucket.scope, now) is not None:
        return False
    full = grown(bucket, now)
    return not full.leases and full.tokens >= full.capacity


def queue_of(scope: str) -> str | None:
    """The queue whose rate this scope is; None for a limit that somebody named."""
    return scope.removeprefix(OF_A_QUEUE) if scope.startswith(OF_A_QUEUE) else None


def check_scope(value: str) -> str:
    """The name of a limit that somebody may declare."""
    names.check_name("limit", value)
    if queue_of(value) is not None:
        raise ValueError(f"limit {value}: names that begin with {OF_A_QUEUE!r} are of the queues' own rates")
    return value


def check_rate(rate: float | str, burst: int | None) -> tuple[int, float]:
    """(capacity, refill) of a rate such as "100/m" and its burst."""
    refill = settings.rate(rate)
    if burst is not None and (isinstance(burst, bool) or not isinstance(burst, int) or not 1 <= burst <= MOST_TOKENS):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"burst must be a whole number from 1 to {MOST_TOKENS:,}, not {burst!r}")
    return capacity_of(refill, burst), refill


def check_amount(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"n must be a whole number of tokens, 1 or more, not {n!r}")
    return n


def _fill(bucket: Bucket, tokens: float, leased: int, seconds: float) -> float:
    if seconds <= 0:
        return tokens
    # Never less than there was: after an edit the leases alone may be more than the capacity.
    return max(tokens, min(bucket.capacity - leased, tokens + bucket.refill * seconds))


def _until(bucket: Bucket, least: int) -> float:
    """Seconds until so many tokens are stored, if nobody else takes any."""
    tokens, at, leased = bucket.tokens, bucket.at, bucket.leased
    for lease in bucket.leases:
        if bucket.capacity - leased >= least:
            break
        tokens = _fill(bucket, tokens, leased, lease.until - at)
        at, leased = lease.until, leased - lease.amount
    return at - bucket.at + max(0.0, least - tokens) / bucket.refill


def _put_back(bucket: Bucket, back: Lease, now: float) -> Bucket:
    """Tokens that will not be used are stored again, unless their lease is over: then they are forfeited. The lease
    may be counted together with others by now, but then it ends no sooner: it is the first that ends at or after."""
    if back.until <= now:
        return bucket
    for place, lease in enumerate(bucket.leases):
        if lease.until >= back.until - DUST:
            amount = max(0, min(back.amount, lease.amount))
            rest = () if amount == lease.amount else (Lease(lease.amount - amount, lease.until),)
            leases = (*bucket.leases[:place], *rest, *bucket.leases[place + 1 :])
            return msgspec.structs.replace(bucket, tokens=bucket.tokens + amount, leases=leases)
    return bucket


def _joined(leases: list[Lease]) -> tuple[Lease, ...]:
    while len(leases) > MOST_LEASES:
        gaps = [later.until - sooner.until for sooner, later in itertools.pairwise(leases)]
        place = gaps.index(min(gaps))
        sooner, later = leases[place : place + 2]
        leases[place : place + 2] = [Lease(sooner.amount + later.amount, later.until)]
    return tuple(leases)
