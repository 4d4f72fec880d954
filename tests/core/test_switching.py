"""The interpreter's switch interval follows the threads that compute."""

from __future__ import annotations

import pytest

from treadle.core.switching import LONGEST, SHORTEST, interval


@pytest.mark.parametrize(
    ("busy", "used", "wanted"),
    [
        (0, 0.0, SHORTEST),
        (8, 1.0, SHORTEST),  # few
        (100, 0.49, SHORTEST),  # many that wait
        (9, 0.5, 0.00018),
        (50, 1.0, 0.001),
        (100, 2.0, LONGEST),
        (1000, 1.0, LONGEST),
    ],
)
def test_it_grows_only_while_many_threads_compute(busy: int, used: float, wanted: float) -> None:
    assert interval(busy, used) == pytest.approx(wanted)
