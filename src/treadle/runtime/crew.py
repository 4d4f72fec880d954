"""Crew: starts runs in their slots, watches their deadlines, and stops them.

There is one timer for all deadlines, set to the nearest: a timer per job would cost more than the job.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..context.context import Context, Door
from ..context.progress import Notebook
from ..core import lifecycle
from ..core.backoff import Retry
from ..core.job import Job
from ..core.outcome import Interrupted, Outcome
from ..middleware import Stack
from ..ports import Executor
from ..tasks.follow_ups import FollowUps
from ..tasks.task import Task
from .relay import Relay
from .roster import Roster
from .run import Run, StopReason, give_up
from .turner import Turner


class Crew:
    def __init__(
        self,
        *,
        roster: Roster,
        turner: Turner,
        executors: Mapping[str, Executor],
        find: Callable[[str], Task[..., Any] | None],
        door: Door | None,
        cancel_grace: float,
        state: Any,
        stopping: Callable[[], bool],
        label: Callable[[], str],
        notebook: Notebook | None = None,
        isolation: Executor | None = None,
        most_abandoned: int | None = None,
        worn: Callable[[str], None] | None = None,
        stacks: Mapping[str, Stack] | None = None,
        retries: Mapping[str, Retry] | None = None,
        declared: FollowUps | None = None,
    ) -> None:
        """`isolation` runs suspects. `worn` is told, once, when `most_abandoned` runs go on although they were given
        up, or when no thread is left but theirs."""
        self.ended = asyncio.Event()  # set whenever a run leaves its slot
        self._roster = roster
        self._turner = turner
        self._executors = executors
        self._find = find
        self._door = door
        self._cancel_grace = cancel_grace
        self._state = state
        self._stopping = stopping
        self._label = label
        self._notebook = notebook
        self._isolation = isolation
        self._most_abandoned = most_abandoned
        self._worn = worn
        self._stacks = stacks or {}  # by the task's name
        self._retries = retries or {}  # the same, where the app's default counts
        self._declared = declared
        self._loop = asyncio.get_running_loop()
        self._relay = Relay(self._done)
        # uvloop gives what is due at once a handle that does not know when: so the time is kept here.
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._left: list[Run] = []  # given up, and perhaps they go on

    def start(self, job: Job, *, alone: bool = False) -> None:
        """`alone`: in a child process, whatever its task says."""
        task = self._find(job.task)
        slot = None if task is None else self._roster.take_slot(job.queue)
        if task is None or slot is None:
            self._turner.give_back(job)
            return
        executor = self._isolation if alone and self._isolation is not None else self._executors[task.executor]
        run = Run(job, task, executor, slot, self._loop.time(), self._label)
        if self._retries:
            run.retry = self._retries.get(task.name)
        self._roster.add(run)
        run.stack = self._stacks.get(task.name)
        context = self._context(run) if task.takes_context or executor.asks or run.stack is not None else None
        self._relay.add(run, context)
        if run.deadline_at is not None:
            self._watch(run.deadline_at)

    def stop_run(self, id: str, token: str, reason: StopReason) -> None:
        run = self._roster.in_hand.get((id, token))
        if run is not None and not run.done:
            self._stop(run, reason, self._loop.time() + self._cancel_grace)

    def lose(self, id: str, token: str, *, heard_out: bool = False) -> None:
        """The storage shows a claim no more. If a transaction of its task's own has ended the job, all is well: the run
        may go on, and its success is told when it ends. While that transaction commits, nobody can tell: the next beat
        asks again."""
        run = self._roster.in_hand.get((id, token))
        if run is None or run.committed is not None or run.commits:
            return
        if run.executor.asks and not heard_out:
            # What a child said before the commit has arrived, but a loop reads only after what it has to do already: it
            # has read in the round after the next.
            again = partial(self.lose, id, token, heard_out=True)
            self._loop.call_soon(self._loop.call_soon, again)
            return
        self.stop_run(id, token, "lost")

    def stop_all(self, reason: StopReason, abandon_at: float) -> None:
        for run in self._roster.runs():
            self._stop(run, reason, abandon_at)

    def give_back_all(self) -> None:
        """The pod leaves: what still runs is given back, uncharged. Its late result would be stale."""
        for run in self._roster.runs():
            is_ours = run.committed is None and run.reason in (None, "shutdown")
            self._done(run, Interrupted() if is_ours else give_up(run))

    @property
    def stuck(self) -> int:
        """Threads in which a run was given up, and that have not returned. From any thread."""
        return sum(_is_left(run) and not run.executor.cancels for run in self._left)

    @property
    def abandoned(self) -> int:
        """Runs that were given up and go on all the same. From any thread."""
        return sum(map(_is_left, self._left))

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _context(self, run: Run) -> Context[Any]:
        def remaining() -> float | None:
            return None if run.deadline_at is None else run.deadline_at - self._loop.time()

        job = run.job
        return Context(
            job=job,
            state=self._state,
            cancelled=lambda: run.cancelled,
            stopping=self._stopping,
            remaining=remaining,
            slot=run.slot_name,
            max_attempts=lifecycle.most_attempts(job, run.retry or run.task.retry, self._roster.override(job.queue)),
            door=self._door,
            notebook=self._notebook,
            declared=self._declared if run.task.followed else None,
            commits=run.may_commit,
            committed=run.commit,
        )

    def _done(self, run: Run, outcome: Outcome) -> None:
        self._turner.finished(run, outcome)
        self.ended.set()

    def _stop(self, run: Run, reason: StopReason, abandon_at: float) -> None:
        run.stop(reason, abandon_at)
        self._watch(abandon_at)

    # Deadlines -------------------------------------------------------------------------------------------------------

    def _watch(self, at: float) -> None:
        if self._timer is None or at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer, self._timer_at = self._loop.call_at(at, self._sweep), at

    def _sweep(self) -> None:
        """Stop what is past its deadline, give up what was asked to stop and did not, and look for the next one."""
        self._timer = None
        now = self._loop.time()
        for run in self._roster.runs():
            if run.abandon_at is not None:
                if run.abandon_at <= now:
                    self._done(run, give_up(run))
                    self._left = [each for each in (*self._left, run) if _is_left(each)]
                    self._look_at_wear()
                    continue
            elif run.deadline_at is not None and run.deadline_at <= now:
                run.stop("timeout", now + self._cancel_grace)
            if (at := run.abandon_at or run.deadline_at) is not None:
                self._watch(at)

    def _look_at_wear(self) -> None:
        """A slot is free again when its run is given up, but the run goes on. Too many of those, and what they hold is
        had back only by a process that starts anew."""
        if self._worn is None or self._most_abandoned is None:
            return
        stuck = Counter(run.executor.name for run in self._left if not run.executor.cancels)
        full = [name for name in stuck if getattr(self._executors.get(name), "size", None) == stuck[name]]
        if len(self._left) >= self._most_abandoned:
            worn, self._worn = self._worn, None
            worn(f"{len(self._left)} runs were given up and go on")
        elif full:
            worn, self._worn = self._worn, None
            worn(f"every place of the executor {full[0]} is taken by a run that was given up")


def _is_left(run: Run) -> bool:
    return run.work is not None and not run.work.done()
