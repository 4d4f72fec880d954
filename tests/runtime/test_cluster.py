"""Several pods in one process: shares, orders, warnings, leadership."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.conftest import QUICK, Kept, World
from treadle.client.client import Client
from treadle.config import Limits
from treadle.core.balance import Share
from treadle.core.demand import Portion
from treadle.core.job import NewJob, QueueChange, State
from treadle.core.pod import Pod as Seen
from treadle.core.pod import PodCard
from treadle.core.warnings import PATIENCE
from treadle.ports import Storage
from treadle.runtime import vitals
from treadle.runtime.pod import Pod
from treadle.runtime.services.balancer import Balancer
from treadle.runtime.services.leader import Leader
from treadle.runtime.services.watcher import Watcher
from treadle.storages.memory.storage import MemoryStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

SOON = dataclasses.replace(QUICK, balance=0.05, beat=0.3)


async def until(what: Callable[[], Any], patience: float = 5.0) -> Any:
    async with asyncio.timeout(patience):
        while not (found := await what()):
            await asyncio.sleep(0.005)
        return found


@asynccontextmanager
async def many(world: World, count: int, **more: Any) -> AsyncIterator[list[Pod]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(world.pod(timing=SOON, **more)) for _ in range(count)]


async def limit(storage: Storage, total: int | None, queue: str = "default") -> None:
    await storage.apply([QueueChange(name=queue, max_workers=total)])


async def seen(storage: Storage, pod: Pod) -> Seen:
    (found,) = [each for each in await storage.pods() if each.card.id == pod.id]
    return found


async def shares(storage: Storage) -> list[int]:
    return sorted((each.shares.get("default", -1) for each in await storage.pods()), reverse=True)


def is_shared(storage: Storage, *expected: int) -> Callable[[], Any]:
    async def look() -> bool:
        return await shares(storage) == list(expected)

    return look


# Shares ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
async def place(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> AsyncIterator[Storage]:
    if request.param == "memory":
        yield world.storage
        return
    storage = SQLiteStorage(tmp_path / "t.db")
    await storage.open()
    world.storage = storage  # type: ignore[assignment]
    world.client = Client(Kept(storage))
    yield storage
    await storage.close()


async def test_ten_over_three_is_four_three_three_and_after_one_stops_five_five(world: World, place: Storage) -> None:
    await limit(place, 10)
    async with many(world, 3, storage=place) as pods:
        await until(is_shared(place, 4, 3, 3))

        async def all_know() -> bool:
            return sorted(pod.roster.shares.get("default", 0) for pod in pods) == [3, 3, 4]

        await until(all_know)
        ids = [await world.enqueue(world.act, "hang") for _ in range(30)]
        taken = [pod.roster for pod in pods]

        async def all_full() -> bool:
            return sorted(map(len, taken)) == [3, 3, 4]

        await until(all_full)
        await asyncio.sleep(0.1)
        assert sum(map(len, taken)) == 10
        assert [(await world.job(id)).state for id in ids].count(State.RUNNING) == 10
        await pods[0].stop(grace=0.3)
        await until(is_shared(place, 5, 5))


async def test_a_fresh_pod_never_runs_the_whole_total_before_it_has_a_share(world: World) -> None:
    await limit(world.storage, 10)
    for _ in range(30):
        await world.enqueue(world.act, "hang")
    async with many(world, 1, leads=False), world.pod(timing=SOON, leads=False) as second:
        # The first pod has all ten; the second knows that there are two, although nobody leads and shares out.
        assert second.roster.serving == {"default": 2}

        async def has_five() -> bool:
            return len(second.roster) == 5

        await until(has_five)
        await asyncio.sleep(0.1)
        assert len(second.roster) == 5


async def test_a_lowered_total_counts_with_the_next_beat_and_cancels_nothing(world: World) -> None:
    ids = [await world.enqueue(world.act, "hang") for _ in range(5)]
    async with many(world, 1) as (pod,):

        async def all_run() -> bool:
            return len(pod.roster) == 5

        await until(all_run)
        await limit(world.storage, 0)

        async def heard() -> bool:
            return pod.roster.settings["default"].max_workers == 0

        await until(heard)
        more = await world.enqueue(world.act, "return")
        await asyncio.sleep(0.15)
        assert (await world.job(more)).state is State.READY
        assert len(pod.roster) == 5
        assert {(await world.job(id)).state for id in ids} == {State.RUNNING}
        await limit(world.storage, None)
        await world.wait_for(more, State.SUCCEEDED)


async def test_a_new_total_is_shared_out_at_once_and_not_only_with_the_next_round(world: World) -> None:
    timing = dataclasses.replace(SOON, balance=60.0)
    async with world.pod(timing=timing) as first, world.pod(timing=timing) as second:

        async def leads() -> bool:
            return first.leader.leads or second.leader.leads

        await until(leads)
        await limit(world.storage, 10)
        await until(is_shared(world.storage, 5, 5), patience=2.0)
        await limit(world.storage, 4)
        await until(is_shared(world.storage, 2, 2), patience=2.0)


async def heard(storage: MemoryStorage) -> Any:
    """The queues, as a beat of pod a tells them."""
    beaten = await storage.beat("a", 30.0, ())
    return lambda: {queue.name: queue for queue in beaten.queues}


async def test_shares_are_written_only_when_they_differ() -> None:
    storage = MemoryStorage(FakeClock())
    for id in ("a", "b"):
        await storage.register(a_card(id))
    await limit(storage, 3, "q")
    balancer = Balancer(storage, lambda: True, every=5.0, settings=await heard(storage))
    await balancer.run_once()
    assert balancer.written == 2
    await balancer.run_once()
    assert balancer.written == 2


async def test_where_no_queue_has_a_total_nothing_is_counted() -> None:
    class Uncounted(MemoryStorage):
        async def due_tasks(self) -> Any:
            raise AssertionError("looked at for nothing")

    storage = Uncounted(FakeClock())
    await storage.register(a_card("a"))
    await Balancer(storage, lambda: True, every=5.0, settings=await heard(storage)).run_once()


async def test_a_full_queue_is_not_counted_to_share_it_out() -> None:
    class Uncounted(MemoryStorage):
        async def queues(self) -> Any:
            raise AssertionError("a count of everything, every few seconds")

    storage = Uncounted(FakeClock())
    await storage.register(a_card("a"))
    await limit(storage, 3, "q")
    await Balancer(storage, lambda: True, every=5.0, settings=await heard(storage)).run_once()
    assert (await storage.pods())[0].shares == {"q": 3}


async def test_who_has_heard_of_no_queue_takes_nobodys_share() -> None:
    storage = MemoryStorage(FakeClock())
    await storage.register(a_card("a"))
    await storage.save_shares([Share("q", "a", 4)])
    await Balancer(storage, lambda: True, every=5.0, settings=dict).run_once()
    assert (await storage.pods())[0].shares == {"q": 4}


async def test_shares_that_are_left_over_are_removed_where_no_queue_has_a_total() -> None:
    storage = MemoryStorage(FakeClock())
    await storage.register(a_card("a"))
    await storage.save_shares([Share("q", "a", 4)])
    await Balancer(storage, lambda: True, every=5.0, settings=await heard(storage)).run_once()
    assert (await storage.pods())[0].shares == {}


async def test_a_leader_that_was_paused_in_the_middle_steps_down_before_it_writes() -> None:
    """Between its look and its write the process stood still for longer than the lease: somebody else leads by now."""
    now = [0.0]

    class Paused(MemoryStorage):
        async def due_tasks(self) -> Any:
            now[0] += 20.0
            return await super().due_tasks()

    storage = Paused(FakeClock())
    await storage.register(a_card("a"))
    await limit(storage, 3, "q")
    leader = Leader(storage, lambda: "a", ttl=15.0, every=5.0, clock=lambda: now[0])
    await leader.run_once()
    assert leader.leads
    await Balancer(storage, lambda: leader.leads, every=5.0, settings=await heard(storage)).run_once()
    assert not leader.leads
    assert (await storage.pods())[0].shares == {}


async def test_the_next_leader_is_there_within_one_lease() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    for id in ("a", "b"):
        await storage.register(a_card(id))
    first = Leader(storage, lambda: "a", ttl=15.0, every=5.0, clock=clock.steady)
    second = Leader(storage, lambda: "b", ttl=15.0, every=5.0, clock=clock.steady)
    await first.run_once()
    clock.advance(14.9)
    await second.run_once()
    assert (first.leads, second.leads) == (False, False)  # the first stopped by itself before its lease ended
    clock.advance(0.2)
    await second.run_once()
    assert (first.leads, second.leads, second.term) == (False, True, 2)
    await first.run_once()
    assert (first.leads, first.term) == (False, None)


async def test_a_pod_that_may_not_lead_never_does(world: World) -> None:
    async with many(world, 1, leads=False) as (pod,):
        await asyncio.sleep(0.15)
        found = await seen(world.storage, pod)
        assert (found.leader, found.card.can_lead) == (False, False)


async def test_a_leader_that_drains_goes_on_leading(world: World) -> None:
    await world.enqueue(world.act, "hang")
    timing = dataclasses.replace(SOON, leader_ttl=0.2, leader_every=0.05)
    async with world.pod(timing=timing) as pod:
        await world.started.wait()

        async def leads() -> bool:
            return pod.leader.leads

        await until(leads)
        stopping = asyncio.create_task(pod.stop(grace=1.5))
        await asyncio.sleep(0.5)
        assert pod.leader.leads
        world.release.set()
        await stopping
        assert not pod.leader.leads


# Places of the pod ----------------------------------------------------------------------------------------------------


async def test_a_pods_total_bounds_all_its_queues_together(world: World) -> None:
    ids = [await world.enqueue(world.act, "hang", queue=queue) for queue in "abc" for _ in range(10)]
    pod = Pod(
        storage=world.storage,
        registry=world.registry,
        executors=(await executors()),
        queues={"a": 10, "b": 10, "c": 10},
        timing=SOON,
        limits=Limits(pod_slots=8),
        portions={"a": Portion(2, 1), "b": Portion(0, 2)},
    )
    await pod.start()
    try:

        async def is_full() -> bool:
            return len(pod.roster) >= 8

        await until(is_full)
        await asyncio.sleep(0.1)
        assert pod.roster.counts() == {"a": 4, "b": 3, "c": 1}
        assert (await seen(world.storage, pod)).card.slots == 8
        world.release.set()
        for id in ids:
            await world.wait_for(id, State.SUCCEEDED)
    finally:
        await pod.stop()


async def executors() -> dict[str, Any]:
    from treadle.executors.async_ import AsyncExecutor
    from treadle.executors.thread import ThreadExecutor

    return {"async": AsyncExecutor(), "thread": ThreadExecutor(4)}


# Orders ---------------------------------------------------------------------------------------------------------------


async def test_a_quiet_pod_claims_nothing_and_serves_again_when_asked(world: World) -> None:
    async with many(world, 1) as (pod,):
        running = await world.enqueue(world.act, "hang")
        await world.wait_for(running, State.RUNNING)
        assert await world.storage.order_pod(pod.id, "quiet", by="ann")

        async def says_so() -> bool:
            stats = (await seen(world.storage, pod)).stats
            return stats is not None and stats.quiet

        await until(says_so)
        waiting = await world.enqueue(world.act, "return")
        await asyncio.sleep(0.15)
        assert (await world.job(waiting)).state is State.READY
        assert (await world.job(running)).state is State.RUNNING  # what runs goes on
        assert (await seen(world.storage, pod)).live
        await world.storage.order_pod(pod.id, "serve")
        await world.wait_for(waiting, State.SUCCEEDED)


async def test_a_quiet_pod_that_was_lost_comes_back_quiet(world: World) -> None:
    async with many(world, 1) as (pod,):
        await world.storage.order_pod(pod.id, "quiet", by="ann")

        async def is_quiet() -> bool:
            return pod.orders.quiet

        await until(is_quiet)
        before = pod.id
        world.storage._pods[before].lost = True

        async def is_back() -> bool:
            return pod.id != before and (await seen(world.storage, pod)).wish == "quiet"

        await until(is_back)
        waiting = await world.enqueue(world.act, "return")
        await asyncio.sleep(0.15)
        assert (await world.job(waiting)).state is State.READY


async def test_a_pod_that_is_asked_to_stop_ends_as_by_a_signal(world: World) -> None:
    async with many(world, 1) as (pod,):
        job = await world.enqueue(world.act, "hang")
        await world.wait_for(job, State.RUNNING)
        await world.storage.order_pod(pod.id, "stop", by="ann")
        async with asyncio.timeout(5):
            await pod.ordered_off.wait()
            await asyncio.sleep(0.05)
            assert not pod.stopped.is_set()  # its run has its time
            world.release.set()
            await pod.stopped.wait()
        assert pod.clean
        assert (await world.job(job)).state is State.SUCCEEDED
        assert await world.storage.pods() == []


async def test_stacks_come_with_the_beat_after_they_were_asked_for(world: World) -> None:
    async with many(world, 1) as (pod,):
        await world.enqueue(world.act, "hang")
        await world.started.wait()
        await world.storage.order_pod(pod.id, None, stacks=True)

        async def told() -> str | None:
            return (await seen(world.storage, pod)).stacks

        text = await until(told)
        assert "(event loop)" in text
        assert "treadle-heart" in text
        assert "in act" in text  # the task that hangs, at its line
        first = (await seen(world.storage, pod)).stacks_at
        await asyncio.sleep(0.4)
        assert (await seen(world.storage, pod)).stacks_at == first  # told once for each time it was asked
        await world.storage.order_pod(pod.id, None, stacks=True)

        async def told_again() -> bool:
            return (await seen(world.storage, pod)).stacks_at != first

        await until(told_again)


async def test_stacks_of_a_pod_whose_loop_is_blocked_show_what_blocks_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, beat = threading.Event(), world.storage.beat

    async def heard(*given: Any, stacks: str | None = None, **more: Any) -> Any:
        try:
            return await beat(*given, stacks=stacks, **more)
        finally:
            if stacks is not None:
                told.set()

    monkeypatch.setattr(world.storage, "beat", heard)
    async with many(world, 1) as (pod,):
        text = ""
        for _ in range(10):  # a beat may come just before the loop stands still: then the next one shows it
            told.clear()
            await world.storage.order_pod(pod.id, None, stacks=True)
            assert told.wait(20)  # the loop stands still; the Heart does not
            text = (await seen(world.storage, pod)).stacks or ""
            if "told.wait(20)" in text:
                break
        assert "told.wait(20)" in text


async def test_a_dump_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vitals, "LARGEST_DUMP", 200)
    text = vitals.stacks(asyncio.get_running_loop(), 0)
    assert len(text.encode()) <= 200
    assert text.endswith("… the rest is cut\n")


async def test_without_proc_the_peak_is_told() -> None:
    assert 1 << 20 < vitals._peak_bytes() < 1 << 40


async def test_a_pod_says_how_it_fares(world: World) -> None:
    async with many(world, 1) as (pod,):
        await world.enqueue(world.act, "hang")
        await world.enqueue(world.plain, "deaf")

        async def told() -> Any:
            stats = (await seen(world.storage, pod)).stats
            return stats if stats is not None and stats.running.get("default") == 2 else None

        stats = await until(told)
        assert stats.cpu_seconds > 0
        assert 1 << 20 < stats.rss_bytes < 1 << 40
        assert stats.threads >= 2
        assert (stats.quiet, stats.stuck_threads) == (False, 0)


async def test_a_pod_whose_loop_was_blocked_names_the_task(world: World) -> None:
    @world.registry.task(name="greedy")
    async def greedy() -> None:
        time.sleep(0.3)

    async with many(world, 1) as (pod,):
        await world.enqueue(greedy)

        async def told() -> Any:
            stats = (await seen(world.storage, pod)).stats
            return stats if stats is not None and stats.slow_task else None

        stats = await until(told)
        assert stats.slow_task == "greedy" and 0.1 < stats.loop_lag < 5.0


async def test_threads_in_which_runs_were_given_up_are_counted(world: World) -> None:
    async with many(world, 1) as (pod,):
        job = await world.enqueue(world.plain, "deaf")
        await world.wait_for(job, State.RUNNING)
        await world.client.cancel(job)

        async def is_stuck() -> bool:
            stats = (await seen(world.storage, pod)).stats
            return stats is not None and stats.stuck_threads == 1

        await until(is_stuck)
        world.let_go.set()

        async def is_free() -> bool:
            return pod.crew.stuck == 0

        await until(is_free)


# Warnings -------------------------------------------------------------------------------------------------------------


def a_card(id: str, **more: Any) -> PodCard:
    fields: dict[str, Any] = {"label": id, "host": "h", "pid": 1, "version": "", "queues": {"q": 9}, "tasks": ("t",)}
    return PodCard(id=id, lease=30.0, **{**fields, **more})


async def test_what_is_wrong_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await storage.register(a_card("a"))
    await storage.insert([NewJob(id="1", task="t", queue="nobody"), NewJob(id="2", task="new", queue="q")])
    watcher = Watcher(storage, clock=clock.steady)

    async def look() -> list[str]:
        caplog.clear()
        await storage.beat("a", 30.0, ())
        await watcher.run_once()
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    (told,) = await look()
    assert told.startswith("queue nobody has 1 job ready, and no live pod serves it; treadle worker -q nobody")
    for _ in range(int(PATIENCE // 20)):
        clock.advance(20)
        told_now = await look()
    (told,) = told_now
    assert "no live pod of queue q knows the task new" in told
    clock.advance(20)
    assert await look() == []
    await storage.register(a_card("b", tasks=("new", "t"), queues={"q": 1, "nobody": 1}))
    await look()
    assert watcher.found == ()


async def test_a_pod_that_is_alone_claims_at_once_and_the_next_one_after_its_pause(world: World) -> None:
    # Otherwise the worker on a developer's machine begins a tenth of a second later than it could.
    slow = dataclasses.replace(QUICK, start_jitter=1e6)
    async with world.pod(timing=slow) as first:
        await world.client.enqueue(world.act.bind("return"))
        await until(lambda: _claimed(first, 1))
        first.turner.claiming = False
        async with world.pod(timing=slow) as second:
            await world.client.enqueue(world.act.bind("return"))
            await asyncio.sleep(0.3)
            assert second.turner.counts["claimed"] == 0


async def _claimed(pod: Pod, count: int) -> bool:
    return pod.turner.counts["claimed"] >= count


def test_where_a_thread_stands_is_told_with_its_line_the_innermost_call_last() -> None:
    go, begun = threading.Event(), threading.Event()

    def outer() -> None:
        begun.set()
        go.wait(20)

    thread = threading.Thread(target=outer)
    thread.start()
    begun.wait(20)
    lines = vitals.stack_of(thread.ident or 0).splitlines()
    go.set()
    thread.join()
    place = next(number for number, line in enumerate(lines) if line.endswith("in outer"))
    assert lines[place + 1].strip() in ("go.wait(20)", "begun.set()")
    assert any("threading.py" in line for line in lines[:place])
    assert vitals.stack_of(1) == "<no stack>\n"
