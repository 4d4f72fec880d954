"""The jobs of the Celery peer, where its command finds them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

from ..tally import Tally
from . import TALLY
from .producing import NAP
from .redis import URL

app = Celery("bench", broker=os.environ[URL])
app.conf.update(
    task_default_queue="default",
    task_ignore_result=True,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_pool_limit=64,
)
tally = Tally(Path(os.environ[TALLY]))


@app.task(name="noop")
def noop(number: int) -> None:
    tally.tick()


@app.task(name="stamp")
def stamp(sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


@app.task(name="nap")
def nap(number: int) -> None:
    time.sleep(NAP)
    tally.tick()


@app.task(name="fail")
def fail(number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


@app.task(name="carry")
def carry(number: int, pad: str) -> None:
    tally.tick()
