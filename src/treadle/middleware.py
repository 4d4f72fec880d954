"""Middleware wraps a run: it sees the arguments before, and the result or the exception after.

    @app.middleware
    async def timing(ctx: Context, call: Next) -> Any:
        begun = time.perf_counter()
        try:
            return await call()
        finally:
            histogram.observe(time.perf_counter() - begun)

An `async def` wraps runs of every kind, on the worker's loop. A plain `def` wraps plain functions that run in threads,
and runs in the same thread: for what lives in thread-locals, such as a framework's connections.

Order: what is declared first is outermost; an app's comes before a task's own; async ones are around the plain ones.
What it returns is the result; whatever it raises counts as the task's own: `raise Snooze("5m")` without a `call()`
stops the run short. What a middleware does not catch goes on to the next one outside.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from .context.context import Context
from .core.errors import ConfigError

Middleware = Callable[[Context[Any], "Next"], Any]
MiddlewareT = TypeVar("MiddlewareT", bound=Middleware)
Inner = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]

NONE: Final[Mapping[str, Any]] = {}


class Next:
    """The rest of a run. `call()` goes on with the arguments as they are, `call(*args, **kwargs)` with these instead;
    after an `async def` it is awaited. The context is not among the arguments.

    >>> async def timed(ctx: Context, call: Next) -> object:
    ...     print(call.task, call.args)
    ...     return await call()
    """

    __slots__ = ("_go", "args", "kwargs", "task")

    def __init__(self, task: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], go: Inner) -> None:
        self.task = task
        self.args = args
        self.kwargs = kwargs
        self._go = go

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._go(args, kwargs) if args or kwargs else self._go(self.args, self.kwargs)


class Stack:
    """The middleware of one task, outermost first."""

    __slots__ = ("around", "inside")

    def __init__(self, layers: Iterable[Middleware], *, in_thread: bool) -> None:
        layers = tuple(layers)
        self.around = tuple(each for each in layers if is_async(each))
        self.inside = tuple(each for each in layers if not is_async(each)) if in_thread else ()

    def __bool__(self) -> bool:
        return bool(self.around or self.inside)


def checked(function: Middleware, *, in_thread: bool | None = None) -> Middleware:
    """A middleware, if it is one. `in_thread`: whether the one task that it is for runs in a thread."""
    name = getattr(function, "__name__", repr(function))
    if not callable(function) or inspect.isclass(function):
        raise ConfigError(f"middleware {name} must be a function of (ctx, call)")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise ConfigError(f"middleware {name} must take (ctx, call)") from None
    except ValueError:
        pass  # some callables have no signature to be read
    if in_thread is False and not is_async(function):
        raise ConfigError(f"middleware {name} is a plain function and wraps only those that run in threads")
    return function


def is_async(function: Middleware) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def around(
    stack: Stack,
    context: Context[Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    inner: Callable[[tuple[Any, ...], Mapping[str, Any]], Awaitable[Any]],
) -> Any:
    """Run `inner` inside the layers that are async."""
    go: Inner = inner
    for layer in reversed(stack.around):
        go = _layered(layer, context, go)
    return await go(args, kwargs)


def inside(stack: Stack, context: Context[Any], function: Callable[..., Any], *, takes_context: bool) -> Any:
    """The function inside the layers that are plain. It takes what the function takes."""

    def plain(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        return function(context, *args, **kwargs) if takes_context else function(*args, **kwargs)

    go: Inner = plain
    for layer in reversed(stack.inside):
        go = _layered(layer, context, go)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return go(args[1:] if takes_context else args, kwargs)

    return wrapped


def _layered(layer: Middleware, context: Context[Any], go: Inner) -> Inner:
    return lambda args, kwargs: layer(context, Next(context.task, args, kwargs, go))
