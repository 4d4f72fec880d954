"""Schedules on PostgreSQL, where somebody else's open transaction may hold a row."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests import postgres_server
from treadle.core import schedule as scheduling
from treadle.core.schedule import Plan
from treadle.runtime.services.cron import Cron
from treadle.storages.postgres import PostgresStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")
PLAN = Plan(expression="0 * * * *", task="work", queue="default")


async def test_a_schedule_whose_row_is_held_keeps_no_other_from_being_fired() -> None:
    clock = FakeClock()
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), clock=clock)
    await storage.open()
    for name in ("held", "other"):
        assert await storage.save_schedule(scheduling.add(name, PLAN, clock.now()).schedule, 0)
    clock.advance(3600)
    cron = Cron(storage, dict)
    admin = await asyncpg.connect(postgres_server.shared_url())
    async with admin.transaction():
        await admin.execute(f"select from {storage.schema_name}.schedule where name = 'held' for update")
        begun = time.monotonic()
        await cron.run_once()
        assert time.monotonic() - begun < 5  # not the deadline of a call
        assert [len(await storage.fires(name)) for name in ("held", "other")] == [0, 1]
    await admin.close()
    await cron.run_once()
    assert [len(await storage.fires(name)) for name in ("held", "other")] == [1, 1]
    await storage.close()
