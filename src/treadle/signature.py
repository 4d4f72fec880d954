"""A task's signature: from a call to stored arguments, and back.

Arguments are bound by name where the call is made; each attempt decodes them afresh and converts them to the annotated
types, as far as msgspec can.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import types
import typing
import uuid
from collections import abc
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal, TypeVar, cast

import msgspec

from .context import Context
from .core.errors import ConfigError, PayloadError

Function = Callable[..., Any]


class Signature:
    """A function's parameters as callers see them, without the context."""

    def __init__(self, function: Function, task: str) -> None:
        self._function = function
        self._task = task
        self.takes_context = False
        parameters = self.visible(function, task)
        self._signature = inspect.Signature(parameters)
        kinds = {parameter.kind for parameter in parameters}
        ordinary = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        self._is_simple = kinds <= ordinary
        self._positional = tuple(p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._names = frozenset(p.name for p in parameters)
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        self._required = frozenset(p.name for p in parameters if p.default is p.empty and p.kind not in variable)
        # How many arguments are enough if all are positional; more than there are places if that cannot be.
        self._enough = len(self._required) if self._required <= {*self._positional} else len(parameters) + 1
        self._converters: dict[str, Callable[[Any], Any]] | None = None

    def visible(self, function: Function, task: str) -> list[inspect.Parameter]:
        """The parameters that a caller fills."""
        parameters = list(inspect.signature(function).parameters.values())
        first = parameters[0] if parameters else None
        self.takes_context = first is not None and (first.name == "ctx" or _is_context(function, first.annotation))
        if first is not None and self.takes_context:
            if first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
                raise ConfigError(f"task {task}: {first.name} must be an ordinary parameter, before any * or **")
            del parameters[0]
        for parameter in parameters:
            if _is_context(function, parameter.annotation):
                raise ConfigError(f"task {task}: the context must be the first parameter, not {parameter.name}")
        return parameters

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. TypeError if the function could not be called so."""
        if not args and self._is_simple and kwargs.keys() == self._names:
            return kwargs
        if self._is_simple and len(args) <= len(self._positional):
            bound = dict(zip(self._positional, args))  # noqa: B905 (the rest have defaults)
            if not kwargs and len(args) >= self._enough:
                return bound
            bound |= kwargs
            given = bound.keys()
            if len(bound) == len(args) + len(kwargs) and given >= self._required and given <= self._names:
                return bound
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            if self._is_simple and (unknown := kwargs.keys() - self._names):
                raise self._no_parameter(min(unknown)) from None
            raise TypeError(f"{self._task}: {error}") from None

    def _no_parameter(self, name: str) -> TypeError:
        from .core.hints import unknown_option

        return TypeError(unknown_option(self._task, name, self._names, at="enqueue"))

    def check(self, arguments: Mapping[str, object]) -> None:
        """TypeError unless arguments by name fit."""
        if unknown := sorted(arguments.keys() - self._names):
            raise self._no_parameter(unknown[0])
        if missing := sorted(self._required - arguments.keys()):
            raise TypeError(f"{self._task}: missing a required argument: {missing[0]!r}")
        for parameter in self._signature.parameters.values():
            value = arguments.get(parameter.name)
            if parameter.name not in arguments:
                continue
            if parameter.kind is parameter.VAR_POSITIONAL and not isinstance(value, list | tuple):
                raise TypeError(f"{self._task}: *{parameter.name} must be a list")
            if parameter.kind is parameter.VAR_KEYWORD and not isinstance(value, Mapping):
                raise TypeError(f"{self._task}: **{parameter.name} must be an object")

    def decode(self, arguments: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if not isinstance(arguments, dict):
            raise PayloadError(f"the arguments of {self._task} must be a JSON object")
        found = cast("dict[str, Any]", arguments)
        if not (self._is_simple and self._required <= found.keys() <= self._names):
            try:
                self.check(found)
            except TypeError as error:
                raise PayloadError(str(error)) from None
        for name in self._converted():
            if name in found:
                found[name] = self.convert(name, found[name])
        if self._is_simple:
            return (), found
        bound = inspect.BoundArguments(self._signature, found)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def convert(self, name: str, value: Any) -> Any:
        """The value of one parameter, or of "return", as its annotation wants it."""
        converter = self._converted().get(name)
        if converter is None:
            return value
        try:
            return converter(value)
        except msgspec.ValidationError as error:
            # An enum's message holds the value, which is not ours to tell.
            words = "not a value of its enum" if str(error).startswith("Invalid enum") else str(error)
            raise PayloadError(words, name) from None

    def _converted(self) -> dict[str, Callable[[Any], Any]]:
        # Not at declaration: an annotation may name a class that its module defines further down.
        if self._converters is None:
            self._converters = self.converters()
        return self._converters

    def converters(self) -> dict[str, Callable[[Any], Any]]:
        """How the parameters whose annotations ask for it, and "return", are made of JSON."""
        converters: dict[str, Callable[[Any], Any]] = {}
        for parameter in self._signature.parameters.values():
            if (one := converter_of(resolved(self._function, parameter.annotation))) is not None:
                converters[parameter.name] = _each(parameter, one)
        returned = inspect.signature(self._function).return_annotation
        if (one := converter_of(resolved(self._function, returned))) is not None:
            converters["return"] = one
        return converters


def _is_context(function: Function, annotation: Any) -> bool:
    if isinstance(annotation, str):
        found = resolved(function, annotation)
        if found is inspect.Parameter.empty:  # imported for type checkers only: go by the words
            return annotation.partition("[")[0].rpartition(".")[2].strip("'\" ") == Context.__name__
        annotation = found
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, Context)


def resolved(function: Function, annotation: Any) -> Any:
    """The annotation as a type; `Parameter.empty` if it names something that cannot be found."""
    bare = inspect.unwrap(function)
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, getattr(bare, "__globals__", {}), include_extras=True)["it"]
    except Exception:
        return inspect.Parameter.empty


def _each(parameter: inspect.Parameter, one: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`*rest: T` is a list of T, `**more: T` an object whose values are T."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return lambda values: [one(value) for value in values]
    if parameter.kind is parameter.VAR_KEYWORD:
        return lambda values: {name: one(value) for name, value in values.items()}
    return one


_PLAIN: Final = frozenset({Any, object, None, type(None), bool, int, float, str, list, dict, inspect.Parameter.empty})
_PLAIN_ORIGINS: Final = frozenset(
    {list, dict, abc.Sequence, abc.Mapping, abc.Iterable, abc.Collection, abc.MutableSequence, abc.MutableMapping}
)
_CONVERTED: Final = (dt.date, dt.time, uuid.UUID, Decimal, Enum, msgspec.Struct, tuple, set, frozenset)


def converter_of(annotation: Any) -> Callable[[Any], Any] | None:
    """How to make of JSON what the annotation says; None if JSON is what it says, or if nobody can tell."""
    leaves = list(_leaves(annotation, 0))
    if all(leaf in _PLAIN for leaf in leaves) or not all(leaf in _PLAIN or _is_convertible(leaf) for leaf in leaves):
        return None
    try:
        msgspec.json.Decoder(annotation, dec_hook=_validated)  # refuses what msgspec cannot tell apart, such as A | B
    except TypeError:
        return None
    return lambda value: msgspec.convert(value, annotation, dec_hook=_validated)


def _leaves(annotation: Any, depth: int) -> typing.Iterator[Any]:
    """The types that an annotation is made of; of something that is not understood, the thing itself."""
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal or isinstance(annotation, TypeVar) or depth > 20:
        yield Any
    elif origin is typing.Annotated:
        yield from _leaves(args[0], depth + 1)
    elif origin in _PLAIN_ORIGINS or origin in (typing.Union, types.UnionType, tuple, set, frozenset):
        if origin in (tuple, set, frozenset):
            yield origin
        for arg in args:
            if arg is not Ellipsis:
                yield from _leaves(arg, depth + 1)
    elif typing.is_typeddict(annotation):
        for field in typing.get_type_hints(annotation).values():
            yield from _leaves(field, depth + 1)
    elif annotation in _PLAIN_ORIGINS:
        yield Any
    else:
        yield origin or annotation


def _is_convertible(kind: Any) -> bool:
    if not inspect.isclass(kind):
        return False
    return issubclass(kind, _CONVERTED) or dataclasses.is_dataclass(kind) or hasattr(kind, "model_validate")


def _validated(kind: Any, value: Any) -> Any:
    """Pydantic's models, which msgspec does not know."""
    if not hasattr(kind, "model_validate"):
        raise NotImplementedError
    try:
        return kind.model_validate(value)
    except ValueError:
        raise ValueError(f"does not fit {kind.__name__}") from None  # pydantic's own message holds the value
