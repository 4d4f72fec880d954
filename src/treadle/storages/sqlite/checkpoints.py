"""Checkpoints: moving what is in the write-ahead log into the database, by the writer and by nobody else."""

from __future__ import annotations

import logging
import os
import sqlite3
from typing import Final

from . import connect

_PAGES: Final = 1000
_PAGE: Final = 4096
BIG: Final = 64 << 20
_WORTH_IT: Final = 256 << 10  # below it an idle writer leaves the log alone
_FEE: Final = 4  # what a commit costs in pages however few rows it changes
_log: Final = logging.getLogger("treadle.sqlite")


class Checkpoints:
    """Decides when, from what was written.

    The log is written over from its start once all of it is in the database, so its size tells only how long it ever
    was, and nothing cheap tells how many pages are in it now. Each checkpoint does say, though, and so the next one is
    set after as much work as filled a thousand pages last time.
    """

    def __init__(self, path: str, db: sqlite3.Connection) -> None:
        self._log_path = f"{path}-wal"
        self._db = db
        self._changes: int = db.total_changes
        self._work: int = 0
        self._next: int = 0
        self._left: int = 0  # pages in the log that a reader kept from being written over
        self._warned = False

    @property
    def pending(self) -> bool:
        """Whether an idle moment would be worth a checkpoint."""
        return self._work > 0 and self._size() >= _WORTH_IT

    def is_due(self) -> bool:
        """To be asked after every commit."""
        changes: int = self._db.total_changes
        if changes != self._changes:
            self._work += changes - self._changes + _FEE
            self._changes = changes
        return self._work >= self._next and self._work > 0 and self._size() >= _PAGES * _PAGE

    def run(self, *, idle: bool = False) -> None:
        """Only while the file lock is held and no transaction is open."""
        size = self._size()
        mode = "truncate" if idle or size >= BIG else "passive"
        pages, moved, trouble = self._move(mode)
        written = pages - self._left if pages > self._left else pages
        if written > 0:
            self._next = max(1, self._work * _PAGES // written)
        self._work = 0
        self._left = pages if moved < pages else 0
        if moved < pages and size >= BIG:
            trouble = f"it has {size >> 20} MiB, because a reader holds an old snapshot"
        if trouble and not self._warned:
            _log.warning("%s cannot be merged into the database: %s", self._log_path, trouble)
        self._warned = bool(trouble)

    def _move(self, mode: str) -> tuple[int, int, str]:
        """How many pages the log has, how many of them are in the database now, and what went wrong, if anything."""
        try:
            # With busy_timeout at 0 a truncate that meets readers does what a passive one would.
            row: tuple[int, int, int] = self._db.execute(f"pragma wal_checkpoint({mode})").fetchone()
        except sqlite3.OperationalError as error:
            if connect.is_fatal(error):
                raise
            return _PAGES, 0, str(error)
        return row[1], row[2], ""

    def _size(self) -> int:
        try:
            return os.stat(self._log_path).st_size
        except OSError:
            return 0
