"""PgQueuer, with its own worker set for throughput. Its default durability: every table is logged."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import pace
from .postgres import POOL, URL, PostgresPeer

# Measured here beside other load, jobs/s with one connection | with a pool of 4, which lets finishes run beside the
# next dequeue: batch 10 (the default) 4,200; 200: 12,900–14,800 | 12,600–15,600; 500: 8,900–13,400 | 13,300–16,700;
# 1,000: 13,000–13,400 | 13,700–16,600.
BATCH = 500


class PgQueuerPeer(PostgresPeer):
    name = "pgqueuer"
    title = "PgQueuer"
    module = "pgqueuer"
    requirements = ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0")
    left = "select count(*) from pgqueuer"

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`pgqueuer.run(…, batch_size={BATCH})`, one process, uvloop, a pool of 4",
            "producer": f"`enqueue` of lists; of one job over one connection, with 100 callers over a pool of {POOL}",
            "job": "async def, no-op",
        }

    def create(self, place: Path) -> None:
        import asyncpg
        from pgqueuer.queries import Queries

        async def install() -> None:
            connection = await asyncpg.connect(os.environ[URL])
            await Queries.from_asyncpg_connection(connection).install()
            await connection.close()

        asyncio.run(install())

    def worker(self, queues: dict[str, int]) -> list[str]:
        # Not by its command: with the typer that it asks for, `pgq run` of 1.6.0 fails in reading its own log level.
        return [self.python, "-m", "benchmarks.peers.pgqueuer_jobs", str(BATCH)]

    @contextlib.contextmanager
    def producer(self) -> Iterator[PgQueuerProducer]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            producer = PgQueuerProducer(runner)
            runner.run(producer.open())
            yield producer
            runner.run(producer.close())


class PgQueuerProducer:
    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    async def open(self) -> None:
        import asyncpg
        from pgqueuer.queries import Queries

        self._connection = await asyncpg.connect(os.environ[URL])
        self._pool: Any = await asyncpg.create_pool(os.environ[URL], min_size=POOL, max_size=POOL)
        self._one = Queries.from_asyncpg_connection(self._connection)
        self._many = Queries.from_asyncpg_pool(self._pool)

    async def close(self) -> None:
        await self._connection.close()
        await self._pool.close()

    def bulk(self, jobs: int) -> int:
        async def send() -> int:
            payloads = [b'{"number":%d}' % number for number in range(jobs)]
            return len(await self._one.enqueue(["noop"] * jobs, payloads, [0] * jobs))

        return self._runner.run(send())

    def callers(self, callers: int, seconds: float) -> int:
        async def call() -> int:
            count = 0
            while time.monotonic() < until:
                await queries.enqueue("noop", b'{"number":%d}' % count)
                count += 1
            return count

        async def all_calls() -> int:
            return sum(await asyncio.gather(*(call() for _ in range(callers))))

        queries = self._one if callers == 1 else self._many
        until = time.monotonic() + seconds
        return self._runner.run(all_calls())

    def paced(self, jobs: int, rate: float) -> int:
        async def send() -> int:
            for wait in pace.waits(jobs, rate):
                await asyncio.sleep(wait)
                await self._one.enqueue("stamp", b"%d" % time.monotonic_ns())
            return jobs

        return self._runner.run(send())


peer = PgQueuerPeer()
