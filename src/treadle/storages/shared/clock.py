"""The machine's own clock, for storages that have no server to ask."""

from __future__ import annotations

import contextlib
import functools
import sys
import time


class SystemClock:
    """Wall time for due dates and display, boot time for leases: a wall clock steps, and a laptop sleeps."""

    def now(self) -> float:
        return time.time()

    def steady(self) -> float:
        if sys.platform == "linux":
            return time.clock_gettime(time.CLOCK_BOOTTIME)
        return time.monotonic()

    def boot(self) -> str:
        return _boot_id()


@functools.cache
def _boot_id() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    # macOS has no boot id; the instant of the boot, to ten seconds (clock_settime moves it a little), serves.
    return str(round((time.time() - time.monotonic()) / 10))
