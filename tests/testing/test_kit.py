"""The `jobs` fixture, as a user's tests use it."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import os
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from treadle import App, Context, Retry, Snooze, Wait
from treadle.testing import Jobs, UnexpectedFailure

app = App("sqlite:///never-made.db")
ran: list[Any] = []


@app.task(queue="mail", retry=Retry.fixed("10s", max_attempts=3, jitter=0))
async def welcome(ctx: Context, user_id: int, name: str = "Ada") -> str:
    ran.append((user_id, ctx.attempt))
    if user_id < 0 and ctx.attempt < 3:
        raise ValueError("not yet")
    return name


@app.task
def weekly() -> None:
    ran.append("weekly")
    raise Snooze("7d")


@app.task(retry=Retry.fixed("10s", max_attempts=2, jitter=0))
async def pay(ctx: Context) -> Any:
    if ctx.has_answer:
        return await ctx.answer()
    ran.append(await ctx.answer_token("1h"))
    raise Wait(ran[-1])


@pytest.fixture(autouse=True)
def fresh() -> None:
    ran.clear()


@pytest.mark.anyio
async def test_jobs_are_kept_in_memory_and_run_when_drained(jobs: Jobs) -> None:
    handle = await welcome.enqueue(42)
    found = jobs.assert_enqueued(welcome, 42)
    assert (found.id, found.state, ran) == (handle.id, "ready", [])
    await jobs.drain()
    assert ran == [(42, 1)]
    assert await handle.result() == "Ada"


@pytest.mark.anyio
async def test_delays_come_due_as_the_clock_moves(jobs: Jobs) -> None:
    await welcome.using(delay="3d").enqueue(1)
    await welcome.using(delay="1d").enqueue(2)
    await jobs.advance("2d")
    assert ran == [(2, 1)]
    await jobs.advance("2d")
    assert ran == [(2, 1), (1, 1)]


@pytest.mark.anyio
async def test_retries_happen_at_their_own_instants(jobs: Jobs) -> None:
    handle = await welcome.enqueue(-1)
    begun = jobs.clock.now()
    await jobs.advance("1h")
    assert ran == [(-1, 1), (-1, 2), (-1, 3)]
    job = await handle.status()
    assert job.finished_at == dt.datetime.fromtimestamp(begun + 20, dt.UTC)


@pytest.mark.anyio
async def test_an_unexpected_failure_is_raised_with_the_tasks_own_trace(jobs: Jobs) -> None:
    await welcome.using(max_attempts=1).enqueue(-1)
    with pytest.raises(UnexpectedFailure, match="not yet"):
        await jobs.drain()


@pytest.mark.anyio
async def test_an_attempt_that_will_be_tried_again_fails_no_test(jobs: Jobs) -> None:
    """A drain raised for any attempt that failed, so that no test of a retry could do without `expect_failures`, which
    would have hidden the job's end, too."""
    handle = await welcome.using(max_attempts=2).enqueue(-1)
    await jobs.drain()
    assert (await handle.status()).state == "scheduled"
    with pytest.raises(UnexpectedFailure, match="not yet"):
        await jobs.advance("10s")
    assert (await handle.status()).state == "failed"


@pytest.mark.anyio
async def test_a_task_that_always_snoozes_runs_once_per_drain(jobs: Jobs) -> None:
    await weekly.enqueue()
    await jobs.drain()
    assert ran == ["weekly"]
    await jobs.advance("21d")
    assert len(ran) == 4


def test_it_works_without_a_loop(jobs: Jobs) -> None:
    welcome.enqueue_sync(7)
    jobs.drain_sync()
    assert ran == [(7, 1)]
    welcome.using(delay="1h").enqueue_sync(8)
    jobs.advance_sync("2h")
    assert ran == [(7, 1), (8, 1)]


def test_what_was_not_enqueued_is_named(jobs: Jobs) -> None:
    jobs.assert_not_enqueued(welcome)
    welcome.enqueue_sync(7)
    with pytest.raises(AssertionError, match="user_id': 7"):
        jobs.assert_enqueued(welcome, 8)
    with pytest.raises(AssertionError, match="1 jobs"):
        jobs.assert_not_enqueued(welcome)
    assert [job.args for job in jobs.find("queue:mail")] == [{"user_id": 7}]


def test_an_app_made_during_the_test_is_taken_over_on_request(jobs: Jobs) -> None:
    late = App("sqlite:///never-made-either.db")

    @late.task(name="late")
    def task() -> str:
        return "done"

    jobs.use(late)
    handle = task.enqueue_sync()
    jobs.drain_sync()
    assert handle.result_sync() == "done"


def test_a_task_is_still_its_function() -> None:
    assert app.find(welcome.name) is welcome


@pytest.mark.anyio
async def test_a_test_answers_what_its_jobs_wait_for(jobs: Jobs) -> None:
    handle = await pay.enqueue()
    await jobs.drain()
    assert (await handle.status()).state == "waiting"
    await app.answers.give(ran[0], "paid")
    await jobs.drain()
    assert await handle.result() == "paid"


@pytest.mark.anyio
async def test_waits_are_over_as_the_clock_moves(jobs: Jobs) -> None:
    handle = await pay.enqueue()
    await jobs.advance("59m")
    assert (await handle.status()).state == "waiting"
    await jobs.advance("1m")
    assert (await handle.status()).state == "scheduled"
    with pytest.raises(UnexpectedFailure, match="no answer came within 1h"):
        await jobs.advance("2h")
    job = await handle.status()
    assert (job.state, [error.kind for error in job.errors]) == ("failed", ["expired", "expired"])


@pytest.mark.anyio
async def test_only_an_app_with_something_due_is_started(jobs: Jobs) -> None:
    """Or the other apps of a suite, and the years that a test lets pass, would have to be paid for."""
    entered: list[str] = []

    def an_app(name: str) -> App:
        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[None]:
            entered.append(name)
            yield

        app = App("memory://", lifespan=lifespan)
        app.task(name="work")(asyncio.sleep)
        jobs.use(app)
        return app

    busy, idle = an_app("busy"), an_app("idle")
    for day in (1, 300):
        await busy.enqueue("work", {"delay": 0}, delay=f"{day}d")
    await idle.enqueue("work", {"delay": 0}, delay="1000d")
    await jobs.advance("999d")
    assert entered == ["busy"]
    await jobs.advance("2d")
    assert entered == ["busy", "idle"]


def test_apps_that_nobody_has_any_more_are_left_alone(request: pytest.FixtureRequest) -> None:
    """Those of earlier tests would fire their schedules in this one, until the collector comes by."""

    def earlier() -> weakref.ref[App]:
        gone = App("memory://")

        @gone.every("1h", name="hourly")
        @gone.task(name="work")
        async def work() -> None: ...

        return weakref.ref(gone)  # it is garbage from now on, but a cycle

    gc.disable()
    try:
        gone = earlier()
        assert gone() is not None
        jobs: Jobs = request.getfixturevalue("jobs")
        assert gone() is None
        assert app in jobs._lent
    finally:
        gc.enable()


def test_what_would_have_a_child_process_runs_in_the_test(jobs: Jobs) -> None:
    """A child would know nothing of the test's clock and mocks."""
    app = App("memory://")
    jobs.use(app)
    pids: list[int] = []

    @app.task(name="plain", executor="process", memory="64MiB")
    def plain() -> None:
        pids.append(os.getpid())

    @app.task(name="coroutine", executor="process")
    async def coroutine() -> None:
        pids.append(os.getpid())

    plain.enqueue_sync()
    coroutine.enqueue_sync()
    jobs.drain_sync()
    assert pids == [os.getpid()] * 2


@pytest.mark.anyio
async def test_a_queue_that_comes_into_being_is_drained_too(jobs: Jobs) -> None:
    """The pod of a drain serves the queues that there are as it starts: a job for another one stayed where it was."""
    app = App("memory://")
    jobs.use(app)

    @app.task(name="second", queue="second")
    async def second() -> str:
        return "done"

    @app.task(name="first", queue="first")
    async def first() -> str:
        return (await second.enqueue()).id

    id = await first.enqueue()
    await jobs.drain()
    assert (await app.jobs.get(await id.result())).state == "succeeded"


@pytest.mark.anyio
async def test_another_function_runs_in_place_of_a_tasks_own(jobs: Jobs) -> None:
    seen: list[Any] = []

    async def fake(ctx: Context, **given: Any) -> str:
        seen.append((ctx.task, given))
        return "fake"

    with jobs.override(welcome, fake):
        handle = await welcome.enqueue(3, name="Bo")
        with pytest.raises(TypeError):
            await welcome.bind("no", "such", "call")  # type: ignore[call-arg,arg-type,misc]  # pyright: ignore
        await jobs.drain()
        assert await handle.result() == "fake"
    assert (seen, ran) == ([(welcome.name, {"user_id": 3, "name": "Bo"})], [])
    await welcome.enqueue(4)
    await jobs.drain()
    assert ran == [(4, 1)]


@pytest.mark.parametrize("mocked", [Mock(return_value=7), AsyncMock(return_value=7), lambda *items, **named: 7])
def test_a_mock_takes_the_place_of_what_runs_outside(jobs: Jobs, mocked: Any) -> None:
    app = App("memory://")
    jobs.use(app)

    @app.command("/usr/bin/false", "{path}")
    def shrink(path: str) -> int: ...

    @app.task(name="many", batch=10)
    async def many(items: list[int]) -> list[int]:
        return items

    with jobs.override(shrink, mocked), jobs.override(many, lambda items: [7 for _ in items]):
        small, item = shrink.enqueue_sync("a.png"), many.enqueue_sync(1)
        jobs.drain_sync()
        assert (small.result_sync(), item.result_sync()) == (7, 7)
    small = shrink.using(max_attempts=1).enqueue_sync("a.png")
    with pytest.raises(UnexpectedFailure):
        jobs.drain_sync()
    assert small.status_sync().state == "failed"


@pytest.mark.anyio
async def test_what_was_overridden_is_restored_after_an_error(jobs: Jobs) -> None:
    own = dict(vars(weekly))
    with jobs.override(weekly, AsyncMock(side_effect=KeyError)):
        assert weekly.executor == "async"
        await weekly.using(max_attempts=1).enqueue()
        with pytest.raises(UnexpectedFailure, match="KeyError"):
            await jobs.drain()
    assert vars(weekly) == own
