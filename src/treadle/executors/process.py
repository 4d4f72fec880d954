"""Functions in child processes: a pool of warm ones, each with the app imported once, each with one call at a time.

What a call does to its process (a crash, too much memory, too much CPU time) it does to its own job alone. A child gets
another after `calls` calls, when it has grown beyond `memory`, and whenever a call was broken off in it.

The pool of a worker whose tasks ask for it is warm before the first job: `start` waits for one child, so that an app
that cannot be imported is refused there, with the reason. Later, a child that cannot be started costs no job anything:
it is given back, and the executor rests for a while.

Suspects
--------
A second pool of the same kind runs the jobs that have lost a worker before, whatever their own executor: the next crash
then names its culprit. Nobody may ever need it; so it is empty until then, and again after a while.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..core.errors import ConfigError
from ..core.outcome import NotBegun
from ..core.payload import decode_trusted
from ..ports import Call
from ..tasks.task import Task
from . import usage
from .origin import Origin
from .warm import WarmChild

log = logging.getLogger("treadle.process")

LONGEST_REST: Final = 30.0
IDLE: Final = 30.0  # how long a child of a pool that is not kept warm waits for another call
FEW: Final = 8
_TO_LEAVE: Final = 5.0


class ProcessExecutor:
    name = "process"
    cancels = True
    asks = True

    def __init__(
        self,
        *,
        origin: Callable[[], Origin],
        tasks: Callable[[], Sequence[Task[..., Any]]],
        size: int | None = None,
        calls: int = 1000,
        memory: int | None = None,
        grace: float = 5.0,
        warm: bool = True,
    ) -> None:
        """`origin` says where the app is (ConfigError if it cannot be imported); `tasks` are those that run here."""
        self.size = size or os.cpu_count() or 1
        self._origin = origin
        self._tasks = tasks
        self._calls = calls
        self._memory = memory
        # A run is given up at the end of the grace: what is killed a little before that is still heard of.
        self._grace = grace * 0.8
        self._warm = warm
        self._idle: list[WarmChild] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._children: set[WarmChild] = set()
        self._ending: dict[asyncio.Task[None], WarmChild] = {}
        self._busy = 0
        self._failures = 0
        self._rests_until = 0.0
        self._last_error: ConfigError | None = None
        self.freed: Callable[[], None] = _nobody  # called when there is a child more; whoever claims sets it
        self._is_open = False

    @property
    def children(self) -> int:
        """From any thread."""
        return len(self._children)

    @property
    def trouble(self) -> str | None:
        """Why it can run nothing now. From any thread."""
        return str(self._last_error) if self._failures and not self._children else None

    @property
    def is_possible(self) -> bool:
        """Whether the app can be imported elsewhere, as far as can be told without trying."""
        try:
            self._origin()
        except ConfigError:
            return False
        return self._failures == 0 or asyncio.get_running_loop().time() >= self._rests_until

    def places(self) -> int | None:
        """As many as there are children that could begin at once: to start one takes its time, and a claimed job's
        deadline would not wait for it."""
        return self.ready(self.size if self._warm and self._tasks() else 0)

    def ready(self, wanted: int) -> int:
        """How many children wait for a call. If fewer than are wanted, more are started, as far as there is room."""
        if not self._is_open or asyncio.get_running_loop().time() < self._rests_until:
            return 0
        waiting = sum(child.is_usable for child in self._idle)
        room = max(0, self.size - self._busy)
        for _ in range(self._may_start(min(wanted, room) - waiting - len(self._starting))):
            self._start_child()
        return min(waiting, room)

    def _may_start(self, wanted: int) -> int:
        """A pool that nobody has planned for has a few children at once. Beyond those it grows as fast as the
        processors can start them, and only where memory is plenty."""
        there = len(self._children) + len(self._starting)
        if self._warm or there + wanted <= FEW:
            return wanted
        pace = (os.cpu_count() or 1) - len(self._starting)
        return min(wanted, max(FEW - there, pace if usage.is_plenty() else 0))

    async def start(self) -> None:
        self._is_open = True
        self._failures, self._rests_until = 0, 0.0
        if not self._warm or not self._tasks():
            return
        first = self._start_child()
        try:
            await asyncio.shield(first)
        finally:
            if not self._idle:
                await self.close()
        if not self._idle:
            raise self._last_error or ConfigError("no child process could be started")
        self.places()  # and the rest of them, meanwhile

    async def run(self, call: Call) -> Any:
        self._busy += 1
        child = None
        try:
            child = await self._take()
            task = None if call.job is None else self._limits_of(call.job.task)
            memory, cpu = (None, None) if task is None else (task.memory, task.cpu)
            brought = await child.run(call, memory=memory, cpu=cpu, grace=self._grace)
            # Middleware looks at results: so it is a value again, unless there is something to be said of it.
            return brought if brought.warning or brought.result is None else decode_trusted(brought.result)
        finally:
            self._busy -= 1
            if child is not None:
                self._give_back(child)

    async def close(self) -> None:
        self._is_open = False
        left = [*self._children, *self._ending.values()]  # a task that is cancelled before it began ends nothing
        for task in (*self._starting, *self._ending):
            task.cancel()
        await asyncio.gather(*self._starting, *self._ending, return_exceptions=True)
        await asyncio.gather(*(child.end(_TO_LEAVE) for child in self._idle))
        await asyncio.gather(*(child.gone() for child in left))  # their runs have been given up
        self._idle.clear()
        self._children.clear()

    # The pool --------------------------------------------------------------------------------------------------------

    def _nested(self) -> str:
        """Where to look if a child does not find a task: one that is declared in a function is the likely cause. It is
        no error by itself, because a function that makes the app may be called as its module is imported."""
        for task in self._tasks():
            outer, _, inner = task.__qualname__.rpartition(".<locals>.")
            if inner:
                return (
                    f" ({task.name} is declared inside {outer}, {task.declared_at}: move it to the top of its module)"
                )
        return ""

    def _limits_of(self, name: str) -> Task[..., Any] | None:
        return next((task for task in self._tasks() if name in (task.name, *task.aliases)), None)

    async def _take(self) -> WarmChild:
        """A child that is ready for a call. NotBegun if there is none to be had."""
        while True:
            while self._idle:
                child = self._idle.pop()
                if child.is_usable:
                    if child.idle is not None:
                        child.idle.cancel()
                    return child
                await self._forget(child)
            if not self._is_open:
                raise NotBegun("the worker stops")
            before = self._failures
            starting = [*self._starting] or [self._start_child()]
            await asyncio.wait(starting, return_when=asyncio.FIRST_COMPLETED)
            if not self._idle and self._failures > before:
                raise NotBegun(str(self._last_error), min(LONGEST_REST, 2.0**self._failures))

    def _start_child(self) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._start(), name="child of a pool")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)
        return task

    async def _start(self) -> None:
        try:
            child = await WarmChild.start(self._origin(), [task.name for task in self._tasks()])
        except (ConfigError, OSError) as error:
            self._failures += 1
            rest = min(LONGEST_REST, 2.0**self._failures)
            self._rests_until = asyncio.get_running_loop().time() + rest
            told = f"{error}{self._nested()}"
            self._last_error = ConfigError(f"executor process: {told}")
            log.error("a child process could not be started (tried again in %.0f s): %s", rest, told)
            return
        self._failures, self._rests_until = 0, 0.0
        self._children.add(child)
        self._offer(child)
        self.freed()

    def _give_back(self, child: WarmChild) -> None:
        is_worn = child.calls >= self._calls or (self._memory is not None and child.rss >= self._memory)
        if child.is_usable and not is_worn and self._is_open:
            self._offer(child)
            return
        self._end(child)
        self.places()  # starts its successor

    def _offer(self, child: WarmChild) -> None:
        self._idle.append(child)
        if not self._warm:
            child.idle = asyncio.get_running_loop().call_later(IDLE, self._dismiss, child)

    def _dismiss(self, child: WarmChild) -> None:
        if child in self._idle:
            self._idle.remove(child)
            self._end(child)

    def _end(self, child: WarmChild) -> None:
        self._children.discard(child)
        task = asyncio.get_running_loop().create_task(child.end(_TO_LEAVE))
        self._ending[task] = child
        task.add_done_callback(lambda task: self._ending.pop(task, None))

    async def _forget(self, child: WarmChild) -> None:
        """It has ended while nobody looked."""
        self._children.discard(child)
        await child.gone()


def _nobody() -> None:
    pass
