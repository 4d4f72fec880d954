"""The control plane under trouble: services with bugs, names from outside, what is told of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from treadle.core.job import State
from treadle.core.rollup import OTHER
from treadle.executors.async_ import AsyncExecutor
from treadle.executors.thread import ThreadExecutor
from treadle.runtime import main
from treadle.runtime.metrics import Exposition
from treadle.runtime.pod import Pod
from treadle.runtime.services.surveyor import Surveyor
from treadle.storages.memory.storage import MemoryStorage

from .conftest import QUICK, World

pytestmark = pytest.mark.anyio


def shown(pod: Any, name: str) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(Exposition(pod).text().decode())
    return {
        tuple(sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if sample.name == name
    }


async def test_a_loop_that_ends_by_a_bug_stops_the_pod_in_order(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not the pass of a service, which is tried again, but what drives it: nothing would ever run it again. The pod
    gives back what it runs, signs off, and says that it was not asked to."""
    is_sound = [True]

    def every(self: Surveyor) -> float:
        return 0.01 if is_sound[0] else 1 / 0

    monkeypatch.setattr(Surveyor, "every", property(every))
    pod = Pod(
        storage=world.storage,
        registry=world.registry,
        executors={"async": AsyncExecutor(), "thread": ThreadExecutor(1)},
        queues={"default": 1},
        timing=QUICK,
    )
    with caplog.at_level(logging.CRITICAL, "treadle.pod"):
        serving = asyncio.create_task(main.serve(lambda: pod, main.Signals(2.0)))
        job = await world.enqueue(world.act, "hang")
        await world.wait_for(job, State.RUNNING)
        is_sound[0] = False
        async with asyncio.timeout(10):
            assert await serving == main.EXIT_BUG
    assert pod.broken
    assert pod.clean
    assert "surveyor" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert await world.storage.pods() == []
    found = await world.job(job)
    assert (found.state, found.attempt) == (State.READY, 0)


async def test_errors_of_services_are_shown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(self: Surveyor) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(Surveyor, "run_once", fails)
    monkeypatch.setattr(Surveyor, "every", 0.01)
    async with world.pod() as pod:
        pod.surveyor.want()
        async with asyncio.timeout(5):
            while not shown(pod, "treadle_service_errors_total")[("surveyor",)]:
                await asyncio.sleep(0.01)
        assert not pod.broken


async def test_retries_are_counted_apart(world: World) -> None:
    storage = MemoryStorage()
    surveyor = Surveyor(storage)
    await surveyor.run_once()
    assert surveyor.survey is not None
    assert surveyor.survey.retrying == 0
    async with world.pod() as pod:
        later = await world.enqueue(world.act, "return", delay="1h")
        retried = await world.enqueue(world.act, "retry-after")
        async with asyncio.timeout(5):
            while (await world.job(retried)).attempt == 0 or (await world.job(retried)).state is not State.SCHEDULED:
                await asyncio.sleep(0.01)
        await pod.surveyor.run_once()
        assert (await world.job(later)).state is State.SCHEDULED
        assert shown(pod, "treadle_retrying_jobs") == {(): 1}


async def test_names_from_outside_do_not_grow_what_is_counted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.client.client.MOST_PAIRS", 3)
    for n in range(9):
        world.client._count([("inserted", "q", f"task{n}")])
    world.client._count([("inserted", "q", "task0")])
    assert world.client.produced == {
        ("inserted", "q", "task0"): 2,
        ("inserted", "q", "task1"): 1,
        ("inserted", "q", "task2"): 1,
        ("inserted", OTHER, OTHER): 6,
    }
