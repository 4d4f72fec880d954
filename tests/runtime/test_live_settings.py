"""A queue's live settings in real pods: heard within two seconds, while the next beat is half a minute away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from treadle import App, Context, Retry
from treadle.config import DeclaredQueue, Timing
from treadle.core.errors import ConfigError
from treadle.core.partition import Partitions
from treadle.runtime.heart import DEAF_BEAT
from treadle.storages.memory.storage import MemoryStorage

pytestmark = pytest.mark.anyio

SOON = 10.0  # two seconds are promised; a busy machine may take longer, but not until the next beat
SELDOM = Timing(lease=90.0, beat=30.0, poll=0.5, scan=30.0, start_jitter=0.0, grace=1.0, cancel_grace=0.3)


async def until(holds: Callable[[], bool], within: float = SOON) -> float:
    """How long it took."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < within, "it took too long"
        await asyncio.sleep(0.01)
    return time.monotonic() - began


class Gates:
    """An app whose one task waits until it is let go."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.running: set[str] = set()
        self.ended: list[str] = []
        self.go = asyncio.Event()

        @app.task(name="wait", queue="mail", retry=Retry(max_attempts=5))
        async def wait(ctx: Context) -> None:
            self.running.add(ctx.job_id)
            try:
                await self.go.wait()
            finally:
                self.running.discard(ctx.job_id)
                self.ended.append(ctx.job_id)

        self.wait = wait

    async def put(self, count: int) -> None:
        await self.app.enqueue_many([self.wait.bind() for _ in range(count)])


@pytest.fixture(params=["memory", "sqlite"])
async def gates(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Gates]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"
    async with App(url) as app:
        gates = Gates(app)
        yield gates
        gates.go.set()


async def test_scale_is_heard_at_once_and_never_cancels_a_run(gates: Gates) -> None:
    await gates.app.queues.scale("mail", 2)
    await gates.put(10)
    async with gates.app.worker(queues={"mail": 10}, timing=SELDOM):
        await until(lambda: len(gates.running) == 2)
        await asyncio.sleep(0.1)
        assert len(gates.running) == 2  # known before the first claim, though no beat has come
        await gates.app.queues.scale("mail", 6)
        await until(lambda: len(gates.running) == 6)
        before = set(gates.running)
        await gates.app.queues.scale("mail", 1)
        await asyncio.sleep(0.3)
        assert gates.running == before
        assert gates.ended == []
        gates.go.set()
        await until(lambda: len(gates.ended) == 10, 5.0)


async def test_pause_and_resume_are_heard_at_once(gates: Gates) -> None:
    async with gates.app.worker(queues={"mail": 10}, timing=SELDOM):
        await gates.put(1)
        await until(lambda: len(gates.running) == 1)
        await gates.app.queues.pause("mail", reason="provider down", by="ann")
        await gates.put(2)
        await asyncio.sleep(0.2)
        assert len(gates.running) == 1
        await gates.app.queues.resume("mail")
        await until(lambda: len(gates.running) == 3)
        assert gates.ended == []
        gates.go.set()


async def test_where_nobody_tells_of_it_settings_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    monkeypatch.setattr(MemoryStorage, "signals_work", property(lambda self: False))
    monkeypatch.setattr(storage, "listen", lambda on_wake: lambda: None)  # behind a pooler, nothing is heard
    async with App(storage=storage) as app:
        gates = Gates(app)
        await app.queues.scale("mail", 1)
        await gates.put(3)
        async with app.worker(queues={"mail": 10}, timing=SELDOM):
            await until(lambda: len(gates.running) == 1)
            await app.queues.scale("mail", 3)
            await until(lambda: len(gates.running) == 3, 1.1 * DEAF_BEAT + 0.5)
            gates.go.set()


async def test_the_retry_override_applies_from_the_next_beat_on() -> None:
    async with App("memory://") as app:

        @app.task(name="fail", queue="mail", retry=Retry(max_attempts=10, base="1h"))
        async def fail(ctx: Context) -> None:
            raise ValueError(f"of {ctx.max_attempts}")

        async with app.worker(queues={"mail": 10}, timing=SELDOM) as pod:
            first = await fail.enqueue()
            await _state(first, "scheduled")
            await app.queues.set("mail", max_attempts=2, backoff="fixed", backoff_base="1s")
            await until(lambda: pod.roster.override("mail") is not None)
            second = await fail.enqueue()
            third = await fail.using(max_attempts=7).enqueue()
            view = await _state(second, "scheduled")
            assert 0.7 <= (view.run_at - view.errors[-1].ended_at).total_seconds() <= 1.3
            view = await _state(second, "failed")
            assert (view.attempt, view.error.message) == (2, "of 2")
            view = await _state(third, "scheduled")
            assert view.error.message == "of 7"
            assert (await first.status()).attempt == 1


async def _state(handle: Any, state: str) -> Any:
    for _ in range(500):
        view = await handle.status()
        if view.state == state:
            return view
        await asyncio.sleep(0.01)
    raise AssertionError(f"it is {view.state}, not {state}")


async def test_a_queues_timeout_ends_what_runs_too_long() -> None:
    async with App("memory://") as app:
        gates = Gates(app)
        await app.queues.set("mail", timeout="100ms", max_attempts=1)
        async with app.worker(queues={"mail": 10}, timing=SELDOM):
            handle = await gates.wait.enqueue()
            view = await _state(handle, "failed")
            assert view.error.kind == "timeout"
            assert "0.1 s" in view.error.message
            pinned = await gates.wait.using(timeout="1h").enqueue()
            await until(lambda: pinned.id in gates.running)
            await asyncio.sleep(0.2)
            assert pinned.id in gates.running
            gates.go.set()


# Declared in code ----------------------------------------------------------------------------------------------------


async def test_what_is_declared_seeds_the_row_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with App(url) as app:
        mail = app.queue("mail", max_workers=4, rate="90/m", backoff_base="30s", owner="ops", docs="https://wiki/mail")
        assert mail == "mail"
        app.queue("unserved", max_workers=1)
        async with app.worker(queues=["mail"], timing=SELDOM):
            found = await app.queues.get("mail")
            assert (found.max_workers, found.rate, found.backoff_base) == (4, 1.5, 30.0)
            assert (found.owner, found.docs, found.drift) == ("ops", "https://wiki/mail", ())
            assert [queue.name for queue in await app.queues.list()] == ["mail"]
            await app.queues.set("mail", max_workers=9, rate=None)
    async with App(url) as newer:
        newer.queue("mail", max_workers=5, rate="1/s")
        async with newer.worker(queues=["mail"], timing=SELDOM):
            found = await newer.queues.get("mail")
            assert (found.max_workers, found.rate, found.backoff_base) == (9, None, 30.0)


async def test_the_file_outranks_the_code() -> None:
    app = App("memory://")
    app.queue("mail", max_workers=4, burst=2)
    app.heed([DeclaredQueue("mail", max_workers=7, live={"rate": 2.0})])
    assert app.seeds(["mail", "other"]) == {"mail": {"max_workers": 7, "burst": 2, "rate": 2.0}}
    app.queue("slow", cool_base="2h")
    app.heed([DeclaredQueue("slow", live={"cool_cap": 60.0})])
    with pytest.raises(ConfigError, match="queue slow: cool_base must not be longer than cool_cap"):
        app.seeds(["slow"])


def test_a_wrong_declaration_is_an_error_where_it_stands() -> None:
    app = App("memory://")
    app.queue("mail")
    for told, declare in (
        ("queue mail: it is declared twice", lambda: app.queue("mail")),
        ("queue a b: queue name 'a b' is not allowed", lambda: app.queue("a b")),
        ("queue sms: rate must be above zero", lambda: app.queue("sms", rate=-1)),
        ("queue sms: docs must be a link", lambda: app.queue("sms", docs="wiki")),
        ("task t: docs must be a link", lambda: app.task(name="t", docs="wiki")(lambda: None)),
    ):
        with pytest.raises(ConfigError, match=told):
            declare()
    app.queue("sms")  # a refused declaration leaves nothing behind


async def test_the_catalog_tells_of_tasks_and_of_drift() -> None:
    storage = MemoryStorage()

    def an_app(owner: str) -> App:
        app = App(storage=storage)

        @app.task(name="send", queue="mail", owner=owner, docs="https://wiki/send", tags=["m"])
        async def send() -> None:
            """Send one mail.

            And more.
            """

        @app.task(name="plain", description="said otherwise")
        async def plain() -> None:
            """Not this."""

        return app

    one, two = an_app("ops"), an_app("dev")
    async with one, two, one.worker(label="one", timing=SELDOM):
        plain, send = await one.catalog.tasks()
        assert (send.name, send.queue, send.owner, send.description) == ("send", "mail", "ops", "Send one mail.")
        assert (send.docs, send.tags, send.pods, send.drift) == ("https://wiki/send", ("m",), ("one",), ())
        assert (plain.description, plain.queue) == ("said otherwise", "default")
        assert await one.catalog.task("nobody") is None
        async with two.worker(label="two", timing=SELDOM):
            send = await one.catalog.task("send")
            assert send is not None
            assert send.drift == ('owner: "ops" in one; "dev" in two, the storage',)
            assert set(send.pods) == {"one", "two"}
    assert (await one.catalog.task("send")).pods == ()  # type: ignore[union-attr]


# Partitions ----------------------------------------------------------------------------------------------------------


async def test_an_ordering_key_keeps_its_jobs_in_order() -> None:
    async with App("memory://") as app:
        email = app.queue(Partitions("email", 4), owner="ops")
        ran: list[tuple[str, int]] = []

        @app.task(name="send", queue=email)
        async def send(customer: str, number: int) -> None:
            await asyncio.sleep(0.001 * (number % 3))
            ran.append((customer, number))

        customers = [f"customer-{n}" for n in range(8)]
        jobs = [
            send.using(ordering_key=customer).bind(customer, number) for number in range(10) for customer in customers
        ]
        await app.enqueue_many(jobs)
        found = await app.jobs.find("", limit=100)
        assert {job.queue for job in found.jobs} == {email.of(customer) for customer in customers}
        async with app.worker(slots=1, timing=SELDOM) as pod:
            assert set(pod.roster.queues) == set(email)
            await until(lambda: len(ran) == 80, 10.0)
        for customer in customers:
            assert [number for who, number in ran if who == customer] == list(range(10))
        assert {queue.owner for queue in await app.queues.list()} == {"ops"}


async def test_where_a_job_goes_without_a_key_and_what_a_key_needs() -> None:
    async with App("memory://") as app:

        @app.task(name="send", queue=Partitions("email", 4))
        async def send() -> None: ...

        @app.task(name="other")
        async def other() -> None: ...

        assert (await (await send.enqueue()).status()).queue == "email"
        keyed = send.using(ordering_key="b")
        assert (await (await keyed.enqueue()).status()).queue == "email__p3"
        assert (await (await keyed.using(queue="plain").enqueue()).status()).queue == "plain"
        handle = await app.enqueue("elsewhere", {}, queue=Partitions("sms", 4), ordering_key="b")
        assert (await handle.status()).queue == "sms__p3"
        for wrong in (lambda: other.using(ordering_key="b"), lambda: send.using(queue="x", ordering_key="b")):
            with pytest.raises(ValueError, match="ordering_key needs a partitioned queue"):
                wrong()


# Edits ---------------------------------------------------------------------------------------------------------------


async def test_edits_of_the_retry_override_are_merged() -> None:
    async with App("memory://") as app:
        await app.queues.set("mail", max_attempts=3)
        found = await app.queues.set("mail", backoff="linear", rate="10/s")
        assert (found.max_attempts, found.backoff, found.rate) == (3, "linear", 10.0)
        found = await app.queues.set("mail", max_attempts=None)
        assert (found.max_attempts, found.backoff) == (None, "linear")


def test_the_same_without_a_loop() -> None:
    app = App("memory://")
    assert app.queues.set_sync("mail", keep_failed="forever").keep_failed == "forever"
    assert app.queues.scale_sync("mail", 3).max_workers == 3
    assert app.queues.cool_sync("mail", "1h").cool_until is not None
    assert app.catalog.tasks_sync() == []
    assert app.catalog.task_sync("t") is None
    app.close_sync()


async def test_an_edit_of_an_old_version_is_refused_and_a_wrong_one_writes_nothing() -> None:
    async with App("memory://") as app:
        seen = await app.queues.set("mail", rate=1)
        await app.queues.set("mail", rate=2)
        for given in ({"rate": 3}, {"max_attempts": 3}):
            with pytest.raises(Exception, match="has changed meanwhile"):
                await app.queues.set("mail", version=seen.version, **given)
        for wrong in ({"rate": -1}, {"cool_base": "2d"}, {"max_workers": -1}, {"burst": 1, "aging": "-1s"}):
            with pytest.raises(ValueError, match="must"):
                await app.queues.set("mail", **wrong)
        found = await app.queues.get("mail")
        assert (found.rate, found.burst, found.max_attempts) == (2.0, None, None)


async def test_an_operator_may_cool_a_queue_and_warm_it_again() -> None:
    async with App("memory://") as app:
        found = await app.queues.cool("mail", "1h")
        assert found.cool_until is not None
        assert (await app.queues.warm("mail")).cool_until is None
