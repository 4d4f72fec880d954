"""Unique keys (semantics, area 2)."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.payload import encode_arguments
from treadle.core.unique import Unique, base_key, full_key, period_end

_scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text("abc", max_size=3))
_arguments = st.dictionaries(st.text("xyz", min_size=1, max_size=2), _scalars, max_size=4)


def test_a_given_key_is_used_as_it_is() -> None:
    assert base_key(Unique("welcome:42"), "mail", "default", "{}") == "welcome:42"
    assert base_key(Unique("welcome:42"), "other", "bulk", '{"a":1}') == "welcome:42"


def test_a_derived_key_is_a_hash_of_128_bits() -> None:
    assert re.fullmatch("#[0-9a-f]{32}", base_key(Unique(), "mail", "default", '{"user":1}'))


def test_a_derived_key_is_the_same_in_every_version() -> None:
    """Live jobs hold it across an upgrade: if this fails, old and new pods disagree about what is the same job."""
    assert base_key(Unique(), "mail", "default", '{"user":1}') == "#40f875a7335b462d885f9a1df849b69f"
    assert base_key(Unique(by_queue=True), "mail", "default", '{"user":1}') == "#02458ad1af932a79eaec7fcb1c97a0bb"


def test_a_given_key_never_meets_a_derived_one() -> None:
    derived = base_key(Unique(), "mail", "default", "{}")
    assert base_key(Unique(derived), "mail", "default", "{}") != derived


def test_the_queue_counts_only_by_wish() -> None:
    assert base_key(Unique(), "t", "a", "{}") == base_key(Unique(), "t", "b", "{}")
    assert base_key(Unique(by_queue=True), "t", "a", "{}") != base_key(Unique(by_queue=True), "t", "b", "{}")
    assert base_key(Unique(by_queue=True), "t", "a", "{}") != base_key(Unique(), "t", "a", "{}")


def test_only_the_named_arguments_count() -> None:
    rule = Unique(args=("user",))
    assert base_key(rule, "t", "q", '{"n":1,"user":7}') == base_key(rule, "t", "q", '{"n":2,"user":7}')
    assert base_key(rule, "t", "q", '{"n":1,"user":7}') != base_key(rule, "t", "q", '{"n":1,"user":8}')
    assert base_key(Unique(args=()), "t", "q", '{"n":1}') == base_key(Unique(args=()), "t", "q", '{"n":2}')


def test_a_named_argument_that_the_call_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="task 'mail' was called without the argument 'user'"):
        base_key(Unique(args=("n", "user")), "mail", "q", '{"n":1}')


@settings(deadline=None, max_examples=100)
@given(_arguments, st.randoms(use_true_random=False))
def test_the_order_of_arguments_does_not_matter(arguments: dict[str, Any], random: Any) -> None:
    shuffled = list(arguments.items())
    random.shuffle(shuffled)
    names = tuple(name for name, _ in shuffled)
    straight, crooked = encode_arguments(arguments), encode_arguments(dict(shuffled))
    assert base_key(Unique(), "t", "q", straight) == base_key(Unique(), "t", "q", crooked)
    assert base_key(Unique(args=names), "t", "q", straight) == base_key(Unique(), "t", "q", straight)


def test_the_order_of_keys_in_the_text_does_not_matter_either() -> None:
    assert base_key(Unique(), "t", "q", '{"a":1,"b":2}') == base_key(Unique(), "t", "q", '{ "b":2, "a":1 }')


@settings(deadline=None, max_examples=100)
@given(_arguments, _arguments, st.sampled_from("ab"), st.sampled_from("ab"))
def test_jobs_have_one_key_only_if_task_and_arguments_are_equal(
    first: dict[str, Any], second: dict[str, Any], task: str, other: str
) -> None:
    one, two = encode_arguments(first), encode_arguments(second)
    equal = (task, one) == (other, two)
    assert (base_key(Unique(), task, "q", one) == base_key(Unique(), other, "q", two)) == equal


def test_without_a_period_the_key_is_the_base() -> None:
    assert full_key("a", None, 1e9) == "a"


def test_with_a_period_the_key_ends_with_its_number() -> None:
    assert full_key("a", 60.0, 125.0) == "a@2#"
    assert full_key("a", 60.0, -1.0) == "a@-1#"


def test_a_given_key_cannot_imitate_a_period() -> None:
    assert full_key(base_key(Unique("a@2"), "t", "q", "{}"), None, 0) != full_key("a", 60.0, 125.0)
    assert full_key(base_key(Unique("a@2"), "t", "q", "{}"), 60.0, 125.0) != full_key("a", 60.0, 125.0)
    assert full_key(base_key(Unique("a@2#"), "t", "q", "{}"), None, 0) != full_key("a", 60.0, 125.0)
    derived = base_key(Unique(), "t", "q", "{}")
    assert base_key(Unique(derived), "t", "q", "{}") != derived
    assert len({base_key(Unique(key), "t", "q", "{}") for key in ("#", "##", "a#", "a##", "#a", "##a")}) == 6


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 10**6), st.integers(0, 10**10), st.integers(0, 10**6))
def test_windows_are_fixed_and_do_not_slide(period: int, now: int, later: int) -> None:
    end = period_end(period, now)
    assert now < end <= now + period
    assert end % period == 0
    assert (full_key("a", period, now) == full_key("a", period, now + later)) == (now + later < end)


@pytest.mark.parametrize("period", ["1h", 3600, timedelta(hours=1)])
def test_a_period_is_a_duration(period: Any) -> None:
    assert Unique(period=period).period == 3600.0


def test_argument_names_may_come_as_a_list() -> None:
    names: Any = ["user"]
    assert Unique(args=names) == Unique(args=("user",))


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"key": ""}, "unique key must be text"),
        ({"key": "x" * 513}, "unique key must be text"),
        ({"key": "a\0b"}, "unique key must be text"),
        ({"key": "\ud800"}, "unique key must be text"),
        ({"key": 42}, "unique key must be text"),
        ({"key": "a", "args": ("user",)}, "a given key stands for itself"),
        ({"key": "a", "by_queue": True}, "a given key stands for itself"),
        ({"args": "user"}, r"such as \('user',\)"),
        ({"period": 0}, "longer than zero"),
        ({"period": -1}, "unique period must not be negative"),
        ({"period": math.nan}, "unique period"),
        ({"include_succeeded": True}, "include_succeeded needs a period"),
        ({"on_conflict": "merge"}, 'must be "skip", "replace" or "keep_last"'),
    ],
)
def test_a_wrong_rule_is_refused_where_it_is_written(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Unique(**wrong)


def test_a_full_rule_is_accepted() -> None:
    rule = Unique(args=("user",), by_queue=True, period="1d", include_succeeded=True, on_conflict="replace")
    assert rule.period == 86_400.0
    assert Unique("x" * 512).key == "x" * 512
