"""Why is it not running? The causal chain behind a job's state, in words.

Everything that can stand between a ready job and a slot is asked in the order in which a claim meets it: its time, the
gate of its queue, the pods that serve the queue, those of them that know the task, their slots, the cluster's total,
the rate, and at last the jobs before it. All that hold are told, the one to act on first: a queue that is paused and
that nobody serves needs two acts.

`Evidence` is what was read a moment ago, in several reads; a chain may be out of date by then, never wrong in kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from . import keep_last, lifecycle
from .backoff import Retry
from .duration import words
from .job import DEFAULT_MAX_ATTEMPTS, TERMINAL, Job, State
from .pod import Pod
from .queue import Queue

# Below this age a ready job has hardly been looked at: a pod that rests looks once a second.
JUST_NOW: Final = 2.0
_NAMED: Final = 5
_MOST_TEXT: Final = 300
OWN_QUEUE: Final = "own-queue"
_NO_SLOT: Final = frozenset({"slots-full", "max-workers"})
# Of these time alone is no cure. Slots that are full are normal under load; they need an act only where nothing moves.
_NEEDS_ACTION: Final = frozenset(
    {"paused", "no-workers-allowed", "no-pods", "unserved", "unknown-task", "quiet", "executor-down", OWN_QUEUE}
)
_NEEDS_ACTION_LATER: Final = _NO_SLOT | {"unexplained"}
STANDS_STILL: Final = 300.0


class Cause(Struct, frozen=True, kw_only=True):
    """One link of the chain. `code` is for programs and stays; `until` is when it ends by itself, if it does."""

    code: str
    text: str
    until: float | None = None
    remedy: str = ""


class Explanation(Struct, frozen=True, kw_only=True):
    """The answer: one line, and what is behind it. `blocked`: it needs action, and time alone will not
    help."""

    id: str
    state: State
    summary: str
    causes: tuple[Cause, ...] = ()
    blocked: bool = False


class Evidence(Struct, frozen=True, kw_only=True):
    """What an explanation is made of. Only the job is always needed."""

    now: float
    job: Job
    queue: Queue | None = None  # None: no row, built-in settings
    pods: Sequence[Pod] = ()
    running: Sequence[Job] = ()  # some of the jobs that run in its queue
    running_count: int = 0
    ahead: int = 0  # ready jobs of its queue that a claim would take before it
    ahead_capped: bool = False
    next_token: float | None = None  # seconds until its queue's rate allows one more claim; None: at once
    slow_claims: str = ""  # what the storage says makes claims slow
    waiter: Job | None = None  # the running job that waits for this one's result, if it is known


def explain(evidence: Evidence) -> Explanation:
    """The chain for one job, whatever its state."""
    job, now = evidence.job, evidence.now
    match job.state:
        case State.RUNNING:
            return _running(evidence)
        case State.SUCCEEDED | State.FAILED | State.CANCELLED:
            return _ended(job)
        case State.WAITING if job.behind is not None:
            text = f"it is kept behind job {job.behind}, and becomes a job when that one's run has ended"
            return _answer(job, (Cause(code="kept", text=text),), blocked=False)
        case State.WAITING:
            text = f"it waits for an outside answer until{_at(job.deadline).removeprefix(' at')}"
            if job.deadline is None or not _at(job.deadline):
                text = "it waits for an outside answer"
            elif job.deadline <= now:
                text = "no outside answer came in time: its attempt is being ended"
            cause = Cause(code="waiting", text=text, until=job.deadline)
            return _answer(job, (cause,), blocked=False)
        case State.SCHEDULED:
            first = Cause(code="scheduled", text=_why_later(job, evidence.queue, now), until=job.run_at)
            # What will stand in its way when its time has come is worth knowing today.
            return _answer(job, (first, *_gate(evidence), *_served(evidence)), blocked=False)
        case _:
            full = _full(evidence)
            causes = (*_gate(evidence), *_served(evidence), *_own_queue(evidence, full), *full, *_order(evidence))
            if not causes:
                causes = (_soon(job, now),)
            return _answer(job, causes, blocked=any(_needs_action(cause, evidence) for cause in causes))


def _needs_action(cause: Cause, evidence: Evidence) -> bool:
    if cause.code in _NEEDS_ACTION_LATER:
        return _stands_still(cause, evidence)
    return cause.code in _NEEDS_ACTION and cause.until is None


def _stands_still(cause: Cause, evidence: Evidence) -> bool:
    """Whether it has waited for minutes, and for as long no run of its queue has begun: a slot that becomes free is
    given to a job at once."""
    since = evidence.now - STANDS_STILL
    if evidence.job.run_at > since:
        return False
    begun = [job.started_at for job in evidence.running if job.started_at is not None]
    return cause.code not in _NO_SLOT or (bool(begun) and max(begun) <= since)


def in_a_line(evidence: Evidence) -> str:
    """The whole chain with its remedies and the last error, for the text of a ResultTimeout."""
    job, found = evidence.job, explain(evidence)
    parts = [f"{cause.text} ({cause.remedy})" if cause.remedy else cause.text for cause in found.causes]
    if (last := job.error) is not None and job.state not in TERMINAL:
        parts.append(f"its last error was {': '.join(part for part in (last.type, last.message) if part)[:_MOST_TEXT]}")
    return f"{job.state}: {'; '.join(parts)}"


def waits_in_own_queue(explanation: Explanation) -> str:
    """The words for a job that waits for a result of its own full queue; empty if it does not."""
    return next((cause.text for cause in explanation.causes if cause.code == OWN_QUEUE), "")


def _answer(job: Job, causes: tuple[Cause, ...], *, blocked: bool) -> Explanation:
    return Explanation(
        id=job.id, state=job.state, summary=f"{job.state}: {causes[0].text}", causes=causes, blocked=blocked
    )


def _running(evidence: Evidence) -> Explanation:
    job, now = evidence.job, evidence.now
    pod = next((pod for pod in evidence.pods if pod.card.id == job.pod), None)
    label = pod.card.label if pod is not None else job.pod or "?"
    since = _span(max(0.0, now - (job.started_at or now)))
    causes = [Cause(code="running", text=f"attempt {job.attempt} has been running on pod {label} for {since}")]
    if pod is None or not pod.live:
        causes.insert(
            0,
            Cause(code="stuck", text=f"its pod {label} is gone or silent: the job is rescued when its lease is over"),
        )
    if job.cancel_wanted:
        causes.append(Cause(code="cancel-wanted", text="a cancel was asked for; the task has not stopped yet"))
    if (kept := keep_last.id_of(job.kept)) is not None:
        causes.append(Cause(code="keeps", text=f"job {kept} is kept behind it, and takes over when this run has ended"))
    if job.deadline is not None:
        late = now > job.deadline
        text = "its deadline has passed: it is being stopped" if late else "it is stopped at its deadline"
        causes.append(Cause(code="deadline", text=text, until=job.deadline))
    return _answer(job, tuple(causes), blocked=False)


def _ended(job: Job) -> Explanation:
    last = job.error
    told = "" if last is None else f": {last.kind}: {last.type or last.message}"
    if job.state is State.SUCCEEDED:
        cause = Cause(code="succeeded", text=f"it has succeeded{_at(job.finished_at)}, at attempt {job.attempt}")
    elif job.state is State.CANCELLED:
        cause = Cause(code="cancelled", text=f"it was cancelled{_at(job.finished_at)}{told}", remedy=_revive(job))
    else:
        most = job.max_attempts or DEFAULT_MAX_ATTEMPTS
        text = f"it has failed{_at(job.finished_at)}, at attempt {job.attempt} of {most}{told}"
        cause = Cause(code="failed", text=text, remedy=_revive(job))
    return _answer(job, (cause,), blocked=False)


def _why_later(job: Job, queue: Queue | None, now: float) -> str:
    wait = f"due in {_span(max(0.0, job.run_at - now))}{_at(job.run_at)}"
    last = job.error
    if last is not None and last.attempt == job.attempt and job.attempt > 0:
        most = lifecycle.most_attempts(job, Retry(), None if queue is None else queue.retry)
        told = f"{last.kind}: {last.type or last.message}"
        return f"{wait}, for attempt {job.attempt + 1} of {most}; the last ended by {told}"
    if job.throttles:
        return f"{wait}; its queue was throttled {_times(job.throttles)}"
    if job.snoozes:
        return f"{wait}; it has snoozed {_times(job.snoozes)}"
    return wait


def _gate(evidence: Evidence) -> tuple[Cause, ...]:
    """What the claim itself tests on the queue's row."""
    queue, now = evidence.queue, evidence.now
    if queue is None:
        return ()
    causes: list[Cause] = []
    if queue.paused and (queue.paused_until is None or queue.paused_until > now):
        by = f" by {queue.paused_by}" if queue.paused_by else ""
        reason = f": {queue.pause_reason}" if queue.pause_reason else ""
        causes.append(
            Cause(
                code="paused",
                text=f"queue {queue.name} is paused{by}{_at(queue.paused_at)}{reason}",
                until=queue.paused_until,
                remedy=f"treadle queues resume {queue.name}",
            )
        )
    if queue.cool_until is not None and queue.cool_until > now:
        causes.append(
            Cause(
                code="cooling",
                text=f"queue {queue.name} cools down after a throttle for {_span(queue.cool_until - now)} more",
                until=queue.cool_until,
                remedy=f"treadle queues set {queue.name} --warm",
            )
        )
    if queue.max_workers == 0:
        causes.append(
            Cause(
                code="no-workers-allowed",
                text=f"queue {queue.name} has max_workers 0: nothing is claimed from it",
                remedy=f"treadle queues scale {queue.name} 1",
            )
        )
    return tuple(causes)


def _served(evidence: Evidence) -> tuple[Cause, ...]:
    """Whether there is anybody to claim it."""
    job = evidence.job
    live = [pod for pod in evidence.pods if pod.live]
    serving = [pod for pod in live if job.queue in pod.card.queues]
    knowing = _knowing(evidence)
    if not live:
        text = "no worker is running" if not evidence.pods else "no worker is alive: the last ones have fallen silent"
        return (Cause(code="no-pods", text=text, remedy=f"treadle worker --queues {job.queue}"),)
    if not serving:
        served = sorted({name for pod in live for name in pod.card.queues})
        text = f"no live worker serves queue {job.queue} (they serve {_listed(served)})"
        return (Cause(code="unserved", text=text, remedy=f"start a worker with --queues {job.queue}"),)
    if not knowing:
        elsewhere = [pod.card.label for pod in live if job.task in pod.card.tasks]
        known = f"; {_listed(elsewhere)} knows it, but serves other queues" if elsewhere else ""
        text = f"no live worker of queue {job.queue} (there {_are(len(serving))}) knows task {job.task}{known}"
        return (Cause(code="unknown-task", text=text, remedy="deploy its code to a worker of that queue"),)
    if all(pod.is_quiet for pod in knowing):
        text = f"every worker that could run it claims nothing now: {_listed([pod.card.label for pod in knowing])}"
        return (Cause(code="quiet", text=text, remedy="treadle pods resume POD, or start another worker"),)
    troubles = [(pod.card.label, _trouble(job, pod)) for pod in knowing]
    if all(why for _, why in troubles):
        text = f"no worker can run its task now: {_listed([f'{label}: {why}' for label, why in troubles])}"
        return (Cause(code="executor-down", text=text, remedy="see the worker's log for why"),)
    return ()


def _trouble(job: Job, pod: Pod) -> str:
    about = pod.card.about.get(f"task {job.task}")
    return "" if pod.stats is None or about is None else pod.stats.troubles.get(about.executor, "")


def _full(evidence: Evidence) -> tuple[Cause, ...]:
    """Whether there is a place for it."""
    job, queue = evidence.job, evidence.queue
    busy = _busy_with(evidence)
    if queue is not None and queue.max_workers and evidence.running_count >= queue.max_workers:
        text = f"queue {job.queue} runs {evidence.running_count} of max_workers {queue.max_workers}{busy}"
        return (Cause(code="max-workers", text=text, remedy=f"treadle queues scale {job.queue} N"),)
    able = [pod for pod in _knowing(evidence) if not pod.is_quiet]
    full = [_is_full(evidence, pod) for pod in able]
    slots = sum(pod.card.queues[job.queue] for pod in able)
    if full and all(each == "" for each in full):
        text = f"all {slots} slots of queue {job.queue} in {_number(len(able), 'worker')} are taken{busy}"
        return (Cause(code="slots-full", text=text, remedy="wait, or start more workers"),)
    if full and None not in full:
        why = _listed([f"{pod.card.label} ({each or 'its slots'})" for pod, each in zip(able, full, strict=True)])
        text = f"every worker that could run it is full: {why}{busy}"
        return (Cause(code="slots-full", text=text, remedy="wait, or start more workers"),)
    if evidence.next_token is not None and queue is not None and queue.rate is not None:
        wait = _span(evidence.next_token)
        text = f"queue {job.queue} has used up its rate of {queue.rate:g}/s: the next claim is possible in {wait}"
        return (Cause(code="rate", text=text, until=evidence.now + evidence.next_token),)
    return ()


def _own_queue(evidence: Evidence, full: tuple[Cause, ...]) -> tuple[Cause, ...]:
    """Whether the job that waits for this one holds one of the slots that are missing."""
    job, waiter = evidence.job, evidence.waiter
    if waiter is None or waiter.queue != job.queue or not any(each.code in _NO_SLOT for each in full):
        return ()
    text = (
        f"job {waiter.id} ({waiter.task}) waits for it in a slot of the same queue {job.queue}, of which no slot is "
        "free: if every slot is held by a job that waits so, none of them ends"
    )
    return (Cause(code=OWN_QUEUE, text=text, remedy=f"give {job.task} a queue of its own, or use ctx.follow"),)


def _knowing(evidence: Evidence) -> list[Pod]:
    """The live pods that serve its queue and know its task."""
    job = evidence.job
    return [pod for pod in evidence.pods if pod.live and job.queue in pod.card.queues and job.task in pod.card.tasks]


def _is_full(evidence: Evidence, pod: Pod) -> str | None:
    """What of this pod is used up: nothing (None), its slots for the queue (""), or else in words."""
    queue, used = evidence.job.queue, _used(evidence, pod)
    if used >= pod.card.queues[queue]:
        return ""
    share = None if evidence.queue is None or evidence.queue.max_workers is None else pod.shares.get(queue)
    if share is not None and used >= share:
        return f"its share of max_workers, {share}"
    if pod.card.slots is not None and pod.running >= pod.card.slots:
        return f"its {_number(pod.card.slots, 'slot')} for all queues"
    return None


def _used(evidence: Evidence, pod: Pod) -> int:
    """Runs of the queue in one pod: counted, or, where only some of them were read, as its last beat told."""
    counted = sum(each.pod == pod.card.id for each in evidence.running)
    if pod.stats is None or len(evidence.running) >= evidence.running_count:
        return counted
    return max(counted, pod.stats.running.get(evidence.job.queue, 0))


def _order(evidence: Evidence) -> tuple[Cause, ...]:
    """What a claim would take before it, and what makes claims slow."""
    causes: list[Cause] = []
    if evidence.ahead:
        number = f"{evidence.ahead:,}{' or more' if evidence.ahead_capped else ''}"
        jobs = "job is" if evidence.ahead == 1 and not evidence.ahead_capped else "jobs are"
        aging = evidence.queue is not None and evidence.queue.aging is not None
        older = ", by their stored priorities (the queue ages: waiting raises them)" if aging else ""
        causes.append(Cause(code="behind", text=f"{number} {jobs} before it in queue {evidence.job.queue}{older}"))
    if evidence.slow_claims:
        causes.append(Cause(code="old-snapshot", text=evidence.slow_claims))
    if evidence.job.crashes:
        text = f"it has crashed {_times(evidence.job.crashes)}: it runs apart from other jobs, a few such at a time"
        causes.append(Cause(code="suspect", text=text))
    return tuple(causes)


def _soon(job: Job, now: float) -> Cause:
    age = max(0.0, now - job.run_at)
    if age < JUST_NOW:
        return Cause(code="soon", text="nothing is in its way: it has only just become ready")
    text = f"nothing that is known stands in its way, and it has been ready for {_span(age)}"
    return Cause(code="unexplained", text=text, remedy="treadle doctor")


def _busy_with(evidence: Evidence) -> str:
    counts: dict[str, int] = {}
    for each in evidence.running:
        counts[each.task] = counts.get(each.task, 0) + 1
    if not counts:
        return ""
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_NAMED]
    return f" ({', '.join(f'{task} ×{count}' for task, count in most)})"


def _span(seconds: float) -> str:
    """Nobody at night wants milliseconds of an hour."""
    return words(round(seconds, 1) if seconds < 10 else round(seconds))


def _revive(job: Job) -> str:
    return f"treadle jobs revive {job.id}"


def _at(instant: float | None) -> str:
    if instant is None:
        return ""
    try:
        moment = datetime.fromtimestamp(instant, UTC)
    except (ValueError, OverflowError, OSError):  # a damaged row
        return ""
    return f" at {moment:%Y-%m-%d %H:%M:%S}Z"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown or "nothing"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _are(count: int) -> str:
    return "is 1" if count == 1 else f"are {count}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
