"""Once per request: what the parts of a page ask of the storage in the same words is read once.

The attention of the overview, its queues and its pods are put together from the same lists, each by code that knows
nothing of the others. It also makes a page agree with itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import iscoroutinefunction
from typing import Any, Final, TypeAlias, cast

from ..ports import Storage

SHARED: Final = frozenset({"catalog", "deploys", "due_tasks", "facts", "get", "mutes", "pods", "queues", "schedules"})

Asked: TypeAlias = tuple[str, tuple[Any, ...]]


class Answers:
    """What one request has asked so far. What goes on after it (a count that others wait for) asks for itself."""

    def __init__(self) -> None:
        self.known: dict[Asked, asyncio.Future[Any]] = {}
        self.is_over = False


_current: ContextVar[Answers | None] = ContextVar("answers", default=None)


@contextmanager
def remembering() -> Generator[None]:
    """For one request that only reads, and ends soon."""
    answers = Answers()
    token = _current.set(answers)
    try:
        yield
    finally:
        answers.is_over = True
        _current.reset(token)


def once(storage: Storage) -> Storage:
    return cast("Storage", _Once(storage))


class _Once:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        if name not in SHARED or not iscoroutinefunction(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            answers = _current.get()
            if answers is None or answers.is_over or kwargs:
                return await found(*args, **kwargs)
            return await _ask(answers, (name, tuple(map(_fixed, args))), found, args)

        return call


async def _ask(answers: Answers, asked: Asked, found: Any, args: tuple[Any, ...]) -> Any:
    known = answers.known.get(asked)
    if known is None:
        known = answers.known[asked] = asyncio.get_running_loop().create_future()
        try:
            answer = await found(*args)
        except BaseException:
            del answers.known[asked]
            known.cancel()
            raise
        known.set_result(answer)
        return answer
    await asyncio.wait({known})
    # Whoever asked first may have gone away, or been refused: that is no answer.
    return await found(*args) if known.cancelled() else known.result()


def _fixed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
