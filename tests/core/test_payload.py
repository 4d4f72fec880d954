"""What may be stored, and what is refused at every door (faults G1 to G7, rules R54 and R55)."""

from __future__ import annotations

import io
import json
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import Mock
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.errors import PayloadError, PayloadTooLarge
from treadle.core.payload import decode, decode_trusted, duplicate_key, encode, encode_arguments, keep_result

Some = Callable[[], Any]


def nested(depth: int, inside: Any = None) -> Any:
    value: Any = [] if inside is None else [inside]
    for _ in range(depth - 1):
        value = [value]
    return value


def itself() -> Any:
    cycle: list[Any] = []
    cycle.append(cycle)
    return cycle


def itself_twice() -> Any:
    cycle: dict[str, Any] = {}
    cycle |= {"a": cycle, "b": cycle}
    return cycle


def shared(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value, value]
    return value


# --- what is stored


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (-(2**63), "-9223372036854775808"),
        (2**63 - 1, "9223372036854775807"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        ("", '""'),
        ("ü€😀", '"ü€😀"'),
        ("a\nb\x1f\x7f\u2028", '"a\\nb\\u001f\x7f\u2028"'),
        ([], "[]"),
        ((1, (2,)), "[1,[2]]"),
        ({"b": 1, "a": {"d": 2, "c": 3}}, '{"a":{"c":3,"d":2},"b":1}'),
        ({"": 0}, '{"":0}'),
        ({"😀": 1, "\uffff": 2}, '{"\uffff":2,"😀":1}'),
        ("a literal \\u0000 is text", '"a literal \\\\u0000 is text"'),
    ],
)
def test_plain_values_become_canonical_text(value: Any, text: str) -> None:
    assert encode(value) == text


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Name(StrEnum):
    ADA = "ada"


class Deep(Enum):
    COLOUR = Colour.RED


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class User:
    name: str
    tags: list[str] = field(default_factory=lambda: ["vip"])


@dataclass
class Unset:
    name: str
    later: int = field(init=False)


class Plain(msgspec.Struct):
    b: int
    a: list[User]


class Renamed(msgspec.Struct, tag="renamed", rename="camel"):
    user_id: int
    not_set: int | msgspec.UnsetType = msgspec.UNSET


class Row(msgspec.Struct, array_like=True, tag=True):
    x: int


class Model:
    """Stands for a pydantic model."""

    def __init__(self, dump: Any) -> None:
        self.dump = dump

    def model_dump(self, *, mode: str) -> Any:
        assert mode == "json"
        return self.dump(self) if callable(self.dump) else self.dump


class Shouting(str):
    __slots__ = ()

    def __str__(self) -> str:
        return self.upper()


class Later(datetime):
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Colour.RED, '"red"'),
        (Level.HIGH, "3"),
        (Name.ADA, '"ada"'),
        (Deep.COLOUR, '"red"'),
        ({Name.ADA: 1, Colour.RED: 2}, '{"ada":1,"red":2}'),
        (Shouting("quiet"), '"quiet"'),
        (type("Number", (int,), {})(5), "5"),
        (type("Real", (float,), {})(5.5), "5.5"),
        (OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
        (Point(1, 2), "[1,2]"),
        (User("Ada"), '{"name":"Ada","tags":["vip"]}'),
        (Unset("Ada"), '{"name":"Ada"}'),
        (Plain(1, [User("Ada", [])]), '{"a":[{"name":"Ada","tags":[]}],"b":1}'),
        (Renamed(7), '{"type":"renamed","userId":7}'),
        (Row(1), '["Row",1]'),
        (Model({"b": [1], "a": None}), '{"a":null,"b":[1]}'),
        (Model(5), "5"),
        (UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
        (Decimal("1.10"), '"1.10"'),
        (datetime(2026, 11, 15, 9, tzinfo=UTC), '"2026-11-15T09:00:00+00:00"'),
        (Later(2026, 11, 15), '"2026-11-15T00:00:00"'),
        (date(2026, 11, 15), '"2026-11-15"'),
        (time(9, 30), '"09:30:00"'),
    ],
)
def test_known_objects_become_what_they_stand_for(value: Any, text: str) -> None:
    assert encode(value) == text
    assert encode([{"in": value}]) == f'[{{"in":{text}}}]'


@pytest.mark.parametrize("kind", [UUID, Decimal, datetime, date, time])
def test_what_is_stored_as_text_can_be_read_back_by_type(kind: Any) -> None:
    moment = datetime(2026, 11, 15, 9, 30, 1, 5, tzinfo=UTC)
    samples: dict[Any, Any] = {
        UUID: UUID(int=5),
        Decimal: Decimal("1E+3"),
        datetime: moment,
        date: moment.date(),
        time: moment.time(),
    }
    assert msgspec.convert(decode_trusted(encode(samples[kind])), kind) == samples[kind]


_json = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8),
        st.just("\\u0000"),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4), inner, max_size=4
        ),
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=150)
@given(_json)
def test_what_is_encoded_is_decoded_to_the_same_value(value: Any) -> None:
    text = encode(value)
    assert decode(text) == value
    assert decode(text.encode()) == value
    assert decode_trusted(text) == value
    assert json.loads(text) == value
    assert encode(decode(text)) == text


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.text("abcü", max_size=3), st.integers(), max_size=6), st.randoms(use_true_random=False))
def test_equal_values_have_equal_text(value: dict[str, int], random: Any) -> None:
    value = {key: number % 2**60 for key, number in value.items()}
    shuffled = list(value.items())
    random.shuffle(shuffled)
    assert encode(value) == encode(dict(shuffled)) == encode(OrderedDict(shuffled))


@settings(deadline=None, max_examples=150)
@given(
    st.recursive(
        st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=4), st.binary(max_size=2)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.tuples(inner),
            st.sets(st.integers(), max_size=2),
            st.dictionaries(st.one_of(st.text(max_size=2), st.integers(0, 3), st.none()), inner, max_size=3),
        ),
        max_leaves=8,
    )
)
def test_a_value_is_either_refused_or_survives_the_round_trip(value: Any) -> None:
    try:
        text = encode(value)
    except PayloadError:
        return
    assert encode(decode(text)) == text


# --- what is refused, G1 to G7


def library(module: str, name: str, **attributes: object) -> object:
    """An object of a class that a library has, which is not installed here."""
    return type(name, (), {"__module__": module, **attributes})()


REFUSED: dict[str, tuple[Some, str]] = {
    "G1 NaN": (lambda: math.nan, "NaN and infinity"),
    "G1 infinity": (lambda: -math.inf, "NaN and infinity"),
    "G1 a decimal NaN": (lambda: Decimal("sNaN"), "NaN and infinity"),
    "G1 an infinite decimal": (lambda: Decimal("Infinity"), "NaN and infinity"),
    "G2 NUL": (lambda: "a\0b", "NUL"),
    "G2 NUL in a key": (lambda: {"a\0b": 1}, "a key must not contain NUL"),
    "G3 a lone surrogate": (lambda: "\ud800", "surrogate"),
    "G3 a lone surrogate in a key": (lambda: {"\udfff": 1}, "surrogate"),
    "G4 101 levels": (lambda: nested(101), "more than 100 levels"),
    "G4 101 levels of dicts and tuples": (lambda: nested(99, ({"a": ()},)), "more than 100 levels"),
    "G4 100,000 levels": (lambda: nested(100_000), "more than 100 levels"),
    "G4 itself": (itself, "contains itself"),
    "G5 2^63": (lambda: 2**63, "64 bits"),
    "G5 below -2^63": (lambda: -(2**63) - 1, "64 bits"),
    "G5 5,000 digits": (lambda: 10**5000, "64 bits"),
    "G7 keys that are no text": (lambda: {1: "a"}, "keys must be text, not int"),
    "G7 keys that collide as text": (lambda: {1: "a", "1": "b"}, "keys must be text, not int"),
    "G7 keys that are the same text": (lambda: {Colour.RED: 1, "red": 2}, "two keys are the same text"),
    "a null key": (lambda: {None: 1}, "keys must be text, not NoneType"),
    "a set": (lambda: {1, 2}, "set is not JSON; give a sorted list"),
    "a frozen set": (lambda: frozenset({1}), "frozenset is not JSON; give a sorted list"),
    "memoryview": (lambda: memoryview(b"x"), "memoryview is not JSON"),
    "a data frame": (lambda: library("pandas.core.frame", "DataFrame"), "DataFrame is not JSON; write it to a file"),
    "an array": (lambda: library("numpy", "ndarray"), r"ndarray is not JSON; pass its \.tolist\(\)"),
    "a file": (lambda: io.BytesIO(), "BytesIO is not JSON; write it to a file and pass the path"),
    "a model of Django's": (lambda: library("shop.models", "User", _meta=1, pk=1), r"pass its key \(\.pk\)"),
    "a class that SQLAlchemy maps": (lambda: library("shop.models", "User", __mapper__=1), "pass its primary key"),
    "a future": (lambda: library("shop", "Reply", __await__=1), "Reply is not JSON; await it first"),
    "an object": (object, "object is not JSON"),
    "a complex number": (lambda: 1j, "complex is not JSON"),
    "a class": (lambda: User, "type is not JSON"),
    "a class with model_dump": (lambda: Model, "type is not JSON"),
    "a mock": (Mock, "Mock is not JSON"),
    "a mapping that is no dict": (lambda: MappingProxyType({}), "mappingproxy is not JSON"),
    "a generator": (lambda: iter([1]), "list_iterator is not JSON; give a list"),
    "a model that fails": (lambda: Model(lambda self: 1 / 0), "model_dump raised ZeroDivisionError"),
    "a model that gives itself": (lambda: Model(lambda self: self), "Model is not JSON"),
    "a set inside a struct": (lambda: Plain(1, {2}), "set is not JSON"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_encode_refuses(name: str) -> None:
    make, complaint = REFUSED[name]
    with pytest.raises(PayloadError, match=complaint) as caught:
        encode(make(), what="result")
    assert "result cannot be stored: " in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_encode_refuses_it_inside_too_and_names_the_place(name: str) -> None:
    make, complaint = REFUSED[name]
    with pytest.raises(PayloadError, match=complaint) as caught:
        encode_arguments({"count": 1, "user": {"tags": ["a", "b", "c", make()]}})
    assert caught.value.path.startswith("user.tags[3]")
    assert "argument 'user' cannot be stored: " in str(caught.value)


def test_100_levels_are_allowed_and_can_be_read_again() -> None:
    for value in (nested(100), nested(100, 5), nested(99, {}), nested(98, {"a": [1]})):
        assert decode(encode(value)) == value


def test_a_key_that_stands_twice_is_found() -> None:
    assert duplicate_key('{"a":1,"b":{"a":2},"c":[{"a":1},{"a":1}]}') is None
    assert duplicate_key(b"[]") is None
    assert duplicate_key('[1,{"a":{"b":1,"c":2,"b":3}}]') == "b"
    assert duplicate_key('{"\\u0061":1,"a":2}') == "a"
    assert duplicate_key(b'{"a":1,"a"') is duplicate_key(b"\xff") is duplicate_key("") is None
    assert duplicate_key("[" + "9" * 10_000 + ", 1e999, -0.0, NaN]") is None


def test_a_value_that_contains_itself_twice_is_refused_without_growing() -> None:
    with pytest.raises(PayloadError):
        encode(itself_twice())
    with pytest.raises(PayloadError):
        encode([Colour.RED, itself_twice()], limit=10_000)


def test_shared_elements_count_as_often_as_they_are_written() -> None:
    assert encode(shared(3)) == "[[[[],[]],[[],[]]],[[[],[]],[[],[]]]]"
    with pytest.raises(PayloadTooLarge):
        encode(shared(90))
    with pytest.raises(PayloadTooLarge):
        encode([Colour.RED, shared(90)], limit=10_000)


def test_g6_a_large_value_is_refused_by_its_bytes() -> None:
    assert len(encode("x" * (1024 * 1024 - 2))) == 1024 * 1024
    for value in ("x" * (1024 * 1024 - 1), "é" * (512 * 1024), "x" * 10_000_000, [0] * 10_000_000):
        with pytest.raises(PayloadTooLarge, match="meta cannot be stored: more than 1,048,576 bytes"):
            encode(value, what="meta")
    assert encode([1, 2, 3], limit=7) == "[1,2,3]"
    assert encode([Level.HIGH] * 3, limit=7) == "[3,3,3]"
    for value in ([1, 2, 3], [Level.HIGH] * 3, [Level.HIGH] * 30):
        with pytest.raises(PayloadTooLarge):
            encode(value, limit=6)


@settings(deadline=None, max_examples=100)
@given(_json, st.integers(0, 60))
def test_a_value_is_too_large_exactly_when_its_text_is(value: Any, limit: int) -> None:
    text = encode(value)
    if len(text.encode()) <= limit:
        assert encode(value, limit=limit) == text
    else:
        with pytest.raises(PayloadTooLarge):
            encode(value, limit=limit)


def test_an_argument_that_is_too_large_is_named() -> None:
    with pytest.raises(PayloadTooLarge, match="argument 'blob' cannot be stored: more than 50 bytes") as caught:
        encode_arguments({"odd": [math.nan], "n": 1, "blob": [0] * 500}, limit=50)
    assert caught.value.path == "blob"
    with pytest.raises(PayloadTooLarge, match="argument 'blob' cannot be stored") as caught:
        encode_arguments({"n": 1, "blob": "x" * 60}, limit=50)
    assert caught.value.path == "blob"


def test_arguments_that_are_too_large_together_are_refused_together() -> None:
    with pytest.raises(PayloadTooLarge, match="the arguments cannot be stored: more than 50 bytes") as caught:
        encode_arguments({"a": "x" * 40, "b": "x" * 40}, limit=50)
    assert caught.value.path == ""


# --- arguments and paths


def test_arguments_are_one_object() -> None:
    assert encode_arguments({"user_id": 42, "name": "Ada"}) == '{"name":"Ada","user_id":42}'
    assert encode_arguments(MappingProxyType({"n": (1,)})) == '{"n":[1]}'
    assert encode_arguments({}) == "{}"


def test_an_argument_without_a_name_is_refused() -> None:
    wrong: Any = {1: 2}
    with pytest.raises(PayloadError, match="the arguments cannot be stored: keys must be text") as caught:
        encode_arguments(wrong)
    assert caught.value.path == ""


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, ""),
        ([[math.nan]], "[0][0]"),
        ({"user": {"tags": ["a", math.nan]}}, "user.tags[1]"),
        ({"grün": math.nan}, "grün"),
        ({"a b": {"c.d": math.nan}}, "['a b']['c.d']"),
        ({"": math.nan}, "['']"),
        ({"x" * 50: math.nan}, f"['{'x' * 40}…']"),
        ({"a": [{"a\0": 1}]}, "a[0]"),
        (User("Ada", [math.nan]), "tags[0]"),  # type: ignore[list-item]
        (Renamed(math.nan), "userId"),  # type: ignore[arg-type]
        ({"a": 1, "b": [1, 2], "c": math.nan}, "c"),
    ],
)
def test_the_path_names_the_place(value: Any, path: str) -> None:
    with pytest.raises(PayloadError) as caught:
        encode(value)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: value cannot" if path else "value cannot")


def test_a_long_path_is_cut() -> None:
    with pytest.raises(PayloadError) as caught:
        encode({"a" * 30: {"b" * 30: nested(90, math.nan)}})
    assert len(caught.value.path) == 201
    assert caught.value.path.endswith("…")


def test_an_error_does_not_tell_the_value() -> None:
    with pytest.raises(PayloadError) as caught:
        encode_arguments({"password": "hunter2\0"})
    assert "hunter2" not in str(caught.value)


# --- untrusted text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        (' { "b" : [ 1 , 2.5 ] , "a" : "x" } \n', {"b": [1, 2.5], "a": "x"}),
        (b'"\xc3\xbc"', "ü"),
        ('"\\u00fc\\ud83d\\ude00"', "ü😀"),
        ('"\\\\u0000"', "\\u0000"),
        ("-9223372036854775808", -(2**63)),
        ("1e2", 100.0),
        ("[" * 100 + "]" * 100, nested(100)),
        ("[" + ",".join(["[]"] * 200) + "]", [[]] * 200),
        ('["' + "[" * 200 + '\\"]"]', ["[" * 200 + '"]']),
    ],
)
def test_decode_reads_json(text: str | bytes, value: Any) -> None:
    assert decode(text) == value


@pytest.mark.parametrize(
    ("text", "complaint", "path"),
    [
        ("NaN", "NaN and infinity", ""),
        ('{"a":[Infinity]}', "NaN and infinity", "a[0]"),
        ('{"a":-Infinity}', "NaN and infinity", "a"),
        ("[1e999]", "NaN and infinity", "[0]"),
        ('{"a":-1e999}', "NaN and infinity", "a"),
        ('{"a":"\\u0000"}', "NUL", "a"),
        ('{"\\u0000":1}', "a key must not contain NUL", ""),
        ('"a\0b"', "Invalid control character", ""),
        ('{"a":"\\ud800"}', "surrogate", "a"),
        ('{"\\udc00":1}', "surrogate", ""),
        ('"\ud800"', "not UTF-8", ""),
        (b'"\xed\xa0\x80"', "not UTF-8", ""),
        (b"\xff", "not UTF-8", ""),
        ("[" * 101 + "]" * 101, "more than 100 levels", ""),
        ("[" * 100_000, "more than 100 levels", ""),
        ('{"a":' * 100_000, "more than 100 levels", ""),
        ("[{" * 51, "more than 100 levels", ""),
        ('["a\\"' + "[" * 101 + '",' + "[" * 101, "more than 100 levels", ""),
        ('"' + "[" * 101, "Unterminated string", ""),
        ("[9223372036854775808]", "64 bits", "[0]"),
        ('{"a":-9223372036854775809}', "64 bits", "a"),
        ("9" * 5000, "64 bits", ""),
        ('{"a":1,"b":2,"a":3}', "key 'a' twice", ""),
        ('[{"a":{"x":1,"\\u0078":2}}]', "key 'x' twice", ""),
        ("", "not JSON", ""),
        ("{} x", "not JSON: Extra data", ""),
        ("[1,]", "not JSON", ""),
        ("{'a':1}", "not JSON", ""),
        ("01", "not JSON", ""),
        ("\ufeff1", "not JSON", ""),
        ("nul", "not JSON", ""),
    ],
)
def test_decode_refuses(text: str | bytes, complaint: str, path: str) -> None:
    with pytest.raises(PayloadError, match=complaint) as caught:
        decode(text, what="body")
    assert "body" in str(caught.value)
    assert caught.value.path == path


@pytest.mark.parametrize("text", ["x" * 11, b"x" * 11, "é" * 6, "€" * 10_000_000])
def test_g6_decode_refuses_what_is_too_large_before_it_reads_it(text: str | bytes) -> None:
    with pytest.raises(PayloadTooLarge, match="payload is too large: 10 bytes"):
        decode(text, limit=10)


def test_decode_reads_up_to_its_limit() -> None:
    assert decode('"éééé"', limit=10) == "éééé"
    assert decode(b'"xxxxxxxx"', limit=10) == "x" * 8


def test_a_broken_text_full_of_quotes_is_read_once() -> None:
    """An unclosed string used to be tried again from each quote inside it: quadratic, minutes for a megabyte."""
    with pytest.raises(PayloadError):
        decode("[" * 101 + '"' + '\\"' * 500_000)


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.text(max_size=20), st.text('[]{}",:\\u0123Ndae.-', max_size=20), st.binary(max_size=12)))
def test_any_text_is_decoded_or_refused(text: str | bytes) -> None:
    try:
        value = decode(text)
    except PayloadError:
        return
    assert decode(encode(value)) == value


# --- our own rows


def test_stored_text_is_read_fast_and_plainly() -> None:
    assert decode_trusted('{"a":[1,2.5,null,"ü"]}') == {"a": [1, 2.5, None, "ü"]}
    assert decode_trusted(b"[]") == []


@pytest.mark.parametrize("damaged", ["", "{", "NaN", '"\\ud800"', "1 2", b'"\xff"', "\ud800", "[" * 5000, None, 5])
def test_a_damaged_row_is_a_payload_error(damaged: Any) -> None:
    with pytest.raises(PayloadError, match="stored text is not JSON"):
        decode_trusted(damaged)


# Results --------------------------------------------------------------------------------------------------------------


class Sour:
    def model_dump(self, **_: object) -> Any:
        raise SystemExit(1)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, (None, None)),
        ([1, "a"], ('[1,"a"]', None)),
        ({1}, (None, "result not kept: result cannot be stored: the type set is not JSON; give a sorted list")),
        (Sour(), (None, "result not kept: it raised SystemExit")),
    ],
)
def test_a_result_is_kept_or_the_warning_says_why_not(value: object, kept: tuple[str | None, str | None]) -> None:
    assert keep_result(value) == kept


def test_a_warning_is_of_bounded_length() -> None:
    _, warning = keep_result({"x" * 39: {"y" * 39: {"z" * 5000: {1}}}})
    assert warning is not None and len(warning) <= 1024


# Rich values ----------------------------------------------------------------------------------------------------------


def test_bytes_durations_and_paths_are_text() -> None:
    value = [b"\0\xff", bytearray(b"a"), timedelta(days=1, seconds=2), PurePosixPath("/srv/x")]
    assert encode(value) == '["AP8=","YQ==","P1DT2S","/srv/x"]'


def test_values_that_json_has_no_type_for_are_told_of() -> None:
    told: list[tuple[str, str]] = []
    arguments = {"a": 1, "when": {"deep": [date(2026, 1, 2)]}, "id": UUID(int=1), "kind": IntEnum("N", "x").x}
    encode_arguments(arguments, on_rich=lambda name, kind: told.append((name, kind)))
    assert told == [("when", "date"), ("id", "UUID")]
