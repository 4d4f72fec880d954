"""Blockers: the processes that hold a lock on the file, as Linux lists them. Other systems name no process."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from ...core.blocker import Blocker, Stops
from . import files

LIST: Final = "/proc/locks"
# The byte of the -shm file that SQLite locks for its one writer (WAL_WRITE_LOCK).
WRITE_BYTE: Final = 120


class Lock(Struct, frozen=True):
    pid: int
    inode: int
    first: int
    last: float


def blockers(path: str) -> list[Blocker]:
    try:
        with open(LIST) as listed:
            locks = [*parse(listed)]
    except OSError:
        return []
    whole, writing, turns = _inode(path), _inode(f"{path}-shm"), _inode(os.path.join(files.folder(path), "lock"))
    found: dict[int, Stops] = {}
    for lock in locks:
        if lock.pid in (os.getpid(), 0, -1):  # of this process, or of one in another namespace
            continue
        if lock.inode == whole:  # in exclusive mode
            found[lock.pid] = "reads"
        elif lock.inode == turns or (lock.inode == writing and lock.first <= WRITE_BYTE <= lock.last):
            found.setdefault(lock.pid, "writes")
    named = [_named(pid, stops) for pid, stops in found.items()]
    return sorted(named, key=lambda each: (each.stops, each.who))


def parse(lines: Iterable[str]) -> Iterable[Lock]:
    """The locks for writing; those that only wait for one are left out.

    >>> [*parse(["3: POSIX ADVISORY WRITE 812 08:02:1311 120 120", "3: -> POSIX ADVISORY WRITE 9 08:02:1311 120 120"])]
    [Lock(pid=812, inode=1311, first=120, last=120.0)]
    """
    for line in lines:
        parts = line.split()
        if len(parts) != 8 or parts[3] != "WRITE":
            continue
        try:
            inode = int(parts[5].rpartition(":")[2])
            last = float("inf") if parts[7] == "EOF" else float(parts[7])
            yield Lock(int(parts[4]), inode, int(parts[6]), last)
        except ValueError:
            continue


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return -1


def _named(pid: int, stops: Stops) -> Blocker:
    program, does = _look_up(pid)
    stopped = does == "stopped"
    return Blocker(
        what="the database file",
        who=f"process {pid}",
        details=tuple(each for each in (program, does) if each),
        stops=stops,
        remedy=f"kill -CONT {pid}" if stopped else f"kill {pid}",
    )


def _look_up(pid: int) -> tuple[str, str]:
    """What it is called, and whether it stands still."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            head, _, rest = stat.read().rpartition(")")
    except OSError:
        return "", ""
    return head.partition("(")[2], "stopped" if rest.split()[:1] in (["T"], ["t"]) else ""
