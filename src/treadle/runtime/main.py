"""The worker process: signals in, exit code out.

First signal: drain. Second: cancel and give back at once. Third: leave without a word; rescue does the rest. The
process ends by `os._exit` after the last flush: closing an event loop waits for its tasks and threads, and one that
never returns must not keep a worker that has nothing left to do.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NoReturn, Protocol

from ..config import Limits, Timing
from .pod import Pod

log = logging.getLogger("treadle.main")

EXIT_DONE: Final = 0
EXIT_LOOP_BLOCKED: Final = 70
EXIT_UNCLEAN: Final = 75

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Host(Protocol):
    """What the worker process needs of an app."""

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, *exc: object) -> None: ...
    def state(self) -> AbstractAsyncContextManager[Any]: ...
    def make_pod(
        self,
        *,
        queues: Mapping[str, int],
        leads: bool,
        label: Callable[[str], str],
        timing: Timing,
        limits: Limits,
        state: Any,
        stuck: Callable[[float], None],
    ) -> Pod: ...


def run_worker(
    app: Host,
    *,
    queues: Mapping[str, int],
    burst: bool,
    leads: bool,
    label: Callable[[str], str],
    timing: Timing,
    limits: Limits,
) -> NoReturn:
    """Be a worker process to the end. What is wrong before the pod has started is raised; after that it exits."""

    async def main() -> NoReturn:
        async with app, app.state() as state:
            make_pod = functools.partial(
                app.make_pod,
                queues=queues,
                leads=leads,
                label=label,
                timing=timing,
                limits=limits,
                state=state,
                stuck=_leave_blocked,
            )
            code = await serve(make_pod, burst=burst)
        leave(code)

    asyncio.run(main())
    raise AssertionError("unreachable: the process has left")


async def serve(make_pod: Callable[[], Pod], *, burst: bool = False) -> int:
    """Run one pod until a signal comes (or, in burst mode, until nothing is due), and answer with the exit code."""
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()
    signals = 0
    pod = make_pod()

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
            leave(EXIT_UNCLEAN)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        await pod.start()
        await _first(asked.wait(), *([pod.turner.idle.wait()] if burst else []))
        await pod.stop()
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
    return EXIT_DONE if pod.clean else EXIT_UNCLEAN


async def _first(*waits: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _leave_blocked(lag: float) -> None:
    """From the Heart's thread: the loop will not come back, so nobody but the Heart can end this process."""
    leave(EXIT_LOOP_BLOCKED)


def leave(code: int) -> NoReturn:
    """End now, from any thread: no joins, no finalisers."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)
