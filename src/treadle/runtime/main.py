"""The worker process: signals in, exit code out.

First signal: drain. Second: cancel and give back at once. Third: leave without a word; rescue does the rest. The
process ends by `os._exit` after the last flush, because closing an event loop waits for its threads, and a task that
never returns must not keep a worker that has nothing left to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from .pod import Pod

log = logging.getLogger("treadle.main")

EXIT_DONE: Final = 0
EXIT_LOOP_BLOCKED: Final = 70
EXIT_UNCLEAN: Final = 75


async def serve(make_pod: Callable[[Callable[[float], None]], Pod], *, burst: bool = False) -> int:
    """Run one pod until a signal (or, in burst mode, until nothing is due), and answer with the exit code."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    pod = make_pod(_leave_blocked)
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        if signals == 1:
            log.warning("stopping: running jobs have %.0f s to end (signal again to hurry)", pod.timing.grace)
            asked.set()
        elif signals == 2:
            log.warning("hurrying: running jobs are cancelled and given back")
            pod.hurry()
        else:
            _leave(EXIT_UNCLEAN)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    try:
        await pod.start()
        await _first(asked.wait(), *([pod.turner.idle.wait()] if burst else []))
        await pod.stop()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    return EXIT_DONE if pod.clean else EXIT_UNCLEAN


async def _first(*waits: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _leave_blocked(lag: float) -> None:
    """From the Heart's thread: the loop will not come back, so nobody but us can end this process."""
    _leave(EXIT_LOOP_BLOCKED)


def _leave(code: int) -> None:
    """End now: no joins, no finalisers."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)


leave = _leave
