"""Attention: what a person should look at first, with since when, where to look and the command that helps.

Values in, items out, the worst first. The dashboard shows them on its first page, and the HTTP API at `/attention`.

Some of it is read anew for every page (`Evidence` of queues, pods, schedules and runs), the rest are facts of `treadle
doctor`, read now and then. A fact that the fresh evidence tells better is left to that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from . import streak
from .duration import words
from .fact import Fact
from .failing import Failing, Pair
from .job import ErrorEntry, Job, State, cause_of
from .mute import Mute
from .schedule_view import ScheduleView
from .series import Series
from .streak import Step, Streak
from .view import PodView, QueueView
from .warnings import ClusterWarning

OLD_READY: Final = 300.0
SLOW_LOOP: Final = 0.5
WRONG_CLOCK: Final = 1.0
LOST_LATELY: Final = 3_600.0
MOST_OF_A_KIND: Final = 10

Level: TypeAlias = Literal["error", "warn"]
Verb: TypeAlias = Literal["resume", "warm", "rate", "scale", "revive", "jobs", "stacks", "fire", "edit"]
Show: TypeAlias = Literal["unserved", "paused", "cooling", "behind"]
"""Queues that have the same trouble."""


class Act(Struct, frozen=True):
    """What can be done about an item, and to what: a queue, a schedule, a pod's id, or a filter for jobs. Who may do
    it, and how, is for whoever shows it."""

    verb: Verb
    subject: str


class Acknowledged(Struct, frozen=True, kw_only=True):
    """Who knows of an item, since when, and what he said. `kept_here`: the dashboard is read-only, and only this
    process of it remembers."""

    by: str | None
    at: datetime
    note: str
    kept_here: bool = False


class Item(Struct, frozen=True, kw_only=True):
    """`page` and `filter` say where to look: a page of the dashboard, and the jobs that it is about. `kind` and
    `subject` are the same for as long as the thing lasts, whatever the text says of it."""

    kind: str
    subject: str = ""
    name: str = ""  # of the queue, task, schedule or pod, where many such items become one
    level: Level
    text: str
    remedy: str = ""  # a command, or empty
    advice: str = ""  # what helps, in words, where there is no command for it
    page: str = "jobs"
    filter: str = ""
    show: Show | None = None  # of the page with queues, those that it is about
    acts: tuple[Act, ...] = ()
    seconds: float | None = None  # since when, as far as can be told
    at_least: bool = False  # it may have begun earlier
    # What is acknowledged is this trouble, and no other: with another fingerprint, or more than twice the measure, it
    # is another. An empty fingerprint is one that is not known.
    fingerprint: str = ""
    measure: int = 1
    key: str = ""
    acknowledged: Acknowledged | None = None

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
    last_poison: datetime | None = None  # when the last of those ended
    stuck: int = 0
    mutes: Sequence[Mute] = ()  # acknowledgements among them
    streaks: Mapping[tuple[str, str, str], Streak] = {}  # kind, queue and task → since when, as history tells


def find(evidence: Evidence) -> tuple[Item, ...]:
    """All there is; errors first, then in the order in which one would act."""
    items = (
        *map(_warned, evidence.warnings),
        *_failing(evidence),
        *_lost(evidence),
        *_jobs(evidence),
        *(item for schedule in evidence.schedules for item in _schedule(schedule, evidence.now)),
        *(item for queue in evidence.queues for item in _queue(queue, evidence)),
        *(item for pod in evidence.pods for item in _pod(pod)),
        *(item for fact in evidence.facts if not _is_overtaken(fact, evidence.pods) for item in _doctored(fact)),
    )
    return tuple(sorted(items, key=lambda item: item.level != "error"))


def grouped(items: Sequence[Item], most: int = MOST_OF_A_KIND) -> tuple[Item, ...]:
    """No more than `most` rows of each kind and level. What shares a cause becomes one row that says how many they are;
    of the others the first are shown, then how many more there are."""
    numbers = Counter((item.kind, item.level) for item in items)
    seen: Counter[tuple[str, Level]] = Counter()
    found: list[Item] = []
    for item in items:
        of = (item.kind, item.level)
        seen[of] += 1
        if numbers[of] <= most or (item.kind not in _GROUPS and seen[of] <= most):
            found.append(item)
        elif seen[of] == (1 if item.kind in _GROUPS else most + 1):
            found.append(_group([each for each in items if (each.kind, each.level) == of][seen[of] - 1 :]))
    return tuple(found)


# Of many such items: what their row says, where it leads, and what helps.
_GROUPS: Final[Mapping[str, tuple[str, str, Show | None, str]]] = {
    "unserved": ("queues have ready jobs, and no live pod serves them", "queues", "unserved", "treadle doctor"),
    "unknown_task": (
        "tasks have due jobs, and no live pod of their queues knows them",
        "performance",
        None,
        "treadle doctor",
    ),
    "paused": ("queues are paused, and jobs wait in them", "queues", "paused", "treadle queues list"),
    "cooling": ("queues cool down", "queues", "cooling", "treadle queues list"),
    "behind": (
        "queues are behind: jobs have been ready for more than five minutes",
        "queues",
        "behind",
        "treadle queues list",
    ),
    "schedule": ("schedules cannot be fired", "schedules", None, "treadle schedules list"),
    "missed": ("schedules are late", "schedules", None, "treadle doctor"),
    "loop-lag": ("pods had their loops blocked", "pods", None, "treadle pods list"),
    "clock": ("clocks are not the storage's, which decides", "pods", None, "treadle doctor"),
    "stuck-threads": ("pods have threads that did not stop when they were asked to", "pods", None, "treadle pods list"),
}


def _group(items: Sequence[Item]) -> Item:
    first, number = items[0], len(items)
    ages = [item.seconds for item in items if item.seconds is not None]
    found = Item(
        kind=first.kind,
        subject="…",
        level=first.level,
        text=f"… and {number:,} more of the same kind",
        page=first.page,
        seconds=max(ages, default=None),
        at_least=len(ages) < number or any(item.at_least for item in items),
        measure=number,
    )
    if first.kind not in _GROUPS:
        return found
    text, page, show, remedy = _GROUPS[first.kind]
    names = ", ".join(item.name for item in items[:3])
    return replace(found, text=f"{number:,} {text}: {names}…", page=page, show=show, remedy=remedy)


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
    """Since when, for what does not say it: at least since it was first seen. Answers with the items, and what to bring
    the next time; what is over is forgotten. `now` is of any clock that only goes forward."""
    since = {(item.kind, item.subject): seen.get((item.kind, item.subject), now) for item in items}
    told = (
        item if item.seconds is not None else replace(item, seconds=now - since[item.kind, item.subject], at_least=True)
        for item in items
    )
    return tuple(told), since


def _warned(found: ClusterWarning) -> Item:
    task = "" if found.task is None else f" task:{found.task}"
    command, advice = _help(found.remedy)
    jobs = f"state:ready queue:{found.queue}{task}"
    return Item(
        kind=found.kind,
        subject=found.subject,
        name=found.task or found.queue,
        level="error",
        text=found.text,
        remedy=command,
        advice=advice,
        filter=jobs,
        acts=(Act("jobs", jobs),),
        seconds=found.seconds,
    )


_COMMANDS: Final = ("treadle ", "SELECT ", "ROLLBACK ", "VACUUM ")


def _help(remedy: str) -> tuple[str, str]:
    """A command can be copied, and words can be read."""
    return (remedy, "") if remedy.startswith(_COMMANDS) else ("", remedy)


def _failing(evidence: Evidence) -> Iterable[Item]:
    for each in evidence.failing:
        cause = evidence.causes.get(each.pair)
        seconds, at_least = _since(evidence, "failing", *each.pair)
        yield Item(
            kind="failing",
            subject=f"{each.queue} {each.task}",
            name=each.task or each.queue,
            level="error",
            text=_fails(each, cause),
            remedy=f"treadle jobs failures --queue {each.queue}" + (f" --task {each.task}" if each.task else ""),
            page="failures",
            filter="" if cause is None else _where(each, cause),
            acts=() if cause is None else (Act("jobs" if cause.retrying else "revive", _where(each, cause)),),
            seconds=seconds,
            at_least=at_least,
            fingerprint="" if cause is None else cause.cause,
            measure=round(100 * each.runs.share),
        )


def _since(evidence: Evidence, kind: str, queue: str, task: str = "") -> tuple[float | None, bool]:
    """For how long, as history tells, and whether it may be longer."""
    streak = evidence.streaks.get((kind, queue, task))
    if streak is None:
        return None, False
    return max(0.0, evidence.now.timestamp() - streak.since), streak.at_least


def _fails(each: Failing, cause: Cause | None) -> str:
    who = f"task {each.task} in queue {each.queue}" if each.task else f"queue {each.queue}"
    text = f"{who} fails: {each.runs.bad:,} of {each.runs.ended:,} runs in the last {words(each.over)}"
    text += f" ({100 * each.runs.share:.0f} %" + (f", usually {100 * each.usual:.0f} %)" if each.usual else ")")
    if cause is not None:
        text += f", mostly {cause.type}" + (f" in {cause.place}" if cause.place else "")
    return text + (f"; {each.muted:,} of muted causes not counted" if each.muted else "")


def _where(each: Failing, cause: Cause) -> str:
    return ("is:retrying " if cause.retrying else "state:failed ") + f'queue:{each.queue} cause:"{cause.cause}"'


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
    last = max(gone, key=lambda pod: (pod.beat_at, pod.id))
    yield Item(
        kind="lost-pod",
        level="error" if left else "warn",
        text=f"{_many(len(gone), 'pod')} lost without signing off: {named}{_held(gone)}"
        + (f"; {_many(left, 'job')} of theirs to be rescued" if left else ""),
        remedy="treadle pods list",
        page="pods",
        seconds=_age(evidence.now, last.beat_at),
        fingerprint=last.id,
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
            acts=(Act("jobs", "is:poison finished:<24h"),),
            seconds=None if evidence.last_poison is None else _age(evidence.now, evidence.last_poison),
            measure=evidence.poison,
        )
    if evidence.stuck:
        beats = [pod.beat_at for pod in evidence.pods if not pod.live and pod.running]
        yield Item(
            kind="stuck",
            level="warn",
            text=f"{_many(evidence.stuck, 'job')} running under a lease that is over",
            remedy="treadle jobs find is:stuck",
            filter="is:stuck",
            acts=(Act("jobs", "is:stuck"),),
            seconds=_age(evidence.now, min(beats)) if beats else None,
            measure=evidence.stuck,
        )


def _age(now: datetime, at: datetime) -> float:
    return max(0.0, (now - at).total_seconds())


def _schedule(schedule: ScheduleView, now: datetime) -> Iterable[Item]:
    if schedule.last_error and not schedule.paused:
        yield Item(
            kind="schedule",
            subject=schedule.name,
            name=schedule.name,
            level="error",
            text=f"schedule {schedule.name} cannot be fired: {schedule.last_error}",
            remedy=f"treadle schedules show {schedule.name}",
            page="schedules",
            acts=(Act("edit", schedule.name), Act("fire", schedule.name)),
            seconds=None if schedule.due_at is None else _age(now, schedule.due_at),
            fingerprint=schedule.last_error,
        )


def queues_that(show: Show, queues: Iterable[QueueView], now: datetime) -> list[QueueView]:
    """The queues that an item is about, where it is about many of them."""
    return [queue for queue in queues if _IS[show](queue, now)]


_IS: Final[Mapping[Show, Callable[[QueueView, datetime], bool]]] = {
    "unserved": lambda queue, now: bool(queue.ready) and not queue.pods,
    "paused": lambda queue, now: queue.paused and bool(queue.ready),
    "cooling": lambda queue, now: not queue.paused and queue.cool_until is not None and queue.cool_until > now,
    "behind": lambda queue, now: (
        not queue.paused and bool(queue.pods) and (queue.oldest_ready_seconds or 0.0) > OLD_READY
    ),
}


def history_of(show: Literal["behind", "cooling"], hour: Iterable[Series]) -> Streak | None:
    """Since when a queue is behind or cools down, by the minutes of the last hour of its tasks: jobs that were claimed
    then had waited for as long, or throttled it."""
    steps: dict[float, bool | None] = {}
    length = 60.0
    for series in hour:
        length = series.step
        for point in series.points:
            at = point.at.timestamp()
            is_so = (point.wait.max or 0.0) > OLD_READY if show == "behind" else "throttled" in point.outcomes
            told = is_so if point.outcomes or point.wait.count else None
            steps[at] = bool(steps.get(at)) or told if told is not None else steps.get(at)
    return streak.find([Step(at, steps[at]) for at in sorted(steps)], length)


def _queue(queue: QueueView, evidence: Evidence) -> Iterable[Item]:
    now = evidence.now
    if _IS["paused"](queue, now):
        yield _paused(queue, now)
    if _IS["cooling"](queue, now):
        yield _cooling(queue, evidence)
    if _IS["behind"](queue, now):
        yield _behind(queue, evidence)


def _paused(queue: QueueView, now: datetime) -> Item:
    by = f" by {queue.paused_by}" if queue.paused_by else ""
    why = f": {queue.pause_reason}" if queue.pause_reason else ""
    waits = queue.oldest_ready_seconds
    return Item(
        kind="paused",
        subject=queue.name,
        name=queue.name,
        level="warn",
        text=f"queue {queue.name} is paused{by}{why}; {queue.ready:,} "
        f"{'job waits' if queue.ready == 1 else 'jobs wait'}"
        + ("" if waits is None else f", the oldest for {_rounded(waits)}"),
        remedy=f"treadle queues resume {queue.name}",
        page="queues",
        filter=f"state:ready queue:{queue.name}",
        acts=(Act("resume", queue.name),),
        seconds=None if queue.paused_at is None else _age(now, queue.paused_at),
        fingerprint="" if queue.paused_at is None else queue.paused_at.isoformat(),
    )


def _cooling(queue: QueueView, evidence: Evidence) -> Item:
    assert queue.cool_until is not None
    left = words(float(round((queue.cool_until - evidence.now).total_seconds())))
    seconds, at_least = _since(evidence, "cooling", queue.name)
    return Item(
        kind="cooling",
        subject=queue.name,
        name=queue.name,
        level="warn",
        text=f"queue {queue.name} cools down for {left} more",
        remedy=f"treadle queues set {queue.name} --warm",
        page="queues",
        acts=(Act("warm", queue.name),),
        seconds=seconds,
        at_least=at_least,
    )


def _behind(queue: QueueView, evidence: Evidence) -> Item:
    oldest = queue.oldest_ready_seconds or 0.0
    seconds, at_least = _since(evidence, "behind", queue.name)
    jobs = f"state:ready queue:{queue.name}"
    acts = [Act("jobs", jobs)]
    if queue.rate is not None:
        acts.insert(0, Act("rate", queue.name))
    elif queue.max_workers is not None:
        acts.insert(0, Act("scale", queue.name))
    return Item(
        kind="behind",
        subject=queue.name,
        name=queue.name,
        level="warn",
        text=f"queue {queue.name} is behind: its oldest ready job has waited {_rounded(oldest)}",
        remedy=f"treadle queues show {queue.name}",
        filter=jobs,
        acts=tuple(acts),
        seconds=max(oldest, seconds or 0.0),
        at_least=at_least,
        measure=int(oldest // OLD_READY),
    )


def _pod(pod: PodView) -> Iterable[Item]:
    if pod.live and pod.loop_lag > SLOW_LOOP:
        by = f"the task {pod.slow_task}" if pod.slow_task else "something"
        yield Item(
            kind="loop-lag",
            subject=pod.id,
            name=pod.label,
            level="warn",
            text=f"the loop of pod {pod.label} was blocked for {words(round(pod.loop_lag, 3))} by {by}",
            remedy=f"treadle pods stacks {pod.label}",
            page="pods",
            filter=f"state:running task:{pod.slow_task}" if pod.slow_task else "",
            acts=(Act("stacks", pod.id),),
            fingerprint=pod.slow_task,
        )
    if pod.live and abs(pod.clock_skew) > WRONG_CLOCK:
        way = "ahead of" if pod.clock_skew > 0 else "behind"
        yield Item(
            kind="clock",
            subject=pod.id,
            name=pod.label,
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
            name=pod.label,
            level="warn",
            text=text,
            remedy=f"treadle pods stacks {pod.label}",
            page="pods",
            acts=(Act("stacks", pod.id),),
        )


# What the fresh evidence tells, and better: pods that went, pauses, schedules that cannot be fired, unknown tasks,
# stuck jobs. Of queues that nobody serves, the ones with ready jobs.
# And a transaction that is merely long: it is told once it slows claims down.
_TOLD: Final = frozenset(
    {"TREADLE-D011", "TREADLE-D014", "TREADLE-D017", "TREADLE-D020", "TREADLE-D021", "TREADLE-OLD-SNAPSHOT"}
)
_UNSERVED: Final = "TREADLE-D013"
_NO_POD: Final = "TREADLE-D010"
_NO_LEADER: Final = "TREADLE-D012"
_KINDS: Final = {
    "TREADLE-D003": "schema",
    "TREADLE-D004": "clock",
    "TREADLE-CLOCK-SKEW": "clock",
    "TREADLE-DISK-ROOM": "disk",
    "TREADLE-D016": "missed",
    "TREADLE-SLOW-CLAIMS": "slow-claims",
}
_PAGES: Final = {_NO_POD: "pods", _NO_LEADER: "pods"}
# Of these there may be several, which begin with "queue NAME" or "schedule NAME".
_NAMED: Final = {_UNSERVED: "queues", "TREADLE-D015": "queues", "TREADLE-D016": "schedules"}


def _is_overtaken(fact: Fact, pods: Sequence[PodView]) -> bool:
    """`treadle doctor` is asked every half minute: a worker that was started since is seen at once."""
    live = [pod for pod in pods if pod.live]
    return (fact.code == _NO_POD and bool(live)) or (fact.code == _NO_LEADER and any(pod.leader for pod in live))


def _doctored(fact: Fact) -> Iterable[Item]:
    if fact.level == "ok" or fact.code in _TOLD or (fact.code == _UNSERVED and fact.level == "error"):
        return
    command, advice = _help(fact.remedy)
    named = " ".join(fact.text.split()[:2]) if fact.code in _NAMED else ""
    yield Item(
        kind=_KINDS.get(fact.code, "doctor"),
        subject=f"{fact.code} {named}" if named else fact.code,
        name=named.partition(" ")[2] or fact.code,
        level=fact.level,
        text=fact.text,
        remedy=command or "treadle doctor",
        advice=advice,
        page=_NAMED.get(fact.code) or _PAGES.get(fact.code, "system"),
        acts=(Act("fire", named.partition(" ")[2]),) if named.startswith("schedule ") else (),
    )


def _rounded(seconds: float) -> str:
    return words(float(round(seconds)))


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
