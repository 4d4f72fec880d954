"""Operation: one act upon many jobs, as a durable row that whoever has the time works off, chunk by chunk.

What makes it safe to be killed anywhere, and to be worked on by two at once:

* The jobs are visited from the newest to the oldest, in an order that no Change moves a job in. The cursor says how far
  it has come, and it is written in the commit that writes the chunk: a chunk happened, or it did not.
* Every write names the version it has read. Of two who work on the same chunk, one is refused, wholly.
* Jobs that were made after `cutoff` are left alone, and times in the filter are counted from there: what was previewed
  is what is changed, however long it takes.
* Each job gets a Change of its own, with the state that it expects. One that lost a race is `too_late`; one that its
  state or its unique key does not allow is `refused`. Neither harms its neighbours.

All of it is decided here: the storage applies what `decide` made and writes what `after` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias, get_args

import msgspec
from msgspec import Struct

from . import filter as filters
from . import lifecycle, names
from .audit import AuditLine
from .filter import Filter
from .job import CLAIMABLE, LIVE, TERMINAL, Change, Job, State

Act: TypeAlias = Literal["revive", "cancel", "reschedule", "priority", "move", "delete"]
OperationState: TypeAlias = Literal["running", "stopping", "stopped", "finished", "failed"]

ACTS: Final[tuple[Act, ...]] = get_args(Act)
CHUNK: Final = 500
UNDER_WAY: Final = frozenset({"running", "stopping"})
_STEERED: Final = frozenset({"stopping", "stopped", "resumed"})
_NOT_STARTED: Final = CLAIMABLE | {State.WAITING}
# In which states a job can be acted upon, and what is said of the others.
FITS: Final[dict[str, frozenset[State]]] = {
    "revive": TERMINAL,
    "cancel": LIVE,
    "reschedule": CLAIMABLE,
    "priority": _NOT_STARTED,
    "move": _NOT_STARTED,
    "delete": TERMINAL,
}
OTHERS: Final[dict[str, str]] = {
    "revive": "refused: they have not ended",
    "cancel": "too late: they have ended",
    "reschedule": "refused: only what is scheduled or ready can be given another time",
    "priority": "refused: they have started",
    "move": "refused: they have started",
    "delete": "cancelled instead: they have not ended",
}


class Operation(Struct, frozen=True, kw_only=True):
    """One act upon all jobs that a filter describes. Instants are the storage's; it writes them."""

    id: str
    act: Act
    filter: str  # in canonical form; "" is every job
    delay: float | None = None
    run_at: float | None = None
    priority: int | None = None
    queue: str | None = None
    by: str | None = None
    reason: str | None = None
    attended: bool = False  # whoever started it works on it; others take it up only when it rests
    steered_by: str | None = None  # who stopped or resumed it last
    state: OperationState = "running"
    cutoff: float = 0.0
    cursor: str | None = None
    matched: int = 0
    changed: int = 0
    too_late: int = 0
    refused: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    finished_at: float | None = None
    error: str | None = None
    version: int = 0


class Chunk(Struct, frozen=True):
    """What a page of jobs asks for: the Changes, and the numbers of those for which there is none."""

    changes: tuple[Change, ...]
    cursor: str | None  # where the next page begins; None: this was the last
    matched: int = 0
    too_late: int = 0
    refused: int = 0


class Answer(Protocol):
    """What a storage answers to a Change."""

    @property
    def accepted(self) -> bool: ...
    @property
    def error(self) -> str | None: ...


def new(
    id: str,
    act: str,
    filter_text: str,
    *,
    everything: bool = False,
    delay: float | None = None,
    run_at: float | None = None,
    priority: int | None = None,
    queue: str | None = None,
    by: str | None = None,
    reason: str | None = None,
    attended: bool = False,
) -> Operation:
    """An Operation that is complete and makes sense; ValueError, or FilterError, says what is wrong."""
    if act not in ACTS:
        near = names.suggest(act, ACTS)
        raise ValueError(f"there is no act {act!r}; " + (f"did you mean {near!r}?" if near else f"one of {_list()}"))
    which = filters.parse(filter_text)
    if not which.terms and not everything:
        raise ValueError(f"{act} needs a filter, or the explicit wish for all jobs")
    if which.terms and everything:
        raise ValueError("all jobs and a filter exclude each other: give one of them")
    if act == "move" and queue is None:
        raise ValueError("move needs the queue to move to")
    if act == "priority" and priority is None:
        raise ValueError("priority needs the number to set")
    if queue is not None:
        _only(act, "queue", "move", "revive")
        names.check_name("queue", queue)
    if priority is not None:
        _only(act, "priority", "priority", "revive")
        names.check_priority(priority)
    if delay is not None or run_at is not None:
        _only(act, "time", "reschedule", "revive")
    if reason is not None:
        names.check_reason(reason)
    return Operation(
        id=id,
        act=act,
        filter=str(which),
        delay=delay,
        run_at=run_at,
        priority=priority,
        queue=queue,
        by=by,
        reason=reason,
        attended=attended,
    )


def which(operation: Operation) -> Filter:
    """The jobs that it is about: its filter, as it reads at the cut-off."""
    return filters.at(filters.parse(operation.filter), operation.cutoff)


def change(operation: Operation, job: Job) -> Change | None:
    """The Change for one job; None if its state does not allow it."""
    match operation.act:
        case "revive":
            return lifecycle.revive(
                job,
                delay=operation.delay or 0.0,
                run_at=operation.run_at,
                priority=operation.priority,
                queue=operation.queue,
            )
        case "cancel":
            return lifecycle.cancel(job)
        case "reschedule":
            return lifecycle.reschedule(job, delay=operation.delay or 0.0, run_at=operation.run_at)
        case "priority":
            assert operation.priority is not None
            return lifecycle.set_priority(job, operation.priority)
        case "move":
            assert operation.queue is not None
            return lifecycle.move(job, operation.queue)
        case _:
            return lifecycle.remove(job) or lifecycle.cancel(job)


def decide(operation: Operation, jobs: Sequence[Job], cursor: str | None) -> Chunk:
    """What to do about a page of jobs that match; `cursor` is where the next page begins."""
    old = [job for job in jobs if job.created_at <= operation.cutoff]
    changes = tuple(made for job in old if (made := change(operation, job)) is not None)
    without = len(old) - len(changes)
    # Only a cancel can come too late for a job that nobody else has touched.
    too_late, refused = (without, 0) if operation.act == "cancel" else (0, without)
    return Chunk(changes, cursor, len(old), too_late, refused)


def after(operation: Operation, chunk: Chunk, answers: Sequence[Answer]) -> Operation:
    """The row once the chunk is written."""
    changed = sum(answer.accepted for answer in answers)
    refused = sum(answer.error is not None for answer in answers if not answer.accepted)
    return msgspec.structs.replace(
        operation,
        cursor=chunk.cursor,
        matched=operation.matched + chunk.matched,
        changed=operation.changed + changed,
        too_late=operation.too_late + chunk.too_late + len(answers) - changed - refused,
        refused=operation.refused + chunk.refused + refused,
        state="finished" if chunk.cursor is None else operation.state,
    )


def stop(operation: Operation, by: str | None = None) -> Operation | None:
    """The wish to stop it, which the next chunk obeys; None if it is not under way."""
    if operation.state not in UNDER_WAY:
        return None
    return msgspec.structs.replace(operation, state="stopping", steered_by=by)


def halt(operation: Operation, error: str | None = None) -> Operation:
    """The wish is obeyed; or it cannot go on."""
    return msgspec.structs.replace(operation, state="stopped" if error is None else "failed", error=error)


def resume(operation: Operation, *, attended: bool, by: str | None = None) -> Operation | None:
    """Go on where it ended; None if there is nothing left to do."""
    if operation.state == "finished":
        return None
    return msgspec.structs.replace(
        operation, state="running", error=None, finished_at=None, attended=attended, steered_by=by
    )


def written(operation: Operation, before: Operation | None, now: float) -> Operation:
    """The row as a storage writes it: one version further, with its clock's instants."""
    over = operation.state not in UNDER_WAY
    if before is None:
        return msgspec.structs.replace(operation, created_at=now, cutoff=now, updated_at=now, version=1)
    return msgspec.structs.replace(
        operation, updated_at=now, finished_at=now if over else None, version=before.version + 1
    )


def line(operation: Operation, before: Operation | None) -> AuditLine | None:
    """What the audit says of this write: how it began, how it ended, and nothing of what is between."""
    if before is not None and before.state == operation.state:
        return None
    said = "started" if before is None else "resumed" if operation.state == "running" else operation.state
    counts = (
        f"matched {operation.matched}, changed {operation.changed}, too late {operation.too_late}, "
        f"refused {operation.refused}"
    )
    return AuditLine(
        id=f"{operation.id}:{operation.version:08}",  # in the order of its versions
        act=f"jobs.{operation.act}",
        subject=operation.filter or "all jobs",
        by=operation.steered_by if said in _STEERED else operation.by,
        reason=operation.reason,
        detail="; ".join([said, *_chosen(operation), *([] if before is None else [counts])]),
        operation=operation.id,
        at=operation.updated_at,
    )


def _chosen(operation: Operation) -> list[str]:
    from . import audit_words  # when it is needed: see `audit.of_queue`

    named = {name: getattr(operation, name) for name in ("queue", "priority", "delay", "run_at")}
    return audit_words.said({name: value for name, value in named.items() if value is not None})


def _only(act: str, what: str, *acts: Act) -> None:
    if act not in acts:
        raise ValueError(f"{act} takes no {what}; {' and '.join(acts)} do")


def _list() -> str:
    return ", ".join(ACTS)
