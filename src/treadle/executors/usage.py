"""What this process has of the machine's memory."""

from __future__ import annotations

import os
import sys


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


def _statm(field: int) -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[field]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
