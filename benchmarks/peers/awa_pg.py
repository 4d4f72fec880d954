"""awa-pg: a Rust engine with Python handlers, on its newer storage (`queue_storage`), the faster one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .postgres import URL, PostgresPeer
from .producing import Arguments, AsyncProducer

CLAIMERS = 2
BATCH = 512


class Awa(PostgresPeer):
    name = "awa-pg"
    title = "awa-pg"
    module = "awa"
    requirements = ("awa-pg==0.6.9",)
    # A count over its view of jobs takes minutes with some ten thousand of them, and would be all that is measured. So
    # nobody waits for its last finishes: a few, in its favour.
    left = "select 0"
    share = 0.25

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`AsyncClient.start`, max_workers SLOTS, {CLAIMERS} claimers, batches of {BATCH}, a process",
            "producer": "`enqueue_many_copy`; `insert`, over its own pool of 10",
            "job": "async def, no-op",
        }

    def environ(self, place: Path) -> dict[str, str]:
        own = super().environ(place)
        return own | {URL: own[URL].replace("@/", "@localhost/")}  # its driver wants a host, and then the socket wins

    def create(self, place: Path) -> None:
        import awa

        async def install() -> None:
            client = awa.AsyncClient(os.environ[URL])
            await client.migrate()
            await client.install_queue_storage(schema="awa")
            await client.close()

        asyncio.run(install())

    def worker(self, queues: dict[str, int]) -> list[str]:
        command = [self.python, "-m", "benchmarks.peers.awa_jobs", str(queues["default"])]
        return [*command, str(CLAIMERS), str(BATCH)]

    @contextlib.contextmanager
    def producer(self) -> Iterator[AwaProducer]:
        with asyncio.Runner() as runner, AwaProducer(runner) as producer:
            yield producer


class AwaProducer(AsyncProducer):
    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        import awa

        from . import awa_jobs

        self._tasks = awa_jobs.TASKS
        self._make: Any = awa.AsyncClient

    async def open(self) -> None:
        self._client = self._make(os.environ[URL])

    async def close(self) -> None:
        await self._client.close()

    async def one(self, task: str, arguments: Arguments) -> None:
        await self._client.insert(self._tasks[task](**arguments), queue="default")

    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        make = self._tasks[task]
        tries = {"max_attempts": 1} if task == "fail" else {}
        return int(await self._client.enqueue_many_copy([make(**each) for each in every], queue="default", **tries))


peer = Awa()
