"""Ages: how long jobs have waited that still wait.

How long a job waited is written down when it is claimed. A job that nobody claims would never count, and the waits of
a queue that stands still would look as good as those of its last good minute. So a chart that ends now counts ready
jobs too, each by its age. Read for it are the oldest ready rows, which an index has in this order; and, only if there
are more of them, how many are ready. Those that were not read are younger than the youngest that was: they count as
spread evenly below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from .histogram import Histogram, merged
from .warnings import DueTask

LOOKED_AT: Final = 200
SPREAD: Final = 20  # so many values stand for those that were not read

Pair: TypeAlias = tuple[str, str]  # a queue and a task
Aged: TypeAlias = tuple[str, str, float]  # a ready job: its queue, its task, and for how many seconds it has been due


def ages(oldest: Sequence[Aged], due: Iterable[DueTask], ready: Mapping[str, int]) -> dict[Pair, Histogram]:
    """The ages of ready jobs, by queue and task. `due` and `ready` (by queue) matter only if there may be more than the
    oldest that were read."""
    found: dict[Pair, Histogram] = {}
    for queue, task, seconds in oldest:
        found.setdefault((queue, task), Histogram()).add(seconds)
    if len(oldest) < LOOKED_AT:
        return found
    youngest = max(0.0, min(seconds for _, _, seconds in oldest))
    for each in due:
        times = found.setdefault((each.queue, each.task), Histogram())
        if not times.count:
            times.add(min(each.seconds, youngest))
        _spread(times, youngest, each.count - times.count)
    for queue, missing in _missing(found, ready).items():
        for pair, number in missing.items():
            _spread(found[queue, pair], youngest, number)
    return found


def of(found: Mapping[Pair, Histogram], queue: str | None = None, task: str | None = None) -> Histogram:
    """The ages of all jobs of a queue, of a task, of both, or of all there are."""
    return merged(times for pair, times in found.items() if queue in (None, pair[0]) and task in (None, pair[1]))


def _missing(found: Mapping[Pair, Histogram], ready: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """How many of each queue were not counted by their task (a storage stops at some number): by queue, and by the task
    that most of them are of."""
    counted: dict[str, dict[str, int]] = {}
    for (queue, task), times in found.items():
        counted.setdefault(queue, {})[task] = times.count
    return {
        queue: {max(tasks, key=lambda task: (tasks[task], task)): ready.get(queue, 0) - sum(tasks.values())}
        for queue, tasks in counted.items()
    }


def _spread(times: Histogram, below: float, number: int) -> None:
    parts = min(SPREAD, number)
    for n in range(parts):
        times.add_times(below * (2 * n + 1) / (2 * parts), number // parts + (n < number % parts))
