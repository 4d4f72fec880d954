"""Writes what `core.outcome_log` says of jobs to the logger `treadle.jobs`. Configures nothing: handlers and levels are
the host's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ..core import outcome_log as lines
from ..core.job import Change, Job
from ..core.outcome_log import Line
from .line_throttle import LineThrottle

log: Final = logging.getLogger(lines.LOGGER)


class OutcomeLog:
    """On the pod's loop. `each`: whether every start and success is told at INFO, not at DEBUG."""

    def __init__(self, *, each: bool, most: Callable[[Job], int], now: Callable[[], float]) -> None:
        self._level = logging.INFO if each else logging.DEBUG
        self._most = most
        self._now = now
        self._throttle = LineThrottle(log)

    @property
    def tells_each(self) -> bool:
        """Whether starts and successes are written at all. Asked once a turn: otherwise they cost nothing."""
        return log.isEnabledFor(self._level)

    def ended(self, change: Change, job: Job) -> None:
        """The storage has accepted this Change."""
        if change.why == "succeeded" and not self.tells_each:
            return
        line = lines.of_change(change, job, most=self._most(job), now=self._now(), each=self._level)
        if line is not None:
            self.tell(line)

    def started(self, job: Job) -> None:
        self.tell(lines.of_start(job, self._level))

    def fired(self, schedule: str, task: str, jobs: tuple[str, ...], skipped: int) -> None:
        for line in lines.of_fire(schedule, task, jobs, skipped):
            self.tell(line)

    def tell(self, line: Line) -> None:
        self._throttle.tell(line)

    def close(self) -> None:
        """Tell what was left out, and count no more."""
        self._throttle.close()
