from __future__ import annotations

import itertools

from treadle.core.heat import COARSE, FINE, banded, heat
from treadle.core.histogram import Histogram
from treadle.core.rollup import MINUTE, Rollup


def row(at: float, *times: float) -> Rollup:
    run = Histogram()
    for each in times:
        run.add(each)
    return Rollup(resolution=MINUTE, at=at, queue="q", task="t", run=run)


def test_cells_add_up_to_the_bands_and_the_histogram() -> None:
    found = heat([row(60, 0.1, 0.11, 2.0), row(120, 0.1), row(240, 0.0)], 0, 300, 60)
    assert [moment.timestamp() for moment in found.moments] == [0, 60, 120, 180, 240, 300]
    assert [sum(column) for column in found.cells] == [0, 3, 1, 0, 1, 0]
    by_band = [sum(column[n] for column in found.cells) for n in range(len(found.bands))]
    assert by_band == [band.count for band in found.bands]
    assert sum(band.count for band in found.histogram) == 5


def test_bands_join_without_a_gap_and_hold_their_values() -> None:
    times = Histogram()
    for value in (0.003, 0.2, 7.0):
        times.add(value)
    for size in (COARSE, FINE):
        bands = banded(times, size)
        assert all(one.high == other.low for one, other in itertools.pairwise(bands))
        for value in (0.003, 0.2, 7.0):
            assert any(band.low <= value < band.high and band.count for band in bands)


def test_nothing_measured() -> None:
    found = heat([], 0, 60, 60)
    assert (found.bands, found.histogram, found.cells) == ((), (), ((), ()))


def test_rows_later_than_the_end_are_shown() -> None:
    assert len(heat([row(600, 1.0)], 0, 60, 60).moments) == 11
