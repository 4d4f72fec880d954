"""A queue's rate, enforced where jobs are claimed; and the throttle exponent that a late success clears."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.core.errors import StorageUnavailable
from treadle.core.job import Job, State
from treadle.core.limit import Take
from treadle.core.queue import Queue
from treadle.executors.async_ import AsyncExecutor
from treadle.executors.thread import ThreadExecutor
from treadle.ports import Lane, Want
from treadle.runtime.main import Signals, serve
from treadle.runtime.pod import Pod
from treadle.runtime.rates import LONGEST_REST, Rates
from treadle.runtime.recovery import Recovery
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.steps import edit, queue

from .conftest import QUICK, World

pytestmark = pytest.mark.anyio


class Watched(MemoryStorage):
    """Notes what is asked for tokens, and can be away."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        super().__init__(clock)
        self.wishes: list[Take] = []
        self.away = False

    async def take(self, wishes: Sequence[Take]) -> Any:
        self.wishes += wishes
        if self.away:
            raise StorageUnavailable("away")
        return await super().take(wishes)


def a_want(name: str = "mail", limit: int = 10) -> Want:
    return Want(name, limit, (Lane(frozenset({"work"}), limit),))


class Desk:
    """Rates with a clock of its own that the storage shares."""

    def __init__(self, *, own: dict[str, tuple[int, float]] | None = None, **settings: Any) -> None:
        self.clock = FakeClock()
        self.storage = Watched(self.clock)
        self.settings = {"mail": Queue(name="mail", **settings)}
        self.rates = Rates(self.storage, lambda: self.settings, own, clock=self.clock.steady)

    async def open(self) -> Desk:
        row = self.settings["mail"]
        await edit(self.storage, "mail", rate=row.rate, burst=row.burst)
        return self

    async def turn(self, there: int, limit: int = 10) -> int:
        """One turn of a pod: how many it claimed of those that are there."""
        wants = await self.rates.cut([a_want(limit=limit)])
        if not wants:
            return 0
        (want,) = wants
        assert want.lanes[0].limit <= want.limit <= limit
        found = min(there, want.limit)
        self.rates.claimed(wants, [_job()] * found)
        await self.rates.hand_back()
        return found


def _job() -> Job:
    return Job(id="1", task="work", queue="mail", state=State.RUNNING)


async def test_a_queue_without_a_rate_is_no_concern() -> None:
    desk = await Desk().open()
    assert not desk.rates.concern([a_want()])
    assert desk.rates.rest() is None
    assert desk.storage.wishes == []


async def test_a_queue_whose_row_was_not_seen_yet_is_asked_for_and_gives_all() -> None:
    desk = await Desk().open()
    desk.settings.clear()
    assert desk.rates.concern([a_want()])
    assert await desk.turn(3) == 3
    assert len(desk.storage.wishes) == 1


async def test_an_idle_queue_is_looked_at_with_one_token_which_is_handed_back() -> None:
    desk = await Desk(rate=1 / 60, burst=5).open()
    for _ in range(20):
        assert await desk.turn(0) == 0
        desk.clock.advance(0.3)
    (bucket,) = await desk.storage.limits()
    assert bucket.tokens == 5.0
    assert {wish.want for wish in desk.storage.wishes} == {0, 1}


async def test_a_full_queue_is_asked_for_all_that_there_is_room_for() -> None:
    desk = await Desk(rate=1.0, burst=8).open()
    assert await desk.turn(99) == 1
    assert await desk.turn(99) == 7
    assert await desk.turn(99) == 0


async def test_without_a_token_the_queue_rests_until_there_is_one() -> None:
    desk = await Desk(rate=2.0, burst=1).open()
    assert await desk.turn(99) == 1
    assert await desk.turn(99) == 0
    assert list(desk.rates.resting()) == ["mail"]
    assert desk.rates.starved == {"mail"}
    wait = desk.rates.rest()
    assert wait is not None
    assert 0.5 <= wait <= 0.8  # the lease of the first, and then half a second
    asked = len(desk.storage.wishes)
    assert await desk.turn(99) == 0
    assert len(desk.storage.wishes) == asked  # it is known: nobody is asked
    desk.clock.advance(wait + 0.001)
    assert desk.rates.rest() == 0.0
    assert await desk.turn(99) == 1
    desk.clock.advance(5)
    await desk.turn(0)
    assert desk.rates.starved == set()


async def test_nobody_rests_so_long_that_an_edit_would_go_unheard() -> None:
    desk = await Desk(rate=1 / 3600).open()
    await desk.turn(9)
    await desk.turn(9)
    wait = desk.rates.rest()
    assert wait is not None
    assert wait <= LONGEST_REST


async def test_what_was_not_used_serves_the_next_turn_and_is_then_forfeited() -> None:
    desk = await Desk(rate=100.0, burst=10).open()
    await desk.turn(1)
    assert await desk.turn(4) == 4
    asked = len(desk.storage.wishes)
    assert await desk.turn(3) == 3
    assert len(desk.storage.wishes) == asked
    desk.clock.advance(1.5)
    await desk.turn(0)
    assert len(desk.storage.wishes) == asked + 1


async def test_a_storage_that_is_away_leaves_rated_queues_out() -> None:
    desk = await Desk(rate=100.0).open()
    desk.storage.away = True
    assert await desk.turn(9) == 0
    assert desk.rates.rest() is not None
    desk.storage.away = False
    desk.clock.advance(2)
    assert await desk.turn(9) == 1
    desk.storage.away = True
    desk.settings["mail"] = replace(desk.settings["mail"], rate=1.0)
    await edit(desk.storage, "mail", rate=1.0)
    desk.rates._spare = [("mail", object())]  # type: ignore[list-item]
    await desk.rates.hand_back()  # forfeited, and nobody is troubled


async def test_a_claim_that_was_not_answered_has_used_all_its_tokens() -> None:
    desk = await Desk(rate=1.0, burst=5).open()
    await desk.turn(9)
    wants = await desk.rates.cut([a_want()])
    assert wants[0].limit == 4
    desk.rates.claimed(wants, None)
    assert await desk.turn(9) == 0


async def test_a_pods_own_rate_needs_no_storage() -> None:
    desk = await Desk(own={"mail": (3, 3.0)}).open()
    assert desk.rates.concern([a_want()])
    assert await desk.turn(9) == 3
    assert await desk.turn(9) == 0
    desk.clock.advance(0.34)
    assert await desk.turn(9) == 1
    desk.clock.advance(9)
    assert await desk.turn(2) == 2
    assert await desk.turn(9) == 1
    assert desk.storage.wishes == []


# In a pod ------------------------------------------------------------------------------------------------------------


async def rated(world: World, **settings: Any) -> None:
    await edit(world.storage, **settings)


async def test_a_pod_claims_no_faster_than_the_queues_rate(world: World) -> None:
    await rated(world, rate=20.0, burst=2)
    for _ in range(12):
        await world.enqueue(world.act, "return")
    begun = time.monotonic()
    async with world.pod():
        while len(world.seen) < 12:
            await asyncio.sleep(0.005)
        took = time.monotonic() - begun
    assert took >= 0.45  # 2 at once, and 10 more at 20 a second
    assert took < 5.0


async def test_jobs_that_wait_for_a_token_wait_in_the_queue(world: World) -> None:
    await rated(world, rate=0.001, burst=3)
    jobs = [await world.enqueue(world.act, "return") for _ in range(9)]
    async with world.pod() as pod:
        while len(world.seen) < 3:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.2)
        states = [(await world.job(id)).state for id in jobs]
        assert (states.count(State.SUCCEEDED), states.count(State.READY)) == (3, 6)
        assert await pod.waits_for_tokens()
        # An edit is heard with the next beat, and holds from the next take.
        await rated(world, rate=None)
        for id in jobs:
            await world.wait_for(id, State.SUCCEEDED)
        assert not await pod.waits_for_tokens()


async def test_an_idle_pod_does_not_turn_faster_for_a_rate(world: World) -> None:
    await rated(world, rate=0.001)
    await world.enqueue(world.act, "return")
    await world.enqueue(world.act, "return")
    async with world.pod() as pod:
        while not world.seen:
            await asyncio.sleep(0.005)
        turns = 0
        turn = pod.turner.turn

        async def counted() -> float:
            nonlocal turns
            turns += 1
            return await turn()

        pod.turner.turn = counted  # type: ignore[method-assign]
        await asyncio.sleep(0.5)
        assert turns < 0.5 / QUICK.poll * 2


async def test_two_pods_share_a_queues_rate_and_each_has_its_own(world: World) -> None:
    await rated(world, rate=0.001, burst=4)
    for _ in range(9):
        await world.enqueue(world.act, "return")
    async with world.pod(), world.pod():
        await asyncio.sleep(0.5)
    assert len(world.seen) == 4
    await rated(world, rate=None)
    async with world.pod(rates={"default": (2, 0.001)}), world.pod(rates={"default": (1, 0.001)}):
        await asyncio.sleep(0.5)
    assert len(world.seen) == 7


# The exponent --------------------------------------------------------------------------------------------------------


async def test_a_success_long_after_a_cool_down_clears_the_exponent(world: World) -> None:
    clock = FakeClock()
    world.storage = MemoryStorage(clock)
    world.client._keeper.current = world.storage  # type: ignore[attr-defined]
    async with world.pod():
        throttled = await world.enqueue(world.act, "throttle")
        await world.wait_for(throttled, State.SCHEDULED)
        assert (await queue(world.storage)).cool_exponent == 1
        await world.client.cancel(throttled)
        clock.advance(30 + 119)
        await asyncio.sleep(2 * QUICK.beat)
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        await asyncio.sleep(0.05)
        assert (await queue(world.storage)).cool_exponent == 1  # not yet two minutes
        clock.advance(2)
        await asyncio.sleep(2 * QUICK.beat)
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        async with asyncio.timeout(2):
            while (await queue(world.storage)).cool_exponent:
                await asyncio.sleep(0.01)
        version = (await queue(world.storage)).version
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        await asyncio.sleep(2 * QUICK.beat)
        assert (await queue(world.storage)).version == version  # a healthy queue's row is not touched


async def test_a_clearing_that_comes_too_late_changes_nothing() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    row = Queue(name="mail", version=3, cool_until=clock.now() - 200, cool_exponent=2)
    storage._queues["mail"] = replace(row, version=4, cool_until=clock.now() + 60, cool_exponent=3)
    recovery = Recovery(storage, lambda: {"mail": row}, clock=clock.steady)
    recovery.heard(clock.now())
    assert recovery.is_due("mail")
    await recovery.clear("mail")
    found = storage._queues["mail"]
    assert (found.cool_exponent, found.cool_until) == (3, clock.now() + 60)
    assert not recovery.is_due("mail")  # once for each version that was seen
    assert not recovery.is_due("other")


async def test_a_clearing_that_could_not_be_sent_is_sent_with_the_next_success() -> None:
    class Away(MemoryStorage):
        async def apply(self, changes: Any) -> Any:
            raise StorageUnavailable("away")

    clock = FakeClock()
    row = Queue(name="mail", version=3, cool_until=clock.now() - 200, cool_exponent=2)
    recovery = Recovery(Away(clock), lambda: {"mail": row}, clock=clock.steady)
    recovery.heard(clock.now())
    await recovery.clear("mail")
    assert recovery.is_due("mail")


async def test_a_burst_ends_when_the_queue_is_empty_and_not_when_the_tokens_are(world: World) -> None:
    await rated(world, rate=20.0, burst=1)
    jobs = [await world.enqueue(world.act, "return") for _ in range(6)]
    pods: list[Pod] = []

    def make_pod() -> Pod:
        pods.append(
            Pod(
                storage=world.storage,
                registry=world.registry,
                executors={"async": AsyncExecutor(), "thread": ThreadExecutor(1)},
                queues={"default": 5},
                door=world.client,
                timing=QUICK,
            )
        )
        return pods[0]

    async with asyncio.timeout(10):
        assert await serve(make_pod, Signals(1.0), burst=True) == 0
    assert [(await world.job(id)).state for id in jobs] == [State.SUCCEEDED] * 6
