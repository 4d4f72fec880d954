"""Values as JSON, in the shape that the command line prints too: instants in ISO 8601 with milliseconds, durations in
seconds, the fields of a view by their names."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, cast

import msgspec
from starlette.responses import Response

_AS_THEY_ARE: Final = frozenset({str, int, bool, type(None)})


def plain(value: Any) -> Any:
    """The value as JSON values: views, Structs and what is made of them."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return round(value, 6) if math.isfinite(value) else None
    if kind is dict:
        found = cast("dict[Any, Any]", value)
        return {str(key): each if type(each) in _AS_THEY_ARE else plain(each) for key, each in found.items()}
    if kind is list or kind is tuple:
        return [each if type(each) in _AS_THEY_ARE else plain(each) for each in cast("list[Any]", value)]
    if kind is datetime:
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return _other(value)


def _other(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case _ if dataclasses.is_dataclass(value):
            return {name: plain(getattr(value, name)) for name in _fields(cast("Any", type(value)))}
        case Mapping():
            return plain(dict(value))  # pyright: ignore[reportUnknownArgumentType]
        case set() | frozenset():
            return plain(list(cast("set[Any]", value)))
        case datetime():
            return plain(datetime.fromtimestamp(value.timestamp(), UTC))
        case _:
            return str(value)


@functools.cache
def _fields(kind: Any) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(kind))


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


class JSON(Response):
    """An answer of the API. Texts may hold half of a surrogate pair, which UTF-8 cannot: it is replaced."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        try:
            return encode(content)
        except (UnicodeEncodeError, msgspec.MsgspecError, ValueError):
            return encode(_mended(content))


def _mended(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case Mapping():
            return {_mended(key): _mended(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case list():
            return [_mended(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value
