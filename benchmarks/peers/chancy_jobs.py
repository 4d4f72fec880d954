"""The jobs and the worker of the Chancy peer."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from chancy import Chancy, Queue, Worker, job

from ..tally import Tally
from . import TALLY
from .postgres import URL
from .producing import NAP

tally = Tally(Path(os.environ[TALLY]))


@job()
async def noop(*, number: int) -> None:
    tally.tick()


@job()
async def stamp(*, sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


@job()
async def nap(*, number: int) -> None:
    await asyncio.sleep(NAP)
    tally.tick()


@job()
async def fail(*, number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


@job()
async def carry(*, number: int, pad: str) -> None:
    tally.tick()


def connect(pool: int) -> Any:
    log = logging.getLogger("chancy")
    log.setLevel(logging.WARNING)
    return Chancy(os.environ[URL], no_default_plugins=True, max_connection_pool_size=pool, log=log)


async def work(slots: int, outgoing: float) -> None:
    async with connect(10) as chancy:
        executor = Chancy.Executor.Async
        await chancy.declare(Queue("default", concurrency=slots, executor=executor, eager_polling=True), upsert=True)
        async with Worker(chancy) as worker:
            worker.send_outgoing_interval = outgoing
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    # Not this module, which is __main__: the worker imports a job by its module's name, and would open a second tally.
    named = importlib.import_module("benchmarks.peers.chancy_jobs")
    asyncio.run(named.work(int(sys.argv[1]), float(sys.argv[2])))
