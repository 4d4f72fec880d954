"""How much of something scarce one caller may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.share import FEWEST_CONNECTIONS, OTHER_FILES, Shares, Verdict, may_take, most_connections


@pytest.mark.parametrize(
    ("held", "taken", "most", "wanted", "verdict"),
    [
        (0, 0, 1000, 1, "granted"),
        (499, 499, 1000, 1, "granted"),
        (500, 500, 1000, 1, "share"),  # alone: half
        (500, 500, 1000, 500, "share"),
        (0, 500, 1000, 1, "granted"),  # somebody else
        (249, 749, 1000, 1, "granted"),
        (250, 750, 1000, 1, "share"),
        (0, 999, 1000, 1, "granted"),
        (0, 1000, 1000, 1, "full"),
        (500, 1000, 1000, 1, "full"),
        (0, 0, 1, 1, "granted"),
        (0, 0, 0, 1, "full"),
        (0, 0, 10, 11, "full"),
        (0, 4, 10, 6, "granted"),
        (1, 4, 10, 6, "share"),
    ],
)
def test_what_one_may_take(held: int, taken: int, most: int, wanted: int, verdict: Verdict) -> None:
    assert may_take(held, taken, most, wanted) == verdict


@pytest.mark.parametrize("callers", [1, 2, 3, 9])
def test_however_many_take_what_they_can_as_much_as_each_of_them_has_stays_free(callers: int) -> None:
    shares = Shares(1000)
    while "granted" in [shares.take(str(each)) for each in range(callers)]:
        pass
    held = [shares.held(str(each)) for each in range(callers)]
    assert max(held) - min(held) <= 1
    assert 1000 - shares.taken >= 1000 // (callers + 1) >= max(held) - 1
    assert shares.take("the admin") == "granted"


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), max_size=60))
def test_the_count_is_what_was_taken_and_not_given_back(steps: list[tuple[str, int, bool]]) -> None:
    shares, kept = Shares(30), dict.fromkeys("abc", 0)
    for caller, amount, takes in steps:
        if takes:
            kept[caller] += amount if shares.take(caller, amount) == "granted" else 0
        elif kept[caller] >= amount:
            shares.give_back(caller, amount)
            kept[caller] -= amount
        assert {each: shares.held(each) for each in kept} == kept and shares.taken == sum(kept.values()) <= 30
    assert len(shares._held) == sum(1 for each in kept.values() if each)


@pytest.mark.parametrize(
    ("files", "most"),
    [(None, 1000), (20_000, 1000), (1024, 1024 - OTHER_FILES), (256, 256 - OTHER_FILES), (64, FEWEST_CONNECTIONS)],
)
def test_connections_leave_files_to_the_rest_of_the_process(files: int | None, most: int) -> None:
    assert most_connections(1000, files) == most
    assert most_connections(20, files) == 20
