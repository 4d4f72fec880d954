"""The jobs of the RQ peer, where its worker imports them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ..tally import Tally
from . import TALLY

tally = Tally(Path(os.environ[TALLY]))


def noop(number: int) -> None:
    tally.tick()


def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


def fail(number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


def carry(number: int, pad: str) -> None:
    tally.tick()
