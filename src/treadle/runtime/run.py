"""Run: one attempt of one job, from its claim to its Outcome.

The steps, each in one place:

1. `drive` decodes the arguments afresh (a task may have changed the last attempt's), makes the context, and awaits the
   executor.
2. Whatever comes out of that, a value or any exception at all, `BaseException` included, becomes exactly one Outcome.
   Nothing is written here, nothing is decided about retries: that is the core's.
3. The Outcome is handed to `done`, once. A run that was given up earlier (it ignored its cancel) has been answered
   for already; what it says later is dropped.

Why a run is stopped travels with it. A `CancelledError` alone says nothing: the task may have raised it itself. So
`stop(reason)` notes the reason before it cancels, and the reason picks the Outcome:

===========  ===================================================================================
cancel       somebody asked: `Stopped`
timeout      its deadline passed: `TimedOut`
shutdown     the pod ends: `Interrupted`, given back uncharged
lost         the claim is no longer ours: nothing is written at all
===========  ===================================================================================

A task that returns all the same has succeeded: its effect has happened, and no late cancel undoes that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, Literal

from msgspec.structs import replace

from .. import middleware
from ..context.context import Context, current_job, current_run
from ..core import answer as answering
from ..core import payload
from ..core.backoff import Retry
from ..core.job import PAYLOAD_FORMAT, ErrorEntry, Job, NewJob
from ..core.outcome import (
    Brought,
    Cancel,
    ChildLost,
    Crashed,
    Elsewhere,
    Fail,
    Interrupted,
    NotBegun,
    Outcome,
    Raised,
    Release,
    RetryAfter,
    Signal,
    Snooze,
    Snoozed,
    Stopped,
    Succeeded,
    Throttle,
    Throttled,
    TimedOut,
    Undecodable,
    Wait,
    Waits,
)
from ..middleware import Stack
from ..ports import Call, Executor
from ..tasks.task import Task
from ..trace import entry_of

StopReason = Literal["cancel", "timeout", "shutdown", "lost"]
NEWER_FORMAT_DELAY = 30.0

log = logging.getLogger("treadle.run")

_SUCCEEDED = Succeeded()


class Run:
    """One attempt in one slot."""

    __slots__ = (
        "abandon_at",
        "begun",
        "begun_at",
        "claim",
        "commits",
        "committed",
        "deadline_at",
        "done",
        "executor",
        "job",
        "label",
        "meta",
        "reason",
        "retry",
        "seconds",
        "settled",
        "slot",
        "stack",
        "task",
        "timeout",
        "work",
    )

    def __init__(
        self,
        job: Job,
        task: Task[..., Any],
        executor: Executor,
        slot: int,
        now: float,
        label: Callable[[], str] = lambda: "",
    ) -> None:
        self.job = job
        self.label = label  # of its pod, which may register anew under another
        self.claim = (job.id, job.token or "")
        self.task = task
        self.retry: Retry | None = None  # the app's, if the task says none
        self.executor = executor
        self.slot = slot
        # A job has one since its claim at the latest (`Turner`), unless its row was damaged meanwhile.
        self.timeout = (job.timeout if job.timeout is not None else task.timeout) or None
        # By this process' monotonic clock; the storage has its own deadline for the second line of defence.
        self.deadline_at = None if self.timeout is None else now + self.timeout
        self.reason: StopReason | None = None
        self.abandon_at: float | None = None  # once asked to stop: until when we wait for it
        self.begun = False  # its task has taken its first step
        self.begun_at = 0.0
        self.seconds = 0.0  # what it took, once it is done
        self.done = False
        # Its success, once a transaction of the task's own has committed it; it may go on after that.
        self.committed: Succeeded | None = None
        self.commits = False  # that transaction may have committed it: a moment later we know
        self.settled = False  # it has ended, and that success is its outcome
        self.meta: str | None = None  # what the task has made of the job's meta, to be stored with the finish
        self.stack: Stack | None = None  # the middleware around it, if there is any
        self.work: asyncio.Task[None] | None = None

    def stop(self, reason: StopReason, abandon_at: float) -> None:
        """Ask the call to end. The first reason stands, except that a lost claim outranks all."""
        if self.done:
            return
        if self.reason is not None:
            if reason == "lost":
                self.reason = reason
            return
        self.reason = reason
        self.abandon_at = abandon_at
        # A task that is cancelled before its first step never begins, and could not say that it has ended.
        if self.begun and self.executor.cancels and self.work is not None:
            self.work.cancel()

    def may_commit(self, is_next: bool, /) -> None:
        """From any thread."""
        self.commits = is_next

    def commit(self, outcome: Succeeded) -> None:
        """From any thread."""
        self.committed = outcome

    @property
    def slot_name(self) -> str:
        """For people; never parsed."""
        return f"{self.job.queue}-{self.slot}-{self.label()}"

    def named(self) -> Job:
        """The job with its slot, for hooks: its row has it with the next beat."""
        return replace(self.job, slot=self.slot_name)

    @property
    def cancelled(self) -> bool:
        return self.reason in ("cancel", "timeout", "lost")


async def drive(run: Run, context: Context[Any] | None, done: Callable[[Run, Outcome], None]) -> None:
    """Run one attempt to its end and hand over what happened. The context is None for tasks that do not ask for it."""
    run.begun = True
    run.begun_at = perf_counter()
    current_job.set(run.job)  # scoped to this asyncio task: each run has its own context
    current_run.set(run)
    try:
        outcome = await _outcome(run, context) if run.reason is None else give_up(run)
    except BaseException as error:  # of our own making, and not foreseen; still the run has ended
        log.exception("job %s: its run ended in a way that was not foreseen", run.job.id)
        outcome = _of_exception(run, error)
    if context is not None:
        run.meta = context.new_meta
    if not run.done:
        done(run, outcome)


def give_up(run: Run) -> Outcome:
    """The Outcome of a run that does not end although it was asked to."""
    if run.committed is not None:
        run.settled = True
        return run.committed
    job = run.job
    entry = ErrorEntry(attempt=job.attempt, kind="error", pod=job.pod, started_at=job.started_at)
    return _stopped(run, entry)


async def _outcome(run: Run, context: Context[Any] | None) -> Outcome:
    job = run.job
    if job.format > PAYLOAD_FORMAT:
        # A newer producer wrote it. A pod of its own version will come; until then it must not spin.
        return Interrupted(NEWER_FORMAT_DELAY)
    try:
        args, kwargs = run.task.decode(job.args)
    except Exception as error:  # PayloadError, or a type of the user's that refuses the value
        return Undecodable(entry_of(error, job, "undecodable"))
    try:
        if run.stack is not None and context is not None:
            value = await _wrapped(run, context, run.stack, args, kwargs)
        else:
            if context is not None and run.task.takes_context:
                args = (context, *args)
            value = await run.executor.run(Call(run.task.function, args, kwargs, job, context))
    except BaseException as error:  # the one place where everything is caught: it is this job's end, not the pod's
        if context is not None and context.outcome is not None:
            log.warning("job %s: %s after its success was committed", job.id, type(error).__name__)
            run.settled = True
            return context.outcome
        return _of_exception(run, error)
    if context is not None and context.outcome is not None:
        run.settled = True
        return context.outcome
    return _of_value(value, context.follow_ups if context is not None else ())


async def _wrapped(
    run: Run, context: Context[Any], stack: Stack, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The call, inside its middleware."""
    task, function = run.task, run.task.function
    if stack.inside:
        function = middleware.inside(stack, context, function, takes_context=task.takes_context)

    async def inner(own: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        if run.executor.asks and (own != args or named != kwargs):
            raise TypeError(f"middleware cannot change the arguments of {task.name}: they are sent elsewhere as stored")
        given = (context, *own) if task.takes_context else own
        return await run.executor.run(Call(function, given, named, run.job, context))

    return await middleware.around(stack, context, args, kwargs, inner)


def _of_value(value: Any, follow_ups: tuple[NewJob, ...]) -> Outcome:
    if value is None:
        return Succeeded(None, None, follow_ups) if follow_ups else _SUCCEEDED
    if isinstance(value, Brought):
        return Succeeded(value.result, value.warning, follow_ups)
    return Succeeded(*payload.keep_result(value), follow_ups)


def _of_exception(run: Run, error: BaseException) -> Outcome:
    job, told = run.job, None
    if isinstance(error, Elsewhere):
        told, error = error.error, error.signal or error
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Throttle():
            return Throttled(error.delay)
        case RetryAfter():
            return Raised(told or entry_of(error, job), error, after=error.delay)
        case Fail():
            return Raised(told or entry_of(error, job), error, final=True)
        case Cancel():
            entry = told or entry_of(error, job)
            return Stopped(_retold(entry, "cancelled", entry.message))
        case Wait():
            return Waits(answering.id_of(error.token))
        case Release():
            return Interrupted()
        case Signal():  # a signal of the user's own making is an ordinary exception
            return Raised(told or entry_of(error, job), error)
        case ChildLost() if run.reason is None:
            entry = _told(job, error.kind, str(error))
            return Crashed(entry) if error.kind == "worker_lost" else Raised(entry)
        case NotBegun() if run.reason is None:
            log.warning("job %s is given back: %s", job.id, error)
            return Interrupted(error.delay)
        case _:
            entry = told or entry_of(error, job)
            return Raised(entry, error) if run.reason is None else _stopped(run, entry)


def _stopped(run: Run, entry: ErrorEntry) -> Outcome:
    """The Outcome of a run that ended, otherwise than by returning, after it was asked to stop."""
    match run.reason:
        case "timeout":
            return TimedOut(_retold(entry, "timeout", f"ran past its timeout of {run.timeout:g} s"))
        case "shutdown":
            return Interrupted()
        case _:
            return Stopped(_retold(entry, "cancelled", "cancelled while it ran"))


def _told(job: Job, kind: Literal["worker_lost", "limit"], message: str) -> ErrorEntry:
    return ErrorEntry(attempt=job.attempt, kind=kind, message=message, pod=job.pod, started_at=job.started_at)


_STOPS: Final = (".CancelledError", ".Terminated")


def _retold(entry: ErrorEntry, kind: Literal["timeout", "cancelled"], message: str) -> ErrorEntry:
    """The same place and trace, told by what we know: the exception is only the shape in which our stop arrived. So a
    timeout has no type of an exception: it is called a timeout, also as a cause."""
    return ErrorEntry(
        attempt=entry.attempt,
        kind=kind,
        type="" if kind == "timeout" else entry.type,
        message=message,
        trace=_ending(entry, f"{kind}: {message}"),
        place=entry.place,
        pod=entry.pod,
        started_at=entry.started_at,
    )


def _ending(entry: ErrorEntry, last: str) -> str:
    """The trace with another last line, if that only names the shape in which our stop arrived; and without the frame
    of ours that raised it."""
    *lines, said = entry.trace.rstrip("\n").split("\n")
    if said != entry.type or not said.endswith(_STOPS):
        return entry.trace
    if lines and lines[-1].strip() == "raise Terminated":
        del lines[-2:]
    return "\n".join([*lines, last, ""])
