"""What a page shows while there is nothing, nothing that matches, or nobody who answers (dashboard.md 2.9)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from treadle import App

from .. import postgres_server
from .stage import Stage
from .watching import Watched

Watch = Callable[..., Watched]


@contextmanager
def served(url: str, folder: Path) -> Iterator[Any]:
    """`treadle web`, as people run it."""
    env = {**os.environ, "TREADLE_URL": url, "PYTHONUNBUFFERED": "1"}
    child = subprocess.Popen(
        [sys.executable, "-m", "treadle.cli", "web", "--port", "0", "--json"],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    try:
        found = json.loads(child.stdout.readline())["url"]
        yield SimpleNamespace(url=found, port=int(found.rpartition(":")[2]))
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(15)
        child.stdout.close()


def fill(url: str, jobs: int = 3) -> None:
    async def run() -> None:
        async with App(url) as app:
            for n in range(jobs):
                await app.enqueue("welcome", {"n": n}, queue="mail", tags=["vip"])

    with ThreadPoolExecutor(1) as thread:  # this one has Playwright's loop
        thread.submit(lambda: asyncio.run(run())).result()


PAGES = {
    "/": "from treadle import App",
    "/jobs": "enqueue_sync",
    "/failures": "No failed jobs",
    "/queues": "app.queue(",
    "/pods": "treadle worker",
    "/schedules": "@app.cron(",
    "/performance": "treadle worker",
    "/limits": "app.limit(",
    "/operations": "treadle jobs revive",
}


def test_nothing_yet_says_what_the_page_is_for(tmp_path: Path, watch: Watch) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    fill(url, jobs=0)
    with served(url, tmp_path) as stage:
        seen = watch(stage)
        for path, line in PAGES.items():
            page = seen.go(path)
            expect(page.locator(".empty").first).to_be_visible()
            assert line in page.locator(".empty").first.inner_text(), path
            assert not seen.axe(), path
        seen.leave()


def test_no_match_says_the_filter_in_words_and_the_nearest_spelling(tmp_path: Path, watch: Watch) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    fill(url)
    with served(url, tmp_path) as stage:
        seen = watch(stage)
        page = seen.go("/jobs?filter=queue:mial+tag:vip")
        empty = page.locator(".empty")
        expect(empty).to_contain_text("That is: queue is mial, tag is vip.")
        assert not seen.axe()
        empty.get_by_role("link", name="queue:mail tag:vip").click()
        expect(page.locator("tbody tr")).to_have_count(3)
        page = seen.go("/jobs?filter=queue:entirely-else")
        expect(page.locator(".empty")).not_to_contain_text("Did you mean")
        page.get_by_role("link", name="Clear the filter").click()
        expect(page.locator("tbody tr")).to_have_count(3)
        seen.leave()


def test_a_part_that_fails_leaves_the_old_one_greyed(sqlite_stage: Stage, watch: Watch) -> None:
    seen = watch(sqlite_stage)
    seen.allow("500")
    page = seen.go("/queues")
    seen.live()
    rows = page.locator("tbody tr").count()
    assert rows

    def fail(route: Route) -> None:
        if "hx-request" in route.request.headers:
            route.fulfill(status=500, headers={"X-Request-Id": "019a-canary"}, body="{}")
        else:
            route.continue_()

    page.route("**/queues", fail)
    page.evaluate("document.dispatchEvent(new CustomEvent('treadle:changed'))")
    note = page.locator("#stale")
    expect(note).to_contain_text(re.compile(r"Could not refresh: what you see is \d+ s old, request 019a-canary"))
    assert page.locator("tbody tr").count() == rows
    assert float(page.locator("#view > *").last.evaluate("it => getComputedStyle(it).opacity")) < 1
    page.unroute("**/queues")
    note.get_by_role("button", name="Try again").click()
    expect(note).to_have_count(0)
    assert float(page.locator("#view > *").last.evaluate("it => getComputedStyle(it).opacity")) == 1


def test_an_old_page_learns_of_a_new_server(sqlite_stage: Stage, watch: Watch) -> None:
    seen = watch(sqlite_stage)
    page = seen.go("/queues")
    seen.live()
    assert page.request.get(f"{sqlite_stage.url}/queues").headers["treadle-version"]

    def newer(route: Route) -> None:
        route.fulfill(status=304, headers={"treadle-version": "99.0"})

    page.route("**/queues", newer)
    for _ in range(2):  # told once
        page.evaluate("document.dispatchEvent(new CustomEvent('treadle:changed'))")
        expect(page.locator(".toast")).to_contain_text("A new version is running: reload")
    assert page.locator(".toast").count() == 1
    page.unroute("**/queues")


@pytest.fixture
def server() -> Iterator[postgres_server.Server]:
    with postgres_server.a_server() as made:
        yield made


def test_while_the_storage_is_away_pages_say_so_and_come_back_by_themselves(
    server: postgres_server.Server, tmp_path: Path, watch: Watch
) -> None:
    fill(server.tcp_url)
    with served(server.tcp_url, tmp_path) as stage:
        seen, late = watch(stage), watch(stage)
        for each in (seen, late):
            each.allow("503")
            each.allow("ERR_")  # what a browser says of a stream that ends
        page = seen.go("/queues")
        seen.live()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.wait_for_timeout(2_500)  # the server has had a look
        server.stop("immediate")
        expect(page.locator("#stale")).to_contain_text("The storage cannot be reached", timeout=30_000)
        expect(page.locator("#live")).to_have_attribute("data-live", "storage away")
        expect(page.locator("#live")).to_contain_text("storage away")
        expect(page.locator("tbody tr")).to_have_count(1)  # nothing shows zero
        # Who comes only now is told, too.
        opened = late.page
        opened.goto(f"{stage.url}/queues")
        expect(opened.locator("h1")).to_contain_text("The storage cannot be reached", timeout=15_000)
        expect(opened.locator("main")).to_contain_text("tries again by itself")
        server.start()
        expect(page.locator("#stale")).to_have_count(0, timeout=30_000)
        seen.live()
        expect(opened.locator("tbody tr")).to_have_count(1, timeout=30_000)


def test_while_a_table_is_locked_pages_name_the_session_and_come_back_by_themselves(
    server: postgres_server.Server, tmp_path: Path, watch: Watch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    fill(server.tcp_url)
    with served(server.tcp_url, tmp_path) as stage:
        seen, late = watch(stage), watch(stage)
        for each in (seen, late):
            each.allow("503")
            each.allow("ERR_")
        page = seen.go("/queues")
        seen.live()
        page.wait_for_timeout(2_500)  # the server has had a look
        with psycopg.connect(server.tcp_url, application_name="psql") as ann:
            ann.execute("lock table treadle.job in access exclusive mode")
            told = f"table treadle.job is locked by session {ann.info.backend_pid} (user postgres, psql, idle in "
            expect(page.locator("#stale")).to_contain_text(told, timeout=60_000)
            expect(page.locator("#live")).to_have_attribute("data-live", "storage locked")
            expect(page.locator("tbody tr")).to_have_count(1)  # what was seen stays
            opened = late.page
            opened.goto(f"{stage.url}/queues")
            expect(opened.locator("h1")).to_have_text("The storage is locked", timeout=30_000)
            expect(opened.locator("main")).to_contain_text(f"SELECT pg_terminate_backend({ann.info.backend_pid})")
            ann.rollback()
        expect(page.locator("#stale")).to_have_count(0, timeout=60_000)
        seen.live()
        expect(opened.locator("tbody tr")).to_have_count(1, timeout=60_000)


def test_the_mark_says_that_the_server_is_away_and_when_it_is_back(tmp_path: Path, watch: Watch) -> None:
    stage = Stage(App(f"sqlite:///{tmp_path}/x.db"), living=False, filled=False)
    stage.start()
    stage.wait()
    seen = watch(stage)
    seen.allow("ERR_")
    page = seen.go("/queues")
    seen.live()
    stage.end()
    expect(page.locator("#live")).to_have_attribute("data-live", "reconnecting")
    expect(page.locator("#stale")).to_contain_text("The server does not answer", timeout=15_000)
    expect(page.locator("#live")).to_have_attribute("data-live", "reconnecting")
    page.context.set_offline(True)
    expect(page.locator("#live")).to_have_attribute("data-live", "offline")
    page.context.set_offline(False)
    back = Stage(App(f"sqlite:///{tmp_path}/x.db"), living=False, filled=False, port=stage.port)
    back.start()
    back.wait()
    expect(page.locator("#live")).to_have_attribute("data-live", "live", timeout=30_000)
    expect(page.locator("#stale")).to_have_count(0)
    seen.leave()
    back.end()


def test_the_mark_is_true_while_a_dialog_is_open(sqlite_stage: Stage, watch: Watch) -> None:
    """What cannot be shown just now is asked for all the same: or the mark would be green over no storage."""
    seen = watch(sqlite_stage)
    seen.allow("503")
    page = seen.go("/queues")
    seen.live()
    page.keyboard.press("?")
    expect(page.locator("#dialog")).to_be_visible()
    away = json.dumps({"error": {"kind": "unavailable", "message": "away", "fields": {"storage": "away"}}})
    page.route("**/queues", lambda route: route.fulfill(status=503, body=away))
    sqlite_stage.dashboard.hub.stir("queues")
    expect(page.locator("#live")).to_have_attribute("data-live", "storage away")
    page.unroute("**/queues")
    expect(page.locator("#live")).to_have_attribute("data-live", "live", timeout=15_000)
    expect(page.locator("#dialog")).to_be_visible()
