"""Who is wrong too often has to wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core.login_throttle import MOST, WINDOW, Throttle


def heard(throttle: Throttle, bucket: str, times: int, now: float = 0.0, *, known: bool = False) -> int:
    """So many of the wrong tries were heard."""
    count = 0
    for _ in range(times):
        if not throttle.wait(bucket, now, known=known):
            throttle.note(bucket, now, known=known)
            count += 1
    return count


def test_ten_a_minute_for_each() -> None:
    throttle = Throttle()
    assert heard(throttle, "a", 50) == heard(throttle, "b", 50) == MOST
    assert throttle.wait("a", 1.0) == WINDOW - 1
    assert heard(throttle, "a", 50, WINDOW - 0.1) == 0
    assert heard(throttle, "a", 50, WINDOW) == MOST


def test_the_wait_ends_with_the_oldest_of_the_last_ten() -> None:
    throttle = Throttle()
    for at in range(MOST):
        throttle.note("a", float(at))
    assert throttle.wait("a", 20.0) == WINDOW - 20
    throttle.note("a", 30.0)  # one that was heard at the same time
    assert throttle.wait("a", 30.0) == WINDOW + 1 - 30


def test_the_unknown_share_a_limit() -> None:
    throttle = Throttle(together=15)
    assert [heard(throttle, each, 10) for each in "abc"] == [10, 5, 0]
    assert throttle.wait("new", 0.0) > 0 and not throttle.wait("new", 0.0, known=True)
    assert heard(throttle, "new", 50, known=True) == MOST
    assert throttle.wait("d", WINDOW) == 0


def test_many_buckets_push_out_no_count() -> None:
    throttle = Throttle(buckets=100)
    assert heard(throttle, "attacker", 10) == MOST
    assert sum(heard(throttle, f"n{n}", 1) for n in range(10_000)) <= 99 + MOST
    assert throttle.wait("attacker", 0.5) > 0
    assert throttle.wait("yet another", 0.5) > 0  # all of them are one by now
    assert heard(throttle, "n5", 20, 0.5) == MOST - 1  # it has its own count


def test_room_is_made_by_what_is_over() -> None:
    throttle = Throttle(buckets=10)
    for n in range(50):
        heard(throttle, f"n{n}", 1)
    assert heard(throttle, "late", 20, WINDOW + 1) == MOST
    assert heard(throttle, "later", 20, WINDOW + 1) == MOST


def test_a_clock_that_is_set_back_locks_nobody_out() -> None:
    throttle = Throttle(buckets=5)
    for n in range(10):
        heard(throttle, f"n{n}", 20, 10_000.0)
    assert not throttle.wait("n0", 50.0)
    throttle.note("n99", 50.0)
    assert heard(throttle, "n98", 20, 50.0) == MOST


@pytest.mark.parametrize("name", ["", "*", "others", "together", "192.0.2.1"])
def test_no_name_is_special(name: str) -> None:
    throttle = Throttle(together=100, buckets=2)
    assert heard(throttle, name, 20) == MOST


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 5), st.booleans()), max_size=200))
def test_no_window_has_more_than_its_limits(tries: list[tuple[str, float, bool]]) -> None:
    throttle, now = Throttle(together=25, buckets=4), 0.0
    kept: list[tuple[str, float, bool]] = []
    for bucket, pause, known in tries:
        now += pause
        if not throttle.wait(bucket, now, known=known):
            throttle.note(bucket, now, known=known)
            kept.append((bucket, now, known))
    for _, end, _ in kept:
        window = [each for each in kept if end - WINDOW < each[1] <= end]
        assert len([each for each in window if not each[2]]) <= 25
        for bucket in "abcdef":  # its own count, and the one that it shares once there is no room
            assert len([each for each in window if each[0] == bucket]) <= 2 * MOST
