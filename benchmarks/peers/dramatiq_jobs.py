"""The jobs of the Dramatiq peer, where its command finds them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from ..tally import Tally
from . import TALLY
from .producing import NAP
from .redis import URL

dramatiq.set_broker(RedisBroker(url=os.environ[URL]))
tally = Tally(Path(os.environ[TALLY]))


@dramatiq.actor
def noop(number: int) -> None:
    tally.tick()


@dramatiq.actor
def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


@dramatiq.actor
def nap(number: int) -> None:
    time.sleep(NAP)
    tally.tick()


@dramatiq.actor(max_retries=0)
def fail(number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


@dramatiq.actor
def carry(number: int, pad: str) -> None:
    tally.tick()
