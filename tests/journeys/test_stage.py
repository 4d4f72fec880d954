"""The checker is itself checked: a history with one thing wrong must not pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from .stage import Move, check_life

JOB = {"state": "succeeded", "attempt": 2, "max_attempts": 5, "crashes": 1}


def a_move(n: int, was: str | None, became: str, token: str | None, attempt: int, **more: Any) -> Move:
    rest = {"old_token": None, "old_attempt": attempt, "crashes": 0, "old_pod": None, "pod": None, **more}
    return Move(n=n, at=float(n), id="a", was=was, became=became, token=token, attempt=attempt, **rest)


# Claimed and given back, claimed and rescued, claimed and ended.
LIFE = [
    a_move(1, None, "ready", None, 0),
    a_move(2, "ready", "running", "t1", 1, old_attempt=0),
    a_move(3, "running", "ready", "t1", 0, old_attempt=1),
    a_move(4, "ready", "running", "t2", 1, old_attempt=0),
    a_move(5, "running", "ready", "t2", 1),
    a_move(6, "ready", "running", "t3", 2, old_attempt=1),
    a_move(7, "running", "succeeded", "t3", 2),
]


def test_a_life_as_it_should_be_passes() -> None:
    check_life("a", JOB, LIFE)


@pytest.mark.parametrize("n", range(1, 7))
def test_a_life_with_an_event_missing_is_rejected(n: int) -> None:
    with pytest.raises(AssertionError):
        check_life("a", JOB, [move for move in LIFE if move.n != n + 1])


@pytest.mark.parametrize("n", range(1, 7))
def test_a_life_with_an_event_doubled_is_rejected(n: int) -> None:
    with pytest.raises(AssertionError):
        check_life("a", JOB, [*LIFE[: n + 1], *LIFE[n:]])


def test_a_life_with_two_tokens_swapped_is_rejected() -> None:
    with pytest.raises(AssertionError):
        check_life("a", JOB, [*LIFE[:-1], replace(LIFE[-1], token="t1")])
    with pytest.raises(AssertionError):
        check_life("a", JOB, [*LIFE[:5], replace(LIFE[5], token="t1"), replace(LIFE[6], token="t1")])


@pytest.mark.parametrize(
    "wrong", [{"state": "running"}, {"state": "failed"}, {"attempt": 3}, {"max_attempts": 1}, {"crashes": 4}]
)
def test_a_row_that_its_history_does_not_tell_of_is_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check_life("a", {**JOB, **wrong}, LIFE)
