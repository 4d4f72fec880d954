"""A pod on memory storage, and one task that acts by its argument."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from treadle.client.client import Client
from treadle.config import Limits, Timing
from treadle.context.context import Context
from treadle.core.backoff import Retry
from treadle.core.job import Job, State
from treadle.core.outcome import Cancel, Fail, RetryAfter, Snooze, Throttle
from treadle.executors.async_ import AsyncExecutor
from treadle.executors.thread import ThreadExecutor
from treadle.runtime.pod import Pod
from treadle.storages.memory.storage import MemoryStorage
from treadle.tasks.task import Registry

QUICK = Timing(
    lease=3.0,
    beat=0.2,
    scan=0.1,
    poll=0.05,
    grace=2.0,
    cancel_grace=0.3,
    overdue=0.3,
    leader_ttl=1.0,
    leader_every=0.05,
    loop_lag=0.1,
    start_jitter=0.0,
)
ONCE = Retry(max_attempts=1)


class Odd(BaseException):
    """Derives from BaseException only."""


class Kept:
    """A storage that is always open."""

    def __init__(self, storage: Any) -> None:
        self.current = storage

    async def open(self) -> Any:
        return self.current

    def run_sync(self, work: Any) -> Any:
        raise AssertionError("no sync calls in these tests")


class World:
    """A registry of test tasks, a storage, and what the tasks saw."""

    def __init__(self) -> None:
        self.storage = MemoryStorage()
        self.registry = Registry()
        self.seen: list[Any] = []
        self.release = asyncio.Event()
        self.let_go = threading.Event()
        self.started = asyncio.Event()
        self.client = Client(Kept(self.storage))
        self._declare()

    def _declare(self) -> None:
        @self.registry.task(name="act", retry=Retry.fixed(0, max_attempts=3, jitter=0))
        async def act(ctx: Context, what: str) -> Any:
            self.seen.append((what, ctx.attempt))
            self.started.set()
            match what:
                case "return":
                    return 42
                case "raise":
                    raise ValueError("no luck")
                case "exit":
                    raise SystemExit(3)
                case "interrupt":
                    raise KeyboardInterrupt
                case "odd":
                    raise Odd("strange")
                case "cancel-itself":
                    raise asyncio.CancelledError
                case "snooze":
                    raise Snooze("1h")
                case "throttle":
                    raise Throttle("30s")
                case "retry-after":
                    raise RetryAfter("1h")
                case "fail":
                    raise Fail("gone")
                case "cancel":
                    raise Cancel("not wanted")
                case "unserialisable":
                    return object()
                case "hang":
                    await self.release.wait()
                    return "released"
                case "deaf":
                    while not self.release.is_set():
                        try:
                            await self.release.wait()
                        except asyncio.CancelledError:
                            continue
                case "swallow":
                    try:
                        await self.release.wait()
                    except asyncio.CancelledError:
                        return "in spite of it"
                case _:
                    raise AssertionError(what)

        @self.registry.task(name="plain", retry=ONCE)
        def plain(ctx: Context, what: str) -> Any:
            self.seen.append((what, ctx.attempt))
            match what:
                case "return":
                    return threading.current_thread().name
                case "stop-iteration":
                    raise StopIteration(1)
                case "exit":
                    raise SystemExit(1)
                case "polite":
                    while not ctx.cancelled and not self.let_go.wait(0.005):
                        pass
                    raise RuntimeError("stopped as asked")
                case "deaf":
                    self.let_go.wait(30)
                    return "late"
                case _:
                    raise AssertionError(what)

        @self.registry.task(name="quick", timeout="100ms", retry=ONCE)
        async def quick(what: str) -> None:
            if what == "hang":
                await self.release.wait()
            if what == "own-timeout":
                raise TimeoutError("of its own")
            if what == "block":
                self.let_go.wait(0.4)

        self.act, self.plain, self.quick = act, plain, quick

    @asynccontextmanager
    async def pod(
        self,
        *,
        storage: Any = None,
        slots: int = 10,
        queues: dict[str, int] | None = None,
        timing: Timing = QUICK,
        **more: Any,
    ) -> AsyncIterator[Pod]:
        pod = Pod(
            storage=storage or self.storage,
            registry=self.registry,
            executors={"async": AsyncExecutor(), "thread": ThreadExecutor(4)},
            queues=queues or {"default": slots},
            door=self.client,
            timing=timing,
            limits=Limits(),
            **more,
        )
        await pod.start()
        try:
            yield pod
        finally:
            self.release.set()
            self.let_go.set()
            await pod.stop()

    async def enqueue_unknown(self) -> str:
        """A job whose task no pod here knows."""
        elsewhere = Registry()

        @elsewhere.task(name="unheard.of")
        async def stranger() -> None: ...

        return await self.enqueue(stranger)

    async def enqueue(self, task: Any, *args: Any, **options: Any) -> str:
        return (await self.client.enqueue(task.using(**options).bind(*args))).id

    async def job(self, id: str) -> Job:
        (job,) = await self.storage.get([id])
        return job

    async def wait_for(self, id: str, *states: State, check: Callable[[Job], bool] | None = None) -> Job:
        """The job once it is in one of the states; polls, because a test must not depend on the wakes it tests."""
        async with asyncio.timeout(10):
            while True:
                job = await self.job(id)
                if job.state in states and (check is None or check(job)):
                    return job
                await asyncio.sleep(0.002)


@pytest.fixture
async def world() -> World:
    return World()
