"""Values as JSON, in the shape that the command line prints too: instants in ISO 8601 with milliseconds, durations in
seconds, the fields of a view by their names."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, cast

import msgspec
from starlette.responses import Response


def plain(value: Any) -> Any:
    """The value as JSON values: views, Structs and what is made of them."""
    match value:
        case None | bool() | int():
            return value
        case Enum():
            return value.value
        case str():
            return value
        case float():
            return round(value, 6) if math.isfinite(value) else None
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Mapping():
            return {str(key): plain(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in cast("list[Any]", value)]
        case msgspec.Struct():
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case _ if dataclasses.is_dataclass(value):
            return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
        case _:
            return str(value)


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
            return {_mended(key): _mended(each) for key, each in value.items()}
        case list():
            return [_mended(each) for each in value]
        case _:
            return value
