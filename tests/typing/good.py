# pyright: strict
"""Code as users write it. Both checkers must have nothing to say about it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from treadle import (
    App,
    AsyncTask,
    BatchContext,
    BatchTask,
    Call,
    Cancel,
    Context,
    Fail,
    Handle,
    JobView,
    Partitions,
    Registry,
    Retry,
    RetryAfter,
    Snooze,
    SyncTask,
    Throttle,
    Unique,
)


@dataclass
class State:
    database: str


@dataclass
class User:
    id: int


@asynccontextmanager
async def lifespan(app: App) -> AsyncGenerator[State]:
    yield State("…")


app = App("memory://", router={"billing.": "billing"}, lifespan=lifespan, retry=Retry(max_attempts=5))
library = Registry(retry=3)


@app.task(queue="mail", retry=Retry(max_attempts=5), timeout="30s")
async def welcome(ctx: Context, user_id: int) -> str:
    if ctx.attempt > 3:
        raise Fail("gone")
    if ctx.stopping:
        raise Snooze("10m")
    if ctx.cancelled:
        raise Cancel("no longer wanted")
    ctx.log.info("%s", ctx.remaining())
    ctx.follow(resize.bind("a.png", width=10))
    await ctx.enqueue(resize.bind("a.png", width=10))
    return f"hello {user_id}"


@app.task
def resize(path: str, *, width: int = 100) -> int:
    if width < 1:
        raise RetryAfter(timedelta(seconds=10))
    raise Throttle("30s")


@library.task(name="hello", timeout=None, unique=True, tags=["a"], aliases=["hi"])
async def hello() -> None: ...


@library.task(retry=3, executor="thread", priority=-5, unique=Unique(period="1h"))
def with_state(ctx: Context[State], user: User, *more: int, flag: bool = False) -> User:
    assert_type(ctx.state, State)
    return user


@library.task
def with_names(user: User, **named: str) -> User:
    return user


@app.on("failed")
def on_failure(job: JobView) -> None: ...


@app.on("succeeded")
async def on_success(job: JobView) -> None: ...


app.include(library)

assert_type(hello, AsyncTask[[], None])
assert_type(welcome.bind(42), Call[str])
assert_type(welcome.using(delay="5m").bind(user_id=42), Call[str])


async def main(connection: sqlite3.Connection) -> None:
    handle = await welcome.enqueue(42)
    assert_type(handle, Handle[str])
    assert_type(await handle.result(timeout="10s"), str)
    assert_type((await handle.status()).state, str)
    assert_type(welcome.handle(handle.id), Handle[str])
    assert_type(await resize.handle(handle.id).result(timeout="10s"), int)
    assert_type(app.handle(handle.id), Handle[Any])
    answer = await handle.cancel()
    if answer == "too late":
        ...
    await welcome.enqueue(user_id=42)
    await welcome.using(
        delay=timedelta(minutes=5),
        queue="mail",
        priority=10,
        unique="welcome:42",
        tags=["vip"],
        reason="signed up",
        within=connection,
        timeout=None,
        max_attempts=3,
        meta={"tenant": 1},
    ).enqueue(42)
    await welcome.using(at=datetime.now(UTC), unique=Unique(args=("user_id",))).enqueue(42)
    handles = await app.enqueue_many(welcome.bind(n) for n in range(3))
    assert_type(handles, list[Handle[str]])
    await app.enqueue_many([welcome.bind(1), resize.bind("a.png")])
    assert_type(await app.enqueue(resize.bind("a.png")), Handle[int])
    assert_type(await app.enqueue("other.task", {"a": 1}, queue="x", delay=5), Handle[Any])
    assert_type(await welcome(42), str)
    async with app, app.worker(queues=["mail"], slots={"mail": 20}) as pod:
        await pod.stop()
    page = await app.jobs.find("state:failed queue:mail", limit=10)
    for job in page.jobs:
        await app.jobs.revive(job.id)
    await app.queues.pause("mail", reason="provider down")


def sync() -> None:
    handle = welcome.enqueue_sync(42)
    assert_type(handle.result_sync(timeout=5), str)
    assert_type(with_state.enqueue_sync(User(1), 1, 2, flag=True).result_sync(), User)
    assert_type(with_names.enqueue_sync(User(1), a="b").result_sync(), User)
    assert_type(welcome.handle(handle.id).result_sync(), str)
    assert_type(resize("a.png", width=5), int)
    assert_type(app.enqueue_many_sync([hello.bind()]), list[Handle[None]])


def takes_a_task(task: SyncTask[[int], str]) -> Handle[str]:
    return task.enqueue_sync(42)


@app.every("10m", first="now", overlap="skip", jitter="30s")
@app.cron("0 9 * * MON-FRI", tz="Europe/Berlin", name="mornings", misfire="catch_up", catch_up=10)
@app.task
async def report(ctx: Context, day: str = "today") -> int:
    return len(day)


@app.cron("@hourly", args={"user_id": 42}, paused=True)
@app.task(queue="mail")
async def remind(user_id: int) -> str:
    return f"{user_id}"


async def scheduled() -> None:
    assert_type(await (await report.enqueue("monday")).result(), int)
    assert_type(await (await remind.enqueue(42)).result(), str)
    for schedule in await app.schedules.list():
        await app.schedules.pause(schedule.name, reason="holidays", version=schedule.version)
    handle = await app.schedules.fire("mornings")
    await handle.result()


slow = app.queue("slow", rate="100/m", max_workers=5, timeout=None, owner="ops", docs="https://wiki.example")
email = app.queue(Partitions("email", 4), keep_failed="forever")


@app.task(queue=email, owner="ops", description="Sends one")
async def send_one(to: str) -> str:
    return to


async def edited() -> None:
    assert_type(slow, str)
    assert_type(email, Partitions)
    handle = await send_one.using(ordering_key="customer-42").enqueue("a@example.org")
    assert_type(await handle.result(), str)
    await app.queues.set("slow", aging="1m", backoff="linear", backoff_base=timedelta(seconds=5), rate=None)
    queue = await app.queues.scale("slow", 3)
    assert_type(queue.max_workers, int | None)
    for task in await app.catalog.tasks():
        assert_type(task.drift, tuple[str, ...])


@app.task(batch=100, within="2s", queue="search", unique=Unique.debounced("5s", cap="1m"))
async def index(items: list[User]) -> None: ...


@app.task(batch=10)
async def measure(ctx: BatchContext, items: list[str]) -> list[int | Exception]:
    ctx.jobs[0].follow(index.bind(User(1)))
    return [len(item) if item else Fail("empty") for item in items]


@app.task(batch=10, within=timedelta(seconds=1))
def square(items: list[int]) -> list[float]:
    return [float(n * n) for n in items]


@app.task(batch=10)
def count(ctx: BatchContext[State], items: list[int]) -> None:
    assert_type(ctx.state, State)


async def gathered() -> None:
    assert_type(index, BatchTask[User, None])
    assert_type(square, BatchTask[int, float])
    assert_type(await index.enqueue(User(1)), Handle[None])
    assert_type(await (await square.using(delay="5m").enqueue(3)).result(), float)
    assert_type(square.bind(3), Call[float])
    assert_type(count.enqueue_sync(1), Handle[None])
    await measure.using(unique=Unique(on_conflict="keep_last")).enqueue("a")
    await app.enqueue_many(square.bind(n) for n in range(3))
    await index([User(1)])


@app.task
async def long(ctx: Context) -> None:
    async for page in ctx.iterate(range(10), key=lambda page: page):
        assert_type(page, int)
        await ctx.progress(page, 10, "pages", {"page": page})
        await ctx.progress(0.5, "half of it")
        await ctx.checkpoint({"page": page})
    async for line in ctx.iterate(lambda after: ["a", "b"], key=str.upper, name="lines"):
        assert_type(line, str)
    done: int = await ctx.resume(0)
    last = await ctx.last_progress()
    ctx.set_meta(done=done, share=None if last is None else last.share)
    for name in ctx.iterate_sync(["a", "b"], every="5s"):
        assert_type(name, str)
    assert_type([line.text for line in await app.jobs.logs(ctx.job_id, after=5)], list[str])


@app.command("/usr/bin/convert", "{src}", "-resize", "{size}", exits={75: "throttle 30s"}, memory="1GiB", retry=3)
def scale(src: str, size: int = 100) -> str:
    raise NotImplementedError


thumbs = app.pool("thumbs", ["/usr/bin/node", "worker.js"], size=2, heartbeat="10s")


@thumbs.task
def make_thumb(source: str) -> list[str]:
    raise NotImplementedError


@thumbs.task(name="thumbs.forget", retry=3)
def forget_thumb(source: str) -> None: ...


@app.http("https://hooks.example.com/x", secret="$HOOK_SECRET", timeout="10s", answers=timedelta(hours=1))
def notify_service(order: int) -> dict[str, int]:
    raise NotImplementedError


async def outside() -> None:
    assert_type(await (await scale.enqueue("a.png")).result(), str)
    assert_type(await scale.using(delay="5m").enqueue("a.png", size=3), Handle[str])
    assert_type(make_thumb.bind("a.png"), Call[list[str]])
    assert_type(forget_thumb.enqueue_sync(source="a.png"), Handle[None])
    assert_type(await (await notify_service.enqueue(7)).result(), dict[str, int])
