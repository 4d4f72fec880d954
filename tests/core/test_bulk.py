from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from treadle.core import bulk

texts = st.lists(st.text(max_size=6))


def itself(text: str) -> str:
    return text


@given(texts, st.integers(0, 30))
def test_what_fits_in_one_transaction_is_taken_whole(calls: list[str], most: int) -> None:
    reading = iter(calls)
    taken, are_all = bulk.take(reading, itself, most)
    assert taken + list(reading) == calls
    assert are_all == (sum(map(bulk.size, calls)) <= most)
    assert are_all or sum(map(bulk.size, taken[:-1])) <= most < sum(map(bulk.size, taken))


@given(texts, st.integers(1, 30), st.integers(0, 5))
def test_pieces_keep_the_order_and_the_bound(calls: list[str], most: int, row: int) -> None:
    pieces = list(bulk.cut(calls, itself, most, row))
    assert [call for piece in pieces for call in piece] == calls
    assert all(pieces)
    assert all(len(piece) == 1 or sum(bulk.size(call) + row for call in piece) <= most for piece in pieces)


def test_a_piece_is_cut_as_soon_as_the_next_call_does_not_fit() -> None:
    """The iterator may make megabytes with every step: no more of it is read than the piece and one call."""
    read: list[int] = []

    def calls() -> list[str]:
        return ["x" * 10] * 100

    pieces = bulk.cut((read.append(number) or call for number, call in enumerate(calls())), itself, 30, 0)
    assert (len(next(pieces)), len(read)) == (3, 4)
    assert (len(next(pieces)), len(read)) == (3, 7)


def test_characters_beyond_ascii_count_as_the_bytes_that_they_take() -> None:
    assert [bulk.size(text) for text in ("", "abc", "ü", "€", "😀", "\ud800")] == [0, 3, 2, 3, 4, 3]
