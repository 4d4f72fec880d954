"""Numbers that operators act upon: incidents in which a page once told a wrong one, on SQLite and PostgreSQL."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import postgres_server
from treadle import App
from treadle.core.rollup import Rollup
from treadle.ports import Storage
from treadle.runtime.services.surveyor import Surveyor
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.builders import a_job, a_pod
from treadle.web import Dashboard

from .world import client, who

pytestmark = pytest.mark.anyio

ADMIN = {"X-Role": "admin"}


class Past(FakeClock):
    """A storage's clock that begins three hours ago, and is brought nearer to now."""

    def __init__(self) -> None:
        super().__init__(time.time() - 10_800)

    def be(self, seconds_ago: float) -> None:
        self.advance(max(0.0, time.time() - seconds_ago - self.now()))


@pytest.fixture
def clock() -> Past:
    return Past()


@pytest.fixture(params=["sqlite", "postgres"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path, clock: Past) -> AsyncGenerator[Storage]:
    if request.param == "sqlite":
        made: Storage = SQLiteStorage(tmp_path / "x.db", clock=clock)
    else:
        made = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), clock=clock)
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def web(storage: Storage) -> AsyncGenerator[Dashboard]:
    made = Dashboard(App(storage=storage), access=who, pages=True)
    yield made
    await made.close()


@pytest.fixture
async def http(web: Dashboard) -> AsyncGenerator[httpx.AsyncClient]:
    async with client(web) as made:
        yield made


async def page(http: httpx.AsyncClient, path: str) -> str:
    answer = await http.get(path, headers=ADMIN)
    assert answer.status_code == 200, answer.text[:300]
    return answer.text


async def api(http: httpx.AsyncClient, path: str) -> Any:
    return (await http.get(f"/api/v1{path}", headers=ADMIN)).json()


async def claimed(storage: Storage, times: int, wait: float, *, queue: str = "mail", task: str = "work") -> None:
    """So many jobs were claimed in this minute after such a wait, and have succeeded."""
    now = await storage.time()
    row = Rollup(resolution=60, at=now - now % 60, queue=queue, task=task, outcomes={"succeeded": times})
    row.wait.add_times(wait, times)
    await storage.roll_up([row])


async def put(storage: Storage, number: int, **fields: Any) -> None:
    await storage.insert([a_job(**{"queue": "mail", **fields}) for _ in range(number)])


# Waiting times --------------------------------------------------------------------------------------------------------


async def test_waits_are_also_of_jobs_that_still_wait(storage: Storage, http: httpx.AsyncClient, clock: Past) -> None:
    """p95 said 229 ms, and jobs had waited for five minutes."""
    clock.be(300)
    await put(storage, 20)
    clock.be(0)
    await put(storage, 3, delay=600.0)  # they are not due
    await claimed(storage, 100, 0.229)
    for path in ("/series?since=1h", "/series?queue=mail&since=1h", "/series?task=work&since=1h"):
        whole = (await api(http, path))["whole"]["wait"]
        assert whole["count"] == 120, path
        assert whole["p50"] == pytest.approx(0.229, rel=0.05)
        assert whole["p95"] == pytest.approx(300.0, rel=0.1) and whole["max"] >= 300.0
    (pair,) = (await api(http, "/series/tasks?since=1h"))["items"]
    assert pair["series"]["whole"]["wait"]["p95"] == pytest.approx(300.0, rel=0.1)
    assert pair["series"]["points"][-1]["wait"]["max"] >= 300.0
    for path, said in (
        ("/", r"wait p95 <strong>[45]m"),
        ("/queues/mail", r"wait p95 <strong>[45]m"),
        ("/performance?range=1h", r"/</span> [45]m"),
        ("/performance/task?task=work&range=1h", r"Wait p95</span><span class=.value.>[45]m"),
    ):
        assert re.search(said, await page(http, path)), path
    assert "the oldest: 5m" in await page(http, "/")
    assert "the oldest: 5m" in await page(http, "/queues/mail")


async def test_waits_of_a_queue_are_its_own(storage: Storage, http: httpx.AsyncClient, clock: Past) -> None:
    clock.be(300)
    await put(storage, 5, queue="media")
    clock.be(0)
    await claimed(storage, 10, 0.2)
    assert (await api(http, "/series?queue=mail&since=1h"))["whole"]["wait"]["count"] == 10
    assert (await api(http, "/series?queue=media&since=1h"))["whole"]["wait"]["count"] == 5
    assert (await api(http, "/series?since=1h"))["whole"]["wait"]["count"] == 15


async def test_waits_of_a_range_with_an_end_are_of_that_range(
    storage: Storage, http: httpx.AsyncClient, clock: Past
) -> None:
    clock.be(0)
    await put(storage, 5)
    await claimed(storage, 10, 0.2)
    assert (await api(http, "/series?since=1h&until=2099-01-01T00:00:00Z"))["whole"]["wait"]["count"] == 10


async def test_waits_of_very_many_are_told_from_the_oldest_and_their_number(
    storage: Storage, http: httpx.AsyncClient, clock: Past
) -> None:
    """One job that others overtake again and again, and 900 that came a minute ago."""
    clock.be(7200)
    await put(storage, 1, priority=-10)
    clock.be(60)
    await put(storage, 900)
    clock.be(0)
    wait = (await api(http, "/series?since=1h"))["whole"]["wait"]
    assert wait["count"] == 901 and wait["max"] >= 7200.0
    assert 20.0 < wait["p50"] < 70.0 and wait["p95"] < 70.0


# Queues that nobody serves --------------------------------------------------------------------------------------------


async def test_a_queue_that_nobody_serves_is_not_open(
    storage: Storage, web: Dashboard, http: httpx.AsyncClient, clock: Past
) -> None:
    clock.be(0)
    await put(storage, 1)
    for told, untold in (("not served", "open"), ("open", "not served")):
        for path in ("/", "/queues", "/queues/mail"):
            shown = await page(http, path)
            row = shown[shown.index("<h1") : shown.index("push row")] if path == "/queues/mail" else _row(shown, "mail")
            assert untold not in row and (told in row or told == "open"), path
        await storage.register(a_pod(queues={"mail": 1}))
        web.counts.forget()


def _row(shown: str, queue: str) -> str:
    """The row of a queue in a table of queues."""
    at = shown.index(f'/queues/{queue}"', shown.index('<th scope="col">Queue</th>'))
    return shown[at : shown.index("</tr>", at)]


# When a queue will be empty, for machines ----------------------------------------------------------------------------


async def test_scale_and_the_metric_know_of_a_rate_and_a_pause(
    storage: Storage, web: Dashboard, http: httpx.AsyncClient, clock: Past
) -> None:
    """100 jobs at one a minute take 100 minutes, however fast it went before the rate was set."""
    clock.be(0)
    await storage.register(a_pod(queues={"mail": 1}))
    await put(storage, 100)
    await claimed(storage, 600, 0.2)
    queues = App(storage=storage).queues

    async def told() -> tuple[float, float]:
        web.counts.forget()
        surveyor = Surveyor(storage)
        await surveyor.run_once()
        assert surveyor.survey is not None
        return (await api(http, "/scale?queue=mail"))["value"], surveyor.survey.drains["mail"]

    scaled, measured = await told()
    assert 0 < scaled < 60 and 0 < measured < 60
    await queues.set("mail", rate="1/m")
    assert await told() == (6000.0, 6000.0)
    await queues.pause("mail")
    assert await told() == (0.0, float("inf"))
