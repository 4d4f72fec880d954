"""What executors raise and return about calls that ran in another process."""

from __future__ import annotations

from treadle.core.job import ErrorEntry
from treadle.core.outcome import Brought, Elsewhere, Fail, NotBegun


def test_what_was_raised_elsewhere_is_told_by_its_entry() -> None:
    entry = ErrorEntry(attempt=1, kind="error", type="shop.Refused", message="no stock")
    error = Elsewhere(entry, ("shop.Refused",), Fail("no stock"))
    assert (str(error), error.types, type(error.signal)) == ("shop.Refused: no stock", ("shop.Refused",), Fail)


def test_what_has_not_begun_comes_back_after_a_while() -> None:
    assert (str(NotBegun("no child")), NotBegun("no child").delay, NotBegun("no child", 4.0).delay) == (
        "no child",
        1.0,
        4.0,
    )


def test_what_is_brought_is_a_result_or_a_warning() -> None:
    assert Brought() == Brought(None, None)
