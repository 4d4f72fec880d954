"""Procrastinate, with its own worker. It fetches and finishes one job at a time; only concurrency can be chosen."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import TALLY
from .postgres import POOL, PostgresPeer
from .producing import Arguments, AsyncProducer

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
        return self.slotted(CONCURRENCY)

    def slotted(self, slots: int) -> list[str]:
        app = "benchmarks.peers.procrastinate_jobs.app"
        worker = ["worker", "-c", str(slots), "-q", "default"]
        return [self.python, "-m", "procrastinate", "--log-level", "warning", "--app", app, *worker]

    @contextlib.contextmanager
    def producer(self) -> Iterator[ProcrastinateProducer]:
        with asyncio.Runner() as runner, ProcrastinateProducer(runner) as producer:
            yield producer


class ProcrastinateProducer(AsyncProducer):
    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        from . import procrastinate_jobs

        self._jobs: Any = procrastinate_jobs

    async def open(self) -> None:
        await self._jobs.app.open_async()

    async def close(self) -> None:
        await self._jobs.app.close_async()

    async def one(self, task: str, arguments: Arguments) -> None:
        await getattr(self._jobs, task).defer_async(**arguments)

    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        sent = 0
        while batch := list(itertools.islice(every, BULK)):
            sent += len(await getattr(self._jobs, task).batch_defer_async(*batch))
        return sent


peer = Procrastinate()
