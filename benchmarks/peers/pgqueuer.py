"""PgQueuer, with its own worker set for throughput. Its default durability: every table is logged."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .postgres import POOL, URL, PostgresPeer
from .producing import Arguments, AsyncProducer

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
            "producer": f"`enqueue` of lists; of one job over one connection, with many callers over a pool of {POOL}",
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

    def slotted(self, slots: int) -> list[str]:
        """`max_concurrent_tasks`, which must be at least two batches."""
        return [self.python, "-m", "benchmarks.peers.pgqueuer_jobs", str(min(BATCH, slots // 2)), str(slots)]

    @contextlib.contextmanager
    def producer(self) -> Iterator[PgQueuerProducer]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, PgQueuerProducer(runner) as producer:
            yield producer


class PgQueuerProducer(AsyncProducer):
    async def open(self) -> None:
        import asyncpg
        from pgqueuer.queries import Queries

        self._connection = await asyncpg.connect(os.environ[URL])
        self._pool: Any = await asyncpg.create_pool(os.environ[URL], min_size=POOL, max_size=POOL)
        self._one = Queries.from_asyncpg_connection(self._connection)
        self._many = Queries.from_asyncpg_pool(self._pool)
        self.alone()

    async def close(self) -> None:
        await self._connection.close()
        await self._pool.close()

    def alone(self) -> None:
        self._queries = self._one

    def together(self) -> None:
        self._queries = self._many

    async def one(self, task: str, arguments: Arguments) -> None:
        await self._queries.enqueue(task, _encode(arguments))

    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        payloads = [_encode(each) for each in every]
        return len(await self._one.enqueue([task] * len(payloads), payloads, [0] * len(payloads)))


def _encode(arguments: Arguments) -> bytes:
    """It carries bytes: what a user would write, and the quicker way for one number."""
    if len(arguments) == 1:
        ((name, number),) = arguments.items()
        return b'{"%b":%d}' % (name.encode(), number)
    return json.dumps(arguments).encode()


peer = PgQueuerPeer()
