"""Words and dialogs in a real browser: waiting jobs are answered, commands follow what is typed, the palette acts."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import msgspec
from playwright.sync_api import Route, expect

from treadle import App
from treadle.core.command_line import render

from ..core.command_cases import ANSWER, CASES, ENQUEUE, HOSTILE, PAUSE, SET
from . import shop
from .stage import Stage
from .watching import Watched

Watch = Callable[..., Watched]


async def _in_state(app: App, id: str, state: str) -> None:
    async with asyncio.timeout(20):
        while (await app.jobs.get(id)).state != state:
            await asyncio.sleep(0.02)


async def _waiting(app: App) -> str:
    handle = await app.enqueue(shop.approve.bind(7))
    async with app.worker(queues={"approvals": 1}, label="approvals"):
        await _in_state(app, handle.id, "waiting")
    return handle.id


async def _ended(app: App, id: str, state: str) -> None:
    async with app.worker(queues={"approvals": 1}, label="approvals"):
        await _in_state(app, id, state)


def test_a_waiting_job_is_answered_from_its_page(stage: Stage, watch: Watch) -> None:
    id = stage.ask(_waiting(stage.app))
    watched = watch(stage)
    page = watched.go(f"/jobs/{id}")
    page.get_by_role("link", name="Answer…").click()
    dialog = page.locator("#dialog")
    expect(dialog).to_contain_text("waits for an answer from outside until")
    assert watched.axe() == []
    dialog.get_by_label("Answer").fill('{"paid": tru}')
    watched.allow("400")
    dialog.get_by_role("button", name="Answer").click()
    expect(dialog.locator("[data-problem]")).to_contain_text("not JSON")
    expect(dialog.get_by_label("Answer")).to_have_value('{"paid": tru}')
    dialog.get_by_label("Answer").fill('{"paid": true}')
    dialog.get_by_role("button", name="Answer").click()
    expect(page.locator(".toast")).to_contain_text("Answered")
    stage.ask(_ended(stage.app, id, "succeeded"))
    assert stage.ask(stage.app.jobs.get(id)).result == {"paid": True}
    expect(page.locator(".timeline")).to_contain_text("by ann")


def test_the_wait_of_a_job_is_failed_from_its_page_on_a_phone(stage: Stage, watch: Watch) -> None:
    id = stage.ask(_waiting(stage.app))
    watched = watch(stage, width=390)
    page = watched.go(f"/jobs/{id}")
    page.get_by_role("link", name="Fail…").click()
    dialog = page.locator("#dialog")
    dialog.get_by_label("Reason").fill("card declined")
    dialog.get_by_role("button", name="Fail the wait").click()
    expect(page.locator(".toast")).to_contain_text("Its wait has failed")
    stage.ask(_ended(stage.app, id, "failed"))
    page.reload()
    expect(page.locator(".trace .error-line").first).to_contain_text("order 7: card declined")
    viewer = watch(stage, role="viewer").go(f"/jobs/{id}")
    expect(viewer.get_by_role("link", name="Answer…")).to_have_count(0)


def test_the_script_makes_the_same_commands_as_the_server(sqlite_stage: Stage, watch: Watch) -> None:
    """One table of cases, and hostile values in every kind of part."""
    page = watch(sqlite_stage).go("/queues")
    cases = [(template, values) for template, values, _, _ in CASES]
    for value in HOSTILE:
        cases += [
            (PAUSE, {"reason": value, "until": value}),
            (SET, {"rate": value, "max_workers": value}),
            (ANSWER, {"value": value}),
            (ENQUEUE, {"arg-name": value, "arg-times": value, "tags": f"{value},{value}"}),
        ]
    script = page.evaluate("document.querySelector('script[type=module]').src").replace("main.js", "forms.js")
    made = page.evaluate(
        "async ([from, cases]) => { const { commandOf } = await import(from);"
        " return cases.map(([template, values]) => commandOf(template, (name) => values[name] ?? '')) }",
        [script, [[json.loads(msgspec.json.encode(template)), values] for template, values in cases]],
    )
    shown = [render(template, values) for template, values in cases]
    assert made == [[each.text, each.whole] for each in shown]


def test_the_command_of_a_question_follows_what_is_typed(stage: Stage, watch: Watch) -> None:
    watched = watch(stage)
    page = watched.go("/queues")
    page.get_by_role("link", name="Pause queue search").click()
    dialog = page.locator("#dialog")
    code, copy = dialog.locator(".copy code"), dialog.get_by_role("button", name="Copy the command")
    expect(code).to_have_text("treadle queues pause search")
    dialog.get_by_label("Reason").fill("it's down\u202e")
    expect(code).to_have_text("""treadle queues pause search --reason 'it'"'"'s down\\u202e'""")
    expect(copy).to_have_attribute("data-copy", """treadle queues pause search --reason 'it'"'"'s down\u202e'""")
    dialog.get_by_label("Resume by itself after").fill("2h")
    expect(code).to_contain_text("--until 2h")
    dialog.get_by_label("Reason").fill("")
    expect(code).to_have_text("treadle queues pause search --until 2h")
    page.keyboard.press("Escape")
    page.locator("#queue-search").get_by_role("link", name="Scale").click()
    dialog.get_by_label("At most so many at once").fill("12")
    expect(code).to_have_text("treadle queues scale search 12")
    dialog.get_by_label("At most so many at once").fill("")
    expect(code).to_have_text("treadle queues scale search none")
    page.keyboard.press("Escape")
    watched.go("/queues/search")
    page.get_by_role("link", name="Settings").click()
    expect(copy).to_be_disabled()
    dialog.get_by_label("rate").fill("100/m")
    expect(code).to_have_text("treadle queues set search --rate 100/m")
    expect(copy).to_be_enabled()
    assert watched.axe() == []
    # On a page of its own it is the same.
    watched.go("/enqueue?task=shop.mail.welcome")
    page.get_by_label("user_id").fill("42")
    page.get_by_label("note").fill("42")
    expect(page.locator(".copy code")).to_have_text("""treadle enqueue shop.mail.welcome user_id=42 'note="42"'""")


def test_a_schedule_is_previewed_while_it_is_typed(stage: Stage, watch: Watch) -> None:
    watched = watch(stage)
    page = watched.go("/schedules")
    page.get_by_role("link", name="Add a schedule").click()
    dialog = page.locator("#dialog")
    fires = dialog.get_by_role("status", name="Next fires")
    expect(fires).to_contain_text("is shown here as you fill in the form")
    dialog.get_by_label("When").fill("0 9 * * MON-FRI")
    expect(fires.locator("li")).to_have_count(5)
    dialog.get_by_label("Zone").fill("Europe/Berlin")
    expect(fires).to_contain_text("on the clocks of Europe/Berlin")
    expect(fires.locator("li").first).to_contain_text(re.compile(r"(Mon|Tue|Wed|Thu|Fri) .* 09:00 \+0[12]:00"))
    dialog.get_by_label("When").fill("0 25 * * *")
    expect(fires).to_contain_text("the hour cannot be '25'")
    dialog.get_by_label("When").fill("every 10m")
    dialog.get_by_label("Zone").fill("Mars/Base")
    expect(fires).to_contain_text("there is no time zone 'Mars/Base'")
    dialog.get_by_label("Zone").fill("UTC")
    expect(fires).to_contain_text("Every 10m")
    expect(dialog.locator("noscript")).to_have_count(0)  # its button would be the one that Enter presses
    assert watched.axe() == []
    watched.go("/schedules/nightly-report")
    page.get_by_role("link", name="Edit").click()
    expect(fires.locator("li").first).to_contain_text("03:00")
    dialog.get_by_label("When").fill("0 4 * * *")
    expect(fires.locator("li").first).to_contain_text("04:00")
    expect(dialog.locator(".copy code")).to_have_text("treadle schedules set nightly-report --expression '0 4 * * *'")


def test_a_schedule_is_previewed_without_scripts(stage: Stage, watch: Watch) -> None:
    page = watch(stage, java_script_enabled=False).page
    page.goto(stage.url + "/schedules-new")
    page.get_by_label("Name").fill("evening")
    page.get_by_label("When").fill("30 20 * * *")
    page.get_by_label("Zone").fill("Asia/Tokyo")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("status", name="Next fires").locator("li").first).to_contain_text("20:30 +09:00")
    expect(page.get_by_label("Name")).to_have_value("evening")
    expect(page.locator(".copy code")).to_have_text("treadle schedules add evening '30 20 * * *' … --tz Asia/Tokyo")
    page.goto(stage.url + "/schedules/nightly-report/edit")
    page.get_by_label("When").fill("0 25 * * *")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("status", name="Next fires")).to_contain_text("the hour cannot be '25'")
    expect(page.get_by_label("When")).to_have_value("0 25 * * *")


def test_the_palette_knows_verbs_with_their_subjects(stage: Stage, watch: Watch) -> None:
    watched = watch(stage)
    page = watched.go("/limits")
    dialog, found = page.locator("#dialog"), page.locator("#palette li")
    page.keyboard.press("Control+k")
    page.keyboard.type("pause images")
    expect(found.first).to_have_text("Pause queue imagesqueue")
    assert watched.axe() == []
    page.keyboard.press("Enter")
    expect(page.locator("#palette")).not_to_be_visible()
    expect(dialog.get_by_role("heading")).to_have_text("Pause queue images?")
    assert not stage.ask(stage.app.queues.get("images")).paused  # it asks first
    dialog.get_by_label("Reason").fill("from the palette")
    dialog.get_by_role("button", name="Pause").click()
    expect(page.locator(".toast").last).to_contain_text("Queue images is paused")
    # Enter at once: what was typed counts, and not what was found for less of it.
    page.keyboard.press("Control+k")
    page.keyboard.type("resume images\n")
    expect(dialog.get_by_role("heading")).to_have_text("Resume queue images?")
    dialog.get_by_role("button", name="Resume").click()
    expect(page.locator(".toast").last).to_contain_text("claimed from again")
    assert not stage.ask(stage.app.queues.get("images")).paused
    page.keyboard.press("Control+k")
    page.keyboard.type("retry failures of shop.billing.charge\n")
    expect(dialog.get_by_role("heading")).to_have_text(re.compile(r"Revive \d+ jobs\?"))
    expect(dialog.locator(".copy code")).to_have_text("treadle jobs revive 'state:failed task:shop.billing.charge'")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("open nightly-report\n")
    page.wait_for_url("**/schedules/nightly-report")


def test_the_palette_of_a_viewer_has_no_verbs(sqlite_stage: Stage, watch: Watch) -> None:
    page = watch(sqlite_stage, role="viewer").go("/limits")
    page.keyboard.press("Control+k")
    page.keyboard.type("images")
    found = page.locator("#palette li")
    expect(found.filter(has_text="Open queue images")).to_have_count(1)
    expect(found.filter(has_text="Pause")).to_have_count(0)


def test_an_answer_that_comes_late_does_not_replace_a_newer_preview(sqlite_stage: Stage, watch: Watch) -> None:
    page = watch(sqlite_stage).go("/schedules")
    page.get_by_role("link", name="Add a schedule").click()
    fires = page.locator("#dialog [data-preview]")
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "expression=0+7" in route.request.url:
            held.append(route)
        else:
            route.continue_()

    page.route("**/schedules-preview*", hold)
    with page.expect_request("**/schedules-preview?expression=0+7*"):
        page.get_by_label("When").fill("0 7 * * *")
    page.get_by_label("When").fill("0 8 * * *")
    expect(fires.locator("li").first).to_contain_text("08:00")
    with page.expect_response("**/schedules-preview?expression=0+7*") as late:
        held[0].continue_()
    late.value.finished()
    page.evaluate("new Promise((done) => setTimeout(done))")  # what the script does with an answer, it does by now
    expect(fires.locator("li").first).to_contain_text("08:00")
