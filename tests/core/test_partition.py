"""Partitions: names, and a hash that never changes and is even."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.partition import LONGEST_KEY, MOST, Partitions, place


def test_the_names() -> None:
    assert list(Partitions("email", 4)) == ["email", "email__p1", "email__p2", "email__p3"]
    assert list(Partitions("email", 1)) == ["email"]
    assert len(Partitions("email", 4)) == 4


@pytest.mark.parametrize(
    ("name", "count"),
    [("email", 0), ("email", MOST + 1), ("email", True), ("email", "4"), ("e mail", 2), ("e" * 126, 2)],
)
def test_what_is_no_partitioned_queue(name: str, count: int) -> None:
    with pytest.raises(ValueError, match="queue"):
        Partitions(name, count)


@pytest.mark.parametrize(
    ("key", "of_4", "of_7"), [("a", 1, 0), ("b", 3, 6), ("customer-42", 0, 4), ("ünïcode", 2, None)]
)
def test_the_hash_never_changes(key: str, of_4: int, of_7: int | None) -> None:
    """Jobs of one key that are spread by two versions of the code would lose their order."""
    assert place(key, 4) == of_4
    assert of_7 is None or place(key, 7) == of_7
    assert Partitions("email", 4).of(key) == list(Partitions("email", 4))[of_4]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=LONGEST_KEY), st.integers(1, MOST))
def test_every_key_has_one_place(key: str, count: int) -> None:
    assert 0 <= place(key, count) < count
    assert place(key, count) == place(key, count)


@pytest.mark.parametrize("count", [2, 3, 4, 7, 16, 100])
@pytest.mark.parametrize("shape", ["{}", "customer-{}", "{:08}", "tenant/{}/orders"])
def test_keys_are_spread_evenly(count: int, shape: str) -> None:
    keys = count * 1_000
    found = Counter(place(shape.format(number), count) for number in range(keys))
    assert set(found) == set(range(count))
    # Six standard deviations: a fair hash never fails this, a bad one always does.
    spread = 6 * (1_000 * (1 - 1 / count)) ** 0.5
    assert all(abs(many - 1_000) < spread for many in found.values())


@pytest.mark.parametrize("key", ["", "x" * (LONGEST_KEY + 1), "\ud800", 7, None])
def test_what_is_no_key(key: str) -> None:
    with pytest.raises(ValueError, match="ordering_key"):
        Partitions("email", 4).of(key)
