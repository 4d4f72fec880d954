"""The jobs of the Huey peer, where `huey_consumer` finds them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from huey import SqliteHuey

from ..tally import Tally
from . import TALLY

huey = SqliteHuey("bench", filename=os.environ["BENCH_HUEY_FILE"], fsync=True, journal_mode="wal")
tally = Tally(Path(os.environ[TALLY]))


@huey.task()
def noop(number: int) -> None:
    tally.tick()


@huey.task()
def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)
