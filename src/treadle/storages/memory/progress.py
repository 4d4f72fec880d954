"""What runs report, in memory: progress, checkpoints, and the lines of logs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ...core.job import State
from ...core.logline import LogLine, kept
from ...core.progress import Checkpoint, Report, Reported
from ...ports import Clock

if TYPE_CHECKING:
    from .storage import _Row  # pyright: ignore[reportPrivateUsage]


class Said(Struct):
    progress: dict[str, Reported] = {}  # by job, as all of these
    checkpoints: dict[str, Checkpoint] = {}
    logs: dict[str, dict[int, LogLine]] = {}  # job → number → line


class MemoryProgress:
    """The verbs about what runs report, for the storage that has a lock, a clock and jobs."""

    _lock: threading.RLock
    _clock: Clock
    _rows: dict[str, _Row]
    _said: Said

    async def report(self, reports: Sequence[Report]) -> Sequence[bool]:
        with self._lock:
            return [self._report(report) for report in reports]

    def _report(self, report: Report) -> bool:
        row = self._rows.get(report.id)
        if row is None or not self._is_taken(row, report):
            return False
        now = self._clock.now()
        if report.over:
            self._forget_reports(report.id)
        if report.progress is not None:
            own = Reported(id=report.id, attempt=report.attempt, at=now, progress=report.progress)
            self._said.progress[report.id] = own
        if report.checkpoint is not None:
            point = Checkpoint(attempt=report.attempt, at=now, value=report.checkpoint)
            self._said.checkpoints[report.id] = point
        return True

    def _is_taken(self, row: _Row, report: Report) -> bool:
        """Whether the run that reports has its claim; or had it last, and only says something that may come late."""
        if row.job.token != report.token:
            return False
        if row.job.state is State.RUNNING:
            return True
        return report.checkpoint is None and row.finished_token == report.token

    async def progress(self, job_ids: Sequence[str]) -> Sequence[Reported]:
        with self._lock:
            return [self._said.progress[id] for id in dict.fromkeys(job_ids) if self._has(self._said.progress, id)]

    async def checkpoint(self, job_id: str) -> Checkpoint | None:
        with self._lock:
            return self._said.checkpoints[job_id] if self._has(self._said.checkpoints, job_id) else None

    def _has(self, said: dict[str, Reported] | dict[str, Checkpoint], id: str) -> bool:
        return id in said and self._rows[id].job.state is not State.SUCCEEDED

    async def record_logs(self, lines: Sequence[LogLine]) -> None:
        with self._lock:
            for line in lines:
                if line.job_id in self._rows:
                    own = self._said.logs.setdefault(line.job_id, {})
                    own.setdefault(line.n, line)
            for id, attempt in {(line.job_id, line.attempt) for line in lines if line.job_id in self._rows}:
                self._trim(id, attempt)

    def _trim(self, id: str, attempt: int) -> None:
        own = self._said.logs[id]
        lines = sorted((line for line in own.values() if line.attempt == attempt), key=lambda line: line.n)
        for line in lines[: len(lines) - len(kept(lines))]:
            del own[line.n]

    async def logs(self, job_id: str, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        with self._lock:
            own = self._said.logs.get(job_id, {})
            found = sorted((line for line in own.values() if line.n > after), key=lambda line: line.n)
            return found[-limit:]

    def _forget_reports(self, job_id: str) -> None:
        """What the job's runs have left is worth nothing to it any more."""
        self._said.progress.pop(job_id, None)
        self._said.checkpoints.pop(job_id, None)

    def _forget_said(self, job_id: str) -> None:
        """The job's row goes: all that it said goes with it."""
        self._forget_reports(job_id)
        self._said.logs.pop(job_id, None)
