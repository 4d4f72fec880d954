"""Suspects: jobs that have lost a worker before, and how they are kept from taking others along.

A crash charges every job of the pod, since nobody is left to say whose fault it was. So a job that has crashed once
runs alone in a child process from then on: the next crash costs only its own child, and names the culprit. The innocent
pay once. There are so many such places in a pod; who finds none is given back for a while, uncharged.

Where the app cannot be imported in a child process (it was typed at a prompt, made by a function, is a test's), a job
that one more crash would fail runs beside no other such job: the next crash names the culprit there too, but the others
may have paid twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from ..core.job import POISON_CRASHES, Job
from ..ports import Executor
from ..tasks.task import HERE, Task
from .roster import Roster

SUSPECT_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 5.0
_NOBODY: Final = frozenset[str]()


class Isolation(Executor, Protocol):
    """An executor whose calls cannot harm the pod."""

    size: int

    @property
    def is_possible(self) -> bool: ...
    def ready(self, wanted: int) -> int:
        """How many calls could begin at once. If fewer than are wanted, there will soon be more, up to `size`."""
        ...


@runtime_checkable
class Frees(Protocol):
    """An executor whose places come and go by themselves, and not only when a run ends."""

    freed: Callable[[], None]


class Suspects:
    def __init__(
        self,
        isolation: Isolation | None,
        roster: Roster,
        *,
        find: Callable[[str], Task[..., Any] | None],
        give_back: Callable[[Job, float], None],
        chance: random.Random,
    ) -> None:
        self._isolation = isolation
        self._roster = roster
        self._find = find
        self._give_back = give_back
        self._chance = chance

    def apart(self, jobs: Sequence[Job]) -> tuple[Sequence[Job], frozenset[str]]:
        """Those that may start now, and the ids of those among them that start alone. The others are given back."""
        if not any(job.crashes for job in jobs):
            return jobs, _NOBODY
        alone = [job for job in jobs if self._can_be_alone(job)]
        apart = frozenset(job.id for job in alone)
        late = self._without_place(alone)
        late += self._side_by_side([job for job in jobs if job.id not in apart])
        if late:
            # The more wait, the longer: a claim and its return cost a write each, and there are only so many places.
            places = len(late) if self._isolation is None else self._isolation.size
            pause = SUSPECT_PAUSE * min(LONGEST_PAUSE, max(1.0, len(late) / places))
            for job in late:
                self._give_back(job, pause * (0.5 + self._chance.random()))
            returned = {job.id for job in late}
            jobs = [job for job in jobs if job.id not in returned]
        return jobs, apart

    def _can_be_alone(self, job: Job) -> bool:
        """What another executor runs, runs elsewhere already."""
        if not job.crashes or self._isolation is None:
            return False
        task = self._find(job.task)
        return task is not None and task.executor in HERE and self._isolation.is_possible

    def _without_place(self, alone: Sequence[Job]) -> list[Job]:
        if not alone or self._isolation is None:
            return []
        promised = sum(run.executor is self._isolation and not run.begun for run in self._roster.runs())
        return [*alone[max(0, self._isolation.ready(len(alone) + promised) - promised) :]]

    def _side_by_side(self, jobs: Sequence[Job]) -> list[Job]:
        """Those that one more crash would fail, unless there is one only, here and now."""
        suspects = [job for job in jobs if _is_in_danger(job)]
        others = (run for run in self._roster.runs() if run.executor is not self._isolation)
        if len(suspects) < 2 and not any(_is_in_danger(run.job) for run in others):
            return []
        return suspects


def _is_in_danger(job: Job) -> bool:
    return job.crashes >= POISON_CRASHES - 1
