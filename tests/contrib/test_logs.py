"""Log lines that name their job."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest
import structlog

from treadle import App, Context, JobFailed
from treadle.config import Timing
from treadle.contrib.logs import JobFilter, job_fields
from treadle.contrib.structlog import add_job

pytestmark = pytest.mark.anyio


async def test_lines_of_any_library_name_the_job_they_were_written_in() -> None:
    app, lines = App("memory://"), io.StringIO()
    handler = logging.StreamHandler(lines)
    handler.addFilter(JobFilter())
    handler.setFormatter(logging.Formatter("%(message)s job=%(job_id)s task=%(task)s attempt=%(attempt)s"))
    library = logging.getLogger("somebody.elses")
    library.addHandler(handler)
    library.setLevel(logging.INFO)

    @app.task(name="here")
    async def here() -> None:
        library.info("async")

    @app.task(name="there")
    def there() -> None:
        library.info("thread", extra={"task": "own"})

    try:
        async with app, app.worker():
            ids = [(await task.enqueue()).id for task in (here, there)]
            for job_id in ids:
                await app.client.wait_for_end(job_id, 10)
            library.info("outside")
    finally:
        library.removeHandler(handler)
    assert sorted(lines.getvalue().splitlines()) == sorted(
        [
            f"async job={ids[0]} task=here attempt=1",
            f"thread job={ids[1]} task=own attempt=1",
            "outside job=None task=None attempt=None",
        ]
    )


async def test_structlog_sees_the_same() -> None:
    app, lines = App("memory://"), io.StringIO()
    log = structlog.wrap_logger(structlog.PrintLogger(lines), processors=[add_job, structlog.processors.JSONRenderer()])

    @app.task(name="work")
    async def work() -> None:
        log.info("inside")

    async with app, app.worker(label="here"):
        handle = await work.enqueue()
        await handle.result("10s")
        log.info("outside")
    inside, outside = map(json.loads, lines.getvalue().splitlines())
    own = {"job_id": handle.id, "task": "work", "queue": "default", "attempt": 1, "slot": "default-1-here"}
    assert inside == {"event": "inside", **own}
    assert outside == {"event": "outside"}


async def test_the_slot_is_known_from_the_first_moment() -> None:
    """The row gets the slot's name with a beat, which comes later: ctx, hooks and log fields ask the run itself."""
    app = App("memory://", timing=Timing(beat=3600.0, lease=7200.0))
    seen: dict[str, Any] = {}
    app.on_started(lambda job: seen.__setitem__("started", job.slot))
    app.on_succeeded(lambda job: seen.__setitem__("succeeded", job.slot))
    app.on_failed(lambda job: seen.__setitem__("failed", job.slot))

    @app.task(name="work", queue="mail")
    def work(ctx: Context) -> None:
        seen["ctx"], seen["fields"] = ctx.slot, job_fields()["slot"]
        seen["log"] = dict(ctx.log.extra or {})["slot"]

    @app.task(name="fails", queue="mail", retry=1)
    async def fails() -> None:
        raise ValueError("no")

    async with app, app.worker({"mail": 1}, label="here"):
        handle = await work.enqueue()
        await handle.result("60s")
        with pytest.raises(JobFailed):
            await (await fails.enqueue()).result("60s")
        assert (await handle.status()).slot is None  # no write for it
    assert job_fields() == {}
    assert seen == dict.fromkeys(("started", "succeeded", "failed", "ctx", "fields", "log"), "mail-1-here")
