"""Names, tags, reasons and small numbers at the door (faults G8 and G10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.names import (
    check_attempts,
    check_name,
    check_priority,
    check_reason,
    check_tags,
    parse_queues,
    suggest,
)


@pytest.mark.parametrize("name", ["a", "0", "mail", "shop.mail:send", "a:1", "A_b-c.d", "x" * 128])
def test_a_plain_name_is_allowed(name: str) -> None:
    assert check_name("queue", name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "x" * 129,
        "x" * 10_000,
        "_private",
        ".hidden",
        "../etc",
        "a/b",
        "a b",
        "a,b",
        "mail\n",
        "\nmail",
        "mail\0",
        "%00",
        'a"b',
        "a'b",
        "mаil",  # a Cyrillic а
        "größe",
        "\ud800",
        None,
        7,
        b"mail",
    ],
)
def test_any_other_name_is_refused_with_kind_value_and_rule(name: Any) -> None:
    with pytest.raises(ValueError, match=r"queue name .* is not allowed: 1 to 128 letters") as caught:
        check_name("queue", name)
    message = str(caught.value)
    assert len(message) < 300
    assert message.isprintable()


def test_a_queue_list_gives_slots_where_it_has_numbers() -> None:
    assert parse_queues("mail:10,default") == {"mail": 10, "default": None}
    assert parse_queues(" mail:1 , \n default:10000 ") == {"mail": 1, "default": 10_000}


def test_trailing_digits_are_always_slots() -> None:
    assert parse_queues("a:1") == {"a": 1}
    assert parse_queues("a:1:50") == {"a:1": 50}
    assert parse_queues("a:x") == {"a:x": None}


def test_the_order_of_a_queue_list_is_kept() -> None:
    assert list(parse_queues("c,a,b")) == ["c", "a", "b"]


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_an_empty_queue_list_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match='queue list is needed, for example "mail:10,default"'):
        parse_queues(text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("mail,", "queue name ''"),
        (",", "queue name ''"),
        (":5", "queue name ''"),
        ("a b", "queue name 'a b'"),
        ("mail,mail:3", "twice"),
        ("mail:0", "1 to 10,000 slots"),
        ("mail:10001", "1 to 10,000 slots"),
        ("mail:" + "9" * 5000, "1 to 10,000 slots"),
        ("mail:-1,x y", "queue name 'x y'"),
        ("mail:²", "not allowed"),
    ],
)
def test_a_broken_queue_list_says_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint.replace("(", r"\(")):
        parse_queues(text)


_names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,20}", fullmatch=True)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(_names, st.integers(1, 10_000), min_size=1, max_size=5))
def test_a_queue_list_with_all_slots_given_is_read_as_written(queues: dict[str, int]) -> None:
    assert parse_queues(",".join(f"{name}:{slots}" for name, slots in queues.items())) == queues


def test_a_slip_of_the_pen_is_suggested_whatever_its_case() -> None:
    assert suggest("quue", ["queue", "state"]) == "queue"
    assert suggest("STATE", ["queue", "state"]) == "state"
    assert suggest("zzz", ["queue", "state"]) is None
    assert suggest("queue" * 100, ["queue"]) is None
    assert suggest("x", []) is None


@pytest.mark.parametrize("value", [-100, 0, 100])
def test_a_priority_within_100_is_allowed(value: int) -> None:
    assert check_priority(value) == value


@pytest.mark.parametrize("value", [-101, 101, 2**31, 10**400, True, 1.0, "1", None])
def test_any_other_priority_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="priority must be an integer from -100 to 100"):
        check_priority(value)


@pytest.mark.parametrize("value", [1, 1000])
def test_one_to_a_thousand_attempts_are_allowed(value: int) -> None:
    assert check_attempts(value) == value


@pytest.mark.parametrize("value", [0, -1, 1001, 2**31, True, 1.5, "3"])
def test_any_other_number_of_attempts_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="max_attempts must be an integer from 1 to 1000"):
        check_attempts(value)


def test_tags_keep_their_order_and_each_is_kept_once() -> None:
    assert check_tags(["vip", "eu west", "vip", "größe"]) == ("vip", "eu west", "größe")
    assert check_tags(iter(())) == ()
    assert check_tags(["x"] * 30) == ("x",)


def test_twenty_tags_of_a_hundred_characters_are_allowed() -> None:
    tags = [f"{number:0100}" for number in range(20)]
    assert check_tags(tags) == tuple(tags)


def test_more_than_twenty_tags_are_refused() -> None:
    with pytest.raises(ValueError, match="21 tags are too many: at most 20"):
        check_tags(str(number) for number in range(21))


@pytest.mark.parametrize("tag", ["", "x" * 101, "a\0", "a\nb", "\x7f", "\x85", "\udc00", 5, None])
def test_an_odd_tag_is_refused(tag: Any) -> None:
    with pytest.raises(ValueError, match="is not allowed: 1 to 100 characters"):
        check_tags(["fine", tag])


def test_a_text_is_not_a_list_of_tags() -> None:
    with pytest.raises(ValueError, match=r"tags must be a list, for example \['vip'\]"):
        check_tags("vip")


def test_a_reason_is_text_of_a_kibibyte() -> None:
    assert check_reason("") == ""
    assert check_reason("line one\nline two") == "line one\nline two"
    assert check_reason("é" * 512) == "é" * 512


@pytest.mark.parametrize("reason", ["x" * 1025, "é" * 513, "a\0b", "\ud800", 5, None])
def test_any_other_reason_is_refused(reason: Any) -> None:
    with pytest.raises(ValueError, match="reason"):
        check_reason(reason)
