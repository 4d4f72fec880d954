"""The protocol with workers in other languages: values and bytes, without any process."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.executors import wire
from treadle.executors.wire import (
    Cancel,
    Error,
    Garbage,
    Heartbeat,
    Hello,
    Lines,
    Log,
    Outcome,
    Progress,
    Ready,
    Run,
    decode,
    decode_order,
    encode,
)

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
finite = st.floats(0, 1e9)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
reports = st.one_of(
    st.builds(Ready, st.integers(0, 9)),
    st.builds(Progress, text, finite, st.none() | finite, text, values),
    st.builds(Log, text, st.none() | text, st.sampled_from(["debug", "info", "warning", "error", "critical"])),
    st.builds(Heartbeat, st.none() | text),
    st.builds(
        Outcome,
        text,
        st.sampled_from(["succeeded", "failed", "retry", "snooze", "throttle", "fail", "cancelled"]),
        values,
        st.none() | text | st.builds(Error, text, text, text),
        finite,
    ),
)
orders = st.one_of(
    st.builds(Hello, st.integers(0, 9), text, st.none() | finite),
    st.builds(
        Run, text, text, text, st.dictionaries(text, values, max_size=4), st.integers(1, 99), st.integers(1, 99), text
    ),
    st.builds(Cancel, text),
)


@given(reports)
def test_what_a_worker_says_is_what_is_heard(report: wire.Report) -> None:
    line = encode(report)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line[:-1]) == report


@given(orders)
def test_what_a_pod_says_is_what_is_heard(order: wire.Order) -> None:
    assert decode_order(encode(order)[:-1]) == order


@given(st.binary(max_size=200))
def test_any_bytes_at_all_are_a_report_or_garbage(line: bytes) -> None:
    words = ""
    try:
        decode(line)
    except Garbage as error:
        words = str(error)
    assert len(words) < 500


@given(values)
def test_any_json_at_all_is_a_report_or_garbage(value: Any) -> None:
    try:
        decode(json.dumps(value).encode())
    except Garbage:
        pass


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_come_out_whole_however_they_were_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    splitter, found, at = Lines(40), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 50))
        found += splitter.feed(stream[at : at + size])
        at += size
    assert found == [line.strip(b"\r") for line in lines if line.strip(b"\r")]


@pytest.mark.parametrize(
    "pieces", [[b"x" * 41], [b"x" * 20, b"x" * 21], [b"ok\n" + b"x" * 41 + b"\n"], [b"ok\n" + b"x" * 41]]
)
def test_a_line_that_is_too_long_is_noticed_before_it_ends(pieces: list[bytes]) -> None:
    lines = Lines(40)
    with pytest.raises(Garbage, match="more than 40 bytes"):
        [lines.feed(piece) for piece in pieces]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"type":"run","id":"1"}',  # an order is no report
        b'{"type":"outcome","id":1,"status":"succeeded"}',
        b'{"type":"outcome","id":"1","status":"won"}',
        b'{"type":"outcome","id":"1","status":"retry"}',
        b'{"type":"outcome","id":"1","status":"snooze"}',
        b'{"type":"outcome","id":"1","status":"throttle","after":-1}',
        b'{"type":"outcome","id":"1","status":"throttle","after":1e300}',
        b'{"type":"progress","id":"1","done":-1}',
        b'{"type":"log","message":"x","level":"loud"}',
        b'{"type":"ready"}',
        b'{"type":"ready","protocol":1',
        b"\xff\xfe",
        b'{"type":"log","message":"\xff"}',
    ],
)
def test_garbage_is_told_in_words(line: bytes) -> None:
    with pytest.raises(Garbage):
        decode(line)


def test_what_is_not_known_in_a_line_is_left_alone() -> None:
    """A worker may say more than we ask, as a newer one may."""
    assert decode(b'{"type":"heartbeat","mood":"good"}') == Heartbeat()
    assert decode(b'{"status":"succeeded","id":"1","type":"outcome"}') == Outcome("1", "succeeded")


def test_an_error_is_text_or_more_than_text() -> None:
    assert Outcome("1", "failed", error="x").told == Error("x")
    assert Outcome("1", "failed", error=Error("x", "T")).told == Error("x", "T")
    assert Outcome("1", "failed").told == Error("")


def test_garbage_is_shown_as_far_as_it_is_needed_and_nothing_of_it_reaches_a_terminal() -> None:
    with pytest.raises(Garbage) as caught:
        decode(b"\x1b[31m" + b"x" * 1000)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 300
