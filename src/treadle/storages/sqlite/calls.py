"""Calls: operations on their way to the writer, and answers on their way back."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from .news import News

T = TypeVar("T")


class Wait(Generic[T]):
    """An answer that a thread without an event loop waits for. Not a future of `concurrent.futures`: that is locked by
    code in Python, where a signal can strike (Ctrl-C, a task's end). What it left locked, the writer would wait for."""

    __slots__ = ("_answer", "_came", "_error", "_is_done")

    def __init__(self) -> None:
        self._came = threading.Lock()
        self._came.acquire()
        self._is_done = False
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._is_done

    def cancel(self) -> None:
        """Nobody waits any more: what has not begun is not done."""
        self._is_done = True

    def set_result(self, answer: T) -> None:
        self._answer = answer
        self._is_done = True
        self._came.release()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._is_done = True
        self._came.release()

    def result(self, timeout: float) -> T:
        """TimeoutError if it has not come by then."""
        try:
            if not self._came.acquire(timeout=timeout):
                raise TimeoutError
        except BaseException:
            self.cancel()
            raise
        if self._error is not None:
            raise self._error
        return self._answer


class Call(Generic[T]):
    """One operation on its way through the writer. With `items` it is a bulk operation, and shares its statements with
    others of the same kind that come right before or after it."""

    __slots__ = ("answer", "deadline", "error", "future", "grows", "items", "loop", "news", "operation", "relaxed")

    def __init__(
        self,
        operation: Callable[..., Any],
        deadline: float,
        future: asyncio.Future[T] | Wait[T],
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
