"""Heat: how long runs took, over time and in bands, as one picture shows it; and all of them as one histogram.

Bands are neighbouring buckets of the roll-ups' histograms taken together, so nothing is read again from the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from .histogram import GROWTH, LEAST, Histogram
from .rollup import Rollup, floor

COARSE: Final = 8  # buckets in a band of the heat map: it doubles from band to band
FINE: Final = 3  # and in a bar of the histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Durations from `low` up to `high` seconds, and how many there were."""

    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """`cells[n]` are the counts at `moments[n]`, one for each of the `bands`, the shortest durations first."""

    step: float
    moments: tuple[datetime, ...]
    bands: tuple[Band, ...]
    cells: tuple[tuple[int, ...], ...]
    histogram: tuple[Band, ...]


def heat(rows: Iterable[Rollup], since: float, until: float, step: float) -> Heat:
    """The run times of these rows, over all queues, tasks and pods that they are of."""
    first = floor(since, step)
    columns: dict[float, Histogram] = {}
    whole = Histogram()
    for row in rows:
        columns.setdefault(floor(row.at, step), Histogram()).absorb(row.run)
        whole.absorb(row.run)
    last = max([floor(until, step), *columns])
    moments = [first + n * step for n in range(int((last - first) / step) + 1)]
    bands = banded(whole, COARSE)
    cells = [_column(columns.get(at), bands) for at in moments]
    return Heat(
        step=step,
        moments=tuple(datetime.fromtimestamp(at, UTC) for at in moments),
        bands=bands,
        cells=tuple(cells),
        histogram=banded(whole, FINE),
    )


def banded(times: Histogram, size: int) -> tuple[Band, ...]:
    """Its counts in bands of `size` buckets, from the first that holds something to the last, the empty ones too."""
    counts = _counts(times, size)
    if not counts:
        return ()
    bands = range(min(counts), max(counts) + 1)
    return tuple(Band(low=_low(n * size), high=_low((n + 1) * size), count=counts.get(n, 0)) for n in bands)


def _column(times: Histogram | None, bands: tuple[Band, ...]) -> tuple[int, ...]:
    if times is None:
        return (0,) * len(bands)
    counts = {band.low: band.count for band in banded(times, COARSE)}
    return tuple(counts.get(band.low, 0) for band in bands)


def _counts(times: Histogram, size: int) -> dict[int, int]:
    counts: dict[int, int] = {}
    for bucket, count in times.counts.items():
        counts[bucket // size] = counts.get(bucket // size, 0) + count
    return counts


def _low(bucket: int) -> float:
    return LEAST * float(GROWTH ** (bucket - 1)) if bucket > 0 else 0.0
