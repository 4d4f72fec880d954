"""Rate limits in tasks and outside, and named locks, as users meet them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from treadle import App, ConfigError, Conflict, Context, LockHeld, LockLost, RateLimited, Retry, UnknownLimit
from treadle.client.rate_tokens import Broker
from treadle.config import DeclaredQueue
from treadle.core.limit import Take, Taken
from treadle.operate.locks import Lock
from treadle.ports import Storage
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


def an_app(clock: FakeClock | None = None) -> App:
    return App(storage=MemoryStorage(clock))


# Outside of tasks ----------------------------------------------------------------------------------------------------


async def test_a_declared_limit_gives_its_burst_and_then_refuses() -> None:
    app = an_app(FakeClock())
    app.limit("slack", "60/m", burst=3)
    await app.limits.take("slack", 2)
    await app.limits.take("slack")
    with pytest.raises(RateLimited, match="limit slack: no 2 tokens") as caught:
        await app.limits.take("slack", 2)
    assert 1.9 < caught.value.wait < 3.1


async def test_tokens_come_back_by_the_storages_clock() -> None:
    clock = FakeClock()
    app = an_app(clock)
    app.limit("slack", "60/m")
    await app.limits.take("slack")
    with pytest.raises(RateLimited):
        await app.limits.take("slack")
    clock.advance(2.1)
    await app.limits.take("slack")


async def test_whoever_waits_gets_it_as_soon_as_it_is_there() -> None:
    app = an_app()
    app.limit("slack", "10/s", burst=1)
    begun = time.monotonic()
    for _ in range(3):
        await app.limits.take("slack", wait="5s")
    assert 0.19 < time.monotonic() - begun < 4.0


async def test_a_wait_that_is_known_to_be_in_vain_is_not_waited_out() -> None:
    app = an_app()
    app.limit("slow", "1/h")
    await app.limits.take("slow")
    begun = time.monotonic()
    with pytest.raises(RateLimited):
        await app.limits.take("slow", wait="30s")
    assert time.monotonic() - begun < 15.0


async def test_an_unknown_limit_is_an_error_with_a_suggestion() -> None:
    app = an_app()
    app.limit("slack", "5/s")
    with pytest.raises(UnknownLimit, match='did you mean "slack"'):
        await app.limits.take("slac")
    with pytest.raises(UnknownLimit, match="declare it"):
        await app.limits.take("elsewhere")
    with pytest.raises(UnknownLimit):
        await app.limits.get("elsewhere")
    with pytest.raises(UnknownLimit):
        await app.limits.drain("elsewhere")


async def test_more_than_the_burst_at_once_is_an_error_and_no_wait() -> None:
    app = an_app(FakeClock())
    app.limit("slack", "5/s", burst=2)
    for _ in range(2):
        with pytest.raises(ValueError, match="never holds more than 2 tokens, and 3 are wanted at once"):
            await app.limits.take("slack", 3, wait="1h")
    await app.limits.take("slack", 2)


@pytest.mark.parametrize(
    ("name", "rate", "burst", "says"),
    [
        ("slack", "-5/s", None, "rate must be above zero"),
        ("slack", "often", None, "rate must be above zero"),
        ("slack", "5/s", 0, "burst must be"),
        ("no name", "5/s", None, "limit name"),
        ("queue:mail", "5/s", None, "queues' own rates"),
    ],
)
async def test_what_is_wrong_is_refused_where_it_is_written(name: str, rate: str, burst: int | None, says: str) -> None:
    app = an_app()
    with pytest.raises(ValueError, match=says):
        app.limit(name, rate, burst=burst)
    with pytest.raises(ValueError, match=says):
        await app.limits.set(name, rate, burst=burst)


async def test_a_limit_declared_twice_must_be_the_same() -> None:
    app = an_app()
    app.limit("slack", "60/m")
    app.limit("slack", "1/s")
    with pytest.raises(ConfigError, match="declared twice"):
        app.limit("slack", "2/s")


async def test_an_operators_edit_wins_over_the_code() -> None:
    clock = FakeClock()
    storage = MemoryStorage(clock)
    old = App(storage=storage)
    old.limit("slack", "1/s")
    (shown,) = await old.limits.list()
    assert (shown.name, shown.rate, shown.burst, shown.tokens, shown.version) == ("slack", "1/s", 1, 1.0, 1)
    await old.limits.set("slack", "5/s", burst=4, version=shown.version)
    with pytest.raises(Conflict, match="has changed meanwhile"):
        await old.limits.set("slack", "9/s", version=shown.version)
    new = App(storage=storage)
    new.limit("slack", "1/s")
    assert (await new.limits.get("slack")).burst == 4
    assert (await new.limits.get("slack")).tokens == 1.0
    clock.advance(10)
    await new.limits.take("slack", 4)
    assert await new.limits.remove("slack")
    assert not await new.limits.remove("slack")
    assert (await new.limits.get("slack")).burst == 1


async def test_a_drain_also_forgets_what_was_taken_ahead() -> None:
    clock = FakeClock()
    app = an_app(clock)
    app.limit("fast", "1000/s")
    await app.limits.take("fast")
    await app.limits.take("fast")
    await app.limits.drain("fast")
    with pytest.raises(RateLimited):
        await app.limits.take("fast")


def test_everything_is_there_for_sync_code() -> None:
    app = an_app()
    app.limit("slack", "1/h", burst=2)
    app.limits.take_sync("slack")
    app.limits.drain_sync("slack")
    with pytest.raises(RateLimited):
        app.limits.take_sync("slack")
    app.limits.set_sync("slack", "2/h")
    assert app.limits.get_sync("slack").rate == "2/h"
    assert len(app.limits.list_sync()) == 1
    assert app.limits.remove_sync("slack")
    app.close_sync()


# In tasks ------------------------------------------------------------------------------------------------------------


async def test_a_task_takes_a_token_or_is_throttled_uncharged() -> None:
    app = an_app()
    app.limit("slack", "1/h")

    @app.task
    async def post(ctx: Context) -> str:
        await ctx.limit("slack")
        return "posted"

    async with app.worker():
        first = await post.enqueue()
        assert await first.result(timeout="5s") == "posted"
        second = await post.enqueue()
        while (seen := await second.status()).state != "scheduled":
            await asyncio.sleep(0.01)
        assert (seen.attempt, seen.error) == (0, None)
        queue = await app.queues.get("default")
    # The token is an hour away, and the queue rests for a minute at the longest.
    assert queue.cool_until is not None
    assert 50 < queue.cool_until.timestamp() - time.time() < 61


async def test_an_unknown_limit_is_an_ordinary_failed_attempt() -> None:
    app = an_app()

    @app.task(retry=Retry.none())
    async def post(ctx: Context) -> None:
        await ctx.limit("slack", wait="1h")

    async with app.worker():
        job = await post.enqueue()
        while (seen := await job.status()).state != "failed":
            await asyncio.sleep(0.01)
    assert seen.error is not None
    assert seen.error.type.endswith("UnknownLimit")


async def test_a_plain_function_has_the_same_verbs() -> None:
    app = an_app()
    app.limit("slack", "1/h", burst=2)

    @app.task
    def post(ctx: Context) -> float:
        ctx.limit_sync("slack")
        ctx.drain_sync("slack")
        return threading.get_ident()

    async with app.worker():
        job = await post.enqueue()
        assert await job.result(timeout="5s") != threading.get_ident()
    assert (await app.limits.get("slack")).tokens < 0.1


# The broker ----------------------------------------------------------------------------------------------------------


class Counting(MemoryStorage):
    """Counts what is asked of it, and answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.wishes: list[Take] = []
        self.delay = 0.0

    async def take(self, wishes: Any) -> Any:
        self.wishes += wishes
        answers = await super().take(wishes)
        await asyncio.sleep(self.delay)
        return answers


def a_broker(storage: Storage) -> Broker:
    async def ask(verb: Callable[[Storage], Awaitable[Any]]) -> Any:
        return await verb(storage)

    return Broker(ask)


async def test_at_a_high_rate_the_row_is_written_much_less_often_than_tokens_are_used() -> None:
    storage = Counting()
    await storage.save_limit("fast", 1_000, 1_000.0)
    broker = a_broker(storage)
    for _ in range(500):
        assert await broker.take("fast", 1, 0.0) is None
    assert len(storage.wishes) < 30
    assert all(wish.lease <= 1.0 for wish in storage.wishes)


async def test_at_a_low_rate_no_more_is_taken_than_is_used() -> None:
    storage = Counting()
    await storage.save_limit("slow", 5, 1.0)
    broker = a_broker(storage)
    for _ in range(3):
        assert await broker.take("slow", 1, 0.0) is None
    assert [wish.want for wish in storage.wishes] == [1, 1, 1]


async def test_many_who_ask_at_once_ask_the_storage_once() -> None:
    storage = Counting()
    storage.delay = 0.01
    await storage.save_limit("slow", 50, 0.001)
    broker = a_broker(storage)
    answers = await asyncio.gather(*(broker.take("slow", 1, 0.0) for _ in range(60)))
    assert answers.count(None) == 50
    assert len(storage.wishes) <= 4


async def test_an_answer_that_comes_after_its_lease_is_worth_nothing_and_the_next_is_given_more_time() -> None:
    storage = Counting()
    storage.delay = 0.1
    await storage.save_limit("slow", 5, 0.001)
    broker = a_broker(storage)
    assert await broker.take("slow", 1, 0.0) is None
    first, second = storage.wishes
    assert first.lease < storage.delay < second.lease


async def test_a_storage_that_is_always_too_late_is_no_reason_to_wait_for_ever() -> None:
    storage = Counting()
    await storage.save_limit("slow", 50, 0.001)
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 2.0  # every look at it finds the lease over
        return now

    async def ask(verb: Callable[[Storage], Awaitable[Any]]) -> Any:
        return await verb(storage)

    assert await Broker(ask, clock=clock).take("slow", 1, 0.0) is not None
    assert len(storage.wishes) == 3


async def test_each_loop_has_its_own_stock() -> None:
    storage = Counting()
    await storage.save_limit("fast", 1_000, 1_000.0)
    broker = a_broker(storage)
    await broker.take("fast", 1, 0.0)
    await broker.take("fast", 1, 0.0)
    asked = len(storage.wishes)

    def elsewhere() -> None:
        asyncio.run(broker.take("fast", 1, 0.0))  # type: ignore[arg-type]

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert len(storage.wishes) == asked + 1


def test_nothing_is_taken_says_nothing_of_a_problem() -> None:
    assert (Taken().got, Taken().problem) == (0, None)


# Locks ---------------------------------------------------------------------------------------------------------------


async def test_a_lock_has_one_holder_and_is_free_afterwards() -> None:
    app = an_app()
    async with app.lock("import", ttl="5m") as lock:
        first = lock.fence
        (held,) = await app.locks.list()
        assert (held.name, held.owner, held.fence) == ("import", lock.owner, first)
        with pytest.raises(LockHeld, match=f"lock import is held by {lock.owner}, for "):
            async with app.lock("import"):
                pass
    async with app.lock("import") as lock:
        assert lock.fence > first
    assert list(await app.locks.list()) == []
    with pytest.raises(LockLost, match="not held"):
        _ = lock.fence


async def test_whoever_waits_gets_the_lock_when_it_is_free() -> None:
    app = an_app()
    order: list[str] = []

    async def second() -> None:
        async with app.lock("import", wait="5s"):
            order.append("second")

    async with app.lock("import"):
        waiting = asyncio.create_task(second())
        await asyncio.sleep(0.1)
        order.append("first")
    await waiting
    assert order == ["first", "second"]


async def test_a_lock_is_free_after_an_error_too() -> None:
    app = an_app()
    with pytest.raises(ZeroDivisionError):
        async with app.lock("import"):
            _ = 1 // 0
    assert list(await app.locks.list()) == []


async def test_a_lock_may_be_entered_again_by_its_holder() -> None:
    app = an_app()
    lock = app.lock("import", owner="job-7")
    async with lock:
        async with lock:
            fence = lock.fence
        assert lock.fence == fence
        assert [held.fence for held in await app.locks.list()] == [fence]
    assert list(await app.locks.list()) == []


async def test_the_same_owner_as_another_holder_takes_over_and_the_first_ones_exit_frees_nothing() -> None:
    """With `owner=ctx.job_id`, as the docs say, two attempts freed each other's lock."""
    app = an_app()
    second = app.lock("import", owner="job-7")
    async with app.lock("import", owner="job-7") as first:
        fence = first.fence
        await second.acquire()
        assert second.fence > fence
    assert [held.fence for held in await app.locks.list()] == [second.fence]
    with pytest.raises(LockLost):
        _ = first.fence
    assert not await first.release()
    assert await second.release()
    assert list(await app.locks.list()) == []


async def test_whoever_was_taken_over_is_told_when_it_renews_or_enters_again() -> None:
    app = an_app()
    for again in (Lock.renew, Lock.acquire):
        first, second = (app.lock("import", owner="job-7") for _ in range(2))
        await first.acquire()
        await second.acquire()
        with pytest.raises(LockLost, match="was taken over"):
            await again(first)
        assert await second.release()


@pytest.mark.parametrize("owner", [None, "importer"])
async def test_a_run_is_one_holder_whichever_lock_objects_it_uses(owner: str | None) -> None:
    """Two Lock objects, one inside the other, as where a function that locks calls another: the inner exit freed it."""
    app = an_app()
    seen: list[list[int]] = []

    async def look(fence: int) -> None:
        seen.append([held.fence - fence for held in await app.locks.list()])

    @app.task
    async def outer(ctx: Context) -> None:
        async with app.lock("import", owner=owner) as lock:
            await inner()
            await look(lock.fence)
            # Part of the same run, beside it.
            await asyncio.gather(inner(), inner())
            await look(lock.fence)
        await look(0)

    async def inner() -> None:
        async with app.lock("import", owner=owner) as lock:
            await look(lock.fence)

    @app.task
    def plain(ctx: Context) -> None:
        with app.lock("import", owner=owner), app.lock("import", owner=owner) as lock:
            seen.append([held.fence - lock.fence for held in app.locks.list_sync()])

    async with app, app.worker():
        await (await outer.enqueue()).result(timeout="30s")
        assert seen == [[0]] * 5 + [[]]
        await (await plain.enqueue()).result(timeout="30s")
        assert seen[6:] == [[0]]
    assert list(await app.locks.list()) == []


async def test_two_runs_that_use_one_lock_object_exclude_each_other() -> None:
    app = an_app()
    lock = app.lock("import", wait="30s")
    inside: list[str] = []
    most: list[int] = []

    @app.task
    async def one(ctx: Context) -> None:
        async with lock:
            inside.append(ctx.job_id)
            most.append(len(inside))
            await asyncio.sleep(0.02)
            inside.remove(ctx.job_id)

    async with app, app.worker():
        for handle in [await one.enqueue() for _ in range(4)]:
            await handle.result(timeout="30s")
    assert most == [1] * 4
    assert list(await app.locks.list()) == []


async def test_a_lock_that_a_run_took_may_be_left_in_a_thread_that_does_not_know_the_run() -> None:
    app = an_app()

    @app.task
    def plain(ctx: Context) -> None:
        lock = app.lock("import")
        lock.acquire_sync()
        left: list[bool] = []
        thread = threading.Thread(target=lambda: left.append(lock.release_sync()))
        thread.start()
        thread.join()
        assert left == [True]

    async with app, app.worker():
        await (await plain.enqueue()).result(timeout="30s")
    assert list(await app.locks.list()) == []


async def test_a_renewed_lock_lasts_and_one_that_was_taken_over_is_lost() -> None:
    clock = FakeClock()
    app = an_app(clock)
    async with app.lock("import", ttl="60s") as lock:
        clock.advance(50)
        await lock.renew()
        clock.advance(50)
        with pytest.raises(LockHeld):
            await app.lock("import").acquire()
        clock.advance(20)
        other = app.lock("import")
        await other.acquire()
        assert other.fence > lock.fence
        with pytest.raises(LockLost, match="ran out after 1m"):
            await lock.renew()
        assert not await lock.release()
        await other.renew()


async def test_a_lock_that_others_had_meanwhile_is_lost_even_if_it_is_free_again() -> None:
    clock = FakeClock()
    app = an_app(clock)
    async with app.lock("import", ttl="60s") as lock:
        clock.advance(61)
        async with app.lock("import"):
            pass
        with pytest.raises(LockLost):
            await lock.renew()
    assert list(await app.locks.list()) == []


async def test_what_operators_do_to_limits_and_locks_is_in_the_audit() -> None:
    app = an_app(clock := FakeClock())
    app.limit("slack", "60/m", burst=3)
    await app.limits.set("slack", "5/s", burst=9, by="ann")
    clock.advance(1)
    async with app.lock("import"):
        assert await app.locks.free("import", by="ben")
    clock.advance(1)
    assert await app.limits.remove("slack", by="cyd")
    assert not await app.limits.remove("slack")
    lines = await app.audit.list()
    assert [(line.act, line.subject, line.by) for line in lines] == [
        ("limits.remove", "slack", "cyd"),
        ("locks.free", "import", "ben"),
        ("limits.set", "slack", "ann"),
    ]
    assert lines[-1].detail == "5/s, burst 9"
    with pytest.raises(ValueError, match="the queues' own rates"):
        await app.limits.remove("queue:mail")


async def test_an_operator_may_free_a_lock() -> None:
    app = an_app()
    await app.lock("import").acquire()
    assert await app.locks.free("import")
    assert not await app.locks.free("import")
    async with app.lock("import"):
        pass


@pytest.mark.parametrize("fields", [{"ttl": 0}, {"ttl": "-1s"}, {"wait": -1}, {"owner": "no name"}])
async def test_a_wrong_lock_is_refused_where_it_is_written(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"ttl|wait|owner"):
        an_app().lock("import", **fields)


def test_locks_are_there_for_sync_code() -> None:
    app = an_app()
    with app.lock("import") as lock:
        lock.renew_sync()
        assert app.locks.list_sync()[0].fence == lock.fence
        with pytest.raises(LockHeld):
            app.lock("import").acquire_sync()
    lock.acquire_sync()
    assert lock.release_sync()
    assert not app.locks.free_sync("import")
    app.close_sync()


# The pod's own rate --------------------------------------------------------------------------------------------------


async def test_a_worker_may_have_a_rate_of_its_own() -> None:
    app = an_app()
    seen: list[float] = []

    @app.task
    async def work() -> None:
        seen.append(time.monotonic())

    for _ in range(4):
        await work.enqueue()
    async with app.worker(rates={"default": "10/10s"}):
        await asyncio.sleep(0.5)
    assert len(seen) == 1
    app.heed([DeclaredQueue("default", pod_rate=1.0)])
    async with app.worker():
        await asyncio.sleep(0.5)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("rates", "says"), [({"other": "5/s"}, "does not serve"), ({"default": "-5/s"}, "must be above zero")]
)
async def test_a_wrong_rate_of_a_worker_is_refused(rates: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        async with an_app().worker(["default"], rates=rates):
            pass
