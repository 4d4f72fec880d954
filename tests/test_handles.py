"""Handles made of a job's id, and what a run hears that waits for its own queue."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from treadle import App, JobCancelled, JobNotFound, Registry, ResultTimeout
from treadle.config import Timing

pytestmark = pytest.mark.anyio

FAST = Timing(start_jitter=0.0, grace=2.0)


@dataclass
class Invoice:
    number: int


@pytest.fixture
def app() -> App:
    return App("memory://")


async def test_a_handle_of_an_id_decodes_by_the_tasks_return_type(app: App) -> None:
    library = Registry()

    @library.task(name="bill", aliases=["bill.old"])
    async def bill(number: int) -> Invoice:
        return Invoice(number)

    app.include(library)
    asked = await bill.enqueue(7)
    old = await app.enqueue("bill.old", {"number": 8})
    assert bill.handle(asked.id).outcome is None
    async with app.worker(timing=FAST):
        assert await bill.handle(asked.id).result(timeout="30s") == Invoice(7)
        assert await app.handle(asked.id).result(timeout="30s") == Invoice(7)
        assert await bill.handle(old.id).result(timeout="30s") == Invoice(8)
    assert (await app.handle(asked.id).status()).state == "succeeded"


async def test_a_handle_of_an_id_cancels_and_explains(app: App) -> None:
    @app.task(name="bill")
    async def bill() -> int:
        return 1

    id = (await bill.enqueue()).id
    assert (await bill.handle(id).explain()).causes[0].code == "no-pods"
    assert await app.handle(id).cancel() == "cancelled"
    with pytest.raises(JobCancelled):
        await bill.handle(id).result()


async def test_a_job_of_another_task_or_of_none_is_said_to_be_so(app: App) -> None:
    @app.task(name="bill")
    async def bill() -> Invoice:
        return Invoice(1)

    @app.task(name="count")
    async def count() -> int:
        return 2

    id = (await count.enqueue()).id
    elsewhere = await app.enqueue("no.such.code")
    async with app.worker(timing=FAST):
        assert await app.handle(id).result(timeout="30s") == 2
    with pytest.raises(TypeError, match="is of task count, not of bill"):
        await bill.handle(id).result()
    with pytest.raises(ResultTimeout):
        await app.handle(elsewhere.id).result(timeout=0)
    unknown = str(uuid.uuid4())
    assert await bill.handle(unknown).cancel() == "not found"
    with pytest.raises(JobNotFound):
        await bill.handle(unknown).result()


def test_a_handle_of_an_id_needs_no_loop(app: App) -> None:
    @app.task(name="bill")
    def bill() -> Invoice:
        return Invoice(1)

    id = bill.enqueue_sync().id
    handle = bill.handle(id)
    assert handle.status_sync().state == "ready"
    assert handle.explain_sync().causes[0].code == "no-pods"
    with pytest.raises(ResultTimeout, match="no worker is running"):
        handle.result_sync(timeout=0)
    assert handle.cancel_sync() == "cancelled"


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_run_that_waits_for_its_own_full_queue_is_told_so(app: App, kind: str) -> None:
    """It waits in the only slot for a job that needs a slot: the timeout said that the job goes on, and it never
    would."""

    @app.task(name="inner")
    async def inner() -> int:
        return 1

    @app.task(name="outer")
    async def outer() -> str:
        with pytest.raises(ResultTimeout) as caught:
            await (await inner.enqueue()).result(timeout="100ms")
        return str(caught.value)

    @app.task(name="plain")
    def plain() -> str:
        with pytest.raises(ResultTimeout) as caught:
            inner.enqueue_sync().result_sync(timeout="100ms")
        return str(caught.value)

    handle = await (outer if kind == "async" else plain).enqueue()
    async with app.worker({"default": 1}, timing=FAST):
        text = await handle.result(timeout="30s")
    assert "ready: job " in text
    assert "waits for it in a slot of the same queue default" in text
    assert "give inner a queue of its own" in text


async def test_a_run_that_waits_for_its_own_full_queue_is_warned_of(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.client.client.FIRST_LOOK", 0.001)
    asked: list[Any] = []

    @app.task(name="inner")
    async def inner() -> int:
        return 1

    @app.task(name="outer", retry=1)
    async def outer() -> int:
        asked.append(await inner.enqueue())
        return await asked[0].result()  # type: ignore[no-any-return]

    handle = await outer.enqueue()
    async with app.worker({"default": 1}, timing=FAST), asyncio.timeout(60):
        while not (said := [each for each in caplog.records if "none of them ends" in each.getMessage()]):
            await asyncio.sleep(0.01)
        assert await asked[0].cancel() == "cancelled"
        while (await handle.status()).state == "running":
            await asyncio.sleep(0.01)
    assert handle.id in said[0].getMessage()
    assert (said[0].name, said[0].levelname, len(said)) == ("treadle.client", "WARNING", 1)
