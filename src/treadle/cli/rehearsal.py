"""`treadle jobs run ID --here`: the task of a stored job, run in this process, for a failure that must be looked into.

The job is read, and nothing of it is written: there is no claim, so no pod and no Rescuer ever hears of this run. The
app sees its storage through a Rehearsal for that time. It hands every read on, and rate limits and locks, which guard
what the task does to others; it lists what the task enqueues instead of writing it, by whatever way that comes; it
rolls a `ctx.transaction` back where it would commit; and it refuses all else. What the task does outside Treadle is
real.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast

import click
from msgspec.structs import replace

from ..context.context import Context
from ..core import lifecycle
from ..core.errors import JobNotFound, ReadOnly, UnknownTask
from ..core.job import Change, Job, NewJob, State
from ..core.outcome import Fail, Outcome, RetryAfter, Signal
from ..core.text import visible_lines
from ..executors.batch import BatchExecutor
from ..executors.inline import InlineExecutor
from ..ports import Applied, Call, Executor, Inserted, Storage
from ..runtime.run import Run, drive
from ..tasks.follow_ups import FollowUps
from ..tasks.task import BatchTask, OutsideTask, Task
from ..web.storage_views import READS

if TYPE_CHECKING:
    from ..app import App
    from ..core.progress import Progress, Reported

# Beside what reads: limits and locks are for those whom the task calls, and it does call them.
_THROUGH: Final = READS | {"answer_of", "drain_limit", "free", "seize", "take"}
_TASKS_SHOWN: Final = 10

Say = Callable[[str], None]


class Played(NamedTuple):
    """What came of it: the job as it is stored, what a worker would have written, and what it would have enqueued."""

    job: Job
    change: Change
    enqueued: Sequence[NewJob]


async def play(app: App, id: str, *, debug: bool, apart: bool, say: Say) -> Played:
    """Run it. `apart`: what the task prints goes to stderr."""
    async with app:
        found = await app.storage.get((id,))
        if not found:
            raise JobNotFound(f"there is no job {id}")
        job = found[0]
        task = _task_of(app, job)
        if job.state is State.RUNNING:
            say(f"job {id} runs in pod {job.pod} meanwhile: what it does may happen twice")
        printed = contextlib.redirect_stdout(sys.stderr) if apart else contextlib.nullcontext()
        with _rehearsed(app, Rehearsal(app.storage, id, say)) as rehearsal, printed:
            await app.open()
            async with app.lived() as state:
                change = await _driven(app, task, job, rehearsal, state, debug)
        return Played(job, change, rehearsal.enqueued)


def _task_of(app: App, job: Job) -> Task[..., Any]:
    task = app.find(job.task)
    if task is None:
        known = sorted(app.tasks)
        more = ", …" if len(known) > _TASKS_SHOWN else ""
        raise UnknownTask(f'no task "{job.task}" in the App; it has {", ".join(known[:_TASKS_SHOWN]) or "none"}{more}')
    if isinstance(task, OutsideTask):
        kind = task.executor.partition(":")[0]
        raise click.UsageError(f"{task.name} is run outside Python ({kind}): there is nothing of it to run here")
    return task


async def _driven(app: App, task: Task[..., Any], job: Job, rehearsal: Rehearsal, state: Any, debug: bool) -> Change:
    """The run, by the worker's own code, up to the Change that a worker would write."""
    # A token that no row has: whatever would be written by it is refused by the storage, too.
    mine = replace(
        job, state=State.RUNNING, attempt=max(1, job.attempt), token=f"here:{os.urandom(8).hex()}", pod=None,
        slot=None, started_at=await app.storage.time(), deadline=None, finished_at=None, cancel_wanted=False, kept=None,
    )  # fmt: skip
    inner = HereExecutor(debug)
    batch = cast("BatchTask[Any, Any]", task) if isinstance(cast("Any", task), BatchTask) else None
    executor: Executor = inner if batch is None else BatchExecutor(batch, inner, 1)
    run = Run(mine, task, executor, 0, asyncio.get_running_loop().time())
    run.stack = app.stack_of(task) or None
    declared = FollowUps(app.find, app.client)
    outcomes: list[Outcome] = []
    await drive(run, _context(app, run, rehearsal, state, declared), lambda _, outcome: outcomes.append(outcome))
    await inner.close()
    change = lifecycle.finish(mine, outcomes[0], app.retry_of(task), 0.5)
    if not run.settled:  # else its transaction has shown them
        change = declared.added(change, mine)
        rehearsal.note(change.follow_ups)
    return change


def _context(app: App, run: Run, rehearsal: Rehearsal, state: Any, declared: FollowUps) -> Context[Any]:
    return Context(
        job=run.job,
        state=state,
        slot="here",
        max_attempts=lifecycle.most_attempts(run.job, app.retry_of(run.task)),
        door=app.client,
        notebook=_Notebook(rehearsal),
        declared=declared if run.task.followed else None,
        committed=run.commit,
    )


class HereExecutor(InlineExecutor):
    """Every task in this process: coroutines on the loop, plain functions in a thread, as in a worker. With `debug`,
    the debugger stands where a call has failed, while all that it uses is still open."""

    def __init__(self, debug: bool) -> None:
        super().__init__(1)
        self._debug = debug

    async def run(self, call: Call) -> Any:
        try:
            return await super().run(call)
        except BaseException as error:
            if self._debug and (not isinstance(error, Signal) or isinstance(error, Fail | RetryAfter)):
                import pdb

                click.echo(f"{type(error).__name__}: {visible_lines(str(error))}", err=True)
                pdb.post_mortem(error.__traceback__)
            raise


# ---------------------------------------------------------------------------------------------------------------------
# The storage, meanwhile


@contextmanager
def _rehearsed(app: App, rehearsal: Rehearsal) -> Generator[Rehearsal]:
    """The app on a Rehearsal of its own storage. No hook is told of an enqueue that did not happen."""
    told = list(app.hooks.enqueued)
    app.hooks.enqueued.clear()
    app.lend(cast("Storage", rehearsal))
    try:
        yield rehearsal
    finally:
        app.take_back()
        app.hooks.enqueued.extend(told)


class _RollBack(Exception):
    """Raised at the end of a task's transaction, in the place of its commit."""


class Rehearsal:
    """A storage that is read, and lists what would be enqueued."""

    def __init__(self, storage: Storage, id: str, say: Say) -> None:
        self.enqueued: list[NewJob] = []
        self._storage = storage
        self._id = id
        self._say = say

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._storage, name)
        return found if name in _THROUGH or name.startswith("_") else _refuse(name)

    def note(self, jobs: Iterable[NewJob]) -> None:
        for job in jobs:
            self.enqueued.append(job)
            self._say(f"not enqueued: {job.task} {visible_lines(job.args)} in queue {job.queue}{_when(job)}")

    async def open(self) -> None:
        """It is open."""

    async def close(self) -> None:
        """Whoever opened it closes it."""

    async def detach(self) -> None:
        """This loop goes on with it."""

    async def wake(self, queues: Iterable[str]) -> None:
        """There is nothing new in them."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return self.insert_sync(jobs)

    def insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        self.note(jobs)
        return [Inserted(job.id, "inserted") for job in jobs]

    def borrow(self, connection: object) -> _Borrowed:
        return _Borrowed(self, self._id, self._storage.borrow(connection))

    def borrow_async(self, connection: object) -> _BorrowedAsync:
        return _BorrowedAsync(_Borrowed(self, self._id, self._storage.borrow_async(connection)))

    @contextmanager
    def transact(self, connection: object) -> Generator[Any]:
        with self._rolled_back(), self._storage.transact(connection) as own:
            yield own
            raise _RollBack

    @asynccontextmanager
    async def transact_async(self, connection: object) -> AsyncGenerator[Any]:
        with self._rolled_back():
            async with self._storage.transact_async(connection) as own:
                yield own
                raise _RollBack

    @contextmanager
    def _rolled_back(self) -> Generator[None]:
        try:
            yield
        except _RollBack:
            self._say("not committed: what the task wrote in its ctx.transaction is rolled back")


class _Borrowed:
    """What is written inside a transaction of the task's own."""

    def __init__(self, rehearsal: Rehearsal, id: str, borrowed: Any) -> None:
        self.get = borrowed.get
        self._rehearsal = rehearsal
        self._id = id

    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return self._rehearsal.insert_sync(jobs)

    def apply(self, changes: Sequence[Change]) -> Sequence[Applied]:
        """The finish of this very run is taken as written: its transaction is rolled back."""
        for change in changes:
            if change.id != self._id:
                _refuse("apply")()
            self._rehearsal.note(change.follow_ups)
        return [Applied(accepted=True) for _ in changes]


class _BorrowedAsync:
    def __init__(self, plain: _Borrowed) -> None:
        self.get = plain.get
        self._plain = plain

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return self._plain.insert(jobs)

    async def apply(self, changes: Sequence[Change]) -> Sequence[Applied]:
        return self._plain.apply(changes)


class _Notebook:
    """Implements `reporting.Notebook`: what earlier attempts have kept is read, and nothing is kept."""

    least = sys.maxsize

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._storage = cast("Storage", rehearsal)

    def progress(self, job: Job, progress: Progress) -> None: ...
    def line(self, job: Job, level: int, text: str) -> None: ...
    async def flush(self, job: Job) -> None: ...
    async def save(self, job: Job, checkpoint: str) -> None: ...

    async def last_progress(self, job: Job) -> Reported | None:
        found = await self._storage.progress((job.id,))
        return found[0] if found else None

    async def saved(self, job: Job) -> str | None:
        found = await self._storage.checkpoint(job.id)
        return None if found is None else found.value


def _refuse(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise ReadOnly(f"{name}: a job that is run by `treadle jobs run --here` changes nothing in the storage")

    return refuse


def _when(job: NewJob) -> str:
    return f", {job.delay:g} s from now" if job.delay else "" if job.run_at is None else ", at a time of its own"
