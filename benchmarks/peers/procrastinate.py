"""Procrastinate, with its own worker. It fetches and finishes one job at a time; only concurrency can be chosen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import TALLY, pace
from .postgres import POOL, PostgresPeer

CONCURRENCY = 20
BULK = 5_000


class Procrastinate(PostgresPeer):
    name = "procrastinate"
    title = "Procrastinate"
    module = "procrastinate"
    requirements = ("procrastinate==3.10.0", "psycopg[binary]==3.3.8", "psycopg-pool==3.3.3")
    left = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"
    share = 0.025

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`procrastinate worker -c {CONCURRENCY}`, log level warning, one process, a pool of {POOL}",
            "producer": f"`batch_defer_async` of {BULK:,} each; `defer_async`, over a pool of {POOL}",
            "job": "async def, no-op",
        }

    def create(self, place: Path) -> None:
        os.environ.setdefault(TALLY, str(place / "tally"))
        from . import procrastinate_jobs

        async def install() -> None:
            async with procrastinate_jobs.app.open_async():
                await procrastinate_jobs.app.schema_manager.apply_schema_async()

        asyncio.run(install())

    def worker(self, queues: dict[str, int]) -> list[str]:
        app = "benchmarks.peers.procrastinate_jobs.app"
        worker = ["worker", "-c", str(CONCURRENCY), "-q", ",".join(queues)]
        return [self.python, "-m", "procrastinate", "--log-level", "warning", "--app", app, *worker]

    @contextlib.contextmanager
    def producer(self) -> Iterator[ProcrastinateProducer]:
        with asyncio.Runner() as runner:
            producer = ProcrastinateProducer(runner)
            runner.run(producer.open())
            yield producer
            runner.run(producer.close())


class ProcrastinateProducer:
    def __init__(self, runner: asyncio.Runner) -> None:
        from . import procrastinate_jobs

        self._runner = runner
        self._jobs: Any = procrastinate_jobs

    async def open(self) -> None:
        await self._jobs.app.open_async()

    async def close(self) -> None:
        await self._jobs.app.close_async()

    def bulk(self, jobs: int) -> int:
        async def send() -> int:
            sent = 0
            for start in range(0, jobs, BULK):
                numbers = range(start, min(jobs, start + BULK))
                sent += len(await self._jobs.noop.batch_defer_async(*({"number": number} for number in numbers)))
            return sent

        return self._runner.run(send())

    def callers(self, callers: int, seconds: float) -> int:
        async def call() -> int:
            count = 0
            while time.monotonic() < until:
                await self._jobs.noop.defer_async(number=count)
                count += 1
            return count

        async def all_calls() -> int:
            return sum(await asyncio.gather(*(call() for _ in range(callers))))

        until = time.monotonic() + seconds
        return self._runner.run(all_calls())

    def paced(self, jobs: int, rate: float) -> int:
        async def send() -> int:
            for wait in pace.waits(jobs, rate):
                await asyncio.sleep(wait)
                await self._jobs.stamp.defer_async(sent=time.monotonic_ns())
            return jobs

        return self._runner.run(send())


peer = Procrastinate()
