"""The jobs of the Treadle peer, where `treadle worker -A` finds them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from treadle import App

from ..tally import Tally
from . import TALLY
from .producing import NAP

app = App(os.environ["TREADLE_URL"])
tally = Tally(Path(os.environ[TALLY]))


@app.task(name="noop")
async def noop(number: int) -> None:
    tally.tick()


@app.task(name="stamp")
async def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


@app.task(name="nap")
async def nap(number: int) -> None:
    await asyncio.sleep(NAP)
    tally.tick()


@app.task(name="fail", retry=1)
async def fail(number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


@app.task(name="carry")
async def carry(number: int, pad: str) -> None:
    tally.tick()
