"""Failures: causes of attempts, with the jobs given up and the jobs retrying apart."""

from __future__ import annotations

import html
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests import postgres_server
from treadle import App
from treadle.ports import Storage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import failing
from treadle.testing.conformance.steps import a_live_pod, end, start
from treadle.web import Dashboard

from .world import client, who

pytestmark = pytest.mark.anyio

ADMIN = {"X-Role": "admin"}
VIEWER = {"X-Role": "viewer"}
CAUSE = 'cause:"work:Declined:shop:pay"'


@pytest.fixture(params=["sqlite", "postgres"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Storage]:
    if request.param == "sqlite":
        made: Storage = SQLiteStorage(tmp_path / "x.db")
    else:
        made = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await made.open()
    yield made
    await made.close()


@pytest.fixture
async def web(storage: Storage) -> AsyncGenerator[Dashboard]:
    made = Dashboard(App(storage=storage), access=who, pages=True)
    yield made
    await made.close()


async def fail(storage: Storage, number: int, *, final: bool = False, type: str = "Declined") -> None:
    pod = await a_live_pod(storage)
    for n in range(number):
        job = await start(storage, pod, queue="mail")
        said = failing(600.0, final=final, type=type, place="shop:pay", message=f"card {n} declined")
        await end(storage, job, said)


async def test_a_task_whose_jobs_all_retry_is_on_failures_with_its_cause(storage: Storage, web: Dashboard) -> None:
    """No job had failed for good, so Failures said that there were none, while hundreds of attempts failed."""
    await fail(storage, 159)
    async with client(web) as http:
        page = html.unescape((await http.get("/failures", headers=ADMIN)).text)
        assert "0 failed for good, 159 retrying, 1 cause" in page
        assert "Declined" in page and "shop:pay" in page and "card 158 declined" in page
        assert ">new</span>" in page
        assert "Run now" in page and "Revive" not in page
        seen = html.unescape((await http.get("/failures", headers=VIEWER)).text)
        assert "159" in seen and "Run now" not in seen and "operations/new" not in seen
        jobs = html.unescape((await http.get("/jobs", params={"filter": f"is:retrying {CAUSE}"}, headers=ADMIN)).text)
        assert jobs.count('class="job-task') == 50 and "Declined" in jobs
        first = html.unescape((await http.get("/", headers=ADMIN)).text)
        assert "159 retrying" in first and "Declined" in first
        (group,) = (await http.get("/api/v1/failures", headers=VIEWER)).json()["items"]
        assert (group["failed"], group["retrying"], group["count"], group["mark"]) == (0, 159, 159, "new")
        (one,) = (await http.get("/api/v1/failures.csv", headers=VIEWER)).text.splitlines()[1:]
        assert one.startswith("159,0,159,new,Declined,work,shop:pay,")


async def test_jobs_given_up_and_jobs_retrying_are_apart(storage: Storage, web: Dashboard) -> None:
    await fail(storage, 2)
    await fail(storage, 3, final=True)
    await fail(storage, 1, final=True, type="OSError")
    async with client(web) as http:
        page = html.unescape((await http.get("/failures", headers=ADMIN)).text)
        assert "4 failed for good, 2 retrying, 2 causes" in page
        assert "Revive 3" in page and "Revive 1" in page and "Run now" not in page
        for which, number in (("state:failed", 3), ("is:retrying", 2)):
            counted = await web.app.jobs.count(f"{which} {CAUSE}")
            assert sum(counted.values()) == number
