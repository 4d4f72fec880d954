"""Chancy, with its own Worker: jobs as coroutines, eager polling, and a tenth of a second between its finishes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .postgres import POOL, URL, PostgresPeer
from .producing import Arguments, AsyncProducer

OUTGOING = 0.1
BULK = 1_000  # its default


class Chancy(PostgresPeer):
    name = "chancy"
    title = "Chancy"
    module = "chancy"
    requirements = ("chancy[cli]==0.26.0", "psycopg[binary]==3.3.8")
    left = "select count(*) from chancy_jobs where state in ('pending', 'running', 'retrying')"
    share = 0.1

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`Worker`, AsyncExecutor, concurrency SLOTS, eager_polling, send_outgoing_interval {OUTGOING:g}"
            ", no plugins, one process",
            "producer": f"`push_many` in its batches of {BULK:,}; `push`, over a pool of {POOL}",
            "job": "async def, no-op",
        }

    def create(self, place: Path) -> None:
        from chancy import Chancy as Library

        async def install() -> None:
            async with Library(os.environ[URL], no_default_plugins=True) as chancy:
                await chancy.migrate()

        asyncio.run(install())

    def worker(self, queues: dict[str, int]) -> list[str]:
        return [self.python, "-m", "benchmarks.peers.chancy_jobs", str(queues["default"]), str(OUTGOING)]

    @contextlib.contextmanager
    def producer(self) -> Iterator[ChancyProducer]:
        with asyncio.Runner() as runner, ChancyProducer(runner) as producer:
            yield producer


class ChancyProducer(AsyncProducer):
    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        from . import chancy_jobs

        self._jobs: Any = chancy_jobs

    async def open(self) -> None:
        self._chancy = self._jobs.connect(POOL)
        await self._chancy.__aenter__()

    async def close(self) -> None:
        await self._chancy.__aexit__(None, None, None)

    async def one(self, task: str, arguments: Arguments) -> None:
        await self._chancy.push(getattr(self._jobs, task).job.with_kwargs(**arguments))

    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        job = getattr(self._jobs, task).job
        pushed = self._chancy.push_many([job.with_kwargs(**each) for each in every], batch_size=BULK)
        return sum([len(batch) async for batch in pushed])


peer = Chancy()
