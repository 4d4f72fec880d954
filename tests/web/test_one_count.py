"""One page shows one number for one thing, in a world with more jobs of a state than are counted."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest

from tests import postgres_server
from treadle import App
from treadle.core.outcome import Succeeded
from treadle.ports import Storage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import a_job, a_pod, a_token, finished, want
from treadle.web import Dashboard

from .world import client

pytestmark = pytest.mark.anyio

READY = 12_345
SUCCEEDED = 12_000


class Numbers(HTMLParser):
    """What stands in the cells of tables, on tiles and tabs: by the name beside it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.text.append(data.strip())


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
async def http(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Any]:
    if request.param == "sqlite":
        storage: Storage = SQLiteStorage(tmp_path_factory.mktemp("many") / "x.db")
    else:
        storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    pod = a_pod(queues={"mail": 500}, lease=3_600.0)
    await storage.register(pod)
    for _ in range(SUCCEEDED // 1_000):
        await storage.insert([a_job(queue="mail") for _ in range(1_000)])
        jobs = (await storage.claim(pod.id, a_token(), [want(queue="mail", limit=1_000)])).jobs
        await storage.apply([finished(job, Succeeded()) for job in jobs])
    for start in range(0, READY, 1_000):
        await storage.insert([a_job(queue="mail") for _ in range(min(1_000, READY - start))])
    web = Dashboard(App(storage=storage), access="open")
    async with client(web) as made:
        yield made
    await web.close()
    await storage.close()


async def page(http: httpx.AsyncClient, path: str) -> str:
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    return answer.text[answer.text.index('<main id="main"') :]


def large(shown: str) -> set[str]:
    """All numbers of a page that could be those of many jobs."""
    text = " ".join(Numbers(shown).text)
    return set(re.findall(r"\b(?:\d+,\d{3}|\d+k)\b\+?", text))


async def test_the_overview_counts_what_is_ready_once(http: httpx.AsyncClient) -> None:
    shown = await page(http, "/")
    tile = re.search(r'id="tile-ready">([^<]+)<', shown)
    assert tile is not None and tile[1] == f"{READY:,}"
    row = re.search(r'data-name="Ready">([^<]+)<', shown)
    assert row is not None and row[1] == tile[1]
    assert large(shown) == {f"{READY:,}"}  # the tile, the row, the chart


async def test_a_queue_counts_what_is_ready_once(http: httpx.AsyncClient) -> None:
    for path in ("/queues", "/queues/mail"):
        shown = await page(http, path)
        assert f"{READY:,}" in shown and "12k+" not in shown, path
    assert shown.count("10k+") == 1  # what has succeeded is counted so far
    assert large(shown) == {f"{READY:,}", "10k+"}


@pytest.mark.parametrize(
    ("path", "tab", "told"),
    [
        ("/jobs", "all", "20k+"),
        ("/jobs?filter=state:ready", "ready", "10k+"),
        ("/jobs?filter=state:succeeded", "succeeded", "10k+"),
        ("/jobs?filter=is:retrying", "retrying", "0"),
        ("/jobs?filter=queue:mail", "all", "20k+"),
    ],
)
async def test_the_tab_the_head_and_the_offer_of_jobs_say_the_same(
    http: httpx.AsyncClient, path: str, tab: str, told: str
) -> None:
    shown = await page(http, path)
    tabs = dict(re.findall(r">(\w+) <span class=\"n[^\"]*\">([^<]+)</span>", shown))
    assert tabs[tab] == told
    head = re.search(r'<h1>Jobs</h1><span class="soft">(\S+) ', shown)
    assert head is not None and head[1] == told
    if told != "0":
        assert f"all {told} that match" in shown and f'data-total="{told}"' in shown


async def test_the_api_and_the_storage_count_ready_jobs_to_the_last(http: httpx.AsyncClient) -> None:
    (queue,) = (await http.get("/api/v1/queues")).json()["items"]
    assert (queue["ready"], queue["succeeded"]) == (READY, 10_000)
