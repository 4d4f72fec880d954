"""Vitals: how this process fares, and where it stands. Cheap enough for every beat, and for the Heart's own thread, so
that they are told of a pod whose loop does not come back."""

from __future__ import annotations

import asyncio
import faulthandler
import linecache
import os
import re
import sys
import tempfile
import threading
import time
from types import FrameType
from typing import Any, Final

LARGEST_DUMP: Final = 64 << 10
FRAMES: Final = 24
_CUT: Final = "\n… the rest is cut\n"
_THREAD: Final = re.compile(r"(?:Current thread|Thread) 0x([0-9a-f]+)")
_FRAME: Final = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def cpu_seconds() -> float:
    """Of the whole process, all threads, since its start."""
    return time.process_time()


def rss_bytes() -> int:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return _peak_bytes()


def _peak_bytes() -> int:
    """Where there is no /proc, the most that it ever was is the next best. Bytes on macOS, kilobytes elsewhere."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def stacks(loop: asyncio.AbstractEventLoop, watched: int) -> str:
    """Where every thread stands, the loop's first, and where every task waits. Bounded, and fit to be stored."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = _threads()
    parts: list[str] = []
    for ident in sorted(found, key=lambda ident: (ident != watched, ident)):
        role = " (event loop)" if ident == watched else ""
        parts.append(f"thread {names.get(ident, ident)}{role}\n{found[ident]}")
    for task in sorted(_tasks(loop), key=lambda task: task.get_name()):
        where = "".join(f"{_line(frame)}\n" for frame in _frames(task)) or "  (about to end)\n"
        parts.append(f"task {task.get_name()}: {_coroutine(task)}\n{where}")
    return _bounded("\n".join(parts))


def _tasks(loop: asyncio.AbstractEventLoop) -> list[asyncio.Task[Any]]:
    try:
        return [task for task in asyncio.all_tasks(loop) if not task.done()]
    except RuntimeError:  # tasks come and go too fast to be listed from another thread
        return []


def _frames(task: asyncio.Task[Any]) -> list[FrameType]:
    """From the outermost to where it waits. (A task's own `get_stack` knows only the outermost.)"""
    found: list[FrameType] = []
    waits: Any = task.get_coro()
    while waits is not None and len(found) < FRAMES:
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "gi_frame", None)
        if frame is not None:
            found.append(frame)
        waits = getattr(waits, "cr_await", None) or getattr(waits, "gi_yieldfrom", None)
    return found


def _coroutine(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "?")


def stack_of(ident: int) -> str:
    """Where one thread stands."""
    return _threads().get(ident, "<no stack>\n")


def _threads() -> dict[int, str]:
    """Where every thread stands, by its ident, the innermost call last.

    By `faulthandler`, which looks at all of them in one go. To walk from frame to frame in Python, as `traceback` does,
    is to walk over frames of a thread that runs on in between: Python 3.11 was seen to crash on that."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read().decode("utf-8", "replace")
    found: dict[int, list[str]] = {}
    frames: list[str] = []
    for line in text.splitlines():
        if begun := _THREAD.match(line):
            frames = found[int(begun[1], 16)] = []
        elif (frame := _FRAME.match(line)) and len(frames) < FRAMES:
            frames.append(_told(frame[1], int(frame[2]), frame[3]))
    return {ident: "".join(reversed(told)) for ident, told in found.items()}


def _told(file: str, line: int, function: str) -> str:
    source = linecache.getline(file, line).strip()
    return f'  File "{file}", line {line}, in {function}\n' + (f"    {source}\n" if source else "")


def _line(frame: FrameType) -> str:
    return f'  File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_name}'


def _bounded(text: str) -> str:
    clean = text.replace("\0", "\\0").encode("utf-8", "backslashreplace")
    if len(clean) > LARGEST_DUMP:
        clean = clean[: LARGEST_DUMP - len(_CUT.encode())] + _CUT.encode()
    return clean.decode("utf-8", "ignore")
