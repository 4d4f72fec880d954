"""Who holds a lock, in words."""

from __future__ import annotations

import doctest

import pytest

from treadle.core import blocker
from treadle.core.blocker import LONGEST_NAME, Blocker, sentence


def test_the_examples() -> None:
    assert doctest.testmod(blocker).failed == 0


@pytest.mark.parametrize(
    ("details", "seconds", "said"),
    [
        ((), None, "table t is locked by session 7"),
        ((), 61.4, "table t is locked by session 7 (1m1s)"),
        (("user ann", "psql"), None, "table t is locked by session 7 (user ann, psql)"),
        (("user ann", "", "active"), 3.0, "table t is locked by session 7 (user ann, active for 3s)"),
        (("a\x1b[31mb",), None, "table t is locked by session 7 (a\\u001b[31mb)"),
        (("x" * 500,), None, f"table t is locked by session 7 ({'x' * LONGEST_NAME})"),
    ],
)
def test_what_is_said_of_one(details: tuple[str, ...], seconds: float | None, said: str) -> None:
    assert Blocker(what="table t", who="session 7", details=details, seconds=seconds).text == said


def test_one_sentence_for_several() -> None:
    two = [Blocker(what="table t", who="session 1", seconds=3.0), Blocker(what="table u", who="session 2")]
    assert sentence(two) == "table t is locked by session 1 (3s), and 1 more hold locks"
    assert sentence(two[1:]) == "table u is locked by session 2"
    assert sentence(()) == ""
