"""Log lines of which an outsider, or a thousand jobs that fail alike, could write any number: of each kind ten a minute
are written, and then one with the number of those left out. `core.outcome_log` decides; here are the clock and the
logger. Configures nothing: handlers and levels are the host's."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ..core import outcome_log as lines
from ..core.outcome_log import Flood, Line


class LineThrottle:
    """For one logger, on one event loop."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._log = log
        self._clock = clock
        self._floods: dict[str, tuple[Flood, Line]] = {}  # kind → the count, and the last line of it
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, line: Line) -> None:
        if self._log.isEnabledFor(line.level) and self.admits(line):
            self._write(line)

    def admits(self, line: Line) -> bool:
        """Count a line; whether it is to be written. One without a kind always is."""
        if not line.kind:
            return True
        now = self._clock()
        kind = line.kind if line.kind in self._floods or len(self._floods) < lines.MOST_KINDS else ""
        flood, _ = self._floods.get(kind) or (Flood(now), line)
        if lines.is_over(flood, now):
            self._sum_up(now)
            flood = Flood(now)
        flood, is_written = lines.admit(flood)
        self._floods[kind] = flood, line
        self._set_timer()
        return is_written

    def close(self) -> None:
        """Tell what was left out, and count no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sum_up(float("inf"))

    def _set_timer(self) -> None:
        """So that the number is told even if no further line comes. Without a loop the next line tells it."""
        if self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return
            self._timer = loop.call_later(lines.WINDOW, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._sum_up(self._clock())
        if self._floods:
            self._set_timer()

    def _sum_up(self, now: float) -> None:
        for kind, (flood, line) in list(self._floods.items()):
            if lines.is_over(flood, now):
                del self._floods[kind]
                if flood.left_out:
                    self._write(lines.summary(line, flood.left_out))

    def _write(self, line: Line) -> None:
        """A handler of the host's that raises must not take the caller with it."""
        try:
            record = self._log.makeRecord(
                self._log.name, line.level, __file__, 0, line.text, (), None, extra=line.fields
            )
            record.exc_text = line.trace or None  # every formatter of `logging` writes it behind the message
            self._log.handle(record)
        except Exception:  # noqa: S110 - there is no other place to say so
            pass
