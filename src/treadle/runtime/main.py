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
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from ..config import Limits, Timing
from ..core import switching
from ..core.errors import StorageUnavailable
from . import loops
from .pod import Pod

if TYPE_CHECKING:
    from .health import Health

log = logging.getLogger("treadle.main")

EXIT_DONE: Final = 0
EXIT_LOOP_BLOCKED: Final = 70
EXIT_BUG: Final = 70
EXIT_UNCLEAN: Final = 75

LAST_WORDS: Final = 2.0  # seconds that the log and the streams may take in the end

SWITCH_EVERY: Final = 0.25  # seconds between two looks at what the threads do
START_PATIENCE: Final = 30.0
LOOK_AGAIN: Final = 0.1
LONGEST_PAUSE: Final = 2.0

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Host(Protocol):
    """What the worker process needs of an app."""

    async def open(self) -> None: ...
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
        starts_anew: bool,
        log_jobs: bool | None,
        worker_version: str | None,
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
    log_jobs: bool | None = None,
    worker_version: str | None = None,
    loop: str = "auto",
    health: tuple[str, int] | None = None,
) -> NoReturn:
    """Be a worker process to the end. What is wrong before the pod has started is raised; after that it exits."""
    # Beside a busy event loop a thread can wait for seconds to get the interpreter back: the loop's own short releases
    # keep resetting the 5 ms timer. The Heart and the storage's threads must not wait so long.
    sys.setswitchinterval(switching.SHORTEST)
    loops.calm_collector()
    # Before the storage is opened: "starting" is an answer too. It ends with the process.
    server = None if health is None else _answer_on(*health)

    async def main() -> NoReturn:
        code: int | None = None
        try:
            with Signals(timing.grace) as signals:
                await _open(app, signals)
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
                        starts_anew=True,
                        log_jobs=log_jobs,
                        worker_version=worker_version,
                    )
                    code = await serve(make_pod, signals, burst=burst, health=server)
        except BaseException:
            if code is None:
                raise
            # Not raised: the loop would wait for tasks that never end before anybody saw it.
            log.exception("the pod has stopped, but its app could not be closed")
            code = EXIT_UNCLEAN
        leave(code)

    with asyncio.Runner(loop_factory=loops.maker(loop)) as runner:
        runner.run(main())
    raise AssertionError("unreachable: the process has left")


def _answer_on(host: str, port: int) -> Health:
    from .health import Health  # with the standard library's web server, which few workers need

    return Health(host, port)


class Signals:
    """What SIGTERM and SIGINT ask for. Listens from before the storage is opened: a stop during the start is a stop."""

    def __init__(self, grace: float) -> None:
        self.asked = asyncio.Event()
        self.hurry: Callable[[], None] = lambda: None
        self._grace = grace
        self._count = 0

    def __enter__(self) -> Signals:
        for number in _SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
        return self

    def __exit__(self, *exc: object) -> None:
        for number in _SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _on_signal(self) -> None:
        self._count += 1
        if self._count == 1:
            log.warning("stopping: running jobs have %.0f s to end (signal again to hurry)", self._grace)
            self.asked.set()
        elif self._count == 2:
            log.warning("hurrying: running jobs are cancelled and given back")
            self.hurry()
        else:
            leave(EXIT_UNCLEAN)


async def _open(app: Host, signals: Signals) -> None:
    """Open the storage. One that is only busy, or not there yet, is tried again for a while; a refusal is final."""
    if not await _patiently("open the storage", app.open, signals):
        leave(EXIT_DONE)


async def _patiently(what: str, act: Callable[[], Awaitable[object]], signals: Signals) -> bool:
    """Do it, and again if what stands in its way may pass; not if we were asked to stop meanwhile."""
    give_up_at = asyncio.get_running_loop().time() + START_PATIENCE
    pause = LOOK_AGAIN
    while not signals.asked.is_set():
        try:
            await act()
            return True
        except StorageUnavailable as error:
            if not error.passing or asyncio.get_running_loop().time() >= give_up_at:
                raise
            log.warning("cannot %s yet: %s", what, error)
        await _first(signals.asked.wait(), asyncio.sleep(pause))
        pause = min(2 * pause, LONGEST_PAUSE)
    return False


async def serve(
    make_pod: Callable[[], Pod], signals: Signals, *, burst: bool = False, health: Health | None = None
) -> int:
    """Run one pod until a signal comes (or, in burst mode, until nothing is due), and answer with the exit code."""
    pod = make_pod()
    signals.hurry = pod.hurry
    if health is not None:
        health.watch(pod)
    if await _patiently("start the pod", pod.start, signals):
        follow = asyncio.create_task(_follow_threads(pod), name="switch interval")
        await _first(signals.asked.wait(), pod.ordered_off.wait(), *([_nothing_due(pod)] if burst else []))
        await pod.stop()
        follow.cancel()
    return EXIT_BUG if pod.broken else EXIT_DONE if pod.clean else EXIT_UNCLEAN


async def _follow_threads(pod: Pod) -> None:
    """Let threads keep the interpreter for longer while many of them compute. On the pod's loop."""
    all_threads, own, at = time.process_time(), time.thread_time(), time.monotonic()
    while True:
        await asyncio.sleep(SWITCH_EVERY)
        before = at, all_threads - own
        all_threads, own, at = time.process_time(), time.thread_time(), time.monotonic()
        used = (all_threads - own - before[1]) / max(at - before[0], SWITCH_EVERY)
        wanted = switching.interval(pod.busy_threads, used)
        if wanted != sys.getswitchinterval():
            sys.setswitchinterval(wanted)


async def _nothing_due(pod: Pod) -> None:
    await pod.turner.idle.wait()
    while await pod.waits_for_tokens():
        await asyncio.sleep(LOOK_AGAIN)
        await pod.turner.idle.wait()


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
    last = threading.Timer(LAST_WORDS, os._exit, (code,))  # a log that somebody blocks is not waited for
    last.daemon = True
    try:
        last.start()
    except RuntimeError:
        pass  # no thread to be had
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)
