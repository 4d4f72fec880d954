"""Tasks: functions with a name and options, and the Registry they are declared on.

A task is still its function: calling it runs it here and now. `enqueue` binds the arguments to the signature first, so
that a wrong call fails in the caller and not hours later in a worker; `decode` is the way back, afresh for each run.

Arguments are stored as one JSON object by parameter name: `{"user_id": 42}`. `*rest` is a list under its own name,
`**more` an object under its own. Defaults are not stored: a job runs with the default that its worker's code has.
"""

from __future__ import annotations

import datetime as dt
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Concatenate, Final, Generic, Literal, ParamSpec, Self, TypeVar, cast, overload

from msgspec import UNSET, UnsetType

from .context import Call, Context, Door, Handle, Options, amend, timeout_seconds, unique_rule
from .core import catalog, names, payload
from .core.backoff import Retry
from .core.duration import Duration
from .core.errors import ConfigError
from .core.job import DEFAULT_TIMEOUT
from .core.partition import Partitions
from .core.unique import Unique
from .signature import Function, Signature
from .timetable import Timetable

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

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
        queue: str | Partitions | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | UnsetType | None = UNSET,
        priority: int = 0,
        unique: Unique | str | bool | None = None,
        tags: Iterable[str] = (),
        description: str | None = None,
        owner: str = "",
        docs: str = "",
    ) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._home = home
        try:
            self.name = names.check_name("task", name or _name_of(function))
            self.aliases = tuple(names.check_name("task", alias) for alias in aliases)
            partitions = queue if isinstance(queue, Partitions) else None
            plain = queue.name if isinstance(queue, Partitions) else queue
            self.queue = None if plain is None else names.check_name("queue", plain)
            self.retry = _retry(retry)
            self.timeout: float | None = DEFAULT_TIMEOUT if timeout is UNSET else timeout_seconds(timeout)
            self.options = Options(
                queue=self.queue,
                partitions=partitions,
                priority=names.check_priority(priority),
                max_attempts=self.retry.max_attempts,
                timeout=self.timeout,
                tags=names.check_tags(tags),
                unique=unique_rule(unique),
            )
            said = catalog.first_line(function.__doc__) if description is None else description
            self.about = catalog.checked(description=said, owner=owner, docs=docs, tags=self.options.tags)
            self.executor: ExecutorName = _executor(function, self.is_async, executor)
        except ValueError as error:
            raise ConfigError(f"task {name or getattr(function, '__name__', function)}: {error}") from None
        self._signature = Signature(function, self.name)
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
        queue: str | Partitions | None = None,
        ordering_key: str | None = None,
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
        `timeout=None` switches the deadline off. `ordering_key` picks one queue of the task's Partitions.
        """
        other = self.__class__.__new__(self.__class__)
        other.__dict__.update(self.__dict__)
        other.options = amend(
            self.options,
            delay=delay,
            at=at,
            queue=queue,
            ordering_key=ordering_key,
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


class Registry(Timetable):
    """A set of declared tasks. A library declares on one of its own, and an app includes it."""

    def __init__(self) -> None:
        super().__init__()
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
        queue: str | Partitions | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | UnsetType | None = UNSET,
        priority: int = 0,
        executor: ExecutorName | None = None,
        unique: Unique | str | bool | None = None,
        tags: Iterable[str] = (),
        aliases: Iterable[str] = (),
        description: str | None = None,
        owner: str = "",
        docs: str = "",
    ) -> Declare: ...
    def task(self, function: Function | None = None, **options: Any) -> Any:
        """Declare a function as a task.

        Its name is `module.function` unless `name` is given; in the module that was started (`__main__`) the name it
        has when it is imported, so that a script and its worker agree. `retry` is a Retry or a number of attempts,
        `timeout` is per attempt (1 h unless said; None switches it off). `async def` runs on the loop, `def` in a
        thread. A first parameter that is called `ctx`, or annotated `Context`, is given by the worker. `description`
        (the docstring's first line, unless said), `owner` and `docs` (a link) are shown to whoever looks after it.
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
            for entry in registry.timetable.values():
                home.check_time(entry)
        for home in homes:
            for task in registry.tasks.values():
                home._add(task)
            home.take_over(registry.timetable.values())
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

    def _homes(self) -> list[Timetable]:
        return [*self._upwards()]

    def _knows(self, task: Task[..., Any]) -> bool:
        return self.tasks.get(task.name) is task

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
        stem = os.path.splitext(os.path.basename(path or ""))[0]
        # Code from a pipe or a prompt has no file that a worker could import.
        module = spec.name if spec is not None else stem if stem and not stem.startswith("<") else "main"
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
