"""Middleware around runs, follow-ups that tasks declare, hooks by name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from treadle import App, Call, ConfigError, Context, Fail, JobFailed, JobView, Next, Registry, Retry, Snooze

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app() -> AsyncIterator[App]:
    app = App("memory://")
    async with app:
        yield app


def noting(said: list[str], name: str) -> Callable[..., Any]:
    async def layer(ctx: Context[Any], call: Next) -> Any:
        said.append(f"{name} before")
        try:
            return await call()
        finally:
            said.append(f"{name} after")

    return layer


async def test_layers_are_around_each_other_in_their_order(app: App) -> None:
    said: list[str] = []
    library = Registry()
    library.middleware(noting(said, "library"))
    app.middleware(noting(said, "app 1"))
    app.middleware(noting(said, "app 2"))

    @library.task(name="work", middleware=[noting(said, "task")])
    async def work(n: int) -> int:
        said.append("work")
        return n

    @app.task(name="other")
    async def other() -> None: ...

    app.include(library)
    async with app.worker():
        assert await (await work.enqueue(3)).result("10s") == 3
        assert said == [
            "app 1 before", "app 2 before", "library before", "task before", "work",
            "task after", "library after", "app 2 after", "app 1 after",
        ]  # fmt: skip
        said.clear()
        await (await other.enqueue()).result("10s")
        assert said == ["app 1 before", "app 2 before", "app 2 after", "app 1 after"]


async def test_a_layer_sees_and_changes_arguments_and_result(app: App) -> None:
    @app.middleware
    async def double(ctx: Context[Any], call: Next) -> Any:
        assert (call.task, call.args, dict(call.kwargs)) == ("work", (), {"n": 3})
        return await call(n=call.kwargs["n"] * 2) + 1

    @app.task(name="work")
    async def work(n: int) -> int:
        return n

    async with app.worker():
        assert await (await work.enqueue(3)).result("10s") == 7


async def test_a_layer_may_stop_short(app: App) -> None:
    ran: list[int] = []

    @app.middleware
    async def gate(ctx: Context[Any], call: Next) -> Any:
        if call.kwargs["n"] == 1:
            return "from the cache"
        if call.kwargs["n"] == 2:
            raise Fail("not today")
        if call.kwargs["n"] == 3 and not ran:
            ran.append(0)
            raise Snooze("1s")
        return await call()

    @app.task(name="work")
    async def work(n: int) -> str:
        ran.append(n)
        return "ran"

    async with app.worker():
        assert await (await work.enqueue(1)).result("10s") == "from the cache"
        with pytest.raises(JobFailed, match="not today"):
            await (await work.enqueue(2)).result("10s")
        snoozed = await work.enqueue(3)
        assert await snoozed.result("10s") == "ran"
        assert (await snoozed.status()).attempt == 1
    assert ran == [0, 3]


async def test_a_layer_may_turn_one_exception_into_another(app: App) -> None:
    @app.middleware
    async def mapped(ctx: Context[Any], call: Next) -> Any:
        try:
            return await call()
        except KeyError as error:
            raise Fail(f"no such thing: {error}") from error

    @app.task(name="work")
    async def work() -> None:
        raise KeyError("x")

    async with app.worker():
        handle = await work.enqueue()
        with pytest.raises(JobFailed, match="no such thing"):
            await handle.result("10s")
    assert (await handle.status()).attempt == 1


async def test_a_plain_layer_runs_in_the_thread_of_a_plain_function(app: App) -> None:
    threads: dict[str, str] = {}
    local = threading.local()

    @app.middleware
    def connection(ctx: Context[Any], call: Next) -> Any:
        threads["layer"] = threading.current_thread().name
        local.connection = "open"
        try:
            return call(*call.args, **call.kwargs)
        finally:
            del local.connection

    @app.middleware
    async def outer(ctx: Context[Any], call: Next) -> Any:
        threads["outer"] = threading.current_thread().name
        return f"[{await call()}]"

    @app.task(name="work")
    def work(ctx: Context, n: int) -> str:
        threads["work"] = threading.current_thread().name
        return f"{local.connection} {n} {ctx.attempt}"

    async with app.worker():
        assert await (await work.enqueue(5)).result("10s") == "[open 5 1]"
    assert threads["layer"] == threads["work"] != threads["outer"] == threading.current_thread().name


async def test_what_is_no_middleware_is_refused(app: App) -> None:
    with pytest.raises(ConfigError, match="must take"):
        app.middleware(lambda ctx: None)  # type: ignore[arg-type, misc]
    with pytest.raises(ConfigError, match="must be a function"):
        app.middleware("timing")  # type: ignore[type-var]

    def plain(ctx: Context[Any], call: Next) -> Any: ...

    with pytest.raises(ConfigError, match="run in threads"):

        @app.task(middleware=[plain])
        async def work() -> None: ...


async def test_an_error_of_a_layer_is_the_runs_own(app: App) -> None:
    @app.middleware
    async def broken(ctx: Context[Any], call: Next) -> Any:
        raise SystemExit(3)  # not even that may end the pod

    @app.task(name="work", retry=1)
    async def work() -> None: ...

    async with app.worker():
        with pytest.raises(JobFailed, match="SystemExit"):
            await (await work.enqueue()).result("10s")


# Declared follow-ups -------------------------------------------------------------------------------------------------


async def test_a_declared_follow_up_is_enqueued_with_the_end_that_it_is_for(app: App) -> None:
    told: list[tuple[str, str, int]] = []

    @app.task(name="tell")
    async def tell(state: str, job: str, attempt: int) -> None:
        told.append((state, job, attempt))

    @app.task(name="work", retry=Retry(max_attempts=2, base=0.01))
    async def work(good: bool) -> None:
        if not good:
            raise ValueError("no")

    @work.follow_up("succeeded")
    @work.follow_up("failed")
    @work.follow_up("retried")
    def telling(job: JobView) -> list[Call[None]]:
        return [tell.bind(job.state, job.id, job.attempt)]

    async with app.worker():
        good, bad = await work.enqueue(True), await work.enqueue(False)
        await app.client.wait_for_end(good.id, 10)
        await app.client.wait_for_end(bad.id, 10)
        async with asyncio.timeout(20):
            while (await app.jobs.count("task:tell"))["succeeded"] < 3:
                await asyncio.sleep(0.01)
    assert sorted(told) == sorted([("succeeded", good.id, 1), ("scheduled", bad.id, 1), ("failed", bad.id, 2)])
    (first, *_) = (await app.jobs.find("task:tell")).jobs
    assert first.meta["treadle:parent"] in (good.id, bad.id)


async def test_a_cancelled_run_is_followed_too(app: App) -> None:
    @app.task(name="tell")
    async def tell() -> None: ...

    @app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(60)

    work.follow_up("cancelled")(lambda job: tell.bind())
    async with app.worker():
        handle = await work.enqueue()
        while (await handle.status()).state != "running":
            await asyncio.sleep(0.01)
        await handle.cancel()
        await app.client.wait_for_end(handle.id, 20)
        assert len((await app.jobs.find("task:tell")).jobs) == 1


async def test_a_follow_up_that_cannot_be_built_does_not_harm_its_job(app: App) -> None:
    @app.task(name="work")
    async def work() -> int:
        return 1

    @work.follow_up("succeeded")
    def broken(job: JobView) -> None:
        raise ValueError("no")

    async with app.worker() as pod:
        assert await (await work.enqueue()).result("10s") == 1
        assert pod.follow_ups.errors == {"work": 1}


def test_an_end_that_there_is_not_is_refused() -> None:
    app = App("memory://")

    @app.task
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="did you mean 'failed'"):
        work.follow_up("faild")  # type: ignore[arg-type]


async def test_hooks_have_a_decorator_each(app: App) -> None:
    told: list[str] = []

    @app.on_enqueued
    def enqueued(job: JobView) -> None:
        told.append("enqueued")

    for name in ("started", "succeeded", "retried", "failed", "cancelled", "rescued", "snoozed", "throttled"):

        def hook(job: JobView, name: str = name) -> None:
            told.append(name)

        getattr(app, f"on_{name}")(hook)

    @app.task(name="work")
    async def work() -> None: ...

    async with app.worker():
        await (await work.enqueue()).result("10s")
    assert told == ["enqueued", "started", "succeeded"]
