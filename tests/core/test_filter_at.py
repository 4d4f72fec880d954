"""A filter with its distances turned into instants goes on meaning the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.filter import Row, at, matches, parse

NOW = 1_800_000_000.0
TEXTS = (
    "age:>1h",
    "age:1h..2h",
    "-age:<=1h",
    "created:<90m",
    "created:>1h,<10s",
    "finished:>=1h",
    "-finished:1h..2d",
    "due:<10m",
    "due:>10m",
    "due:<=1h",
    "due:5m..1h",
    "due:<0s",
    "created:2027-01-15 queue:mail -is:due attempt:>3 wait:>3s free",
)


def a_row(created: float, due: float, finished: float | None) -> Row:
    return Row(
        id="a", state="ready", queue="mail", task="send", priority=0, attempt=4,
        created_at=created, run_at=due, finished_at=finished,
    )  # fmt: skip


steps = st.integers(-100_000, 100_000).map(lambda n: NOW + n + 0.5)


@given(st.sampled_from(TEXTS), steps, steps, st.none() | steps)
def test_it_means_at_any_time_what_it_meant_then(text: str, created: float, due: float, finished: float | None) -> None:
    row = a_row(created, due, finished)
    then = parse(text)
    fixed = at(then, NOW)
    if "wait" not in text and "is:" not in text:
        assert matches(fixed, row, NOW + 5_000) == matches(then, row, NOW)
    assert parse(str(fixed)) == fixed


def test_what_is_no_distance_stays_as_it_is() -> None:
    kept = parse(TEXTS[-1])
    assert at(kept, NOW) == kept


@pytest.mark.parametrize(("text", "now"), [("due:>36500d", 253_402_214_000.0), ("age:>36500d", -62_135_596_000.0)])
def test_an_instant_out_of_the_calendar_is_its_edge(text: str, now: float) -> None:
    fixed = at(parse(text), now)
    assert not matches(fixed, a_row(now, now, None), now)
    assert parse(str(fixed)) == fixed
