"""SAQ on Redis, with its own command."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from .producing import Arguments, AsyncProducer
from .redis import RedisPeer

SETTINGS = "benchmarks.peers.saq_jobs.settings"
CONCURRENCY = 100  # every slot of it is a loop that asks for one job
TOGETHER = 200


class SAQRedis(RedisPeer):
    name = "saq-redis"
    title = "SAQ on Redis"
    module = "saq"
    requirements = (
        "saq[hiredis]==0.26.4",
        "redis==8.1.0",
        "hiredis==3.5.0",
        "uvloop==0.23.0",
        "typing-extensions==4.16.0",
    )
    left = (("zcard", "saq:default:incomplete"), ("llen", "saq:default:active"))
    share = 0.1

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`saq settings`, concurrency {CONCURRENCY}, jobs kept for no time (ttl=-1), log level warning, "
            "uvloop, one process",
            "producer": f"`enqueue`, {TOGETHER} at once, as it has no call for many",
            "job": "async def, no-op",
        }

    def worker(self, queues: dict[str, int]) -> list[str]:
        return self.slotted(CONCURRENCY)

    def slotted(self, slots: int) -> list[str]:
        return ["env", f"BENCH_SLOTS={slots}", self.command("saq"), SETTINGS]

    @contextlib.contextmanager
    def producer(self) -> Iterator[SAQProducer]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, SAQProducer(runner) as producer:
            yield producer


class SAQProducer(AsyncProducer):
    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        from . import saq_jobs

        self._queue: Any = saq_jobs.queue

    async def open(self) -> None:
        await self._queue.connect()

    async def close(self) -> None:
        await self._queue.disconnect()

    async def one(self, task: str, arguments: Arguments) -> None:
        await self._queue.enqueue(task, ttl=-1, **arguments)

    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        sent = 0
        while batch := list(itertools.islice(every, TOGETHER)):
            await asyncio.gather(*(self.one(task, each) for each in batch))
            sent += len(batch)
        return sent


peer = SAQRedis()
