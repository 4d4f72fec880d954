"""F3, F4: runs that ignore their cancel. Their slots are used again, up to a number; then the worker starts anew."""

from __future__ import annotations

import asyncio
import logging

import pytest

from treadle.config import Limits
from treadle.core.job import State
from treadle.executors.async_ import AsyncExecutor
from treadle.executors.thread import ThreadExecutor
from treadle.runtime.pod import Pod

from .conftest import QUICK, World

pytestmark = pytest.mark.anyio


def a_pod(world: World, *, abandoned: int = 10, threads: int = 4, starts_anew: bool = True) -> Pod:
    return Pod(
        storage=world.storage,
        registry=world.registry,
        executors={"async": AsyncExecutor(), "thread": ThreadExecutor(threads)},
        queues={"default": 2},
        door=world.client,
        timing=QUICK,
        limits=Limits(abandoned=abandoned),
        starts_anew=starts_anew,
    )


async def give_up(world: World, task: object, count: int) -> None:
    """So many jobs that do not hear of their cancel."""
    for _ in range(count):
        job = await world.enqueue(task, "deaf")
        await world.wait_for(job, State.RUNNING)
        await world.client.cancel(job)
        await world.wait_for(job, State.CANCELLED)


async def test_F3_too_many_deaf_coroutines_make_the_worker_stop_in_order_and_start_anew(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    pod = a_pod(world, abandoned=3)
    await pod.start()
    try:
        await give_up(world, world.act, 2)
        assert (pod.crew.abandoned, pod.crew.stuck) == (2, 0)
        good = await world.enqueue(world.act, "return")
        await world.wait_for(good, State.SUCCEEDED)  # both slots are used again
        assert not pod.ordered_off.is_set()
        await give_up(world, world.act, 1)
        async with asyncio.timeout(5):
            await pod.ordered_off.wait()
            await pod.stopped.wait()
        assert (pod.broken, pod.clean) == (True, True)
        assert "3 runs were given up and go on: it stops, to be started anew" in caplog.text
    finally:
        world.release.set()
        await pod.stop()


async def test_F4_a_worker_with_no_thread_left_starts_anew(world: World) -> None:
    pod = a_pod(world, threads=2)
    await pod.start()
    try:
        await give_up(world, world.plain, 1)
        assert (pod.crew.abandoned, pod.crew.stuck) == (1, 1)
        assert not pod.ordered_off.is_set()
        await give_up(world, world.plain, 1)
        async with asyncio.timeout(5):
            await pod.stopped.wait()
        assert pod.broken
    finally:
        world.let_go.set()
        await pod.stop()


async def test_what_ends_after_all_is_counted_no_more(world: World) -> None:
    pod = a_pod(world, abandoned=2)
    await pod.start()
    try:
        await give_up(world, world.act, 1)
        world.release.set()
        async with asyncio.timeout(5):
            while pod.crew.abandoned:
                await asyncio.sleep(0.001)
        world.release.clear()
        await give_up(world, world.act, 1)
        assert not pod.ordered_off.is_set()
    finally:
        world.release.set()
        await pod.stop()


async def test_a_pod_inside_another_program_never_ends_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    pod = a_pod(world, abandoned=1, starts_anew=False)
    await pod.start()
    try:
        await give_up(world, world.act, 2)
        assert not pod.ordered_off.is_set()
        told = [record for record in caplog.records if record.levelno == logging.CRITICAL]
        assert [record.getMessage().partition("; ")[2] for record in told] == [
            "only a new process gets back what they hold"
        ]
    finally:
        world.release.set()
        await pod.stop()
