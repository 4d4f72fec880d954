"""Jobs, queues and pods as people read them: the same field names in Python, on the command line and over HTTP.

Instants become date-times in UTC, arguments and results become values. `as_json` gives the shape that every door
prints: instants in ISO 8601 with milliseconds, durations in seconds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, cast

from . import keep_last, payload, progress, settings
from .catalog import Known
from .errors import PayloadError
from .explain import Explanation
from .filter import Row
from .job import NEVER, ErrorEntry, Job, State, cause_of, has_cause
from .logline import LogView
from .pod import Descriptor, Pod, PodStats
from .progress import ProgressView, Reported
from .queue import COUNTED, FOR_EVER, QueueStats
from .schedule_view import FireView, ScheduleView

_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorView:
    """How one attempt ended, when it did not end well.

    >>> app.jobs.get_sync(failed.id).error.message
    'the far side is down'
    """

    attempt: int
    kind: str
    type: str
    message: str
    trace: str
    place: str
    pod: str | None
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitView:
    """For what a waiting job waits: somebody's answer, until then. `since`: when the attempt began that waits.

    >>> job = app.jobs.get_sync(sent.id)
    >>> job.waits is None  # only a job in the state `waiting` has one: job.waits.until
    True
    """

    until: datetime | None
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """One job, as it is now.

    >>> job = app.jobs.get_sync(sent.id)
    >>> job.state, job.attempt, job.result
    ('succeeded', 1, 'sent to 7')
    """

    id: str
    task: str
    queue: str
    state: str
    attempt: int
    max_attempts: int | None
    priority: int
    run_at: datetime
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    deadline: datetime | None
    timeout: float | None
    pod: str | None
    slot: str | None
    args: Any
    result: Any
    error: ErrorView | None
    errors: tuple[ErrorView, ...]
    error_count: int
    tags: tuple[str, ...]
    reason: str | None
    meta: Any
    unique_key: str | None
    cancel_wanted: bool
    crashes: int
    snoozes: int
    throttles: int
    warning: str | None
    progress: ProgressView | None = None  # what its runs have last said; None after a success
    kept: str | None = None  # the id of the request that is kept behind it: a job when its run has ended
    behind: str | None = None  # it is such a request itself: kept behind that job
    waits: WaitView | None = None  # for an answer from outside


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One queue: its live settings and what is in it.

    >>> queue = app.queues.get_sync("mail")
    >>> queue.paused, queue.failed
    (False, 1)
    """

    name: str
    paused: bool
    ready: int
    scheduled: int
    waiting: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    oldest_ready_seconds: float | None
    max_workers: int | None
    slots: int  # of all live pods that serve it
    pods: int
    cool_until: datetime | None
    paused_by: str | None
    paused_at: datetime | None
    pause_reason: str | None
    paused_until: datetime | None
    version: int
    capped_at: int
    cool_exponent: int = 0
    rate: float | None = None  # a second
    burst: int | None = None
    aging: float | None = None
    timeout: float | None = None  # 0: no limit
    max_attempts: int | None = None
    backoff: str | None = None
    backoff_base: float | None = None
    backoff_cap: float | None = None
    cool_base: float | None = None
    cool_cap: float | None = None
    keep_succeeded: float | str | None = None  # seconds, or "forever"
    keep_failed: float | str | None = None
    keep_cancelled: float | str | None = None
    description: str = ""
    owner: str = ""
    docs: str = ""
    tags: tuple[str, ...] = ()
    drift: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task that pods know, or have known.

    >>> app.catalog.task_sync("send").description
    'sends a mail'
    """

    name: str
    queue: str  # where its jobs go, if the call names no other
    description: str
    owner: str
    docs: str
    tags: tuple[str, ...]
    pods: tuple[str, ...]  # labels of the live pods that know it
    seen_at: datetime | None  # when a pod that knows it last came or went
    stale: bool  # unseen for 30 days
    drift: tuple[str, ...]  # where live pods disagree about it
    executor: str = ""  # what runs it: async, thread, process, command, http, pool:NAME; "" if no pod says so


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """What one look for jobs of dead pods has done.

    >>> app.pods.sweep_sync().rescued
    0
    """

    rescued: int  # jobs of dead pods, and of runs that went on far beyond their deadline
    waits: int  # jobs that waited for an answer which nobody gave in time
    pods: dict[str, int]  # label of the dead pod → how many of its jobs
    queues: dict[str, dict[str, int]]  # queue → what became of them (rescued, retried, failed, cancelled) → how many


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """One worker process.

    >>> [pod.label for pod in app.pods.list_sync() if pod.live]
    []
    """

    id: str
    label: str
    host: str
    pid: int
    version: str  # Treadle's
    state: str  # live, quiet, stopping, lapsed or lost
    leader: bool
    queues: dict[str, int]
    tasks: tuple[str, ...]
    running: int
    started_at: datetime
    beat_at: datetime
    lease_left: float
    worker_version: str = ""  # of the user's code: the setting `worker_version`
    wish: str = "serve"  # what an operator wants of it: serve, quiet or stop
    wish_by: str | None = None
    can_lead: bool = True
    slots: int | None = None  # over all its queues, if there is such a number
    shares: dict[str, int] = field(default_factory=dict[str, int])  # of the queues' max_workers, where there are some
    # As it says itself with its last beat:
    runs: dict[str, int] = field(default_factory=dict[str, int])  # queue → runs under way
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    loop_lag: float = 0.0  # the longest since the beat before
    slow_task: str = ""  # that was on the loop meanwhile, as far as it was seen
    clock_skew: float = 0.0  # of its machine's clock, before the storage's; seconds
    threads: int = 0
    stuck_threads: int = 0
    abandoned: int = 0
    children: int = 0
    stacks_at: datetime | None = None  # when it last showed its stacks

    @property
    def live(self) -> bool:
        return self.state in ("live", "quiet", "stopping")


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseView:
    """One link of the chain. `code` is for programs; `until` is when it ends by itself, if it does."""

    code: str
    text: str
    until: datetime | None
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationView:
    """Why a job is not running, or where it is. `blocked`: it needs action, and time alone will not help."""

    id: str
    state: str
    summary: str
    blocked: bool
    causes: tuple[CauseView, ...]


def explanation_view(explanation: Explanation) -> ExplanationView:
    causes = tuple(
        CauseView(code=each.code, text=each.text, until=_instant(each.until), remedy=each.remedy)
        for each in explanation.causes
    )
    return ExplanationView(
        id=explanation.id,
        state=explanation.state.value,
        summary=explanation.summary,
        blocked=explanation.blocked,
        causes=causes,
    )


def job_view(job: Job, reported: Reported | None = None) -> JobView:
    errors = tuple(_error_view(entry) for entry in job.errors)
    return JobView(
        id=job.id,
        task=job.task,
        queue=job.queue,
        state=job.state.value,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        priority=job.priority,
        run_at=_moment(_due(job)),
        created_at=_moment(job.created_at),
        started_at=_instant(job.started_at),
        finished_at=_instant(job.finished_at),
        deadline=_instant(job.deadline),
        timeout=job.timeout,
        pod=job.pod,
        slot=job.slot,
        args=_value(job.args),
        result=_value(job.result),
        error=errors[-1] if errors else None,
        errors=errors,
        error_count=job.error_count,
        tags=job.tags,
        reason=job.reason,
        meta=_value(job.meta),
        unique_key=job.unique_key,
        cancel_wanted=job.cancel_wanted,
        crashes=job.crashes,
        snoozes=job.snoozes,
        throttles=job.throttles,
        warning=job.warning,
        progress=None if reported is None else progress_view(reported),
        kept=keep_last.id_of(job.kept) if job.behind is None else None,
        behind=job.behind,
        waits=_wait_view(job),
    )


def _wait_view(job: Job) -> WaitView | None:
    if job.state is not State.WAITING or job.behind is not None:
        return None
    return WaitView(until=_instant(job.deadline), since=_instant(job.started_at))


def _due(job: Job) -> float:
    """A job that waits has no time of its own: it is due when its wait is over. If it ended meanwhile: when it ran."""
    if job.run_at < NEVER:
        return job.run_at
    return job.deadline or job.started_at or job.run_at


def progress_view(reported: Reported) -> ProgressView:
    said = reported.progress
    return ProgressView(
        done=said.done,
        total=said.total,
        share=progress.share(said),
        note=said.note,
        data=_value(said.data),
        at=_moment(reported.at),
        attempt=reported.attempt,
    )


def task_view(known: Known) -> TaskView:
    said = known.descriptor
    return TaskView(
        name=known.name,
        queue=said.queue,
        description=said.description,
        owner=said.owner,
        docs=said.docs,
        tags=said.tags,
        pods=known.pods,
        seen_at=_instant(known.seen_at),
        stale=known.stale,
        drift=known.drift,
        executor=said.executor,
    )


def _setting(value: Any) -> Any:
    return "forever" if value == FOR_EVER else value


def queue_view(stats: QueueStats, pods: list[Pod], known: Known | None = None) -> QueueView:
    queue = stats.queue
    said = Descriptor() if known is None else known.descriptor
    live = {name: _setting(value) for name, value in settings.values(queue).items() if name != "max_workers"}
    serving = [pod for pod in pods if pod.live and queue.name in pod.card.queues]
    return QueueView(
        name=queue.name,
        paused=queue.paused,
        ready=stats.ready,
        scheduled=stats.scheduled,
        waiting=stats.waiting,
        running=stats.running,
        succeeded=stats.succeeded,
        failed=stats.failed,
        cancelled=stats.cancelled,
        oldest_ready_seconds=stats.oldest_ready_seconds,
        max_workers=queue.max_workers,
        slots=sum(pod.card.queues[queue.name] for pod in serving),
        pods=len(serving),
        cool_until=_instant(queue.cool_until),
        paused_by=queue.paused_by,
        paused_at=_instant(queue.paused_at),
        pause_reason=queue.pause_reason,
        paused_until=_instant(queue.paused_until),
        version=queue.version,
        capped_at=stats.capped_at,
        cool_exponent=queue.cool_exponent,
        description=said.description,
        owner=said.owner,
        docs=said.docs,
        tags=said.tags,
        drift=() if known is None else known.drift,
        **live,
    )


def is_at_least(queue: QueueView, state: str) -> bool:
    """Whether there may be more jobs in this state than were counted."""
    return state not in COUNTED and getattr(queue, state) >= queue.capped_at


def pod_view(pod: Pod) -> PodView:
    said = pod.stats or PodStats()
    return PodView(
        id=pod.card.id,
        label=pod.card.label,
        host=pod.card.host,
        pid=pod.card.pid,
        version=pod.card.version,
        state=pod.state,
        leader=pod.leader,
        queues=pod.card.queues,
        tasks=pod.card.tasks,
        running=pod.running,
        started_at=_moment(pod.started_at),
        beat_at=_moment(pod.beat_at),
        lease_left=max(0.0, pod.lease_left),
        worker_version=pod.card.worker_version,
        wish=pod.wish,
        wish_by=pod.wish_by,
        can_lead=pod.card.can_lead,
        slots=pod.card.slots,
        shares=pod.shares,
        runs=said.running,
        cpu_seconds=said.cpu_seconds,
        rss_bytes=said.rss_bytes,
        loop_lag=said.loop_lag,
        slow_task=said.slow_task,
        clock_skew=said.clock_skew,
        threads=said.threads,
        stuck_threads=said.stuck_threads,
        abandoned=said.abandoned,
        children=said.children,
        stacks_at=_instant(pod.stacks_at),
    )


def as_json(
    view: JobView
    | QueueView
    | PodView
    | SweepView
    | ExplanationView
    | TaskView
    | ScheduleView
    | FireView
    | LogView
    | ProgressView,
) -> dict[str, Any]:
    """The view as JSON values, in the shape that CLI and HTTP print."""
    return {field.name: _plain(getattr(view, field.name)) for field in dataclasses.fields(view)}


def row_of(job: Job, *, stuck: bool) -> Row:
    """The job as the filter language sees it."""
    last = job.errors[-1] if job.errors else None
    meta = _object(job.meta)
    return Row(
        id=job.id,
        state=job.state.value,
        queue=job.queue,
        task=job.task,
        tags=job.tags,
        cause=cause_of(job.task, last) if last is not None and has_cause(job) else None,
        unique_key=job.unique_key,
        pod=job.pod,
        priority=job.priority,
        attempt=job.attempt,
        created_at=job.created_at,
        run_at=job.run_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        error_text=f"{last.type or last.kind}: {last.message}" if last is not None else None,
        reason=job.reason,
        args=_value(job.args),
        meta=meta,
        result=_value(job.result),
        cancel_wanted=job.cancel_wanted,
        crashes=job.crashes,
        throttles=job.throttles,
        schedule=meta.get("treadle:schedule"),
        parent=meta.get("treadle:parent"),
        stuck=stuck,
    )


def _error_view(entry: ErrorEntry) -> ErrorView:
    return ErrorView(
        attempt=entry.attempt,
        kind=entry.kind,
        type="" if entry.kind == "timeout" else entry.type,  # older rows have the exception by which a run was stopped
        message=entry.message,
        trace=entry.trace,
        place=entry.place,
        pod=entry.pod,
        started_at=_instant(entry.started_at),
        ended_at=_instant(entry.ended_at),
    )


def _object(text: str | None) -> dict[str, Any]:
    found = _value(text)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _value(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return payload.decode_trusted(text)
    except PayloadError:
        # A row that somebody damaged must still be shown; the run will say that it cannot be decoded.
        return {"undecodable": text[:200]}


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else _moment(seconds)


def _moment(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):  # a damaged row
        return _LAST if seconds > 0 else _FIRST


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, (ErrorView, CauseView, ProgressView, WaitView)):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return value
