"""PgQueuer: `pgqueuer.run`, which is what its command calls."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pgqueuer
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from . import marks

URL = os.environ["BENCH_PG_URL"]


@asynccontextmanager
async def worker() -> AsyncIterator[PgQueuer]:
    pool = await asyncpg.create_pool(URL, min_size=2, max_size=4)
    queuer = PgQueuer.from_asyncpg_pool(pool)

    @queuer.entrypoint("act")
    async def act(job: Job) -> None:
        kind, number = (job.payload or b"").decode().split()
        await marks.act(kind, int(number))

    try:
        yield queuer
    finally:
        await pool.close()


async def main(verb: str, *rest: str) -> None:
    connection = await asyncpg.connect(URL)
    queries = Queries.from_asyncpg_connection(connection)
    if verb == "install":
        await queries.install()
    else:
        payloads = [f"{rest[0]} {number}".encode() for number in range(int(rest[1]))]
        await queries.enqueue(["act"] * len(payloads), payloads, [0] * len(payloads))
    await connection.close()


if __name__ == "__main__":
    if sys.argv[1] == "work":
        quick = {"heartbeat_timeout": dt.timedelta(seconds=3), "dequeue_timeout": dt.timedelta(seconds=1)}
        asyncio.run(pgqueuer.run(worker, batch_size=2, max_concurrent_tasks=4, **(quick if marks.is_fast() else {})))
    else:
        asyncio.run(main(*sys.argv[1:]))
