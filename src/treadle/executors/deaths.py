"""What the end of a child process means for the job that ran in it."""

from __future__ import annotations

import signal
import time
from typing import Final

from ..core import size
from ..core.outcome import ChildLost
from .posix import name_of

# What a program that is not told "no" politely does when it gets no more memory.
_STARVED: Final = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS)


def cause(code: int, *, memory: int | None, cpu: float | None, starved: bool) -> ChildLost:
    """`code` is the exit code, or a signal as a negative number; `starved`: the kernel has killed somebody, to get
    memory, while the child ran."""
    if code >= 0:
        return ChildLost(f"its child process left with exit code {code}, before the task had ended")
    if code == -signal.SIGXCPU and cpu is not None:
        return ChildLost(f"used more than its {cpu:g} s of CPU time", "limit")
    words = f"its child process was killed by {name_of(-code)}"
    if code == -signal.SIGKILL and starved:
        words += ": the machine was out of memory"
    elif memory is not None and -code in _STARVED:
        words += f"; out of memory, perhaps: its limit is {size.words(memory)}"
    return ChildLost(words)


def oom_kills() -> int:
    """How often the kernel has killed a process to get memory, since it was started; 0 where it does not say."""
    try:
        with open("/proc/vmstat", "rb", buffering=0) as file:
            return int(file.read().partition(b"\noom_kill ")[2].partition(b"\n")[0])
    except (OSError, ValueError):
        return 0


_last: tuple[float, int] = (-1.0, 0)


def oom_kills_lately() -> int:
    """The same, as of a second ago at most: for each call, since the kernel takes its time to say so."""
    global _last
    now = time.monotonic()
    if not 0 <= now - _last[0] < 1.0:
        _last = now, oom_kills()
    return _last[1]
