"""Durations as people write them, and as they are read back."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.duration import LONGEST, seconds, words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (90, 90.0),
        (0.25, 0.25),
        (timedelta(minutes=5), 300.0),
        ("90", 90.0),
        ("1.5", 1.5),
        (" 5m ", 300.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        ("1m250ms", 60.25),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("1w2d3h4m5s6ms", 788_645.006),
        ("0s", 0.0),
    ],
)
def test_seconds_timedelta_and_text_are_durations(value: Any, expected: float) -> None:
    result = seconds(value)
    assert result == expected
    assert type(result) is float


def test_minus_zero_is_zero() -> None:
    assert math.copysign(1, seconds(-0.0)) == 1


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (-1, "negative"),
        (-0.001, "negative"),
        (timedelta(seconds=-1), "negative"),
        ("-5m", "negative"),
        (math.nan, "not a number"),
        (math.inf, "100 years"),
        (10**400, "100 years"),
        ("9" * 60, "100 years"),
        (LONGEST * 2, "100 years"),
        (True, "not bool"),
        (None, "not NoneType"),
        ([5], "not list"),
        ("", "empty"),
        ("  ", "empty"),
        ("9" * 65, "longer than 64"),
        ("soon", "not a duration"),
        ("1h30", "not a duration"),
        ("1h 30m", "not a duration"),
        ("1,5h", "unknown unit ','"),
        ("+5m", "not a duration"),
        ("٣s", "not a duration"),
        ("1e3", "not a duration"),
        ("nan", "not a duration"),
        ("5\nm", "not a duration"),
        ("5y", "unknown unit 'y'"),
        ("5M", "unknown unit 'M'"),
        ("5minutes", "unknown unit 'minutes'"),
        ("1m1m", "each unit once"),
        ("30m1h", "the largest first"),
        ("5ms1s", "the largest first"),
    ],
)
def test_a_slip_is_refused_by_name_and_with_an_example(value: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as caught:
        seconds(value, "timeout")
    message = str(caught.value)
    assert message.startswith("timeout ")
    assert complaint in message
    assert '"1h30m"' in message


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0s"),
        (0.0004, "0s"),
        (0.25, "250ms"),
        (0.9996, "1s"),
        (1.5, "1.5s"),
        (45, "45s"),
        (59.9996, "1m"),
        (60.05, "1m0.05s"),
        (5400, "1h30m"),
        (86_400, "1d"),
        (30 * 86_400 + 1, "30d1s"),
        (-5, "-5s"),
        (math.inf, "inf"),
        (1e308, "1e+308"),
    ],
)
def test_words_are_compact(value: float, expected: str) -> None:
    assert words(value) == expected


@settings(deadline=None, max_examples=300)
@given(st.floats(min_value=0, max_value=LONGEST - 1))
def test_what_words_says_seconds_reads_again(value: float) -> None:
    assert seconds(words(value)) == pytest.approx(value, abs=0.001)


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=80))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        found = seconds(text)
    except ValueError:
        return
    assert 0 <= found <= LONGEST
