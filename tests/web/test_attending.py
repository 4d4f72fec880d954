"""Attention: what doctor found is on the first page and in the API, read beside the page and not by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from treadle import App
from treadle.core.attention import Item
from treadle.core.pod import PodCard, PodStats
from treadle.core.rollup import Rollup
from treadle.operate import doctor
from treadle.ports import Fact, Storage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import a_job, failing
from treadle.testing.conformance.steps import end, start
from treadle.web import Dashboard
from treadle.web.attending import EVERY, Attending

from .world import World, client, who, world_on

pytestmark = pytest.mark.anyio

ADMIN = {"X-Role": "admin"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", pages=True, filled=False) as made:
        yield made


def examined(monkeypatch: pytest.MonkeyPatch, *facts: Fact) -> list[int]:
    """Doctor finds this; how often it was asked."""
    asked: list[int] = []

    async def examine(app: App) -> Sequence[Fact]:
        asked.append(1)
        return facts

    monkeypatch.setattr(doctor, "examine", examine)
    return asked


LOW = Fact("TREADLE-DISK-ROOM", "warn", "7 MiB free on the disk", "make room")


async def test_the_first_page_and_the_api_tell_what_doctor_warns_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined(monkeypatch, LOW)
    await world.web.attending.look()
    page = (await world.http.get("/", headers=ADMIN)).text
    assert "7 MiB free on the disk" in page and "make room" in page and "treadle doctor" in page
    assert 'href="/system"' in page
    items = (await world.get("/attention", role="viewer")).json()["items"]
    (item,) = [each for each in items if each["kind"] == "disk"]
    assert item["remedy"] == "treadle doctor" and item["page"] == "system" and item["seconds"] >= 0


async def test_doctor_is_asked_every_thirty_seconds_and_no_page_waits_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, gate, asked = 100.0, asyncio.Event(), 0

    async def slow(app: App) -> Sequence[Fact]:
        nonlocal asked
        asked += 1
        await gate.wait()
        return [LOW]

    monkeypatch.setattr(doctor, "examine", slow)
    attending = Attending(world.web, clock=lambda: now)
    begun = time.perf_counter()
    assert attending.facts() == ()  # it is not there yet, and nobody waits
    assert time.perf_counter() - begun < 0.05
    await asyncio.sleep(0.05)
    assert attending.facts() == () and asked == 1
    gate.set()
    assert attending._asking is not None
    await attending._asking
    assert LOW in attending.facts() and asked == 1
    now += EVERY - 1
    assert LOW in attending.facts() and asked == 1
    now += 1
    assert LOW in attending.facts() and attending._asking is not None  # the old ones, while it looks again
    await attending._asking
    assert asked == 2
    attending.close()


async def test_pages_are_told_when_doctor_finds_something_else(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stirred: list[str] = []
    monkeypatch.setattr(world.web.hub, "stir", stirred.append)
    examined(monkeypatch, LOW)
    await world.web.attending.look()
    await world.web.attending.look()
    assert stirred == ["pods"]
    examined(monkeypatch)
    await world.web.attending.look()
    assert stirred == ["pods", "pods"]


async def test_what_was_found_stays_while_the_storage_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    examined(monkeypatch, LOW)
    await world.web.attending.look()

    async def fails(app: App) -> Sequence[Fact]:
        raise ConnectionError("away")

    monkeypatch.setattr(doctor, "examine", fails)
    await world.web.attending.look()
    assert LOW in world.web.attending.facts()


async def test_a_schema_that_is_behind_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from treadle.ports import SchemaStatus

    async def schema(*_: Any) -> SchemaStatus:
        return SchemaStatus(current=3, newest=4, pending=("0004",))

    monkeypatch.setattr(type(world.app.storage), "schema", schema)
    await world.web.attending.look()
    page = (await world.http.get("/", headers=ADMIN)).text
    assert "schema 3 of 4: it must be migrated" in page and "treadle db migrate" in page


async def test_a_pod_whose_loop_is_blocked_names_the_task(world: World) -> None:
    storage = world.app.storage
    card = PodCard(id="p1", label="web-1", host="box", pid=1, version="1", queues={"q": 1}, tasks=(), lease=30.0)
    await storage.register(card)
    await storage.beat("p1", 30.0, (), stats=PodStats(loop_lag=0.8, slow_task="resize", clock_skew=3.0))
    page = (await world.http.get("/", headers=ADMIN)).text
    assert "the loop of pod web-1 was blocked for 800ms by the task resize" in page
    assert "the clock of box, where pod web-1 runs, is 3s ahead of the storage" in page


async def test_failures_of_a_muted_cause_raise_no_alarm(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/x.db", queues=["default"])

    @app.task(name="broken", retry=1)
    async def broken() -> None:
        raise ValueError("known")

    @app.task(name="fine")
    async def fine() -> None: ...

    async with app:
        async with app.worker(slots=8) as pod:
            jobs = [await (broken if n < 10 else fine).enqueue() for n in range(30)]
            for job in jobs:
                await app.client.wait_for_end(job.id, 10)
            await pod.recorder.run_once()
        web = Dashboard(app, access=who, pages=False)

        (told,) = await told_when(web, lambda items: bool(items) and "ValueError" in items[0].text)
        assert (
            "task broken in queue default fails: 10 of 10 runs in the last 1h (100 %), mostly ValueError" in told.text
        )
        (group,) = (await app.jobs.failures()).groups
        await app.jobs.mute(group.cause)
        await told_when(web, lambda items: not items)
        await app.jobs.unmute(group.cause)
        await told_when(web, bool)
        await web.close()


async def told_when(web: Dashboard, wanted: Callable[[list[Item]], bool]) -> list[Item]:
    """What is told of failing tasks, once it is as it should be: causes come a moment later than the page."""
    async with asyncio.timeout(120):
        while True:
            web.counts.forget()
            items = web.attending.judge(await web.attending.gather())
            found = [item for item in items if item.kind == "failing"]
            if wanted(found):
                return found
            await asyncio.sleep(0.02)


@pytest.fixture(params=["sqlite", "postgres"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Storage]:
    if request.param == "sqlite":
        made: Storage = SQLiteStorage(tmp_path / "x.db")
    else:
        made = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await made.open()
    yield made
    await made.close()


async def test_a_task_that_only_retries_is_told_beside_a_hundred_thousand_good_runs(storage: Storage) -> None:
    """All runs judged together were 0.3 % bad, and no job had failed for good: neither page said a word."""
    now = await storage.time()
    minute = now - now % 60
    counted = [("media", "encode", {"succeeded": 100_000}), ("mail", "work", {"retried": 285})]
    rows = [Rollup(resolution=60, at=minute, queue=queue, task=task, outcomes=each) for queue, task, each in counted]
    await storage.roll_up(rows)
    for _ in range(3):
        job = await start(storage, queue="mail")
        await end(storage, job, failing(after=600.0, message="no", type="Declined", place="shop:pay"))
    app = App(storage=storage)
    web = Dashboard(app, access=who, pages=True)
    (told,) = await told_when(web, lambda items: bool(items) and "Declined" in items[0].text)
    assert told.text == (
        "task work in queue mail fails: 285 of 285 runs in the last 5m (100 %), mostly Declined in shop:pay"
    )
    assert (told.level, told.filter) == ("error", 'is:retrying queue:mail cause:"work:Declined:shop:pay"')
    async with client(web) as http:
        page = (await http.get("/", headers=ADMIN)).text
    assert "285 of 285 runs" in page
    await web.close()


async def test_a_task_that_fails_as_usual_is_not_told(storage: Storage) -> None:
    now = await storage.time()
    minute = now - now % 60
    share = {"retried": 20, "succeeded": 80}
    day = [Rollup(resolution=60, at=minute - n * 300, queue="mail", task="pay", outcomes=share) for n in range(1, 40)]
    await storage.roll_up([*day, Rollup(resolution=60, at=minute, queue="mail", task="pay", outcomes=share)])
    web = Dashboard(App(storage=storage), access=who, pages=False)
    await told_when(web, lambda items: not items)
    worse = Rollup(resolution=60, at=minute, queue="mail", task="pay", outcomes={"retried": 90, "succeeded": 10})
    await storage.roll_up([worse])
    (told,) = await told_when(web, lambda items: bool(items) and "usually" in items[0].text)
    assert "usually 20 %" in told.text
    await web.close()


async def test_a_paused_queue_with_a_backlog_is_told_at_once(storage: Storage) -> None:
    await storage.insert([a_job(queue="mail") for _ in range(3)])
    app = App(storage=storage)
    await app.queues.pause("mail", reason="provider down", by="ann")
    web = Dashboard(app, access=who, pages=False)
    items = web.attending.judge(await web.attending.gather())
    (told,) = [item for item in items if item.kind == "paused"]
    assert told.text.startswith("queue mail is paused by ann: provider down; 3 jobs wait, the oldest for ")
    await app.queues.resume("mail", by="ann")
    web.counts.forget()
    items = web.attending.judge(await web.attending.gather())
    assert [item for item in items if item.kind == "paused"] == []
    await web.close()
