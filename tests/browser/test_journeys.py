"""What people do with it, in a real browser: on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, expect

from treadle import App
from treadle.client.client import new_id
from treadle.core.job import NewJob

from . import scene, shop
from .stage import Stage
from .watching import Watched

Watch = Callable[..., Watched]


async def _failed(app: App, count: int) -> None:
    """So many failed jobs of a queue that only a worker of this test serves."""
    await app.enqueue_many(shop.charge.using(queue="journey", tags=["journey"]).bind(n * 3, 1.0) for n in range(count))
    async with app.worker(queues={"journey": 20}, label="journey"):
        for _ in range(200):
            if not sum((await app.jobs.count("queue:journey state:ready,running")).values()):
                return
            await asyncio.sleep(0.05)


def said(page: Page) -> str:
    return page.locator(".toast").last.inner_text()


def test_filter_select_all_dry_run_confirm_progress(stage: Stage, watch: Watch) -> None:
    stage.ask(_failed(stage.app, 60))
    watched = watch(stage)
    page = watched.go("/jobs")
    page.fill("#filter", "state:failed tag:journey")
    page.press("#filter", "Enter")
    page.wait_for_url("**/jobs?filter=state*")
    expect(page.locator("tbody tr")).to_have_count(50)
    page.locator("input[name=id]").first.check()
    page.locator("input[name=id]").nth(2).click(modifiers=["Shift"])
    expect(page.locator("[data-count]")).to_have_text("3 ticked")
    page.get_by_label("all 60 that match").check()
    page.get_by_role("button", name="revive").click()
    dialog = page.locator("#dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Revive 60 jobs?")
    expect(dialog).to_contain_text("60 failed")
    expect(dialog).to_contain_text("staging")
    assert watched.axe() == []
    dialog.get_by_label("Reason").fill("the bank is back")
    dialog.get_by_role("button", name="Revive 60").click()
    page.wait_for_url("**/operations/*")
    expect(page.locator(".head .state")).to_have_text("finished", timeout=15_000)
    expect(page.locator("#op-changed")).to_have_text("60")
    page.goto(stage.url + "/operations")
    expect(page.locator("table").last).to_contain_text("the bank is back")
    counts = stage.ask(stage.app.jobs.count("tag:journey"))
    assert counts["ready"] == 60
    stage.ask(stage.app.operations.start("cancel", "tag:journey state:ready"))


def test_a_dry_run_changes_nothing(stage: Stage, watch: Watch) -> None:
    page = watch(stage).go("/failures")
    before = stage.ask(stage.app.jobs.count("state:failed"))
    page.get_by_role("link", name=re.compile("^Revive .*TimeoutError in shop.billing.charge")).click()
    expect(page.locator("#dialog h1")).to_contain_text("Revive")
    page.keyboard.press("Escape")
    expect(page.locator("#dialog")).not_to_be_visible()
    assert stage.ask(stage.app.jobs.count("state:failed")) == before


def test_a_failed_job_is_revived_and_too_late_is_told(stage: Stage, watch: Watch) -> None:
    handle = stage.ask(_one_failed(stage.app))
    watched = watch(stage)
    page = watched.go(f"/jobs/{handle}")
    expect(page.locator(".trace .error-line").first).to_contain_text("card declined")
    stale = watch(stage)
    stale.go(f"/jobs/{handle}")
    stale.page.get_by_role("button", name="Live updates").click()  # it shall not learn of it
    page.get_by_role("button", name="Revive").click()
    expect(page.locator(".toast")).to_contain_text("Revived")
    expect(page.locator(".head .state")).to_have_text(re.compile("ready|running|failed"))
    stale.allow("409")
    stale.page.get_by_role("button", name="Revive").click()
    expect(stale.page.locator(".toast.bad")).to_contain_text("only an ended job can be revived")


async def _one_failed(app: App) -> str:
    handle = await app.enqueue(shop.charge.using(queue="alone").bind(3, 1.0))
    async with app.worker(queues={"alone": 1}, label="alone"):
        for _ in range(200):
            if (await app.jobs.get(handle.id)).state == "failed":
                break
            await asyncio.sleep(0.05)
    return handle.id


def test_a_queue_is_paused_scaled_and_resumed(stage: Stage, watch: Watch) -> None:
    watched = watch(stage)
    page = watched.go("/queues")
    page.get_by_role("link", name="Pause queue search").click()
    page.get_by_label("Reason").fill("the index is being moved")
    page.get_by_label("Resume by itself after").fill("soon")
    page.locator("#dialog").get_by_role("button", name="Pause").click()
    watched.allow("400")
    expect(page.locator("#dialog [data-problem]")).to_contain_text("until")
    page.get_by_label("Resume by itself after").fill("2h")
    page.locator("#dialog").get_by_role("button", name="Pause").click()
    row = page.locator("#queue-search")
    expect(row).to_contain_text("paused")
    expect(row).to_contain_text("the index is being moved")
    assert stage.ask(stage.app.queues.get("search")).paused_by == "ann"
    row.get_by_role("link", name="Scale").click()
    page.get_by_label("At most so many at once").fill("3")
    page.locator("#dialog").get_by_role("button", name="Scale").click()
    expect(row).to_contain_text("of 3")
    row.get_by_role("button", name="Resume").click()
    expect(row).not_to_contain_text("paused")
    assert stage.ask(stage.app.queues.get("search")).max_workers == 3


def test_a_schedule_is_added_paused_and_fired(stage: Stage, watch: Watch) -> None:
    watched = watch(stage)
    page = watched.go("/schedules")
    page.get_by_role("link", name="Add a schedule").click()
    page.get_by_label("Name").fill("evening")
    page.get_by_label("When").fill("0 25 * * *")
    page.get_by_label("Task").fill("shop.search.reindex")
    page.locator("#dialog").get_by_role("button", name="Add").click()
    watched.allow("400")
    expect(page.locator("#dialog [data-problem]")).to_be_visible()
    page.get_by_label("When").fill("0 20 * * *")
    page.locator("#dialog").get_by_role("button", name="Add").click()
    page.wait_for_url("**/schedules/evening")
    expect(page.locator("main")).to_contain_text("20:00")
    page.get_by_role("link", name="Pause").click()
    page.get_by_label("Reason").fill("holiday")
    page.locator("#dialog").get_by_role("button", name="Pause").click()
    expect(page.locator(".head .state")).to_have_text("paused")
    page.get_by_role("button", name="Fire now").click()
    expect(page.locator(".toast").last).to_contain_text("fired")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".head .state")).to_have_text("on")
    assert len(stage.ask(stage.app.schedules.fires("evening"))) == 1
    stage.ask(stage.app.schedules.remove("evening"))


def test_keyboard_only(sqlite_stage: Stage, watch: Watch) -> None:
    watched = watch(sqlite_stage)
    page = watched.go("/")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("/")
    page.keyboard.type("sta")
    page.wait_for_selector("#complete li")
    page.keyboard.press("Tab")
    page.keyboard.type("succ")
    page.wait_for_selector("#complete li")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?filter=state*succeeded*")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("X")
    expect(page.locator("[data-count]")).to_have_text("3 ticked")
    page.keyboard.press("Shift+D")
    expect(page.locator("#dialog h1")).to_have_text("Delete 3 jobs?")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.locator("input[name=id]:checked")).to_have_count(0)
    page.keyboard.press("Control+k")
    page.keyboard.type("cron")
    expect(page.locator("#palette li").first).to_contain_text("Schedules")
    page.keyboard.press("Enter")
    page.wait_for_url("**/schedules")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("?")
    expect(page.locator("#dialog h1")).to_have_text("Help")
    assert watched.axe() == []


def test_the_cursor_stays_where_it_is_when_the_rows_come_anew(sqlite_stage: Stage, watch: Watch) -> None:
    """A live update used to take it away: the next key began at the first row, and a tick went nowhere."""
    page = watch(sqlite_stage).go("/jobs?filter=state:succeeded")
    page.keyboard.press("j")
    page.keyboard.press("j")
    row = page.locator("tr[data-cursor]").get_attribute("data-href")
    page.evaluate(
        "new Promise((done) => { document.addEventListener('treadle:swapped', done, { once: true });"
        " document.dispatchEvent(new CustomEvent('treadle:changed')) })"
    )
    expect(page.locator("tr[data-cursor]")).to_have_attribute("data-href", row or "")
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("X")
    expect(page.locator("[data-count]")).to_have_text("2 ticked")


def test_without_javascript(stage: Stage, watch: Watch) -> None:
    watched = watch(stage, java_script_enabled=False)
    page = watched.page
    page.goto(stage.url + "/queues")
    page.get_by_role("link", name="Pause queue images").click()
    page.get_by_label("Reason").fill("no scripts here")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".banner")).to_contain_text("Queue images is paused")
    page.get_by_role("button", name="Resume queue images").click()
    expect(page.locator(".banner")).to_contain_text("claimed from again")
    page.goto(stage.url + "/jobs?filter=state:succeeded")
    page.locator("input[name=id]").nth(0).check()
    page.locator("input[name=id]").nth(1).check()
    page.get_by_role("button", name="delete").click()
    expect(page.locator("h1")).to_have_text("Delete 2 jobs?")
    page.get_by_role("button", name="Delete 2").click()
    expect(page.locator(".banner")).to_contain_text("under way")
    watched.allow("400")
    page.goto(stage.url + "/jobs?filter=nonsense:1")
    expect(page.locator("[role=alert]")).to_contain_text("unknown key")


def test_the_stream_is_cut_and_restored(sqlite_stage: Stage, watch: Watch) -> None:
    watched = watch(sqlite_stage)
    watched.allow("ERR_INTERNET_DISCONNECTED")
    watched.allow("ERR_NETWORK_CHANGED")
    watched.allow("Failed to load resource")
    page = watched.go("/jobs?filter=state:scheduled queue:later")
    watched.live()
    stage = sqlite_stage
    stage.ask(stage.app.enqueue("shop.mail.receipt", {"order_id": 1}, queue="later", delay="2h"))
    expect(page.locator("tbody tr")).to_have_count(1, timeout=10_000)
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new CustomEvent('treadle:changed'))")
    expect(page.locator("#stale")).to_contain_text("old")
    stage.ask(stage.app.enqueue("shop.mail.receipt", {"order_id": 2}, queue="later", delay="2h"))
    page.context.set_offline(False)
    expect(page.locator("tbody tr")).to_have_count(2, timeout=15_000)
    expect(page.locator("#stale")).to_have_count(0)
    watched.live()


def test_live_updates_leave_alone_what_a_person_does(sqlite_stage: Stage, watch: Watch) -> None:
    """Order is frozen while something is ticked; a dialog holds everything back; focus and ticks stay."""
    stage = sqlite_stage
    for n in range(3):
        stage.ask(stage.app.enqueue("shop.mail.receipt", {"order_id": n}, queue="calm", delay="2h"))
    watched = watch(stage)
    page = watched.go("/jobs?filter=queue:calm")
    watched.live()
    page.locator("tbody tr a.job-task").nth(1).focus()
    held = page.evaluate("document.activeElement.href")
    stage.ask(stage.app.enqueue("shop.mail.receipt", {"order_id": 3}, queue="calm", delay="2h"))
    expect(page.locator("tbody tr")).to_have_count(4, timeout=10_000)
    assert page.evaluate("document.activeElement.href") == held
    page.locator("input[name=id]").nth(1).check()
    stage.ask(stage.app.enqueue("shop.mail.receipt", {"order_id": 4}, queue="calm", delay="2h"))
    expect(page.locator("[data-fresh]")).to_be_visible(timeout=10_000)
    expect(page.locator("tbody tr")).to_have_count(4)
    page.locator("input[name=id]").nth(1).uncheck()
    expect(page.locator("tbody tr")).to_have_count(5, timeout=10_000)
    page.keyboard.press(".")
    expect(page.locator("#live")).to_have_attribute("data-live", "paused")
    stage.ask(stage.app.enqueue("shop.mail.receipt", {"order_id": 5}, queue="calm", delay="2h"))
    page.wait_for_timeout(1200)
    expect(page.locator("tbody tr")).to_have_count(5)
    page.keyboard.press(".")
    expect(page.locator("tbody tr")).to_have_count(6, timeout=10_000)


def test_a_refetch_that_finds_nothing_new_costs_nothing(sqlite_stage: Stage, watch: Watch) -> None:
    watched = watch(sqlite_stage)
    page = watched.go("/limits")
    first = page.request.get(sqlite_stage.url + "/schedules", headers={"HX-Request": "true", "x-role": "admin"})
    again = page.request.get(
        sqlite_stage.url + "/schedules",
        headers={"HX-Request": "true", "x-role": "admin", "If-None-Match": first.headers["etag"]},
    )
    assert (first.status, again.status) == (200, 304)
    assert "<html" not in first.text()


@pytest.mark.parametrize("role", ["viewer", "viewer+payload"])
def test_a_viewer_has_no_buttons_and_is_refused(sqlite_stage: Stage, watch: Watch, role: str) -> None:
    assert sqlite_stage.scene is not None
    failed = sqlite_stage.scene.ids["failed"]
    watched = watch(sqlite_stage, role=role)
    for path in ("/queues", "/pods", "/schedules", "/limits", f"/jobs/{failed}", "/failures", "/operations"):
        page = watched.go(path)
        buttons = page.locator("main form[method=post], main a[data-dialog]")
        assert buttons.count() == 0, path
    page = watched.go(f"/jobs/{failed}")
    assert page.get_by_text("Hidden: your role").count() == (1 if role == "viewer" else 0)
    watched.allow("403")
    page.goto(sqlite_stage.url + "/queues/mail/pause")
    expect(page.locator("h1")).to_have_text("Not allowed")
    refused = page.request.post(
        sqlite_stage.url + f"/jobs/{failed}/revive",
        headers={"x-role": role, "Origin": sqlite_stage.url, "Sec-Fetch-Site": "same-origin"},
        form={"x": "y"},
    )
    assert refused.status == 403
    assert sqlite_stage.ask(sqlite_stage.app.jobs.get(failed)).state == "failed"


def test_theme_and_zone_are_kept(sqlite_stage: Stage, watch: Watch) -> None:
    watched = watch(sqlite_stage, color_scheme="light")
    page = watched.go("/")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.keyboard.press("u")
    page.reload()
    assert page.locator("html").get_attribute("data-zone") == "utc"


def test_edit_and_enqueue_as_new(stage: Stage, watch: Watch) -> None:
    assert stage.scene is not None
    watched = watch(stage)
    page = watched.go(f"/jobs/{stage.scene.ids['scheduled']}")
    page.get_by_role("link", name="Edit and enqueue as new").click()
    page.get_by_role("link", name="All arguments as JSON").click()
    page.get_by_role("textbox", name="Arguments").fill("{")
    page.get_by_label("Reason").fill("by hand")
    watched.allow("400")
    page.locator("#dialog").get_by_role("button", name="Enqueue").click()
    expect(page.locator("#dialog [data-problem]")).to_contain_text("not JSON")
    page.locator("#f-task").fill("shop.mail.welcome")
    page.get_by_role("textbox", name="Arguments").fill('{"user_id": 77}')
    page.locator("#f-queue").fill("mail")
    page.locator("#dialog").get_by_role("button", name="Enqueue").click()
    page.wait_for_url(lambda url: url.rsplit("/", 1)[1] != stage.scene.ids["scheduled"])  # type: ignore[union-attr]
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("h1")).to_have_text("shop.mail.welcome")
    expect(page.locator("main")).to_contain_text("77")
    assert page.url.rsplit("/", 1)[1] != stage.scene.ids["scheduled"]


def test_a_cause_is_muted_and_unmuted(stage: Stage, watch: Watch) -> None:
    watched = watch(stage)
    page = watched.go("/failures")
    page.get_by_role("link", name="Mute ValueError in shop.images.thumbnail").click()
    page.get_by_label("Unmute by itself after").fill("2h")
    page.get_by_label("Reason").fill("a new decoder comes")
    page.locator("#dialog").get_by_role("button", name="Mute").click()
    expect(page.locator("#muted")).to_contain_text("1 muted cause")
    expect(page.locator("section ul.groups")).not_to_contain_text("shop.images.thumbnail")
    page.locator("#muted summary").click()
    expect(page.locator("#muted")).to_contain_text("muted by ann until")
    assert watched.axe() == []
    watched.go("/")
    expect(page.locator(".brief-groups")).not_to_contain_text("shop.images.thumbnail")
    watched.go("/failures")
    page.locator("#muted summary").click()
    page.get_by_role("button", name="Unmute ValueError in shop.images.thumbnail").click()
    expect(page.locator("#muted")).to_have_count(0)
    expect(page.locator("section ul.groups")).to_contain_text("shop.images.thumbnail")


def test_a_form_of_the_tasks_signature(stage: Stage, watch: Watch) -> None:
    """Inputs by type; what does not fit is said where it stands; an empty field is left out."""
    assert stage.scene is not None
    watched = watch(stage)
    page = watched.go(f"/jobs/{stage.scene.ids['failed']}")
    page.get_by_role("link", name="Edit and enqueue as new").click()
    dialog = page.locator("#dialog")
    expect(dialog.get_by_label("order_id")).to_have_attribute("type", "number")
    expect(dialog.get_by_label("token")).to_have_attribute("type", "text")
    assert watched.axe() == []
    watched.allow("400")
    dialog.get_by_label("order_id").fill("1.5")
    dialog.get_by_label("order_id").evaluate("it => it.form.noValidate = true")
    dialog.get_by_role("button", name="Enqueue").click()
    expect(dialog.locator("[data-problem]")).to_contain_text("order_id")
    dialog.get_by_label("order_id").fill("33")
    dialog.get_by_label("Delay").fill("1h")
    dialog.get_by_role("button", name="Enqueue").click()
    page.wait_for_url(lambda url: url.rsplit("/", 1)[1] != stage.scene.ids["failed"])  # type: ignore[union-attr]
    page.wait_for_selector("html[data-ready]")
    made = stage.ask(stage.app.jobs.get(page.url.rsplit("/", 1)[1]))
    assert made.args["order_id"] == 33 and "token" not in made.args


def test_children_are_listed(stage: Stage, watch: Watch) -> None:
    parent = new_id()  # of its own: other journeys delete those of the scene
    meta = f'{{"treadle:parent":"{parent}"}}'
    child = NewJob(id=new_id(), task="shop.search.reindex", queue="search", delay=7200, meta=meta)
    stage.ask(stage.app.storage.insert([NewJob(id=parent, task=child.task, queue=child.queue, delay=7200), child]))
    page = watch(stage).go(f"/jobs/{parent}")
    listed = page.locator("#children")
    # A look that takes too long on a busy machine leaves the link; the next one has the answer.
    for _ in range(3):
        if listed.count():
            break
        page.reload()
    expect(listed.get_by_role("link")).to_have_attribute("href", f"/jobs/{child.id}")


def test_under_a_prefix(browser: Browser, watch: Watch) -> None:
    """Mounted in somebody's application: links, files, stream, forms and cookies stay below the prefix."""
    stage = Stage(scene.make("memory://"), living=False, minutes=10, prefix="/ops/jobs")
    stage.start()
    stage.wait()
    watched = watch(stage)
    page = watched.go("/")
    watched.live()
    page.locator(".rail").get_by_role("link", name="Queues").click()
    page.wait_for_selector("html[data-ready]")
    page.get_by_role("link", name="Pause queue mail").click()
    page.locator("#dialog").get_by_role("button", name="Pause").click()
    expect(page.locator("#queue-mail")).to_contain_text("paused")
    page.keyboard.press("t")
    page.wait_for_timeout(100)
    outside = [url for url in watched.asked if not url.startswith(stage.url)]
    assert outside == []
    assert {each["path"] for each in page.context.cookies()} == {"/ops/jobs"}
    page.close()
    stage.end()
