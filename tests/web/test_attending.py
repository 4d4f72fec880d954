"""Attention: what doctor found is on the first page and in the API, read beside the page and not by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from treadle import App, checks
from treadle.core.pod import PodCard, PodStats
from treadle.ports import Fact
from treadle.web import Dashboard
from treadle.web.attending import EVERY, Attending

from .world import World, who, world_on

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

    monkeypatch.setattr(checks, "examine", examine)
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

    monkeypatch.setattr(checks, "examine", slow)
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

    monkeypatch.setattr(checks, "examine", fails)
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

        async def failing() -> list[str]:
            web.counts.forget()
            items = web.attending.judge(await web.attending.gather())
            return [item.text for item in items if item.kind == "failing"]

        assert "10 of 30 runs" in (await failing())[0]
        (group,) = (await app.jobs.failures()).groups
        await app.jobs.mute(group.cause)
        assert await failing() == []
        await app.jobs.unmute(group.cause)
        assert await failing()
        await web.close()
