"""awa-pg: a Rust engine with Python handlers, on its newer storage (`queue_storage`), the faster one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import pace
from .postgres import URL, PostgresPeer

CLAIMERS = 2
BATCH = 512


class Awa(PostgresPeer):
    name = "awa-pg"
    title = "awa-pg"
    module = "awa"
    requirements = ("awa-pg==0.6.9",)
    left = "select count(*) from awa.jobs where state not in ('completed', 'failed', 'cancelled')"
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
        with asyncio.Runner() as runner:
            producer = AwaProducer(runner)
            runner.run(producer.open())
            yield producer
            runner.run(producer.close())


class AwaProducer:
    def __init__(self, runner: asyncio.Runner) -> None:
        import awa

        from . import awa_jobs

        self._runner = runner
        self._jobs = awa_jobs
        self._make: Any = awa.AsyncClient

    async def open(self) -> None:
        self._client = self._make(os.environ[URL])

    async def close(self) -> None:
        await self._client.close()

    def bulk(self, jobs: int) -> int:
        async def send() -> int:
            calls = [self._jobs.Noop(number) for number in range(jobs)]
            return int(await self._client.enqueue_many_copy(calls, queue="default"))

        return self._runner.run(send())

    def callers(self, callers: int, seconds: float) -> int:
        async def call() -> int:
            count = 0
            while time.monotonic() < until:
                await self._client.insert(self._jobs.Noop(count), queue="default")
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
                await self._client.insert(self._jobs.Stamp(time.monotonic_ns()), queue="default")
            return jobs

        return self._runner.run(send())


peer = Awa()
