"""Batch tasks: many jobs, one call. What such a task sees of its run, and how its signature is read.

    @app.task(batch=100, within="2s")
    async def index(items: list[Doc]) -> None: ...

Every enqueue is a job with one item, stored as `{"item": …}`; the function gets the items of many jobs at once.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections import abc
from collections.abc import Iterator
from typing import Any, Final, Generic

from ..context.context import Context, StateT
from ..core.errors import ConfigError
from .signature import Function, Signature, resolved

ITEM: Final = "item"
_LISTS: Final = (list, abc.Sequence, abc.Iterable, abc.Collection, abc.MutableSequence)


class BatchContext(Generic[StateT]):
    """What a batch task sees of its run: the contexts of its jobs, in the order of the items.

    >>> @app.task(name="mark", batch=100, within="2s")
    ... def mark(ctx: BatchContext, items: list[str]) -> None:
    ...     for job, item in zip(ctx, items):
    ...         job.log.info("marked %s", item)
    """

    __slots__ = ("jobs",)

    def __init__(self, jobs: tuple[Context[StateT], ...]) -> None:
        self.jobs = jobs

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[Context[StateT]]:
        return iter(self.jobs)

    def __getitem__(self, number: int) -> Context[StateT]:
        return self.jobs[number]

    @property
    def state(self) -> StateT:
        """What the app's lifespan has yielded."""
        return self.jobs[0].state

    @property
    def stopping(self) -> bool:
        """The worker is about to stop."""
        return self.jobs[0].stopping

    @property
    def cancelled(self) -> bool:
        """Every job of the batch should stop: nobody waits for what is left to do."""
        return all(job.cancelled for job in self.jobs)

    def remaining(self) -> float | None:
        """Seconds until the first of the jobs' deadlines; None if none has one."""
        return min((left for job in self.jobs if (left := job.remaining()) is not None), default=None)


class BatchSignature(Signature):
    """A batch function's signature as callers see it: one item."""

    def visible(self, function: Function, task: str) -> list[inspect.Parameter]:
        given = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(given) and (given[0].name == "ctx" or _is_context(function, given[0].annotation))
        left = given[1:] if self.takes_context else given
        ordinary = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if len(left) != 1 or left[0].kind not in ordinary or not _is_list(resolved(function, left[0].annotation)):
            raise ConfigError(f"task {task}: a batch task takes one list: async def …(items: list[Doc])")
        self._items = left[0]
        return [inspect.Parameter(ITEM, inspect.Parameter.POSITIONAL_OR_KEYWORD)]

    def item(self) -> Any:
        """The type of an item, as far as it is known."""
        found = _member(resolved(self._function, self._items.annotation))
        return Any if found is inspect.Parameter.empty else found

    def annotations(self) -> tuple[dict[str, Any], Any]:
        returned = resolved(self._function, inspect.signature(self._function).return_annotation)
        item = _member(resolved(self._function, self._items.annotation))
        return {ITEM: item}, _without_errors(_member(returned))


def _is_context(function: Function, annotation: Any) -> bool:
    if isinstance(annotation, str) and resolved(function, annotation) is inspect.Parameter.empty:
        return annotation.partition("[")[0].rpartition(".")[2].strip("'\" ") == BatchContext.__name__
    kind = resolved(function, annotation)
    return (typing.get_origin(kind) or kind) is BatchContext


def _is_list(kind: Any) -> bool:
    return kind is inspect.Parameter.empty or kind is Any or (typing.get_origin(kind) or kind) in _LISTS


def _member(kind: Any) -> Any:
    """The T of list[T]."""
    args = typing.get_args(kind)
    return args[0] if len(args) == 1 and typing.get_origin(kind) in _LISTS else inspect.Parameter.empty


def _without_errors(kind: Any) -> Any:
    """What is stored: a member that is an exception is a job's failure, not its result."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return kind
    left = [each for each in typing.get_args(kind) if not (inspect.isclass(each) and issubclass(each, BaseException))]
    return typing.Union[tuple(left)] if left else inspect.Parameter.empty  # noqa: UP007 - made at run time
