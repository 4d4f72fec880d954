"""Meter: what a pod counts about itself, in its own memory, on its own loop, with no lock.

Once per turn it adds the runs that have ended to the row of the running minute of their queue and task: counts, and
three histograms; about a microsecond for each run. Nothing is written here. The Recorder takes the rows that have
changed every two seconds and writes them as they stand; a row that could not be written is written by the next pass,
with higher numbers.

Which minute
------------
Storages and hosts have clocks of their own. A claim says when it was made, by the storage's clock, and the pod knows
how long the run took: the sum is when it ended, by the storage's clock. A minute that is over is never opened again;
what comes late is counted in the running one.

The first ten minutes
---------------------
Until history is ten minutes old (`fine_until`), the row that counts is one of five seconds, and the row of its minute
is the sum of such steps. A run costs what it always does; the sums are made when a step ends, and when rows are taken.

Read from another thread
------------------------
`/metrics` is answered by a thread, also while the loop is blocked. What it reads only ever grows, and the two parts of
a count (minutes that are over, the running one) are exchanged together, by one assignment: a counter that seemed to
fall for a moment would be taken for a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

import msgspec

from ..core import event as events
from ..core.event import Event
from ..core.histogram import Histogram
from ..core.job import Change, Job
from ..core.rollup import FINE, MINUTE, MOST_PAIRS, OTHER, Rollup, floor

if TYPE_CHECKING:
    from .run import Run

MOST_UNWRITTEN: Final = 10_000

_ENDS: Final = frozenset({"succeeded", "failed", "cancelled"})


class _Cell:
    """One queue and task: the row that counts (of the running minute, or of a step of it), the steps of the minute that
    are over, and all that went before the running row."""

    __slots__ = ("changed", "over", "state", "until")

    def __init__(self, row: Rollup) -> None:
        self.state: tuple[Rollup, Rollup] = (_like(row), row)
        self.over: Rollup | None = None
        self.until = row.at + row.resolution
        self.changed = False

    def turn_over(self, row: Rollup) -> None:
        before, last = self.state
        whole = _like(last)
        whole.absorb(before)
        whole.absorb(last)
        self.over = self.minute() if floor(last.at, MINUTE) == floor(row.at, MINUTE) else None
        self.state = (whole, row)
        self.until = row.at + row.resolution

    def minute(self) -> Rollup:
        """The row of the minute as it stands: its own, that goes on counting with nobody else."""
        _, row = self.state
        whole = Rollup(resolution=MINUTE, at=floor(row.at, MINUTE), queue=row.queue, task=row.task, pod=row.pod)
        if self.over is not None:
            whole.absorb(self.over)
        whole.absorb(row)
        return whole


class _Group:
    """What ended in one turn, of one queue and task. No pairs: a tuple for each run would wake the collector."""

    __slots__ = ("changes", "runs")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.runs: list[Run] = []


class Meter:
    def __init__(self) -> None:
        self.pod = ""  # who writes the rows: the first id of this pod, also after it registered anew
        # The first minute that is counted as a whole. Who knows the age of history (the Recorder) says so before the
        # first row is written.
        self.fine_until = inf
        self.counts: Counter[tuple[str, ...]] = Counter()  # (name, labels …), for whatever is counted seldom
        self.dropped = 0  # lines of timelines that found the buffer full
        self.turn_seconds = Histogram()
        self.turn_size = Histogram()
        self.turn_claimed = Histogram()
        self._cells: dict[tuple[str, str], _Cell] = {}
        self._unwritten: dict[tuple[int, float, str, str, str], Rollup] = {}
        self._events: list[Event] = []
        self._lines = 0

    # Called by the pod -----------------------------------------------------------------------------------------------

    def finished(self, changes: Sequence[Change], runs: Sequence[Run]) -> None:
        """These Changes were accepted, of these runs. Once per turn: a batch costs half of what its members would."""
        first = runs[0].job
        queue, task = first.queue, first.task
        if not [run for run in runs if run.job.task != task or run.job.queue != queue]:  # as most turns are
            self._count(self._cells.get((queue, task)) or self._cell(first), changes, runs)
            return
        groups: dict[tuple[str, str], _Group] = {}
        for change, run in zip(changes, runs, strict=True):
            key = (run.job.queue, run.job.task)
            group = groups.get(key) or groups.setdefault(key, _Group())
            group.changes.append(change)
            group.runs.append(run)
        for key, group in groups.items():
            self._count(self._cells.get(key) or self._cell(group.runs[0].job), group.changes, group.runs)

    def _count(self, cell: _Cell, changes: Sequence[Change], runs: Sequence[Run]) -> None:
        ends = [(run.job.started_at or 0.0) + run.seconds for run in runs]
        if max(ends) >= cell.until:
            if len(runs) > 1:  # a minute or a step ends: each where it belongs
                for n in sorted(range(len(runs)), key=ends.__getitem__):
                    self._count(cell, [changes[n]], [runs[n]])
                return
            self._turn_over(cell, ends[0])
        row = cell.state[1]
        row.wait.add_all([(run.job.started_at or 0.0) - run.job.run_at for run in runs])
        row.run.add_all([run.seconds for run in runs])
        cell.changed = True
        whys = [change.why for change in changes]
        if whys.count("succeeded") == len(whys):
            row.outcomes["succeeded"] = row.outcomes.get("succeeded", 0) + len(whys)
            row.total.add_all([end - run.job.created_at for run, end in zip(runs, ends, strict=True)])
        else:
            self._count_mixed(row, changes, runs, ends)

    def _count_mixed(self, row: Rollup, changes: Sequence[Change], runs: Sequence[Run], ends: Sequence[float]) -> None:
        for change, run, end in zip(changes, runs, ends, strict=True):
            row.outcomes[change.why] = row.outcomes.get(change.why, 0) + 1
            if change.why in _ENDS:
                row.total.add(end - run.job.created_at)
            if change.why in events.WRITTEN:
                self.note(run.job, change, end)

    def rescued(self, change: Change, job: Job, now: float) -> None:
        """This pod's Rescuer has ended somebody's run; `now` by the storage's clock."""
        cell = self._cells.get((job.queue, job.task)) or self._cell(job)
        if now >= cell.until:
            self._turn_over(cell, now)
        outcomes = cell.state[1].outcomes
        outcomes[change.why] = outcomes.get(change.why, 0) + 1
        cell.changed = True
        if change.error is not None and change.error.kind == "poison":
            self.counts["poison",] += 1

    def turned(self, seconds: float, size: int, claimed: int) -> None:
        self.turn_seconds.add(seconds)
        self.turn_size.add(size)
        self.turn_claimed.add(claimed)
        if not size and not claimed:
            self.counts["empty_turns",] += 1

    def note(self, job: Job, change: Change, at: float | None = None) -> None:
        """A line for the job's timeline, if its row forgets what happened."""
        if len(self._events) >= events.MOST_BUFFERED:
            self.dropped += 1
            return
        self._lines += 1
        line = events.of_change(job, change, id=f"{self.pod}-{self._lines:x}", at=at)
        if line is not None:
            self._events.append(line)

    def _cell(self, job: Job) -> _Cell:
        key = (job.queue, job.task)
        if len(self._cells) >= MOST_PAIRS:
            key = (OTHER, OTHER)
            if (found := self._cells.get(key)) is not None:
                return found
        cell = self._cells[key] = _Cell(self._row(key, job.started_at or 0.0))
        return cell

    def _row(self, key: tuple[str, str], at: float) -> Rollup:
        resolution = FINE if floor(at, MINUTE) < self.fine_until else MINUTE
        return Rollup(resolution=resolution, at=floor(at, resolution), queue=key[0], task=key[1], pod=self.pod)

    def _turn_over(self, cell: _Cell, at: float) -> None:
        _, last = cell.state
        row = self._row((last.queue, last.task), at)
        if cell.changed:
            self._keep_step(last)
            if floor(row.at, MINUTE) != floor(last.at, MINUTE):
                self._keep(cell.minute())
                cell.changed = False
        cell.turn_over(row)

    def _keep_step(self, row: Rollup) -> None:
        if row.resolution == FINE and row.outcomes:
            self._keep(row)

    def _keep(self, row: Rollup) -> None:
        self._unwritten.pop(row.key, None)  # what comes again goes to the end
        self._unwritten[row.key] = row
        if len(self._unwritten) > MOST_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]

    # Called by the Recorder ------------------------------------------------------------------------------------------

    def take_rows(self) -> list[Rollup]:
        """The rows that have changed since they were last taken, as they stand now."""
        for cell in self._cells.values():
            if cell.changed:
                cell.changed = False
                _, row = cell.state
                self._keep_step(_copied(row))
                minute = cell.minute()
                if minute.outcomes:
                    self._keep(minute)
        rows, self._unwritten = list(self._unwritten.values()), {}
        return [row for row in rows if row.resolution != FINE or floor(row.at, MINUTE) < self.fine_until]

    @property
    def has_counted(self) -> bool:
        return bool(self._cells)

    def rows_not_written(self, rows: list[Rollup]) -> None:
        """The storage did not answer: they are taken again, unless a newer count of the same minute is there."""
        newer, self._unwritten = self._unwritten, {}
        for row in [*rows, *newer.values()]:
            self._keep(row)

    def take_events(self) -> list[Event]:
        taken, self._events = self._events, []
        return taken

    def events_not_written(self, lines: list[Event]) -> None:
        together = [*lines, *self._events]
        self.dropped += max(0, len(together) - events.MOST_BUFFERED)
        self._events = together[: events.MOST_BUFFERED]

    # Called by /metrics, from a thread -------------------------------------------------------------------------------

    def totals(self) -> Iterator[Rollup]:
        """All that was ever counted, queue by queue and task by task."""
        for cell in list(self._cells.values()):
            before, now = cell.state
            whole = _like(now)
            whole.absorb(before)
            whole.absorb(_copied(now))
            yield whole


def _like(row: Rollup) -> Rollup:
    return Rollup(resolution=0, at=0.0, queue=row.queue, task=row.task)


def _copied(row: Rollup) -> Rollup:
    return msgspec.structs.replace(
        row, outcomes=dict(row.outcomes), wait=row.wait.copy(), run=row.run.copy(), total=row.total.copy()
    )
