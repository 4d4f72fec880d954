"""The jobs of the SAQ peers, where its command finds them: on PostgreSQL if its address is given, else on Redis."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from pathlib import Path
from typing import Any

import uvloop
from saq import Queue

from ..tally import Tally
from . import TALLY
from .producing import NAP

logging.basicConfig(level=logging.WARNING)
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
CONNECTIONS = 4096  # every slot waits on one of its own, and redis-py has a hundred unless told
_pool = int(os.environ.get("BENCH_POOL", "16"))
queue: Any
if "BENCH_PG_URL" in os.environ:
    queue = Queue.from_url(os.environ["BENCH_PG_URL"], min_size=4, max_size=_pool)
else:
    # Here, because where SAQ has PostgreSQL there is no Redis client.
    from redis.asyncio import from_url
    from saq.queue.redis import RedisQueue

    queue = RedisQueue(from_url(os.environ["BENCH_REDIS_URL"], max_connections=CONNECTIONS))
tally = Tally(Path(os.environ[TALLY]))


async def noop(ctx: Any, *, number: int) -> None:
    tally.tick()


async def stamp(ctx: Any, *, sent: int) -> None:
    now = time.monotonic_ns()
    tally.pickup(sent, now)


async def nap(ctx: Any, *, number: int) -> None:
    await asyncio.sleep(NAP)
    tally.tick()


async def fail(ctx: Any, *, number: int) -> None:
    tally.tick()
    if number % 2:
        raise RuntimeError("as asked")


async def carry(ctx: Any, *, number: int, pad: str) -> None:
    tally.tick()


settings: dict[str, Any] = {
    "queue": queue,
    "functions": [noop, stamp, nap, fail, carry],
    "concurrency": int(os.environ.get("BENCH_SLOTS", "10")),
}
