"""How long a request's body may take, and how large it may be."""

from __future__ import annotations

import pytest

from treadle.core.request_body import LARGEST, PATIENCE, SLOWEST, Length, is_too_large, length_of, time_for


def test_a_small_body_has_ten_seconds_and_a_large_one_a_minimum_rate() -> None:
    assert time_for(0) == PATIENCE == 10
    assert time_for(1) < 10.001
    assert time_for(SLOWEST) == PATIENCE + 1
    assert time_for(LARGEST) == 42


@pytest.mark.parametrize(
    ("content_length", "transfer_encoding", "length"),
    [
        (None, None, None),
        ("0", None, None),
        ("00", None, None),
        ("7", None, 7),
        ("7", "chunked", "unknown"),
        (None, "chunked", "unknown"),
        ("-1", None, "unknown"),
        ("٣", None, "unknown"),
        ("²", None, "unknown"),
        ("", None, "unknown"),
        ("1e3", None, "unknown"),
        ("9" * 5000, None, "unknown"),
    ],
)
def test_what_the_headers_say(content_length: str | None, transfer_encoding: str | None, length: Length) -> None:
    assert length_of(content_length, transfer_encoding) == length


@pytest.mark.parametrize(
    ("length", "received", "is_over"),
    [(None, 0, False), (10, 0, False), (11, 0, True), ("unknown", 10, False), ("unknown", 11, True), (5, 11, True)],
)
def test_too_large_by_word_or_by_deed(length: Length, received: int, is_over: bool) -> None:
    assert is_too_large(length, received, 10) is is_over
