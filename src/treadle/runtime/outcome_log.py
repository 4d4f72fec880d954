"""Writes what `core.outcome_log` says of jobs to the logger `treadle.jobs`. Configures nothing: handlers and levels are
the host's."""

from __future__ import annotations

import logging
import time
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final

from ..core import outcome_log as lines
from ..core.job import Change, Job
from ..core.outcome_log import Flood, Line

log: Final = logging.getLogger(lines.LOGGER)


class OutcomeLog:
    """On the pod's loop. `each`: whether every start and success is told at INFO, not at DEBUG."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        *,
        each: bool,
        most: Callable[[Job], int],
        now: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._level = logging.INFO if each else logging.DEBUG
        self._most = most
        self._now = now
        self._floods: dict[str, tuple[Flood, Line]] = {}  # kind → the count, and the last line of it
        self._timer: TimerHandle | None = None

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
        if not log.isEnabledFor(line.level):
            return
        if line.kind:
            now = time.monotonic()
            kind = line.kind if line.kind in self._floods or len(self._floods) < lines.MOST_KINDS else ""
            flood, _ = self._floods.get(kind) or (Flood(now), line)
            if lines.is_over(flood, now):
                self._sum_up(now)
                flood = Flood(now)
            flood, is_written = lines.admit(flood)
            self._floods[kind] = flood, line
            if self._timer is None:
                self._timer = self._loop.call_later(lines.WINDOW, self._on_timer)
            if not is_written:
                return
        _write(line)

    def close(self) -> None:
        """Tell what was left out, and count no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sum_up(float("inf"))

    def _on_timer(self) -> None:
        self._timer = None
        self._sum_up(time.monotonic())
        if self._floods:
            self._timer = self._loop.call_later(lines.WINDOW, self._on_timer)

    def _sum_up(self, now: float) -> None:
        for kind, (flood, line) in list(self._floods.items()):
            if lines.is_over(flood, now):
                del self._floods[kind]
                if flood.left_out:
                    _write(lines.summary(line, flood.left_out))


def _write(line: Line) -> None:
    """A handler of the host's that raises must not take the Turner with it."""
    try:
        record = log.makeRecord(log.name, line.level, __file__, 0, line.text, (), None, extra=line.fields)
        record.exc_text = line.trace or None  # every formatter of `logging` writes it behind the message
        log.handle(record)
    except Exception:  # noqa: S110 - there is no other place to say so
        pass
