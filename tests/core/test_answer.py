"""Answers from outside."""

from __future__ import annotations

from treadle.core import answer
from treadle.core.outcome import ChildLost, Wait


def test_an_id_tells_nothing_of_its_token() -> None:
    assert answer.id_of("secret") == answer.id_of("secret") != answer.id_of("Secret")
    assert "secret" not in answer.id_of("secret")
    assert "secret" not in str(Wait("secret"))


def test_a_lost_child_counts_as_a_crash_unless_it_met_a_limit() -> None:
    assert ChildLost("killed").kind == "worker_lost"
    assert ChildLost("too much memory", "limit").kind == "limit"
