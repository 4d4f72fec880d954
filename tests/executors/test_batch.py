"""Batch tasks: many jobs, one call, an outcome per job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from treadle import (
    App,
    BatchContext,
    Call,
    Cancel,
    ConfigError,
    Context,
    Fail,
    Handle,
    JobFailed,
    JobView,
    Registry,
    Snooze,
)
from treadle.config import Timing
from treadle.context.context import current_job
from treadle.core.errors import PayloadError
from treadle.runtime.pod import Pod
from treadle.testing.kit import Jobs
from treadle.web.schema import schema_of

pytestmark = pytest.mark.anyio

QUICK = Timing(
    lease=3.0,
    beat=0.2,
    scan=0.1,
    poll=0.05,
    grace=2.0,
    cancel_grace=0.3,
    overdue=0.3,
    leader_ttl=1.0,
    leader_every=0.05,
    loop_lag=0.5,
    start_jitter=0.0,
)


@dataclass
class Doc:
    id: int
    text: str = ""


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with App("memory://") as app:
        yield app


@asynccontextmanager
async def serving(app: App, slots: int = 50, **more: Any) -> AsyncIterator[Pod]:
    pod = app.make_pod(queues={"default": slots}, timing=QUICK, **more)
    await pod.start()
    try:
        yield pod
    finally:
        await pod.stop()


async def until(app: App, handle: Handle[Any], check: Callable[[JobView], bool]) -> JobView:
    async with asyncio.timeout(5):
        while not check(view := await handle.status()):
            await asyncio.sleep(0.005)
    return view


async def test_a_full_batch_is_one_call(app: App) -> None:
    calls: list[list[Doc]] = []

    @app.task(batch=3, within="10m")
    async def index(items: list[Doc]) -> None:
        calls.append(items)

    handles = [await index.enqueue(Doc(n)) for n in range(6)]
    async with serving(app):
        assert [await handle.result(5) for handle in handles] == [None] * 6
    assert [[doc.id for doc in call] for call in calls] == [[0, 1, 2], [3, 4, 5]]
    assert all(isinstance(doc, Doc) for call in calls for doc in call)


async def test_what_is_not_full_is_called_when_the_first_has_waited_long_enough(app: App) -> None:
    calls: list[list[int]] = []

    @app.task(batch=100, within="50ms")
    async def index(items: list[int]) -> None:
        calls.append(items)

    async with serving(app):
        handles = [await index.enqueue(n) for n in range(4)]
        for handle in handles:
            await handle.result(5)
    assert sorted(n for call in calls for n in call) == [0, 1, 2, 3]
    assert len(calls) <= 2


async def test_each_job_has_its_own_result_or_its_own_end(app: App) -> None:
    @app.task(batch=6, within="10m", retry=1)
    async def index(items: list[str]) -> list[int | Exception]:
        ends: dict[str, int | Exception] = {
            "raise": ValueError("no luck"),
            "fail": Fail("gone"),
            "snooze": Snooze("1h"),
            "cancel": Cancel("not wanted"),
        }
        return [ends.get(item, len(item)) for item in items]

    handles = [await index.enqueue(item) for item in ("a", "raise", "fail", "snooze", "cancel", "four")]
    async with serving(app):
        assert (await handles[0].result(5), await handles[5].result(5)) == (1, 4)
        views = [await handle.status() for handle in handles]
    assert [view.state for view in views] == ["succeeded", "failed", "failed", "scheduled", "cancelled", "succeeded"]
    assert [view.error.type for view in views if view.error is not None] == ["ValueError", "Fail", "Cancel"]
    assert views[3].attempt == 0


async def test_what_the_call_raises_every_job_gets_with_the_place_where_it_was_raised(app: App) -> None:
    @app.task(batch=2, within="10m", retry=1)
    async def index(items: list[int]) -> None:
        raise LookupError("all of them")

    handles = [await index.enqueue(n) for n in range(2)]
    async with serving(app):
        views = [await until(app, handle, lambda view: view.state == "failed") for handle in handles]
    errors = [view.error for view in views]
    assert [error is not None and (error.type, error.message) for error in errors] == [
        ("LookupError", "all of them")
    ] * 2
    assert [error is not None and error.place.endswith("index") for error in errors] == [True, True]
    assert errors[0] is not None
    assert errors[1] is not None
    assert errors[0].trace == errors[1].trace


@pytest.mark.parametrize(
    ("value", "words"), [([1], "1 results for 2 jobs"), ("ab", "returned a str"), (7, "an int|a int")]
)
async def test_results_that_do_not_fit_are_every_job_s_error(app: App, value: Any, words: str) -> None:
    @app.task(batch=2, within="10m", retry=1)
    async def index(items: list[int]) -> Any:
        return value

    handles = [await index.enqueue(n) for n in range(2)]
    async with serving(app):
        for handle in handles:
            with pytest.raises(JobFailed, match=words):
                await handle.result(5)


async def test_a_plain_def_is_called_in_a_thread(app: App) -> None:
    names: list[str] = []

    @app.task(batch=2, within="10m")
    def index(items: list[int]) -> list[int]:
        names.append(threading.current_thread().name)
        return [n * 2 for n in items]

    handles = [await index.enqueue(n) for n in range(4)]
    async with serving(app):
        assert [await handle.result(5) for handle in handles] == [0, 2, 4, 6]
    assert len(names) == 2
    assert all(name.startswith("treadle-thread") for name in names)


async def test_a_batch_sees_the_contexts_of_its_jobs(app: App) -> None:
    seen: list[Any] = []

    @app.task
    async def after(n: int) -> int:
        return n

    @app.task(batch=2, within="10s", timeout="1m")
    async def index(ctx: BatchContext, items: list[int]) -> None:
        seen.append([(job.job_id, job.attempt) for job in ctx])
        assert (job := current_job.get()) is not None
        assert job.id == ctx[0].job_id
        seen.append((len(ctx), ctx.stopping, ctx.cancelled, ctx.state, ctx[1].job_id))
        left = ctx.remaining()
        assert left is not None
        assert 0 < left <= 60
        ctx.jobs[1].follow(after.using(queue="later").bind(items[1]))

    handles = [await index.enqueue(n) for n in range(2)]
    async with serving(app):
        for handle in handles:
            await handle.result(5)
        found = (await app.jobs.find("queue:later")).jobs
    assert seen[0] == [(handles[0].id, 1), (handles[1].id, 1)]
    assert seen[1] == (2, False, False, None, handles[1].id)
    assert [job.args for job in found] == [{"n": 1}]


async def test_a_job_that_is_cancelled_while_it_is_gathered_leaves_the_batch(app: App) -> None:
    calls: list[list[int]] = []

    @app.task(batch=3, within="10m")
    async def index(items: list[int]) -> None:
        calls.append(items)

    async with serving(app):
        first, second = await index.enqueue(1), await index.enqueue(2)
        await until(app, second, lambda view: view.state == "running")
        assert await first.cancel() == "asked"
        await until(app, first, lambda view: view.state == "cancelled")
        handles = [await index.enqueue(n) for n in (3, 4)]
        for handle in handles:
            await handle.result(5)
    assert calls == [[2, 3, 4]]


async def test_a_cancel_of_one_job_leaves_the_call_of_the_others_alone(app: App) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.task(batch=2, within="10m")
    async def index(items: list[int]) -> None:
        begun.set()
        await go_on.wait()

    async with serving(app):
        first, second = await index.enqueue(1), await index.enqueue(2)
        await begun.wait()
        await first.cancel()
        # The call does not return in time: this job is given up, the other one goes on.
        assert (await until(app, first, lambda view: view.state == "cancelled")).error is not None
        assert (await second.status()).state == "running"
        go_on.set()
        await second.result(5)


async def test_a_cancelled_job_whose_call_returns_in_time_has_succeeded(app: App) -> None:
    begun = asyncio.Event()

    @app.task(batch=2, within="10m")
    async def index(ctx: BatchContext, items: list[int]) -> list[int]:
        begun.set()
        while not ctx[0].cancelled:
            await asyncio.sleep(0.005)
        return items

    async with serving(app):
        first, second = await index.enqueue(1), await index.enqueue(2)
        await begun.wait()
        await first.cancel()
        assert [await first.result(5), await second.result(5)] == [1, 2]


async def test_a_call_that_nobody_waits_for_any_more_is_cancelled(app: App) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @app.task(batch=2, within="10m")
    async def index(items: list[int]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with serving(app):
        handles = [await index.enqueue(n) for n in range(2)]
        await begun.wait()
        for handle in handles:
            await handle.cancel()
        async with asyncio.timeout(5):
            await ended.wait()
        for handle in handles:
            await until(app, handle, lambda view: view.state == "cancelled")


async def test_a_deadline_is_each_job_s_own(app: App) -> None:
    calls: list[list[int]] = []

    @app.task(batch=2, within="10m", timeout=None, retry=1)
    async def index(items: list[int]) -> None:
        calls.append(items)

    async with serving(app):
        late = await index.using(timeout="50ms").enqueue(1)
        view = await until(app, late, lambda view: view.state == "failed")
        assert view.error is not None
        assert view.error.kind == "timeout"
        handles = [await index.enqueue(n) for n in (2, 3)]
        for handle in handles:
            await handle.result(5)
    assert calls == [[2, 3]]


async def test_a_worker_that_stops_gives_back_what_was_not_called_uncharged(app: App) -> None:
    @app.task(batch=3, within="10m")
    async def index(items: list[int]) -> None:
        raise AssertionError("not called")

    handles = [await index.enqueue(n) for n in range(2)]
    async with serving(app) as pod:
        for handle in handles:
            await until(app, handle, lambda view: view.state == "running")
        begun = asyncio.get_running_loop().time()
        await pod.stop(grace=5.0)
        assert asyncio.get_running_loop().time() - begun < 2.0
    views = [await handle.status() for handle in handles]
    assert [(view.state, view.attempt, view.error) for view in views] == [("ready", 0, None)] * 2


async def test_a_call_under_way_is_waited_for_when_the_worker_stops(app: App) -> None:
    begun = asyncio.Event()

    @app.task(batch=2, within="10m")
    async def index(items: list[int]) -> None:
        begun.set()
        await asyncio.sleep(0.1)

    handles = [await index.enqueue(n) for n in range(2)]
    async with serving(app) as pod:
        await begun.wait()
        await pod.stop(grace=5.0)
    assert [(await handle.status()).state for handle in handles] == ["succeeded", "succeeded"]


async def test_a_batch_is_no_larger_than_the_slots_of_its_queue(app: App, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[list[int]] = []

    @app.task(batch=100, within="10m")
    async def index(items: list[int]) -> None:
        calls.append(items)

    handles = [await index.enqueue(n) for n in range(4)]
    async with serving(app, slots=2):
        for handle in handles:
            await handle.result(5)
    assert [len(call) for call in calls] == [2, 2]
    assert "queue default has 2 slots here: its batches are of 2 at most" in caplog.text


async def test_an_item_that_does_not_fit_ends_its_own_job_only(app: App) -> None:
    calls: list[list[Doc]] = []

    @app.task(batch=2, within="10m", name="index")
    async def index(items: list[Doc]) -> None:
        calls.append(items)

    with pytest.raises(PayloadError, match=r"item\.id: .* expected int, got str"):
        await app.enqueue("index", {"item": {"id": "seven"}})
    bad = await app.client.enqueue(Call("index", '{"item":{"id":"seven"}}', index.options))  # as by HTTP, elsewhere
    good = [await index.enqueue(Doc(n)) for n in range(2)]
    async with serving(app):
        for handle in good:
            await handle.result(5)
        view = await until(app, bad, lambda view: view.state == "failed")
    assert view.error is not None
    assert view.error.kind == "undecodable"
    assert calls == [[Doc(0), Doc(1)]]


async def test_results_come_back_as_their_annotation_says(app: App) -> None:
    @app.task(batch=1, within="10m")
    async def load(items: list[int]) -> list[Doc | ValueError]:
        return [Doc(n, "text") for n in items]

    handle = await load.enqueue(7)
    async with serving(app):
        assert await handle.result(5) == Doc(7, "text")


async def test_a_batch_task_is_still_its_function() -> None:
    registry = Registry()

    @registry.task(batch=10)
    async def index(items: list[int]) -> list[int]:
        return [n + 1 for n in items]

    @registry.task(batch=10)
    def sizes(ctx: BatchContext, items: list[str]) -> list[int]:
        return [len(item) + len(ctx) for item in items]

    assert await index([1, 2]) == [2, 3]
    assert sizes(["a", "bc"]) == [3, 4]
    assert index.decode('{"item":1}') == ((), {"item": 1})
    with pytest.raises(PayloadError):
        index.decode("{}")
    with pytest.raises(TypeError):
        index.bind()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "batch must be a whole number from 1 to 10,000"),
        ({"batch": 10_001}, "batch must be a whole number"),
        ({"batch": True}, "batch must be a whole number"),
        ({"batch": 10, "within": "-1s"}, "within"),
        ({"batch": 10, "within": "2h"}, "within must be shorter than the timeout"),
        ({"batch": 10, "executor": "process"}, "leave out executor="),
    ],
)
def test_options_that_make_no_sense_are_refused_where_the_task_is_declared(options: dict[str, Any], words: str) -> None:
    async def index(items: list[int]) -> None: ...

    with pytest.raises(ConfigError, match=words):
        Registry().declare(index, options)


def test_a_batch_task_takes_one_list() -> None:
    async def two(items: list[int], more: int) -> None: ...
    async def none() -> None: ...
    async def one(item: int) -> None: ...
    async def starred(*items: int) -> None: ...
    async def single(ctx: Context, items: list[int]) -> None: ...

    for function in (two, none, one, starred):
        with pytest.raises(ConfigError, match="a batch task takes one list"):
            Registry().declare(function, {"batch": 2})
    assert Registry().declare(single, {"batch": 2}).takes_context


def test_an_annotation_that_is_not_there_yet_is_believed() -> None:
    async def index(items: list[Later]) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore

    index.__annotations__["items"] = "list[Later]"
    assert Registry().declare(index, {"batch": 2}).decode('{"item":1}') == ((), {"item": 1})


def test_whoever_asks_by_name_is_told_of_one_item() -> None:
    registry = Registry()

    @registry.task(batch=2)
    async def index(ctx: BatchContext, items: list[int]) -> None: ...

    schema = schema_of(index)
    assert (schema["properties"], schema["required"]) == ({"item": {"type": "integer"}}, ["item"])
    assert index.bind_named({"item": 7}).args == '{"item":7}'
    with pytest.raises(TypeError, match="no parameter 'items'"):
        index.bind_named({"items": [7]})


async def test_a_drain_in_a_test_does_not_wait_for_a_batch_to_fill(jobs: Jobs) -> None:
    own, calls = App("memory://"), list[list[int]]()
    jobs.use(own)

    @own.task(batch=3, within="10m")
    async def index(items: list[int]) -> None:
        calls.append(items)

    await own.enqueue_many(index.bind(n) for n in range(4))
    await jobs.drain()
    assert calls == [[0, 1, 2], [3]]
