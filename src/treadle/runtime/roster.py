"""Roster: which slots a pod has, which runs are in them, and which claims it answers for.

A run leaves its slot when it ends, but its claim stays in hand until the storage has accepted (or refused) what became
of it: until then a beat that shows the claim is no surprise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..core import demand
from ..core.demand import Group, Room
from ..core.queue import Queue
from ..ports import Executor, RunReport
from .run import Run


class Roster:
    def __init__(
        self, queues: Mapping[str, int], executors: Mapping[str, Executor], tasks: Mapping[str, frozenset[str]]
    ) -> None:
        """`tasks` names the tasks of each executor."""
        self.queues = dict(queues)
        self.settings: dict[str, Queue] = {}
        self.live_pods = 1
        self.in_hand: dict[tuple[str, str], Run] = {}  # (job id, token) → its run, ended or not
        self.kinds = sum(bool(names) for names in tasks.values())  # executors that have tasks at all
        self._executors = executors
        self._tasks = tasks
        self._free = {name: list(range(slots, 0, -1)) for name, slots in queues.items()}

    def __len__(self) -> int:
        """How many runs are under way."""
        return sum(self.running(name) for name in self.queues)

    def running(self, queue: str) -> int:
        return self.queues[queue] - len(self._free[queue])

    def runs(self) -> Iterator[Run]:
        """The runs that have not ended."""
        return (run for run in list(self.in_hand.values()) if not run.done)

    def take_slot(self, queue: str) -> int | None:
        """The lowest free slot of a queue. Low numbers are used first: a busy pod's slots then read as a bar."""
        free = self._free.get(queue)
        return free.pop() if free else None

    def free_slot(self, run: Run) -> None:
        self._free[run.job.queue].append(run.slot)

    def add(self, run: Run) -> None:
        self.in_hand[(run.job.id, run.job.token or "")] = run

    def settle(self, run: Run) -> None:
        """The storage has spoken about this claim: it is in hand no more."""
        self.in_hand.pop((run.job.id, run.job.token or ""), None)

    def clear(self) -> None:
        self.in_hand.clear()

    def rooms(self) -> list[Room]:
        groups = tuple(Group(self._tasks[name], executor.places()) for name, executor in self._executors.items())
        return [
            Room(name, slots, self.running(name), groups, demand.share(self.settings.get(name), self.live_pods))
            for name, slots in self.queues.items()
        ]

    def reports(self, label: str) -> tuple[RunReport, ...]:
        return tuple(RunReport(run.job.id, run.job.token or "", slot_name(run, label)) for run in self.runs())


def slot_name(run: Run, label: str) -> str:
    """For people; never parsed."""
    return f"{run.job.queue}-{run.slot}-{label}"
