"""SAQ on PostgreSQL, as its command finds it. Fast: heartbeats, which the job must send, and a sweep a second."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from saq import Queue

from . import marks

queue = Queue.from_url(os.environ["BENCH_PG_URL"])


async def act(ctx: Any, *, kind: str, number: int) -> None:
    await marks.act(kind, number, ctx["job"].update if marks.is_fast() else None)


settings: dict[str, Any] = {"queue": queue, "functions": [act], "concurrency": 4}
if marks.is_fast():
    settings["timers"] = {"sweep": 1, "schedule": 1, "worker_info": 1, "abort": 1}


async def main(verb: str, *rest: str) -> None:
    await queue.connect()
    if verb == "enqueue":
        # The default timeout of 10 s would end the jobs themselves.
        own: dict[str, Any] = {"timeout": 300}
        own |= {"heartbeat": 3, "retries": 10} if marks.is_fast() else {}
        for number in range(int(rest[1])):
            await queue.enqueue("act", kind=rest[0], number=number, **own)
    await queue.disconnect()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
