"""Tally: what the jobs themselves tell, through shared memory, so that asking costs the worker nothing.

Each process that runs jobs has one file of 64-bit cells: how many jobs ran, when the first one started, and the pickup
times of those that carry one. A tick costs a quarter of a microsecond, and every peer pays it.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from pathlib import Path

MOST_TIMES = 65536
COUNT, FIRST, TIMES = 0, 1, 2
SIZE = 8 * (TIMES + MOST_TIMES)


class Tally:
    """One process' own cells. Written under a lock: some peers run jobs in threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._open()
        os.register_at_fork(after_in_child=self._open)

    def tick(self) -> None:
        with self._lock:
            self._count()

    def pickup(self, sent_ns: int, now_ns: int) -> None:
        """A job that was sent at one instant of CLOCK_MONOTONIC has started at another."""
        with self._lock:
            self._cells[TIMES + self._cells[COUNT] % MOST_TIMES] = now_ns - sent_ns
            self._count()

    def _count(self) -> None:
        if not self._cells[COUNT]:
            self._cells[FIRST] = time.monotonic_ns()
        self._cells[COUNT] += 1

    def _open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Never shorter than it was, not even for an instant: a module that is imported twice opens it twice, and
        # whoever reads a page of a map that is no longer in the file is killed (SIGBUS).
        file = os.open(self._folder / f"{os.getpid()}.tally", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, SIZE)
            self._cells = memoryview(mmap.mmap(file, SIZE)).cast("q")
        finally:
            os.close(file)


class Tallies:
    """All processes' cells, read from outside."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[Path, memoryview] = {}

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def counts(self) -> list[int]:
        """How many jobs each process ran, largest first."""
        self._look()
        return sorted((cells[COUNT] for cells in self._seen.values()), reverse=True)

    @property
    def first(self) -> float:
        """When the first job started, in seconds of CLOCK_MONOTONIC."""
        return min(cells[FIRST] for cells in self._seen.values() if cells[COUNT]) / 1e9

    def times(self, skip: int) -> list[float]:
        """Pickup times in seconds, without the first few of each process."""
        found: list[float] = []
        for cells in self._seen.values():
            found += [cells[TIMES + n] / 1e9 for n in range(skip, min(cells[COUNT], MOST_TIMES))]
        return found

    def _look(self) -> None:
        for path in self._folder.glob("*.tally"):
            if path not in self._seen and path.stat().st_size == SIZE:
                with path.open("r+b") as file:
                    self._seen[path] = memoryview(mmap.mmap(file.fileno(), SIZE)).cast("q")
