"""Job ids: time-ordered, monotonic, canonical."""

from __future__ import annotations

from uuid import RFC_4122, UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.ids import is_id, text, texts, unix_ms_of, uuid7

_clocks = st.integers(0, 2**47)
_entropy = st.integers(0, 2**80 - 1)


@settings(deadline=None, max_examples=150)
@given(_clocks, _entropy)
def test_an_id_is_a_uuid_of_version_7(unix_ms: int, entropy: int) -> None:
    made = UUID(int=uuid7(unix_ms, 0, entropy))
    assert (made.version, made.variant) == (7, RFC_4122)


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 2**48 - 1), _entropy)
def test_an_id_carries_its_time(unix_ms: int, entropy: int) -> None:
    assert unix_ms_of(text(uuid7(unix_ms, 0, entropy))) == unix_ms


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(_clocks, _entropy), min_size=2, max_size=20))
def test_ids_rise_whatever_the_clock_does(draws: list[tuple[int, int]]) -> None:
    last = 0
    for unix_ms, entropy in draws:
        made = uuid7(unix_ms, last, entropy)
        assert made > last
        assert text(made) > text(last)
        assert (UUID(int=made).version, UUID(int=made).variant) == (7, RFC_4122)
        last = made


@settings(deadline=None, max_examples=150)
@given(_clocks, st.lists(st.integers(2**80 - 2**8, 2**80 - 1), min_size=2, max_size=20))
def test_ids_rise_when_chance_gives_only_the_largest_numbers(unix_ms: int, draws: list[int]) -> None:
    last = 0
    for entropy in draws:
        made = uuid7(unix_ms, last, entropy)
        assert made > last
        assert UUID(int=made).version == 7
        last = made


def test_a_step_that_does_not_fit_goes_on_in_the_next_millisecond() -> None:
    everything = 2**80 - 1
    last = uuid7(1000, 0, everything)
    assert unix_ms_of(text(last)) == 1000
    assert unix_ms_of(text(uuid7(1000, last, 5))) == 1001


def test_a_clock_before_the_epoch_still_gives_an_id() -> None:
    made = UUID(int=uuid7(-5, 0, 42))
    assert (made.version, made.variant) == (7, RFC_4122)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**128 - 1))
def test_text_is_the_canonical_form(value: int) -> None:
    assert text(value) == str(UUID(int=value))
    assert is_id(text(value))


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "0",
        "019A8997-8540-7595-9BDE-31BB1968D054",
        "{019a8997-8540-7595-9bde-31bb1968d054}",
        "019a8997854075959bde31bb1968d054",
        "019a8997-8540-7595-9bde-31bb1968d054\n",
        " 019a8997-8540-7595-9bde-31bb1968d054",
        "019a8997-8540-7595-9bde-31bb1968d05g",
        "019a8997-8540-7595-9bde31bb1968d054-",
        "x" * 10_000,
    ],
)
def test_any_other_form_is_no_id(wrong: str) -> None:
    assert not is_id(wrong)
    with pytest.raises(ValueError, match="is not a UUIDv7"):
        unix_ms_of(wrong)


def test_an_id_of_another_version_has_no_time() -> None:
    other = "019a8997-8540-4595-9bde-31bb1968d054"
    assert is_id(other)
    with pytest.raises(ValueError, match="is not a UUIDv7"):
        unix_ms_of(other)


def test_many_texts_are_those_of_each() -> None:
    made = [0]
    for n in range(200):
        made.append(uuid7(1_000 + n // 90, made[-1], (n * 0x9E37_79B9_7F4A_7C15) & ((1 << 76) - 1)))
    edge = made[-1] | (1 << 62) - 1
    values = [*made, edge, uuid7(1_000, edge, 5)]
    assert texts(values) == [text(value) for value in values]
