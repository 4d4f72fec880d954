"""Facts of doctor."""

from __future__ import annotations

from treadle.core.fact import Fact, bounded


def test_of_many_alike_some_are_shown_and_the_others_counted() -> None:
    facts = [Fact("D1", "warn", f"queue {n}") for n in range(1_005)] + [Fact("D1", "ok", "x"), Fact("D2", "error", "y")]
    found = bounded(facts, 3)
    assert [fact.text for fact in found] == [
        "queue 0", "queue 1", "queue 2", "… and 1,002 more: treadle doctor has them all", "x", "y",
    ]  # fmt: skip
    assert {fact.level for fact in found[:4]} == {"warn"}
    assert bounded(facts[:3], 3) == facts[:3]
