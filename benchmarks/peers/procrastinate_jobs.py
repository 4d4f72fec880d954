"""The jobs of the Procrastinate peer, where `procrastinate worker` finds them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from procrastinate import App, PsycopgConnector

from ..tally import Tally
from . import TALLY
from .postgres import POOL, URL
from .producing import NAP

app = App(connector=PsycopgConnector(conninfo=os.environ[URL], min_size=POOL, max_size=POOL))
tally = Tally(Path(os.environ[TALLY]))


@app.task(name="noop", queue="default")
async def noop(number: int) -> None:
    tally.tick()


@app.task(name="stamp", queue="default")
async def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


@app.task(name="nap", queue="default")
async def nap(number: int) -> None:
    await asyncio.sleep(NAP)
    tally.tick()


@app.task(name="fail", queue="default")
async def fail(number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


@app.task(name="carry", queue="default")
async def carry(number: int, pad: str) -> None:
    tally.tick()
