"""The jobs of the Procrastinate peer, where `procrastinate worker` finds them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from procrastinate import App, PsycopgConnector

from ..tally import Tally
from . import TALLY
from .postgres import POOL, URL

app = App(connector=PsycopgConnector(conninfo=os.environ[URL], min_size=POOL, max_size=POOL))
tally = Tally(Path(os.environ[TALLY]))


@app.task(name="noop", queue="default")
async def noop(number: int) -> None:
    tally.tick()


@app.task(name="stamp", queue="default")
async def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)
