"""Histograms: close to the truth, and the same whatever the order in which their parts are added."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from treadle.core.histogram import LEAST, MOST, Histogram, merged

durations = st.floats(min_value=LEAST * 1.01, max_value=1e8)
many = st.lists(durations, min_size=1, max_size=200)


def of(values: list[float]) -> Histogram:
    found = Histogram()
    for value in values:
        found.add(value)
    return found


@given(many, st.floats(min_value=0.0, max_value=1.0))
def test_a_quantile_is_within_five_percent_of_the_true_one(values: list[float], share: float) -> None:
    true = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    found = of(values).quantile(share)
    assert found is not None
    assert found == pytest.approx(true, rel=0.05)


@given(many)
def test_count_sum_and_max_are_exact(values: list[float]) -> None:
    found = of(values)
    assert (found.count, found.max) == (len(values), max(values))
    assert found.sum == pytest.approx(sum(values))
    assert found.mean == pytest.approx(sum(values) / len(values))


@given(many, many, many)
def test_parts_add_up_in_any_order(a: list[float], b: list[float], c: list[float]) -> None:
    whole = of(a + b + c)
    for parts in (
        [of(a), of(b), of(c)],
        [of(c), of(a), of(b)],
        [merged([of(a), of(b)]), of(c)],
        [of(a), merged([of(b), of(c)])],
    ):
        together = merged(parts)
        assert (together.counts, together.max) == (whole.counts, whole.max)
        assert together.sum == pytest.approx(whole.sum)


@given(many)
def test_it_travels_as_json(values: list[float]) -> None:
    found = of(values)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Histogram) == found


anything = st.one_of(durations, st.sampled_from([0.0, -1.0, LEAST, MOST, 1e300, float("inf"), float("nan")]))


@example([1.0] * 8)
@example([1.0] * 8 + [float("nan"), 2.0])
@given(st.lists(anything, max_size=40))
def test_all_at_once_is_each_by_itself(values: list[float]) -> None:
    at_once = Histogram()
    at_once.add_all(values)
    one_by_one = of(values)
    assert (at_once.counts, at_once.max) == (one_by_one.counts, one_by_one.max)
    assert at_once.sum == pytest.approx(one_by_one.sum)


def test_merging_leaves_the_parts_as_they_were() -> None:
    part = of([1.0])
    other = part.copy()
    other.add(2.0)
    merged([part, other]).add(3.0)
    assert (part.count, other.count) == (1, 2)


def test_nothing_has_no_quantiles() -> None:
    assert Histogram().quantile(0.5) is None
    assert Histogram().mean is None


@pytest.mark.parametrize("value", [0.0, -5.0, float("nan"), LEAST])
def test_what_is_less_than_a_moment_counts_as_nothing(value: float) -> None:
    found = of([value])
    assert (found.count, found.sum, found.max, found.quantile(0.5)) == (1, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("value", [float("inf"), MOST, 1e300])
def test_what_has_no_end_is_cut(value: float) -> None:
    found = of([value])
    assert (found.count, found.sum, found.max) == (1, MOST, MOST)
    assert found.quantile(0.5) == pytest.approx(MOST, rel=0.1)


def test_counts_up_to_bounds_rise_and_end_with_all() -> None:
    found = of([0.0, 0.003, 0.02, 0.4, 0.4, 7.0])
    assert found.up_to((0.005, 0.1, 1.0, 10.0)) == [2, 3, 5, 6]
