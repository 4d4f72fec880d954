"""The periodic duties: one pass each, apart from their loop, and the loop that runs them."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from treadle import App
from treadle.config import Timing
from treadle.core.job import NewJob, State
from treadle.core.pod import PodCard
from treadle.ports import Lane, Want
from treadle.runtime.service import Round
from treadle.runtime.services.leader import Leader
from treadle.runtime.services.rescuer import Rescuer
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


def a_card(id: str) -> PodCard:
    return PodCard(id=id, label=id, host="h", pid=1, version="", queues={"q": 9}, tasks=("t",), lease=30.0)


async def a_running_job(storage: MemoryStorage, pod: str) -> str:
    await storage.insert([NewJob(id=f"job-of-{pod}", task="t", queue="q", timeout=60.0, max_attempts=5)])
    await storage.claim(pod, f"token-{pod}", [Want("q", 1, (Lane(frozenset({"t"}), 1),))])
    return f"job-of-{pod}"


def a_rescuer(storage: MemoryStorage, told: list[Any], *, beat: float = 0.0) -> Rescuer:
    """With `beat=0` it does not wait for anybody to speak first."""
    return Rescuer(
        storage,
        Timing(beat=beat),
        random.Random(1),
        every=5.0,
        jitter=0.5,
        beat_age=lambda: 0.0,
        rescued=lambda change, job: told.append((change.why, job.id)),
    )


async def test_a_pass_rescues_the_jobs_of_pods_whose_lease_is_over() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await storage.register(a_card("dead"))
    job = await a_running_job(storage, "dead")
    told: list[Any] = []
    rescuer = a_rescuer(storage, told)
    await rescuer.run_once()
    assert told == []
    clock.advance(31)
    await rescuer.run_once()
    assert told == [("rescued", job)]
    assert (await storage.get([job]))[0].state is State.READY


async def test_a_rescuer_tells_a_run_that_was_past_its_deadline_at_the_last_beat_as_a_timeout() -> None:
    """Its pod beat on while the run blocked the loop, and then gave up: that is the run's own fault, and a crash."""
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await storage.register(a_card("blocked"))
    job = await a_running_job(storage, "blocked")  # with a timeout of 60 s
    for _ in range(4):
        clock.advance(20)
        await storage.beat("blocked", 30.0, ())
    clock.advance(31)
    await a_rescuer(storage, []).run_once()
    (found,) = await storage.get([job])
    assert found.error is not None
    assert (found.error.kind, found.crashes) == ("timeout", 1)


async def test_two_rescuers_at_once_rescue_a_job_once() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await storage.register(a_card("dead"))
    job = await a_running_job(storage, "dead")
    clock.advance(31)
    told: list[Any] = []
    await asyncio.gather(*(a_rescuer(storage, told).run_once() for _ in range(5)))
    assert told == [("rescued", job)]
    assert (await storage.get([job]))[0].crashes == 1


async def test_a_rescuer_that_was_paused_itself_lets_the_living_speak_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole host stood still: every lease looks over, that of the living too. Rescued at once, all live work would
    be thrown away. So it waits one beat."""
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await storage.register(a_card("living"))
    await a_running_job(storage, "living")
    told: list[Any] = []
    rescuer = a_rescuer(storage, told, beat=10.0)
    await rescuer.run_once()
    clock.advance(60)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    await rescuer.run_once()
    assert told == []
    await storage.beat("living", 30.0, ())
    monkeypatch.setattr(time, "monotonic", lambda: now + 71)
    await rescuer.run_once()
    assert told == []
    clock.advance(31)
    monkeypatch.setattr(time, "monotonic", lambda: now + 75)
    await rescuer.run_once()
    assert len(told) == 1


async def test_a_newborn_lets_the_living_speak_first_but_takes_up_what_the_dead_have_left() -> None:
    """Somebody held the write lock for longer than a lease: a pod that starts then would see only lapsed leases, and
    beat the next beat of the living."""
    clock = FakeClock()
    storage = MemoryStorage(clock)
    for pod in ("living", "dead"):
        await storage.register(a_card(pod))
        await a_running_job(storage, pod)
    clock.advance(31)
    storage._pods["dead"].lost = True
    told: list[Any] = []
    await a_rescuer(storage, told, beat=10.0).run_once()
    assert told == [("rescued", "job-of-dead")]


async def test_a_run_far_beyond_its_deadline_is_ended() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await storage.register(a_card("slow"))
    job = await a_running_job(storage, "slow")
    told: list[Any] = []
    clock.advance(89)
    await storage.beat("slow", 30.0, ())
    await a_rescuer(storage, told).run_once()
    assert told == []
    clock.advance(2)
    await a_rescuer(storage, told).run_once()
    assert told == [("retried", job)]
    assert (await storage.get([job]))[0].errors[-1].kind == "timeout"


async def test_a_leader_that_cannot_renew_stops_leading_before_its_lease_ends() -> None:
    clock = FakeClock()
    storage = MemoryStorage()
    await storage.register(a_card("a"))
    leader = Leader(storage, lambda: "a", ttl=15.0, every=5.0, clock=clock.steady)
    await leader.run_once()
    assert leader.leads
    clock.advance(12.5)
    assert not leader.leads


async def test_one_of_two_leads_and_the_other_follows_when_it_steps_down() -> None:
    storage = MemoryStorage()
    await storage.register(a_card("a"))
    await storage.register(a_card("b"))
    first = Leader(storage, lambda: "a", ttl=15.0, every=5.0)
    second = Leader(storage, lambda: "b", ttl=15.0, every=5.0)
    await first.run_once()
    await second.run_once()
    assert (first.leads, second.leads, first.term) == (True, False, 1)
    await first.step_down()
    await second.run_once()
    assert (first.leads, second.leads, second.term) == (False, True, 2)


class Duty:
    name = "duty"
    every = 0.001
    jitter = 0.0

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 2
        self.done = asyncio.Event()

    async def run_once(self) -> None:
        self.calls += 1
        if self.calls <= self.errors:
            raise ConnectionError("away")
        self.done.set()


async def test_an_error_in_a_duty_is_logged_once_and_the_duty_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    duty = Duty()
    a_round = Round(duty, random.Random(1), lambda: True)
    task = asyncio.create_task(a_round.run())
    async with asyncio.timeout(5):
        await duty.done.wait()
    task.cancel()
    assert a_round.errors == 2
    assert len([record for record in caplog.records if "away" in record.message]) == 1


async def test_a_duty_that_is_not_wanted_rests() -> None:
    duty = Duty()
    wanted = False
    task = asyncio.create_task(Round(duty, random.Random(1), lambda: wanted).run())
    await asyncio.sleep(0.02)
    assert duty.calls == 0
    wanted = True
    async with asyncio.timeout(5):
        await duty.done.wait()
    task.cancel()


async def test_a_nudge_brings_a_duty_forward() -> None:
    duty = Duty()
    duty.every, duty.errors = 60.0, 0
    a_round = Round(duty, random.Random(1), lambda: True)
    task = asyncio.create_task(a_round.run())
    await asyncio.sleep(0.02)
    assert duty.calls == 0
    a_round.nudge()
    async with asyncio.timeout(5):
        await duty.done.wait()
    task.cancel()


async def test_a_rescuer_that_lost_the_lead_while_it_looked_rescues_nothing() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await storage.register(a_card("dead"))
    await a_running_job(storage, "dead")
    clock.advance(31)
    told: list[Any] = []
    rescuer = a_rescuer(storage, told)
    rescuer._may_act = lambda: False
    await rescuer.run_once()
    assert told == []
    rescuer._may_act = lambda: True
    await rescuer.run_once()
    assert len(told) == 1


async def test_how_often_the_leader_cleans_up_is_a_setting() -> None:
    app = App("memory://", timing=Timing(start_jitter=0.0, prune=600.0, roll_up=300.0))
    app.task(name="work")(asyncio.sleep)
    async with app.worker() as pod:
        every = {each.service.name: each.service.every for each in pod.rounds}
    assert (every["pruner"], every["roller"]) == (600.0, 300.0)
