from __future__ import annotations

import pytest

from treadle.core.streak import Step, Streak, find, not_before

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


@pytest.mark.parametrize(
    ("since", "began", "known_since", "expected"),
    [
        (600.0, None, 0.0, 600.0),
        (600.0, 780.0, 0.0, 780.0),  # the five minutes began before the first run of all
        (600.0, 300.0, 0.0, 600.0),
        (600.0, 780.0, 601.0, 600.0),  # it is older than what is known of the first run
    ],
)
def test_nothing_has_been_so_since_before_the_first_run(
    since: float, began: float | None, known_since: float, expected: float
) -> None:
    for at_least in (False, True):
        assert not_before(Streak(since, at_least), began, known_since) == Streak(expected, at_least)
