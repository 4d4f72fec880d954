"""Outside: declarations of work that is done outside this process, by a program, a pool of workers, or a service.

A declaration is a value. It says what may be run, and checks arguments where a job is enqueued; what runs it is in
`treadle.executors`. The function under the declaration is a stub: its signature is the task's, its body never runs.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypedDict

import msgspec
from msgspec import UnsetType

from ...core.backoff import Retry
from ...core.duration import Duration
from ...core.errors import ConfigError, PayloadError
from ...core.partition import Partitions
from ...core.unique import Unique


class TaskOptions(TypedDict, total=False):
    """The options that every task has, however it is declared. See `Registry.task`."""

    name: str | None
    queue: str | Partitions | None
    retry: Retry | int | None
    timeout: Duration | UnsetType | None
    priority: int
    unique: Unique | str | bool | None
    tags: Iterable[str]
    aliases: Iterable[str]
    description: str | None
    owner: str
    docs: str
    check_arguments: bool | None


class Outside(Protocol):
    """What a task's `outside` is."""

    @property
    def executor(self) -> str:
        """The name of the executor that runs it."""
        ...

    def check(self, arguments: Mapping[str, Any]) -> None:
        """PayloadError unless arguments, as they are stored, may be sent there."""
        ...


class Stub:
    """The parameters of a function that is never called."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function = function
        if inspect.iscoroutinefunction(function):
            raise ConfigError(f"task {name}: its body never runs, so it is a plain def, not an async def")
        parameters = list(inspect.signature(function).parameters.values())
        for parameter in parameters:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ConfigError(f"task {name}: {parameter} cannot be told from other arguments: give each a name")
        if parameters and parameters[0].name == "ctx":
            raise ConfigError(f"task {name}: its body never runs, so it has no use for ctx")
        self.names = tuple(parameter.name for parameter in parameters)
        self.defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
        self._types: dict[str, Any] | None = None

    def convert(self, name: str, value: Any) -> Any:
        """A stored value as its annotation has it. PayloadError, without the value, if it is not of that type."""
        kind = self.types.get(name, Any)
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise PayloadError(str(error), name) from None
        except TypeError:  # not a type that msgspec knows: nobody can tell
            return value

    def complete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments together with the defaults of those that were not given."""
        return self.defaults | dict(arguments)

    @property
    def types(self) -> dict[str, Any]:
        # Not at declaration: an annotation may name a class that its module defines further down.
        if self._types is None:
            try:
                self._types = typing.get_type_hints(self._function, include_extras=True)
            except Exception:
                self._types = {}
        return self._types


def check_types(stub: Stub, arguments: Mapping[str, Any]) -> None:
    for name, value in arguments.items():
        stub.convert(name, value)
