"""Logging in and out, and what a page does when its session is over: in a browser, with sessions that really end."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from treadle import App
from treadle.web.tokens import Tokens, make

from .stage import Stage
from .watching import Watched

Watch = Callable[..., Watched]


class Now:
    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def __call__(self) -> float:
        return self.at


class Guarded:
    """A dashboard behind tokens of ann, an admin, and of bob, a viewer; `now` is the clock of its sessions."""

    def __init__(self, path: Path, prefix: str) -> None:
        ann, self.ann = make("ann", "admin")
        bob, self.bob = make("bob", "viewer")
        self.now = Now()
        access = Tokens([ann, bob], clock=self.now)
        self.stage = Stage(
            App(f"sqlite:///{path}", queues=["mail"]), living=False, filled=False, prefix=prefix, access=access
        )
        self.stage.start()
        self.stage.wait()
        self.stage.ask(self.fill())

    async def fill(self) -> None:
        for n in range(60):
            await self.stage.app.enqueue("welcome", {"n": n}, queue=f"mail-{n:02}")

    def expire(self) -> None:
        self.now.at += 13 * 3600


@pytest.fixture(params=["", "/ops"], ids=["root", "mounted"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guarded]:
    made = Guarded(tmp_path / "x.db", request.param)
    yield made
    made.stage.end()


def log_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.locator(".login button.primary").click()


def enter(seen: Watched, token: str, path: str) -> Page:
    seen.page.goto(seen.stage.url + path)
    log_in(seen.page, token)
    seen.page.wait_for_selector("html[data-ready]")
    seen.live()
    return seen.page


def hint(guarded: Guarded) -> None:
    """Something happens, so that pages ask."""
    guarded.stage.ask(guarded.stage.app.queues.pause("mail-00", by="a test"))
    guarded.stage.dashboard.hub.stir("queues")


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_a_login_leads_to_the_page_with_its_filter_and_a_logout_ends_it(
    guarded: Guarded, watch: Watch, scripts: bool
) -> None:
    seen = watch(guarded.stage, java_script_enabled=scripts)
    seen.allow("401")
    page = seen.page
    wanted = "/jobs?filter=state%3Aready+queue%3Amail-07"
    page.goto(guarded.stage.url + wanted)
    expect(page.locator("main")).to_contain_text("staging")
    if scripts:
        assert not seen.axe()
    log_in(page, "nonsense")
    expect(page.get_by_role("alert")).to_contain_text("not known here")
    log_in(page, guarded.ann)
    expect(page).to_have_url(guarded.stage.url + wanted)
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Log out").first.click()
    expect(page.get_by_role("status")).to_contain_text("You are logged out")
    page.goto(f"{guarded.stage.url}/queues")
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_link_with_a_token_logs_in_and_does_not_stay_in_the_address(guarded: Guarded, watch: Watch) -> None:
    seen = watch(guarded.stage)
    seen.page.goto(f"{guarded.stage.url}/login#{guarded.ann}")
    expect(seen.page).to_have_url(f"{guarded.stage.url}/")
    seen.page.wait_for_selector("html[data-ready]")


def test_an_expired_session_is_asked_for_in_a_dialog_and_the_page_stays(guarded: Guarded, watch: Watch) -> None:
    seen = watch(guarded.stage)
    seen.allow("401")
    page = enter(seen, guarded.ann, "/queues?name=mail")
    address = page.url
    page.locator("tbody tr").nth(40).scroll_into_view_if_needed()
    field = page.get_by_placeholder("a part of the name")
    field.fill("half a wo", force=True)
    scrolled = page.evaluate("scrollY")
    guarded.expire()
    hint(guarded)
    dialog = page.get_by_role("dialog", name="Your session has expired")
    expect(dialog).to_be_visible(timeout=15_000)
    mark = page.locator("#live")
    expect(mark).to_have_attribute("data-live", "logged out")
    expect(mark).to_have_attribute("aria-label", re.compile("logged out"))
    expect(page.locator("#view").get_by_label("Token")).to_have_count(0)  # no form in the middle of the page
    assert not seen.axe()
    log_in(page, "nonsense")
    expect(dialog.get_by_role("alert")).to_contain_text("not known here")
    log_in(page, guarded.ann)
    expect(dialog).to_be_hidden()
    seen.live()
    assert page.url == address and page.evaluate("scrollY") == scrolled
    expect(field).to_have_value("half a wo")
    expect(page.locator("#stale")).to_have_count(0)


def test_an_act_that_comes_after_the_end_of_the_session_keeps_what_was_typed(guarded: Guarded, watch: Watch) -> None:
    seen = watch(guarded.stage)
    seen.allow("401")
    page = enter(seen, guarded.ann, "/queues/mail-07")
    page.get_by_role("link", name="Pause").first.click()
    question = page.locator("#dialog")
    question.locator("input[name=reason]").fill("until the deploy is over")
    guarded.expire()
    question.locator("button.primary").click()
    dialog = page.get_by_role("dialog", name="Your session has expired")
    log_in(page, guarded.ann)
    expect(dialog).to_be_hidden()
    expect(question.locator("input[name=reason]")).to_have_value("until the deploy is over")
    question.locator("button.primary").click()
    expect(page.locator("#view")).to_contain_text("until the deploy is over")


def test_the_dialog_can_wait_and_the_mark_opens_it_again(guarded: Guarded, watch: Watch) -> None:
    seen = watch(guarded.stage)
    seen.allow("401")
    page = enter(seen, guarded.ann, "/queues")
    guarded.expire()
    hint(guarded)
    dialog = page.get_by_role("dialog", name="Your session has expired")
    dialog.get_by_role("button", name="Not now").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#stale")).to_contain_text("You are logged out: what you see is")
    page.locator("#live").click()
    expect(dialog).to_be_visible()
    # Somebody else logs in: the page is made anew, for him.
    log_in(page, guarded.bob)
    expect(page.locator(".rail footer")).to_contain_text("bob · viewer")
    seen.live()


def test_a_session_that_is_ended_in_one_tab_is_over_in_the_others(guarded: Guarded, watch: Watch) -> None:
    seen = watch(guarded.stage)
    seen.allow("401")
    page = enter(seen, guarded.ann, "/queues")
    other = page.context.new_page()
    other.goto(f"{guarded.stage.url}/jobs")
    other.get_by_role("button", name="Log out").first.click()
    expect(other.get_by_label("Token")).to_be_visible()
    page.bring_to_front()
    expect(page.get_by_role("dialog", name="Your session has expired")).to_be_visible(timeout=30_000)
    expect(page.locator("#live")).to_have_attribute("data-live", "logged out")
