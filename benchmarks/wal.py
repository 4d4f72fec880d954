"""Commits and WAL bytes, read from the index that SQLite keeps of its write-ahead log (the `-shm` file).

Its head counts every commit and names the last frame of the log. When the log starts over, the salt changes and the
frames begin at one: what was written between the last look and that moment is missed, which at a look every two
milliseconds is a turn in some forty. No lock is taken, and SQLite does not notice.

The layout is that of `struct WalIndexHdr` in SQLite's wal.c, unchanged since 3.7: version, -, commits, flags and page
size, last frame, pages, two checksums, two salts. The process that looks must not have a connection of its own to the
file: closing this descriptor would drop that connection's locks.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_HEAD = struct.Struct("=II I BBH I I II 8s")
_FRAME_HEAD = 24


class WalWatch:
    """Counts from its making on. `look` as often as possible."""

    def __init__(self, database: Path) -> None:
        with Path(f"{database}-shm").open("rb") as file:
            self._shared = mmap.mmap(file.fileno(), _HEAD.size, prot=mmap.PROT_READ)
        self._first_commit, self._last_frame, self._page, self._salt = self._read()
        self.frames = 0
        self.commits = 0

    def look(self) -> None:
        commits, frame, _, salt = self._read()
        begun_again = salt != self._salt or frame < self._last_frame
        self.frames += frame if begun_again else frame - self._last_frame
        self._last_frame, self._salt = frame, salt
        self.commits = (commits - self._first_commit) & 0xFFFFFFFF

    @property
    def size(self) -> int:
        """Bytes written to the log, whole frames."""
        return self.frames * (self._page + _FRAME_HEAD)

    def _read(self) -> tuple[int, int, int, bytes]:
        while True:
            head = self._shared[: _HEAD.size]
            # There are two copies, written one after the other; a torn one is read again.
            if head == self._shared[: _HEAD.size]:
                _, _, commits, _, _, page, frame, _, _, _, salt = _HEAD.unpack(head)
                return commits, frame, 65536 if page == 1 else page, salt
