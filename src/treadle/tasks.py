"""Tasks: functions with a name and options, and the Registry they are declared on.

A task is still its function: calling it runs it here and now. `enqueue` binds the arguments to the signature first, so
that a wrong call fails in the caller and not hours later in a worker; `decode` is the way back, afresh for each run.

Arguments are stored as one JSON object by parameter name: `{"user_id": 42}`. `*rest` is a list under its own name,
`**more` an object under its own. Defaults are not stored: a job runs with the default that its worker's code has.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
import os
import sys
import types
import typing
import uuid
import weakref
from collections import abc
from collections.abc import Callable, Coroutine, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, Self, TypeVar, cast, overload

import msgspec
from msgspec import UNSET, UnsetType

from .context import Call, Context, Door, Handle, Options, amend, timeout_seconds, unique_rule
from .core import names, payload
from .core.backoff import Retry
from .core.duration import Duration
from .core.errors import ConfigError, PayloadError
from .core.job import DEFAULT_TIMEOUT
from .core.unique import Unique

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Function = Callable[..., Any]

ExecutorName = Literal["async", "thread"]
EXECUTORS: Final[tuple[ExecutorName, ...]] = ("async", "thread")


class Task(Generic[P, R_co]):
    """A declared function. Made by `@app.task` or `@registry.task`."""

    def __init__(
        self,
        function: Function,
        home: Registry,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        executor: ExecutorName | None = None,
        queue: str | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | UnsetType | None = UNSET,
        priority: int = 0,
        unique: Unique | str | bool | None = None,
        tags: Iterable[str] = (),
    ) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._home = home
        try:
            self.name = names.check_name("task", name or _name_of(function))
            self.aliases = tuple(names.check_name("task", alias) for alias in aliases)
            self.queue = None if queue is None else names.check_name("queue", queue)
            self.retry = _retry(retry)
            self.timeout: float | None = DEFAULT_TIMEOUT if timeout is UNSET else timeout_seconds(timeout)
            self.options = Options(
                queue=self.queue,
                priority=names.check_priority(priority),
                max_attempts=self.retry.max_attempts,
                timeout=self.timeout,
                tags=names.check_tags(tags),
                unique=unique_rule(unique),
            )
            self.executor: ExecutorName = _executor(function, self.is_async, executor)
        except ValueError as error:
            raise ConfigError(f"task {name or getattr(function, '__name__', function)}: {error}") from None
        self._signature = _Signature(function, self.name)
        self.takes_context = self._signature.takes_context
        self.__name__ = getattr(function, "__name__", self.name)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = getattr(function, "__module__", __name__)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def using(
        self,
        *,
        delay: Duration | None = None,
        at: dt.datetime | None = None,
        queue: str | None = None,
        priority: int | None = None,
        unique: str | Unique | bool | None = None,
        tags: Iterable[str] | None = None,
        reason: str | None = None,
        within: object = None,
        timeout: Duration | UnsetType | None = UNSET,
        max_attempts: int | None = None,
        meta: Mapping[str, object] | None = None,
        id: str | None = None,
    ) -> Self:
        """The same task with other options for what is enqueued through it. Tags are added to the task's own.

        `unique=True` means one live job per task and arguments, `unique=False` none of the task's own rule;
        `timeout=None` switches the deadline off.
        """
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__)
        other.options = amend(
            self.options,
            delay=delay,
            at=at,
            queue=queue,
            priority=priority,
            unique=unique,
            tags=tags,
            reason=reason,
            within=within,
            timeout=timeout,
            max_attempts=max_attempts,
            meta=meta,
            id=id,
        )
        return other

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Ask for a job; returns once it is committed. A wrong call is a TypeError, here."""
        return await self._home.door(self.name).enqueue(self.bind(*args, **kwargs))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """`enqueue` for code that has no event loop."""
        return self._home.door(self.name).enqueue_sync(self.bind(*args, **kwargs))

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """The request for a job, to be enqueued later: by `app.enqueue_many`, `ctx.follow` …"""
        arguments = self._signature.bind(args, kwargs)
        return Call(self.name, payload.encode_arguments(arguments), self.options, self.decode_result)

    def bind_named(self, arguments: Mapping[str, object]) -> Call[R_co]:
        """The same, of arguments as they are stored: by name."""
        self._signature.check(arguments)
        return Call(self.name, payload.encode_arguments(arguments), self.options, self.decode_result)

    def decode(self, args_json: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Stored arguments as `function` wants them, without the context. PayloadError if they do not fit."""
        return self._signature.decode(payload.decode_trusted(args_json))

    def decode_result(self, text: str | None) -> R_co:
        """A stored result as the function's return annotation has it."""
        return cast("R_co", None if text is None else self._signature.convert("return", payload.decode_trusted(text)))

    def _visible(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (Context.without_job(self.name), *args) if self.takes_context else args


class AsyncTask(Task[P, R_co]):
    """A task whose function is `async def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        answer: Coroutine[Any, Any, R_co] = self.function(*self._visible(args), **kwargs)
        return answer


class SyncTask(Task[P, R_co]):
    """A task whose function is a plain `def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        answer: R_co = self.function(*self._visible(args), **kwargs)
        return answer


class Declare:
    """`@app.task(…)`, waiting for its function."""

    def __init__(self, home: Registry, options: dict[str, Any]) -> None:
        self._home = home
        self._options = options

    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context[Any], P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context[Any], P], R], /) -> SyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Function, /) -> Any:
        return self._home.declare(function, self._options)


class Registry:
    """A set of declared tasks. A library declares on one of its own, and an app includes it."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task[..., Any]] = {}  # by name
        self.by_name: dict[str, Task[..., Any]] = {}  # and by alias
        # Weak: a library's registry lives as long as its module, and must not keep every app that ever included it.
        self._parents: weakref.WeakSet[Registry] = weakref.WeakSet()

    @overload
    def task(  # type: ignore[overload-overlap]
        self, function: Callable[Concatenate[Context[Any], P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context[Any], P], R], /) -> SyncTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]
    @overload
    def task(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | UnsetType | None = UNSET,
        priority: int = 0,
        executor: ExecutorName | None = None,
        unique: Unique | str | bool | None = None,
        tags: Iterable[str] = (),
        aliases: Iterable[str] = (),
    ) -> Declare: ...
    def task(self, function: Function | None = None, **options: Any) -> Any:
        """Declare a function as a task.

        Its name is `module.function` unless `name` is given; in the module that was started (`__main__`) the name it
        has when it is imported, so that a script and its worker agree. `retry` is a Retry or a number of attempts,
        `timeout` is per attempt (1 h unless said; None switches it off). `async def` runs on the loop, `def` in a
        thread. A first parameter that is called `ctx`, or annotated `Context`, is given by the worker.
        """
        return Declare(self, options) if function is None else self.declare(function, options)

    def declare(self, function: Function, options: dict[str, Any]) -> Task[..., Any]:
        if not callable(function) or inspect.isclass(function):
            raise ConfigError(f"@task needs a function, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"task {function.__name__}: a generator cannot be a task; return a value instead")
        task: Task[..., Any]
        if inspect.iscoroutinefunction(function):
            task = AsyncTask[..., Any](function, self, **options)
        else:
            task = SyncTask[..., Any](function, self, **options)
        homes = self._upwards()
        for home in homes:
            home._check_free(task)
        for home in homes:
            home._add(task)
        return task

    def include(self, registry: Registry) -> None:
        """Take over all tasks of another registry, those declared later too."""
        homes = self._upwards()
        if registry in homes:
            raise ConfigError("a registry cannot include itself")
        for home in homes:
            for task in registry.tasks.values():
                if home.tasks.get(task.name) is not task:
                    home._check_free(task)
        for home in homes:
            for task in registry.tasks.values():
                home._add(task)
        registry._parents.add(self)

    def find(self, name: str) -> Task[..., Any] | None:
        """The task of this name, or that once had it."""
        return self.by_name.get(name)

    def door(self, task: str) -> Door:
        """Where a task of this registry is enqueued: the app that includes it."""
        doors = self._doors()
        if len(doors) > 1:
            doors = [door for door in doors if door.is_open]
        if len(doors) == 1:
            return doors[0]
        if self._doors():
            raise ConfigError(f"{task} belongs to several apps: say which by app.enqueue(task.bind(…))")
        raise ConfigError(f"{task} is declared on a Registry that no app includes: app.include(registry)")

    def _doors(self) -> list[Door]:
        return [door for parent in list(self._parents) for door in parent._doors()]

    def _upwards(self) -> list[Registry]:
        found: list[Registry] = [self]
        for parent in list(self._parents):
            found += [home for home in parent._upwards() if home not in found]
        return found

    def _check_free(self, task: Task[..., Any]) -> None:
        for name in (task.name, *task.aliases):
            other = self.by_name.get(name)
            if other is not None and not (_is_interactive(task.function) and _is_interactive(other.function)):
                raise ConfigError(
                    f"task name {name} is taken by {other.__module__}.{other.__qualname__}: give one of them a name="
                )

    def _add(self, task: Task[..., Any]) -> None:
        self.tasks[task.name] = task
        for name in (task.name, *task.aliases):
            self.by_name[name] = task


def _name_of(function: Function) -> str:
    module, own = function.__module__, getattr(function, "__name__", None)
    if own is None:
        raise ValueError(f"a {type(function).__name__} has no name of its own; give it a name=")
    if module == "__main__":
        # The worker imports the file that is a script here, so the task must be called as it is there.
        main = sys.modules["__main__"]
        spec, path = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name if spec is not None else os.path.splitext(os.path.basename(path))[0] if path else "main"
    name = f"{module}.{own}"
    try:
        return names.check_name("task", name)
    except ValueError as error:
        raise ValueError(f"{error}; give it a name=") from None


def _is_interactive(function: Function) -> bool:
    """Typed at a prompt or in a notebook, where declaring again is how one corrects a task."""
    return function.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")


def _retry(retry: Retry | int | None) -> Retry:
    if retry is None:
        return Retry()
    if isinstance(retry, Retry):
        return retry
    if type(retry) is int:
        return Retry(max_attempts=retry)
    raise ValueError(f"retry must be a Retry or a number of attempts, not {type(retry).__name__}")


def _executor(function: Function, is_async: bool, wanted: str | None) -> ExecutorName:
    natural: ExecutorName = "async" if is_async else "thread"
    if wanted is None or wanted == natural:
        return natural
    if wanted not in EXECUTORS:
        raise ValueError(f"there is no executor {wanted!r}; this version has {' and '.join(EXECUTORS)}")
    if is_async:
        raise ValueError('an async def runs on the loop: leave out executor="thread", or make it a plain def')
    raise ValueError('a plain def would block the loop: leave out executor="async", or make it an async def')


# ---------------------------------------------------------------------------------------------------------------------
# Signatures: call → stored arguments → call


class _Signature:
    """A function's parameters as callers see them, without the context."""

    def __init__(self, function: Function, task: str) -> None:
        self._function = function
        self._task = task
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

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. TypeError if the function could not be called so."""
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
            raise TypeError(f"{self._task}: {error}") from None

    def check(self, arguments: Mapping[str, object]) -> None:
        """TypeError unless arguments by name fit."""
        if unknown := sorted(arguments.keys() - self._names):
            raise TypeError(f"{self._task} has no parameter {unknown[0]!r}")
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
            converters: dict[str, Callable[[Any], Any]] = {}
            for parameter in self._signature.parameters.values():
                if (one := _converter(_resolved(self._function, parameter.annotation))) is not None:
                    converters[parameter.name] = _each(parameter, one)
            returned = inspect.signature(self._function).return_annotation
            if (one := _converter(_resolved(self._function, returned))) is not None:
                converters["return"] = one
            self._converters = converters
        return self._converters


def _is_context(function: Function, annotation: Any) -> bool:
    if isinstance(annotation, str):
        resolved = _resolved(function, annotation)
        if resolved is inspect.Parameter.empty:  # imported for type checkers only: go by the words
            return annotation.partition("[")[0].rpartition(".")[2].strip("'\" ") == Context.__name__
        annotation = resolved
    kind = typing.get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, Context)


def _resolved(function: Function, annotation: Any) -> Any:
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


def _converter(annotation: Any) -> Callable[[Any], Any] | None:
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
