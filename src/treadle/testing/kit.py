"""What the `jobs` fixture gives to a test: every app's jobs in memory, on a virtual clock, run by the real engine.

A drain starts a real pod on the memory storage and stops it when nothing is due; an app with nothing due is given none.
The clock stands still meanwhile, so what a task puts off (a retry, a snooze, a delay) waits until `advance` moves the
time; there is no mode that runs a job at enqueue, because it would hide the difference between "asked for" and "done".

What an `advance` costs depends on how often something falls due, not on how far the clock moves.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Coroutine
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
from ..ports import Query
from ..runtime.pod import Pod
from ..runtime.services.cron import Cron
from ..runtime.services.rescuer import Rescuer
from ..storages.memory import MemoryStorage
from ..tasks import Task
from .clock import FakeClock

P = ParamSpec("P")
T = TypeVar("T")

# Fast, because nothing here waits for anything real; a long lease, because the virtual clock may jump.
_TIMING: Final = Timing(lease=1e9, beat=60.0, poll=0.01, start_jitter=0.0, grace=5.0, cancel_grace=1.0)
_MOST_INSTANTS: Final = 10_000
_GATHERS: Final = 0.05  # real seconds in which a batch task gathers what is due


class UnexpectedFailure(AssertionError):
    """A task failed in a drain that expected none. The text is the task's own traceback."""


class _Kept(MemoryStorage):
    """The jobs of one app, and when something of theirs falls due."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._next_fires: dict[str, tuple[Schedule, float | None]] = {}  # worked out once for each cursor

    def queue_names(self) -> list[str]:
        return sorted(self._queues)

    def job_times(self) -> list[float]:
        """When jobs may run, or might have."""
        return [row.job.run_at for row in self._rows.values() if row.job.state in CLAIMABLE]

    def wait_ends(self) -> list[float]:
        """When waits for an answer are over."""
        jobs = (row.job for row in self._rows.values() if row.job.state is State.WAITING)
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


class Jobs:
    """The jobs of a test."""

    def __init__(self) -> None:
        self.clock = FakeClock(time.time())  # tasks may look at the real date: start there
        self._lent: dict[App, _Kept] = {}
        self._crons: dict[App, Cron] = {}

    def use(self, *apps: App) -> None:
        """Keep these apps' jobs in memory until the test ends."""
        for app in apps:
            if app not in self._lent:
                self._lent[app] = storage = _Kept(self.clock)
                app.lend(storage)
                self._crons[app] = Cron(storage, app.declared_schedules, steady=self.clock.steady)

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
        """Run everything that is due. A task that raises fails the test here, unless failures are expected."""
        await self._run_due(expect_failures, register=True)

    async def advance(self, duration: Duration, *, expect_failures: bool = False) -> None:
        """Move the clock, stopping at each instant at which something falls due to run it."""
        target = self.clock.now() + seconds(duration)
        await self.drain(expect_failures=expect_failures)
        for _ in range(_MOST_INSTANTS):
            due = self._next_due()
            if due is None or due > target:
                self.clock.advance(max(0.0, target - self.clock.now()))
                return
            self.clock.advance(max(0.0, due - self.clock.now()))
            await self._run_due(expect_failures)
        raise TreadleError(f"something falls due more than {_MOST_INSTANTS} times within {duration}: advance in steps")

    def drain_sync(self, *, expect_failures: bool = False) -> None:
        asyncio.run(self.drain(expect_failures=expect_failures))

    def advance_sync(self, duration: Duration, *, expect_failures: bool = False) -> None:
        asyncio.run(self.advance(duration, expect_failures=expect_failures))

    async def _run_due(self, expect_failures: bool, *, register: bool = False) -> None:
        """Whatever is due now. For an app without anything due this is a look, and no more, unless what it declares is
        to be registered, too."""
        failures: list[str] = []
        now = self.clock.now()
        for app, storage in self._lent.items():
            if register or any(at <= now for at in storage.fire_times()):
                await self._crons[app].run_once()
            if any(at <= now for at in storage.wait_ends()):
                await _end_waits(app, storage, failures)
            if any(at <= now for at in storage.job_times()):
                await self._run_jobs(app, storage, failures)
        if failures and not expect_failures:
            raise UnexpectedFailure("\n".join(failures))

    async def _run_jobs(self, app: App, storage: _Kept, failures: list[str]) -> None:
        def note(job: JobView) -> None:
            error = job.error
            failures.append(f"{job.task} {job.args}: {error.trace or error.message}" if error else job.task)

        app.hooks.add("retried", note)
        app.hooks.add("failed", note)
        try:
            async with app.worker(storage.queue_names(), timing=_TIMING, leads=False, children=False) as pod:
                await _idle(pod)
        finally:
            app.hooks.retried.remove(note)
            app.hooks.failed.remove(note)

    def _next_due(self) -> float | None:
        now = self.clock.now()
        times = (
            at for each in self._lent.values() for at in (*each.job_times(), *each.wait_ends(), *each.fire_times())
        )
        return min((at for at in times if at > now), default=None)


async def _idle(pod: Pod) -> None:
    """Until nothing is left to do. What is due has been claimed: a batch task has nobody to wait for."""
    while True:
        try:
            async with asyncio.timeout(_GATHERS if pod.gathering else None):
                await pod.turner.idle.wait()
                return
        except TimeoutError:
            for executor in pod.gathering:
                executor.begin()


async def _end_waits(app: App, storage: MemoryStorage, failures: list[str]) -> None:
    """What a Rescuer does for jobs that nobody has answered in time."""

    def retry_of(name: str) -> Retry | None:
        return None if (task := app.find(name)) is None else task.retry

    def note(change: Change, job: Job) -> None:
        failures.append(f"{job.task} {job.args}: {'' if change.error is None else change.error.message}")

    chance = random.Random(0)  # noqa: S311 - for the jitter of a retry
    rescuer = Rescuer(
        storage,
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


def _now(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a memory verb: it never waits, so it needs no loop."""
    try:
        work.send(None)
    except StopIteration as answer:
        return answer.value  # type: ignore[no-any-return]
    raise AssertionError("a verb of the memory storage has waited")
