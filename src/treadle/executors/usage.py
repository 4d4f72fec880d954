"""What this process has of the machine's memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def rss() -> int:
    """In bytes; where there is no /proc, the most that it ever was."""
    found = _statm(1)
    if found is not None:
        return found
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def address_space() -> int:
    """What RLIMIT_AS counts."""
    return _statm(0) or 0


def is_plenty() -> bool:
    """Whether a quarter of the memory that this process may have, at least, is free. Where nobody says: no."""
    found = [_of_machine(), *map(_of_group, _groups())]
    known = [each for each in found if each is not None]
    return bool(known) and all(4 * free >= most for free, most in known)


def _of_machine() -> tuple[int, int] | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            said = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in file)}
        return said["MemAvailable"], said["MemTotal"]
    except (OSError, ValueError, IndexError, KeyError):
        return None


def _groups() -> list[tuple[str, str]]:
    """Files that say what a control group may have and has: those of our own, and those of the container's."""
    own = {"": "/", "memory": "/"}
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            own |= {kinds: path for _, kinds, path in (line.rstrip("\n").split(":", 2) for line in file)}
    except (OSError, ValueError):
        pass
    new = [f"/sys/fs/cgroup{own['']}", "/sys/fs/cgroup"]
    old = [f"/sys/fs/cgroup/memory{own['memory']}", "/sys/fs/cgroup/memory"]
    files = [(f"{path}/memory.max", f"{path}/memory.current") for path in new]
    return files + [(f"{path}/memory.limit_in_bytes", f"{path}/memory.usage_in_bytes") for path in old]


def _of_group(files: tuple[str, str]) -> tuple[int, int] | None:
    try:
        most, used = (int(Path(each).read_text("ascii")) for each in files)
    except (OSError, ValueError):  # no such group, or "max"
        return None
    return max(0, most - used), most


def _statm(field: int) -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[field]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
