"""A result that cannot be stored: the job has succeeded, and whoever asks for its result, or looks at it, is told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from treadle import App, ResultNotKept
from treadle.testing.kit import Jobs
from treadle.web import Access, Dashboard

from .web.test_streams import Reader
from .web.world import client

pytestmark = pytest.mark.anyio

app = App("sqlite:///never-made.db")


class DataFrame:
    """As pandas has one: nothing that JSON knows."""


RESULTS: dict[str, Any] = {"set": {3, 1}, "frame": DataFrame(), "large": "x" * 3_000_000}


@app.task(name="in_thread")
def in_thread(what: str) -> Any:
    return RESULTS[what]


@app.task(name="on_loop")
async def on_loop(what: str) -> Any:
    return RESULTS[what]


@app.task(name="nothing")
async def nothing() -> None: ...


@app.task(name="batch", batch=2, within="1s")
async def batch(items: list[str]) -> list[Any]:
    return [RESULTS.get(item, item) for item in items]


@pytest.mark.parametrize("task", [in_thread, on_loop], ids=["thread", "loop"])
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("set", "the type set is not JSON; give a sorted list"),
        ("frame", "the type DataFrame is not JSON"),
        ("large", "more than 1,048,576 bytes"),
    ],
)
async def test_a_result_that_is_not_kept_is_an_error_of_whoever_asks_for_it(
    jobs: Jobs, task: Any, what: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """`result()` answered None, as for a task that returns nothing, and no line of a log said otherwise."""
    handle = await task.enqueue(what)
    await jobs.drain()
    with pytest.raises(ResultNotKept, match=reason) as caught:
        await handle.result()
    assert reason in caught.value.reason
    assert handle.id in str(caught.value) and task.name in str(caught.value)
    job = await handle.status()
    assert (job.state, job.attempt, job.result) == ("succeeded", 1, None)
    assert job.warning is not None and reason in job.warning
    (line,) = [each for each in caplog.records if each.name == "treadle.jobs" and each.levelno == logging.WARNING]
    assert all(word in line.getMessage() for word in (task.name, handle.id, reason))


async def test_a_task_that_returns_nothing_says_nothing(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    handle = await nothing.enqueue()
    await jobs.drain()
    assert await handle.result() is None
    assert (await handle.status()).warning is None
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_in_a_batch_it_concerns_its_own_job_alone(jobs: Jobs) -> None:
    bad, good = await batch.enqueue("set"), await batch.enqueue("plain")
    await jobs.drain()
    assert await good.result() == "plain"
    with pytest.raises(ResultNotKept):
        await bad.result()


def test_without_a_loop_it_is_the_same_error(jobs: Jobs) -> None:
    handle = in_thread.enqueue_sync("set")
    jobs.drain_sync()
    with pytest.raises(ResultNotKept):
        handle.result_sync()


async def test_the_page_and_the_api_show_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The page showed `null` under Result. The log of a worker without hooks, which settles its finishes all at once,
    says it too."""
    app = App(f"sqlite:///{tmp_path}/app.db")

    @app.task(name="unkept")
    async def unkept() -> Any:
        return {1}

    async with app:
        handle = await unkept.enqueue()
        async with app.worker():
            with pytest.raises(ResultNotKept):
                await handle.result(timeout=30)
        assert f"unkept {handle.id} succeeded: result not kept" in caplog.text
        web = Dashboard(app, access=lambda _: Access("ann", "admin"))
        async with client(web) as http:
            page = (await http.get(f"/jobs/{handle.id}")).text
            assert "result not kept: " in page.partition("<h2>Result</h2>")[2].partition("</section>")[0]
            found = (await http.get(f"/api/v1/jobs/{handle.id}")).json()
            assert (found["state"], found["result"]) == ("succeeded", None)
            assert found["warning"].startswith("result not kept: ")
        async with Reader(web, f"/jobs/{handle.id}/stream") as reader:
            await reader.until("event: end")
        assert "result not kept: " in reader.text
        await web.close()
