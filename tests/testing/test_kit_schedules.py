"""Schedules in a user's tests: they fire as the clock of the test moves."""

from __future__ import annotations

from collections import Counter

import pytest

from treadle import App, Context
from treadle.testing.kit import Jobs

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
