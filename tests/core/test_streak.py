from __future__ import annotations

import pytest

from treadle.core.streak import Step, Streak, find

Y, N, X = True, False, None


@pytest.mark.parametrize(
    ("marks", "found"),
    [
        ([], None),
        ([N, N], None),
        ([X, X], None),
        ([Y, Y], Streak(0.0, at_least=True)),
        ([X, Y, X, Y], Streak(100.0, at_least=True)),  # before it nothing happened that would tell
        ([N, N, N, Y, Y], Streak(300.0)),
        ([Y, N, N, Y], Streak(0.0, at_least=True)),  # too short to be its end
        ([Y, N, N, N, Y], Streak(400.0)),
        ([N, Y], Streak(100.0)),
        ([Y, N, N, N], None),  # it was over
        ([Y, N], Streak(0.0, at_least=True)),
    ],
)
def test_since_when_it_has_been_so(marks: list[bool | None], found: Streak | None) -> None:
    assert find([Step(100.0 * n, mark) for n, mark in enumerate(marks)], 100.0, patience=300.0) == found
