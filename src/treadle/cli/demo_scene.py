"""What happens in `treadle demo`: a small shop's jobs, two worker processes, and everything that goes wrong in a week.

A scene is a row of acts. An act does something, looks at the database until it sees what came of it, and says so in
one line: nothing is told that did not happen. The acts leave a reader time; meanwhile the workers work.

At the end the books are made up: every job that an enqueue answered for must be in the database, and must have ended
as it was meant to.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..context.context import Call, Handle
from ..core.errors import TreadleError
from ..core.view import JobView, PodView, QueueView
from . import demo_tasks as shop
from .demo_view import Snapshot, View

LOOK_EVERY: Final = 0.1
PACE: Final = 1.0  # from one line of the story to the next, at least
MOST_JOBS: Final = 1000  # one page
BUSY: Final = 4  # so many jobs are worth a kill -9

_PREFIX: Final = "demo"
_LAST_WAIT: Final = 5.0
_ENDED: Final = ("succeeded", "failed", "cancelled")


class DemoFailed(TreadleError):
    """The demo could not show what it wanted to show."""


# ---------------------------------------------------------------------------------------------------------------------
# The workers


@dataclass(slots=True)
class Worker:
    number: int
    process: subprocess.Popen[bytes]
    log: Path
    killed: bool = False

    @property
    def name(self) -> str:
        return f"worker {self.number}"


class Workers:
    """`treadle worker`, as anybody would start it, in processes of its own. Leaving it leaves none behind."""

    def __init__(self, folder: Path, *, before: int = 0) -> None:
        self.all: list[Worker] = []
        self._folder = folder
        self._before = before  # so many were there earlier: numbers and logs go on

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> Worker:
        number = self._before + len(self.all) + 1
        command = [sys.executable, "-m", __package__ or "", "worker", "-A", f"{__package__}.demo_tasks:app"]
        command += ["-q", ",".join(f"{name}:{slots}" for name, slots in shop.QUEUES.items())]
        command += ["--parent", str(os.getpid())]
        log = self._folder / f"worker-{number}.log"
        with log.open("wb") as stream:
            # In a group of its own: Ctrl-C is for the demo, which then stops its workers itself.
            process = subprocess.Popen(  # noqa: S603 - our own command line
                command,
                cwd=self._folder,
                env={**os.environ, "TREADLE_WORKER_PREFIX": _PREFIX, "TREADLE_WORKER_ID": str(number)},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                process_group=0,
            )
        worker = Worker(number, process, log)
        self.all.append(worker)
        return worker

    def check(self) -> None:
        """All of them live, but those that were killed on purpose."""
        for worker in self.all:
            code = worker.process.poll()
            if code is not None and not worker.killed:
                said = worker.log.read_text("utf-8", "replace").strip().splitlines() or ["nothing"]
                raise DemoFailed(f"{worker.name} ended by itself, with {code}; the last line of its log: {said[-1]}")

    def stop(self) -> None:
        """Ask them to stop; who does not, in time, is killed."""
        left = [worker.process for worker in self.all if worker.process.poll() is None]
        for process in left:
            process.terminate()
        until = time.monotonic() + _LAST_WAIT
        try:
            for process in left:
                process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in left:
                process.kill()
                process.wait()


# ---------------------------------------------------------------------------------------------------------------------
# The books


@dataclass(slots=True)
class Ending:
    """What became of everything, from the database."""

    totals: dict[str, int]
    queues: list[dict[str, Any]]
    problems: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        return not self.problems


def books(jobs: Sequence[JobView], asked: Iterable[str], meant: dict[str, str]) -> Ending:
    """Make them up: `asked` are the ids that enqueues answered with, `meant` the ends that are not a success."""
    by_queue: dict[str, Counter[str]] = {name: Counter() for name in shop.QUEUES}
    still: Counter[tuple[str, str]] = Counter()
    problems: list[str] = []
    for job in jobs:
        row = by_queue.setdefault(job.queue, Counter())
        row["enqueued"] += 1
        row[job.state if job.state in _ENDED else "open"] += 1
        row["retried"] += job.attempt - job.crashes > 1
        row["snoozed"] += job.snoozes > 0
        row["throttled"] += job.throttles > 0
        row["rescued"] += job.crashes > 0
        if job.state not in _ENDED:
            still[job.state, job.task] += 1
        elif job.state != (wanted := meant.get(job.id, "succeeded")):
            why = f": {job.error.type} {job.error.message}".rstrip() if job.error else ""
            problems.append(f"{job.task} {job.id} {job.state}, and should have {wanted}{why}")
    problems += [f"still {state}: {number} of {task}" for (state, task), number in still.most_common()]
    asked = set(asked)
    known = {job.id for job in jobs}
    problems += [f"job {id} was enqueued and is not in the database" for id in sorted(asked - known)]
    problems += [f"job {id} is in the database and nobody enqueued it" for id in sorted(known - asked)]
    columns = ("enqueued", *_ENDED, "open", "retried", "snoozed", "throttled", "rescued")
    totals = {column: sum(row[column] for row in by_queue.values()) for column in columns}
    totals["enqueued"], totals["lost"] = len(asked), len(asked - known)
    rows = [{"name": name, **{column: row[column] for column in columns}} for name, row in by_queue.items()]
    return Ending(totals, rows, problems)


# ---------------------------------------------------------------------------------------------------------------------
# The scene


class Scene:
    def __init__(self, workers: Workers, view: View, folder: Path) -> None:
        self.figures: dict[str, float | int | None] = dict.fromkeys(
            ("duplicates", "overtaken", "rescue_seconds", "late_seconds")
        )
        self._app = shop.app
        self._workers = workers
        self._view = view
        self._folder = folder
        self._began = time.monotonic()
        self._told = 0.0
        self._asked: set[str] = set()
        self._meant: dict[str, str] = {}
        self._queues: dict[str, QueueView] = {}
        self._pods: dict[int, PodView] = {}  # by process id

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    async def play(self) -> None:
        await self._open()
        await self._fill()
        await self._overtake()
        await self._retry()
        await self._throttle()
        await self._twice()
        reminder = await self._later()
        await self._cancel()
        await self._fail()
        await self._exhaust()
        await self._snooze()
        await self._kill()
        await self._reminded(reminder)
        await self._until(lambda: not sum(map(_open, self._queues.values())))
        self._tell("done", "every job has ended. The count, from the database:")

    async def ending(self) -> Ending:
        """The books, as they are now."""
        return books(await self._jobs(), self._asked, self._meant)

    # Acts ------------------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._tell("start", "a new SQLite file and two worker processes; no broker needed")
        self._workers.start()
        self._workers.start()

    async def _fill(self) -> None:
        refused = {12: 1, 13: 2, 16: 1, 17: 1, 21: 2, 22: 3, 26: 1, 29: 2}
        calls: list[Call[Any]] = [
            *(shop.newsletter.bind(number) for number in range(190)),
            *(shop.thumbnail.bind(f"photo-{number}.jpg") for number in range(160)),
            *(shop.deliver.bind(number, refused.get(number, 0)) for number in range(50)),
            *(shop.monthly.bind(f"customer-{number}", 1.4 + number % 5 * 0.2) for number in range(66)),
            *(shop.sms.bind(f"+49 30 {number:04}") for number in range(40)),
            *(shop.charge.bind(number) for number in range(24)),
        ]
        begun = time.monotonic()
        handles = await self._app.enqueue_many(calls)
        took = time.monotonic() - begun
        self._note(*handles)
        hopeless = next(handle for handle, call in zip(handles, calls, strict=True) if '"refusals":3' in call.args)
        self._meant[hopeless.id] = "failed"
        self._tell("enqueue", f"{len(handles)} jobs in {_span(took)}, in one transaction: all or none")
        await self._until(lambda: len(self._live()) == 2)

    async def _overtake(self) -> None:
        await self._rest()
        handle = self._note(await shop.receipt.using(priority=10).enqueue(1001))
        await self._until_job(handle, lambda job: job.started_at is not None)
        waiting = self.figures["overtaken"] = self._queues["mail"].ready
        self._tell("priority", f"a receipt with priority=10 overtook {waiting} waiting mails")

    async def _retry(self) -> None:
        await self._rest()

        async def refused() -> bool:
            return sum(job.error_count > 0 for job in await self._jobs("queue:webhooks")) == 8

        await self._until(refused)
        self._tell("retry", "8 webhooks got a 503: tried again after 1 s, then after 2 s")

    async def _throttle(self) -> None:
        await self._rest()
        refuses = self._folder / shop.SMS_REFUSES
        refuses.touch()
        self._note(await shop.sms.using(priority=10).enqueue("+49 30 110"))
        await self._until(lambda: self._queues["sms"].cool_until is not None)
        await self._until(lambda: self._queues["sms"].running == 0)  # whoever called just now is refused too
        refuses.unlink()
        self._tell("throttle", "the SMS provider said 429: its queue cools, all others go on")

    async def _twice(self) -> None:
        await self._rest()
        task = shop.sync_stock.using(unique="stock:berlin", priority=5)
        first, second = await task.enqueue("berlin"), await task.enqueue("berlin")
        self._note(first, second)
        self.figures["duplicates"] = [first.outcome, second.outcome].count("duplicate")
        if first.id != second.id or second.outcome != "duplicate":
            raise DemoFailed(f"a unique job was enqueued twice: {first!r}, {second!r}")
        self._tell("unique", "a stock sync, asked for twice: the second is a duplicate")

    async def _later(self) -> Handle[Any]:
        await self._rest()
        handle = self._note(await shop.remind.using(delay="6s", priority=5).enqueue(77))
        self._tell("schedule", 'a reminder with delay="6s": a row in the file, not a timer')
        return handle

    async def _cancel(self) -> None:
        await self._rest()
        handle = self._note(await shop.monthly.using(priority=10).enqueue("the wrong one", seconds=300))
        self._meant[handle.id] = "cancelled"
        await self._until_job(handle, lambda job: job.state == "running")
        begun = time.monotonic()
        await handle.cancel()
        await self._until_job(handle, lambda job: job.state == "cancelled")
        took = time.monotonic() - begun
        self._tell("cancel", f"a report is cancelled as it runs, and stopped {_span(took)} later")

    async def _fail(self) -> None:
        await self._rest()
        handle = self._note(await shop.charge.using(priority=10).enqueue(1002, card="expired"))
        self._meant[handle.id] = "failed"
        await self._until_job(handle, lambda job: job.state == "failed")
        self._tell("fail", "a card has expired: Fail() ends it at once, with no retry")

    async def _exhaust(self) -> None:
        await self._rest()
        found: list[JobView] = []

        async def settled() -> bool:
            found[:] = [job for job in await self._jobs("queue:webhooks") if job.error_count > 0]
            return all(job.state in _ENDED for job in found)

        await self._until(settled)
        well = sum(job.state == "succeeded" for job in found)
        bad = len(found) - well
        self._tell("retry", f"{well} of them came through; {bad} failed for good, and is kept")

    async def _snooze(self) -> None:
        await self._rest()
        handle = self._note(await shop.export.using(priority=10).enqueue("2026-10"))
        await self._until_job(handle, lambda job: job.snoozes > 0)
        (self._folder / shop.EXPORT).touch()
        self._tell("snooze", 'a file is not there yet: Snooze("2s") costs it no attempt')

    async def _kill(self) -> None:
        await self._rest()
        if self._queues["reports"].ready < 8:  # on an odd machine they are done already; a dead worker must leave some
            self._note(*await self._app.enqueue_many(shop.monthly.bind(f"late-{number}") for number in range(8)))
        await self._until(lambda: self._busiest().running >= BUSY or not self._ready())
        pod = self._busiest()
        victim = next(worker for worker in self._live() if worker.process.pid == pod.pid)
        killed_at = time.time()
        victim.killed = True
        victim.process.kill()
        victim.process.wait()
        held = {job.id for job in await self._jobs(f"state:running pod:{pod.id}")}
        held |= {job.id for job in await self._jobs() if job.crashes}  # if somebody was faster than this look
        self._tell("kill -9", f"{victim.name} (pid {pod.pid}) dies in the middle of {len(held)} jobs")
        crashed: list[JobView] = []

        async def rescued() -> bool:
            crashed[:] = [job for job in await self._jobs() if job.crashes]
            return held <= {job.id for job in crashed}

        await self._until(rescued, every=0.05)
        took = max((job.error.ended_at.timestamp() for job in crashed if job.error and job.error.ended_at), default=0.0)
        took = max(0.0, took - killed_at)
        self.figures["rescue_seconds"] = round(took, 3)
        self._tell("rescue", f"rescued {len(crashed)} jobs {_span(took)} after kill -9: they run again")
        if page := max((int(job.progress.done) for job in crashed if job.progress is not None), default=0):
            self._tell("go on", f"a report had {page} of {shop.PAGES} pages: ctx.iterate goes on behind them")
        await self._rest()
        new = self._workers.start()
        # It may also come too late to find work, on a machine that is very slow to start it.
        await self._until(
            lambda: new in self._live() and (self._pods[new.process.pid].running > 0 or not self._ready())
        )
        share = "takes its share" if self._pods[new.process.pid].running else "waits for work"
        self._tell("start", f"{new.name} joins and {share}; nothing to configure")

    async def _reminded(self, handle: Handle[Any]) -> None:
        job = await self._until_job(handle, lambda job: job.state == "succeeded")
        assert job.started_at is not None
        late = self.figures["late_seconds"] = round(max(0.0, (job.started_at - job.run_at).total_seconds()), 3)
        await self._rest()
        self._tell("schedule", f"the reminder ran, {_span(late)} after it was due")

    # Looking ---------------------------------------------------------------------------------------------------------

    def _tell(self, word: str, text: str) -> None:
        self._told = self.seconds
        self._view.tell(self._told, word, text)

    def _note(self, *handles: Handle[Any]) -> Handle[Any]:
        self._asked.update(handle.id for handle in handles)
        return handles[0]

    async def _rest(self) -> None:
        await self._until(lambda: self.seconds >= self._told + PACE)

    async def _until_job(self, handle: Handle[Any], condition: Callable[[JobView], bool]) -> JobView:
        seen: list[JobView] = []

        async def met() -> bool:
            seen[:] = [await handle.status()]
            return condition(seen[0])

        await self._until(met, every=0.02)
        return seen[0]

    async def _until(self, condition: Callable[[], Any], every: float = LOOK_EVERY) -> None:
        """Look until it is so; the picture is drawn meanwhile."""
        looked = -LOOK_EVERY
        while True:
            if self.seconds - looked >= LOOK_EVERY:
                looked = self.seconds
                await self._look()
            met = condition()
            if await met if asyncio.iscoroutine(met) else met:
                return
            await asyncio.sleep(every)

    async def _look(self) -> None:
        self._workers.check()
        queues = {queue.name: queue for queue in await self._app.queues.list()}
        self._queues = {name: queues[name] for name in shop.QUEUES if name in queues}
        self._pods = {pod.pid: pod for pod in await self._app.pods.list() if pod.live}
        workers = [(worker.name, self._does(worker)) for worker in self._workers.all]
        self._view.show(Snapshot(self.seconds, time.time(), list(self._queues.values()), workers))

    def _live(self) -> list[Worker]:
        return [worker for worker in self._workers.all if worker.process.pid in self._pods and not worker.killed]

    def _busiest(self) -> PodView:
        """Of two that are busy enough, the one that does not lead: the other goes on noting how deep queues are, and
        the chart of depths in the dashboard has no gap just when something happens."""
        live = [self._pods[worker.process.pid] for worker in self._live()]
        return max(live, key=lambda pod: (min(pod.running, BUSY), not pod.leader, pod.running))

    def _ready(self) -> int:
        return sum(queue.ready for queue in self._queues.values())

    def _does(self, worker: Worker) -> str:
        if worker.killed:
            return "killed"
        pod = self._pods.get(worker.process.pid)
        return "starts" if pod is None else f"runs {pod.running}"

    async def _jobs(self, filter_text: str = "") -> Sequence[JobView]:
        return (await self._app.jobs.find(filter_text, limit=MOST_JOBS)).jobs


def _open(queue: QueueView) -> int:
    return queue.ready + queue.scheduled + queue.waiting + queue.running


def _span(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.0f} ms"
