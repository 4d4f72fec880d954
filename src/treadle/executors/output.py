"""Output: what a child prints, bounded while it is read.

A child may print a gigabyte, without a line's end, and it must never wait for us. So all is read, a tail is kept, and
lines go to the log as they come, as many as a person could read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

LONGEST_LINE: Final = 4 * 1024
BURST: Final = 1000
RATE: Final = 50.0  # lines a second, once the burst is used up

CUT: Final = "[cut] "  # counts as output: no more than was asked for is kept

Say = Callable[[str], None]


class Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces = bytearray()
        self.seen = 0

    def feed(self, data: bytes) -> None:
        self.seen += len(data)
        self._pieces += data[-self._limit :]
        if len(self._pieces) > 2 * self._limit:  # not at each piece: cutting copies
            del self._pieces[: -self._limit]

    @property
    def is_whole(self) -> bool:
        return self.seen <= self._limit

    def text(self) -> str:
        """What every storage can keep: NUL and broken characters are shown as such."""
        kept = bytes(self._pieces[-self._limit :])
        text = kept.decode("utf-8", "replace").replace("\x00", "\ufffd")
        shown = text.encode()  # a sign for a broken byte takes three
        if self.is_whole and len(shown) <= self._limit:
            return text
        room = max(0, self._limit - len(CUT))
        return CUT[: self._limit] + shown[len(shown) - min(room, len(shown)) :].decode("utf-8", "ignore")


class Budget:
    """So many lines at once, and then so many a second. Those that are over are counted."""

    def __init__(self, now: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._now = now
        self._left = float(BURST)
        self._at = now()
        self.over = 0

    def take(self) -> bool:
        now = self._now()
        self._left = min(float(BURST), self._left + (now - self._at) * RATE)
        self._at = now
        if self._left < 1:
            self.over += 1
            return False
        self._left -= 1
        return True

    def report(self) -> str | None:
        """What to say about those that were over, once."""
        told, self.over = self.over, 0
        return f"… {told:,} lines were not logged" if told else None


class LineLog:
    """Says each line of a stream, cut to a bearable length, and no more of them than anybody could read."""

    def __init__(self, say: Say, now: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._say = say
        self._budget = Budget(now)
        self._held = b""
        self._skipping = False  # the rest of a line that was said already

    def feed(self, data: bytes) -> None:
        first, *rest = data.split(b"\n", BURST)
        self._add(first)
        for piece in rest:
            self._end()
            flood, _, last = piece.rpartition(b"\n")
            if flood:  # the last piece of a burst: what is in it is counted, and not looked at
                self._budget.over += flood.count(b"\n") + 1
            self._add(last)

    def close(self) -> None:
        self._end()
        self._report()

    def _add(self, piece: bytes) -> None:
        if self._skipping:
            return
        self._held += piece[: LONGEST_LINE + 1]
        if len(self._held) > LONGEST_LINE:
            self._tell(self._held[:LONGEST_LINE] + "…".encode())
            self._held, self._skipping = b"", True

    def _end(self) -> None:
        if not self._skipping and self._held:
            self._tell(self._held)
        self._held, self._skipping = b"", False

    def _tell(self, line: bytes) -> None:
        if self._budget.take():
            self._report()
            self._say(line.decode("utf-8", "replace").replace("\x00", "\ufffd").rstrip("\r"))

    def _report(self) -> None:
        if (told := self._budget.report()) is not None:
            self._say(told)
