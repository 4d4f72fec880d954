"""Failures: causes of attempts, with the jobs given up and the jobs retrying apart."""

from __future__ import annotations

import html
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests import postgres_server
from treadle import App
from treadle.core.histogram import Histogram
from treadle.core.rollup import Rollup
from treadle.ports import Storage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import a_pod, failing
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


async def test_what_is_new_since_a_deploy_is_said_in_words(storage: Storage, web: Dashboard) -> None:
    await fail(storage, 1, type="Declined")
    await storage.register(a_pod(worker_version="2026.11.3"))
    await fail(storage, 1, type="Unreachable", final=True)
    async with client(web) as http:
        page = html.unescape((await http.get("/failures", headers=VIEWER)).text)
        head = page.partition("<h1>Failures</h1>")[2].partition("</time>")[0]
        assert "; 1 new since <bdi>2026.11.3</bdi>, deployed <time" in head
        assert page.count(">new</span>") == 1
        rows = [each.partition('class="said"')[0] for each in page.split("<li>") if 'class="numbers"' in each]
        assert {("Unreachable" in row, ">new</span>" in row) for row in rows} == {(True, True), (False, False)}
        first = html.unescape((await http.get("/", headers=VIEWER)).text)
        assert all('title="First seen since 2026.11.3, deployed ' in each for each in (page, first))
        answer = (await http.get("/api/v1/failures", headers=VIEWER)).json()
        assert {each["type"]: each["mark"] for each in answer["items"]} == {"Declined": None, "Unreachable": "new"}
        (deploy,) = (await http.get("/api/v1/deploys", headers=VIEWER)).json()["items"]
        assert answer["deploy"] == deploy and deploy["version"] == "2026.11.3"
        assert answer["new_since"] == deploy["first_at"]


async def test_a_deploy_without_a_new_cause_says_so(storage: Storage, web: Dashboard) -> None:
    await fail(storage, 1)
    await storage.register(a_pod(worker_version="2026.11.3"))
    async with client(web) as http:
        page = html.unescape((await http.get("/failures", headers=VIEWER)).text)
        assert "; none new since <bdi>2026.11.3</bdi>, deployed <time" in page and ">new</span>" not in page


async def test_without_a_deploy_new_is_what_came_up_in_the_last_24_hours(storage: Storage, web: Dashboard) -> None:
    await fail(storage, 1)
    async with client(web) as http:
        page = html.unescape((await http.get("/failures", headers=VIEWER)).text)
        assert "; 1 new in the last 24 hours<" in page and "deployed" not in page
        assert 'title="First seen in the last 24 hours"' in page
        answer = (await http.get("/api/v1/failures", headers=VIEWER)).json()
        assert answer["deploy"] is None and answer["new_since"].endswith("Z")


async def test_pods_show_the_version_of_the_code_and_that_of_treadle(storage: Storage, web: Dashboard) -> None:
    versioned = a_pod(label="new-1", worker_version="2026.11.3", version="0.9")
    bare = a_pod(label="old-1", version="0.8")
    for card in (versioned, bare):
        await storage.register(card)
    async with client(web) as http:
        page = (await http.get("/pods", headers=VIEWER)).text
        assert '<bdi>2026.11.3</bdi><span class="job-line nowrap">Treadle <bdi>0.9</bdi></span>' in page
        assert '<span class="soft">Treadle <bdi>0.8</bdi></span>' in page
        found = (await http.get("/pods", params={"name": "2026.11"}, headers=VIEWER)).text
        assert "new-1" in found and "old-1" not in found
        one = (await http.get(f"/pods/{versioned.id}", headers=VIEWER)).text
        assert "<dt>Version</dt><dd><bdi>2026.11.3</bdi></dd><dt>Treadle</dt><dd><bdi>0.9</bdi></dd>" in one
        assert "not set" in (await http.get(f"/pods/{bare.id}", headers=VIEWER)).text
        items = (await http.get("/api/v1/pods", headers=VIEWER)).json()["items"]
        assert {(each["worker_version"], each["version"]) for each in items} == {("2026.11.3", "0.9"), ("", "0.8")}


async def test_the_heat_map_of_a_task_has_a_line_for_each_deploy_and_none_for_treadles_version(
    storage: Storage, web: Dashboard
) -> None:
    minute = await storage.time() // 60 * 60
    run = Histogram()
    run.add_times(0.5, 3)
    ran = Rollup(resolution=60, at=minute - 600, queue="mail", task="work", outcomes={"succeeded": 3}, run=run)
    await storage.roll_up([ran, replace(ran, at=minute)])
    await storage.register(a_pod(version="0.9"))
    async with client(web) as http:
        asked = {"task": "work", "range": "1h"}
        page = (await http.get("/performance/task", params=asked, headers=VIEWER)).text
        assert 'class="heat"' in page and 'class="deploy"' not in page
        for version in ("2026.11.2", "2026.11.3"):
            await storage.register(a_pod(version="0.9", worker_version=version))
        page = (await http.get("/performance/task", params=asked, headers=VIEWER)).text
        assert page.count('class="deploy"') == 2
        assert "<title>2026.11.2, deployed " in page and "<title>2026.11.3, deployed " in page
        # Both came at nearly the same time: the newest has a label, and no other is written over it.
        assert ">2026.11.3</text>" in page and ">2026.11.2</text>" not in page
        assert ">0.9</text>" not in page
