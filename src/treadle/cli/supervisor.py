"""`treadle worker --processes N`: N worker processes under one parent, because one process uses one core.

The parent runs no jobs and opens no storage. It starts its children, starts a dead one again (after 1 s, 2 s, 4 s … at
most 30 s, and from 1 s again once a child has lived for a minute), passes signals on, and ends when all of them have
ended, with the worst of their exit codes.

Each child leads a process group of its own. Ctrl-C on a terminal reaches the whole foreground group: a child in it
would hear it twice, once from the terminal and once from us, and the second signal means "hurry". The other side of
that: a parent that is killed outright takes nobody with it. So a child is told who its parent is (`--parent`), and asks
the kernel to be drained when that one dies (Linux only; elsewhere the children work on, and can be stopped one by one).

A child that refuses its configuration (78) is not started again: it would refuse for ever. All end, with 78.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from .errors import BLOCKED, DONE, FAILED, REFUSED, UNSIGNED

FIRST_DELAY: Final = 1.0
LONGEST_DELAY: Final = 30.0
PROVEN: Final = 60.0  # who lived so long was not broken from the start

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_FROM_BAD_TO_WORSE: Final = (DONE, FAILED, UNSIGNED, BLOCKED, REFUSED)
_PR_SET_PDEATHSIG: Final = 1


def next_delay(previous: float, lived: float) -> float:
    """How long to wait before a child is started again, after it lived for so many seconds."""
    if previous == 0 or lived >= PROVEN:
        return FIRST_DELAY
    return min(previous * 2, LONGEST_DELAY)


def worst(codes: Iterable[int]) -> int:
    """The exit code of the whole. A child that a signal killed has not signed off."""
    told = [UNSIGNED if code < 0 else code if code in _FROM_BAD_TO_WORSE else FAILED for code in codes]
    return max(told, key=_FROM_BAD_TO_WORSE.index, default=DONE)


def without_processes(args: Sequence[str]) -> list[str]:
    """The command line of a child: that of the parent, without `--processes N`, and without `--health ADDR`, which
    each child has of its own."""
    kept: list[str] = []
    rest = iter(args)
    for arg in rest:
        if arg in ("--processes", "--health"):
            next(rest, None)
        elif not arg.startswith(("--processes=", "--health=")):
            kept.append(arg)
    return kept


def environ_of(
    number: int, environ: Mapping[str, str], worker_id: str | None, health: str | None = None
) -> dict[str, str]:
    """A child's environment. A worker id that was given gets the child's number; without one each child's label has
    the digits of its own pod id, and they differ already. The first child answers on the given port, the next on the
    one after it."""
    own = {"TREADLE_WORKER_ID": f"{worker_id}-{number}"} if worker_id is not None else {}
    if health is not None:
        host, _, port = health.rpartition(":")
        own["TREADLE_HEALTH"] = f"{host}:{int(port) + number - 1}"
    return {**environ, **own}


def die_with(parent: int) -> None:
    """In a child: be told to drain when the parent is gone, also if it is gone already."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


class Supervisor:
    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        *,
        environ: Callable[[int], Mapping[str, str]],
        say: Callable[[str], None],
        burst: bool = False,
    ) -> None:
        self._command = command
        self._processes = processes
        self._environ = environ
        self._say = say
        self._burst = burst
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._forward, number)
        try:
            return worst(await asyncio.gather(*(self._keep(number) for number in range(1, self._processes + 1))))
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    async def _keep(self, number: int) -> int:
        """Keep one child alive until it may end; its last exit code."""
        delay = 0.0
        while True:
            born = asyncio.get_running_loop().time()
            code = await self._live(number)
            if code == REFUSED:
                self._stop()
            if self._stopping.is_set() or (self._burst and code == DONE):
                return code
            delay = next_delay(delay, asyncio.get_running_loop().time() - born)
            self._say(f"worker {number} {_ended(code)}; starting it again in {delay:g} s")
            if await self._stopped_within(delay):
                return DONE  # it was to start again: what killed the last one has been dealt with

    async def _live(self, number: int) -> int:
        child = await asyncio.create_subprocess_exec(
            *self._command, env=dict(self._environ(number)), process_group=0, stdin=asyncio.subprocess.DEVNULL
        )
        self._children[number] = child
        if self._stopping.is_set():
            # The signal came while this child was being born, and was passed on to the others only.
            child.send_signal(signal.SIGTERM)
        code = await child.wait()
        del self._children[number]
        return code

    async def _stopped_within(self, delay: float) -> bool:
        try:
            async with asyncio.timeout(delay):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    def _forward(self, number: signal.Signals) -> None:
        self._stopping.set()
        for child in list(self._children.values()):
            try:
                child.send_signal(number)
            except ProcessLookupError:
                pass  # it ended in this moment

    def _stop(self) -> None:
        if not self._stopping.is_set():
            self._forward(signal.SIGTERM)


def _ended(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
