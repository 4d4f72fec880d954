"""As much of a long list as a page shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.core.listing import MOST, listing

NAMES = [f"queue-{n:05}" for n in range(1000)]


def test_a_short_list_is_shown_as_it_is() -> None:
    found = listing(["b", "a"], str, rank=str)
    assert found.rows == ["b", "a"] and found.is_short and found.following is None
    nothing = listing([], str)
    assert nothing.rows == [] and nothing.is_short and nothing.following is None and nothing.matching == 0


def test_of_a_long_one_what_is_going_on_comes_first() -> None:
    found = listing(NAMES, str, rank=lambda name: name != "queue-00777")
    assert found.rows[:2] == ["queue-00777", "queue-00000"] and len(found.rows) == MOST
    assert (found.first, found.matching, found.total, found.following) == (1, 1000, 1000, 2)
    assert not found.is_short


def test_a_name_is_found_wherever_it_is() -> None:
    found = listing([*NAMES, "QUEUE-0077"], str, rank=str, text=" Queue-0077 ")
    assert found.rows == ["QUEUE-0077", *(f"queue-0077{n}" for n in range(10))]
    assert (found.text, found.matching, found.total) == ("Queue-0077", 11, 1001)
    assert not found.is_short and found.following is None
    assert listing(NAMES, str, text="nothing").rows == []


@given(st.integers(0, 30), st.integers(1, 9), st.sampled_from(["", "a", "b", "ab"]))
def test_the_pages_together_are_all_that_match(count: int, most: int, text: str) -> None:
    names = ["ab"[n % 2] + str(n) for n in range(count)]
    seen: list[str] = []
    page: int | None = 1
    while page is not None:
        found = listing(names, str, rank=lambda name: name[1:], text=text, page=page, most=most)
        assert len(found.rows) <= most and found.first == len(seen) + 1
        seen += found.rows
        page = found.following
    assert sorted(seen) == sorted(name for name in names if text in name) and found.matching == len(seen)
    beyond = listing(names, str, text=text, page=1000, most=most)  # what was there has gone meanwhile
    assert beyond.following is None and (beyond.rows or not seen)
