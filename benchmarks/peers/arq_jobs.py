"""The jobs and the worker of the arq peer: `run_worker`, which is what its command calls."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import uvloop
from arq import run_worker
from arq.connections import RedisSettings

from ..tally import Tally
from . import TALLY
from .producing import NAP
from .redis import URL

tally = Tally(Path(os.environ[TALLY]))


async def noop(ctx: Any, *, number: int) -> None:
    tally.tick()


async def stamp(ctx: Any, *, sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


async def nap(ctx: Any, *, number: int) -> None:
    await asyncio.sleep(NAP)
    tally.tick()


async def fail(ctx: Any, *, number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


async def carry(ctx: Any, *, number: int, pad: str) -> None:
    tally.tick()


class WorkerSettings:
    functions = (noop, stamp, nap, fail, carry)
    redis_settings = RedisSettings.from_dsn(os.environ[URL])
    keep_result = 0
    log_results = False


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.set_event_loop(asyncio.new_event_loop())
    run_worker(WorkerSettings, max_jobs=int(sys.argv[1]), poll_delay=float(sys.argv[2]))  # type: ignore[arg-type]
