"""Pools: long-lived workers in any language, each running one job at a time, spoken to in lines of JSON.

Theory
------
A pool has `size` seats. Each seat is kept by a task of its own: start a worker, greet it, let it work until it is gone,
rest a little, start the next. A worker that cannot be started costs no job: `places` counts those that are ready, and
what nobody is ready for stays in its queue.

What a worker does wrong costs the job that it was running, and the worker:

=====================  ==============================================================================
garbage, a wrong id,   killed; the attempt has failed
a line without end
silence                killed, if the pool has a heartbeat; the attempt met a limit
death                  the attempt is lost, and counted as a crash
a cancel ignored       TERM to its group, then KILL
=====================  ==============================================================================
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ..core.errors import ConfigError
from ..core.outcome import Fail, Snooze
from ..ports import Call
from ..tasks.external.pool import PoolSpec, PoolTask
from ..trace import mask
from . import posix
from .pool_worker import NotReady, Worker

FIRST_REST: Final = 0.1
LONGEST_REST: Final = 30.0
STEADY: Final = 10.0  # a worker that lived so long was no false start
WITHOUT_WORKER: Final = 5.0  # how long a claimed job waits for one, and is then put off
LAST_CALL: Final = 1.0
START_AWAITED: Final = 5.0


class PoolExecutor:
    cancels = True
    asks = True

    def __init__(self, spec: PoolSpec, find: Callable[[str], PoolTask | None], *, grace: float = 5.0) -> None:
        self.name = spec.executor
        self._spec = spec
        self._find = find
        self._grace = grace
        self._idle: deque[Worker] = deque()
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._workers: set[Worker] = set()
        self._seats: list[asyncio.Task[None]] = []
        self._ending: set[asyncio.Task[Any]] = set()
        self._closing = False
        self._trouble: str | None = None
        self.freed: Callable[[], None] = _nobody  # called when there is a worker more; whoever claims sets it
        self._log = logging.getLogger(f"treadle.pool.{spec.name}")

    @property
    def trouble(self) -> str | None:
        """Why it can run nothing now. From any thread."""
        return self._trouble

    def places(self) -> int | None:
        return len(self._idle)

    async def start(self) -> None:
        what = f"pool {self._spec.name}"
        if warning := posix.check_program(self._spec.argv[0], what):
            self._log.warning("%s", warning)
        if (cwd := self._spec.around.cwd) is not None and not _is_folder(cwd):
            raise ConfigError(f"{what}: its cwd {cwd} is not a folder")
        self._closing = False
        firsts = [asyncio.Event() for _ in range(self._spec.size)]
        self._seats = [asyncio.create_task(self._keep(first), name=self.name) for first in firsts]
        # So that the first claim finds them. If they take longer, jobs wait where they are.
        waits = [asyncio.create_task(first.wait()) for first in firsts]
        await asyncio.wait(waits, timeout=min(START_AWAITED, self._spec.start))
        for wait in waits:
            wait.cancel()

    async def run(self, call: Call) -> Any:
        job = call.job
        task = None if job is None else self._find(job.task)
        if job is None or task is None:
            raise Fail(f"pool {self._spec.name} knows no such task")
        worker = await self._take()
        ending = asyncio.create_task(worker.run(job, task, call.context))
        self._ending.add(ending)
        ending.add_done_callback(lambda done: self._freed(done, worker))
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            if ending.done():
                return ending.result()  # it was done before it could be stopped: that is no cancel any more
            stopping = call.context is not None and call.context.stopping
            worker.cancel(self._grace / 2 if stopping else self._grace)
            return await asyncio.shield(ending)  # what it says all the same counts, and so does what it raises

    async def close(self) -> None:
        self._closing = True
        for worker in list(self._workers):
            worker.dismiss(LAST_CALL / 2)
        if self._seats:
            await asyncio.wait(self._seats, timeout=LAST_CALL)
        for seat in self._seats:
            seat.cancel()
        await asyncio.gather(*self._seats, return_exceptions=True)
        self._seats = []
        self._idle.clear()

    async def _take(self) -> Worker:
        while self._idle:
            worker = self._idle.popleft()
            if worker.is_fit:
                return worker
        future: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(WITHOUT_WORKER):
                return await future
        except BaseException as error:
            if future in self._waiting:
                self._waiting.remove(future)
            if future.done() and not future.cancelled():
                self._offer(future.result())  # given to us in the moment in which we went away
            if isinstance(error, TimeoutError):
                raise Snooze(WITHOUT_WORKER) from None
            raise

    def _offer(self, worker: Worker) -> None:
        """The worker is free: for whoever waits, or for the next claim."""
        if not worker.is_fit:
            return
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(worker)
                return
        self._idle.append(worker)

    def _freed(self, ending: asyncio.Task[Any], worker: Worker) -> None:
        self._ending.discard(ending)
        if not ending.cancelled():
            ending.exception()  # it has been told to whoever waited
        if self._spec.recycle is not None and worker.served >= self._spec.recycle:
            worker.dismiss(self._grace)
        self._offer(worker)

    async def _keep(self, first: asyncio.Event) -> None:
        """One seat, for ever."""
        failures = 0
        loop = asyncio.get_running_loop()
        while not self._closing:
            worker = Worker(self._spec, self._log)
            self._workers.add(worker)
            began = loop.time()
            try:
                await worker.start()
                self._trouble = None
                self._offer(worker)
                self.freed()
                first.set()
                why = mask(await worker.gone())  # it may hold a line of what the worker wrote
            except (NotReady, OSError) as error:
                why = mask(str(error))
            finally:
                worker.kill()
                self._workers.discard(worker)
                if worker in self._idle:
                    self._idle.remove(worker)
            first.set()
            good = worker.served > 0 or loop.time() - began > STEADY
            failures = 0 if good else failures + 1
            rest = min(LONGEST_REST, FIRST_REST * 2.0**failures)
            if worker.dismissed:
                rest = 0.0
            elif self._closing:
                return
            else:
                if not any(each.is_working for each in self._workers):
                    self._trouble = f"pool {self._spec.name}: {why}"
                self._log.error("pool %s: %s; the next worker in %g s", self._spec.name, why, rest)
            await asyncio.sleep(rest)


def _nobody() -> None:
    pass


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)
