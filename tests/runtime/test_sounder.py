"""How deep queues are, noted once a minute by the leader."""

from __future__ import annotations

import asyncio

import pytest

from treadle import App
from treadle.core.reading import FLEET, Depth
from treadle.core.rollup import FINE, HOUR, MINUTE, Rollup
from treadle.runtime.services.roller import Roller
from treadle.runtime.services.sounder import Sounder
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio

NOON = 1_700_049_600.0


async def test_once_a_minute_and_none_is_left_out() -> None:
    clock = FakeClock(NOON)
    storage = MemoryStorage(clock)
    app = App(storage=storage)
    sounder = Sounder(storage)
    async with app:
        await app.enqueue("send", queue="mail")
        await app.enqueue("send", queue="mail", delay="1h")
        for _ in range(13):  # three minutes, in passes that come a little late
            await sounder.run_once()
            clock.advance(16.4)
    noted = await storage.readings(MINUTE, 0.0, pod=FLEET)
    assert [each.at for each in noted] == [NOON, NOON + 60, NOON + 120, NOON + 180]
    assert noted[0].depths == {"": Depth(1, 1, 0), "mail": Depth(1, 1, 0)}


async def test_the_queues_are_counted_once_a_minute_not_with_every_pass() -> None:
    clock, asked = FakeClock(NOON), 0
    storage = MemoryStorage(clock)

    class Counting:
        def __getattr__(self, name: str) -> object:
            nonlocal asked
            asked += name == "queues"
            return getattr(storage, name)

    sounder = Sounder(Counting())  # type: ignore[arg-type]
    for _ in range(3):
        await sounder.run_once()
    assert asked == 1


async def test_each_step_is_noted_while_history_is_young_and_after_that_each_minute() -> None:
    clock = FakeClock(NOON)
    storage = MemoryStorage(clock)
    sounder = Sounder(storage)
    await storage.roll_up([Rollup(resolution=MINUTE, at=NOON, queue="mail", task="send", pod="p")])
    while clock.now() < NOON + 720:
        await sounder.run_once()
        clock.advance(sounder.every)
    steps = await storage.readings(FINE, 0.0, pod=FLEET)
    assert [each.at for each in steps] == [NOON + n * FINE for n in range(120)]
    assert [each.at for each in await storage.readings(MINUTE, 0.0)] == [NOON + n * 60 for n in range(12)]
    assert sounder.every == 15.0


async def test_an_idle_storage_is_not_looked_at_every_few_seconds_for_ever() -> None:
    clock = FakeClock(NOON)
    storage = MemoryStorage(clock)
    sounder = Sounder(storage)
    for _ in range(100):
        await sounder.run_once()
        clock.advance(30)
    assert len(await storage.readings(FINE, 0.0)) == 20
    # Until its first run.
    await storage.roll_up([Rollup(resolution=MINUTE, at=clock.now(), queue="mail", task="send", pod="p")])
    await sounder.run_once()
    assert len(await storage.readings(FINE, 0.0)) == 21


async def test_who_does_not_lead_any_more_writes_nothing() -> None:
    storage, leads = MemoryStorage(FakeClock(NOON)), False
    sounder = Sounder(storage, lambda: leads)
    await sounder.run_once()
    assert await storage.readings(MINUTE, 0.0) == []
    leads = True  # and what was not noted is noted now
    await sounder.run_once()
    assert len(await storage.readings(MINUTE, 0.0)) == 1


async def test_hours_are_folded_and_a_chart_over_days_shows_the_deepest() -> None:
    clock = FakeClock(NOON)
    storage = MemoryStorage(clock)
    app = App(storage=storage)
    sounder = Sounder(storage)
    async with app:
        for _ in range(3):
            await app.enqueue("send")
        await sounder.run_once()
        jobs = (await app.jobs.find("")).jobs
        await app.jobs.cancel(jobs[0].id)
        clock.advance(60)
        await sounder.run_once()
        clock.advance(HOUR + 900)
        await Roller(storage).run_once()
        clock.advance(3 * 86_400.0)
        await Roller(storage).run_once()  # the minutes are gone
        assert await storage.readings(MINUTE, 0.0) == []
        chart = await app.history.depth(since="7d", step="1h")
        assert [point.ready for point in chart.points if point.ready is not None] == [3]
        assert await app.history.pods(since="7d") == []  # nobody's: of no pod


async def test_the_pod_that_leads_has_it_among_its_duties() -> None:
    app = App(storage=MemoryStorage())
    async with app.worker(["default"]) as pod:
        await pod.leader.run_once()
        await app.enqueue("send", queue="mail")
        (round_,) = [each for each in pod.rounds if each.service.name == "sounder"]
        async with asyncio.timeout(5):
            while not (noted := await app.storage.readings(MINUTE, 0.0, pod=FLEET)):
                round_.nudge()
                await asyncio.sleep(0.01)
        assert noted[0].depths["mail"] == Depth(1, 0, 0)
