"""Warnings: what is wrong in the cluster and will not mend itself, found from what the storage says of it.

A ClusterWarning has a stable code, for people to search by, and a subject: it is told once for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from .pod import Pod
from .queue import QueueStats

UNSERVED: Final = "TREADLE-D013"
UNKNOWN_TASK: Final = "TREADLE-D020"
# Old and new pods run side by side during a deploy: so long may a task be unknown before somebody is told.
PATIENCE: Final = 300.0


class DueTask(Struct, frozen=True):
    """Jobs of one task in one queue that could start now: how many (no more than a storage cares to count), and for
    how long the oldest that was seen has been due."""

    queue: str
    task: str
    count: int
    seconds: float


class ClusterWarning(Struct, frozen=True, kw_only=True):
    """Something that is wrong in the cluster and will not mend itself.
    `seconds`: for how long it has been so, as far as can be told.

    >>> handle = send.enqueue_sync(1)
    >>> [warning.code for warning in app.warnings_sync() if warning.queue == "mail"]
    ['TREADLE-D013']
    """

    code: str
    kind: Literal["unserved", "unknown_task"]
    subject: str
    text: str
    remedy: str
    queue: str
    task: str | None = None
    seconds: float | None = None


def find(queues: Iterable[QueueStats], pods: Sequence[Pod], due: Iterable[DueTask]) -> tuple[ClusterWarning, ...]:
    """All that there is to warn of now; which of it is ripe to be told is another question."""
    live = [pod for pod in pods if pod.live]
    served = {name for pod in live for name in pod.card.queues}
    known = {(name, task) for pod in live for name in pod.card.queues for task in pod.card.tasks}
    unserved = [_unserved(stats) for stats in queues if stats.ready and stats.queue.name not in served]
    unknown = [_unknown(each) for each in due if each.queue in served and (each.queue, each.task) not in known]
    return (*unserved, *unknown)


def ripe(found: Iterable[ClusterWarning]) -> tuple[ClusterWarning, ...]:
    """Those to show to somebody who looks just now."""
    return tuple(each for each in found if each.kind != "unknown_task" or (each.seconds or 0.0) >= PATIENCE)


def tell(
    found: Sequence[ClusterWarning], seen: Mapping[str, float], told: frozenset[str], now: float
) -> tuple[dict[str, float], frozenset[str], tuple[ClusterWarning, ...]]:
    """Which to say now, for one who looks again and again: each subject once, an unknown task after it was unknown in
    every look for as long as PATIENCE. Answers with (since when each is seen, what was told, what to say). What is over
    is forgotten, so that it is told again if it comes back."""
    since = {each.subject: seen.get(each.subject, now) for each in found}
    say = tuple(
        each
        for each in found
        if each.subject not in told and (each.kind != "unknown_task" or now - since[each.subject] >= PATIENCE)
    )
    return since, (told & since.keys()) | {each.subject for each in say}, say


def _unserved(stats: QueueStats) -> ClusterWarning:
    name = stats.queue.name
    count = f"{stats.ready:,} job{'' if stats.ready == 1 else 's'}"
    return ClusterWarning(
        code=UNSERVED,
        kind="unserved",
        subject=f"queue {name}",
        text=f"queue {name} has {count} ready, and no live pod serves it",
        remedy=f"treadle worker -q {name}",
        queue=name,
        seconds=stats.oldest_ready_seconds,
    )


def _unknown(due: DueTask) -> ClusterWarning:
    return ClusterWarning(
        code=UNKNOWN_TASK,
        kind="unknown_task",
        subject=f"task {due.task} in queue {due.queue}",
        text=f"no live pod of queue {due.queue} knows the task {due.task}, and it has due jobs",
        remedy=f"deploy a worker that has it, or `treadle jobs cancel 'task:{due.task} queue:{due.queue}'`",
        queue=due.queue,
        task=due.task,
        seconds=due.seconds,
    )
