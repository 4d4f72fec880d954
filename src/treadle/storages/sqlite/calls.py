"""Calls: operations on their way to the writer, and answers on their way back."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from .news import News

T = TypeVar("T")


class Call(Generic[T]):
    """One operation on its way through the writer. With `items` it is a bulk operation, and shares its statements with
    others of the same kind that come right before or after it."""

    __slots__ = ("answer", "deadline", "error", "future", "grows", "items", "loop", "news", "operation", "relaxed")

    def __init__(
        self,
        operation: Callable[..., Any],
        deadline: float,
        future: asyncio.Future[T] | concurrent.futures.Future[T],
        loop: asyncio.AbstractEventLoop | None,
        *,
        items: Sequence[Any] | None = None,
        grows: bool = False,
        relaxed: bool = False,
    ) -> None:
        self.operation = operation
        self.items = items
        self.deadline = deadline
        self.future = future
        self.loop = loop
        self.grows = grows
        self.relaxed = relaxed
        self.news = News()
        self.answer: T
        self.error: BaseException | None = None

    def settle(self) -> None:
        """Give the caller its answer; in the caller's loop, if it has one."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.answer)


def deliver(calls: Iterable[Call[Any]]) -> None:
    """Answer all of them: one wake-up for each event loop, however many wait in it."""
    by_loop: dict[asyncio.AbstractEventLoop | None, list[Call[Any]]] = {}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, waiting in by_loop.items():
        if loop is None:
            _settle(waiting)
        else:
            with contextlib.suppress(RuntimeError):  # a loop that is closed has nobody left to tell
                loop.call_soon_threadsafe(_settle, waiting)


def _settle(calls: list[Call[Any]]) -> None:
    for call in calls:
        call.settle()
