"""What is stored of arguments, results and meta: strict JSON text, or an error that names the place.

Databases disagree about what JSON is: PostgreSQL refuses NUL and NaN, SQLite keeps both, drivers fail on lone
surrogates in the middle of a batch. So everything is checked here, before a driver sees it, and the text is canonical
(sorted keys, no spaces), so that equal values have equal text and a unique key can be made of it.

Two speeds. A value of plain Python types is only looked over, level by level, and then encoded by msgspec. Whatever
is not plain (a dataclass, an enum, something forbidden) goes through a slower walk that copies it into plain types and
knows where it is, for the error. Neither walk recurses, so a value that contains itself ends at the depth limit.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, cast

import msgspec

from .errors import PayloadError, PayloadTooLarge

LIMIT: Final = 1024 * 1024
DEEPEST: Final = 100
NOT_KEPT: Final = "result not kept: "  # how the warning of a job begins whose result could not be stored
LONGEST_WARNING: Final = 1024

_MIN: Final = -(2**63)
_MAX: Final = 2**63 - 1
_LONGEST_INTEGER: Final = 20  # characters of -2**63
_INF: Final = math.inf
_JSON: Final = (str, int, float, list, tuple, dict, type(None))  # and what derives of them
_LONGEST_PATH: Final = 200

_to_json: Final = msgspec.json.Encoder(order="sorted").encode
_from_json: Final = msgspec.json.Decoder().decode
_WORD: Final = re.compile(r"[^\W\d]\w{0,39}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# The closing quote is optional: an unclosed string is then read once, and not again from each quote inside it.
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


class NotJSON(PayloadError):
    """Text that is no JSON at all, as against JSON that cannot be stored."""


def encode(value: object, *, what: str = "value", limit: int = LIMIT) -> str:
    """The value as canonical JSON text of at most `limit` bytes; PayloadError calls it `what`.

    >>> encode({"b": (1, 2), "a": "ü"})
    '{"a":"ü","b":[1,2]}'
    """
    return _encode(value, what, limit)


def encode_arguments(
    arguments: Mapping[str, object], limit: int = LIMIT, on_rich: Callable[[str, str], None] | None = None
) -> str:
    """The arguments of a call as one JSON object; an error names the argument, and the place inside it. `on_rich` is
    told of values that JSON has no type for, such as a datetime: the argument's name, and the name of the type."""
    return _encode(arguments if type(arguments) is dict else dict(arguments), None, limit, on_rich)


def keep_result(value: object) -> tuple[str | None, str | None]:
    """A task's result as it is stored; or None, and the job's warning that says why it is not. To fail the run instead
    would repeat an effect that has happened."""
    if value is None:
        return None, None
    try:
        return encode(value, what="result"), None
    except PayloadError as error:
        return None, f"{NOT_KEPT}{error}"[:LONGEST_WARNING]
    except BaseException as error:  # code of the result's own class, such as a model's
        return None, f"{NOT_KEPT}it raised {type(error).__name__}"[:LONGEST_WARNING]


def decode(text: str | bytes, *, what: str = "payload", limit: int = LIMIT) -> object:
    """The value of JSON text that nobody vouches for (HTTP, command line, a result from a worker pool).

    Stricter than any parser: what is accepted can be encoded again, and every storage can keep it.
    """
    checked = _utf8(text, what, limit)
    _check_depth(checked, what)
    try:
        value: object = json.loads(checked, parse_int=_integer, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        raise NotJSON(f"{what} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from None
    except _DuplicateKey as error:
        raise PayloadError(f"{what} has the key {_shown(error.key)} twice in one object") from None
    # The text is UTF-8 and a JSON string holds no raw control character: NUL and lone surrogates need an escape.
    if "\\u" in checked or not _is_plain(value, limit):
        _copy(value, what, limit)
    return value


def duplicate_key(text: str | bytes) -> str | None:
    """A key that stands twice in one object of this JSON; else None, also if it is no JSON at all. Parsers differ in
    which of the two they take, so that one that checks and one that acts may see different values."""
    try:
        # Numbers stay as they are written: of many digits they would take long, or be refused.
        json.loads(text.decode() if isinstance(text, bytes) else text, parse_int=len, parse_float=len,
                   object_pairs_hook=_check_keys)  # fmt: skip
    except _DuplicateKey as error:
        return error.key
    except ValueError:
        return None
    return None


def decode_trusted(text: str | bytes) -> Any:
    """The value of text that `encode` made. Fast, and no stricter than needed to notice a damaged row."""
    try:
        return _from_json(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
        raise PayloadError(f"stored text is not JSON ({type(error).__name__})") from None


def _is_flat(value: Any) -> bool:
    """A dict of short answers, as most arguments are: plain at a glance."""
    return type(value) is dict and all(map(_is_short, value, value.values()))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]


def _is_short(key: object, item: object) -> bool:
    kind = type(item)
    return type(key) is str and (kind is str or kind is bool or item is None or _is_small(kind, item))


def _is_small(kind: type[object], item: Any) -> bool:
    return (kind is int and _MIN <= item <= _MAX) or (kind is float and -_INF < item < _INF)


def _encode(value: Any, what: str | None, limit: int, on_rich: Callable[[str, str], None] | None = None) -> str:
    try:
        if not _is_flat(value) and not _is_plain(value, limit):
            value = _copy(value, what, limit, on_rich)
        encoded = _to_json(value)
    except _TooMany:
        raise _too_large(value, what, limit) from None
    except UnicodeEncodeError:  # a lone surrogate; the walk finds its place
        encoded = _to_json(_copy(value, what, limit))
    # NUL is written as \u0000, but so is a backslash followed by "u0000": the walk tells them apart.
    if b"\\u0000" in encoded:
        _copy(value, what, limit)
    if len(encoded) > limit:
        raise _too_large(value, what, limit)
    return encoded.decode()


def _too_large(value: Any, what: str | None, limit: int) -> PayloadTooLarge:
    """Names the first argument that is too large by itself; often there is none."""
    for name in value if what is None else ():
        try:
            _encode(value[name], "it", limit)
        except PayloadTooLarge:
            message = f"argument {_shown(name)} cannot be stored: more than {limit:,} bytes of JSON"
            return PayloadTooLarge(message, _path([name]))
        except PayloadError:
            continue
    return PayloadTooLarge(f"{what or 'the arguments'} cannot be stored: more than {limit:,} bytes of JSON")


def _too_many(items: int, limit: int) -> bool:
    # An item takes a byte at least, and a comma or a bracket. So this refuses nothing that would fit.
    return 2 * items - 1 > limit


def _is_plain(value: object, limit: int) -> bool:
    """Whether msgspec may encode the value as it is. False means "look closer": the walk decides."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for item in level:
            kind = type(item)  # pyright: ignore[reportUnknownVariableType]
            if kind is str or kind is bool or item is None:
                continue
            if kind is int:
                if not _MIN <= item <= _MAX:
                    return False
            elif kind is float:
                if not -_INF < item < _INF:
                    return False
            elif kind is dict:
                for key in item:
                    if type(key) is not str:
                        return False
                below.extend(item.values())
            elif kind is list or kind is tuple:
                below.extend(item)
            else:
                return False
        if not below:
            return True
        # Without this, lists that share their elements (or contain themselves twice) would double at each level.
        if _too_many(len(below), limit):
            raise _TooMany
        level = below
    return False


@dataclasses.dataclass(slots=True)
class _Open:
    """A list or dict that is being copied, and the key that the copy has got to."""

    items: Iterator[tuple[Any, Any]]
    copy: list[Any] | dict[str, Any]
    at: Any = None

    def put(self, item: Any) -> None:
        if isinstance(self.copy, list):
            self.copy.append(item)
        else:
            self.copy[self.at] = item


class _TooMany(Exception):
    pass


class _Refused(Exception):
    def __init__(self, reason: str, kind: type[PayloadError] = PayloadError) -> None:
        self.reason = reason
        self.kind = kind


class _DuplicateKey(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


def _copy(value: object, what: str | None, limit: int, on_rich: Callable[[str, str], None] | None = None) -> Any:
    """The value in plain types only, or the error that names the first place that cannot be stored."""
    root: list[Any] = []
    walk = [_Open(iter([(0, value)]), root)]
    try:
        _copy_along(walk, limit, on_rich)
    except _Refused as refused:
        steps = [here.at for here in walk[1:]]
        subject = what or (f"argument {_shown(steps[0])}" if steps else "the arguments")
        raise refused.kind(f"{subject} cannot be stored: {refused.reason}", _path(steps)) from None
    return root[0]


def _copy_along(walk: list[_Open], limit: int, on_rich: Callable[[str, str], None] | None) -> None:
    count = 0
    while walk:
        here = walk[-1]
        for at, item in here.items:
            here.at = at
            count += 1
            if _too_many(count, limit):
                raise _Refused(f"more than {limit:,} bytes of JSON", PayloadTooLarge)
            plain = _plain(item)
            if on_rich is not None and not isinstance(item, _JSON):
                on_rich(walk[1].at, type(item).__name__)
            opened = isinstance(plain, _Open)
            if opened and len(walk) > DEEPEST:
                raise _Refused(f"it is nested more than {DEEPEST} levels deep, or contains itself")
            here.put(plain.copy if opened else plain)
            if opened:
                walk.append(plain)
                break
        else:
            walk.pop()


def _plain(item: Any) -> Any:
    """The item as a plain scalar, or as an _Open whose items are still to be looked at."""
    item = _unwrapped(item)
    if item is None or isinstance(item, bool):
        return item
    if isinstance(item, str):
        return _text(item, "text")
    if isinstance(item, int):
        if not _MIN <= item <= _MAX:
            raise _Refused("an integer beyond 64 bits; send it as text")
        return int(item)
    if isinstance(item, float):
        if not math.isfinite(item):
            raise _Refused("NaN and infinity are not JSON")
        return float(item)
    if isinstance(item, list | tuple):
        return _Open(enumerate(cast("list[Any]", item)), [])
    return _Open(iter(_entries(item).items()), {})


def _unwrapped(item: Any) -> Any:
    """What stands for the item in JSON, if it is a known kind of object; else the item."""
    while isinstance(item, Enum):
        item = item.value
    if isinstance(item, Decimal) and not item.is_finite():
        raise _Refused("NaN and infinity are not JSON")
    if isinstance(item, Decimal | uuid.UUID):
        return str(item)
    if isinstance(item, datetime.date | datetime.time):  # a datetime is a date
        return item.isoformat()
    if isinstance(item, datetime.timedelta | bytes | bytearray):  # ISO 8601; base64
        return msgspec.to_builtins(item)
    if isinstance(item, PurePath):
        return str(item)
    if isinstance(item, msgspec.Struct):
        return _struct(item)
    if isinstance(item, type):
        return item
    if dataclasses.is_dataclass(item):
        # A field without a value (init=False, never set) is left out, as msgspec does.
        names = [field.name for field in dataclasses.fields(item) if hasattr(item, field.name)]
        return {name: getattr(item, name) for name in names}
    # pydantic, which the core must not import, is known by its method: that of the type, for a Mock has any attribute.
    if hasattr(type(item), "model_dump"):  # pyright: ignore[reportUnknownArgumentType]
        try:
            return item.model_dump(mode="json")
        except Exception as error:
            raise _Refused(f"its model_dump raised {type(error).__name__}") from None
    return item


def _struct(item: msgspec.Struct) -> Any:
    """One level of a Struct: `to_builtins` would go all the way down, and turn sets into lists without a word."""
    config = item.__struct_config__
    values = {field.encode_name: getattr(item, field.name) for field in msgspec.structs.fields(item)}
    values = {name: value for name, value in values.items() if value is not msgspec.UNSET}
    tag = {} if config.tag is None else {str(config.tag_field): config.tag}
    return [*tag.values(), *values.values()] if config.array_like else {**tag, **values}


def _remedy(kind: type[Any]) -> str:
    """What to pass instead, for types that many have in hand. Libraries are known by their names, not imported."""
    libraries = {each.__module__.partition(".")[0] for each in kind.__mro__}
    if issubclass(kind, set | frozenset):
        return "give a sorted list"
    if "numpy" in libraries:
        return "pass its .tolist(), or write it to a file and pass the path"
    if libraries & {"pandas", "polars", "pyarrow"} or hasattr(kind, "read"):
        return "write it to a file and pass the path"
    if hasattr(kind, "_meta") and hasattr(kind, "pk"):  # a model of Django's
        return "pass its key (.pk), and load it in the task"
    if hasattr(kind, "__mapper__"):  # a class that SQLAlchemy maps
        return "pass its primary key, and load it in the task"
    if hasattr(kind, "__await__"):
        return "await it first"
    return "give a list" if hasattr(kind, "__next__") else ""


def _entries(item: Any) -> dict[str, Any]:
    if not isinstance(item, dict):
        kind: type[Any] = type(item)  # pyright: ignore[reportUnknownVariableType]
        remedy = _remedy(kind)
        raise _Refused(f"the type {kind.__name__} is not JSON{remedy and f'; {remedy}'}")
    entries: dict[str, Any] = {}
    for key, value in cast("Mapping[Any, Any]", item).items():
        plain: object = key.value if isinstance(key, Enum) else key
        if not isinstance(plain, str):
            raise _Refused(f"keys must be text, not {type(plain).__name__}")
        text = _text(plain, "a key")
        if text in entries:
            raise _Refused(f"two keys are the same text, {_shown(text)}")
        entries[text] = value
    return entries


def _text(text: str, what: str) -> str:
    if "\0" in text:
        raise _Refused(f"{what} must not contain NUL")
    if _SURROGATE.search(text):
        raise _Refused(f"{what} contains half of a surrogate pair, which is not Unicode text")
    return str.__str__(text)


def _path(steps: list[str | int]) -> str:
    path = "".join(_step(step, first=not number) for number, step in enumerate(steps))
    return path if len(path) <= _LONGEST_PATH else f"{path[:_LONGEST_PATH]}…"


def _step(step: str | int, *, first: bool) -> str:
    if isinstance(step, str) and _WORD.fullmatch(step):
        return step if first else f".{step}"
    return f"[{step if isinstance(step, int) else _shown(step)}]"


def _shown(key: str) -> str:
    return repr(key if len(key) <= 40 else f"{key[:40]}…")


def _utf8(text: str | bytes, what: str, limit: int) -> str:
    try:
        # A text of more characters than bytes are allowed is not worth encoding.
        size = len(text) if isinstance(text, bytes) or len(text) > limit else len(text.encode())
        if size > limit:
            raise PayloadTooLarge(f"{what} is too large: {limit:,} bytes are allowed")
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeError:
        raise PayloadError(f"{what} is not UTF-8") from None


def _check_depth(text: str, what: str) -> None:
    """Before the parser, which has a limit of its own and may meet it by overflowing the stack."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        if depth > DEEPEST:
            raise PayloadError(f"{what} is nested more than {DEEPEST} levels deep")


def _integer(digits: str) -> int:
    # Reading 5,000 digits is slow, or refused by Python. Any integer out of range does: the walk names its place.
    return int(digits) if len(digits) <= _LONGEST_INTEGER else _MAX + 1


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) > 1:
        _unique_keys(pairs)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise _DuplicateKey(Counter(key for key, _ in pairs).most_common(1)[0][0])
    return entries
