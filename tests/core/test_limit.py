"""Token buckets (semantics, area 6): what they give, when, and that no window ever sees too much."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core import limit as limits
from treadle.core.errors import RateLimited
from treadle.core.limit import (
    LONGEST_LEASE,
    MOST_LEASES,
    Bucket,
    Lease,
    Take,
    capacity_of,
    check_amount,
    check_rate,
    check_scope,
    drain,
    edit,
    fresh,
    grown,
    next_token,
    of_queue,
    queue_of,
    take,
)
from treadle.core.queue import Queue

NOW = 1_000.0


def a_bucket(capacity: int = 5, refill: float = 2.0, **fields: Any) -> Bucket:
    given = {"scope": "slack", "tokens": float(capacity), "at": NOW, **fields}
    return Bucket(capacity=capacity, refill=refill, **given)


def wish(want: int = 1, **fields: Any) -> Take:
    return Take(scope="slack", want=want, **fields)


def test_a_new_bucket_is_full() -> None:
    bucket = fresh("slack", 5, 2.0, NOW)
    assert (bucket.tokens, bucket.at, bucket.version, bucket.leased) == (5.0, NOW, 1, 0)


def test_tokens_grow_up_to_the_capacity() -> None:
    bucket = a_bucket(tokens=1.0)
    assert grown(bucket, NOW + 1).tokens == 3.0
    assert grown(bucket, NOW + 99).tokens == 5.0


def test_a_take_gives_what_is_there() -> None:
    bucket, taken = take(a_bucket(), wish(3), NOW)
    assert (taken.got, taken.wait, taken.until, taken.capacity, taken.refill) == (3, 0.0, NOW + 1, 5, 2.0)
    assert (bucket.tokens, bucket.leases) == (2.0, (Lease(3, NOW + 1),))
    bucket, taken = take(bucket, wish(3), NOW)
    assert taken.got == 2


def test_a_take_that_may_get_nothing_and_does() -> None:
    bucket, taken = take(a_bucket(tokens=0.5), wish(3, least=0), NOW)
    assert (taken.got, taken.wait, taken.problem, bucket.leases) == (0, 0.0, None, ())


@pytest.mark.parametrize(
    ("tokens", "leases", "least", "wait"),
    [
        (0.0, (), 1, 0.5),
        (0.5, (), 3, 1.25),
        (0.0, (Lease(1, NOW + 0.5),), 4, 2.0),  # there is room for 4 beside the lease
        (0.0, (Lease(5, NOW + 0.5),), 1, 1.0),  # nothing grows before the lease ends
        (1.0, (Lease(4, NOW + 0.5),), 1, None),
        (1.0, (Lease(4, NOW + 0.5),), 2, 1.0),
        (0.0, (Lease(1, NOW + 0.2), Lease(4, NOW + 0.8)), 2, 1.3),  # half a token beside the second one
    ],
)
def test_when_nothing_is_there_the_wait_is_known(
    tokens: float, leases: tuple[Lease, ...], least: int, wait: float | None
) -> None:
    bucket = a_bucket(tokens=tokens, leases=leases)
    after, taken = take(bucket, wish(least, least=least), NOW)
    if wait is None:
        assert taken.got == least
        return
    assert taken.got == 0
    # The wait is exact: a moment sooner there is nothing, then there is.
    soon = take(after, wish(least, least=least), NOW + taken.wait - 0.001)[1]
    late = take(after, wish(least, least=least), NOW + taken.wait + 0.001)[1]
    assert (soon.got, late.got) == (0, least)
    if wait != 1.3:
        assert taken.wait == pytest.approx(wait)


def test_when_the_next_token_comes() -> None:
    assert next_token(a_bucket(tokens=0.0), NOW) == 0.5
    assert next_token(a_bucket(tokens=0.0), NOW + 0.5) is None


def test_a_lease_counts_until_it_ends() -> None:
    bucket, _ = take(a_bucket(), wish(5, lease=0.5), NOW)
    assert grown(bucket, NOW + 0.4).tokens == 0.0
    after = grown(bucket, NOW + 1.0)
    assert (after.tokens, after.leased) == (1.0, 0)


@pytest.mark.parametrize(("asked", "lasts"), [(5.0, 1.0), (0.3, 0.3), (0.0, 0.0), (-1.0, 0.0)])
def test_a_lease_is_never_longer_than_a_second(asked: float, lasts: float) -> None:
    assert take(a_bucket(), wish(lease=asked), NOW)[1].until == NOW + lasts


def test_more_than_the_capacity_can_never_be_had() -> None:
    bucket, taken = take(a_bucket(), wish(6, least=6), NOW)
    assert (taken.got, taken.problem, bucket.tokens) == (0, "too many", 5.0)


def test_a_drained_bucket_starts_from_nothing() -> None:
    bucket, _ = take(a_bucket(), wish(2), NOW)
    bucket = drain(bucket, NOW + 0.5)
    assert (bucket.tokens, bucket.at, bucket.leased) == (0.0, NOW + 0.5, 2)


def test_an_edit_cuts_the_tokens_and_keeps_what_has_grown() -> None:
    assert edit(a_bucket(), 3, 9.0, NOW).tokens == 3.0
    raised = edit(a_bucket(tokens=1.0), 50, 9.0, NOW + 1)
    assert (raised.tokens, raised.refill, raised.capacity, raised.version) == (3.0, 9.0, 50, 2)


def test_after_an_edit_the_leases_may_be_more_than_the_capacity() -> None:
    bucket, _ = take(a_bucket(), wish(4), NOW)
    bucket = edit(bucket, 2, 2.0, NOW)
    assert bucket.tokens == 0.0
    assert grown(bucket, NOW + 0.9).tokens == 0.0
    assert grown(bucket, NOW + 1.5).tokens == pytest.approx(1.0)


def test_a_clock_that_was_set_back_gives_nothing_and_keeps_nobody_waiting() -> None:
    bucket, _ = take(a_bucket(), wish(5), NOW)
    bucket = grown(bucket, NOW - 3_600)
    assert (bucket.tokens, bucket.leases) == (0.0, (Lease(5, NOW - 3_600 + LONGEST_LEASE),))
    over = grown(a_bucket(tokens=0.0, leases=(Lease(1, NOW - 5),)), NOW - 1)
    assert (over.tokens, over.leases) == (0.0, ())


def test_leases_beyond_so_many_are_counted_together_and_never_shorter() -> None:
    bucket = a_bucket(1_000, 1.0)
    ends = [0.1 + n * 0.03 + (0.001 if n == 7 else 0.0) for n in range(MOST_LEASES + 1)]
    for lease in ends:
        bucket, _ = take(bucket, wish(1, lease=lease), NOW)
    assert len(bucket.leases) == MOST_LEASES
    assert bucket.leased == MOST_LEASES + 1
    for lease in ends:
        still = sum(end > lease for end in ends)
        assert grown(bucket, NOW + lease).leased >= still


def test_what_is_handed_back_is_stored_again() -> None:
    bucket, taken = take(a_bucket(), wish(5), NOW)
    bucket, again = take(bucket, wish(5, back=Lease(2, taken.until)), NOW + 0.5)
    assert again.got == 2
    assert bucket.leased == 5
    bucket, _ = take(bucket, wish(0, least=0, back=Lease(2, again.until)), NOW + 0.6)
    assert (bucket.tokens, bucket.leases) == (2.0, (Lease(3, taken.until),))


def test_what_is_handed_back_too_late_is_forfeited() -> None:
    bucket, first = take(a_bucket(), wish(3), NOW)
    bucket, _ = take(bucket, wish(2), NOW + 0.5)
    _, late = take(bucket, wish(5, least=0, back=Lease(3, first.until)), NOW + 1.0)
    assert late.got == 0
    _, unknown = take(bucket, wish(5, least=0, back=Lease(3, NOW + 99)), NOW + 0.6)
    assert unknown.got == 0


def test_no_more_is_handed_back_than_was_leased() -> None:
    bucket, taken = take(a_bucket(), wish(2), NOW)
    bucket, _ = take(bucket, wish(0, least=0, back=Lease(99, taken.until)), NOW)
    assert (bucket.tokens, bucket.leases) == (5.0, ())
    bucket, _ = take(bucket, wish(0, least=0, back=Lease(-9, NOW + 1)), NOW)
    assert bucket.tokens == 5.0


def test_a_queues_rate_makes_and_edits_its_bucket() -> None:
    assert of_queue(None, None, "queue:mail", NOW) is None
    assert of_queue(None, Queue(name="mail"), "queue:mail", NOW) is None
    assert of_queue(None, Queue(name="mail", rate=-1.0), "queue:mail", NOW) is None
    made = of_queue(None, Queue(name="mail", rate=2.5), "queue:mail", NOW)
    assert made is not None
    assert (made.scope, made.capacity, made.refill) == ("queue:mail", 2, 2.5)
    assert of_queue(made, Queue(name="mail", rate=2.5), "queue:mail", NOW) is made
    edited = of_queue(made, Queue(name="mail", rate=2.5, burst=1), "queue:mail", NOW)
    assert edited is not None
    assert (edited.capacity, edited.tokens) == (1, 1.0)


@pytest.mark.parametrize(
    ("refill", "burst", "capacity"), [(5.0, None, 5), (5.9, None, 5), (0.1, None, 1), (5.0, 1, 1), (0.1, 20, 20)]
)
def test_the_capacity_is_the_burst_or_a_second_of_the_rate(refill: float, burst: int | None, capacity: int) -> None:
    assert capacity_of(refill, burst) == capacity


@pytest.mark.parametrize(
    ("rate", "refill"), [("100/m", 100 / 60), ("5/s", 5.0), ("10/10s", 1.0), ("36/h", 0.01), (2.5, 2.5)]
)
def test_rates_as_people_write_them(rate: str | float, refill: float) -> None:
    assert check_rate(rate, 7) == (7, pytest.approx(refill))


@pytest.mark.parametrize("rate", ["", "x", "5", "-5/s", "0/s", "5/0s", "5/y", "5/s/s", -1, 0, math.nan, math.inf, True])
def test_bad_rates_are_refused(rate: Any) -> None:
    if rate == "5":
        assert check_rate(rate, None) == (5, 5.0)  # a number may come from a command line
        return
    with pytest.raises(ValueError, match="rate must be above zero"):
        check_rate(rate, None)


@pytest.mark.parametrize("burst", [0, -1, 1.5, True, "3", limits.MOST_TOKENS + 1])
def test_bad_bursts_are_refused(burst: Any) -> None:
    with pytest.raises(ValueError, match="burst must be a whole number"):
        check_rate("5/s", burst)


@pytest.mark.parametrize("amount", [0, -1, 1.5, True, "1"])
def test_bad_amounts_are_refused(amount: Any) -> None:
    with pytest.raises(ValueError, match="n must be a whole number"):
        check_amount(amount)
    assert check_amount(3) == 3


def test_names_of_queues_rates_are_not_for_others() -> None:
    assert check_scope("slack") == "slack"
    assert (queue_of("slack"), queue_of("queue:mail")) == (None, "mail")
    with pytest.raises(ValueError, match="queues' own rates"):
        check_scope("queue:mail")
    with pytest.raises(ValueError, match="limit name"):
        check_scope("no such name")


# The promise ---------------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 0.6),  # time that passes before
        st.integers(1, 8),  # want
        st.integers(0, 8),  # least
        st.floats(0.0, 1.0),  # how long the lease is
        st.lists(st.floats(0.0, 1.0), min_size=8, max_size=8),  # when in its lease each token is used
        st.integers(0, 8),  # how many are handed back instead, half-way through the lease
        st.booleans(),  # a drain comes first
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(capacity=st.integers(1, 12), refill=st.floats(0.05, 50.0), steps=STEPS)
def test_no_window_ever_sees_more_than_the_capacity_and_the_refill(
    capacity: int, refill: float, steps: list[tuple[float, int, int, float, list[float], int, bool]]
) -> None:
    bucket, now = fresh("slack", capacity, refill, NOW), NOW
    uses: list[float] = []
    returns: list[tuple[float, Lease]] = []
    for passing, want, least, lease, places, back, is_drained in steps:
        now += passing
        due = [each for each in returns if each[0] <= now]
        returns = [each for each in returns if each[0] > now]
        for at, unused in sorted(due, key=lambda each: each[0]):
            bucket, _ = take(bucket, wish(0, least=0, back=unused), max(at, bucket.at))
        if is_drained:
            bucket = drain(bucket, now)
        bucket, taken = take(bucket, wish(want, least=least, lease=lease), now)
        assert bucket.tokens + bucket.leased <= capacity + 1e-3
        assert taken.got == 0 or least <= taken.got <= want
        kept = max(0, taken.got - back)
        uses += [now + lease * place for place in places[:kept]]
        if taken.got > kept:
            returns.append((now + lease / 2, Lease(taken.got - kept, taken.until)))
    uses.sort()
    for first in range(len(uses)):
        for last in range(first, len(uses)):
            window = uses[last] - uses[first]
            assert last - first + 1 <= capacity + refill * window + 1e-3


def test_who_is_refused_is_told_how_long_it_may_take() -> None:
    assert RateLimited("no tokens", 2.5).wait == 2.5


def test_the_bucket_of_a_queue_without_a_rate_is_idle_once_it_is_full() -> None:
    bucket = limits.fresh("queue:mail", 2, 1.0, 100.0)
    assert not limits.is_idle(bucket, Queue(name="mail", rate=1.0), 100.0)
    assert limits.is_idle(bucket, Queue(name="mail"), 100.0)
    assert limits.is_idle(bucket, None, 100.0)
    taken, _ = limits.take(bucket, Take(scope="queue:mail", want=1, lease=0.5), 100.0)
    assert not limits.is_idle(taken, None, 100.4)
    assert not limits.is_idle(taken, None, 100.9)
    assert limits.is_idle(taken, None, 101.6)


@pytest.mark.parametrize(
    ("damage", "becomes"),
    [
        ({}, {}),
        ({"tokens": -3.0}, {}),
        ({"capacity": 0}, {"capacity": 1, "tokens": 1.0}),
        ({"capacity": -(2**31)}, {"capacity": 1, "tokens": 1.0}),
        ({"capacity": 2**31}, {"capacity": 2**30 - 1}),
        ({"version": 2**31 - 1}, {"version": 1}),
        ({"version": -1}, {"version": 1}),
        ({"tokens": 1.7e308}, {"tokens": 5.0}),
        ({"tokens": -1.7e308}, {"tokens": -5.0}),
        *(({"tokens": odd}, {"tokens": 0.0, "at": 0.0, "refill": 1.0}) for odd in (math.nan, math.inf, -math.inf)),
        *(({"at": odd}, {"tokens": 0.0, "at": 0.0, "refill": 1.0}) for odd in (math.nan, math.inf, 1e300, -1e300)),
        *(({"refill": odd}, {"tokens": 0.0, "at": 0.0, "refill": 1.0}) for odd in (math.nan, math.inf, 0.0, -1.0)),
    ],
    ids=str,
)
def test_a_damaged_bucket_becomes_one_that_can_be_computed_with(
    damage: dict[str, Any], becomes: dict[str, Any]
) -> None:
    sound = Bucket(scope="s", capacity=5, refill=2.0, tokens=3.0, at=100.0, version=7)
    damaged = msgspec.structs.replace(sound, **damage)
    assert limits.mended(damaged) == msgspec.structs.replace(damaged, **becomes)
