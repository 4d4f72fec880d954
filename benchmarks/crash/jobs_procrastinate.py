"""Procrastinate, as `procrastinate worker` finds it. Fast: its recipe for stalled jobs, every 5 s."""

from __future__ import annotations

import asyncio
import os
import sys

from procrastinate import App, PsycopgConnector

from . import marks

quick = {"update_heartbeat_interval": 1.0, "stalled_worker_timeout": 30.0} if marks.is_fast() else {}
app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_PG_URL"], max_size=8), worker_defaults=quick)


@app.task(name="act", queue="default", retry=3)
async def act(kind: str, number: int) -> None:
    await marks.act(kind, number)


if marks.is_fast():

    @app.periodic(cron="* * * * * */5")
    @app.task(name="retry_stalled_jobs", queue="rescue", queueing_lock="retry_stalled_jobs")
    async def retry_stalled_jobs(timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=3):
            await app.job_manager.retry_job(job)


async def main(verb: str, *rest: str) -> None:
    async with app.open_async():
        if verb == "install":
            await app.schema_manager.apply_schema_async()
        else:
            await act.batch_defer_async(*({"kind": rest[0], "number": number} for number in range(int(rest[1]))))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
