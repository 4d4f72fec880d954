"""A task's signature: from a call to stored arguments, and back.

Arguments are bound by name where the call is made, encoded, and checked by the annotations; each attempt decodes them
afresh and converts them to the annotated types.

What is checked is the JSON that a worker will read, by msgspec, strictly: a datetime for `x: str` is text and fits, "1"
for `x: int` does not. A value of a plain type (`type(value) is int` for `x: int`) needs no look at its JSON, and most
values are such: so the check of a call costs a fraction of its encoding. An annotation that says nothing that could be
checked (Any, a class that msgspec does not know, a name that cannot be found) lets everything pass, and so does a
parameter's own default.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import logging
import re
import types
import typing
import uuid
from collections import abc
from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, Literal, TypeVar, cast

import msgspec

from ..context.context import Context
from ..core import payload
from ..core.errors import ConfigError, PayloadError

Function = Callable[..., Any]
Converter = Callable[[Any], Any]

log = logging.getLogger("treadle.tasks")


class _Absent:
    """The type of an argument that is not there: it is in every set of types that need no further look."""


_ABSENT: Final = _Absent()
_NEVER: Final[frozenset[type]] = frozenset({_Absent})


class _Check(typing.NamedTuple):
    """How the argument of one parameter is checked, and made of JSON."""

    name: str
    given: frozenset[type]  # a value of these types, given by a caller, fits
    read: frozenset[type]  # a value of these types, read of JSON, fits as it is
    convert: Converter


class _Plan(typing.NamedTuple):
    """What the annotations say."""

    given: tuple[_Check, ...]  # checked where a job is enqueued
    read: tuple[_Check, ...]  # and where it is read
    open: frozenset[str]  # parameters that give back plain JSON, whatever was passed
    returned: Converter | None


class Signature:
    """A function's parameters as callers see them, without the context."""

    def __init__(self, function: Function, task: str, checks: Callable[[], bool] = lambda: True) -> None:
        """`checks` says whether arguments are checked; it is asked when the first of them come."""
        self._function = function
        self._task = task
        self._checks = checks
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
        self._plan: _Plan | None = None
        # Where every parameter says a type: what needs no further look. Empty: look closer.
        self._quick: tuple[tuple[str, frozenset[type]], ...] = ()
        self._is_looked_for_again = False
        self._has_warned = False

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
        from ..core.hints import unknown_option

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
        for check in (self._plan or self._planned()).read:
            value = found.get(check.name, _ABSENT)
            if type(value) not in check.read:
                found[check.name] = self._converted(check, value)
        if self._is_simple:
            return (), found
        bound = inspect.BoundArguments(self._signature, found)
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def encode(self, arguments: Mapping[str, object]) -> str:
        """Arguments by name as they are stored. PayloadError, with the argument's name and never its value, if they
        cannot be, or do not fit their annotations."""
        for name, kinds in self._quick:
            if type(arguments.get(name, _ABSENT)) not in kinds:
                break
        else:
            if self._quick:
                return payload.encode_arguments(arguments)
        plan = self._plan or self._planned()
        text = payload.encode_arguments(arguments, on_rich=None if self._has_warned else self._warn)
        unsure = [check for check in plan.given if type(arguments.get(check.name, _ABSENT)) not in check.given]
        if unsure:
            stored = payload.decode_trusted(text)
            for check in unsure:
                self._converted(check, stored[check.name])
        return text

    def convert_result(self, value: Any) -> Any:
        """A stored result as the return annotation wants it."""
        converter = (self._plan or self._planned()).returned
        if converter is None:
            return value
        try:
            return converter(value)
        except Exception as error:
            raise _refusal("result", self._task, error) from None

    def forget(self) -> None:
        """Read the annotations anew, and ask again whether to check: the task was included elsewhere."""
        self._plan = None
        self._quick = ()

    def _converted(self, check: _Check, value: Any) -> Any:
        try:
            return check.convert(value)
        except Exception as error:  # msgspec's, or of the user's own class
            default = self._signature.parameters[check.name].default
            if default is not inspect.Parameter.empty and _is_stored_as(default, value):
                return default
            raise _refusal(check.name, self._task, error) from None

    def _warn(self, name: str, kind: str) -> None:
        """A caller gave a value that JSON has no word for."""
        if name not in (self._plan or self._planned()).open or self._has_warned:
            return
        self._has_warned = True
        log.warning(
            "%s: argument %r holds a %s, and its runs will get plain JSON: annotate the parameter, such as %s: %s, to "
            "have it converted back",
            *(self._task, name, kind, name, kind),
        )

    def _planned(self) -> _Plan:
        # Not at declaration: an annotation may name a class that its module defines further down. A call may be bound
        # there all the same (@cron with args), so what was not found is looked for once more.
        annotations, returned = self.annotations()
        checks = self._checks()
        read = tuple(
            _Check(name, *_plain_types(kind, self._signature.parameters[name].default), converter)
            for name, kind in annotations.items()
            if (converter := converter_of(kind, checked=checks)) is not None
        )
        converted = {check.name for check in read}
        is_open = frozenset(name for name, kind in annotations.items() if _is_open(kind, name in converted))
        plan = _Plan(read if checks else (), read, is_open, converter_of(returned, checked=False))
        if self._is_looked_for_again or inspect.Parameter.empty not in annotations.values():
            self._plan = plan
            self._quick = () if plan.open else tuple((check.name, check.given) for check in plan.given)
        self._is_looked_for_again = True
        return plan

    def annotations(self) -> tuple[dict[str, Any], Any]:
        """The types of the parameters' JSON by name, and the type of the result; `Parameter.empty` if unknown."""
        found: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            kind = resolved(self._function, parameter.annotation)
            if kind is not parameter.empty and parameter.kind is parameter.VAR_POSITIONAL:
                kind = list[kind]  # type: ignore[valid-type]
            elif kind is not parameter.empty and parameter.kind is parameter.VAR_KEYWORD:
                kind = dict[str, kind]  # type: ignore[valid-type]
            found[parameter.name] = kind
        return found, resolved(self._function, inspect.signature(self._function).return_annotation)


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


_SCALARS: Final = frozenset({type(None), bool, int, float, str})
_ANYTHING: Final = frozenset({Any, object, list, dict, inspect.Parameter.empty})  # says nothing of what is in it
_PLAIN: Final = _SCALARS | _ANYTHING
_PLAIN_ORIGINS: Final = frozenset(
    {list, dict, abc.Sequence, abc.Mapping, abc.Collection, abc.MutableSequence, abc.MutableMapping}
)
_CONVERTED: Final = (
    *(dt.date, dt.time, dt.timedelta, uuid.UUID, Decimal, Enum, bytes, PurePath, msgspec.Struct),
    *(tuple, set, frozenset),
)
_ALIASES: Final = getattr(typing, "TypeAliasType", ())  # `type Ids = list[int]`, from Python 3.12 on


def converter_of(annotation: Any, *, checked: bool = True) -> Converter | None:
    """How to make of JSON what the annotation says; None if nobody can tell. If it is not checked, also if JSON is what
    the annotation says."""
    if typing.get_origin(annotation) is abc.Iterable:
        annotation = cast("Any", abc.Sequence)[typing.get_args(annotation)]
    try:
        leaves = set(_leaves(annotation, 0))
        if leaves <= _PLAIN and not checked:
            return None
        if _says_nothing(annotation) or not all(leaf in _PLAIN or _is_convertible(leaf) for leaf in leaves):
            return None
        msgspec.json.Decoder(annotation, dec_hook=_made)  # refuses what msgspec cannot tell apart, such as A | B
    except Exception:  # a class of the user's whose own annotations cannot be found, among others
        return None
    return lambda value: msgspec.convert(value, annotation, dec_hook=_made, str_keys=True)


def _says_nothing(annotation: Any) -> bool:
    return annotation in (Any, object, inspect.Parameter.empty)


def _is_open(annotation: Any, is_converted: bool) -> bool:
    """Whether a datetime that is passed comes back as text without that the annotation says so."""
    try:
        leaves = set(_leaves(annotation, 0))
    except Exception:
        return True
    return bool(leaves & _ANYTHING) or not (is_converted or leaves <= _PLAIN)


def _plain_types(annotation: Any, default: object) -> tuple[frozenset[type], frozenset[type]]:
    """The types whose values fit without a look at their JSON: given by a caller, and read."""
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = typing.get_args(annotation) if is_union else (annotation,)
    if not all(any(member is scalar for scalar in _SCALARS) for member in members):  # some cannot be hashed
        return _NEVER, _NEVER
    none: frozenset[type] = frozenset({type(None)} if default is None else ())
    read = frozenset[type](members) | _NEVER | none
    return read | {int} if float in read else read, read


def _leaves(annotation: Any, depth: int) -> typing.Iterator[Any]:
    """The types that an annotation is made of; of something that is not understood, the thing itself."""
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if depth > 20 or (isinstance(annotation, TypeVar) and not (annotation.__bound__ or annotation.__constraints__)):
        yield Any
    elif origin is Literal:
        yield from map(type, args)
    elif isinstance(annotation, _ALIASES):
        yield from _leaves(cast("Any", annotation).__value__, depth + 1)
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


class _Unfit(ValueError):
    """What `_made` says of a value: words of ours, without the value."""


def _made(kind: Any, value: Any) -> Any:
    """Values of types that msgspec does not know: paths, and pydantic's models."""
    if inspect.isclass(kind) and issubclass(kind, PurePath):
        if not isinstance(value, str):
            raise _Unfit(f"expected {kind.__name__}, got {type(value).__name__}")
        return kind(value)
    if (validate := getattr(kind, "model_validate", None)) is None:
        raise _Unfit(f"{kind} cannot be made of JSON")
    try:
        return validate(value)
    except ValueError:
        raise _Unfit(f"not a {kind.__name__}") from None  # pydantic's own message holds the value


_PLACE: Final = re.compile(r" - at `(?:key` in `)?\$(.*)`$")


def _refusal(name: str, task: str, error: Exception) -> PayloadError:
    """What is wrong with a value that does not fit, without the value."""
    said, cause = str(error), error.__cause__ or error
    path = name + (place[1] if (place := _PLACE.search(said)) else "")
    if not isinstance(cause, _Unfit | msgspec.ValidationError):  # code of the user's own class: its words may hold it
        words = f"its type refuses it ({type(cause).__name__})"
    elif said.startswith(("Invalid enum value", "Invalid value")):
        words = "not one of the values that it may have"
    else:
        words = said[:1].lower() + _PLACE.sub("", said)[1:].replace("`", "")
    return PayloadError(f"does not fit {task}: {words}", path)


def _is_stored_as(default: object, value: Any) -> bool:
    """Whether JSON is what this default would be stored as: a parameter's own default passes."""
    try:
        return payload.encode(default) == payload.encode(value)
    except PayloadError:
        return False
