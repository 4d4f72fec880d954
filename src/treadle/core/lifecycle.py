"""The life of a job: the states, the pairs that are allowed, and every decision about what becomes of one.

Rules of this file
------------------
* Whatever moves a job from one state to another is decided here and nowhere else. The functions are pure: a Job and
  what happened go in, one Change comes out. The shell writes it; it does not look inside.
* The table `TRANSITIONS` is the whole truth about which moves exist. `_change` refuses to build any other, and the
  picture in the documentation is drawn from the table.
* Every Change names the state it expects, and where a claim is involved the claim's token. A storage that finds
  something else drops the Change, wholly. So each function may assume that the Job it was given is current: if it is
  not, the answer is never written.

The picture
-----------
::

    waiting ──answered──▶ ready ◀──due── scheduled
                            │ claim          ▲
                            ▼                │ retry · snooze · throttle
                         running ────────────┘──▶ ready (rescued: charged; released at shutdown: not charged)
                            │ ├─▶ succeeded · failed · cancelled
                            │ └─▶ waiting (and at once ready, if the answer is there already)
    waiting ──expired──▶ scheduled · failed
    waiting|scheduled|ready ──cancel──▶ cancelled      running ──cancel──▶ running + cancel wanted
    succeeded|failed|cancelled ──revive──▶ ready

Scheduled and ready are one condition seen at two times: a storage keeps `run_at`, and whoever reads says "ready" once
it has passed. Nothing promotes a job; the claim takes what is due.

Why the attempt is not the fence
--------------------------------
A snooze returns the charge, so the next claim has the same attempt number as the last. A pod that was presumed dead
and comes back with "attempt 3 succeeded" could then end a run that belongs to another. A token is fresh at every
claim and never used again; the attempt is for people.

What "charged" means
--------------------
The claim adds one to `attempt`, in the claim's own transaction, so that a job which kills its pod pays for it without
anybody being left to write so. The arms below either keep that charge (success, error, timeout, a lost pod) or return
it (snooze, throttle, release, a wait that was answered), by writing `attempt - 1`.

The cancel flag
---------------
A cancel of a running job only sets a flag. Whether it wins is settled by the write that ends the run: a task that
returned has succeeded, whatever the flag says; anything else ends as cancelled. The pod may not have heard of the flag
when it decides, so every Change but a success carries `unless_cancel_wanted`; a storage that finds the flag refuses,
and the pod asks `obey_cancel` for the Change that is right. The flag dies with that write: no later claim sees it.

The kept request
----------------
A request may be kept behind a job that is under way (`keeping`). Whoever ends the run may not have heard of it, so the
storage refuses every Change that would end it over the request's head, and says what is kept; `take_over` makes of that
Change the one that ends the run and puts the request in its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

import msgspec
from msgspec import UNSET, Struct

from . import answer as answering
from . import backoff, keep_last
from .answer import Answer
from .backoff import Retry
from .duration import words
from .job import (
    CLAIMABLE,
    LIVE,
    NEVER,
    POISON_CRASHES,
    TERMINAL,
    Change,
    Cooling,
    ErrorEntry,
    ErrorKind,
    Job,
    NewJob,
    RetryOverride,
    State,
    Why,
)
from .outcome import (
    SHORTEST_SNOOZE,
    Crashed,
    Interrupted,
    Outcome,
    Raised,
    Snoozed,
    Stopped,
    Succeeded,
    Throttled,
    TimedOut,
    Undecodable,
    Waits,
)

if TYPE_CHECKING:
    from .queue import Queue

_RUNNING: Final = frozenset({State.RUNNING})
_WAITING: Final = frozenset({State.WAITING})
_NOT_STARTED: Final = frozenset({State.WAITING, State.SCHEDULED, State.READY})
_CANCELLED_WHILE_IT_RAN: Final = "cancelled while it ran"

# (from, to) → the reasons for which a job may move so. `claim` and `due` are the storage's own; all others are Changes.
TRANSITIONS: Final[dict[tuple[State, State], tuple[str, ...]]] = {
    (State.SCHEDULED, State.READY): ("due", "rescheduled"),
    (State.SCHEDULED, State.RUNNING): ("claim",),
    (State.READY, State.RUNNING): ("claim",),
    (State.READY, State.SCHEDULED): ("rescheduled",),
    (State.READY, State.READY): ("rescheduled", "moved", "reprioritised"),
    (State.SCHEDULED, State.SCHEDULED): ("rescheduled", "moved", "reprioritised"),
    (State.WAITING, State.WAITING): ("moved", "reprioritised"),
    (State.RUNNING, State.SUCCEEDED): ("succeeded",),
    (State.RUNNING, State.FAILED): ("failed",),
    (State.RUNNING, State.CANCELLED): ("cancelled",),
    (State.RUNNING, State.SCHEDULED): ("retried", "snoozed", "throttled", "released", "answered"),
    (State.RUNNING, State.READY): ("retried", "rescued", "released", "answered"),
    (State.RUNNING, State.RUNNING): ("cancel_asked", "resolved"),
    (State.RUNNING, State.WAITING): ("waits",),
    (State.WAITING, State.READY): ("answered", "retried"),
    (State.WAITING, State.SCHEDULED): ("answered", "retried"),
    (State.WAITING, State.FAILED): ("failed",),
    (State.WAITING, State.CANCELLED): ("cancelled",),
    (State.SCHEDULED, State.CANCELLED): ("cancelled",),
    (State.READY, State.CANCELLED): ("cancelled",),
    (State.SUCCEEDED, State.READY): ("revived",),
    (State.FAILED, State.READY): ("revived",),
    (State.CANCELLED, State.READY): ("revived",),
    (State.SUCCEEDED, State.SCHEDULED): ("revived",),
    (State.FAILED, State.SCHEDULED): ("revived",),
    (State.CANCELLED, State.SCHEDULED): ("revived",),
}


class IllegalTransition(ValueError):
    """A Change that the table does not have. Always a bug in this file."""


def finish(job: Job, outcome: Outcome, retry: Retry, chance: float, live: RetryOverride | None = None) -> Change:
    """What becomes of a running job. Total: every Outcome has exactly one answer. `live` is its queue's override."""
    if live is not None:
        job, retry = under(job, live), backoff.override(retry, live)
    if isinstance(outcome, Succeeded):  # the hot arm, before the match, which costs more than the rest of it
        return _succeed(job, outcome.result, outcome.warning, outcome.follow_ups)
    match outcome:
        case Raised(error, exception, after, final):
            return _failed(job, error, exception, after, final, retry, chance)
        case TimedOut(error):
            return _failed(job, error, None, None, False, retry, chance)
        case Undecodable(error):
            return _end(job, State.FAILED, "failed", error)
        case Stopped(error):
            return _end(job, State.CANCELLED, "cancelled", error)
        case Crashed(error):
            return _crashed(job, error, retry, chance)
        case Waits(answer):
            return _wait(job, answer)
        case Snoozed(delay):
            rest = max(delay, SHORTEST_SNOOZE)
            return _again(job, "snoozed", rest, attempt=max(0, job.attempt - 1), snoozes=job.snoozes + 1)
        case Throttled(hint):
            cooling = Cooling(job.queue, hint)
            change = _again(job, "throttled", hint or 1.0, attempt=max(0, job.attempt - 1), throttles=job.throttles + 1)
            return change if change.to is State.CANCELLED else msgspec.structs.replace(change, cooling=cooling)
        case Interrupted(delay):
            return _again(job, "released", delay, attempt=max(0, job.attempt - 1))
        case _:
            assert_never(outcome)


def under(job: Job, live: RetryOverride | None) -> Job:
    """The job with as many attempts as its queue's live override gives it, unless its caller has chosen."""
    if live is None or live.max_attempts is None or job.pinned:
        return job
    return msgspec.structs.replace(job, max_attempts=live.max_attempts)


def most_attempts(job: Job, retry: Retry, live: RetryOverride | None = None) -> int:
    """How often a job may be tried: its own number, which its queue's override replaces unless the caller chose it."""
    own = under(job, live).max_attempts
    return own if own is not None else backoff.override(retry, live).max_attempts


def resolve(job: Job, retry: Retry, timeout: float, live: Queue | None = None) -> Change | None:
    """A claimed job whose enqueuer did not know its task: `retry` and `timeout` are its task's, `live` is its queue.
    None if the row has all that a Rescuer needs.

    The queue's settings are heeded where they outrank the task's. Attempts are left to them at every finish, unless the
    caller chose something (`pinned`): then the row could not be told from one whose caller chose the attempts."""
    if job.max_attempts is not None and job.timeout is not None:
        return None
    attempts = own = deadline = None
    if job.max_attempts is None:
        override = live.retry if live is not None and job.pinned else None
        attempts = backoff.override(retry, override).max_attempts
    if job.timeout is None:
        own = timeout if live is None or live.timeout is None else live.timeout
        deadline = (job.started_at or 0.0) + own if own else None
    return _change(
        job.id,
        "resolved",
        _RUNNING,
        State.RUNNING,
        token=job.token,
        max_attempts=attempts,
        timeout=own,
        deadline=deadline,
    )


def resolved(job: Job, change: Change) -> Job:
    """The job as its row is once `resolve` is written."""
    return msgspec.structs.replace(
        job,
        max_attempts=change.max_attempts if job.max_attempts is None else job.max_attempts,
        timeout=change.timeout if job.timeout is None else job.timeout,
        deadline=change.deadline if job.timeout is None else job.deadline,
    )


def rescue(job: Job, label: str, live: RetryOverride | None = None, heard: float | None = None) -> Change:
    """A running job whose pod has no live lease. The charge is kept, and the crash is counted: a job that takes three
    pods with it is poison. `heard` is when the pod was last known alive: a run whose deadline had passed by then is
    told as a timeout. (A pod whose loop is blocked beats on until the grace after the longest deadline is over.)"""
    crashes = job.crashes + 1
    if heard is not None and job.deadline is not None and job.deadline <= heard:
        lost = _entry(job, "timeout", f"ran past its deadline, and pod {label} is gone; it was attempt {job.attempt}")
    else:
        lost = _entry(job, "worker_lost", f"pod {label} is gone; it was running attempt {job.attempt}")
    if job.cancel_wanted:
        change = _end(job, State.CANCELLED, "cancelled", lost)
    elif crashes >= POISON_CRASHES:
        poison = _entry(job, "poison", f"lost {crashes} pods, the last one {label}: not tried again")
        change = _end(job, State.FAILED, "failed", poison)
    elif job.attempt >= most_attempts(job, Retry(), live):
        change = _end(job, State.FAILED, "failed", lost)
    else:
        change = _again(job, "rescued", 0.0, error=lost)
    return msgspec.structs.replace(change, crashes=crashes, if_lapsed=True, foreign=True)


def release(job: Job) -> Change:
    """Give a claim back as if it had never been: due now, uncharged."""
    return _again(job, "released", 0.0, attempt=max(0, job.attempt - 1))


def expire(job: Job, chance: float, live: RetryOverride | None = None) -> Change:
    """A running job far beyond its deadline, whose own pod has not ended it. The second line of defence: it knows no
    task, so the delay is the built-in curve, or what the queue's live override makes of it."""
    error = _entry(job, "timeout", "ran past its deadline, and its pod did not end it")
    retry = backoff.override(Retry(), live)
    change = _failed(under(job, live), error, None, None, False, retry, chance)
    return msgspec.structs.replace(change, foreign=True)


def answered(job: Job, answer: Answer) -> Change:
    """The answer is there: the job runs again and sees it, uncharged for the attempt that waited. Its own pod writes so
    if the answer was faster than the wait."""
    delay = answer.after or 0.0
    return _change(
        job.id,
        "answered",
        _expect(job),
        State.SCHEDULED if delay > 0 else State.READY,
        token=job.token,
        delay=delay,
        attempt=max(0, job.attempt - 1),
        meta=answering.marked(job.meta, answer),
        foreign=job.state is State.WAITING,
    )


def meet(change: Change, job: Job, answer: Answer) -> Change:
    """The Change to write instead of a wait, when a storage finds that the answer is there already."""
    own = job if change.meta is UNSET else msgspec.structs.replace(job, meta=change.meta)
    return msgspec.structs.replace(answered(own, answer), follow_ups=change.follow_ups)


def expired(
    job: Job, answer: str, timeout: float, retry: Retry, chance: float, live: RetryOverride | None = None
) -> Change:
    """A waiting job that nobody answered in time: the end of its attempt. `retry` is its task's, if that is known."""
    error = _entry(job, "expired", f"no answer came within {words(timeout)}")
    change = _failed(under(job, live), error, None, None, False, backoff.override(retry, live), chance)
    return msgspec.structs.replace(change, answer=answer, foreign=True)


def cancel(job: Job) -> Change | None:
    """Cancel at once what has not started, ask a running job, and leave alone what has ended."""
    if job.state in TERMINAL:
        return None
    if job.behind is not None:
        return Change(id=job.behind, why="unkept", expect=LIVE, takes=job.kept)
    if job.state is State.RUNNING:
        return _change(job.id, "cancel_asked", _RUNNING, State.RUNNING, token=job.token, cancel_wanted=True)
    entry = ErrorEntry(attempt=job.attempt, kind="cancelled", message="cancelled before it ran")
    change = _change(job.id, "cancelled", _NOT_STARTED, State.CANCELLED, error=entry)
    return take_over(change, job.kept)


def revive(
    job: Job,
    *,
    delay: float = 0.0,
    run_at: float | None = None,
    priority: int | None = None,
    queue: str | None = None,
) -> Change | None:
    """Give an ended job another life: attempts and crashes start from nothing, the error history stays."""
    if job.state not in TERMINAL:
        return None
    later = delay > 0 or run_at is not None
    return _change(
        job.id,
        "revived",
        frozenset({job.state}),
        State.SCHEDULED if later else State.READY,
        delay=None if run_at is not None else delay,
        run_at=run_at,
        attempt=0,
        crashes=0,
        snoozes=0,
        throttles=0,
        cancel_wanted=False,
        result=None,
        warning=None,
        priority=priority,
        queue=queue,
    )


def reschedule(job: Job, *, delay: float = 0.0, run_at: float | None = None) -> Change | None:
    """Another time for a job that has not started. `delay=0` is "run now"."""
    if job.state not in CLAIMABLE:
        return None
    later = delay > 0 or run_at is not None
    to = State.SCHEDULED if later else State.READY
    return _change(job.id, "rescheduled", CLAIMABLE, to, delay=None if run_at is not None else delay, run_at=run_at)


def move(job: Job, queue: str) -> Change | None:
    """Another queue for a job that has not started, or that waits; its state and its time stay."""
    if job.state not in _NOT_STARTED or job.behind is not None:
        return None
    return Change(id=job.id, why="moved", expect=_NOT_STARTED, queue=queue)


def set_priority(job: Job, priority: int) -> Change | None:
    """Another priority for a job that has not started."""
    if job.state not in _NOT_STARTED or job.behind is not None:
        return None
    return Change(id=job.id, why="reprioritised", expect=_NOT_STARTED, priority=priority)


def remove(job: Job) -> Change | None:
    """Forget an ended job. A live one must be cancelled first."""
    if job.state not in TERMINAL:
        return None
    return Change(id=job.id, why="removed", expect=frozenset({job.state}), remove=True)


def obey_cancel(change: Change) -> Change:
    """The Change to write instead, when a storage refused one because a cancel is wanted."""
    # A Change without an error returns the charge: the attempt that ends here is the one above.
    entry = change.error or ErrorEntry(
        attempt=(change.attempt or 0) + 1, kind="cancelled", message=_CANCELLED_WHILE_IT_RAN
    )
    return Change(
        id=change.id,
        why="cancelled",
        expect=change.expect,
        token=change.token,
        to=State.CANCELLED,
        error=msgspec.structs.replace(entry, kind="cancelled"),
        cancel_wanted=False,
        crashes=change.crashes,
        meta=change.meta,
        if_lapsed=change.if_lapsed,
        foreign=change.foreign,
    )


def take_over(change: Change, kept: str | None) -> Change:
    """The Change to write instead, when a storage refused one because of what is kept behind the job: the kept request
    becomes a job in the same write. A run that would have gone on ends here, superseded. With nothing kept (any more)
    it is the Change itself."""
    if kept is None:
        return change
    new = keep_last.request_of(kept)
    if change.to not in TERMINAL and new is not None:
        change = _supersede(change, new.id)
    return msgspec.structs.replace(change, takes=kept, follow_ups=(() if new is None else (new,)) + change.follow_ups)


def _supersede(change: Change, by: str) -> Change:
    message = f"superseded by job {by}, which was asked for while it ran"
    if change.error is not None:
        message = f"{message}; it had ended with: {change.error.message}"
    # A Change without an error returns the charge: the attempt that ends here is the one above.
    entry = change.error or ErrorEntry(attempt=(change.attempt or 0) + 1, kind="cancelled")
    return Change(
        id=change.id,
        why="cancelled",
        expect=change.expect,
        token=change.token,
        to=State.CANCELLED,
        error=msgspec.structs.replace(entry, kind="cancelled", message=message),
        cancel_wanted=False,
        crashes=change.crashes,
        meta=change.meta,
        cooling=change.cooling,
        answer=change.answer,
        if_lapsed=change.if_lapsed,
        foreign=change.foreign,
    )


def _succeed(job: Job, result: str | None, warning: str | None, follow_ups: tuple[NewJob, ...]) -> Change:
    # The hot arm, once per job: built directly. The table has the pair, and a test says so.
    return Change(
        id=job.id,
        why="succeeded",
        expect=_RUNNING,
        token=job.token,
        to=State.SUCCEEDED,
        result=result,
        warning=warning,
        follow_ups=follow_ups,
    )


def _failed(
    job: Job,
    error: ErrorEntry,
    exception: BaseException | None,
    after: float | None,
    final: bool,
    retry: Retry,
    chance: float,
) -> Change:
    change = _after_failure(job, error, exception, after, final, retry, chance)
    if job.meta is None or (meta := answering.without_error(job.meta)) == job.meta:
        return change
    return msgspec.structs.replace(change, meta=meta)  # the next attempt asks anew


def _after_failure(
    job: Job,
    error: ErrorEntry,
    exception: BaseException | None,
    after: float | None,
    final: bool,
    retry: Retry,
    chance: float,
) -> Change:
    most = job.max_attempts if job.max_attempts is not None else retry.max_attempts
    if final or job.attempt >= most:
        return _end(job, State.FAILED, "failed", error)
    if after is not None:
        return _again(job, "retried", after, error=error)
    decision = backoff.decide(retry, job.attempt, exception, chance)
    if decision.delay is None:
        return _end(job, State.FAILED, "failed", error)
    change = _again(job, "retried", decision.delay, error=error)
    return change if decision.warning is None else msgspec.structs.replace(change, warning=decision.warning)


def _crashed(job: Job, error: ErrorEntry, retry: Retry, chance: float) -> Change:
    """As a rescue counts it, but the pod lives: the next attempt keeps to the retry's curve."""
    crashes = job.crashes + 1
    if crashes >= POISON_CRASHES:
        message = f"lost {crashes} processes: not tried again. The last one: {error.message}"
        error = msgspec.structs.replace(error, kind="poison", message=message)
    final = crashes >= POISON_CRASHES
    return msgspec.structs.replace(_failed(job, error, None, None, final, retry, chance), crashes=crashes)


def _wait(job: Job, answer: str) -> Change:
    if job.cancel_wanted:
        return _end(job, State.CANCELLED, "cancelled", _entry(job, "cancelled", _CANCELLED_WHILE_IT_RAN))
    return _change(
        job.id,
        "waits",
        _RUNNING,
        State.WAITING,
        token=job.token,
        run_at=NEVER,
        answer=answer,
        unless_cancel_wanted=True,
    )


def _end(job: Job, to: State, why: Why, error: ErrorEntry) -> Change:
    if job.cancel_wanted and to is not State.CANCELLED:
        to, why, error = State.CANCELLED, "cancelled", msgspec.structs.replace(error, kind="cancelled")
    return _change(
        job.id,
        why,
        _expect(job),
        to,
        token=job.token,
        error=error,
        cancel_wanted=False,
        unless_cancel_wanted=to is not State.CANCELLED,
    )


def _again(
    job: Job,
    why: Why,
    delay: float,
    *,
    attempt: int | None = None,
    snoozes: int | None = None,
    throttles: int | None = None,
    error: ErrorEntry | None = None,
) -> Change:
    if job.cancel_wanted:
        entry = error or _entry(job, "cancelled", _CANCELLED_WHILE_IT_RAN)
        return _end(job, State.CANCELLED, "cancelled", msgspec.structs.replace(entry, kind="cancelled"))
    return _change(
        job.id,
        why,
        _expect(job),
        State.SCHEDULED if delay > 0 else State.READY,
        token=job.token,
        delay=delay,
        attempt=attempt,
        snoozes=snoozes,
        throttles=throttles,
        error=error,
        unless_cancel_wanted=True,
    )


def _expect(job: Job) -> frozenset[State]:
    """What speaks for a claim finds the job running, or waiting for its answer."""
    return _WAITING if job.state is State.WAITING else _RUNNING


def _entry(job: Job, kind: ErrorKind, message: str) -> ErrorEntry:
    return ErrorEntry(attempt=job.attempt, kind=kind, message=message, pod=job.pod, started_at=job.started_at)


def _change(id: str, why: Why, expect: frozenset[State], to: State, **fields: object) -> Change:
    for state in expect:
        if why not in TRANSITIONS.get((state, to), ()):
            raise IllegalTransition(f"{state} may not become {to} because it is {why}")
    return Change(id=id, why=why, expect=expect, to=to, **fields)  # type: ignore[arg-type]


class Edge(Struct, frozen=True):
    """One arrow of the picture."""

    source: State
    target: State
    label: str


def edges() -> list[Edge]:
    """The table as arrows, for the documentation."""
    return [Edge(source, target, " · ".join(reasons)) for (source, target), reasons in TRANSITIONS.items()]


def diagram() -> str:
    """The picture of the states (Mermaid), drawn from the table."""
    lines = ["stateDiagram-v2", "    [*] --> ready", "    [*] --> scheduled"]
    lines += [f"    {edge.source} --> {edge.target}: {edge.label}" for edge in edges()]
    lines += [f"    {state} --> [*]" for state in State if state in TERMINAL]
    return "\n".join(lines)
