"""Chancy, with its own Worker. Fast: beats and recovery every second."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys

from chancy import Chancy, Queue, Worker, job
from chancy.plugins.leadership import Leadership
from chancy.plugins.recovery import Recovery

from . import marks


@job()
async def act(*, kind: str, number: int) -> None:
    await marks.act(kind, number)


async def main(verb: str, *rest: str) -> None:
    plugins = [Leadership(poll_interval=1, timeout=3), Recovery(poll_interval=1)] if marks.is_fast() else []
    async with Chancy(os.environ["BENCH_PG_URL"], plugins=plugins) as chancy:
        if verb == "install":
            await chancy.migrate()
            await chancy.declare(Queue("default", concurrency=4, executor=Chancy.Executor.Async))
        elif verb == "enqueue":
            # Here this module is __main__, and a job would be named so.
            jobs_chancy = importlib.import_module("benchmarks.crash.jobs_chancy")

            for number in range(int(rest[1])):
                await chancy.push(jobs_chancy.act.job.with_kwargs(kind=rest[0], number=number))
        else:
            quick = {"heartbeat_poll_interval": 1, "heartbeat_timeout": 3} if marks.is_fast() else {}
            async with Worker(chancy, **quick) as worker:
                await worker.wait_for_shutdown()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
