"""Attention: what a person should look at first, with since when, where to look and the command that helps.

Values in, items out, the worst first. The dashboard shows them on its first page, and the HTTP API at `/attention`.

Some of it is read anew for every page (`Evidence` of queues, pods, schedules and runs), the rest are facts of `treadle
doctor`, read now and then. A fact that the fresh evidence tells better is left to that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .duration import words
from .fact import Fact
from .failing import Failing, Pair
from .job import ErrorEntry, Job, State, cause_of
from .schedule_view import ScheduleView
from .view import PodView, QueueView
from .warnings import ClusterWarning

OLD_READY: Final = 300.0
SLOW_LOOP: Final = 0.5
WRONG_CLOCK: Final = 1.0
LOST_LATELY: Final = 3_600.0
MOST_OF_A_KIND: Final = 20

Level: TypeAlias = Literal["error", "warn"]


class Item(Struct, frozen=True, kw_only=True):
    """`page` and `filter` say where to look: a page of the dashboard, and the jobs that it is about. `kind` and
    `subject` are the same for as long as the thing lasts, whatever the text says of it."""

    kind: str
    subject: str = ""
    level: Level
    text: str
    remedy: str = ""  # a command, or empty
    advice: str = ""  # what helps, in words, where there is no command for it
    page: str = "jobs"
    filter: str = ""
    seconds: float | None = None  # since when, as far as can be told

    def since(self, now: datetime) -> datetime | None:
        """To ten seconds: it is worked out anew each time, and should come out the same."""
        if self.seconds is None:
            return None
        return datetime.fromtimestamp((now.timestamp() - self.seconds) // 10 * 10, UTC)


class Cause(Struct, frozen=True, kw_only=True):
    """Why most runs of a task failed of late, as the errors of its jobs tell."""

    cause: str  # as `core.job.cause_of` writes it
    type: str
    place: str
    retrying: bool  # most of those jobs are tried again; the others have failed for good


class Evidence(Struct, frozen=True, kw_only=True):
    """What was read a moment ago."""

    now: datetime
    warnings: Sequence[ClusterWarning] = ()
    queues: Sequence[QueueView] = ()
    pods: Sequence[PodView] = ()
    schedules: Sequence[ScheduleView] = ()
    failing: Sequence[Failing] = ()  # the tasks and queues with the most bad runs first
    causes: Mapping[Pair, Cause] = {}  # why they fail, as far as it was looked up
    facts: Sequence[Fact] = ()  # of `treadle doctor`
    poison: int = 0
    stuck: int = 0


def find(evidence: Evidence) -> tuple[Item, ...]:
    """All there is; errors first, then in the order in which one would act."""
    items = (
        *map(_warned, evidence.warnings),
        *_failing(evidence),
        *_lost(evidence),
        *_jobs(evidence),
        *(item for schedule in evidence.schedules for item in _schedule(schedule)),
        *(item for queue in evidence.queues for item in _queue(queue, evidence.now)),
        *(item for pod in evidence.pods for item in _pod(pod)),
        *(item for fact in evidence.facts for item in _doctored(fact)),
    )
    return tuple(sorted(items, key=lambda item: item.level != "error"))


def bounded(items: Sequence[Item], most: int = MOST_OF_A_KIND) -> tuple[Item, ...]:
    """At most `most` items of each kind, then one that counts the rest: a thousand unserved queues have one cause."""
    numbers = Counter(item.kind for item in items)
    seen: Counter[str] = Counter()
    found: list[Item] = []
    for item in items:
        seen[item.kind] += 1
        if seen[item.kind] <= most:
            found.append(item)
        elif seen[item.kind] == most + 1:
            more = f"… and {numbers[item.kind] - most:,} more of the same kind"
            found.append(Item(kind=item.kind, subject="…", level=item.level, text=more, page=item.page))
    return tuple(found)


def lasting(found: Sequence[Fact], before: Sequence[Fact]) -> tuple[Fact, ...]:
    """Facts without what may be so for a few seconds: that no pod leads counts when it was found before, too."""
    known = {fact.code for fact in before if fact.level != "ok"}
    return tuple(fact for fact in found if fact.code != _NO_LEADER or fact.code in known)


def muted_share(jobs: Iterable[Job], causes: Container[str], since: float) -> float:
    """Of the attempts of these jobs that ended badly since then, the share that came of certain causes."""
    recent = [cause_of(job.task, error) in causes for job, error in _errors(jobs, since)]
    return sum(recent) / len(recent) if recent else 0.0


def main_cause(jobs: Iterable[Job], muted: Container[str], since: float) -> Cause | None:
    """What most attempts of these jobs failed of since then, but for the causes that people know of."""
    found: dict[str, list[tuple[Job, ErrorEntry]]] = {}
    for job, error in _errors(jobs, since):
        if (cause := cause_of(job.task, error)) not in muted:
            found.setdefault(cause, []).append((job, error))
    if not found:
        return None
    cause = max(found, key=lambda each: (len(found[each]), each))
    retrying = sum(job.state is not State.FAILED for job, _ in found[cause])
    error = found[cause][0][1]
    return Cause(
        cause=cause, type=error.type or error.kind, place=error.place, retrying=2 * retrying >= len(found[cause])
    )


def _errors(jobs: Iterable[Job], since: float) -> list[tuple[Job, ErrorEntry]]:
    return [
        (job, error) for job in jobs for error in job.errors if error.ended_at is not None and error.ended_at >= since
    ]


def remember(
    items: Sequence[Item], seen: Mapping[tuple[str, str], float], now: float
) -> tuple[tuple[Item, ...], dict[tuple[str, str], float]]:
    """Since when, for what does not say it: since it was first seen. Answers with the items, and what to bring the next
    time; what is over is forgotten. `now` is of any clock that only goes forward."""
    since = {(item.kind, item.subject): seen.get((item.kind, item.subject), now) for item in items}
    told = (
        item if item.seconds is not None else replace(item, seconds=now - since[item.kind, item.subject])
        for item in items
    )
    return tuple(told), since


def _warned(found: ClusterWarning) -> Item:
    task = "" if found.task is None else f" task:{found.task}"
    command, advice = _help(found.remedy)
    return Item(
        kind=found.kind,
        subject=found.subject,
        level="error",
        text=found.text,
        remedy=command,
        advice=advice,
        filter=f"state:ready queue:{found.queue}{task}",
        seconds=found.seconds,
    )


def _help(remedy: str) -> tuple[str, str]:
    """A command can be copied, and words can be read."""
    return (remedy, "") if remedy.startswith("treadle ") else ("", remedy)


def _failing(evidence: Evidence) -> Iterable[Item]:
    for each in evidence.failing:
        cause = evidence.causes.get(each.pair)
        yield Item(
            kind="failing",
            subject=f"{each.queue} {each.task}",
            level="error",
            text=_fails(each, cause),
            remedy=f"treadle jobs failures --queue {each.queue}" + (f" --task {each.task}" if each.task else ""),
            page="failures",
            filter="" if cause is None else _where(each, cause),
        )


def _fails(each: Failing, cause: Cause | None) -> str:
    who = f"task {each.task} in queue {each.queue}" if each.task else f"queue {each.queue}"
    text = f"{who} fails: {each.runs.bad:,} of {each.runs.ended:,} runs in the last {words(each.over)}"
    text += f" ({100 * each.runs.share:.0f} %" + (f", usually {100 * each.usual:.0f} %)" if each.usual else ")")
    if cause is not None:
        text += f", mostly {cause.type}" + (f" in {cause.place}" if cause.place else "")
    return text + (f"; {each.muted:,} of muted causes not counted" if each.muted else "")


def _where(each: Failing, cause: Cause) -> str:
    if cause.retrying:
        return f"is:retrying queue:{each.queue}" + (f" task:{each.task}" if each.task else "")
    return f'state:failed cause:"{cause.cause}"'


def _lost(evidence: Evidence) -> Iterable[Item]:
    """Pods that went in the last hour; those that went before, as long as jobs of theirs are not rescued."""
    gone = [
        pod
        for pod in evidence.pods
        if not pod.live and (pod.running or (evidence.now - pod.beat_at).total_seconds() <= LOST_LATELY)
    ]
    if not gone:
        return
    named = ", ".join(pod.label for pod in gone[:3]) + ("…" if len(gone) > 3 else "")
    left = sum(pod.running for pod in gone)
    last = max(pod.beat_at for pod in gone)
    yield Item(
        kind="lost-pod",
        level="error" if left else "warn",
        text=f"{_many(len(gone), 'pod')} went without signing off: {named}{_held(gone)}"
        + (f"; {_many(left, 'job')} of theirs to be rescued" if left else ""),
        remedy="treadle pods list",
        page="pods",
        seconds=max(0.0, (evidence.now - last).total_seconds()),
    )


def _held(gone: Sequence[PodView]) -> str:
    """What they ran, as they said with their last beats."""
    queues: dict[str, int] = {}
    for pod in gone:
        for name, number in pod.runs.items():
            queues[name] = queues.get(name, 0) + number
    number = sum(queues.values())
    if not number:
        return ""
    names = [name for name, held in sorted(queues.items(), key=lambda each: (-each[1], each[0])) if held]
    of = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
    return f"; held {_many(number, 'job')} of {of} at the last beat"


def _jobs(evidence: Evidence) -> Iterable[Item]:
    if evidence.poison:
        yield Item(
            kind="poison",
            level="error",
            text=f"{_many(evidence.poison, 'job')} crashed their workers again and again, and failed as poison",
            remedy="treadle jobs find 'is:poison finished:<24h'",
            filter="is:poison finished:<24h",
        )
    if evidence.stuck:
        text = f"{_many(evidence.stuck, 'job')} running under a lease that is over"
        yield Item(kind="stuck", level="warn", text=text, remedy="treadle jobs find is:stuck", filter="is:stuck")


def _schedule(schedule: ScheduleView) -> Iterable[Item]:
    if schedule.last_error and not schedule.paused:
        yield Item(
            kind="schedule",
            subject=schedule.name,
            level="error",
            text=f"schedule {schedule.name} cannot be fired: {schedule.last_error}",
            remedy=f"treadle schedules show {schedule.name}",
            page="schedules",
        )


def _queue(queue: QueueView, now: datetime) -> Iterable[Item]:
    if queue.paused:
        if queue.ready:
            by = f" by {queue.paused_by}" if queue.paused_by else ""
            why = f": {queue.pause_reason}" if queue.pause_reason else ""
            more = "+" if queue.ready >= queue.capped_at else ""
            waits = queue.oldest_ready_seconds
            yield Item(
                kind="paused",
                subject=queue.name,
                level="warn",
                text=f"queue {queue.name} is paused{by}{why}; {queue.ready:,}{more} "
                f"{'job waits' if queue.ready == 1 else 'jobs wait'}"
                + ("" if waits is None else f", the oldest for {_rounded(waits)}"),
                remedy=f"treadle queues resume {queue.name}",
                page="queues",
                filter=f"state:ready queue:{queue.name}",
                seconds=None if queue.paused_at is None else max(0.0, (now - queue.paused_at).total_seconds()),
            )
        return
    if queue.cool_until is not None and queue.cool_until > now:
        left = words(float(round((queue.cool_until - now).total_seconds())))
        yield Item(
            kind="cooling",
            subject=queue.name,
            level="warn",
            text=f"queue {queue.name} cools down for {left} more",
            remedy=f"treadle queues set {queue.name} --warm",
            page="queues",
        )
    oldest = queue.oldest_ready_seconds
    if queue.pods and oldest is not None and oldest > OLD_READY:
        text = f"queue {queue.name} is behind: its oldest ready job has waited {_rounded(oldest)}"
        yield Item(
            kind="behind",
            subject=queue.name,
            level="warn",
            text=text,
            remedy=f"treadle queues show {queue.name}",
            filter=f"state:ready queue:{queue.name}",
            seconds=oldest,
        )


def _pod(pod: PodView) -> Iterable[Item]:
    if pod.live and pod.loop_lag > SLOW_LOOP:
        by = f"the task {pod.slow_task}" if pod.slow_task else "something"
        yield Item(
            kind="loop-lag",
            subject=pod.id,
            level="warn",
            text=f"the loop of pod {pod.label} was blocked for {words(round(pod.loop_lag, 3))} by {by}",
            remedy=f"treadle pods stacks {pod.label}",
            page="pods",
            filter=f"state:running task:{pod.slow_task}" if pod.slow_task else "",
        )
    if pod.live and abs(pod.clock_skew) > WRONG_CLOCK:
        way = "ahead of" if pod.clock_skew > 0 else "behind"
        yield Item(
            kind="clock",
            subject=pod.id,
            level="warn",
            text=f"the clock of {pod.host}, where pod {pod.label} runs, is {words(round(abs(pod.clock_skew), 1))} "
            f"{way} the storage's, which decides",
            remedy="treadle doctor",
            advice="keep clocks set (NTP)",
            page="pods",
        )
    if pod.live and pod.stuck_threads:
        text = f"pod {pod.label} has {_many(pod.stuck_threads, 'thread')} that did not stop when they were asked to"
        yield Item(
            kind="stuck-threads",
            subject=pod.id,
            level="warn",
            text=text,
            remedy=f"treadle pods stacks {pod.label}",
            page="pods",
        )


# What the fresh evidence tells, and better: pods that went, pauses, schedules that cannot be fired, unknown tasks,
# stuck jobs. Of queues that nobody serves, the ones with ready jobs.
_TOLD: Final = frozenset({"TREADLE-D011", "TREADLE-D014", "TREADLE-D017", "TREADLE-D020", "TREADLE-D021"})
_UNSERVED: Final = "TREADLE-D013"
_NO_LEADER: Final = "TREADLE-D012"
_KINDS: Final = {
    "TREADLE-D003": "schema",
    "TREADLE-D004": "clock",
    "TREADLE-CLOCK-SKEW": "clock",
    "TREADLE-DISK-ROOM": "disk",
    "TREADLE-D016": "missed",
}
_PAGES: Final = {"TREADLE-D010": "pods", _NO_LEADER: "pods"}
# Of these there may be several, which begin with "queue NAME" or "schedule NAME".
_NAMED: Final = {_UNSERVED: "queues", "TREADLE-D015": "queues", "TREADLE-D016": "schedules"}


def _doctored(fact: Fact) -> Iterable[Item]:
    if fact.level == "ok" or fact.code in _TOLD or (fact.code == _UNSERVED and fact.level == "error"):
        return
    command, advice = _help(fact.remedy)
    yield Item(
        kind=_KINDS.get(fact.code, "doctor"),
        subject=" ".join([fact.code, *fact.text.split()[:2]]) if fact.code in _NAMED else fact.code,
        level=fact.level,
        text=fact.text,
        remedy=command or "treadle doctor",
        advice=advice,
        page=_NAMED.get(fact.code) or _PAGES.get(fact.code, "system"),
    )


def _rounded(seconds: float) -> str:
    return words(float(round(seconds)))


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
