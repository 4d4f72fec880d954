"""The jobs of the Huey peers, where `huey_consumer` finds them: on the file that is named, else on Redis."""

from __future__ import annotations

import os
import time
from pathlib import Path

from huey import RedisHuey, SqliteHuey

from ..tally import Tally
from . import TALLY
from .producing import NAP

huey = (
    SqliteHuey("bench", filename=os.environ["BENCH_HUEY_FILE"], fsync=True, journal_mode="wal")
    if "BENCH_HUEY_FILE" in os.environ
    else RedisHuey("bench", url=os.environ["BENCH_REDIS_URL"])
)
tally = Tally(Path(os.environ[TALLY]))


@huey.task()
def noop(number: int) -> None:
    tally.tick()


@huey.task()
def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


@huey.task()
def nap(number: int) -> None:
    time.sleep(NAP)
    tally.tick()


@huey.task()
def fail(number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


@huey.task()
def carry(number: int, pad: str) -> None:
    tally.tick()
