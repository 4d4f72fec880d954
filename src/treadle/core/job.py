"""The nouns of the system: Job, NewJob, Change, and the small values they are made of.

All of them are frozen. They are msgspec Structs rather than dataclasses because a pod makes several per job, and a
frozen dataclass costs ten times as much to build (docs/adr/0002). `gc=False`: none of them can be part of a cycle, and
tens of thousands of them at once would make the garbage collector walk them again and again.

Instants are seconds since the epoch by the *storage's* clock; durations are seconds. Arguments, results and meta travel
as canonical JSON text: only the client encodes and only a run decodes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    from .audit import AuditLine
    from .event import Event


class State(StrEnum):
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


LIVE: Final = frozenset({State.WAITING, State.SCHEDULED, State.READY, State.RUNNING})
TERMINAL: Final = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
# Scheduled and ready differ only by the clock: a storage keeps both as one, and every read tells them apart by run_at.
CLAIMABLE: Final = frozenset({State.SCHEDULED, State.READY})

ErrorKind = Literal["error", "timeout", "worker_lost", "poison", "undecodable", "expired", "cancelled", "limit"]
OnConflict = Literal["skip", "replace", "keep_last"]

DEFAULT_MAX_ATTEMPTS: Final = 10
DEFAULT_TIMEOUT: Final = 3600.0
NO_TIMEOUT: Final = 0.0
NEVER: Final = 253_402_300_799.0  # the end of the year 9999: when a job is due that waits for something else than time
POISON_CRASHES: Final = 3
ERRORS_KEPT: Final = 32
PAYLOAD_FORMAT: Final = 1


class ErrorEntry(Struct, frozen=True, kw_only=True, gc=False):
    """How one attempt ended, when it did not end well. The last 32 are kept with the job."""

    attempt: int
    kind: ErrorKind
    type: str = ""
    message: str = ""
    trace: str = ""
    place: str = ""  # module:function of the innermost frame of the user's code
    pod: str | None = None
    started_at: float | None = None
    ended_at: float | None = None  # written by the storage's clock when the Change is applied


def cause_of(task: str, error: ErrorEntry) -> str:
    """What failures are grouped by: task, exception (or how the attempt ended, if none was raised), raising place."""
    return f"{task}:{error.type or error.kind}:{error.place}"


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """One durable request to run a task, as a storage answers with it."""

    id: str
    task: str
    queue: str
    state: State
    args: str = "{}"
    format: int = PAYLOAD_FORMAT
    priority: int = 0
    run_at: float = 0.0
    created_at: float = 0.0
    attempt: int = 0
    # None: the enqueuer did not know the task. The pod that claims the job writes those of its task before the run
    # begins (`lifecycle.resolve`).
    max_attempts: int | None = None
    timeout: float | None = None  # NO_TIMEOUT switches the deadline off
    # Which of max_attempts and timeout came from the call itself, and so outrank a queue's live setting.
    pinned: bool = False
    tags: tuple[str, ...] = ()
    meta: str | None = None
    reason: str | None = None
    unique_key: str | None = None
    # The request that is kept behind this one until its run ends, as `keeping` writes it. Claims do not read it.
    kept: str | None = None
    # This is no job yet: it is kept behind that one, whose row has it (as `kept` here).
    behind: str | None = None
    pod: str | None = None
    slot: str | None = None
    token: str | None = None
    started_at: float | None = None
    deadline: float | None = None
    finished_at: float | None = None
    crashes: int = 0
    snoozes: int = 0
    throttles: int = 0
    cancel_wanted: bool = False
    result: str | None = None
    warning: str | None = None
    error_count: int = 0
    errors: tuple[ErrorEntry, ...] = ()  # oldest first; reads of many jobs carry the last one only

    @property
    def error(self) -> ErrorEntry | None:
        return self.errors[-1] if self.errors else None


def has_cause(job: Job) -> bool:
    """Whether its last error is why it is where it is: it failed for good, or waits for its retry."""
    return job.state is State.FAILED or (job.state is State.SCHEDULED and job.attempt > 0)


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job that is asked for. Its id is made by the client, so that the request can be repeated."""

    id: str
    task: str
    queue: str
    args: str = "{}"
    format: int = PAYLOAD_FORMAT
    priority: int = 0
    delay: float = 0.0  # from the storage's clock at insert
    run_at: float | None = None  # an instant; outranks delay
    max_attempts: int | None = None
    timeout: float | None = None
    pinned: bool = False
    tags: tuple[str, ...] = ()
    meta: str | None = None
    reason: str | None = None
    unique: UniqueClaim | None = None
    asked_at: float | None = None  # when it was asked for, if that was before it could be inserted: see `keeping`


class UniqueClaim(Struct, frozen=True, gc=False):
    """What a storage needs to hold a unique key: the window's number is added by its own clock."""

    key: str
    period: float | None = None
    include_succeeded: bool = False
    on_conflict: OnConflict = "skip"
    # Debounce: a request that overwrites another one puts it off, but never beyond so long after the first.
    cap: float | None = None


class Cooling(Struct, frozen=True, gc=False):
    """A Throttle's wish for its queue: at least `hint` seconds of quiet, or what the queue's curve says."""

    queue: str
    hint: float | None = None


class Change(Struct, frozen=True, kw_only=True, gc=False):
    """What must be written about one job. It is written wholly, or it is stale and nothing of it happens.

    Only `core.lifecycle` makes them. A field that is None (or UNSET) leaves the column as it is.
    """

    id: str
    why: Why
    expect: frozenset[State]
    token: str | None = None  # of the claim that it speaks for; None where no claim is involved
    to: State | None = None
    delay: float | None = None  # back in so many seconds, counted from the write by the storage's clock
    run_at: float | None = None  # or back at an instant
    attempt: int | None = None
    crashes: int | None = None
    snoozes: int | None = None
    throttles: int | None = None
    priority: int | None = None
    queue: str | None = None
    # With `resolved`: what the job's row lacks, and the instant that follows from the timeout.
    max_attempts: int | None = None
    timeout: float | None = None
    deadline: float | None = None
    result: str | UnsetType | None = UNSET
    warning: str | UnsetType | None = UNSET
    meta: str | UnsetType | None = UNSET
    # With `waits`, the id of the answer that it waits for from now on: if that is there, the same write releases the
    # job. Otherwise of the one that it waited for in vain: refused if that was given, or was kept alive meanwhile.
    answer: str | None = None
    error: ErrorEntry | None = None
    cancel_wanted: bool | None = None
    cooling: Cooling | None = None
    follow_ups: tuple[NewJob, ...] = ()
    # The kept request that it takes out of the row. Refused, and said so, if another one is there by now; so is a
    # Change that ends a run (`ENDS_RUN`) and takes none, if one is there. `lifecycle.take_over` says what to write.
    takes: str | None = None
    # Refused, and said so, while a cancel is wanted: the pod then asks `lifecycle.obey_cancel` what to write instead.
    unless_cancel_wanted: bool = False
    # A rescue: refused if the claim's pod has a live lease again by the time it is written.
    if_lapsed: bool = False
    # Written by somebody other than the claim's owner: the owner's own finish, if it comes, is stale and not a repeat.
    foreign: bool = False
    remove: bool = False
    # What an operator's Change says of itself, in the write of the Change: the line of the job's timeline, and that of
    # the audit. Nothing else carries them: the quick arms of storages, which end runs, do not look for them.
    event: Event | None = None
    line: AuditLine | None = None


Why = Literal[
    "succeeded",
    "retried",
    "snoozed",
    "throttled",
    "failed",
    "cancelled",
    "released",
    "rescued",
    "resolved",
    "waits",
    "answered",
    "cancel_asked",
    "revived",
    "rescheduled",
    "moved",
    "reprioritised",
    "removed",
    "unkept",
]
# What a Change writes as it is, into the column of the same name.
WRITTEN: Final = (
    "attempt",
    "crashes",
    "snoozes",
    "throttles",
    "priority",
    "queue",
    "cancel_wanted",
    "max_attempts",
    "timeout",
    "deadline",
)
# After these a job is under way no more: what is kept behind it must take its place in the same write.
ENDS_RUN: Final[frozenset[Why]] = frozenset(
    {"succeeded", "retried", "snoozed", "throttled", "failed", "cancelled", "released", "rescued"}
)


class QueueChange(Struct, frozen=True, kw_only=True):
    """An operator's edit of one queue. With `version`, it is refused if somebody else was faster. What is UNSET stays
    as it is; None goes back to the built-in. `queue.edit` says what the row becomes."""

    name: str
    version: int | None = None
    by: str | None = None
    audit: str | None = None  # the id of the line that it writes there; None: it is no operator's
    told: str = ""  # what else that line says: on whose behalf, by which request
    paused: bool | UnsetType = UNSET
    paused_by: str | UnsetType | None = UNSET
    pause_reason: str | UnsetType | None = UNSET
    paused_until: float | UnsetType | None = UNSET
    max_workers: int | UnsetType | None = UNSET
    cool_until: float | UnsetType | None = UNSET
    rate: float | UnsetType | None = UNSET
    burst: int | UnsetType | None = UNSET
    aging: float | UnsetType | None = UNSET
    timeout: float | UnsetType | None = UNSET
    retry: RetryOverride | UnsetType | None = UNSET
    cool_base: float | UnsetType | None = UNSET
    cool_cap: float | UnsetType | None = UNSET
    keep_succeeded: float | UnsetType | None = UNSET
    keep_failed: float | UnsetType | None = UNSET
    keep_cancelled: float | UnsetType | None = UNSET


class RetryOverride(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a queue's live setting says about retries, over the heads of its tasks. None leaves the task's own."""

    max_attempts: int | None = None
    base: float | None = None
    cap: float | None = None
    curve: Literal["exponential", "fixed", "linear"] | None = None
