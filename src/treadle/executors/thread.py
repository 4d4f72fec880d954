"""Plain functions, in threads of a pool of our own.

Why not `ThreadPoolExecutor`: the interpreter joins its threads at exit, so one task that never returns would keep the
process for ever. These are daemons. And an exception is carried as a value: a future refuses `StopIteration`, and
`SystemExit` in a pool thread would end the thread.

A thread cannot be stopped from outside. A call that is asked to stop (by `ctx.cancelled`) and does not is given up by
its run; its thread, and so its place, stays taken until it returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

from ..ports import Call

_Work = Callable[[], None]


class ThreadExecutor:
    name = "thread"
    cancels = False
    asks = False

    def __init__(self, size: int) -> None:
        self.size = size  # a thread is started when a call finds none idle
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._threads = 0
        self.busy = 0  # counted on the loop's side, so that a place is taken the moment it is given

    def places(self) -> int | None:
        return self.size - self.busy

    async def start(self) -> None:
        pass

    async def run(self, call: Call) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            value, error = None, None
            try:
                value = context.run(call.function, *call.args, **call.kwargs)
            except BaseException as caught:  # whatever it is, it is this job's, and the thread lives on
                error = caught
            _answer(loop, self, answer, value, error)

        if self._threads <= self.busy:
            name = f"treadle-thread-{self._threads + 1}"
            threading.Thread(target=_serve, args=(self._work,), name=name, daemon=True).start()
            self._threads += 1
        self.busy += 1
        self._work.put(work)
        value, error = await asyncio.shield(answer)
        if error is not None:
            raise error
        return value

    async def close(self) -> None:
        for _ in range(self._threads):
            self._work.put(None)
        self._threads = 0
        # Whoever is still busy reads his end in the old queue, and not the work of a next start.
        self._work = queue.SimpleQueue()

    def returned(self, answer: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self.busy -= 1
        if not answer.done():
            answer.set_result((value, error))


def _serve(works: queue.SimpleQueue[_Work | None]) -> None:
    while (work := works.get()) is not None:
        work()
        del work  # an idle thread must not keep the last job's arguments alive


def _answer(
    loop: asyncio.AbstractEventLoop,
    executor: ThreadExecutor,
    answer: asyncio.Future[Any],
    value: Any,
    error: BaseException | None,
) -> None:
    try:
        loop.call_soon_threadsafe(executor.returned, answer, value, error)
    except RuntimeError:
        pass  # the loop has ended; so has the pod, and the job's claim with it
