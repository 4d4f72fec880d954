"""A form for a task's arguments, made from their JSON Schema; and what somebody typed into it, as values.

A text, a number, a choice and a yes or no have inputs of their own; whatever else is a field for JSON. A form sends two
lists, the names and the values, so that an empty field keeps its place: left empty, an argument that has a default is
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

from ...core.command_line import Part
from ...core.redact import MASK
from ..problem import Problem
from ..routing import check_keys
from . import words
from .asking import Field

Kind = Literal["text", "integer", "number", "boolean", "choice", "json"]

_SIMPLE: Final[Mapping[str, Kind]] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}
_TYPES: Final = {"integer": (int,), "number": (int, float), "boolean": (bool,)}
_NOT: Final = {"integer": "not a whole number", "number": "not a number", "boolean": "neither true nor false"}
_INPUTS: Final = {"text": "text", "integer": "number", "number": "number", "boolean": "select", "choice": "select"}


def kind_of(found: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[Kind, list[str], bool]:
    """How a parameter is asked for, what can be chosen, and whether it may be null."""
    if isinstance(ref := found.get("$ref"), str):
        found = schema.get("$defs", {}).get(ref.rpartition("/")[2], {})
    either: list[dict[str, Any]] | None = found.get("anyOf")
    if either is not None:
        others = [each for each in either if each.get("type") != "null"]
        if len(others) != 1 or len(either) != 2:
            return "json", [], False
        kind, chosen, _ = kind_of(others[0], schema)
        return kind, chosen, kind != "json"
    values: list[Any] | None = found.get("enum")
    if values is not None:
        return ("choice", values, False) if all(isinstance(each, str) for each in values) else ("json", [], False)
    if found.get("format") or found.get("contentEncoding"):  # a moment, bytes: text all the same
        return ("text", [], False) if found.get("type") == "string" else ("json", [], False)
    return _SIMPLE.get(str(found.get("type")), "json"), [], False


def fields(schema: Mapping[str, Any], args: Mapping[str, Any]) -> list[Field]:
    """One for each parameter, with what it has in `args`."""
    needed = schema.get("required", ())
    return [
        _field(name, found, schema, args, name in needed)
        for name, found in cast("dict[str, dict[str, Any]]", schema["properties"]).items()
    ]


def _field(
    name: str, found: Mapping[str, Any], schema: Mapping[str, Any], args: Mapping[str, Any], needed: bool
) -> Field:
    kind, chosen, nullable = kind_of(found, schema)
    value = args.get(name)
    shown = "" if name not in args or (value is None and nullable) else _shown(kind, value)
    if "default" in found and not needed:
        hint = f"Empty: {words.one_line(found['default'])}"
    else:
        hint = "Empty: null" if nullable else "JSON" if kind == "json" else ""
    options = ["true", "false"] if kind == "boolean" else chosen
    if shown and kind in ("boolean", "choice") and shown not in options:
        options = [shown, *options]  # an old job's, which is refused unless somebody chooses anew
    return Field(
        name=f"arg-{name}",
        argument=name,
        label=name,
        kind=_INPUTS.get(kind, "json"),
        value=shown,
        hint=hint,
        step="any" if kind == "number" else "",
        options=[*([] if needed and not nullable else [""]), *options],
        needed=needed and not nullable and kind in ("integer", "number"),
        rows=4,
    )


def parts(schema: Mapping[str, Any]) -> list[Part]:
    """What a command line says of each field: NAME=VALUE, with the meaning that `read` gives it."""
    needed = schema.get("required", ())
    found = cast("dict[str, dict[str, Any]]", schema["properties"])
    return [_part(name, *kind_of(each, schema), name in needed) for name, each in found.items()]


def _part(name: str, kind: Kind, chosen: Sequence[str], nullable: bool, needed: bool) -> Part:
    is_text = kind in ("text", "choice")
    empty = f"{name}=null" if nullable else f"{name}=" if is_text else ""
    return Part(
        field=f"arg-{name}",
        prefix=f"{name}=",
        text=is_text,
        empty=(empty,) if needed and empty else (),
        needed=needed,
    )


def _shown(kind: Kind, value: Any) -> str:
    return value if isinstance(value, str) and kind in ("text", "choice") else words.pretty(value)


def read(schema: Mapping[str, Any], names: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    """The arguments by name. A Problem says which field cannot be read."""
    if len(names) != len(values):
        raise Problem("validation", "the form cannot be read: its names and values differ in number")
    known = cast("dict[str, dict[str, Any]]", schema["properties"])
    found: dict[str, Any] = {}
    for name, text in zip(names, values, strict=True):
        if name not in known:
            raise Problem("validation", f"the task has no parameter {name[:100]!r}", fields={"field": "args"})
        if MASK in text:
            raise Problem("validation", f"{name}: type the masked value ({MASK}) anew first", fields={"field": name})
        kind, chosen, nullable = kind_of(known[name], schema)
        if text == "" and name not in schema.get("required", ()):
            continue
        found[name] = None if text == "" and nullable else _value(name, kind, chosen, text)
    return found


def _value(name: str, kind: Kind, chosen: Sequence[str], text: str) -> Any:
    if kind == "choice" and text not in chosen:
        raise Problem("validation", f"{name} is none of {', '.join(chosen)}", fields={"field": name})
    if kind in ("text", "choice"):
        return text
    try:
        check_keys(text, name)
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        what = f"not JSON: {error}" if kind == "json" else _NOT[kind]
        raise Problem("validation", f"{name} is {what}", fields={"field": name}) from None
    if kind != "json" and type(found) not in _TYPES[kind]:
        raise Problem("validation", f"{name} is {_NOT[kind]}", fields={"field": name})
    return found
