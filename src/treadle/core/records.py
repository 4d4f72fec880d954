"""Operations, audit lines and failures as people read them, and what an act would do before it does it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from . import operation as operating
from .audit import AuditLine
from .counted import Counted
from .deploy import Deploy
from .failure import FailureGroup, Mark
from .filter import Filter, Term, Value
from .job import Job, State
from .mute import Mute
from .operation import Operation

SAMPLES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationView:
    """One act upon many jobs, as it stands.

    >>> operation = app.operations.start_sync("cancel", "queue:fax", by="ann")
    >>> operation.state
    'running'
    """

    id: str
    act: str
    filter: str
    state: str
    matched: int
    changed: int
    too_late: int
    refused: int
    by: str | None
    reason: str | None
    queue: str | None
    priority: int | None
    delay: float | None
    run_at: datetime | None
    cutoff: datetime
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    error: str | None
    version: int

    @property
    def is_over(self) -> bool:
        return self.state not in operating.UNDER_WAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What an act would do to the jobs that match now. Nothing has been written.

    >>> app.operations.preview_sync("revive", "state:failed").changes
    1
    """

    act: str
    filter: str
    matched: int
    capped: bool  # there are more than were counted
    changes: int  # how many of them would be changed
    others: str  # what would become of the rest
    states: dict[str, int]
    queues: dict[str, int]  # of the newest 10,000
    tasks: dict[str, int]
    samples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureView:
    """Jobs with one cause: those that failed for good, and those that wait for their next attempt. `filter` finds all
    of them, also those that were not counted here.

    >>> group = app.jobs.failures_sync().groups[0]
    >>> group.type, group.failed, group.retrying
    ('ConnectionError', 1, 0)
    """

    cause: str
    filter: str
    task: str
    type: str
    place: str
    count: int  # both together
    failed: int  # given up: they failed for good
    retrying: int  # they wait for their next attempt
    first_at: datetime  # as far as jobs are kept
    last_at: datetime
    sample: str  # the id of the last one
    message: str
    mark: Mark | None = None  # new, or regressed: back after a day of silence
    back_at: datetime | None = None  # when it was seen again after its last silence, if there was one
    muted: bool = False  # people know of it: it is folded, and left out of what is shown first
    muted_until: datetime | None = None
    muted_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployView:
    """A version of your own code (`worker_version`), and when workers with it registered: the first, and the last.

    >>> app.pods.deploys_sync()
    []
    """

    version: str
    first_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FailurePage:
    """The largest groups first, of the newest failures and of the next retries. `capped`: there are more than
    `looked_at`.

    >>> page = app.jobs.failures_sync()
    >>> page.looked_at, page.capped, page.deploy
    (1, False, None)
    """

    groups: tuple[FailureView, ...]
    looked_at: int
    capped: bool
    new_since: datetime  # a cause that was first seen before is not new
    deploy: DeployView | None = None  # that this is the first sight of; None: the last 24 hours


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditView:
    """Who did what, to what, when, and what came of it.

    >>> app.queues.pause_sync("telex", by="ann", reason="out of paper").paused
    True
    >>> app.audit.list_sync(1)[0].by
    'ann'
    """

    id: str
    at: datetime
    by: str | None
    act: str
    subject: str
    reason: str | None
    detail: str
    operation: str | None


def operation_view(found: Operation) -> OperationView:
    return OperationView(
        id=found.id,
        act=found.act,
        filter=found.filter,
        state=found.state,
        matched=found.matched,
        changed=found.changed,
        too_late=found.too_late,
        refused=found.refused,
        by=found.by,
        reason=found.reason,
        queue=found.queue,
        priority=found.priority,
        delay=found.delay,
        run_at=None if found.run_at is None else _moment(found.run_at),
        cutoff=_moment(found.cutoff),
        created_at=_moment(found.created_at),
        updated_at=_moment(found.updated_at),
        finished_at=None if found.finished_at is None else _moment(found.finished_at),
        error=found.error,
        version=found.version,
    )


def preview(found: Operation, jobs: Iterable[Job], *, capped: bool) -> Preview:
    """What the operation would do to these jobs."""
    jobs = list(jobs)
    fits = operating.FITS[found.act]
    return Preview(
        act=found.act,
        filter=found.filter,
        matched=len(jobs),
        capped=capped,
        changes=sum(job.state in fits for job in jobs),
        others=operating.OTHERS[found.act],
        states={state.value: number for state in State if (number := sum(job.state is state for job in jobs))},
        queues=_counts(job.queue for job in jobs),
        tasks=_counts(job.task for job in jobs),
        samples=tuple(job.id for job in jobs[:SAMPLES]),
    )


def counted(found: Preview, numbers: Mapping[State, int]) -> Preview:
    """A preview of more jobs than were looked at, with how many there are of each state. Where these may be too low it
    stays `capped`; where they are lower than what was seen, it stays as it is."""
    total = sum(numbers.values())
    if total < found.matched:
        return found
    fits = operating.FITS[found.act]
    return replace(
        found,
        matched=total,
        capped=bool(isinstance(numbers, Counted) and numbers.at_least),
        changes=sum(number for state, number in numbers.items() if state in fits),
        states={state.value: numbers[state] for state in State if numbers.get(state)},
    )


def failure_view(group: FailureGroup, mute: Mute | None = None, mark: Mark | None = None) -> FailureView:
    return FailureView(
        cause=group.cause,
        filter=str(Filter((Term("cause", (Value(group.cause),)),))),
        task=group.task,
        type=group.type,
        place=group.place,
        count=group.count,
        failed=group.failed,
        retrying=group.retrying,
        first_at=_moment(group.first_at),
        last_at=_moment(group.last_at),
        sample=group.sample,
        message=group.message,
        mark=mark,
        back_at=None if group.back_at is None else _moment(group.back_at),
        muted=mute is not None,
        muted_until=None if mute is None or mute.until is None else _moment(mute.until),
        muted_by=None if mute is None else mute.who,
    )


def deploy_view(deploy: Deploy) -> DeployView:
    return DeployView(version=deploy.version, first_at=_moment(deploy.first_at), seen_at=_moment(deploy.seen_at))


def audit_view(line: AuditLine) -> AuditView:
    from . import audit_words  # when it is needed: see `audit.of_queue`

    return AuditView(
        id=line.id,
        at=_moment(line.at),
        by=line.by,
        act=line.act,
        subject=line.subject,
        reason=line.reason,
        detail=audit_words.mended(line.detail),
        operation=line.operation,
    )


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(Counter(names).most_common())


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
