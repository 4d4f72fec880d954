"""Tables: commands that are declared in treadle.toml, for programs that need no Python at all.

[commands.resize]
argv = ["/usr/bin/convert", "{src}", "-resize", "{size}", "{dst}"]
args = { src = "str", size = { type = "int", default = 100 }, dst = "str" }
exits = { 75 = "throttle 30s" }
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from ...core import names
from ...core.errors import ConfigError
from . import TaskOptions
from .command import Said

_TYPES: Final[Mapping[str, Any]] = {"str": str, "int": int, "float": float, "bool": bool, "list": list[str]}
_OPTIONS: Final = (*Said.__annotations__, *TaskOptions.__annotations__)
_OWN: Final = ("argv", "args")


def read(name: str, table: object) -> tuple[Callable[..., Any], Sequence[str], dict[str, Any]]:
    """A stub, its program with arguments, and its options. ConfigError names the command."""
    try:
        if not isinstance(table, Mapping):
            raise ValueError("it must be a table")
        given = dict(cast("Mapping[str, Any]", table))
        for key in given:
            if key not in (*_OWN, *_OPTIONS) or key == "name":
                near = names.suggest(key, (*_OWN, *_OPTIONS))
                raise ValueError(f'unknown key "{key}"' + (f'; did you mean "{near}"?' if near else ""))
        argv = given.pop("argv", None)
        if not isinstance(argv, list) or not argv:
            raise ValueError('it needs argv, for example argv = ["/usr/bin/convert", "{src}"]')
        stub = _stub(name, given.pop("args", {}))
    except ValueError as error:
        raise ConfigError(f"commands.{name}: {error}") from None
    return stub, cast("list[str]", argv), {**given, "name": name}


def _stub(name: str, args: object) -> Callable[..., Any]:
    if not isinstance(args, Mapping):
        raise ValueError('args must be a table, for example args = { src = "str" }')
    parameters = [_parameter(each, said) for each, said in cast("Mapping[str, object]", args).items()]

    def stub() -> None: ...

    stub.__name__ = stub.__qualname__ = name
    stub.__module__ = "treadle.toml"
    stub.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(stub)["__signature__"] = inspect.Signature(parameters)
    return stub


def _parameter(name: str, said: object) -> inspect.Parameter:
    kind, default = said, inspect.Parameter.empty
    if isinstance(said, Mapping):
        own = cast("Mapping[str, Any]", said)
        kind, default = own.get("type"), own.get("default", default)
    if not name.isidentifier() or kind not in _TYPES:
        raise ValueError(f"args.{name} must be one of {', '.join(_TYPES)}, or a table with type and default")
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=_TYPES[cast("str", kind)]
    )
