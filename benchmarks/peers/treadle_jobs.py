"""The jobs of the Treadle peer, where `treadle worker -A` finds them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from treadle import App

from ..tally import Tally
from . import TALLY

app = App(os.environ["TREADLE_URL"])
tally = Tally(Path(os.environ[TALLY]))


@app.task(name="noop")
async def noop(number: int) -> None:
    tally.tick()


@app.task(name="stamp")
async def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)
