"""Rows of schedules that somebody else has written harm nobody."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from treadle.core import firing
from treadle.core import schedule as scheduling
from treadle.core.schedule import Plan
from treadle.core.schedule_view import fire_view, schedule_view
from treadle.runtime.services.cron import Cron
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio
PLAN = Plan(expression="0 * * * *", task="work", queue="default")


async def test_damaged_rows_are_flagged_and_the_others_fire(tmp_path: Path) -> None:
    clock = FakeClock()
    storage = SQLiteStorage(tmp_path / "jobs.db", clock=clock)
    await storage.open()
    for name in ("a", "b", "c", "d", "good"):
        new = scheduling.add(name, PLAN, clock.now())
        assert await storage.save_schedule(new.schedule, 0)
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as db, db:
        db.execute("update treadle_schedule set definition = x'ff00' where name = 'a'")
        db.execute("update treadle_schedule set version = 'many' where name = 'b'")
        db.execute("update treadle_schedule set progress = '{\"cursor\": 1e300}' where name = 'c'")
        db.execute("update treadle_schedule set definition = replace(definition, '0 * * * *', 'soon') where name = 'd'")
        db.execute("insert into treadle_fire values ('good', 'noon', 'then', 'fired', 'x', 0)")
    db.close()
    clock.advance(3600)
    cron = Cron(storage, dict)
    await cron.run_once()
    now, found = await storage.schedules()
    assert [each.name for each in found] == ["a", "b", "c", "d", "good"]
    views = [schedule_view(each, now, live=False) for each in found]
    assert [bool(view.last_error) for view in views] == [True, False, True, True, False]
    (record,) = await storage.fires("good")
    assert fire_view(record).outcome == "fired"
    removed = scheduling.remove(found[0], now)
    assert await storage.save_schedule(removed.schedule, found[0].version)
    await storage.close()


async def test_the_index_itself_refuses_a_second_fire_of_a_time(tmp_path: Path) -> None:
    """Whatever the code above it believes."""
    clock = FakeClock()
    storage = SQLiteStorage(tmp_path / "jobs.db", clock=clock)
    await storage.open()
    assert await storage.save_schedule(scheduling.add("hourly", PLAN, clock.now()).schedule, 0)
    clock.advance(3600)
    await Cron(storage, dict).run_once()
    (record,) = await storage.fires("hourly")
    await storage.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db")) as db, db:
        values = ("hourly", record.fire_at, record.at, "fired", "other")
        with pytest.raises(sqlite3.IntegrityError):
            db.execute("insert into treadle_fire (name, fire_at, at, outcome, job) values (?, ?, ?, ?, ?)", values)
        db.execute("insert into treadle_fire values (?, ?, ?, ?, ?, 1)", values)  # one by hand has no time of its own
    db.close()
    assert firing.RECORDS_KEPT == 1000
