"""Inside a simulation clocks and chance are the loop's, and the real world is out of reach."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Final
from unittest import mock

from ...client import client
from ...runtime import pod as pods
from ...runtime.heart import Heart
from ..clock import BEGINNING
from .loop import HOST, Escape, SimLoop

STEADY_START: Final = 1_000.0


class SimHeart(Heart):
    """The Heart's step functions on the simulated loop, where a thread would be an escape. They share the host: a
    crash or a pause takes both, as it does with a process."""

    _body: Any = None

    def start(self, pod: str, registered: float | None = None) -> None:
        self._pod = pod
        if registered is not None:
            self.serve(pod, registered)
        self._stopping = False
        self._body = self._watched.create_task(self._main(), name="heart")

    @property
    def alive(self) -> bool:
        return self._body is not None and not self._body.done()

    async def ended(self) -> None:
        if self._body is not None:
            await self._body


class SimClock:
    """The storage's clock: true time."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skewed: Callable[[], float] = lambda: 0.0  # an ablation: the pods' clocks decide

    def now(self) -> float:
        return BEGINNING + self._loop.now + self.skewed()

    def steady(self) -> float:
        return STEADY_START + self._loop.now + self.skewed()

    def boot(self) -> str:
        return "boot-1"


@contextlib.contextmanager
def sealed(loop: SimLoop, seed: str) -> Generator[None]:
    """Nothing inside sees the real time, the real chance, a thread or a socket."""
    chance = random.Random(f"{seed}/chance")  # noqa: S311

    def monotonic() -> float:
        return STEADY_START + loop.now

    def wall() -> float:
        return BEGINNING + loop.now + HOST.get().skew

    def wall_ns() -> int:
        return int(wall() * 1e9)

    def token_hex(size: int = 16) -> str:
        return chance.randbytes(size).hex()

    def refuse(what: str) -> Callable[..., Any]:
        def refused(*_: object, **__: object) -> Any:
            raise Escape(f"{what} inside a simulation")

        return refused

    patches: list[Any] = [
        mock.patch.object(time, "monotonic", monotonic),
        mock.patch.object(time, "perf_counter", monotonic),
        mock.patch.object(time, "process_time", monotonic),
        mock.patch.object(time, "time", wall),
        mock.patch.object(time, "time_ns", wall_ns),
        mock.patch.object(time, "sleep", refuse("time.sleep")),
        mock.patch.object(os, "urandom", chance.randbytes),
        mock.patch.object(random, "_urandom", chance.randbytes),
        mock.patch.object(secrets, "token_hex", token_hex),
        mock.patch.object(secrets, "randbits", chance.getrandbits),
        mock.patch.object(threading.Thread, "start", refuse("a thread")),
        mock.patch.object(socket, "socket", refuse("a socket")),
        mock.patch.object(pods, "Heart", SimHeart),
    ]
    collecting = gc.isenabled()
    gc.disable()
    logger = logging.getLogger("treadle")
    level, logger.level = logger.level, logging.CRITICAL + 1
    client.new_id.start_anew()
    client.new_id._last = 0
    try:
        with contextlib.ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch)
            yield
    finally:
        logger.level = level
        loop.close()
        client.new_id._last = 0
        client.new_id.start_anew()
        if collecting:
            gc.enable()
