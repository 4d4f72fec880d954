"""Twenty thousand queues: every page and every answer stays small, and each queue can be found."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from treadle import App
from treadle.testing.conformance.builders import a_job, a_pod
from treadle.web import Dashboard
from treadle.web import stream as streams
from treadle.web.points import Asked

from .world import World, who

pytestmark = pytest.mark.anyio

QUEUES = 20_000
OTHERS = 300  # more than a page has, of what takes long to make
LARGEST = 1024 * 1024
# What is no page: a file to keep, and what Prometheus takes. docs/http.md says how they grow.
APART = {"/api/v1/jobs.csv", "/api/v1/series/tasks.csv", "/api/v1/series/compare.csv", "/metrics"}


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    app = App(f"sqlite:///{tmp_path / 'web.db'}", queues=["default"])
    async with app:
        for begin in range(0, QUEUES, 5_000):
            await app.storage.insert(
                [a_job(queue=f"queue-{n:05}", task=f"task-{n:05}") for n in range(begin, begin + 5_000)]
            )
        for n in range(OTHERS):
            await app.schedules.add(f"schedule-{n:03}", "0 3 * * *", "some.task", {})
            await app.limits.set(f"limit-{n:03}", "10/s")
            await app.storage.register(a_pod(label=f"pod-{n:03}", queues={f"queue-{n:05}": 1}))
        await app.storage.register(a_pod(label="serves-much", queues={f"queue-{n:05}": 1 for n in range(2_000)}))
        made = World(app, Dashboard(app, access=who, pages=True))
        async with made.http:
            yield made
        await made.web.close()


async def test_every_page_stays_small_and_everything_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.web.dashboard.SLOWEST", 60.0)  # the machine may be busy: it is the size that counts
    world.web.counts._clock = lambda: 1.0  # pyright: ignore[reportPrivateUsage] # what was read once stays fresh
    admin = {"X-Role": "admin"}
    paths = [
        route.path
        for route in world.web.table.routes
        if route.method == "GET" and not route.is_stream and "{" not in route.path and route.path not in APART
    ]
    paths += [
        "/jobs?filter=queue:queue-00007", "/operations/new?act=move&filter=queue:queue-00007", "/queues/queue-00007",
        "/schedules/schedule-007", "/queues?page=50", "/queues?name=queue&page=3", "/api/v1/counts?by=queue",
        "/api/v1/counts?by=task", "/failures?queue=queue-00007", "/enqueue", "/api/v1/complete?text=queue:q",
    ]  # fmt: skip
    for path in paths:
        answer = await world.http.get(path, headers=admin)
        assert answer.status_code < 500, (path, answer.text)
        assert len(answer.content) < LARGEST, (path, len(answer.content))
    for path in ("/", "/queues", "/jobs", "/operations/new?act=move&filter=queue:queue-00007"):
        part = await world.http.get(path, headers={**admin, "HX-Request": "true", "Treadle-Dialog": "1"})
        assert part.status_code == 200 and len(part.content) < LARGEST, path
    page = (await world.http.get("/queues", headers=admin)).text
    assert "1 to 100 of 20,0" in page and "/queues?page=2" in page
    for path, found in {
        "/queues?name=queue-19999": "/queues/queue-19999",
        "/queues?name=QUEUE-1234": "1 to 10 of 10 with",
        "/queues?name=no-such": "none with",
        "/queues?page=100": "/queues/queue-",
        "/schedules?name=schedule-299": "/schedules/schedule-299",
        "/limits?name=limit-299": "limit-299",
        "/pods?name=pod-299": "pod-299",
        "/pods?name=serves-much": "and 1,980 more",
        "/": "50 of 20,0",
    }.items():
        answer = await world.http.get(path, headers=admin)
        assert answer.status_code == 200 and found in answer.text, path
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(5):
        given = {"limit": "200", **({"cursor": cursor} if cursor else {})}
        listed = (await world.http.get("/api/v1/queues", params=given, headers=admin)).json()
        seen |= {each["name"] for each in listed["items"]}
        cursor = listed["next"]
    assert len(seen) == 1_000
    completed = (await world.http.get("/api/v1/complete?text=queue:queue-1999", headers=admin)).json()["items"]
    assert [each["text"] for each in completed] == [f"queue-1999{n}" for n in range(10)]
    counted = (await world.http.get("/api/v1/counts?by=queue", headers=admin)).json()
    assert len(counted["counts"]) == 1_000 and counted["capped"]
    hub = world.web.hub
    metrics = await dict(hub._looks())["metrics"]()  # pyright: ignore[reportPrivateUsage]
    assert len(metrics["depth"]) == len(metrics["depths"]) == streams.MOST_DEPTHS and metrics["ready"] == QUEUES
    (untold,) = {"queue-00000", "queue-19999"} - set(metrics["depths"])
    looked_at = streams.Subscriber(["metrics"], charts={"step=60": Asked(60, untold)})
    told = hub._depths_for(looked_at, metrics["depths"])  # pyright: ignore[reportPrivateUsage]
    assert told[untold] == {"ready": 1, "scheduled": 0, "running": 0} and len(told) == streams.MOST_DEPTHS + 1
