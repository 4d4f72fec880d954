"""What a review found: each test tells how a job, a slot or a pod was lost, or a loop held up."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading
import time
from typing import Any

import msgspec
import pytest

from treadle.context.context import Context
from treadle.core.errors import StorageUnavailable
from treadle.core.job import Job, QueueChange, State
from treadle.core.pod import Held
from treadle.executors.async_ import AsyncExecutor
from treadle.executors.thread import ThreadExecutor
from treadle.hooks import Hooks
from treadle.ports import Applied, Beaten, Call
from treadle.runtime.pod import Pod
from treadle.trace import entry_of, mask

from .conftest import QUICK, World
from .test_heart import Deaf, Heard, a_heart

pytestmark = pytest.mark.anyio


# How a run ends ------------------------------------------------------------------------------------------------------


class Sour(dict[str, int]):
    """A result that can be returned but not read."""

    def items(self) -> Any:
        raise KeyError("sour")


class Sourer:
    def model_dump(self, **_: object) -> Any:
        raise SystemExit(1)


@pytest.mark.parametrize("result", [Sour(a=1), Sourer()])
async def test_a_result_whose_own_code_raises_is_still_a_success(world: World, result: object) -> None:
    """Only PayloadError was expected of the encoder. Anything else ended the run without an Outcome: its slot was
    taken and its job ran until the deadline, and then it was run again, although its effect had happened."""

    @world.registry.task(name="sour", retry=1)
    async def sour() -> Any:
        return result

    async with world.pod():
        job = await world.wait_for(await world.enqueue(sour), State.SUCCEEDED)
    assert (job.result, job.attempt) == (None, 1)
    assert job.warning is not None and "result not kept" in job.warning


async def test_an_exception_class_without_a_module_is_a_failed_attempt(world: World) -> None:
    """The name of its type could not be told, and the exception that this raised ended the run without an Outcome."""
    odd = type("Odd", (Exception,), {"__module__": None})

    @world.registry.task(name="nowhere", retry=1)
    async def nowhere() -> None:
        raise odd("x")

    async with world.pod():
        job = await world.wait_for(await world.enqueue(nowhere), State.FAILED)
    assert job.error is not None
    assert job.error.type == "Odd"


async def test_whatever_goes_wrong_around_a_run_it_has_an_outcome(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is not foreseen must not leave a slot taken and a job running for ever."""

    def broken(*_: object) -> Any:
        raise SystemError("not foreseen")

    monkeypatch.setattr("treadle.runtime.run._of_value", broken)
    async with world.pod() as pod:
        job = await world.wait_for(await world.enqueue(world.quick, "return"), State.FAILED)
        assert len(pod.roster) == 0
    assert job.error is not None
    assert job.error.type == "SystemError"


async def test_a_cancel_that_comes_before_the_first_step_of_a_run_ends_it_at_once(world: World) -> None:
    """A coroutine that is cancelled before its first step never begins, so nobody said that its run had ended: the
    slot was taken until the cancel's grace was over."""
    patient = dataclasses.replace(QUICK, cancel_grace=60.0)
    async with world.pod(timing=patient) as pod:
        start = pod.crew.start

        def start_and_cancel(job: Any) -> None:
            start(job)
            pod.crew.stop_run(job.id, job.token, "cancel")

        pod.crew.start = start_and_cancel  # type: ignore[method-assign]
        async with asyncio.timeout(2):
            job = await world.wait_for(await world.enqueue(world.act, "return"), State.CANCELLED)
            while len(pod.roster):
                await asyncio.sleep(0.005)
        assert world.seen == []
    assert job.error is not None
    assert job.error.kind == "cancelled"


def test_masking_takes_time_in_proportion_to_the_text() -> None:
    """The expression began with a run of word characters, tried anew from each of them: 16 KiB of "a-a-a-" in an
    exception's text held the pod's loop for twelve seconds, a whole trace for minutes."""
    begun = time.process_time()
    for text in (
        "a-" * 32_000,
        "a" * 64_000,
        "token" * 12_000,
        "token=" * 10_000,
        "a://b:" * 10_000,
        'token="' * 9_000,
    ):
        mask(text)
    assert time.process_time() - begun < 4


def test_a_type_that_no_storage_can_hold_is_escaped() -> None:
    """PostgreSQL refuses NUL. The Change was refused for it, the claim stayed, the next beat showed it as unknown, and
    the job was taken up and run again at each beat, uncharged."""
    odd = type("Odd", (Exception,), {})
    odd.__qualname__ = "Odd\x00" + "x" * 100_000
    entry = entry_of(odd("x"), Job(id="j", task="t", queue="q", state=State.RUNNING, attempt=1))
    assert "\x00" not in entry.type
    assert len(entry.type) <= 512


# Turns ---------------------------------------------------------------------------------------------------------------


async def test_a_storage_that_cancels_a_call_by_itself_does_not_end_the_turns(world: World) -> None:
    """A CancelledError that nobody asked of the Turner (a driver ended its own future) was taken for its own end: the
    pod beat on and never claimed again, and nobody was told."""
    claim, broken = world.storage.claim, 2

    async def cancels(*args: Any) -> Any:
        nonlocal broken
        if broken:
            broken -= 1
            raise asyncio.CancelledError
        return await claim(*args)

    world.storage.claim = cancels  # type: ignore[method-assign]
    async with world.pod():
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)


async def test_an_error_of_our_own_in_a_turn_does_not_end_the_turns(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The Turner's task ended with it, unseen: the pod beat on and never claimed again."""
    async with world.pod() as pod:
        start, broken = pod.turner._start, [1]

        def breaks(jobs: Any) -> None:
            if broken:
                broken.pop()
                raise RuntimeError("not foreseen")
            start(jobs)

        pod.turner._start = breaks
        first = await world.enqueue(world.act, "return")
        second = await world.enqueue(world.act, "return")
        for id in (first, second):
            await world.wait_for(id, State.SUCCEEDED)
    assert any("not foreseen" in (record.exc_text or "") for record in caplog.records)


async def test_a_claim_that_is_being_given_back_is_not_taken_up(world: World) -> None:
    """A claim given back unstarted is in nobody's hand, and a beat that came before the write showed it as unknown: it
    was recovered and run, while the write gave it to the others. Two ran it at once, and one's finish was stale."""
    async with world.pod() as pod:
        start = pod.crew.start

        def give_back_and_beat(job: Job) -> None:
            pod.crew.start = start  # type: ignore[method-assign]
            pod.turner.give_back(job, 3600)
            pod._on_beat(Beaten(now=0.0, held=(Held(job.id, job.token or ""),)), ())

        pod.crew.start = give_back_and_beat  # type: ignore[method-assign]
        job = await world.wait_for(await world.enqueue(world.act, "return"), State.SCHEDULED)
        await asyncio.sleep(0.05)
        assert not pod.turner._given_back
    assert world.seen == []
    assert job.attempt == 0


async def test_a_stop_waits_for_claims_that_a_beat_has_just_shown(world: World) -> None:
    """The claim's answer was lost, the beat showed it, and the stop came before it was recovered: the pod signed off
    with it, and the job was rescued, charged, and counted as a crash instead of being given back."""
    recover = world.storage.recover

    async def slow(*args: Any) -> Any:
        await asyncio.sleep(0.1)
        return await recover(*args)

    world.storage.recover = slow  # type: ignore[method-assign]
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "return", delay="1h")
        row = world.storage._rows[id]
        row.job = msgspec.structs.replace(row.job, state=State.RUNNING, pod=pod.id, token="lost", attempt=1)
        pod._on_beat(Beaten(now=0.0, held=(Held(id, "lost"),)), ())
        await pod.stop()
        job = await world.job(id)
    assert (job.state, job.attempt, job.crashes) == (State.READY, 0, 0)


async def test_a_pod_that_is_lost_while_it_recovers_a_claim_goes_on_turning(world: World) -> None:
    """An outage leaves a claim unanswered, and ends with the pod declared lost while it asks for that claim. Its token
    had been forgotten when the answer came; to strike it from the list raised, and the Turner's task ended, unseen."""
    recover, asked, go_on = world.storage.recover, asyncio.Event(), asyncio.Event()

    async def slow(*args: Any) -> Any:
        asked.set()
        await go_on.wait()
        return await recover(*args)

    world.storage.recover = slow  # type: ignore[method-assign]
    async with world.pod() as pod:
        old = pod.id
        pod.turner.take_up("unheard-of")
        await asked.wait()
        world.storage._pods[old].lost = True
        pod.heart.beat_soon()
        async with asyncio.timeout(5):
            while pod.turner.pod == old:
                await asyncio.sleep(0.005)
        go_on.set()
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        assert pod.turner.counts["errors"] == 0


async def test_a_finish_that_the_storage_cannot_hold_is_written_without_its_words(world: World) -> None:
    """It was dropped as stale. The claim stood, so the next beat showed one that nobody knew, and the job was taken up
    and run again: at each beat, uncharged, for ever."""
    apply = world.storage.apply

    async def picky(changes: Any) -> Any:
        return [
            Applied(False, state=State.RUNNING, error="cannot be encoded")
            if getattr(change, "error", None) is not None and "no luck" in change.error.message
            else (await apply([change]))[0]
            for change in changes
        ]

    world.storage.apply = picky  # type: ignore[method-assign]
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, "raise", max_attempts=1), State.FAILED)
    assert job.error is not None
    assert (job.error.kind, len(world.seen)) == ("error", 1)
    assert "cannot be encoded" in job.error.message


async def test_burst_ends_although_a_queue_is_scaled_to_nothing(world: World) -> None:
    """A queue that may have no workers was never asked, so it stayed hungry, and the pod was never idle."""
    await world.storage.apply([QueueChange(name="shut", max_workers=0)])
    async with world.pod(queues={"default": 2, "shut": 2}) as pod:
        pod.heart.beat_soon()
        id = await world.enqueue(world.act, "return")
        async with asyncio.timeout(5):
            while pod.roster.settings.get("shut") is None:
                await asyncio.sleep(0.005)
            await world.wait_for(id, State.SUCCEEDED)
            await pod.turner.idle.wait()


# Start and stop ------------------------------------------------------------------------------------------------------


class Slow(AsyncExecutor):
    async def start(self) -> None:
        await asyncio.sleep(60)


class Broken(AsyncExecutor):
    async def start(self) -> None:
        raise OSError("no room")


def a_pod(world: World, **more: Any) -> Pod:
    more.setdefault("executors", {"async": AsyncExecutor()})
    return Pod(
        storage=world.storage, registry=world.registry, queues={"default": 2}, timing=QUICK, door=world.client, **more
    )


async def test_a_start_that_fails_half_way_leaves_no_pod_behind(world: World) -> None:
    """It was registered and its Heart was beating: a pod that runs nothing kept a lease for as long as the loop ran."""
    pod = a_pod(world, executors={"async": Broken()})
    with pytest.raises(OSError, match="no room"):
        await pod.start()
    assert not pod.heart.alive
    assert await world.storage.pods() == []


async def test_a_start_that_is_cancelled_half_way_leaves_no_pod_behind(world: World) -> None:
    pod = a_pod(world, executors={"async": Slow()})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await pod.start()
    assert not pod.heart.alive
    assert await world.storage.pods() == []


async def test_a_stop_that_is_cancelled_ends_the_heart_and_can_be_waited_for(world: World) -> None:
    """Nothing was given back and the Heart beat on, so nobody could rescue what the pod held; whoever stopped it again
    waited for ever. The records of `logging`, in the whole process, went on being shown to it."""
    records = logging.getLogRecordFactory()
    async with world.pod() as pod:
        assert logging.getLogRecordFactory() is not records
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pod.stop(grace=60)
        assert logging.getLogRecordFactory() is records
        async with asyncio.timeout(10):
            await pod.stop()
            while pod.heart.alive:
                await asyncio.sleep(0.005)


async def test_a_stop_during_a_rejoin_ends_the_rejoin(world: World) -> None:
    """The storage was away; the loop that registers anew went on for ever after the stop, and once the storage was
    back it registered a pod that nobody kept alive."""
    register = world.storage.register

    async def away(card: Any) -> None:
        raise StorageUnavailable("away")

    async with world.pod() as pod:
        world.storage.register = away  # type: ignore[method-assign]
        world.storage._pods[pod.id].lost = True
        pod._on_beat(Beaten(now=0.0, lost=True), ())
        rejoining = pod._rejoining
        assert rejoining is not None
        await asyncio.sleep(0.02)
        await pod.stop()
        world.storage.register = register  # type: ignore[method-assign]
        assert rejoining.done()
        await asyncio.sleep(0.1)
        assert [each for each in await world.storage.pods() if each.live] == []


async def test_a_pod_that_is_lost_while_it_drains_stops_its_runs(world: World) -> None:
    """Its jobs are run by others already: to let them run on to the end of the grace is to run them twice."""
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        stopping = asyncio.create_task(pod.stop(grace=60))
        await asyncio.sleep(0.02)
        pod._on_beat(Beaten(now=0.0, lost=True), ())
        async with asyncio.timeout(2):
            await stopping
        assert pod.turner.counts["lost"] == 1


async def test_a_hurried_stop_does_not_wait_for_a_storage_that_is_away(world: World) -> None:
    """The second signal ended the runs at once, and then the pod waited for the rest of the grace to write them."""

    async def away(changes: Any) -> Any:
        raise StorageUnavailable("away")

    apply = world.storage.apply
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        world.storage.apply = away  # type: ignore[method-assign]
        pod.hurry()
        async with asyncio.timeout(5):
            await pod.stop(grace=60)
        assert not pod.clean
        world.storage.apply = apply  # type: ignore[method-assign]


async def test_a_hook_that_never_ends_does_not_hold_up_the_stop(world: World) -> None:
    hooks = Hooks()

    async def endless(job: Any) -> None:
        await asyncio.Event().wait()

    hooks.add("succeeded", endless)
    async with world.pod(hooks=hooks) as pod:
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        async with asyncio.timeout(5):
            await pod.stop(grace=0.5)
        assert await world.storage.pods() == []


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
async def test_a_hook_that_raises_anything_at_all_harms_nobody(world: World, kind: type[BaseException]) -> None:
    """`sys.exit()` in a hook ended the Turner, and with it the loop of its host."""
    hooks = Hooks()

    def bad(job: Any) -> None:
        raise kind

    async def worse(job: Any) -> None:
        raise kind

    for name in ("started", "succeeded"):
        hooks.add(name, bad)
        hooks.add(name, worse)
    async with world.pod(hooks=hooks):
        for _ in range(2):
            await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        async with asyncio.timeout(5):
            while hooks.errors["succeeded"] < 4:
                await asyncio.sleep(0.005)


# The Heart -----------------------------------------------------------------------------------------------------------


async def test_a_pod_whose_loop_came_back_works_again(world: World) -> None:
    """Beyond the limit the lease is given up. That was for good: an embedded pod, which never ends its host, beat on
    without renewing and claimed nothing any more until somebody restarted the host."""
    hasty = dataclasses.replace(QUICK, lease=0.6, loop_limit=0.1, overdue=0.1)
    async with world.pod(timing=hasty) as pod:
        await asyncio.sleep(0.05)
        time.sleep(1.0)
        assert pod.heart.is_stuck
        async with asyncio.timeout(5):
            await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)


async def test_a_pause_of_the_whole_process_is_no_blocked_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pulse was on its way when the process was stopped (SIGSTOP, a frozen container): its age on waking was taken
    for a loop blocked as long, and a worker left with 70 that should have registered anew."""
    storage, heard = Deaf(), Heard()
    heart = a_heart(storage, heard, limit=40.0)
    heart.look()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    heart.look()
    assert heard.stuck == []
    assert not heart.is_stuck


async def test_after_an_outage_the_living_are_let_speak_first_by_a_new_leader_too() -> None:
    """The Rescuer holds back while its own pod's beats go unanswered. A pod that was not the leader then did not look
    meanwhile; made leader after the outage it saw a fresh beat of its own, and all the others' leases over."""
    storage = Deaf()
    heart = a_heart(storage, Heard())
    heart._answered -= 40.0  # four beats long nobody answered
    storage.answers = True
    assert heart.silence > 15
    await heart.beat()
    assert heart.beat_age < 1
    assert heart.silence > 15  # for one beat more
    heart._heard_again -= 10.0
    assert heart.silence < 1


async def test_an_answer_for_a_heart_that_was_stopped_is_not_told(world: World) -> None:
    """A pod that started again took the last answer of its former Heart ("lost": it had signed off) for its own, and
    registered anew."""
    storage, heard = Deaf(), Heard()
    storage.answers = True
    heart = a_heart(storage, heard)
    beating = asyncio.create_task(heart.beat())
    await asyncio.sleep(0)
    heart.stop()
    await beating
    await asyncio.sleep(0)
    assert heard.answers == []


async def test_a_pod_that_has_stopped_has_no_heart_any_more(world: World) -> None:
    """The Heart's thread was asked to end and not waited for: it could still be using the storage while it closed."""
    beat = world.storage.beat

    async def slow(*args: Any, **more: Any) -> Any:
        await asyncio.sleep(0.1)
        return await beat(*args, **more)

    world.storage.beat = slow  # type: ignore[method-assign]
    async with world.pod() as pod:
        pod.heart.beat_soon()
        await asyncio.sleep(0.02)
        await pod.stop()
        assert not pod.heart.alive


# Threads -------------------------------------------------------------------------------------------------------------


async def test_a_thread_left_behind_by_a_stop_does_not_take_the_work_of_the_next_start(world: World) -> None:
    """The note that told the busy thread to end lay in the queue; after a restart a new thread read it instead, ended,
    and the job that it had been started for waited for the busy one."""
    executor, let_go = ThreadExecutor(4), threading.Event()
    deaf = asyncio.create_task(executor.run(Call(let_go.wait, (30,), {})))
    await asyncio.sleep(0.02)
    await executor.close()
    await executor.start()
    try:
        async with asyncio.timeout(2):
            assert await executor.run(Call(lambda: 7, (), {})) == 7
    finally:
        let_go.set()
        await deaf
        await executor.close()


async def test_a_thread_that_cannot_be_started_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = ThreadExecutor(2)

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            await executor.run(Call(lambda: 7, (), {}))
    assert executor.places() == 2
    assert await executor.run(Call(lambda: 7, (), {})) == 7
    await executor.close()


# What a task sees ----------------------------------------------------------------------------------------------------


async def test_a_job_enqueued_by_name_sees_the_deadline_of_its_task(world: World) -> None:
    """The row has no deadline, because who enqueued it did not know the task; the run has one all the same."""
    seen: list[Any] = []

    @world.registry.task(name="sees", retry=1, timeout="5s")
    async def sees(ctx: Context) -> None:
        seen.append((ctx.deadline, ctx.remaining()))

    id = await world.enqueue(sees)
    row = world.storage._rows[id]
    row.job = msgspec.structs.replace(row.job, timeout=None, max_attempts=None)
    async with world.pod():
        job = await world.wait_for(id, State.SUCCEEDED)
    ((deadline, remaining),) = seen
    assert job.started_at is not None
    assert deadline is not None and deadline.timestamp() == pytest.approx(job.started_at + 5, abs=0.01)
    assert 0 < remaining <= 5
