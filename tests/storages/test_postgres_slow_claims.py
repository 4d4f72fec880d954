"""A transaction that somebody has left open is told once it slows claims down, and not before."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests import postgres_server
from treadle import App
from treadle.core.fact import Fact
from treadle.core.outcome import Succeeded
from treadle.storages.postgres import PostgresStorage, facts
from treadle.testing.conformance.builders import a_job, a_token, finished, want
from treadle.testing.conformance.steps import a_live_pod
from treadle.web import Dashboard

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")

JOBS = 4_000


class Scene(NamedTuple):
    storage: PostgresStorage
    admin: Any
    idler: Any


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """A database of its own: a snapshot holds back only its own database."""
    monkeypatch.setattr(facts, "HELD", 0.0)
    monkeypatch.setattr(facts, "MANY_PAGES", 200)
    name, url = postgres_server.a_schema(), postgres_server.shared_url()
    async with AsyncExitStack() as stack:
        server = await asyncpg.connect(url)
        stack.push_async_callback(server.close)
        await server.execute(f"create database {name}")
        stack.push_async_callback(server.execute, f"drop database {name} with (force)")
        way = f"postgresql://postgres@/{name}?{urlsplit(url).query}"
        storage = PostgresStorage(way)
        await storage.open()
        stack.push_async_callback(storage.close)
        admin = await asyncpg.connect(way)
        stack.push_async_callback(admin.close)
        idler = await asyncpg.connect(way, server_settings={"application_name": "psql"})
        stack.push_async_callback(idler.close)
        yield Scene(storage, admin, idler)


async def told(storage: PostgresStorage, code: str = "slow-claims") -> Fact:
    return next(fact for fact in await storage.facts() if fact.code == code)


async def drain(storage: PostgresStorage) -> None:
    await storage.insert([a_job() for _ in range(JOBS)])
    pod = await a_live_pod(storage, lease=600.0)
    while jobs := (await storage.claim(pod, a_token(), [want(limit=500)])).jobs:
        await storage.apply([finished(job, Succeeded()) for job in jobs])


async def test_a_held_snapshot_is_told_once_claims_walk_over_dead_rows(scene: Scene) -> None:
    storage, admin, idler = scene
    await storage.insert([a_job()])
    await idler.execute("begin isolation level repeatable read; select count(*) from treadle.job")
    assert (await told(storage)).level == "ok"  # it is open, and harms nobody
    await drain(storage)
    found = await told(storage)
    pid = idler.get_server_pid()
    assert found.level == "warn" and found.remedy == f"SELECT pg_terminate_backend({pid})"
    assert f"because session {pid} (user postgres, psql, idle in transaction) has held its snapshot for" in found.text

    app = App(storage=storage)
    web = Dashboard(app, access="open", pages=False)
    await web.attending.look()
    (item,) = [item for item in web.attending.judge(await web.attending.gather()) if item.kind == "slow-claims"]
    assert (item.level, item.remedy) == ("warn", found.remedy) and f"because session {pid} (user postgres" in item.text

    await admin.execute(found.remedy)  # and the command helps
    async with asyncio.timeout(60):
        while (await told(storage)).level != "ok":
            await admin.execute("vacuum treadle.job")
    await web.attending.look()
    assert not [item for item in web.attending.judge(await web.attending.gather()) if item.kind == "slow-claims"]
    await web.close()


async def test_a_transaction_that_is_merely_long_is_for_doctor_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, _, idler = scene
    monkeypatch.setattr(facts, "OLD_SNAPSHOT", 0.0)
    await idler.execute("begin isolation level repeatable read; select count(*) from treadle.job")
    long = await told(storage, "old-snapshot")
    assert long.level == "warn" and f"session {idler.get_server_pid()} " in long.text
    web = Dashboard(App(storage=storage), access="open", pages=False)
    await web.attending.look()
    kinds = {item.subject or item.kind for item in web.attending.judge(await web.attending.gather())}
    assert not any("SNAPSHOT" in each or "slow" in each for each in kinds), kinds
    await web.close()


async def test_jobs_that_run_are_no_dead_rows(scene: Scene) -> None:
    storage, _, idler = scene
    await storage.insert([a_job() for _ in range(JOBS)])
    await idler.execute("begin isolation level repeatable read; select count(*) from treadle.job")
    pod = await a_live_pod(storage, lease=600.0)
    walked = json.loads((await scene.admin.fetch(facts._WALK))[0][0])
    assert facts.dead_pages(walked) < 100
    assert len((await storage.claim(pod, a_token(), [want(limit=JOBS)])).jobs) > 0
    plan = {"Node Type": "Index Scan", "Actual Loops": 2, "Rows Removed by Filter": 500, "Shared Hit Blocks": 1_040}
    assert facts.dead_pages([{"Plan": plan}]) == 20


async def test_without_a_holder_vacuum_is_named(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MANY_PAGES", 0)
    monkeypatch.setattr(facts, "HELD", 1e9)
    found = await told(scene.storage)
    assert found.remedy == "VACUUM treadle.job" and "vacuum has not removed yet" in found.text
