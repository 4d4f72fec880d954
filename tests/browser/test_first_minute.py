"""The first minute of a new user: charts of seconds, their change-over to minutes, and the demo, in a real browser."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from treadle import App
from treadle.core.rollup import FINE, MINUTE, Rollup

from .stage import Stage
from .watching import Watched

Watch = Callable[..., Watched]

STEP = """(id) => JSON.parse(document.getElementById(id)?.dataset.chart ?? '{"step": 0}').step"""
# Points that have something, of all lines together.
FILLED = """(id) => {
    const chart = JSON.parse(document.getElementById(id)?.dataset.chart ?? '{"x": [], "y": []}');
    return chart.x.filter((_, n) => chart.y.some((line) => line[n])).length;
}"""


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Stage]:
    """A new SQLite file and a dashboard on it: no job, no worker, no history."""
    app = App(f"sqlite:///{tmp_path}/new.db", name="shop")

    @app.task(name="greet")
    def greet(name: str) -> str:
        return f"Hello, {name}!"

    @app.task(name="refuse", retry=1)
    def refuse() -> None:
        raise ValueError("the card was refused")

    stage = Stage(app, living=False, filled=False)
    stage.start()
    yield stage.wait()
    stage.end()


def chart(page: Page, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.locator(f"#{name}").get_attribute("data-chart") or "{}")
    return found


def legend(page: Page, name: str) -> dict[str, str]:
    items = page.locator(f"#{name} .legend li").all_inner_texts()
    return {text.rsplit(None, 1)[0]: text.rsplit(None, 1)[1] for text in items}


async def ran(stage: Stage, *, ago: float, runs: int, resolution: int) -> None:
    now = await stage.app.storage.time() - ago
    row = Rollup(resolution=resolution, at=now - now % resolution, queue="mail", task="send", pod="p")
    row.outcomes["succeeded"] = runs
    row.run.add_all([0.5] * runs)
    await stage.app.storage.roll_up([row])


def test_the_first_jobs_are_a_chart_within_seconds(fresh: Stage, watch: Watch) -> None:
    watched = watch(fresh)
    page = watched.go("/")
    expect(page.get_by_text("No job yet")).to_be_visible()
    assert page.locator("figure").count() == 0  # charts of nothing would stand in the way
    assert watched.axe() == []
    watched.live()
    worker = fresh.app.worker(["default"])
    fresh.ask(worker.__aenter__())
    try:
        for n in range(8):
            fresh.ask(fresh.app.enqueue("greet", {"name": f"n{n}"}))
        fresh.ask(fresh.app.enqueue("refuse"))
        # Nobody reloads: the page shows them by itself.
        page.wait_for_function(f"id => ({STEP})(id) === {FINE}", arg="chart-throughput", timeout=30_000)
        expect(page.locator("#chart-throughput canvas").first).to_be_visible(timeout=30_000)
        page.wait_for_function(
            "() => document.querySelector('#tile-failed')?.textContent.trim() === '1'", timeout=30_000
        )
        jobs = 8
        for _ in range(60):  # until two steps have some
            if page.evaluate(FILLED, "chart-throughput") >= 2:
                break
            fresh.ask(fresh.app.enqueue("greet", {"name": "later"}))
            jobs += 1
            page.wait_for_timeout(500)
        page.wait_for_function(
            f"() => document.querySelector('#chart-throughput .legend').innerText.includes('{jobs}')", timeout=30_000
        )
        found = chart(page, "chart-throughput")
        assert len(found["x"]) >= 13 and sum(found["y"][0]) == jobs and sum(found["y"][2]) == 1
        assert legend(page, "chart-throughput") == {"succeeded": str(jobs), "retried": "0", "failed or rescued": "1"}
        assert {chart(page, each)["step"] for each in ("chart-latency", "chart-depth")} == {FINE}
        expect(page.get_by_text(f"{jobs + 1} runs so far")).to_be_visible(timeout=30_000)
        expect(page.get_by_text("runs per 5 s")).to_be_visible()
        page.wait_for_function(f"id => ({FILLED})(id) >= 1", arg="chart-latency", timeout=30_000)
        assert watched.axe() == []
        page = watched.go("/queues/default")
        assert chart(page, "chart-throughput")["step"] == chart(page, "chart-depth")["step"] == FINE
        assert sum(chart(page, "chart-throughput")["y"][0]) == jobs
        page = watched.go("/?range=7d")  # there is no more than that, whatever is asked for
        assert sum(chart(page, "chart-throughput")["y"][0]) == jobs
    finally:
        fresh.ask(worker.__aexit__(None, None, None))
    watched.leave()


def under_the_left_edge(page: Page) -> str:
    """When the first point was, once the chart of minutes is drawn."""
    said = ""
    for n in range(100):
        place = page.locator("#chart-throughput .u-over")
        place.scroll_into_view_if_needed()
        box = place.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 2 + n % 2, box["y"] + 20)
        said = page.locator("#chart-throughput .uplot").get_attribute("title") or ""
        if re.search(r"\d\dm ago", said):
            break
        page.wait_for_timeout(100)
    return said


def test_a_chart_of_seconds_becomes_one_of_minutes_by_itself(fresh: Stage, watch: Watch) -> None:
    for resolution in (FINE, MINUTE):
        fresh.ask(ran(fresh, ago=0, runs=7, resolution=resolution))
    watched = watch(fresh)
    page = watched.go("/?range=15m")
    watched.live()
    assert chart(page, "chart-throughput")["step"] == FINE
    before = len(chart(page, "chart-throughput")["x"])
    drawn = "() => window.uPlot && document.querySelectorAll('#chart-throughput canvas').length"
    page.wait_for_function(drawn)
    # History is found to be older: as if ten minutes had gone by.
    fresh.ask(ran(fresh, ago=660, runs=5, resolution=MINUTE))
    page.wait_for_function(f"id => ({STEP})(id) === {MINUTE}", arg="chart-throughput", timeout=30_000)
    found = chart(page, "chart-throughput")
    assert sum(found["y"][0]) == 12 and len(found["x"]) != before
    assert legend(page, "chart-throughput")["succeeded"] == "12"
    expect(page.get_by_text("runs per minute")).to_be_visible()
    # Drawn over its whole range, and not over the one that the seconds had.
    assert re.search("1[45]m ago", under_the_left_edge(page)), under_the_left_edge(page)
    watched.leave()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "treadle.cli", "demo", "--web", "--port", "0"],
        cwd=tmp_path,
        env={**kept, "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r"http://\S+", line)
    try:
        assert found, line
        yield process, found.group()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_the_demo_looks_alive_from_its_first_seconds(
    browser: Browser, demo: tuple[subprocess.Popen[str], str], tmp_path: Path
) -> None:
    process, url = demo
    page = browser.new_page()
    page.set_default_timeout(45_000)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(url)
    tile = "(() => +document.querySelector('#tile-ready').textContent.replaceAll(',', ''))()"
    page.wait_for_function(f"() => {tile} > 0")
    most = page.evaluate(tile)
    page.wait_for_function(f"(most) => {tile} !== most", arg=most)  # numbers move
    page.wait_for_function(f"id => ({STEP})(id) === {FINE} && ({FILLED})(id) >= 2", arg="chart-throughput")
    page.wait_for_function(f"id => ({FILLED})(id) >= 2", arg="chart-latency")
    page.wait_for_function(f"id => ({FILLED})(id) >= 2", arg="chart-depth")
    queues = page.locator("table.cards tbody th").all_inner_texts()
    assert len(queues) >= 7, queues
    page.goto(url + "/queues")
    expect(page.get_by_text("the disk is being replaced")).to_be_visible()
    page.goto(url + "/schedules")
    expect(page.get_by_text("nightly-report").first).to_be_visible()
    page.goto(url + "/failures")
    page.wait_for_function("() => document.body.innerText.includes('ConnectionError')")
    page.goto("about:blank")
    page.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert said == []
    assert list(tmp_path.iterdir()) == []
