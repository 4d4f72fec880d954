"""What the `jobs` fixture gives to a test: every app's jobs in memory, on a virtual clock, run by the real engine.

A drain starts a real pod on the memory storage and stops it when nothing is due; an app with nothing due is given none.
The clock stands still meanwhile, so what a task puts off (a retry, a snooze, a delay) waits until `advance` moves the
time; there is no mode that runs a job at enqueue, because it would hide the difference between "asked for" and "done".

What an `advance` costs depends on how often something falls due, not on how far the clock moves, nor on how many jobs
have ended: one pod of each app stays from instant to instant, and only jobs that have not ended are looked at.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from ..app import App
from ..config import Timing
from ..core import firing, payload
from ..core.backoff import Retry
from ..core.duration import Duration, seconds
from ..core.errors import TreadleError
from ..core.filter import parse
from ..core.job import CLAIMABLE, Change, Job, State
from ..core.schedule import Schedule
from ..core.view import JobView, job_view
from ..middleware import is_async
from ..ports import Gathers, Query
from ..runtime.pod import Pod
from ..runtime.services.cron import Cron
from ..runtime.services.rescuer import Rescuer
from ..storages.memory.storage import MemoryStorage
from ..tasks.signature import Signature
from ..tasks.task import BatchTask, Task
from .clock import FakeClock

P = ParamSpec("P")
T = TypeVar("T")

# Fast, because nothing here waits for anything real; a long lease, because the virtual clock may jump.
_TIMING: Final = Timing(lease=1e9, beat=60.0, poll=1.0, start_jitter=0.0, grace=5.0, cancel_grace=1.0)
_MOST_INSTANTS: Final = 10_000
_GATHERS: Final = 0.05  # real seconds in which a batch task gathers what is due


class UnexpectedFailure(AssertionError):
    """A job failed for good in a drain that expected none to. The text is the task's own traceback."""


class _Kept(MemoryStorage):
    """The jobs of one app, and when something of theirs falls due."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._next_fires: dict[str, tuple[Schedule, float | None]] = {}  # worked out once for each cursor

    def queue_versions(self) -> dict[str, int]:
        """Every queue, with the version of its settings."""
        return {name: queue.version for name, queue in sorted(self._queues.items())}

    @property
    def has_rates(self) -> bool:
        return any(queue.rate is not None for queue in self._queues.values())

    def job_times(self) -> list[float]:
        """When jobs may run, or might have."""
        return [row.job.run_at for row in self._live_rows() if row.job.state in CLAIMABLE]

    def is_due(self) -> bool:
        now = self._clock.now()
        return any(at <= now for at in self.job_times())

    def wait_ends(self) -> list[float]:
        """When waits for an answer are over."""
        jobs = (row.job for row in self._live_rows() if row.job.state is State.WAITING)
        return [job.deadline for job in jobs if job.deadline is not None]

    def fire_times(self) -> list[float]:
        """When schedules fire next."""
        return [at for each in self._schedules.values() if (at := self._fire_time(each)) is not None]

    def _fire_time(self, schedule: Schedule) -> float | None:
        known, at = self._next_fires.get(schedule.name, (None, None))
        if known is not schedule:
            at = firing.next_fire(schedule)
            self._next_fires[schedule.name] = (schedule, at)
        return at


class _Worker:
    """The pod of one app, for as long as one drain or advance lasts; started when something is due."""

    def __init__(self, app: App, storage: _Kept) -> None:
        self.failures: list[str] = []
        self._app = app
        self._storage = storage
        self._pod: Pod | None = None
        self._gathering: list[Gathers] = []
        self._serves: object = None  # what the pod has read as it started
        self._close = AsyncExitStack()

    async def run_due(self) -> None:
        """Run what is due; what falls due at once meanwhile, and in new queues, too."""
        while True:
            served = self._storage.queue_versions().keys()
            pod = await self._fitting_pod()
            claimed = pod.turner.counts["claimed"]
            pod.turner.look_now()
            await self._idle(pod)
            # What a paused queue or an unknown task holds back stays due.
            if self._storage.queue_versions().keys() != served:
                continue
            if pod.turner.counts["claimed"] == claimed or not self._storage.is_due():
                return

    async def _idle(self, pod: Pod) -> None:
        """Until nothing is left to do. What is due has been claimed: a batch task has nobody to wait for."""
        while True:
            try:
                async with asyncio.timeout(_GATHERS if self._gathering else None):
                    await pod.turner.idle.wait()
                    return
            except TimeoutError:
                for executor in self._gathering:
                    executor.begin()

    async def _fitting_pod(self) -> Pod:
        """The pod, or another one if it would not hear of a change in time: of queues, of their settings, of tasks. A
        pod that counts tokens counts in real seconds, so it serves one instant only."""
        serves = (self._storage.queue_versions(), len(self._app.tasks))
        if self._pod is None or serves != self._serves or self._storage.has_rates:
            await self.close()
            worker = self._app.worker([*serves[0]], timing=_TIMING, leads=False, children=False)
            self._pod = await self._close.enter_async_context(worker)
            self._app.hooks.add("failed", self._note)
            self._close.callback(self._app.hooks.failed.remove, self._note)
            self._serves, self._gathering = serves, self._pod.gathering
        return self._pod

    def _note(self, job: JobView) -> None:
        error = job.error
        self.failures.append(f"{job.task} {job.args}: {error.trace or error.message}" if error else job.task)

    async def end_waits(self) -> None:
        """What a Rescuer does for jobs that nobody has answered in time."""
        app = self._app

        def retry_of(name: str) -> Retry | None:
            return None if (task := app.find(name)) is None else app.retry_of(task)

        def note(change: Change, job: Job) -> None:
            if change.to is State.FAILED:
                said = "" if change.error is None else change.error.message
                self.failures.append(f"{job.task} {job.args}: {said}")

        chance = random.Random(0)  # noqa: S311 - for the jitter of a retry
        rescuer = Rescuer(
            self._storage,
            _TIMING,
            chance,
            every=1.0,
            jitter=0.0,
            rescued=note,
            ended=note,
            beat_age=lambda: 0.0,
            retry_of=retry_of,
        )
        await rescuer.end_waits()

    async def close(self) -> None:
        self._pod = None
        await self._close.aclose()


class Jobs:
    """The jobs of a test."""

    def __init__(self) -> None:
        self.clock = FakeClock(time.time())  # tasks may look at the real date: start there
        self._lent: dict[App, _Kept] = {}
        self._crons: dict[App, Cron] = {}
        self._rounds = 0  # drains and advances: what apps declare is looked at once in each

    def use(self, *apps: App) -> None:
        """Keep these apps' jobs in memory until the test ends."""
        for app in apps:
            if app not in self._lent:
                self._lent[app] = storage = _Kept(self.clock)
                app.lend(storage)
                self._crons[app] = Cron(storage, app.declared_schedules, term=lambda: self._rounds)

    def give_back(self) -> None:
        for app in self._lent:
            app.take_back()
        self._lent.clear()
        self._crons.clear()

    # Look ------------------------------------------------------------------------------------------------------------

    def find(self, filter: str = "") -> list[JobView]:
        """The jobs that match, oldest first."""
        query = Query(filter=parse(filter), limit=1_000_000)
        found: list[Job] = []
        for storage in self._lent.values():
            found += _now(storage.find(query)).jobs
        return [job_view(job) for job in sorted(found, key=lambda job: job.id)]

    def enqueued(self, task: Task[..., Any]) -> list[JobView]:
        """All jobs of a task, in whatever state."""
        return [job for job in self.find() if job.task == task.name]

    def assert_enqueued(self, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> JobView:
        """There is a job of this task with these arguments; the newest is the answer."""
        wanted = payload.decode_trusted(task.bind(*args, **kwargs).args)
        jobs = self.enqueued(task)
        matching = [job for job in jobs if job.args == wanted]
        if not matching:
            others = "".join(f"\n  {job.args}" for job in jobs) or "\n  (none)"
            raise AssertionError(f"no job of {task.name} with {wanted}; its jobs are:{others}")
        return matching[-1]

    def assert_not_enqueued(self, task: Task[..., Any]) -> None:
        if jobs := self.enqueued(task):
            raise AssertionError(f"{len(jobs)} jobs of {task.name} were enqueued, the last with {jobs[-1].args}")

    # Run -------------------------------------------------------------------------------------------------------------

    async def drain(self, *, expect_failures: bool = False) -> None:
        """Run everything that is due. A job that fails for good fails the test here, unless failures are expected; one
        that will be tried again does not."""
        async with self._workers() as workers:
            await self._run_due(workers, expect_failures, register=True)

    async def advance(self, duration: Duration, *, expect_failures: bool = False) -> None:
        """Move the clock, stopping at each instant at which something falls due to run it."""
        target = self.clock.now() + seconds(duration)
        async with self._workers() as workers:
            await self._run_due(workers, expect_failures, register=True)
            for _ in range(_MOST_INSTANTS):
                due = self._next_due()
                if due is None or due > target:
                    self.clock.advance(max(0.0, target - self.clock.now()))
                    return
                self.clock.advance(max(0.0, due - self.clock.now()))
                await self._run_due(workers, expect_failures)
        raise TreadleError(f"something falls due more than {_MOST_INSTANTS} times within {duration}: advance in steps")

    def drain_sync(self, *, expect_failures: bool = False) -> None:
        asyncio.run(self.drain(expect_failures=expect_failures))

    def advance_sync(self, duration: Duration, *, expect_failures: bool = False) -> None:
        asyncio.run(self.advance(duration, expect_failures=expect_failures))

    @contextmanager
    def override(self, task: Task[..., Any], function: Callable[..., Any]) -> Generator[None]:
        """Within the block, run this function in place of the task's own: `with jobs.override(charge, fake_charge):`.
        It is called as the task's function would be, with a context only if it takes one; name, options and the check
        of arguments stay the task's. It may be a mock, plain or async, and replace a command, pool or HTTP task."""
        batch = isinstance(task, BatchTask)
        where = "called_in" if batch else "executor"
        own = {name: getattr(task, name) for name in ("function", "is_async", "takes_context", where)}
        task.function, task.is_async = function, is_async(function)
        task.takes_context = _takes_context(task, function)
        setattr(task, where, "async" if task.is_async else "thread")
        try:
            yield
        finally:
            for name, value in own.items():
                setattr(task, name, value)

    @asynccontextmanager
    async def _workers(self) -> AsyncGenerator[dict[App, _Worker]]:
        self._rounds += 1
        workers = {app: _Worker(app, storage) for app, storage in self._lent.items()}
        try:
            yield workers
        finally:
            for worker in workers.values():
                await worker.close()

    async def _run_due(self, workers: dict[App, _Worker], expect_failures: bool, *, register: bool = False) -> None:
        """Whatever is due now. For an app without anything due this is a look, and no more, unless what it declares is
        to be registered, too."""
        failures: list[str] = []
        now = self.clock.now()
        for app, worker in workers.items():
            storage = self._lent[app]
            if register or any(at <= now for at in storage.fire_times()):
                await self._crons[app].run_once()
            if any(at <= now for at in storage.wait_ends()):
                await worker.end_waits()
            if storage.is_due():
                await worker.run_due()
            failures += worker.failures
            worker.failures.clear()
        if failures and not expect_failures:
            raise UnexpectedFailure("\n".join(failures))

    def _next_due(self) -> float | None:
        now = self.clock.now()
        times = (
            at for each in self._lent.values() for at in (*each.job_times(), *each.wait_ends(), *each.fire_times())
        )
        return min((at for at in times if at > now), default=None)


def _takes_context(task: Task[..., Any], function: Callable[..., Any]) -> bool:
    try:
        return Signature(function, task.name).takes_context
    except ValueError:
        return False  # some callables have no signature to be read


def _now(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a memory verb: it never waits, so it needs no loop."""
    try:
        work.send(None)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    raise AssertionError("a verb of the memory storage has waited")
