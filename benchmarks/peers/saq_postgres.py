"""SAQ on PostgreSQL, with its own command."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from .postgres import POOL, PostgresPeer
from .saq_redis import CONCURRENCY, SETTINGS, TOGETHER, SAQProducer

CONNECTIONS = 20  # of a worker's pool, which its own documentation has as the most by default


class SAQPostgres(PostgresPeer):
    name = "saq-postgres"
    title = "SAQ on PostgreSQL"
    module = "saq"
    requirements = ("saq[postgres]==0.26.4", "psycopg[binary]==3.3.8", "uvloop==0.23.0")
    left = "select count(*) from saq_jobs where status in ('new', 'queued', 'active', 'aborting')"
    share = 0.03

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`saq settings`, concurrency {CONCURRENCY}, a pool of {CONNECTIONS}, jobs not kept (ttl=-1)"
            ", uvloop, log level warning, one process",
            "producer": f"`enqueue`, {TOGETHER} at once, as it has no call for many; over a pool of {POOL}",
            "job": "async def, no-op",
        }

    def create(self, place: Path) -> None:
        os.environ.setdefault("BENCH_TALLY", str(place / "tally"))
        from . import saq_jobs

        async def install() -> None:
            await saq_jobs.queue.connect()
            await saq_jobs.queue.disconnect()

        asyncio.run(install())

    def worker(self, queues: dict[str, int]) -> list[str]:
        return self.slotted(CONCURRENCY)

    def slotted(self, slots: int) -> list[str]:
        command = [str(Path(self.python).with_name("saq")), SETTINGS]
        return ["env", f"BENCH_SLOTS={slots}", f"BENCH_POOL={CONNECTIONS}", *command]

    @contextlib.contextmanager
    def producer(self) -> Iterator[SAQProducer]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, SAQProducer(runner) as producer:
            yield producer


peer = SAQPostgres()
