"""An event loop in which time is virtual and one seed decides every interleaving.

Rules
-----
* **Tasks move only through the ready list**, so whoever owns it owns every interleaving. There is one choice point:
  which *host* runs its next callback. Inside a host callbacks run in the order in which they became ready, as asyncio
  promises; between hosts any order is a legal one.
* **Time moves only when nothing is ready.** Then it jumps to the next timer. Nothing ready and no timer is a
  `Deadlock`; more steps than the budget is a `Livelock`. Never a hang.
* **A host** is a machine with one process, named by a ContextVar that child tasks inherit. A *crash* parks its
  callbacks for ever: no `finally`, no CancelledError, as with SIGKILL. A *pause* holds them until a time: SIGSTOP.
* **Nothing escapes.** Threads, sockets and signals raise; clocks and chance come from the loop (see `escapes`).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from asyncio import AbstractEventLoop, Future, Handle, Task, TimerHandle, events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from hashlib import sha256
from typing import Any, Final, NoReturn, TypeVar, cast

T = TypeVar("T")


class Deadlock(AssertionError):
    """Nothing is ready, no timer is set, and the end was not reached."""


class Livelock(AssertionError):
    """The budget of steps is used up: something goes round in circles."""


class Escape(AssertionError):
    """Simulated code reached for the real world."""


class Host:
    """One machine with one process. A restart is a new Host."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.number = number
        self.alive = True
        self.paused_until = 0.0
        self.cut_off = False  # from the storage, by the network
        self.skew = 0.0  # of its wall clock
        self.troubled_until = 0.0  # paused or cut off; and a lease beyond
        self.ready: deque[Handle] = deque()

    def __repr__(self) -> str:
        return f"<Host {self.name}>"


WORLD: Final = Host("world", 0)
HOST: Final[ContextVar[Host]] = ContextVar("host", default=WORLD)


class SimLoop(AbstractEventLoop):
    """See the head of this file. `now` is the virtual time in seconds; every host's monotonic clock shows it."""

    def __init__(self, seed: str, *, budget: int = 2_000_000) -> None:
        self.now = 0.0
        self.steps = 0
        self.failures: list[dict[str, Any]] = []
        self._choice = random.Random(f"{seed}/schedule")  # noqa: S311
        self._budget = budget
        self._timers: list[tuple[float, int, TimerHandle]] = []
        self._numbers = itertools.count(1)
        self._busy: dict[int, Host] = {}  # hosts with something ready, by number
        self._held: list[Host] = []
        self._parked: list[object] = []  # kept to the end: collected, a coroutine would run its `finally`
        self._digest = sha256()
        self._running = False
        self._closed = False

    # Hosts -----------------------------------------------------------------------------------------------------------

    def crash(self, host: Host) -> None:
        host.alive = False
        self._parked.append(list(host.ready))
        host.ready.clear()
        self._busy.pop(host.number, None)
        self.note("crash", host.name)

    def pause(self, host: Host, seconds: float) -> None:
        host.paused_until = max(host.paused_until, self.now + seconds)
        self._busy.pop(host.number, None)
        self.note("pause", host.name)
        self.call_at(host.paused_until, self._go_on, host)

    def _go_on(self, host: Host) -> None:
        if host.alive and host.ready and host.paused_until <= self.now:
            self._busy[host.number] = host

    def note(self, kind: str, label: str = "") -> None:
        """One line of the trace. Two runs of a seed are the same if their digests are."""
        self._digest.update(f"{kind} {self.now:.6f} {self.steps} {label}\n".encode())

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()

    # Callbacks -------------------------------------------------------------------------------------------------------

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self.now + max(0.0, delay), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        handle = TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _enqueue(self, handle: Handle) -> None:
        host = _host_of(handle)
        if not host.alive:
            self._parked.append(handle)
            return
        host.ready.append(handle)
        if host.paused_until <= self.now:
            self._busy[host.number] = host

    # Running ---------------------------------------------------------------------------------------------------------

    def run_until_complete(self, future: Coroutine[Any, Any, T] | Future[T]) -> T:  # type: ignore[override]
        events._set_running_loop(self)
        self._running = True
        try:
            main: Future[T] = asyncio.ensure_future(future, loop=self)
            while not main.done():
                self._step()
            return main.result()
        finally:
            self._running = False
            events._set_running_loop(None)

    def _step(self) -> None:
        while not self._busy:
            self._advance()
        numbers = list(self._busy)
        host = self._busy[numbers[self._choice.randrange(len(numbers))] if len(numbers) > 1 else numbers[0]]
        handle = host.ready.popleft()
        if not host.ready:
            del self._busy[host.number]
        if handle.cancelled():
            return
        self.steps += 1
        if self.steps > self._budget:
            raise Livelock(f"{self._budget:,} steps, and no end (virtual time {self.now:.0f} s)")
        if not self.steps & 63:
            self.note("step", host.name)
        handle._run()

    def _advance(self) -> None:
        if not self._timers:
            raise Deadlock(f"nothing is ready and no timer is set (virtual time {self.now:.0f} s)")
        when, _, handle = heapq.heappop(self._timers)
        if handle.cancelled():
            return
        self.now = max(self.now, when)
        self._enqueue(handle)
        while self._timers and self._timers[0][0] <= self.now:
            _, _, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                self._enqueue(handle)

    # What asyncio asks of a loop -------------------------------------------------------------------------------------

    def time(self) -> float:
        return self.now

    def create_future(self) -> Future[Any]:
        return Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> Task[T]:
        task = Task(coro, loop=self, name=name or "task", context=context)
        self._parked.append(task)
        return task

    async def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> T:  # type: ignore[override]
        await asyncio.sleep(0)
        return func(*args)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Forget what is left. Nothing of it may run any more, not even a `finally`."""
        self._closed = True
        for each in self._parked:
            if isinstance(each, Task):
                each._log_destroy_pending = False  # type: ignore[attr-defined]

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        pass

    async def shutdown_asyncgens(self) -> None:
        pass

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        pass

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> NoReturn:  # type: ignore[override]
        raise Escape("signals are real; tell the host to stop instead")


def _host_of(handle: Handle) -> Host:
    context = cast("Context", handle._context)  # type: ignore[attr-defined]
    return context.get(HOST, WORLD)
