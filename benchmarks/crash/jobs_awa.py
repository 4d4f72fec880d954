"""awa-pg: `start` is called by the user's program."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
from typing import Any

import awa

from . import marks

URL = os.environ["BENCH_PG_URL"].replace("@/", "@localhost/")


@dataclasses.dataclass
class Act:
    kind: str
    number: int


async def work() -> None:
    client = awa.AsyncClient(URL)

    @client.task(Act, queue="default")
    async def act(job: Any) -> None:
        await marks.act(job.args.kind, job.args.number)

    quick = {
        "heartbeat_interval_ms": 1000,
        "heartbeat_staleness_ms": 3000,
        "heartbeat_rescue_interval_ms": 1000,
        "leader_election_interval_ms": 1000,
    }
    await client.start([{"name": "default", "max_workers": 4}], **(quick if marks.is_fast() else {}))
    await asyncio.Event().wait()


async def main(verb: str, *rest: str) -> None:
    client = awa.AsyncClient(URL)
    if verb == "install":
        await client.migrate()
        await client.install_queue_storage(schema="awa")
    else:
        for number in range(int(rest[1])):
            await client.insert(Act(rest[0], number), queue="default")
    await client.close()


if __name__ == "__main__":
    asyncio.run(work() if sys.argv[1] == "work" else main(*sys.argv[1:]))
