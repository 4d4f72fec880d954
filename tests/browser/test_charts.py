"""Charts that go on by themselves, one range against another, and files to keep: in a real browser."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from treadle.core.rollup import MINUTE, Rollup

from . import shop
from .stage import Stage
from .watching import Watched

Watch = Callable[..., Watched]


async def _ran(stage: Stage, task: str, runs: int) -> None:
    """As a pod would have counted them in the minute that runs."""
    now = await stage.app.storage.time()
    row = Rollup(resolution=MINUTE, at=now - now % MINUTE, queue="live", task=task, outcomes={"succeeded": runs})
    row.run.add_all([0.5] * runs)
    await stage.app.storage.roll_up([row])


async def _a_young_minute(stage: Stage) -> None:
    """The newest step is the minute that runs: a test that goes over its end would look at the next one."""
    left = MINUTE - await stage.app.storage.time() % MINUTE
    if left < 25.0:
        await asyncio.sleep(left + 0.1)


def under_the_pointer(page: Page, chart: str) -> list[str]:
    """What the legend says of the newest step."""
    box = page.locator(f"{chart} .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 20)
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + 20)
    return page.locator(f"{chart} .legend strong").all_inner_texts()


def wait_for(page: Page, chart: str, said: str) -> None:
    for _ in range(60):
        if said in under_the_pointer(page, chart):
            return
        page.wait_for_timeout(100)
    raise AssertionError((said, under_the_pointer(page, chart)))


def test_points_come_with_the_stream_and_the_page_is_not_asked_for_again(stage: Stage, watch: Watch) -> None:
    watched = watch(stage)
    stage.ask(_a_young_minute(stage))
    stage.ask(_ran(stage, "shop.live", 3))
    page = watched.go("/performance/task?task=shop.live&range=15m")
    watched.live()
    wait_for(page, "#chart-throughput", "3")
    page.wait_for_timeout(500)
    watched.asked.clear()
    stage.ask(_ran(stage, "shop.live", 41))
    wait_for(page, "#chart-throughput", "41")
    wait_for(page, "#chart-times", "491 ms")
    assert [url for url in watched.asked if "/performance" in url] == []


def test_depth_goes_on_while_somebody_looks(stage: Stage, watch: Watch) -> None:
    watched = watch(stage)
    page = watched.go("/queues/mail")
    watched.live()
    page.get_by_role("button", name="Live updates").focus()
    assert stage.scene is not None
    jobs = [shop.welcome.using(delay="2h").bind(n) for n in range(7)]
    before = int(page.locator("#chart-depth .legend li", has_text="scheduled").locator("strong").inner_text())
    stage.ask(stage.app.enqueue_many(jobs))
    wait_for(page, "#chart-depth", str(before + 7))
    # The same numbers, for whoever does not see the chart.
    page.locator("#chart-depth summary").click()
    expect(page.locator("#chart-depth th[scope=col]")).to_have_text(["Time (UTC)", "ready", "running", "scheduled"])
    assert page.locator("#chart-depth tbody tr").count() <= 30
    assert watched.axe() == []


def test_a_comparison_has_an_address_and_can_be_sorted(sqlite_stage: Stage, watch: Watch) -> None:
    watched = watch(sqlite_stage)
    page = watched.go("/performance?range=24h")
    page.get_by_role("navigation", name="Compare with").get_by_role("link", name="just before").click()
    page.wait_for_url("**compare=before*")
    row = page.locator("tbody tr", has_text="shop.images.thumbnail")
    expect(row.locator("td[data-name='Run p50']")).to_contain_text("slower")  # the word, not only a colour
    expect(page.locator("tbody tr").first).to_contain_text("shop.images.thumbnail")
    page.get_by_role("link", name="Task", exact=True).click()
    page.wait_for_url("**sort=task*")
    expect(page.locator("tbody tr").first).to_contain_text("shop.billing.charge")
    page.get_by_role("navigation", name="Range").get_by_role("link", name="7d").click()
    page.wait_for_url("**range=7d*")
    assert "compare=before" in page.url and "sort=task" in page.url
    page.go_back()
    page.wait_for_url("**range=24h*")


def test_files_to_keep(sqlite_stage: Stage, watch: Watch, tmp_path: Path) -> None:
    watched = watch(sqlite_stage)
    for path, columns in (
        ("/jobs?filter=state:failed", ("id", "state", "error_message", "args")),
        ("/failures", ("count", "type", "filter")),
        ("/performance?range=24h", ("task", "runs", "run_p95")),
        ("/performance?range=24h&compare=before", ("task", "runs_before", "run_p95_word")),
    ):
        page = watched.go(path)
        with page.expect_download() as waited:
            page.get_by_role("link", name="CSV").click()
        target = tmp_path / waited.value.suggested_filename
        waited.value.save_as(target)
        assert target.name.startswith("treadle-") and target.suffix == ".csv"
        rows = list(csv.DictReader(io.StringIO(target.read_text(), newline="")))
        assert rows and set(columns) <= set(rows[0])
