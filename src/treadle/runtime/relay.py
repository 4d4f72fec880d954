"""Relay: one asyncio task that begins run after run, as long as none of them waits for anything.

Why
---
A task of its own for every run costs more than a short run does: the task, its handle, its place in the set of all
tasks. So runs stand in line, and one task begins them in turn. Most short runs end in their first step; the task then
goes on to the next. The first run that waits for something keeps the task until it ends, with all that hangs on one (a
`cancel`, a `timeout`, a table by `current_task()`), and the line goes on in a new one. So a run that waits has a task
that belongs to it alone.

What runs may not notice
------------------------
* *Context*: each has its own copy, in its first step and in all that follow. What it sets there nobody else sees.
* *The task it saw*: somebody may have kept it, to cancel it later: a child, a callback, a table by `current_task()`.
  Then the next run must not be found in it. Whether anybody has is known exactly, by counting references, and such a
  task begins no other run. Neither does one that was cancelled, even by the run itself.
* *The others*: after a `SLICE` the line lets the loop go round, so that what has ended is written and what is new is
  claimed while the line is still long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context as Variables
from contextvars import copy_context
from sys import getrefcount
from time import perf_counter
from typing import Any, Final, TypeAlias
from weakref import getweakrefcount

from ..context.context import Context
from ..core.outcome import Outcome
from .run import Run, drive

SLICE: Final = 0.005

Done: TypeAlias = Callable[[Run, Outcome], None]


class Relay:
    def __init__(self, done: Done) -> None:
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._line: deque[tuple[Run, Context[Any] | None]] = deque()
        self._is_moving = False  # there is a task that begins what is in line

    def add(self, run: Run, context: Context[Any] | None) -> None:
        """It begins with the next round of the loop, after those before it in line."""
        self._line.append((run, context))
        if not self._is_moving:
            self._move_on()

    def _move_on(self) -> None:
        self._is_moving = bool(self._line)
        if self._is_moving:
            self._loop.create_task(self._begin_all())

    async def _begin_all(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        line, done = self._line, self._done
        until = perf_counter() + SLICE
        held, watched = getrefcount(task), getweakrefcount(task)
        try:
            while line:
                run, context = line.popleft()
                if run.done:  # given back while it stood in line
                    continue
                run.work = task
                own = copy_context()
                coroutine = drive(run, context, done)
                try:
                    awaited = own.run(coroutine.send, None)
                except StopIteration:
                    run.work = None
                else:
                    break
                if getrefcount(task) != held or getweakrefcount(task) != watched or task.cancelling():
                    return
                if run.begun_at > until:
                    await asyncio.sleep(0)
                    until = perf_counter() + SLICE
            else:
                return
        finally:
            self._move_on()
        await _Rest(coroutine, awaited, own)


class _Rest(Generator[Any, Any, None]):
    """What is left of a coroutine after its first step, to be awaited. `cr_await` is where those look who want to see
    where a task waits."""

    __slots__ = ("_awaited", "_is_handed_on", "_variables", "cr_await")

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: Any, variables: Variables) -> None:
        self.cr_await = coroutine
        self._awaited = awaited
        self._is_handed_on = False
        self._variables = variables

    def __await__(self) -> Generator[Any, Any, None]:
        return self

    def __next__(self) -> Any:
        if self._is_handed_on:
            return self._variables.run(self.cr_await.send, None)
        self._is_handed_on = True
        return self._awaited

    def send(self, value: Any) -> Any:
        return self._variables.run(self.cr_await.send, value)

    def throw(self, *error: Any) -> Any:
        return self._variables.run(self.cr_await.throw, *error)

    def close(self) -> None:
        self._variables.run(self.cr_await.close)
