"""Log lines that name their job."""

from __future__ import annotations

import io
import json
import logging

import pytest
import structlog

from treadle import App
from treadle.contrib.logs import JobFilter
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

    async with app, app.worker():
        handle = await work.enqueue()
        await handle.result("10s")
        log.info("outside")
    inside, outside = map(json.loads, lines.getvalue().splitlines())
    assert inside == {"event": "inside", "job_id": handle.id, "task": "work", "queue": "default", "attempt": 1}
    assert outside == {"event": "outside"}
