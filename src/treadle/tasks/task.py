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
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    Never,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

from msgspec import UNSET, UnsetType

from .. import middleware as wrapping
from ..context.context import Call, Context, Door, Handle, Options, amend, timeout_seconds, unique_rule
from ..core import catalog, hints, names, payload
from ..core.backoff import Retry
from ..core.duration import Duration, seconds
from ..core.errors import ConfigError
from ..core.job import DEFAULT_TIMEOUT, Job
from ..core.partition import Partitions
from ..core.size import Size, size
from ..core.unique import Unique
from ..middleware import Middleware, MiddlewareT
from .batch import BatchContext, BatchSignature
from .external import Outside, TaskOptions
from .schedules import Timetable
from .signature import Function, Signature

if TYPE_CHECKING:
    from ..core.view import JobView
    from .external.command import CommandOptions
    from .external.http import HttpOptions
    from .external.pool import PoolOptions, PoolSpec

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

ExecutorName = Literal["async", "thread", "process"]
EXECUTORS: Final[tuple[ExecutorName, ...]] = ("async", "thread", "process")
End = Literal["succeeded", "failed", "cancelled", "retried", "waiting", "rescued"]
ENDS: Final[tuple[End, ...]] = get_args(End)
# Why a Change was made → the end that it is; a release is none, nor is a snooze.
FOLLOWED: Final[Mapping[str, str]] = {end: end for end in ENDS if end != "waiting"} | {"waits": "waiting"}
FollowUp = Callable[["JobView"], Call[Any] | Iterable[Call[Any]] | None]
FollowUpT = TypeVar("FollowUpT", bound=FollowUp)
WITHIN: Final = 1.0  # how long a batch task gathers, unless it says
LARGEST_BATCH: Final = 10_000
# What workers and clients ask of a task, and its users do not: no completion shows it.
_NOT_SHOWN: Final = frozenset(
    {
        "about",
        "checks_arguments",
        "declared_at",
        "decode",
        "decode_result",
        "followed",
        "has_retry",
        "included",
        "is_at_home",
        "layers",
        "middleware",
        "options",
        "takes_context",
    }
)
HERE: Final = frozenset({"async", "thread"})  # executors whose calls run in the worker's own process


class _WordOfAnother:
    """A method of another system, such as Celery's `delay`: no attribute of a task, but its error says what to write.

    Not by `__getattr__`: a class that has one pays for every attribute that is there (0.3 µs in each `bind`)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, task: Task[..., Any] | None, owner: object = None) -> Never:
        what = "Task" if task is None else f"task {task.name}"
        raise AttributeError(hints.no_attribute("task", what, self._name), name=self._name, obj=task)


class Task(Generic[P, R_co]):
    """A declared function. Made by `@app.task` or `@registry.task`.

    >>> send.using(delay="5m", priority=10).enqueue_sync(1).outcome
    'inserted'
    >>> send.bind(2)
    <Call of send>
    """

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
        memory: Size | None = None,
        cpu: Duration | None = None,
        middleware: Iterable[Middleware] = (),
        check_arguments: bool | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            what = f"task {name or getattr(function, '__name__', function)}"
            known = ("batch", "within", *vars(Task)["__init__"].__kwdefaults__)
            raise TypeError(hints.unknown_option(what, min(unknown), known, at="@task"))
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._home = home
        try:
            _check_no_method(function)
            self.name = names.check_name("task", name or _name_of(function))
            self.aliases = tuple(names.check_name("task", alias) for alias in aliases)
            partitions = queue if isinstance(queue, Partitions) else None
            plain = queue.name if isinstance(queue, Partitions) else queue
            self.queue = None if plain is None else names.check_name("queue", plain)
            said = home.default_retry if retry is None else checked_retry(retry)
            self.has_retry = said is not None  # if not, the app that includes its registry may say one
            self.retry = said or Retry()
            self.timeout: float | None = DEFAULT_TIMEOUT if timeout is UNSET else timeout_seconds(timeout)
            self.options = Options(
                queue=self.queue,
                partitions=partitions,
                priority=names.check_priority(priority),
                max_attempts=None if said is None else said.max_attempts,
                by_default=said is None,
                timeout=self.timeout,
                tags=names.check_tags(tags),
                unique=unique_rule(unique),
            )
            words = catalog.first_line(function.__doc__) if description is None else description
            self.about = catalog.checked(description=words, owner=owner, docs=docs, tags=self.options.tags)
            self.executor: str = _executor(function, self.is_async, executor)
            self.memory, self.cpu = _bounds(self.executor, memory, cpu)
        except ValueError as error:
            raise ConfigError(f"task {name or getattr(function, '__name__', function)}: {error}") from None
        self.middleware = tuple(wrapping.checked(each, in_thread=self.executor == "thread") for each in middleware)
        self.followed: dict[str, list[FollowUp]] = {}  # in which end → what is enqueued with it
        self._check_arguments = check_arguments
        self._signature = Signature(function, self.name, self.checks_arguments)
        self.takes_context = self._signature.takes_context
        self.__name__ = getattr(function, "__name__", self.name)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = getattr(function, "__module__", __name__)
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __dir__(self) -> list[str]:
        words = hints.ATTRIBUTES["task"].keys()
        return [name for name in super().__dir__() if name not in _NOT_SHOWN and name not in words]

    def follow_up(self, end: End) -> Callable[[FollowUpT], FollowUpT]:
        """Declare what is enqueued when a job of this task ends so, in the commit that ends it:

            @charge.follow_up("failed")
            def refund(job: JobView) -> Call[None] | None:
                return give_back.bind(job.args["order_id"])

        The function gets the job as it is then, and answers with a bound call, several, or None. One that raises is
        logged, and the job ends without it. When a dead worker's job is rescued, it needs a worker that has the task.
        """
        if end not in ENDS:
            near = names.suggest(end, ENDS)
            remedy = f"did you mean {near!r}?" if near else f"there are {', '.join(ENDS)}"
            raise ConfigError(f"there is no end {end!r} to follow; {remedy}")

        def add(builder: FollowUpT) -> FollowUpT:
            self.followed.setdefault(end, []).append(builder)
            return builder

        return add

    @property
    def declared_at(self) -> str:
        """The file and line of its function, as an error names them: those of the first decorator."""
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return "a place unknown" if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    def is_at_home(self, registry: Registry) -> bool:
        """Whether it was declared there, and not on a registry that is included."""
        return self._home is registry

    def checks_arguments(self) -> bool:
        """Whether its arguments are checked by their annotations: as it says itself, else as the app says."""
        return self._home.checks_arguments if self._check_arguments is None else self._check_arguments

    def included(self) -> None:
        """A registry has taken it over, which may not want its arguments checked."""
        self._signature.forget()

    @property
    def layers(self) -> tuple[Middleware, ...]:
        """The middleware that it brings along: its own, and that of the registry on which it was declared."""
        return (*self._home.layers, *self.middleware)

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
        **unknown: Never,
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
            **unknown,
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
        return Call(self.name, self._signature.encode(arguments), self.options, self.decode_result)

    def bind_named(self, arguments: Mapping[str, object]) -> Call[R_co]:
        """The same, of arguments as they are stored: by name."""
        self._signature.check(arguments)
        return Call(self.name, self._signature.encode(arguments), self.options, self.decode_result)

    def handle(self, id: str) -> Handle[R_co]:
        """A handle for a job of this task, made of its id: to wait for it, cancel it, explain it. Nothing is read until
        then; `result()` of a job of another task is a TypeError."""
        return Handle(id, None, self._home.door(self.name), chosen_by=self._result_decoder)

    def _result_decoder(self, job: Job) -> Callable[[str | None], R_co]:
        if job.task not in (self.name, *self.aliases):
            raise TypeError(f"job {job.id} is of task {job.task}, not of {self.name}")
        return self.decode_result

    def decode(self, args_json: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Stored arguments as `function` wants them, without the context. PayloadError if they do not fit."""
        return self._signature.decode(payload.decode_trusted(args_json))

    def decode_result(self, text: str | None) -> R_co:
        """A stored result as the function's return annotation has it."""
        return cast("R_co", None if text is None else self._signature.convert_result(payload.decode_trusted(text)))

    def _visible(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (Context.without_job(self.name), *args) if self.takes_context else args


for _name in hints.ATTRIBUTES["task"]:  # not in the class: a type checker must go on to report them
    setattr(Task, _name, _WordOfAnother(_name))


class AsyncTask(Task[P, R_co]):
    """A task whose function is `async def`.

    >>> send
    <AsyncTask send>
    >>> import asyncio
    >>> asyncio.run(send(7))  # the function, here and now
    'sent to 7'
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        answer: Coroutine[Any, Any, R_co] = self.function(*self._visible(args), **kwargs)
        return answer


class SyncTask(Task[P, R_co]):
    """A task whose function is a plain `def`.

    >>> @app.task(name="double")
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> double(4)  # the function, here and now
    8
    """

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        answer: R_co = self.function(*self._visible(args), **kwargs)
        return answer


class BatchTask(Task[[T], R_co], Generic[T, R_co]):
    """A task of which one call does many jobs: a job has one item, and the function gets a list of them. It is made by
    `@app.task(batch=100, within="2s")`; `executors.batch` gathers the jobs.

    >>> @app.task(name="index", batch=100, within="2s")
    ... def index(items: list[str]) -> None:
    ...     print(items)
    >>> index.enqueue_sync("page 1").outcome
    'inserted'
    """

    def __init__(
        self, function: Function, home: Registry, *, batch: int, within: Duration = WITHIN, **options: Any
    ) -> None:
        super().__init__(function, home, **options)
        try:
            if options.get("executor") == "process":
                raise ValueError("a batch task runs on the loop or in a thread of the worker: leave out executor=")
            if type(batch) is not int or not 1 <= batch <= LARGEST_BATCH:
                raise ValueError(f"batch must be a whole number from 1 to {LARGEST_BATCH:,}, not {batch!r}")
            self.batch = batch
            self.within = seconds(within, "within")
            if self.timeout and self.within >= self.timeout:
                raise ValueError("within must be shorter than the timeout: jobs would run out of time as they wait")
        except ValueError as error:
            raise ConfigError(f"task {self.name}: {error}") from None
        self.called_in = self.executor
        self.executor = f"batch:{self.name}"
        self._signature = read = BatchSignature(function, self.name, self.checks_arguments)
        self.takes_context = read.takes_context
        self.item = read.item  # the type of an item; it may be defined further down than the task

    def __call__(self, items: Sequence[T]) -> Any:
        """The function, here and now, with these items."""
        contexts = tuple(Context.without_job(self.name) for _ in items)
        return self.function(BatchContext(contexts), items) if self.takes_context else self.function(items)


class OutsideTask(Task[P, R_co]):
    """A task whose work is done outside this process: by a program, a worker pool, a service. Its function is a stub,
    which gives it a name, parameters and a result's type, and is never called.

    >>> @app.command("/usr/bin/convert", "{src}", "{dst}")
    ... def convert(src: str, dst: str) -> None: ...
    >>> type(convert).__name__
    'OutsideTask'
    """

    def __init__(
        self, function: Function, home: Registry, make: Callable[[Function, str], Outside], options: Mapping[str, Any]
    ) -> None:
        super().__init__(function, home, **options)
        self.outside = make(function, self.name)
        self.executor = self.outside.executor

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> NoReturn:
        raise TypeError(f"{self.name} is run by a worker, outside this process: enqueue it")

    def bind(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        return self._checked(super().bind(*args, **kwargs))

    def bind_named(self, arguments: Mapping[str, object]) -> Call[R_co]:
        return self._checked(super().bind_named(arguments))

    def _checked(self, call: Call[R_co]) -> Call[R_co]:
        self.outside.check(payload.decode_trusted(call.args))
        return call


class DeclareOutside:
    """`@app.command(…)`, `@app.http(…)` or `@pool.task(…)`, waiting for its stub."""

    def __init__(self, home: Registry, make: Callable[[Function, str], Outside], options: Mapping[str, Any]) -> None:
        self._home = home
        self._make = make
        self._options = options

    def __call__(self, function: Callable[P, R], /) -> OutsideTask[P, R]:
        task: OutsideTask[P, R] = OutsideTask(function, self._home, self._make, self._options)
        self._home.adopt(task)
        return task


class Pool:
    """Long-lived workers in any language, which speak JSON lines. Made by `app.pool`.

    >>> thumbs = app.pool("thumbs", ["/usr/bin/node", "worker.js"], size=2)
    >>> @thumbs.task
    ... def shrink(path: str) -> str: ...
    >>> thumbs
    <Pool thumbs>
    """

    def __init__(self, home: Registry, spec: PoolSpec) -> None:
        self.spec = spec
        self._home = home

    def __repr__(self) -> str:
        return f"<Pool {self.spec.name}>"

    @overload
    def task(self, function: Callable[P, R], /) -> OutsideTask[P, R]: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> DeclareOutside: ...
    def task(self, function: Function | None = None, **options: Any) -> Any:
        """Declare a task that the pool's workers know by its name. The function is a stub."""
        from .external.pool import PoolTask

        declare = DeclareOutside(self._home, lambda stub, name: PoolTask(stub, name, self.spec), options)
        return declare if function is None else declare(function)


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


class DeclareBatch:
    """`@app.task(batch=…)`, waiting for its function."""

    def __init__(self, home: Registry, options: dict[str, Any]) -> None:
        self._home = home
        self._options = options

    @overload
    def __call__(
        self, function: Callable[[BatchContext[Any], list[T]], Coroutine[Any, Any, None]], /
    ) -> BatchTask[T, None]: ...
    @overload
    def __call__(
        self, function: Callable[[BatchContext[Any], list[T]], Coroutine[Any, Any, Sequence[R | BaseException]]], /
    ) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[BatchContext[Any], list[T]], None], /) -> BatchTask[T, None]: ...
    @overload
    def __call__(
        self, function: Callable[[BatchContext[Any], list[T]], Sequence[R | BaseException]], /
    ) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Coroutine[Any, Any, None]], /) -> BatchTask[T, None]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | BaseException]]], /
    ) -> BatchTask[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], None], /) -> BatchTask[T, None]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Sequence[R | BaseException]], /) -> BatchTask[T, R]: ...
    def __call__(self, function: Function, /) -> Any:
        return self._home.declare(function, self._options)


class Registry(Timetable):
    """A set of declared tasks. A library declares on one of its own, and an app includes it.

    >>> mails = Registry()
    >>> @mails.task(name="mails.digest")
    ... def digest(user: int) -> None: ...
    >>> app.include(mails)
    >>> app.find("mails.digest")
    <SyncTask mails.digest>
    """

    def __init__(self, *, retry: Retry | int | None = None) -> None:
        """`retry` is for tasks declared here that say none; without it, that of the app which includes them counts."""
        super().__init__()
        try:
            self.default_retry = None if retry is None else checked_retry(retry)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        self.tasks: dict[str, Task[..., Any]] = {}  # by name
        self.by_name: dict[str, Task[..., Any]] = {}  # and by alias
        self.layers: list[Middleware] = []
        self._check_arguments = True
        # Weak: a library's registry lives as long as its module, and must not keep every app that ever included it.
        self._parents: weakref.WeakSet[Registry] = weakref.WeakSet()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(hints.no_attribute("app", f"this {type(self).__name__}", name), name=name, obj=self)

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
        memory: Size | None = None,
        cpu: Duration | None = None,
        middleware: Iterable[Middleware] = (),
        check_arguments: bool | None = None,
    ) -> Declare: ...
    @overload
    def task(
        self,
        *,
        batch: int,
        within: Duration = ...,
        name: str | None = None,
        queue: str | Partitions | None = None,
        retry: Retry | int | None = None,
        timeout: Duration | UnsetType | None = UNSET,
        priority: int = 0,
        unique: Unique | str | bool | None = None,
        tags: Iterable[str] = (),
        aliases: Iterable[str] = (),
        description: str | None = None,
        owner: str = "",
        docs: str = "",
        middleware: Iterable[Middleware] = (),
        check_arguments: bool | None = None,
    ) -> DeclareBatch: ...
    def task(self, function: Function | None = None, **options: Any) -> Any:
        """Declare a function as a task.

        Its name is `module.function` unless `name` is given; in the module that was started (`__main__`) the name it
        has when it is imported, so that a script and its worker agree. `retry` is a Retry or a number of attempts,
        `timeout` is per attempt (1 h unless said; None switches it off). `async def` runs on the loop, `def` in a
        thread, either in a child process by `executor="process"`: there a call may take `memory` ("512MiB") beside what
        the child has itself, and so much time of the processor (`cpu="30s"`). A first parameter that is called `ctx`,
        or annotated `Context`, is given by the worker. `check_arguments=False` lets arguments pass that do not fit
        their annotations. `description` (the docstring's first line, unless said), `owner` and `docs` (a link) are
        shown to whoever looks after it.
        """
        if function is None and options.get("batch") is not None:
            return DeclareBatch(self, options)
        return Declare(self, options) if function is None else self.declare(function, options)

    def declare(self, function: Function, options: dict[str, Any]) -> Task[..., Any]:
        if not callable(function) or inspect.isclass(function):
            raise ConfigError(f"@task needs a function, not {function!r}")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"task {function.__name__}: a generator cannot be a task; return a value instead")
        task: Task[..., Any]
        if "batch" in options:
            task = BatchTask[Any, Any](function, self, **options)
        elif inspect.iscoroutinefunction(function):
            task = AsyncTask[..., Any](function, self, **options)
        else:
            task = SyncTask[..., Any](function, self, **options)
        self.adopt(task)
        return task

    def middleware(self, function: MiddlewareT) -> MiddlewareT:
        """Wrap every run of this registry's tasks; an app wraps those of the registries that it includes, too. See
        `treadle.middleware`."""
        self.layers.append(wrapping.checked(function))
        return function

    def stack_of(self, task: Task[..., Any]) -> wrapping.Stack:
        """What wraps a run of this task, outermost first."""
        brought = task.middleware if task.is_at_home(self) else task.layers
        return wrapping.Stack((*self.layers, *brought), in_thread=task.executor == "thread")

    def adopt(self, task: Task[..., Any]) -> None:
        homes = self._upwards()
        for home in homes:
            home._check_free(task)
        for home in homes:
            home._add(task)

    def command(self, program: str, /, *argv: str, **options: Unpack[CommandOptions]) -> DeclareOutside:
        """Declare a program as a task, by a stub with its parameters:

            @app.command("/usr/bin/convert", "{src}", "-resize", "{size}", "{dst}", paths={"src": "/in", "dst": "/out"})
            def resize(src: str, size: int, dst: str) -> None: ...

        The program is absolute, there is no shell, and a job fills slots and nothing else: a value that begins with a
        dash is refused, unless a `--` stands before it or `dashes` names it, and one that goes up by `..` unless `dots`
        names it. A parameter in `paths` names a file, which must be in that folder; `patterns` check others. `stdin` is
        None, "json" (the arguments) or a slot. Exit code 0 is success, with what was printed as the result (its value,
        if it is JSON); 126 and 127 fail for good; `exits={75: "throttle 30s", 2: "fail"}` says what others mean. It
        runs in a folder of its own below `root`, or in `cwd`, with the environment of `env` and the variables that
        `inherit` names, within the limits `cpu`, `memory`, `file_size`, `processes` and `open_files`. See
        docs/commands.md.
        """
        from .external.command import Command, Said

        own = {key: value for key, value in options.items() if key in Said.__annotations__}
        rest = {key: value for key, value in options.items() if key not in own}
        return DeclareOutside(self, lambda stub, name: Command(stub, name, (program, *argv), own), rest)

    def pool(self, name: str, argv: Sequence[str], **options: Unpack[PoolOptions]) -> Pool:
        """Declare workers in another language: `thumbs = app.pool("thumbs", ["/usr/bin/node", "worker.js"], size=2)`,
        and then tasks for them by `@thumbs.task`. See docs/pools.md."""
        from .external.pool import PoolSpec

        return Pool(self, PoolSpec(name, argv, **options))

    def http(self, url: str, /, **options: Unpack[HttpOptions]) -> DeclareOutside:
        """Declare a service that does the work, by a stub with its parameters:

            @app.http("https://hooks.example.com/orders/{order}", secret="$HOOK_SECRET")
            def notify(order: int, text: str) -> dict[str, str]: ...

        A POST with the arguments; 2xx is success, with the body as the result. 429 throttles, 408, 425, 5xx and a
        broken network are retried, other 4xx fail for good. Only hosts that `allow` names are asked (the URL's own
        unless said), private addresses only if `private` allows them; redirects are not followed. With `answers="1h"`
        the service may say 202 and answer later. The timeout is 30 s unless said. See docs/http-executor.md.
        """
        from .external.http import DEFAULT_TIMEOUT as PATIENCE
        from .external.http import Hook, Said

        own = {key: value for key, value in options.items() if key in Said.__annotations__}
        rest = {"timeout": PATIENCE} | {key: value for key, value in options.items() if key not in own}
        return DeclareOutside(self, lambda stub, name: Hook(stub, name, url, own), rest)

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

    def retry_of(self, task: Task[..., Any]) -> Retry:
        """How jobs of a task are tried again here: as the task says, else the registry it is of, else this one."""
        return task.retry if task.has_retry else self.default_retry or task.retry

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
                    f"task name {name} is taken by {other.__module__}.{other.__qualname__} ({other.declared_at}): "
                    f"give it, or the one that is declared at {task.declared_at}, a name="
                )

    @property
    def checks_arguments(self) -> bool:
        """Whether the arguments of its tasks are checked: not if an app that includes it does not want that."""
        return all(home._check_arguments for home in self._upwards())

    def _add(self, task: Task[..., Any]) -> None:
        task.included()
        self.tasks[task.name] = task
        for name in (task.name, *task.aliases):
            self.by_name[name] = task


def _check_no_method(function: Function) -> None:
    inner = getattr(function, "__qualname__", "").rpartition("<locals>.")[2]
    if "." not in inner or inspect.ismethod(function):
        return
    if next(iter(inspect.signature(function).parameters), None) in ("self", "cls"):
        raise ValueError(
            f"{inner} is a method, and a worker has no object to call it on: declare a function outside the class, "
            "with what it needs of the object (such as its id) as a parameter"
        )


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


def checked_retry(retry: Retry | int) -> Retry:
    if isinstance(retry, Retry):
        return retry
    if type(retry) is int:
        return Retry(max_attempts=retry)
    raise ValueError(f"retry must be a Retry or a number of attempts, not {type(retry).__name__}")


def _executor(function: Function, is_async: bool, wanted: str | None) -> ExecutorName:
    natural: ExecutorName = "async" if is_async else "thread"
    if wanted is None or wanted == natural:
        return natural
    if wanted == "process":
        return "process"
    if wanted not in EXECUTORS:
        raise ValueError(f"there is no executor {wanted!r}; this version has {', '.join(EXECUTORS)}")
    if is_async:
        raise ValueError('an async def runs on the loop: leave out executor="thread", or make it a plain def')
    raise ValueError('a plain def would block the loop: leave out executor="async", or make it an async def')


def _bounds(executor: str, memory: Size | None, cpu: Duration | None) -> tuple[int | None, float | None]:
    if executor != "process" and (memory is not None or cpu is not None):
        raise ValueError('memory and cpu are limits of a child process: they need executor="process"')
    found = None if cpu is None else seconds(cpu, "cpu")
    if found is not None and found < 1:
        raise ValueError("cpu must be a second or more: the kernel counts in seconds")
    return None if memory is None else size(memory, "memory"), found
