"""keep_last with real pods: whoever ends a run obeys what is kept behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from treadle import JobNotFound, Unique
from treadle.context.context import Handle
from treadle.core.job import Change, NewJob, QueueChange, State, UniqueClaim
from treadle.core.operation import new
from treadle.ports import Applied
from treadle.runtime.services.operator import Operator
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.answers import a_waiting_job
from treadle.testing.conformance.builders import an_id

from .conftest import World

pytestmark = pytest.mark.anyio

NEWER = an_id()
LAST = Unique(key="k", on_conflict="keep_last")


async def ask(world: World, what: str, **options: Any) -> Handle[Any]:
    return await world.client.enqueue(world.act.using(unique=LAST, **options).bind(what))


async def hold(world: World, what: str = "hang") -> str:
    """A run that holds the key until the world releases it."""
    handle = await ask(world, what)
    async with asyncio.timeout(5):
        await world.started.wait()
    world.started.clear()
    return handle.id


async def test_the_newest_request_runs_once_after_the_run(world: World) -> None:
    async with world.pod():
        holder = await hold(world)
        kept = [await ask(world, what) for what in ("raise", "fail", "return")]
        assert {(handle.outcome, handle.id) for handle in kept} == {("kept", kept[0].id)}
        world.release.set()
        assert await kept[0].result(5) == 42
        assert (await world.job(holder)).state is State.SUCCEEDED
        assert [what for what, _ in world.seen] == ["hang", "return"]


@pytest.mark.parametrize("what", ["raise", "snooze", "throttle", "retry-after"])
async def test_a_run_that_would_go_on_is_superseded(world: World, what: str) -> None:
    gate = asyncio.Event()

    @world.registry.task(name="gated")
    async def gated(how: str) -> Any:
        world.started.set()
        await gate.wait()
        return await world.act.function(_Attempt(), how)

    async with world.pod():
        holder = await world.client.enqueue(gated.using(unique=LAST).bind(what))
        async with asyncio.timeout(5):
            await world.started.wait()
        kept = await world.client.enqueue(gated.using(unique=LAST, queue="other").bind("return"))
        gate.set()
        job = await world.wait_for(holder.id, State.CANCELLED)
        assert job.error is not None
        assert f"superseded by job {kept.id}" in job.error.message
        assert (await kept.status()).behind is None


class _Attempt:
    attempt = 1


async def test_a_cancelled_run_makes_room_for_what_is_kept(world: World) -> None:
    async with world.pod():
        holder = await hold(world)
        kept = await ask(world, "return")
        assert await world.client.cancel(holder) == "asked"
        assert await kept.result(5) == 42
        assert (await world.job(holder)).state is State.CANCELLED


async def test_a_pod_that_stops_lets_the_kept_request_take_over(world: World) -> None:
    async with world.pod() as pod:
        holder = await hold(world)
        kept = await ask(world, "return")
        await pod.stop(grace=0.05)
    assert (await world.job(holder)).state is State.CANCELLED
    assert (await world.job(kept.id)).state is State.READY


async def test_a_rescue_lets_the_kept_request_take_over(world: World) -> None:
    storage = Late(world)
    world.storage = storage
    world.client = type(world.client)(_Open(storage))
    async with world.pod(leads=False) as first, world.pod(queues={"other": 1}):
        holder = await hold(world)
        # Its pod is gone as far as the storage knows, and somebody asks just before the rescue is written.
        storage.lost = first.id
        job = await world.wait_for(holder, State.CANCELLED)
        assert job.crashes == 1
        assert storage.kept is not None
        found = await world.job(storage.kept)
        assert (found.behind, found.args) == (None, '{"what":"return"}')


class _Open:
    def __init__(self, storage: Any) -> None:
        self.current = storage

    async def open(self) -> Any:
        return self.current

    def run_sync(self, work: Any) -> Any:
        raise AssertionError("no sync calls in these tests")


class Late(MemoryStorage):
    """Somebody asks between the look of a rescuer and its write."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.lost: str | None = None
        self.kept: str | None = None

    def _is_live(self, pod: str) -> bool:
        return pod != self.lost and super()._is_live(pod)

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        if self.kept is None and any(isinstance(each, Change) and each.if_lapsed for each in changes):
            self.kept = (await ask(self.world, "return", delay="1h")).id
        return await super().apply(changes)


async def test_a_kept_request_is_found_and_cancelled_through_its_handle(world: World) -> None:
    async with world.pod():
        holder = await hold(world)
        kept = await ask(world, "return")
        view = await kept.status()
        assert (view.id, view.behind, view.state, view.args) == (kept.id, holder, "waiting", {"what": "return"})
        assert (await world.client.status(holder)).kept == kept.id
        assert (await kept.explain()).causes[0].code == "kept"
        assert await kept.cancel() == "cancelled"
        with pytest.raises(JobNotFound):
            await kept.status()
        assert await kept.cancel() == "not found"
        world.release.set()
        await world.wait_for(holder, State.SUCCEEDED)
        assert [what for what, _ in world.seen] == ["hang"]


class Taken(MemoryStorage):
    """A storage in which the kept request's id is taken when it should become a job."""

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        for change in changes:
            if isinstance(change, Change) and change.takes is not None and change.follow_ups:
                await self.insert([NewJob(id=change.follow_ups[0].id, task="elsewhere", queue="elsewhere")])
        return await super().apply(changes)


async def test_a_kept_request_whose_id_is_taken_does_not_hold_up_the_finish(world: World) -> None:
    world.storage = Taken()
    world.client = type(world.client)(_Open(world.storage))
    async with world.pod():
        holder = await hold(world)
        kept = await ask(world, "return")
        world.release.set()
        await world.wait_for(holder, State.SUCCEEDED)
        assert (await world.job(kept.id)).task == "elsewhere"


async def test_bad_follow_ups_of_the_task_do_not_cost_the_kept_request(world: World) -> None:
    @world.registry.task(name="follows")
    async def follows(ctx: Any) -> None:
        world.started.set()
        await world.release.wait()
        ctx.follow(world.act.using(id=ctx.job_id, queue="none").bind("return"))  # an id that is taken

    async with world.pod():
        holder = await world.client.enqueue(follows.using(unique=LAST).bind())
        async with asyncio.timeout(5):
            await world.started.wait()
        kept = await ask(world, "return")
        world.release.set()
        assert await kept.result(5) == 42
        assert (await world.job(holder.id)).state is State.SUCCEEDED


async def test_a_debounced_burst_is_one_run_of_the_newest(world: World) -> None:
    async with world.pod():
        task = world.act.using(unique=Unique.debounced("50ms", cap="10s", key="burst"))
        handles = [await world.client.enqueue(task.bind(what)) for what in ("raise", "fail", "return")]
        assert [handle.outcome for handle in handles] == ["inserted", "replaced", "replaced"]
        assert await handles[-1].result(5) == 42
        assert world.seen == [("return", 1)]


async def test_once_per_period_drops_the_others(world: World) -> None:
    async with world.pod():
        task = world.act.using(unique=Unique.once_per("1d", key="once"))
        first = await world.client.enqueue(task.bind("return"))
        assert await first.result(5) == 42
        again = await world.client.enqueue(task.bind("raise"))
        assert (again.outcome, again.id) == ("duplicate", first.id)


async def test_a_debounced_job_takes_no_other_time(world: World) -> None:
    with pytest.raises(ValueError, match="leave out delay and at"):
        await world.client.enqueue(world.act.using(unique=Unique.debounced("5s"), delay="1m").bind("return"))


class KeptAtTheLastMoment(MemoryStorage):
    """Somebody asks for what waits between the page that an operation has read and the chunk that it writes."""

    async def advance(self, *args: Any) -> Any:
        rule = UniqueClaim("k", on_conflict="keep_last")
        await self.insert([NewJob(id=NEWER, task="act", queue="other", unique=rule)])
        return await super().advance(*args)


async def test_an_operation_obeys_what_is_kept_behind_what_it_cancels() -> None:
    storage = KeptAtTheLastMoment(FakeClock())
    holder, _ = await a_waiting_job(storage, unique=UniqueClaim("k"))
    saved = await storage.save_operation(new(an_id(), "cancel", "queue:default"), None)
    assert saved is not None
    await Operator(storage).run_once()
    found = {job.id: (job.state, job.behind) for job in await storage.get([holder.id, NEWER])}
    assert found == {holder.id: (State.CANCELLED, None), NEWER: (State.READY, None)}


async def test_a_superseded_run_is_followed_as_a_cancelled_one(world: World) -> None:
    gate = asyncio.Event()

    @world.registry.task(name="gated")
    async def gated() -> None:
        world.started.set()
        await gate.wait()
        raise ValueError

    gated.follow_up("cancelled")(lambda job: world.act.using(id=NEWER).bind("return"))
    async with world.pod():
        holder = await world.client.enqueue(gated.using(unique=LAST).bind())
        async with asyncio.timeout(5):
            await world.started.wait()
        await world.client.enqueue(gated.using(unique=LAST, delay="1h").bind())
        gate.set()
        await world.wait_for(holder.id, State.CANCELLED)
        assert (await world.wait_for(NEWER, State.SUCCEEDED)).task == world.act.name
