"""Attention: what a person should look at first, with since when, where to look and the command that helps.

Values in, items out, the worst first. The dashboard shows them on its first page, the terminal in `treadle top`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from .duration import words
from .schedule_view import ScheduleView
from .view import PodView, QueueView
from .warnings import ClusterWarning

OLD_READY: Final = 300.0
LONG_PAUSE: Final = 3_600.0
SLOW_LOOP: Final = 0.5
BAD_SHARE: Final = 0.05
FEW_RUNS: Final = 20  # below, a share says nothing

Level: TypeAlias = Literal["error", "warn"]


class Item(Struct, frozen=True, kw_only=True):
    """`page` and `filter` say where to look: a page of the dashboard, and the jobs that it is about."""

    kind: str
    level: Level
    text: str
    remedy: str = ""  # a command, or empty
    page: str = "jobs"
    filter: str = ""
    seconds: float | None = None  # since when, as far as can be told


class Evidence(Struct, frozen=True, kw_only=True):
    """What was read a moment ago."""

    now: datetime
    warnings: Sequence[ClusterWarning] = ()
    queues: Sequence[QueueView] = ()
    pods: Sequence[PodView] = ()
    schedules: Sequence[ScheduleView] = ()
    outcomes: Mapping[str, int] = {}  # of the last five minutes
    poison: int = 0
    stuck: int = 0


def find(evidence: Evidence) -> tuple[Item, ...]:
    """All there is; errors first, then in the order in which one would act."""
    items = (
        *map(_warned, evidence.warnings),
        *_failing(evidence.outcomes),
        *_lost(evidence),
        *_jobs(evidence),
        *(item for schedule in evidence.schedules for item in _schedule(schedule)),
        *(item for queue in evidence.queues for item in _queue(queue, evidence.now)),
        *(item for pod in evidence.pods for item in _pod(pod)),
    )
    return tuple(sorted(items, key=lambda item: item.level != "error"))


def _warned(found: ClusterWarning) -> Item:
    # A remedy in words says that it is one by a space before its first quote; only a command can be copied.
    command = found.remedy if found.remedy.startswith("treadle ") else ""
    task = "" if found.task is None else f" task:{found.task}"
    return Item(
        kind=found.kind,
        level="error",
        text=found.text,
        remedy=command,
        filter=f"state:ready queue:{found.queue}{task}",
        seconds=found.seconds,
    )


def _failing(outcomes: Mapping[str, int]) -> Iterable[Item]:
    ended = sum(outcomes.values())
    bad = sum(outcomes.get(each, 0) for each in ("failed", "retried", "timed_out", "rescued"))
    if ended >= FEW_RUNS and bad > BAD_SHARE * ended:
        text = f"{bad:,} of {ended:,} runs in the last five minutes did not end well ({100 * bad / ended:.0f} %)"
        yield Item(kind="failing", level="error", text=text, remedy="treadle jobs failures", page="failures")


def _lost(evidence: Evidence) -> Iterable[Item]:
    gone = [pod for pod in evidence.pods if not pod.live]
    if not gone:
        return
    named = ", ".join(pod.label for pod in gone[:3]) + ("…" if len(gone) > 3 else "")
    held = sum(pod.running for pod in gone)
    jobs = f"; {_many(held, 'job')} of theirs to be rescued" if held else ""
    last = max(pod.beat_at for pod in gone)
    yield Item(
        kind="lost-pod",
        level="error" if held else "warn",
        text=f"{_many(len(gone), 'pod')} went without signing off: {named}{jobs}",
        remedy="treadle pods list",
        page="pods",
        seconds=max(0.0, (evidence.now - last).total_seconds()),
    )


def _jobs(evidence: Evidence) -> Iterable[Item]:
    if evidence.poison:
        text = f"{_many(evidence.poison, 'job')} crashed their workers again and again, and failed as poison"
        yield Item(kind="poison", level="error", text=text, remedy="treadle jobs find is:poison", filter="is:poison")
    if evidence.stuck:
        text = f"{_many(evidence.stuck, 'job')} running under a lease that is over"
        yield Item(kind="stuck", level="warn", text=text, remedy="treadle jobs find is:stuck", filter="is:stuck")


def _schedule(schedule: ScheduleView) -> Iterable[Item]:
    if schedule.last_error and not schedule.paused:
        yield Item(
            kind="schedule",
            level="error",
            text=f"schedule {schedule.name} cannot be fired: {schedule.last_error}",
            remedy=f"treadle schedules show {schedule.name}",
            page="schedules",
        )


def _queue(queue: QueueView, now: datetime) -> Iterable[Item]:
    if queue.paused:
        since = None if queue.paused_at is None else (now - queue.paused_at).total_seconds()
        if since is not None and since > LONG_PAUSE:
            by = f" by {queue.paused_by}" if queue.paused_by else ""
            why = f": {queue.pause_reason}" if queue.pause_reason else ""
            yield Item(
                kind="paused",
                level="warn",
                text=f"queue {queue.name} has been paused{by}{why}",
                remedy=f"treadle queues resume {queue.name}",
                page="queues",
                seconds=since,
            )
        return
    if queue.cool_until is not None and queue.cool_until > now:
        left = words(float(round((queue.cool_until - now).total_seconds())))
        yield Item(
            kind="cooling",
            level="warn",
            text=f"queue {queue.name} cools down for {left} more",
            remedy=f"treadle queues set {queue.name} --warm",
            page="queues",
        )
    oldest = queue.oldest_ready_seconds
    if queue.pods and oldest is not None and oldest > OLD_READY:
        text = f"queue {queue.name} is behind: its oldest ready job has waited {words(float(round(oldest)))}"
        yield Item(
            kind="behind",
            level="warn",
            text=text,
            remedy=f"treadle queues show {queue.name}",
            filter=f"state:ready queue:{queue.name}",
            seconds=oldest,
        )


def _pod(pod: PodView) -> Iterable[Item]:
    if pod.live and pod.loop_lag > SLOW_LOOP:
        yield Item(
            kind="loop-lag",
            level="warn",
            text=f"the loop of pod {pod.label} lags by {words(round(pod.loop_lag, 3))}: a task blocks it",
            remedy=f"treadle pods stacks {pod.label}",
            page="pods",
        )
    if pod.live and pod.stuck_threads:
        text = f"pod {pod.label} has {_many(pod.stuck_threads, 'thread')} that did not stop when they were asked to"
        yield Item(
            kind="stuck-threads",
            level="warn",
            text=text,
            remedy=f"treadle pods stacks {pod.label}",
            page="pods",
        )


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
