"""A pod as a whole: what becomes of jobs, however their tasks end."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import threading

import pytest

from treadle.context.context import Context
from treadle.core.job import State, cause_of
from treadle.hooks import Hooks
from treadle.runtime.pod import Pod

from .conftest import ONCE, QUICK, World

pytestmark = pytest.mark.anyio


async def test_a_task_that_returns_has_succeeded_with_its_result(world: World) -> None:
    async with world.pod():
        id = await world.enqueue(world.act, "return")
        job = await world.wait_for(id, State.SUCCEEDED)
    assert (job.result, job.attempt, job.error) == ("42", 1, None)


async def test_a_plain_function_runs_in_a_thread(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.plain, "return"), State.SUCCEEDED)
    assert job.result is not None
    assert "treadle-thread" in job.result


@pytest.mark.parametrize(
    ("what", "type"),
    [
        ("raise", "ValueError"),
        ("exit", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
        ("odd", "tests.runtime.conftest.Odd"),
        ("cancel-itself", "asyncio.exceptions.CancelledError"),
    ],
)
async def test_any_exception_is_a_failed_attempt_and_the_pod_lives_on(world: World, what: str, type: str) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, what), State.FAILED)
        after = await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
    assert job.attempt == 3
    assert [(each.kind, each.type.rsplit(".", 1)[-1]) for each in job.errors] == [
        ("error", type.rsplit(".", 1)[-1])
    ] * 3
    assert after.result == "42"


@pytest.mark.parametrize("what", ["stop-iteration", "exit"])
async def test_any_exception_in_a_thread_is_a_failed_attempt(world: World, what: str) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.plain, what), State.FAILED)
    assert job.error is not None
    # Python itself turns a StopIteration that leaves a coroutine into a RuntimeError; the trace still tells.
    assert ("StopIteration" if what == "stop-iteration" else "SystemExit") in job.error.trace


async def test_the_error_names_the_place_in_the_users_code(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, "raise"), State.FAILED)
    assert job.error is not None
    assert job.error.place.endswith("World._declare.<locals>.act")
    assert "no luck" in job.error.trace
    assert "treadle/runtime/run.py" not in job.error.trace  # our own frames above it tell nobody anything


async def test_snooze_gives_the_charge_back(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, "snooze"), State.SCHEDULED)
    assert (job.attempt, job.snoozes, job.error) == (0, 1, None)
    assert job.run_at - job.created_at > 3500


async def test_throttle_cools_the_whole_queue_and_costs_no_attempt(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, "throttle"), State.SCHEDULED)
        (stats,) = await world.storage.queues()
        other = await world.enqueue(world.act, "return")
        await asyncio.sleep(0.15)  # three polls
        assert (await world.job(other)).state is State.READY
    assert (job.attempt, job.throttles) == (0, 1)
    assert stats.queue.cool_until == job.run_at


async def test_retry_after_is_charged_and_exact(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, "retry-after"), State.SCHEDULED)
    assert job.attempt == 1
    assert job.error is not None and job.error.ended_at is not None
    assert job.run_at - job.error.ended_at == pytest.approx(3600, abs=0.001)


async def test_fail_ends_at_once(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, "fail"), State.FAILED)
    assert job.attempt == 1


async def test_cancel_by_the_task_is_no_failure(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, "cancel"), State.CANCELLED)
    assert job.error is not None
    assert job.error.kind == "cancelled"


async def test_a_result_that_cannot_be_kept_is_still_a_success(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.act, "unserialisable"), State.SUCCEEDED)
    assert job.result is None
    assert job.warning is not None


async def test_arguments_that_do_not_fit_fail_at_once_as_undecodable(world: World) -> None:
    id = await world.enqueue(world.act, "return")
    row = world.storage._rows[id]
    import msgspec

    row.job = msgspec.structs.replace(row.job, args='{"nonsense": 1}')
    async with world.pod():
        job = await world.wait_for(id, State.FAILED)
    assert job.error is not None
    assert (job.error.kind, job.attempt) == ("undecodable", 1)


async def test_a_payload_of_a_newer_format_is_given_back_uncharged_with_a_delay(world: World) -> None:
    id = await world.enqueue(world.act, "return")
    import msgspec

    row = world.storage._rows[id]
    row.job = msgspec.structs.replace(row.job, format=2)
    async with world.pod():
        job = await world.wait_for(id, State.SCHEDULED)
    assert job.attempt == 0


async def test_a_task_that_the_pod_does_not_know_is_not_claimed(world: World) -> None:
    unknown = await world.enqueue_unknown()
    async with world.pod() as pod:
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        assert pod.turner.counts["claimed"] == 1
    job = await world.job(unknown)
    assert (job.state, job.attempt) == (State.READY, 0)


async def test_slots_bound_what_runs_at_once(world: World) -> None:
    ids = [await world.enqueue(world.act, "hang") for _ in range(5)]
    async with world.pod(slots=2):
        await world.wait_for(ids[1], State.RUNNING)
        await asyncio.sleep(0.12)
        states = [(await world.job(id)).state for id in ids]
        assert states == [State.RUNNING, State.RUNNING, State.READY, State.READY, State.READY]
        world.release.set()
        for id in ids:
            await world.wait_for(id, State.SUCCEEDED)


async def test_a_full_executor_leaves_its_tasks_and_takes_the_others(world: World) -> None:
    """The thread pool has four places: a fifth thread task stays in the queue, and an async one overtakes it."""
    threads = [await world.enqueue(world.plain, "deaf") for _ in range(6)]
    async with world.pod(slots=10):
        job = await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        assert job.attempt == 1
        states = [(await world.job(id)).state for id in threads]
        assert states.count(State.RUNNING) == 4
        world.let_go.set()
        for id in threads:
            await world.wait_for(id, State.SUCCEEDED)


# Cancel and deadlines ------------------------------------------------------------------------------------------------


async def test_a_cancelled_run_ends_as_cancelled(world: World) -> None:
    async with world.pod():
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        assert await world.client.cancel(id) == "asked"
        job = await world.wait_for(id, State.CANCELLED)
    assert job.error is not None
    assert (job.error.kind, job.cancel_wanted) == ("cancelled", False)


async def test_a_task_that_returns_in_spite_of_a_cancel_has_succeeded(world: World) -> None:
    async with world.pod():
        id = await world.enqueue(world.act, "swallow")
        await world.started.wait()
        await world.client.cancel(id)
        job = await world.wait_for(id, State.SUCCEEDED)
    assert job.result == '"in spite of it"'


async def test_a_thread_hears_of_its_cancel_by_the_context(world: World) -> None:
    async with world.pod():
        id = await world.enqueue(world.plain, "polite")
        await world.wait_for(id, State.RUNNING)
        await world.client.cancel(id)
        job = await world.wait_for(id, State.CANCELLED)
    assert job.error is not None
    assert job.error.kind == "cancelled"


async def test_a_run_past_its_deadline_is_a_timeout(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.quick, "hang"), State.FAILED)
    assert job.error is not None
    assert job.error.kind == "timeout"
    assert "0.1 s" in job.error.message
    # It is called a timeout, and not by the exception that stopped it; where it was is still told.
    assert (job.error.type, "Cancelled" in job.error.message) == ("", False)
    assert job.error.place and cause_of(job.task, job.error) == f"{job.task}:timeout:{job.error.place}"


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_task_that_returns_within_the_grace_after_its_deadline_has_succeeded(world: World, kind: str) -> None:
    """As with asyncio's own timeout: its effect has happened, and nothing is gained by repeating it."""

    @world.registry.task(name="async", timeout="50ms", retry=ONCE)
    async def catches() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "all the same"
        return "never"

    @world.registry.task(name="thread", timeout="50ms", retry=ONCE)
    def looks(ctx: Context) -> str:
        while not ctx.cancelled:
            world.let_go.wait(0.005)
        return "all the same"

    async with world.pod(timing=dataclasses.replace(QUICK, cancel_grace=10.0)):
        id = await world.enqueue(catches if kind == "async" else looks)
        job = await world.wait_for(id, State.SUCCEEDED, State.FAILED)
    assert (job.state, job.result, job.errors) == (State.SUCCEEDED, '"all the same"', ())


async def test_a_tasks_own_timeout_error_is_an_ordinary_error(world: World) -> None:
    async with world.pod():
        job = await world.wait_for(await world.enqueue(world.quick, "own-timeout"), State.FAILED)
    assert job.error is not None
    assert job.error.kind == "error"


async def test_a_run_that_ignores_its_cancel_is_given_up_after_the_grace(world: World) -> None:
    async with world.pod():
        id = await world.enqueue(world.act, "deaf")
        await world.started.wait()
        await world.client.cancel(id)
        job = await world.wait_for(id, State.CANCELLED)
        later = await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
    assert job.finished_at is not None and later.result == "42"


# Shutdown ------------------------------------------------------------------------------------------------------------


async def test_a_stop_lets_running_jobs_end(world: World) -> None:
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        stopping = asyncio.create_task(pod.stop())
        await asyncio.sleep(0.05)
        late = await world.enqueue(world.act, "return")
        world.release.set()
        await stopping
        assert (await world.job(id)).state is State.SUCCEEDED
        assert (await world.job(late)).state is State.READY
    assert await world.storage.pods() == []


async def test_a_job_released_at_shutdown_is_not_charged(world: World) -> None:
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        await pod.stop(grace=0.3)
        job = await world.job(id)
    assert (job.state, job.attempt, job.error) == (State.READY, 0, None)


async def test_a_hurried_stop_does_not_wait(world: World) -> None:
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        pod.hurry()
        async with asyncio.timeout(15):
            await pod.stop(grace=60)
        assert (await world.job(id)).state is State.READY


async def test_runs_that_cannot_be_stopped_are_given_back_and_their_late_results_are_dropped(world: World) -> None:
    async with world.pod() as pod:
        thread = await world.enqueue(world.plain, "deaf")
        deaf = await world.enqueue(world.act, "deaf")
        await world.wait_for(thread, State.RUNNING)
        await world.wait_for(deaf, State.RUNNING)
        await pod.stop(grace=0.3)
        assert pod.clean
        for id in (thread, deaf):
            job = await world.job(id)
            assert (job.state, job.attempt) == (State.READY, 0)
        world.let_go.set()
        world.release.set()
        await asyncio.sleep(0.05)
        assert (await world.job(thread)).state is State.READY


async def test_a_pod_can_start_again_after_a_stop(world: World) -> None:
    async with world.pod() as pod:
        first = pod.id
        await pod.stop()
        await pod.start()
        assert pod.id != first
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)


# The lease -----------------------------------------------------------------------------------------------------------


async def test_a_task_that_blocks_the_loop_is_reported_and_does_not_cost_the_lease(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with world.pod() as pod:
        before = (await world.storage.pods())[0].beat_at
        await world.wait_for(await world.enqueue(world.quick, "block"), State.SUCCEEDED, State.FAILED)
        assert (await world.storage.pods())[0].beat_at > before
        assert pod.heart.alive
    assert any("blocked" in record.message and "let_go.wait" in record.message for record in caplog.records)


async def test_a_lost_pod_stops_its_runs_and_registers_anew(world: World) -> None:
    """Another pod has rescued the job: this one hears so with its beat, and what its run says is not written."""
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "hang")
        running = await world.wait_for(id, State.RUNNING)
        old = pod.id
        world.storage._pods[old].lost = True
        job = await world.wait_for(id, State.RUNNING, check=lambda job: job.token != running.token)
        assert pod.id != old
        assert (job.attempt, job.crashes) == (2, 1)
        world.release.set()
        await world.wait_for(id, State.SUCCEEDED)
        assert pod.turner.counts["lost"] == 1


async def test_a_dead_pods_jobs_are_rescued_by_the_leader(world: World) -> None:
    async with world.pod() as dead:
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        dead.heart.stop()
        dead.heart.start = lambda *_: None  # type: ignore[method-assign, assignment]
        dead.turner.claiming = False
        world.storage._pods[dead.id].lease_until = 0.0
        async with world.pod() as living:
            job = await world.wait_for(id, State.RUNNING, check=lambda job: job.pod == living.id)
            assert (job.attempt, job.crashes) == (2, 1)
            assert job.errors[-1].kind == "worker_lost"
            world.release.set()
            await world.wait_for(id, State.SUCCEEDED)


async def test_a_run_that_its_own_pod_does_not_end_is_ended_by_the_rescuer(world: World) -> None:
    """The second line: the pod's own watch is broken here, the stored deadline is not."""
    async with world.pod() as pod:
        pod.crew._watch = lambda at: None  # type: ignore[method-assign]
        id = await world.enqueue(world.quick, "hang")
        job = await world.wait_for(id, State.FAILED)
    assert job.error is not None
    assert job.error.kind == "timeout"


async def test_a_claim_whose_answer_was_lost_is_taken_up_with_the_next_turn(world: World) -> None:
    class Deaf(type(world.storage)):  # type: ignore[misc]
        lost = 0

        async def claim(self, pod, token, wants):  # type: ignore[no-untyped-def]
            claimed = await super().claim(pod, token, wants)
            if claimed.jobs and not self.lost:
                self.lost += 1
                raise ConnectionError("the answer was lost")
            return claimed

    world.storage.__class__ = Deaf
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "return")
        job = await world.wait_for(id, State.SUCCEEDED)
        assert pod.turner.counts["recovered"] == 1
    assert job.attempt == 1


async def test_a_finish_whose_answer_was_lost_is_sent_again_and_told_once(world: World) -> None:
    class Deaf(type(world.storage)):  # type: ignore[misc]
        lost = 0

        async def apply(self, changes):  # type: ignore[no-untyped-def]
            answers = await super().apply(changes)
            if not self.lost:
                self.lost += 1
                raise ConnectionError("the answer was lost")
            return answers

    world.storage.__class__ = Deaf
    told: list[str] = []
    async with world.pod() as pod:
        pod.turner._is_heard = lambda: True
        pod.turner._accepted = lambda change, job: told.append(change.why)
        id = await world.enqueue(world.act, "return")
        await world.wait_for(id, State.SUCCEEDED)
        async with asyncio.timeout(5):
            await pod.turner.flush()
        assert pod.turner.counts["succeeded"] == 1
        assert pod.turner.counts["stale"] == 0
    assert told == []  # it happened, but whether somebody was told before is not known: at most once


async def test_a_stale_finish_is_dropped_and_counted(world: World) -> None:
    async with world.pod() as pod:
        id = await world.enqueue(world.act, "hang")
        await world.wait_for(id, State.RUNNING)
        import msgspec

        row = world.storage._rows[id]
        row.job = msgspec.structs.replace(row.job, token="somebody-else's")
        world.release.set()
        async with asyncio.timeout(5):
            while not pod.turner.counts["stale"] and not pod.turner.counts["lost"]:
                await asyncio.sleep(0.005)
    assert (await world.job(id)).state is State.RUNNING


async def test_many_jobs_share_turns(world: World) -> None:
    """Batches fill while a turn is under way: a thousand jobs take far fewer than a thousand turns."""
    calls = 0
    claim = world.storage.claim

    async def counted(*args):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.001)
        return await claim(*args)

    world.storage.claim = counted  # type: ignore[method-assign]
    handles = await world.client.enqueue_many([world.act.bind("return") for _ in range(1000)])
    async with world.pod(slots=100):
        for handle in handles:
            await world.wait_for(handle.id, State.SUCCEEDED)
    assert calls < 60


async def test_threads_of_a_stopped_pod_end() -> None:
    before = threading.active_count()
    world = World()
    async with world.pod():
        await world.wait_for(await world.enqueue(world.plain, "return"), State.SUCCEEDED)
    async with asyncio.timeout(5):
        while threading.active_count() > before:
            await asyncio.sleep(0.01)


async def test_a_pod_that_stops_twice_stops_once(world: World) -> None:
    async with world.pod() as pod:
        await asyncio.gather(pod.stop(), pod.stop())
        assert isinstance(pod, Pod)
        assert QUICK.lease == pod.timing.lease


async def test_a_heart_that_died_is_started_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Without a beat the pod fences itself, and nobody would ever unfence it."""
    async with world.pod() as pod:
        pod.heart.stop()
        async with asyncio.timeout(5):
            while pod.heart.alive:
                await asyncio.sleep(0.005)
            while not pod.heart.alive:
                await asyncio.sleep(0.005)
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
    assert any("heart" in record.message for record in caplog.records)


async def test_follow_ups_come_with_the_success_and_not_without(world: World) -> None:
    @world.registry.task(name="leader", retry=1)
    async def leads(ctx: Context, fails: bool) -> None:
        ctx.follow(world.act.bind("return"))
        if fails:
            raise ValueError("after all")

    async with world.pod():
        await world.wait_for(await world.enqueue(leads, True), State.FAILED)
        good = await world.enqueue(leads, False)
        await world.wait_for(good, State.SUCCEEDED)
        async with asyncio.timeout(5):
            while len(world.storage._rows) < 3:
                await asyncio.sleep(0.005)
        followers = [row.job for row in world.storage._rows.values() if row.job.task == "act"]
        assert len(followers) == 1
        assert followers[0].meta is not None and good in followers[0].meta


async def test_hooks_hear_of_a_job_after_its_commit(world: World) -> None:
    heard: list[tuple[str, str]] = []
    hooks = Hooks()
    for name in ("started", "succeeded", "retried", "failed"):
        hooks.add(name, lambda job, name=name: heard.append((name, job.state)))
    async with world.pod(hooks=hooks):
        await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
        await world.wait_for(await world.enqueue(world.act, "raise"), State.FAILED)
        async with asyncio.timeout(5):
            while ("failed", "failed") not in heard:
                await asyncio.sleep(0.005)
    assert heard[:2] == [("started", "running"), ("succeeded", "succeeded")]
    assert [name for name, _ in heard].count("retried") == 2


async def test_burst_ends_when_nothing_is_due(world: World) -> None:
    ids = [await world.enqueue(world.act, "return") for _ in range(30)]
    later = await world.enqueue(world.act, "return", delay="1h")
    async with world.pod(slots=4) as pod:
        async with asyncio.timeout(5):
            await pod.turner.idle.wait()
        assert {(await world.job(id)).state for id in ids} == {State.SUCCEEDED}
        assert (await world.job(later)).state is State.SCHEDULED


async def test_an_idle_queue_does_not_starve_a_full_one_beside_it(world: World) -> None:
    """The empty answer of one queue once ended the hunger of the whole pod: jobs of the full queue then waited for the
    poll each time, 20 s instead of 0.6 s for forty jobs in two slots."""

    @world.registry.task(name="brief", queue="full")
    async def brief() -> None:
        await asyncio.sleep(0.01)

    ids = [await world.enqueue(brief) for _ in range(40)]
    slow_poll = dataclasses.replace(QUICK, poll=30.0)
    async with world.pod(timing=slow_poll, queues={"full": 2, "idle": 10}), asyncio.timeout(8):
        for id in ids:
            await world.wait_for(id, State.SUCCEEDED)


async def test_a_place_that_becomes_free_in_a_full_executor_is_used_at_once(world: World) -> None:
    """The queue was asked only for async tasks while all threads were busy; that empty answer must not let it rest."""
    ids = [await world.enqueue(world.plain, "return") for _ in range(12)]
    slow_poll = dataclasses.replace(QUICK, poll=30.0)
    async with world.pod(timing=slow_poll), asyncio.timeout(8):
        for id in ids:
            await world.wait_for(id, State.SUCCEEDED)


async def test_a_due_time_is_not_forgotten_over_turns_that_claim_nothing(world: World) -> None:
    """A turn that only writes once set the timer back to the poll: what was due in 0.3 s then came a poll late."""
    slow_poll = dataclasses.replace(QUICK, poll=30.0)
    hanging = await world.enqueue(world.act, "hang")
    due = await world.enqueue(world.act, "return", delay="300ms")
    async with world.pod(timing=slow_poll), asyncio.timeout(5):
        await world.wait_for(hanging, State.RUNNING)
        world.release.set()
        await world.wait_for(hanging, State.SUCCEEDED)
        await world.wait_for(due, State.SUCCEEDED)


async def test_a_wake_during_a_claim_is_not_forgotten(world: World) -> None:
    """The claim has looked and found nothing; a job comes, and its wake arrives before the claim's answer."""
    slow_poll = dataclasses.replace(QUICK, poll=30.0)
    claim, waiting, go_on = world.storage.claim, asyncio.Event(), asyncio.Event()

    async def slow_answer(*args):  # type: ignore[no-untyped-def]
        claimed = await claim(*args)
        waiting.set()
        await go_on.wait()
        return claimed

    world.storage.claim = slow_answer  # type: ignore[method-assign]
    async with world.pod(timing=slow_poll), asyncio.timeout(5):
        await waiting.wait()
        job = await world.enqueue(world.act, "return")
        go_on.set()
        await world.wait_for(job, State.SUCCEEDED)


async def test_where_signals_do_not_work_a_pod_polls_faster(world: World) -> None:
    """Behind a transaction pooler nobody wakes us: a second between looks would be long."""

    class Deaf(type(world.storage)):  # type: ignore[misc]
        signals_work = False

        def listen(self, on_wake):  # type: ignore[no-untyped-def]
            return lambda: None

    world.storage.__class__ = Deaf
    async with world.pod(timing=dataclasses.replace(QUICK, poll=30.0)):
        await asyncio.sleep(0.05)
        async with asyncio.timeout(5):
            await world.wait_for(await world.enqueue(world.act, "return"), State.SUCCEEDED)
