"""What this process uses of its machine."""

from __future__ import annotations

import os
import sys
import threading
import time

from msgspec import Struct


class Usage(Struct, frozen=True):
    cpu_seconds: float  # of the whole process, since it started
    rss: int
    threads: int


def usage() -> Usage:
    return Usage(time.process_time(), _rss(), threading.active_count())


def _rss() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return _most_rss()


def _most_rss() -> int:
    """Where there is no /proc: the most that was ever used is the best that is known."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
