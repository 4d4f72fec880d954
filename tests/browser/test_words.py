"""Words and dialogs in a real browser: waiting jobs are answered, commands follow what is typed, the palette acts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from playwright.sync_api import expect

from treadle import App

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
