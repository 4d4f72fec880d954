"""With five thousand queues no page is larger than 300 KB, and each list has pages and a search."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle import App
from treadle.testing.conformance.builders import a_job, a_pod
from treadle.web import Dashboard

from .world import World, who

pytestmark = pytest.mark.anyio
LARGEST = 300_000


async def test_no_page_is_larger_than_300_kb_with_five_thousand_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.web.dashboard.SLOWEST", 60.0)
    app = App(f"sqlite:///{tmp_path / 'web.db'}", queues=["default"])
    async with app:
        await app.storage.insert([a_job(queue=f"queue-{n:05}", task=f"task-{n:05}") for n in range(5000)])
        for n in range(300):
            await app.schedules.add(f"schedule-{n:03}", "0 3 * * *", "some.task", {})
            await app.limits.set(f"limit-{n:03}", "10/s")
            await app.storage.register(a_pod(label=f"pod-{n:03}", queues={f"queue-{n:05}": 1}, lease=3_600.0))
        world = World(app, Dashboard(app, access=who, pages=True))
        async with world.http:
            for route in world.web.table.routes:
                if route.kind == "page" and route.method == "GET" and "{" not in route.path:
                    answer = await world.http.get(route.path, headers={"X-Role": "admin"})
                    assert answer.status_code < 500 and len(answer.content) < LARGEST, (route.path, len(answer.content))
            for path in ("/queues", "/schedules", "/limits", "/pods"):
                page = (await world.http.get(path, headers={"X-Role": "admin"})).text
                assert "1 to 100 of" in page and "whose names have" in page, path
            page = (await world.http.get("/", headers={"X-Role": "admin"})).text
            assert "4,700 queues have ready jobs, and no live pod serves them: " in page
        await world.web.close()
