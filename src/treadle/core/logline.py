"""LogLine: one line of a job's log, and the ring that bounds what is kept while it is collected.

A task may log a gigabyte. What is kept of an attempt is its last 1000 lines, 64 KiB at most, and never more than that
is held anywhere on the way: not in the pod, not in the storage.

A line is known by its number: microseconds since the epoch by the storage's clock, as the pod reckons it, and always
greater than that of the line before. So lines sort by it, a reader goes on behind the last one it has seen, and a line
that is sent again is the same line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from msgspec import Struct

from .text import cut

MOST_LINES: Final = 1000
MOST_BYTES: Final = 64 * 1024
LONGEST_LINE: Final = 8 * 1024

Level = Literal["debug", "info", "warning", "error", "critical"]
LEVELS: Final[dict[Level, int]] = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


class LogLine(Struct, frozen=True, gc=False):
    """One line; what an exception says may have several in it."""

    job_id: str
    n: int
    attempt: int
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """One line of a job's log. `n` is where a reader goes on: `after=line.n`.

    >>> [line.text for line in app.jobs.logs_sync(sent.id)]
    ['to 7']
    """

    n: int
    at: datetime
    attempt: int
    level: str
    text: str


class Ring:
    """The last lines of one attempt that are not written yet."""

    __slots__ = ("_last", "_lines", "attempt", "bytes", "job_id", "left_out")

    def __init__(self, job_id: str, attempt: int) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self.left_out = 0  # lines that were pushed out since the last `take`
        self.bytes = 0
        self._lines: deque[LogLine] = deque()
        self._last = 0

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, at: float, level: str, text: str) -> int:
        """Add a line; how many were pushed out for it."""
        self._last = max(self._last + 1, int(at * 1e6))
        return self._keep([LogLine(self.job_id, self._last, self.attempt, level, cut(text, LONGEST_LINE))])

    def take(self) -> list[LogLine]:
        """All lines, oldest first; the first says so if there were more."""
        taken, self._lines, self.bytes = list(self._lines), deque(), 0
        if self.left_out and taken:
            told = f"… {self.left_out:,} lines are left out: of an attempt the last {MOST_LINES:,} are kept"
            taken.insert(0, LogLine(self.job_id, taken[0].n - 1, self.attempt, "warning", told))
        self.left_out = 0
        return taken

    def put_back(self, lines: Sequence[LogLine]) -> int:
        """They could not be written: they come before what was added meanwhile. How many were pushed out."""
        newer, self._lines, self.bytes = list(self._lines), deque(), 0
        return self._keep([*lines, *newer])

    def _keep(self, lines: list[LogLine]) -> int:
        pushed = 0
        for line in lines:
            self._lines.append(line)
            self.bytes += size(line)
            while len(self._lines) > MOST_LINES or self.bytes > MOST_BYTES:
                self.bytes -= size(self._lines.popleft())
                pushed += 1
        self.left_out += pushed
        return pushed


def size(line: LogLine) -> int:
    """What a line counts for, of the bytes of its attempt: its UTF-8, and a little for itself."""
    return len(line.text.encode()) + 16


def level_of(number: int) -> Level:
    """The level of a record, by the nearest name at or below it."""
    names: list[Level] = [name for name, least in LEVELS.items() if number >= least]
    return names[-1] if names else "debug"


def kept(lines: Sequence[LogLine]) -> list[LogLine]:
    """Of one attempt's lines, oldest first, those that are kept."""
    left: list[LogLine] = []
    room = MOST_BYTES
    for line in reversed(lines[-MOST_LINES:]):
        room -= size(line)
        if room < 0:
            break
        left.append(line)
    return left[::-1]


def view(line: LogLine) -> LogView:
    at = datetime.fromtimestamp(line.n / 1e6, UTC)
    return LogView(n=line.n, at=at, attempt=line.attempt, level=line.level, text=line.text)
