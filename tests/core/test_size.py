"""Sizes: bytes, and the texts that mean them."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core.size import size, words


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (1, 1),
        ("7", 7),
        ("64KiB", 65_536),
        ("512MiB", 512 << 20),
        (" 2 GiB ", 2 << 30),
        ("1.5GB", 1_500_000_000),
        ("10kB", 10_000),
        ("100B", 100),
    ],
)
def test_what_is_a_size(given: int | str, found: int) -> None:
    assert size(given) == found


@pytest.mark.parametrize(
    ("given", "words_of_it"),
    [
        ("", "memory '' is not a size"),
        ("much", "memory 'much' is not a size"),
        ("-1", "memory '-1' is not a size"),
        ("1m", "unknown unit 'm'"),
        (0, "at least a byte"),
        ("0MiB", "at least a byte"),
        (1 << 60, "at most a PiB"),
        (True, "not bool"),
        (1.5, "not float"),
        (None, "not NoneType"),
    ],
)
def test_what_is_none(given: Any, words_of_it: str) -> None:
    with pytest.raises(ValueError, match="memory") as caught:
        size(given, "memory")
    assert words_of_it in str(caught.value)


@pytest.mark.parametrize("text", ["512MiB", "3GiB", "1KiB", "5GB", "7MB", "9kB", "7B"])
def test_words_are_what_is_read(text: str) -> None:
    assert words(size(text)) == text


def test_nothing_has_words_too() -> None:
    assert words(0) == "0B"
