"""The jobs and the worker of the PgQueuer peer: `pgqueuer.run`, which is what its command `pgq run` calls."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pgqueuer
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.models import Job

from ..tally import Tally
from . import TALLY
from .postgres import URL
from .producing import NAP

tally = Tally(Path(os.environ[TALLY]))


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    pool = await asyncpg.create_pool(os.environ[URL], min_size=4, max_size=4)
    queuer = PgQueuer.from_asyncpg_pool(pool)

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        tally.tick()

    @queuer.entrypoint("stamp")
    async def stamp(job: Job) -> None:
        now = time.monotonic_ns()
        assert job.payload is not None
        tally.pickup(json.loads(job.payload)["sent"], now)

    @queuer.entrypoint("nap")
    async def nap(job: Job) -> None:
        await asyncio.sleep(NAP)
        tally.tick()

    @queuer.entrypoint("fail")
    async def fail(job: Job) -> None:
        tally.tick()
        assert job.payload is not None
        if json.loads(job.payload)["number"] % 2:
            raise RuntimeError("as asked")

    @queuer.entrypoint("carry")
    async def carry(job: Job) -> None:
        assert job.payload is not None
        json.loads(job.payload)
        tally.tick()

    try:
        yield queuer
    finally:
        await pool.close()


if __name__ == "__main__":
    most = int(sys.argv[2]) if len(sys.argv) > 2 else None
    uvloop.run(pgqueuer.run(worker, batch_size=int(sys.argv[1]), max_concurrent_tasks=most))
