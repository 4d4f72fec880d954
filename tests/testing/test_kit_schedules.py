"""Schedules in a user's tests: they fire as the clock of the test moves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from treadle import App, Context
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing import Jobs

pytestmark = pytest.mark.anyio


async def test_schedules_fire_as_the_clock_moves(jobs: Jobs) -> None:
    app = App("sqlite:///never-made.db")
    jobs.use(app)
    ran: list[str | None] = []

    @app.every("6h", name="four-a-day")
    @app.cron("0 9 * * *", tz="Asia/Tokyo")
    @app.task(name="report")
    async def report(ctx: Context) -> None:
        assert ctx.fire_at is not None
        assert ctx.fire_at.timestamp() == pytest.approx(jobs.clock.now(), abs=0.001)
        ran.append(ctx.schedule)

    await jobs.drain()
    assert ran == []
    await jobs.advance("5d")
    assert Counter(ran) == {"report": 5, "four-a-day": 20}
    await app.schedules.pause("report")
    ran.clear()
    await jobs.advance("1d")
    assert ran == ["four-a-day"] * 4


async def test_two_weeks_of_frequent_schedules_cost_little(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each instant started a pod of its own and looked at every job that there had ever been: two weeks of two frequent
    schedules took half a minute. Counted, not timed: one pod for all, and for each instant a claim that finds the jobs,
    one that finds no more, and one write."""
    from treadle.testing.kit import _Kept

    calls: Counter[str] = Counter()
    for name in ("register", "claim", "apply", "save_schedule"):

        def counting(self: _Kept, *args: Any, name: str = name, **given: Any) -> Any:
            calls[name] += 1
            return getattr(MemoryStorage, name)(self, *args, **given)

        monkeypatch.setattr(_Kept, name, counting)
    app = App("memory://")
    jobs.use(app)
    ran: Counter[str] = Counter()

    @app.every("10m", name="often")
    @app.every("15m", name="less")
    @app.task(name="work")
    async def work(ctx: Context) -> None:
        ran[ctx.schedule or ""] += 1

    await jobs.advance("1d")
    assert ran == {"often": 144, "less": 96}
    instants = 192
    assert (calls["register"], calls["save_schedule"]) == (1, 2)
    assert calls["apply"] <= 2 * instants
    assert calls["claim"] <= 4 * instants
    assert len(jobs._lent[app]._live_rows()) == 0
