"""Roster: which slots a pod has, which runs are in them, and which claims it answers for.

A run leaves its slot when it ends, but its claim stays in hand until the storage has accepted (or refused) what became
of it: until then a beat that shows the claim is no surprise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..core import demand
from ..core.demand import Group, Portion, Room
from ..core.job import RetryOverride
from ..core.queue import Queue
from ..ports import Executor, RunReport, Want
from .run import Run


class Roster:
    def __init__(
        self,
        queues: Mapping[str, int],
        executors: Mapping[str, Executor],
        tasks: Mapping[str, frozenset[str]],
        *,
        pod_slots: int | None = None,
        portions: Mapping[str, Portion] | None = None,
    ) -> None:
        """`tasks` names the tasks of each executor. `pod_slots` is a number of places over all queues, of which each
        has its portion."""
        self.queues = dict(queues)
        self.settings = {}
        self.serving: dict[str, int] = {}  # queue → pods that have a part in its max_workers
        self.shares: dict[str, int] = {}  # queue → this pod's part, where the Balancer has given one
        self.in_hand: dict[tuple[str, str], Run] = {}  # (job id, token) → its run, ended or not
        self.kinds = sum(bool(names) for names in tasks.values())  # executors that have tasks at all
        self._executors = executors
        self._tasks = tasks
        self._pod_slots = pod_slots
        self._portions = dict(portions or {})
        self._free = {name: list(range(slots, 0, -1)) for name, slots in queues.items()}

    def __len__(self) -> int:
        """How many runs are under way."""
        return sum(self.running(name) for name in self.queues)

    def running(self, queue: str) -> int:
        return self.queues[queue] - len(self._free[queue])

    def runs(self) -> Iterator[Run]:
        """The runs that have not ended."""
        return (run for run in list(self.in_hand.values()) if not run.done)

    @property
    def settings(self) -> dict[str, Queue]:
        return self._settings

    @settings.setter
    def settings(self, found: dict[str, Queue]) -> None:
        self._settings = found
        # Asked once a job, and most queues have none: so they are gathered here, once a beat.
        self.overrides = {name: queue.retry for name, queue in found.items() if queue.retry is not None}

    def override(self, queue: str) -> RetryOverride | None:
        """What a queue's live settings say about retries."""
        return self.overrides.get(queue)

    def take_slot(self, queue: str) -> int | None:
        """The lowest free slot of a queue. Low numbers are used first: a busy pod's slots then read as a bar."""
        free = self._free.get(queue)
        return free.pop() if free else None

    def free_slot(self, run: Run) -> None:
        self._free[run.job.queue].append(run.slot)

    def add(self, run: Run) -> None:
        self.in_hand[run.claim] = run

    def settle(self, run: Run) -> None:
        """The storage has spoken about this claim: it is in hand no more."""
        self.in_hand.pop(run.claim, None)

    def settle_all(self, runs: Iterable[Run]) -> None:
        forget = self.in_hand.pop
        for run in runs:
            forget(run.claim, None)

    def clear(self) -> None:
        self.in_hand.clear()

    @property
    def slots(self) -> int:
        """How many runs there can be at most."""
        slots = sum(self.queues.values())
        return slots if self._pod_slots is None else min(slots, self._pod_slots)

    def rooms(self, hungry: Collection[str], asked: Sequence[Want] = ()) -> list[Room]:
        """What the hungry queues have free, and is not asked for already by claims that are under way."""
        groups = tuple(self._group(name, executor, asked) for name, executor in self._executors.items())
        if self._pod_slots is None:
            return [self._room(name, slots, groups, asked) for name, slots in self.queues.items() if name in hungry]
        rooms = [self._room(name, slots, groups, asked) for name, slots in self.queues.items()]
        return demand.within(rooms, self._pod_slots, self._portions, hungry)

    def _group(self, name: str, executor: Executor, asked: Sequence[Want]) -> Group:
        tasks, places = self._tasks[name], executor.places()
        if places is None or not tasks:
            return Group(tasks, places)
        asked_for = sum(lane.limit for want in asked for lane in want.lanes if lane.tasks == tasks)
        # An executor counts a run when it begins, and that is a moment after it was started.
        to_begin = sum(not run.begun and run.executor is executor for run in self.in_hand.values())
        return Group(tasks, max(0, places - asked_for - to_begin))

    def _room(self, name: str, slots: int, groups: tuple[Group, ...], asked: Sequence[Want]) -> Room:
        share = demand.share(self.settings.get(name), self.serving.get(name, 1), self.shares.get(name))
        running = self.running(name) + sum(want.limit for want in asked if want.queue == name)
        return Room(name, slots, running, groups, share)

    def counts(self) -> dict[str, int]:
        """How many runs of each queue are under way. From any thread."""
        return {name: running for name in self.queues if (running := self.running(name))}

    def reports(self, label: str) -> tuple[RunReport, ...]:
        return tuple(RunReport(run.job.id, run.job.token or "", run.slot_name) for run in self.runs())
