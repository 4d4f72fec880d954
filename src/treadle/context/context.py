"""A job has two ends. Who asks for one holds a Call and then a Handle; the code that runs it holds a Context.

Neither knows a storage, a client or a pod: what they ask of the outside goes through a Door, which the client is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, Protocol, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..core import ids, names, payload
from ..core.duration import Duration, seconds
from ..core.errors import JobCancelled, JobFailed, ResultNotKept
from ..core.job import DEFAULT_MAX_ATTEMPTS, NO_TIMEOUT, Change, ErrorEntry, Job, NewJob, State
from ..core.outcome import Succeeded, Throttle
from ..core.partition import Partitions
from ..core.unique import Unique
from .answers import Asked, Waiting
from .logs import JobLogger
from .progress import META_LIMIT, OUR_META, Notebook, Reporting, at_once
from .transaction import Desk, Transaction, finish_within, finish_within_async

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from ..core.view import ErrorView, ExplanationView, JobView

    # Not Any: mypy would then give up on every task that takes a bare Context, and call it Any.
    StateT = TypeVarWithDefault("StateT", default=object)
else:
    StateT = TypeVar("StateT")

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

EnqueueOutcome = Literal["inserted", "duplicate", "replaced", "kept"]
CancelAnswer = Literal["cancelled", "asked", "too late", "not found"]

PARENT = "treadle:parent"
# What executors, transactions and `iterate` ask of a Context, and tasks do not: no completion shows it.
_NOT_SHOWN: Final = frozenset(
    {
        "adopt",
        "commits",
        "cursor",
        "door",
        "follow_ups",
        "followed",
        "job",
        "keep_line",
        "new_meta",
        "notebook",
        "outcome",
        "save_cursor",
        "settled",
        "without_job",
    }
)

current_job: ContextVar[Job | None] = ContextVar("treadle_job", default=None)
"""The job whose task is running here, None elsewhere: log filters read it, and waits for results do."""


class Running(Protocol):
    """A run, for those who name its slot. The row gets that name with a beat; until then only its pod knows it."""

    @property
    def slot_name(self) -> str: ...


current_run: ContextVar[Running | None] = ContextVar("treadle_run", default=None)
"""Its run, in a worker. The name of its slot is put together when somebody asks."""


class Options(Struct, frozen=True, kw_only=True):
    """What is asked for beside the arguments, checked. Instants and durations in seconds, meta as JSON text."""

    queue: str | None = None
    partitions: Partitions | None = None  # of which the ordering key has picked `queue`
    priority: int = 0
    delay: float = 0.0
    run_at: float | None = None
    max_attempts: int | None = None
    by_default: bool = False  # without max_attempts: the default of the app that enqueues it counts
    timeout: float | None = None
    pinned: bool = False
    tags: tuple[str, ...] = ()
    meta: str | None = None
    reason: str | None = None
    unique: Unique | None = None
    within: object = None
    id: str | None = None


def amend(
    options: Options,
    *,
    delay: Duration | None = None,
    at: datetime | None = None,
    queue: str | Partitions | None = None,
    ordering_key: str | None = None,
    priority: int | None = None,
    unique: str | Unique | bool | None = None,
    tags: Iterable[str] | None = None,
    reason: str | None = None,
    within: object = None,
    timeout: Duration | UnsetType | None = UNSET,
    max_attempts: int | None = None,
    meta: Mapping[str, object] | None = None,
    id: str | None = None,
    **unknown: Never,
) -> Options:
    """The options with these instead, each checked where it was written. Tags are added to those that are there."""
    if unknown:
        from ..core.hints import unknown_option

        raise TypeError(unknown_option("a job", min(unknown), amend.__kwdefaults__ or (), at="using"))
    if delay is not None and at is not None:
        raise ValueError("delay and at exclude each other: give one of them")
    changes: dict[str, Any] = {}
    if delay is not None:
        changes |= {"delay": seconds(delay, "delay"), "run_at": None}
    if at is not None:
        changes |= {"run_at": instant(at, "at"), "delay": 0.0}
    partitions = options.partitions if queue is None else queue if isinstance(queue, Partitions) else None
    if queue is not None:
        plain = queue.name if isinstance(queue, Partitions) else names.check_name("queue", queue)
        changes |= {"queue": plain, "partitions": partitions}
    if ordering_key is not None:
        if partitions is None:
            raise ValueError('ordering_key needs a partitioned queue: queue=Partitions("email", 4)')
        changes["queue"] = partitions.of(ordering_key)
    if priority is not None:
        changes["priority"] = names.check_priority(priority)
    if unique is not None:
        changes["unique"] = unique_rule(unique)
    if tags is not None:
        changes["tags"] = names.check_tags((*options.tags, *names.check_tags(tags)))
    if reason is not None:
        changes["reason"] = names.check_reason(reason)
    if within is not None:
        changes["within"] = within
    if timeout is not UNSET:
        changes |= {"timeout": timeout_seconds(timeout), "pinned": True}
    if max_attempts is not None:
        changes |= {"max_attempts": names.check_attempts(max_attempts), "pinned": True}
    if meta is not None:
        changes["meta"] = _meta(meta)
    if id is not None:
        if not ids.is_id(id):
            raise ValueError("id must be a UUID in canonical form, such as str(uuid.uuid4())")
        changes["id"] = id
    return msgspec.structs.replace(options, **changes)


def instant(at: datetime, name: str) -> float:
    """Seconds since the epoch; a date-time without a zone could mean any of 38 instants and is refused."""
    if not isinstance(cast("object", at), datetime):
        raise ValueError(f"{name} must be a datetime with a time zone, not {type(at).__name__}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise ValueError(f"{name} must have a time zone, for example datetime.now(UTC)")
    return at.timestamp()


def timeout_seconds(timeout: Duration | None) -> float:
    if timeout is None:
        return NO_TIMEOUT
    found = seconds(timeout, "timeout")
    if found == 0:
        raise ValueError("timeout must be longer than zero; None switches it off")
    return found


def unique_rule(unique: str | Unique | bool | None) -> Unique | None:
    if isinstance(unique, str):
        return Unique(key=unique)
    if isinstance(unique, bool):
        return Unique() if unique else None
    if unique is not None and not isinstance(cast("object", unique), Unique):
        raise ValueError("unique must be a key, a Unique, or True: one live job per task and arguments")
    return unique


def _meta(meta: Mapping[str, object]) -> str:
    for key in meta:
        if str(key).startswith(OUR_META):
            raise ValueError(f"meta keys that start with {OUR_META!r} are Treadle's own")
    return payload.encode(dict(meta), what="meta", limit=META_LIMIT)


# ---------------------------------------------------------------------------------------------------------------------
# The end that asks


class Call(Generic[R_co]):
    """A request for a job, not yet made: a task, its encoded arguments, its options. `task.bind(…)` makes one.

    Enqueued twice, it gives two jobs, unless its options hold an id or a unique key.

    >>> handles = app.enqueue_many_sync([send.bind(1), send.bind(2)])
    >>> len(handles)
    2
    """

    __slots__ = ("args", "decode_result", "options", "task")

    def __init__(
        self, task: str, args: str, options: Options, decode_result: Callable[[str | None], R_co] | None = None
    ) -> None:
        self.task = task
        self.args = args
        self.options = options
        self.decode_result: Callable[[str | None], R_co] = decode_result or plain_result

    def __repr__(self) -> str:
        return f"<Call of {self.task}>"  # no arguments: they may be secret


class Door(Asked, Protocol):
    """What tasks, Handles and Contexts ask of the outside."""

    @property
    def is_open(self) -> bool: ...
    def prepare(self, call: Call[Any]) -> NewJob: ...
    async def enqueue(self, call: Call[R]) -> Handle[R]: ...
    def enqueue_sync(self, call: Call[R]) -> Handle[R]: ...
    async def status(self, job_id: str) -> JobView: ...
    async def explain(self, job_id: str) -> ExplanationView: ...
    async def wait_for_end(self, job_id: str, timeout: Duration | None, waiter: Job | None = None) -> Job: ...
    async def cancel(self, job_id: str) -> CancelAnswer: ...
    async def take_tokens(self, scope: str, n: int, wait: float) -> float | None: ...
    async def drain_limit(self, scope: str) -> None: ...
    async def insert(self, job: NewJob) -> tuple[str, EnqueueOutcome]: ...
    @property
    def desk(self) -> Desk: ...
    def run_sync(self, work: Coroutine[Any, Any, R]) -> R: ...


class Declared(Protocol):
    """What a task says shall follow its ends."""

    def added(self, change: Change, job: Job) -> Change: ...


class Handle(Generic[R_co]):
    """A job that was asked for. `id` names the job that stands for the request: with the outcome `duplicate` or
    `replaced` that is the job which was there already, with `kept` the one that there will be when that has ended.

    `app.handle(id)` and `task.handle(id)` make one of a job's id, with no outcome: `chosen_by` then says how the result
    of the job is decoded.

    >>> handle = send.enqueue_sync(1)
    >>> handle.outcome
    'inserted'
    >>> handle.status_sync().state
    'ready'
    >>> handle.cancel_sync()
    'cancelled'
    >>> app.handle(handle.id).status_sync().state
    'cancelled'
    """

    __slots__ = ("_chosen_by", "_decode", "_door", "id", "outcome")

    def __init__(
        self,
        job_id: str,
        outcome: EnqueueOutcome | None,
        door: Door,
        decode: Callable[[str | None], R_co] | None = None,
        chosen_by: Callable[[Job], Callable[[str | None], R_co]] | None = None,
    ) -> None:
        self.id = job_id
        self.outcome: EnqueueOutcome | None = outcome
        self._door = door
        self._decode: Callable[[str | None], R_co] = decode or plain_result
        self._chosen_by = chosen_by

    def __repr__(self) -> str:
        return f"<Handle {self.id} {self.outcome or ''}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from ..core.hints import no_attribute

            raise AttributeError(no_attribute("handle", "a Handle", name), name=name, obj=self)

    async def status(self) -> JobView:
        """The job as it is now."""
        return await self._door.status(self.id)

    async def explain(self) -> ExplanationView:
        """Why it is not running, or where it is: the causes in words, the one to act on first."""
        return await self._door.explain(self.id)

    async def result(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job has ended, and answer with what its task returned.

        Raises JobFailed, JobCancelled or JobNotFound; ResultTimeout if it takes longer than `timeout`, and the job
        goes on; ResultNotKept if the job succeeded, and what its task returned could not be stored.
        """
        return self._result_of(await self._door.wait_for_end(self.id, timeout))

    def _result_of(self, job: Job) -> R_co:
        if job.state is State.SUCCEEDED:
            if job.warning is not None and job.result is None:
                reason = job.warning.removeprefix(payload.NOT_KEPT)
                raise ResultNotKept(f"job {job.id} ({job.task}) succeeded; its result was not kept: {reason}", reason)
            decode = self._decode if self._chosen_by is None else self._chosen_by(job)
            return decode(job.result)
        last = job.error
        if job.state is State.CANCELLED:
            raise JobCancelled(f"job {job.id} ({job.task}) was cancelled")
        kind, words = ("error", "") if last is None else (last.kind, _words(last))
        raise JobFailed(f"job {job.id} ({job.task}) failed after {job.attempt} attempts: {kind}: {words}", kind, words)

    async def cancel(self) -> CancelAnswer:
        """Cancel what has not started; ask a running job to stop. Answers with what was achieved."""
        return await self._door.cancel(self.id)

    def status_sync(self) -> JobView:
        return self._door.run_sync(self.status())

    def explain_sync(self) -> ExplanationView:
        return self._door.run_sync(self.explain())

    def result_sync(self, timeout: Duration | None = None) -> R_co:
        # The loop that waits does not know whose thread this is.
        return self._result_of(self._door.run_sync(self._door.wait_for_end(self.id, timeout, current_job.get())))

    def cancel_sync(self) -> CancelAnswer:
        return self._door.run_sync(self.cancel())


def plain_result(text: str | None) -> Any:
    return None if text is None else payload.decode_trusted(text)


def _words(error: ErrorEntry) -> str:
    return f"{error.type}: {error.message}" if error.type and error.message else error.type or error.message


# ---------------------------------------------------------------------------------------------------------------------
# The end that runs


def _never() -> bool:
    return False


def _no_limit() -> float | None:
    return None


class Context(Reporting, Waiting, Generic[StateT]):
    """What a task sees of its own run. Safe to read from a thread.

    >>> @app.task(name="count")
    ... async def count(ctx: Context, rows: int) -> None:
    ...     for row in range(rows):
    ...         await ctx.progress(row, rows)
    ...     ctx.follow(send.bind(1))  # with the success of this run
    """

    __slots__ = (
        "_cancelled",
        "_commits",
        "_committed",
        "_declared",
        "_door",
        "_follow_ups",
        "_job",
        "_log",
        "_remaining",
        "_settled",
        "_stopping",
        "max_attempts",
        "slot",
        "state",
    )

    def __init__(
        self,
        *,
        job: Job,
        state: StateT,
        cancelled: Callable[[], bool] = _never,
        stopping: Callable[[], bool] = _never,
        remaining: Callable[[], float | None] = _no_limit,
        slot: str | None = None,
        max_attempts: int | None = None,
        door: Door | None = None,
        notebook: Notebook | None = None,
        declared: Declared | None = None,
        commits: Callable[[bool], None] | None = None,
        committed: Callable[[Succeeded], None] | None = None,
    ) -> None:
        self._job = job
        self._commits = commits
        self._committed = committed
        self._declared = declared
        self._cancelled = cancelled
        self._stopping = stopping
        self._remaining = remaining
        self._door = door
        self._follow_ups: list[NewJob] = []
        self._settled: Succeeded | None = None
        self._log: JobLogger | None = None
        self._notebook = notebook
        self._point: dict[str, Any] | None = None
        self._iterated: tuple[str, ...] = ()
        self._new_meta: str | None = None
        self.state: StateT = state  # what the app's lifespan yielded
        self.slot = slot
        self.max_attempts: int = max_attempts or job.max_attempts or DEFAULT_MAX_ATTEMPTS

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            from ..core.hints import no_attribute

            raise AttributeError(no_attribute("ctx", "a Context", name), name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _NOT_SHOWN]

    @classmethod
    def without_job(cls, task: str) -> Context[Any]:
        """For a task that is called as the plain function it is: attempt 1, no deadline, nothing to enqueue with."""
        return Context(job=Job(id="", task=task, queue="", state=State.RUNNING, attempt=1), state=None)

    @property
    def job_id(self) -> str:
        """The id of its job."""
        return self._job.id

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._job.task

    @property
    def queue(self) -> str:
        """The queue that it was claimed from."""
        return self._job.queue

    @property
    def attempt(self) -> int:
        """Which attempt this is; the first is 1."""
        return self._job.attempt

    @property
    def priority(self) -> int:
        """The job's priority."""
        return self._job.priority

    @property
    def tags(self) -> tuple[str, ...]:
        """The job's tags."""
        return self._job.tags

    @property
    def reason(self) -> str | None:
        """Why it was enqueued, if the caller said so."""
        return self._job.reason

    @property
    def schedule(self) -> str | None:
        """The schedule that fired this job, if one did."""
        from ..core.firing import META_SCHEDULE

        return self.meta.get(META_SCHEDULE)

    @property
    def fire_at(self) -> datetime | None:
        """The time that it was fired for; it may run later."""
        from ..core.firing import META_FIRE_AT

        at = self.meta.get(META_FIRE_AT)
        return None if at is None else datetime.fromisoformat(at)

    @property
    def token(self) -> str:
        """The fence of this run, for other systems too: fresh at every attempt, never used again."""
        return self._job.token or ""

    @property
    def pod(self) -> str | None:
        """The id of the worker that runs it."""
        return self._job.pod

    @property
    def deadline(self) -> datetime | None:
        """When this attempt is ended, by the storage's clock; to count down, use `remaining()`."""
        at = self._job.deadline
        return None if at is None else datetime.fromtimestamp(at, UTC)

    def remaining(self) -> float | None:
        """Seconds until the deadline, never below zero; None if there is none."""
        left = self._remaining()
        return None if left is None else max(0.0, left)

    @property
    def created_at(self) -> datetime:
        """When the job was enqueued, by the storage's clock."""
        return datetime.fromtimestamp(self._job.created_at, UTC)

    @property
    def started_at(self) -> datetime | None:
        """When this run was claimed, by the storage's clock."""
        at = self._job.started_at
        return None if at is None else datetime.fromtimestamp(at, UTC)

    @property
    def waited(self) -> float:
        """Seconds from when the job was due until this run was claimed, by the storage's clock."""
        job = self._job
        return 0.0 if job.started_at is None else max(0.0, job.started_at - max(job.run_at, job.created_at))

    @property
    def last_error(self) -> ErrorView | None:
        """How the attempt before this one ended, if it did not end well."""
        from ..core.view import job_view

        # Without the payload: a view decodes all that it shows.
        return job_view(msgspec.structs.replace(self._job, args="{}", meta=None)).error

    @property
    def cancelled(self) -> bool:
        """Somebody wants this run to end: a cancel, or its deadline. A plain function should look now and then."""
        return self._cancelled()

    @property
    def stopping(self) -> bool:
        """The pod is shutting down; what does not end in time is given back, uncharged."""
        return self._stopping()

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records name the job, and are kept in its log, whatever the level of the app's loggers."""
        if self._log is None:
            job = self._job
            fields = {
                "job_id": job.id,
                "task": job.task,
                "queue": job.queue,
                "attempt": job.attempt,
                "reason": job.reason,
                "slot": self.slot,
            }
            least = 0 if self._notebook is None else self._notebook.least
            self._log = JobLogger(logging.getLogger(f"treadle.task.{job.task}"), fields, self.keep_line, least)
        return self._log

    async def enqueue(self, call: Call[R]) -> Handle[R]:
        """Insert a job at once, in its own transaction, whatever becomes of this run."""
        return await self._outside().enqueue(self._child(call))

    def enqueue_sync(self, call: Call[R]) -> Handle[R]:
        return self._outside().enqueue_sync(self._child(call))

    async def limit(self, name: str, n: int = 1, wait: Duration = 0.0) -> None:
        """Take n tokens of a rate limit before calling the far side, all or none. If they are not there within `wait`,
        raises Throttle: the attempt costs nothing, and the queue rests until they may be there, from 1 s to 60 s.
        UnknownLimit; ValueError if there can never be so many."""
        missing = await self._outside().take_tokens(name, n, seconds(wait, "wait"))
        if missing is not None:
            raise Throttle(min(60.0, max(1.0, missing)))

    def limit_sync(self, name: str, n: int = 1, wait: Duration = 0.0) -> None:
        self._outside().run_sync(self.limit(name, n, wait))

    async def drain(self, name: str) -> None:
        """Empty a rate limit: the far side has really refused, whatever the count said. It refills by its rate."""
        await self._outside().drain_limit(name)

    def drain_sync(self, name: str) -> None:
        self._outside().run_sync(self.drain(name))

    def follow(self, call: Call[Any]) -> None:
        """Insert a job together with the success of this run; if the run does not succeed, there is no such job."""
        if self._settled is not None:
            raise RuntimeError("the success of this run is committed already: follow before its transaction ends")
        if call.options.within is not None:
            raise ValueError("a follow-up is inserted with the finish of this run: enqueue it without within=")
        self._follow_ups.append(self._outside().prepare(self._child(call)))

    def transaction(self, connection: object = None) -> AbstractAsyncContextManager[Transaction]:
        """Commit the task's own writes, its follow-ups and its success together: `async with ctx.transaction(conn) as
        tx:`. At the end of the block the job has succeeded, with `tx.result`; if the block raises, or the claim is lost
        (ClaimLost), nothing of it is written.

        `connection` is one to the database of the jobs, not in use otherwise: asyncpg, psycopg, SQLAlchemy or sqlite3.
        Without one, Treadle opens it: `tx.connection` is then asyncpg's or sqlite3's own.
        """
        return finish_within_async(self._outside().desk, connection, self._unsettled(), self)

    def transaction_sync(self, connection: object = None) -> AbstractContextManager[Transaction]:
        """The same in a plain function: `with ctx.transaction_sync(conn) as tx:`; also Django's connection."""
        return finish_within(self._outside().desk, connection, self._unsettled(), self)

    def _unsettled(self) -> Job:
        if self._settled is not None:
            raise RuntimeError("the success of this run is committed already: one transaction for each run")
        return self._job

    def followed(self, change: Change) -> Change:
        """The finish, with what the task declares for it."""
        return change if self._declared is None else self._declared.added(change, self._job)

    def commits(self, is_next: bool, /) -> None:
        """For a transaction: its commit is what comes next; or it is not, after all."""
        if self._commits is not None:
            self._commits(is_next)

    def settled(self, outcome: Succeeded) -> None:
        """For a transaction that has committed."""
        self._settled = outcome
        if self._committed is not None:
            self._committed(outcome)

    @property
    def outcome(self) -> Succeeded | None:
        """What a transaction has committed, whatever the task does afterwards."""
        return self._settled

    def adopt(self, follow_ups: Iterable[NewJob], meta: str | None, settled: Succeeded | None) -> None:
        """What a run in another process has left in its own context."""
        self._follow_ups.extend(follow_ups)
        self._new_meta, self._settled = meta, settled

    @property
    def job(self) -> Job:
        return self._job

    @property
    def door(self) -> Door:
        return self._outside()

    @property
    def notebook(self) -> Notebook | None:
        return self._notebook

    @property
    def follow_ups(self) -> tuple[NewJob, ...]:
        return tuple(self._follow_ups)

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        """The answer, for a plain function."""
        return at_once(work) if self._door is None else self._door.run_sync(work)

    def _outside(self) -> Door:
        if self._door is None:
            raise RuntimeError(f"{self.task} was called as a plain function: there is no job to enqueue from")
        return self._door

    def _child(self, call: Call[R]) -> Call[R]:
        return as_child(call, self.job_id)


def as_child(call: Call[R], parent: str) -> Call[R]:
    """The call with a mark that says which job asked for it."""
    meta: dict[str, Any] = {} if call.options.meta is None else payload.decode_trusted(call.options.meta)
    marked = payload.encode({**meta, PARENT: parent}, what="meta")
    return Call(call.task, call.args, msgspec.structs.replace(call.options, meta=marked), call.decode_result)


__all__ = [
    "Call",
    "CancelAnswer",
    "Context",
    "Door",
    "EnqueueOutcome",
    "Handle",
    "Options",
    "amend",
    "as_child",
    "current_job",
    "current_run",
]
