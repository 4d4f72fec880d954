"""The worker of the awa peer: it has no command of its own, `start` is called by the user's program."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import awa

from ..tally import Tally
from . import TALLY
from .postgres import URL
from .producing import NAP


@dataclasses.dataclass
class Noop:
    number: int


@dataclasses.dataclass
class Stamp:
    sent: int


@dataclasses.dataclass
class Nap:
    number: int


@dataclasses.dataclass
class Fail:
    number: int


@dataclasses.dataclass
class Carry:
    number: int
    pad: str


TASKS = {"noop": Noop, "stamp": Stamp, "nap": Nap, "fail": Fail, "carry": Carry}


async def work(slots: int, claimers: int, batch: int) -> None:
    tally = Tally(Path(os.environ[TALLY]))
    client = awa.AsyncClient(os.environ[URL])

    @client.task(Noop, queue="default")
    async def noop(job: Any) -> None:
        tally.tick()

    @client.task(Stamp, queue="default")
    async def stamp(job: Any) -> None:
        now = time.monotonic_ns()
        tally.pickup(job.args.sent, now)

    @client.task(Nap, queue="default")
    async def nap(job: Any) -> None:
        await asyncio.sleep(NAP)
        tally.tick()

    @client.task(Fail, queue="default")
    async def fail(job: Any) -> None:
        tally.tick()
        if job.args.number % 2:
            raise RuntimeError("as asked")

    @client.task(Carry, queue="default")
    async def carry(job: Any) -> None:
        tally.tick()

    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await client.start([{"name": "default", "max_workers": slots, "claimers": claimers, "claim_batch_size": batch}])
    await ended.wait()
    await client.shutdown()


if __name__ == "__main__":
    asyncio.run(work(*map(int, sys.argv[1:])))
