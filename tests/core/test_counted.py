"""Numbers that may be too low say so."""

from __future__ import annotations

from treadle.core.counted import Counted


def test_it_is_a_mapping_that_knows_what_may_be_more() -> None:
    counted = Counted({"failed": 3, "succeeded": 159}, ["succeeded"])
    assert counted == {"failed": 3, "succeeded": 159}
    assert counted.at_least == {"succeeded"}
    assert Counted({"failed": 3}).at_least == frozenset()
