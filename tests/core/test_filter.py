"""The filter language (dashboard.md 2.3): reading, writing, and what it matches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from treadle.core.errors import FilterError
from treadle.core.filter import (
    CONDITIONS,
    INDEXED,
    LONGEST,
    STATES,
    Filter,
    Interval,
    Op,
    Row,
    Term,
    Value,
    interval,
    matches,
    parse,
)

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC).timestamp()
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0

JOB = Row(
    id="019a8997-8540-7595-9bde-31bb1968d054",
    state="failed",
    queue="mail",
    task="shop.send_welcome",
    tags=("vip", "eu west"),
    cause="shop.send_welcome:ConnectTimeout:shop.mail:send",
    unique_key="k:welcome:42",
    pod="pod-a",
    parent="019a8997-0000-7000-8000-000000000000",
    schedule="nightly",
    flow="onboarding",
    priority=-5,
    attempt=3,
    created_at=NOW - 2 * HOUR,
    run_at=NOW - HOUR,
    started_at=NOW - HOUR + 30,
    finished_at=NOW - HOUR + 90,
    error_text="ConnectTimeout: Card DECLINED",
    reason="signup form",
    args={
        "user": {"id": 42, "name": "Ada", "admin": True, "boss": None},
        "amounts": [5, 7.5],
        "items": [{"sku": "x1"}],
        "zip": "01234",
        "when": "2026..2027",
    },
    meta={"tenant": "acme", "empty": ""},
    result=[{"n": 2**53 + 1}],
)


def a_job(**changes: Any) -> Row:
    return replace(JOB, **changes)


def found(text: str, **changes: Any) -> bool:
    return matches(parse(text), a_job(**changes), NOW)


# --- reading


def test_an_empty_filter_is_every_job() -> None:
    assert parse("") == parse(" \n ") == Filter()
    assert found("")


def test_the_example_of_the_manual_is_read_term_by_term() -> None:
    text = (
        "state:failed queue:mail,billing task:send_* tag:vip -tag:test args.user.id:42 "
        'error:Timeout attempt:>3 age:>1h "card declined"'
    )
    assert parse(text) == Filter(
        (
            Term("state", (Value("failed"),)),
            Term("queue", (Value("mail"), Value("billing"))),
            Term("task", (Value("send_", "*"),)),
            Term("tag", (Value("vip"),)),
            Term("tag", (Value("test"),), negated=True),
            Term("args.user.id", (Value("42"),)),
            Term("error", (Value("Timeout"),)),
            Term("attempt", (Value("3", ">"),)),
            Term("age", (Value("1h", ">"),)),
            Term("", (Value("card declined"),)),
        )
    )
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("word", "", (Value("word"),)),
        ("a,b", "", (Value("a,b"),)),
        (">5", "", (Value(">5"),)),
        ("send*", "", (Value("send", "*"),)),
        ('"a b"*', "", (Value("a b", "*"),)),
        ('"a*"', "", (Value("a*"),)),
        (r'"say \"hi\" \\o/"', "", (Value(r'say "hi" \o/'),)),
        ("unique:welcome:42", "unique", (Value("welcome:42"),)),
        ("unique:*", "unique", (Value("", "*"),)),
        ('tag:"eu west",x', "tag", (Value("eu west"), Value("x"))),
        ("task:a..b", "task", (Value("a..b"),)),
        ("task:a**", "task", (Value("a*", "*"),)),
        ("priority:-5", "priority", (Value("-5"),)),
        ("priority:-10..-1", "priority", (Value("-10", "..", "-1"),)),
        ("wait:1.5..2.5", "wait", (Value("1.5", "..", "2.5"),)),
        ("created:2026-11-01..2026-11-15", "created", (Value("2026-11-01", "..", "2026-11-15"),)),
        ('created:"2026-11-01".."2026-11-15"', "created", (Value("2026-11-01", "..", "2026-11-15"),)),
        ("created:>=2026-11-15T09:00:00+01:00", "created", (Value("2026-11-15T09:00:00+01:00", ">="),)),
        ("args.n:1..5,>9", "args.n", (Value("1", "..", "5"), Value("9", ">"))),
        ("args.path:../x", "args.path", (Value("../x"),)),
        ('args.range:"1..5"', "args.range", (Value("1..5"),)),
        ('args.cmp:">5"', "args.cmp", (Value(">5"),)),
        ('args.name:""', "args.name", (Value(""),)),
        ("meta.a-b.0:x", "meta.a-b.0", (Value("x"),)),
    ],
)
def test_one_term_is_read(text: str, key: str, values: tuple[Value, ...]) -> None:
    assert parse(text) == Filter((Term(key, values),))
    assert parse(f"-{text}") == Filter((Term(key, values, negated=True),))
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("  state:failed \t  tag:vip\n", "state:failed tag:vip"),
        ('task:"plain"', "task:plain"),
        ('"plain"', "plain"),
        ('"key:value"', '"key:value"'),
        ('"-minus"', '"-minus"'),
        ('"größe!"', "größe!"),
        ('tag:"a,b"', 'tag:"a,b"'),
        ('tag:">5"', 'tag:">5"'),
        ('tag:"a*"', 'tag:"a*"'),
        ('args.n:"1..5"', 'args.n:"1..5"'),
        ('args.n:"1".."5"', None),
        ('created:"2026-11-01".."2026-11-15"', "created:2026-11-01..2026-11-15"),
        ('age:>" 1h "', 'age:>" 1h "'),
        (r'"a\\b"', r"a\b"),
    ],
)
def test_the_canonical_form_has_quotes_only_where_they_are_needed(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(FilterError):
            parse(text)
    else:
        assert str(parse(text)) == canonical
        assert parse(canonical) == parse(text)


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("state:failed quue:mail", 14, 'unknown key "quue"; did you mean "queue"?'),
        ("-State:failed", 2, 'unknown key "State"; did you mean "state"?'),
        ("arg.user:1", 1, 'unknown key "arg.user"; did you mean "args"?'),
        ("http://x", 1, 'unknown key "http"; to look for this text, put it in quotes'),
        (f"{'k' * 100}:x", 1, f'unknown key "{"k" * 40}…"; to look for this text'),
        (":x", 1, 'unknown key ""'),
        ("state.x:failed", 1, 'unknown key "state.x"'),
        ("args:42", 1, "args needs a path, such as args.user.id"),
        ("meta.:42", 1, "meta needs a path"),
        ("result.a..b:42", 1, "result needs a path"),
        ("state:faild", 7, 'unknown state "faild"; did you mean "failed"?'),
        ("state:failed,xyz", 14, 'unknown state "xyz"; one of waiting scheduled ready'),
        ("state:fail*", 7, "a state is written out"),
        ("state:>failed", 7, "a state is written out"),
        ("is:stuk", 4, 'unknown condition "stuk"; did you mean "stuck"?'),
        ("is:*", 4, "a condition is written out"),
        ("state:", 7, "a value is missing"),
        ("state:failed,", 14, "a value is missing"),
        ("state: failed", 7, "a value is missing"),
        ("attempt:>", 10, "a value is missing"),
        ("attempt:..5", 9, "a value is missing"),
        ("attempt:5..", 12, "a value is missing"),
        ("x -", 4, "a term is missing after -"),
        ("- x", 2, "a term is missing after -"),
        ("--x", 2, "a term is missing after -"),
        ('tag:"open', 5, "the quotes are not closed"),
        (r'"C:\path"', 1, r"write \" for a quote and \\ for a backslash"),
        ('tag:"a"b', 8, 'unexpected "b"; put the whole value in quotes'),
        ('ab"c"', 3, "unexpected"),
        ('tag:ab"c"', 7, "unexpected"),
        ("attempt:1..2..3", 13, 'unexpected "."'),
        ('""', 1, "the text is empty"),
        ("*", 1, "the text is empty"),
        ('error:""', 7, "the text is empty"),
        ('tag:""', 5, "the text is empty"),
        ("task:>b", 6, "task has no order"),
        ("error:<b", 7, "error has no order"),
        ("attempt:many", 9, '"many" is not a number; for example attempt:3, >3 or 1..3'),
        ("attempt:.5", 9, '".5" is not a number'),
        ("attempt:1...5", 9, '".5" is not a number'),
        ("attempt:٣", 9, "is not a number"),
        ("attempt:1e999", 9, "is not a number"),
        ("attempt:3*", 9, "a prefix has no meaning here"),
        ("attempt:>3*", 12, "a comparison takes no prefix"),
        ("attempt:3*..5", 14, "a range takes no prefix"),
        ("attempt:3..5*", 14, "a range takes no prefix"),
        ("attempt:5..3", 9, "the range ends before it begins"),
        ("args.n:>x", 8, '"x" is not a number'),
        ("args.n:9..3", 8, "the range ends before it begins"),
        ("run:30s", 5, "a duration needs a comparison or a range; for example run:>30s"),
        ("run:>soon", 5, '"soon" is not a duration'),
        ("age:1h", 5, "a duration needs a comparison"),
        ("age:>90", 5, '"90" needs a unit, such as "90s"'),
        ("age:>2026-11-15", 5, '"2026-11-15" is not a duration; for example age:>1h'),
        ("created:2h", 9, "a duration needs a comparison"),
        ("created:>2026", 9, '"2026" needs a unit'),
        ("created:yesterday", 9, '"yesterday" is not a duration; for example created:2026-11-15'),
        ("created:2026-02-30", 9, '"2026-02-30" is not in the calendar'),
        ("created:2026-11-15T25:00Z", 9, "is not in the calendar"),
        ("created:2026-11-15T09:00:00", 9, "nor a date-time with a zone"),
        ("created:2026-1-5", 9, "is not a date"),
        ("created:2026-11*", 9, "a prefix has no meaning here"),
        ("created:2026-11-15..2h", 9, "a range has two dates or two durations"),
        ("created:2026-11-15..2026-11-14", 9, "the range ends before it begins"),
        ("a\0b", 2, "NUL"),
        ('x "\ud800"', 4, "surrogate"),
        ("x" * 2001, 2001, "at most 2,000 characters"),
        ("x " * 51, 101, "at most 50 terms"),
        ("tag:" + ",".join(["x"] * 101), 205, "at most 100 values"),
    ],
)
def test_an_error_has_its_column_and_says_what_helps(text: str, column: int, message: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert caught.value.column == column
    assert str(caught.value).startswith(f"column {column}: ")
    assert message in str(caught.value)


def test_the_limits_themselves_are_allowed() -> None:
    assert len(parse("x " * 50).terms) == 50
    assert len(parse("tag:" + ",".join(["x"] * 100)).terms[0].values) == 100
    assert parse("x" * 2000)


# --- writing

_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=6)
_odd_text = st.text(' ab1"\\*.,:<>=-\t', min_size=1, max_size=6)
_words = st.one_of(_text, _odd_text)
_numbers = st.one_of(st.integers(-50, 50).map(str), st.just("1.5"), st.just("-2e3"))
_ascending = st.lists(st.integers(-50, 50), min_size=2, max_size=2).map(sorted)
_comparisons: st.SearchStrategy[Op] = st.sampled_from((">", ">=", "<", "<="))
_durations = st.sampled_from(("1h", "90s", "1h30m", "250ms", "2d"))
_days = st.dates().map(str)


def _values(key: str) -> st.SearchStrategy[Value]:
    compared = st.builds(Value, _numbers, _comparisons)
    ranges = _ascending.map(lambda ends: Value(str(ends[0]), "..", str(ends[1])))
    match key:
        case "state":
            return st.sampled_from(STATES).map(Value)
        case "is":
            return st.sampled_from(CONDITIONS).map(Value)
        case "created" | "due" | "finished":
            instants = st.one_of(_days, st.just("2026-11-15T09:30:00.5Z"))
            relative = st.builds(Value, _durations, _comparisons)
            return st.one_of(st.builds(Value, instants, st.one_of(st.just(""), _comparisons)), relative)
        case "age" | "wait" | "run":
            return st.one_of(st.builds(Value, _durations, _comparisons), st.just(Value("1m", "..", "1h")))
        case "priority" | "attempt":
            return st.one_of(st.builds(Value, _numbers), compared, ranges)
        case "args.a.b" | "meta.x" | "result.0":
            return st.one_of(
                st.builds(Value, st.one_of(_words, st.just("")), st.sampled_from(("", "*"))), compared, ranges
            )
        case "":
            return st.builds(Value, _words, st.sampled_from(("", "*")))
        case _:
            return st.one_of(st.builds(Value, _words, st.sampled_from(("", "*"))), st.just(Value("", "*")))


_keys = sorted(
    INDEXED | {"", "priority", "attempt", "wait", "run", "error", "reason", "args.a.b", "meta.x", "result.0"}
)
_terms = st.sampled_from(_keys).flatmap(
    lambda key: st.builds(
        Term,
        st.just(key),
        st.lists(_values(key), min_size=1, max_size=3 if key else 1).map(tuple),
        st.booleans(),
    )
)
_filters = st.lists(_terms, max_size=4).map(lambda terms: Filter(tuple(terms)))


@settings(deadline=None, max_examples=300)
@given(_filters)
def test_a_filter_that_is_written_is_read_as_the_same_filter(which: Filter) -> None:
    assert parse(str(which)) == which


@settings(deadline=None, max_examples=400)
@given(st.one_of(st.text(max_size=30), st.text('tag:args.xie"\\*,<>=-1 ', max_size=30)))
def test_any_text_is_refused_or_has_a_canonical_form_that_is_not_longer(text: str) -> None:
    try:
        which = parse(text)
    except FilterError as error:
        assert 1 <= error.column <= len(text) + 1  # noqa: PT017
        return
    canonical = str(which)
    assert parse(canonical) == which
    assert str(parse(canonical)) == canonical
    assert len(canonical) <= max(len(text), 0) <= LONGEST


# --- what it matches

MATCHING = [
    "state:failed",
    "state:ready,failed",
    "-state:ready,running",
    "queue:mail",
    "queue:other,ma*",
    "task:shop.*",
    "task:shop.send_welcome",
    "tag:vip",
    'tag:"eu west"',
    "tag:eu*",
    "-tag:test",
    "id:019a8997*",
    "cause:shop.send_welcome:ConnectTimeout*",
    "unique:k:welcome:42",
    "pod:pod-a",
    "parent:019a8997-0000*",
    "schedule:nightly",
    "flow:on*",
    "flow:*",
    "created:2026-11-15",
    "created:2026-11-15T10:00Z",
    "created:>2026-11-14",
    "created:>=2026-11-15",
    "created:<=2026-11-15",
    "created:<2026-11-16",
    "created:<=2026-11-15T11:00:00+01:00",
    "created:2026-11-01..2026-11-15",
    "created:2026-11-15T10:00Z..2026-11-15T10:00Z",
    "created:>1h",
    "created:<3h",
    "created:>=2h",
    "created:<=2h",
    "created:1h..2h",
    "age:>1h",
    "age:<=2h",
    "age:2h..3h",
    "finished:<1h",
    "finished:<2026-11-16",
    "due:<2026-11-15T12:00Z",
    "priority:-5",
    "priority:<0",
    "priority:-5.0",
    "priority:-10..0",
    "attempt:1,3",
    "attempt:>=3",
    "wait:>=30",
    "wait:<=30s",
    "run:1m..2m",
    "error:timeout",
    'error:"card declined"',
    "error:connecttimeout*",
    "error:*",
    "reason:SIGNUP",
    "signup",
    "DECLINED",
    "welcome",
    "vip",
    "shop*",
    "args.user.id:42",
    "args.user.id:42.0",
    "args.user.id:>41",
    "args.user.id:1..42",
    "args.user.id:4*",
    "args.user.name:Ada",
    "args.user.name:A*",
    "args.user.admin:true",
    "args.user.boss:null",
    "args.amounts:7.5",
    "args.amounts:>7",
    "args.amounts.0:5",
    "args.items.0.sku:x1",
    "args.zip:01234",
    'args.when:"2026..2027"',
    "meta.tenant:acme",
    'meta.empty:""',
    "result.0.n:9007199254740993",
    "state:failed queue:mail attempt:>2 -tag:test",
]


@pytest.mark.parametrize("text", MATCHING)
def test_these_filters_find_the_job_and_their_negation_does_not(text: str) -> None:
    assert found(text)
    assert found(str(parse(text)))
    terms = parse(text).terms
    if len(terms) == 1:
        opposite = Filter((replace(terms[0], negated=not terms[0].negated),))
        assert not matches(opposite, JOB, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "state:ready",
        "-state:failed",
        "queue:mai",
        "queue:MAIL",
        "task:send*",
        "tag:VIP",
        "-tag:vip",
        "unique:welcome:42",
        "created:2026-11-14",
        "created:>2026-11-15",
        "created:<2026-11-15",
        "created:>2026-11-15T10:00Z",
        "created:<2026-11-15T10:00Z",
        "created:>2h",
        "created:<2h",
        "created:2026-11-01..2026-11-14",
        "age:<2h",
        "age:>2h",
        "finished:<58m",
        "due:<10m",
        "priority:5",
        "priority:>-5",
        "attempt:>3",
        "wait:>30s",
        "run:<1m",
        "error:declined*",
        "reason:form*",
        "nightly",
        "args.user.id:43",
        "args.user.id:>42",
        "args.user.name:ada",
        "args.user.name:>5",
        "args.user.admin:1",
        "args.user.admin:>0",
        "args.user:*",
        "args.missing:*",
        "args.user.name.x:*",
        "args.amounts.2:*",
        "args.amounts.x:*",
        "args.zip:1234",
        "result.0.n:9007199254740992",
        "result.1.n:*",
        "state:failed queue:billing",
    ],
)
def test_these_filters_do_not_find_the_job(text: str) -> None:
    assert not found(text)


def test_a_field_that_a_job_does_not_have_matches_only_a_negation() -> None:
    bare = dict.fromkeys(("pod", "cause", "unique_key", "parent", "schedule", "flow", "error_text", "reason"))
    bare |= {"finished_at": None, "started_at": None, "args": None, "tags": ()}
    for text in (
        "pod:*",
        "unique:*",
        "tag:*",
        "error:*",
        "reason:*",
        "finished:<1h",
        "finished:>1h",
        "run:>0",
        "args.x:*",
    ):
        assert not found(text, **bare)
        assert found(f"-{text}", **bare)


def test_a_schedule_of_another_type_is_not_a_name() -> None:
    assert not found("schedule:*", schedule=5)


@pytest.mark.parametrize(
    ("condition", "changes", "expected"),
    [
        ("retrying", {"state": "scheduled", "attempt": 1}, True),
        ("retrying", {"state": "scheduled", "attempt": 0}, False),
        ("retrying", {"state": "ready", "attempt": 1}, False),
        ("stuck", {"stuck": True}, True),
        ("stuck", {"stuck": False}, False),
        ("due", {"state": "ready", "run_at": NOW}, True),
        ("due", {"state": "scheduled", "run_at": NOW - 1}, True),
        ("due", {"state": "scheduled", "run_at": NOW + 1}, False),
        ("due", {"state": "running", "run_at": NOW - 1}, False),
        ("cancelling", {"state": "running", "cancel_wanted": True}, True),
        ("cancelling", {"state": "running", "cancel_wanted": False}, False),
        ("cancelling", {"state": "cancelled", "cancel_wanted": True}, False),
        ("poison", {"state": "failed", "crashes": 3}, True),
        ("poison", {"state": "failed", "crashes": 2}, False),
        ("poison", {"state": "ready", "crashes": 3}, False),
        ("throttled", {"throttles": 1}, True),
        ("throttled", {"throttles": 0}, False),
    ],
)
def test_a_condition_is_told_from_the_job(condition: str, changes: dict[str, Any], expected: bool) -> None:
    assert found(f"is:{condition}", **changes) is expected


def test_due_looks_ahead_and_leaves_out_what_is_due_already() -> None:
    assert found("due:<10m", run_at=NOW + 9 * MINUTE)
    assert not found("due:<10m", run_at=NOW + 10 * MINUTE)
    assert found("due:<=10m", run_at=NOW + 10 * MINUTE)
    assert not found("due:<10m", run_at=NOW)
    assert not found("due:<10m", run_at=NOW - 1)
    assert found("due:>1d", run_at=NOW + DAY + 1)
    assert found("due:1h..2h", run_at=NOW + HOUR)
    assert found("due:0s..1h", run_at=NOW)


def test_finished_looks_back() -> None:
    assert found("finished:<1h", finished_at=NOW - 59 * MINUTE)
    assert not found("finished:<1h", finished_at=NOW - HOUR)
    assert found("finished:<1h", finished_at=NOW + 0.001)  # written after `now` was read


def test_a_ready_job_waits_until_now() -> None:
    assert found("wait:1m..1m", state="ready", run_at=NOW - MINUTE, started_at=None)
    assert found("wait:1m..1m", state="ready", run_at=NOW - MINUTE, started_at=NOW - DAY)


def test_a_job_that_waits_for_its_retry_has_no_wait_and_no_run_yet() -> None:
    retrying = {"state": "scheduled", "run_at": NOW + HOUR, "started_at": NOW - 5, "finished_at": None}
    cancelled = retrying | {"state": "cancelled", "finished_at": NOW}
    for changes in (retrying, cancelled):
        assert not found("wait:>=0", **changes)
        assert not found("run:>=0", **changes)


def test_a_running_job_has_run_until_now() -> None:
    running = {"state": "running", "run_at": NOW - 90, "started_at": NOW - MINUTE, "finished_at": None}
    assert found("run:1m..1m wait:30s..30s", **running)
    assert not found("run:>=0", **(running | {"started_at": None}))


# --- intervals, which storages compile


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("priority", Value("5"), Interval(5, 5)),
        ("priority", Value("5", ">"), Interval(low=5, with_low=False)),
        ("priority", Value("5", ">="), Interval(low=5)),
        ("priority", Value("5", "<"), Interval(high=5, with_high=False)),
        ("priority", Value("5", "<="), Interval(high=5)),
        ("priority", Value("1", "..", "5"), Interval(1, 5)),
        ("created", Value("1970-01-02"), Interval(DAY, 2 * DAY, with_high=False)),
        ("created", Value("1970-01-02", ">"), Interval(low=2 * DAY)),
        ("created", Value("1970-01-02", ">="), Interval(low=DAY)),
        ("created", Value("1970-01-02", "<"), Interval(high=DAY, with_high=False)),
        ("created", Value("1970-01-02", "<="), Interval(high=2 * DAY, with_high=False)),
        ("created", Value("1970-01-01", "..", "1970-01-02"), Interval(0, 2 * DAY, with_high=False)),
        ("age", Value("10s", ">"), Interval(high=90, with_high=False)),
        ("age", Value("10s", "<"), Interval(low=90, with_low=False)),
        ("finished", Value("10s", "..", "20s"), Interval(80, 90)),
        ("due", Value("10s", "<"), Interval(100, 110, with_low=False, with_high=False)),
        ("due", Value("10s", ">"), Interval(low=110, with_low=False)),
        ("run", Value("1m", ">"), Interval(low=60, with_low=False)),
        ("args.n", Value("1.5", "<="), Interval(high=1.5)),
    ],
)
def test_an_interval_says_what_a_value_stands_for(key: str, value: Value, expected: Interval) -> None:
    assert interval(key, value, 100.0) == expected


def test_the_indexed_keys_are_those_of_the_manual() -> None:
    names = "id state queue task tag cause unique parent schedule flow pod"
    assert frozenset(f"{names} is created due finished age".split()) == INDEXED


@settings(deadline=None, max_examples=200)
@given(_filters)
def test_every_filter_can_be_asked_of_a_job_and_negation_is_exact(which: Filter) -> None:
    for term in which.terms:
        opposite = replace(term, negated=not term.negated)
        assert matches(Filter((term,)), JOB, NOW) != matches(Filter((opposite,)), JOB, NOW)
    assert matches(which, JOB, NOW) == all(matches(Filter((term,)), JOB, NOW) for term in which.terms)
