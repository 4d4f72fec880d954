"""Histogram: how long things took, in buckets that grow by a tenth, so that two of them add up to a third.

A quantile of a quantile means nothing: the p95 of an hour is not the mean of sixty p95s. Counts in fixed buckets do add
up, over minutes, hours and pods, in any order. Buckets that grow by the factor 1.1 give every quantile to within 5 % of
the true value, whatever the scale, and only those that were met are kept: a task whose runs take from 20 to 80 ms has
fifteen. Below a microsecond everything counts as nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import ceil, isnan, log
from typing import Final

from msgspec import Struct

GROWTH: Final = 1.1
LEAST: Final = 1e-6
MOST: Final = 1e9  # thirty years: what is longer is cut
_FEW: Final = 8
_TOP: Final = 1 + int(log(MOST / LEAST) / log(GROWTH))


class Histogram(Struct):
    """Durations in seconds, counted. The only thing in the core that changes in place: a pod adds to it once a job."""

    counts: dict[int, int] = {}  # bucket → how many; bucket 0 is "nothing"
    sum: float = 0.0
    max: float = 0.0

    def add(self, value: float) -> None:
        if LEAST < value < MOST:
            bucket = bisect_right(_EDGES, value)
        elif value >= MOST:
            bucket, value = _TOP, MOST
        else:  # also what is less than nothing, or no number: clocks step
            bucket, value = 0, 0.0
        counts = self.counts
        counts[bucket] = counts.get(bucket, 0) + 1
        self.sum += value
        if value > self.max:
            self.max = value

    def add_times(self, value: float, times: int) -> None:
        """The same duration so many times."""
        one = Histogram()
        one.add(value)
        self.absorb(Histogram(dict.fromkeys(one.counts, times), one.sum * times, one.max))

    def add_all(self, values: Sequence[float]) -> None:
        """As `add` for each, at a fifth of the price: sorted, the values of a bucket stand side by side, and those of
        a turn lie in few buckets."""
        ordered, total = sorted(values), sum(values)
        # Something that is no number leaves the others unsorted.
        if len(values) < _FEW or isnan(total) or not (ordered[0] > LEAST and ordered[-1] < MOST):
            for value in values:
                self.add(value)
            return
        counts = self.counts
        begin, end = 0, len(ordered)
        while begin < end:
            bucket = bisect_right(_EDGES, ordered[begin])
            beyond = bisect_left(ordered, _EDGES[bucket], begin) if bucket < _TOP else end
            counts[bucket] = counts.get(bucket, 0) + beyond - begin
            begin = beyond
        self.sum += total
        self.max = max(self.max, ordered[-1])

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def mean(self) -> float | None:
        count = self.count
        return self.sum / count if count else None

    def copy(self) -> Histogram:
        return Histogram(dict(self.counts), self.sum, self.max)

    def absorb(self, other: Histogram) -> None:
        """Add all that the other has counted."""
        counts = self.counts
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        self.sum += other.sum
        if other.max > self.max:
            self.max = other.max

    def quantile(self, share: float) -> float | None:
        """The value that `share` of all do not exceed, to within 5 %; None if nothing was counted."""
        return self.quantiles((share,))[0]

    def quantiles(self, shares: Sequence[float]) -> list[float | None]:
        """Several of them, by one walk; the shares must rise."""
        count = self.count
        if not count:
            return [None] * len(shares)
        found: list[float | None] = []
        ranks = [max(1, ceil(share * count)) for share in shares]
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            while len(found) < len(ranks) and ranks[len(found)] <= seen:
                found.append(min(_middle(bucket), self.max))
        return found

    def up_to(self, bounds: Sequence[float]) -> list[int]:
        """How many are not above each of the (rising) bounds; the bucket that a bound lies in is counted with it."""
        found: list[int] = []
        buckets = sorted(self.counts)
        seen, at = 0, 0
        for bound in bounds:
            while at < len(buckets) and _lower(buckets[at]) <= bound:
                seen += self.counts[buckets[at]]
                at += 1
            found.append(seen)
        return found


def merged(parts: Iterable[Histogram]) -> Histogram:
    """One histogram of all; the parts stay as they are."""
    whole = Histogram()
    for part in parts:
        whole.absorb(part)
    return whole


def _middle(bucket: int) -> float:
    """What stands for all values of a bucket: as far from its lower bound as from its upper, in proportion."""
    return _lower(bucket) * 2 * GROWTH / (1 + GROWTH)


def _lower(bucket: int) -> float:
    return LEAST * float(GROWTH ** (bucket - 1)) if bucket > 0 else 0.0


_EDGES: Final = [_lower(bucket) for bucket in range(1, _TOP + 1)]
"""Where each bucket begins, from the first on."""
