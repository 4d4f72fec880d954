"""arq, with its own command. It polls: the delay between two looks is a hundredth of a second instead of half a one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

from .producing import Arguments, AsyncProducer
from .redis import URL, RedisPeer

POLL = 0.01
TOGETHER = 200


class Arq(RedisPeer):
    name = "arq"
    title = "arq"
    module = "arq"
    requirements = ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0", "uvloop==0.23.0")
    left = (("zcard", "arq:queue"),)
    share = 0.05

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`arq WorkerSettings`, max_jobs SLOTS, poll_delay {POLL:g}, keep_result 0, log_results off, "
            "log level warning, uvloop, one process",
            "producer": f"`enqueue_job`, {TOGETHER} at once, as it has no call for many",
            "job": "async def, no-op",
        }

    def worker(self, queues: dict[str, int]) -> list[str]:
        return [self.python, "-m", "benchmarks.peers.arq_jobs", str(queues["default"]), str(POLL)]

    @contextlib.contextmanager
    def producer(self) -> Iterator[ArqProducer]:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, ArqProducer(runner) as producer:
            yield producer


class ArqProducer(AsyncProducer):
    async def open(self) -> None:
        from arq import create_pool
        from arq.connections import RedisSettings

        self._pool: Any = await create_pool(RedisSettings.from_dsn(os.environ[URL]))

    async def close(self) -> None:
        await self._pool.aclose()

    async def one(self, task: str, arguments: Arguments) -> None:
        await self._pool.enqueue_job(task, **arguments)

    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        sent = 0
        while batch := list(itertools.islice(every, TOGETHER)):
            await asyncio.gather(*(self.one(task, each) for each in batch))
            sent += len(batch)
        return sent


peer = Arq()
