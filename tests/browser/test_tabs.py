"""Many tabs of one browser have one stream among them; and times are by the server's clock. In real Chromium, over
HTTP/1.1, where a browser has six connections to a server."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect
from playwright.sync_api import Error as PlaywrightError

from treadle import App

from .. import postgres_server
from .stage import OTHER_HOST, Stage
from .test_charts import _a_young_minute, _ran, under_the_pointer, wait_for
from .test_session import Guarded, enter, guarded, hint, log_in
from .test_states import fill, served
from .watching import Watched

Watch = Callable[..., Watched]

__all__ = ["guarded"]  # a fixture
LONG = 30_000
MANY = 8  # tabs; a browser has six connections

# Each page notes the streams that it opens.
NOTED = """
window.opened = [];
window.EventSource = class extends EventSource {
  constructor(...all) {
    super(...all);
    window.opened.push(this);
    this.addEventListener("metrics", () => { window.looked = true; });
  }
};
"""


def open_streams(page: Page) -> int:
    return page.evaluate("window.opened.filter((it) => it.readyState === EventSource.OPEN).length")


class Tabs:
    """Pages of one browser, with one set of cookies."""

    def __init__(self, seen: Watched, *paths: str, base: str | None = None) -> None:
        self.seen = seen
        self.context: BrowserContext = seen.page.context
        self.context.add_init_script(NOTED)
        self.pages: list[Page] = [seen.page]
        self.base = base or seen.stage.url
        for number, path in enumerate(paths):
            self.open(path, seen.page if number == 0 else None)

    def open(self, path: str, page: Page | None = None) -> Page:
        if page is None:
            page = self.context.new_page()
            self.pages.append(page)
        page.goto(self.base + path)
        return page

    def all_live(self) -> None:
        self.all_are("live")

    def all_are(self, word: str) -> None:
        for each in self.pages:
            expect(each.locator("#live")).to_have_attribute("data-live", word, timeout=LONG)

    def leave(self) -> None:
        for each in self.pages:
            each.goto("about:blank")

    def holders(self) -> list[Page]:
        return [each for each in self.pages if open_streams(each)]

    def one_holder(self) -> Page:
        until(lambda: len(self.holders()) == 1, self.pages[0])
        return self.holders()[0]


def until(is_so: Callable[[], object], page: Page) -> None:
    """Wait for a condition; Playwright goes on meanwhile."""
    end = time.monotonic() + LONG / 1000
    while not is_so():
        assert time.monotonic() < end, "it has not come about"
        page.wait_for_timeout(50)


def streams(stage: Any, page: Page) -> int:
    """As the server counts them itself."""
    return int(page.request.get(f"{stage.url}/api/v1/system").json()["streams"])


PATHS = ("/queues", "/jobs", "/", "/queues/mail", "/pods", "/limits", "/performance", "/queues")


@contextmanager
def many(tmp_path: Path, watch: Watch) -> Iterator[tuple[Any, Tabs, str]]:
    """Eight tabs of a `treadle web`, as people run it."""
    url = f"sqlite:///{tmp_path}/x.db"
    fill(url)
    with served(url, tmp_path) as stage:
        tabs = Tabs(watch(stage))
        for number in range(MANY):
            tabs.open(PATHS[number], tabs.pages[0] if number == 0 else None)
        yield stage, tabs, url
        tabs.leave()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(App(f"sqlite:///{tmp_path}/x.db"), living=False, filled=False)
    made.start()
    made.wait()
    made.ask(made.app.enqueue("welcome", {}, queue="mail"))
    yield made
    made.end()


def test_eight_tabs_have_one_stream_and_each_gets_its_updates(tmp_path: Path, watch: Watch) -> None:
    with many(tmp_path, watch) as (stage, tabs, url):
        tabs.all_live()
        tabs.one_holder()
        until(lambda: streams(stage, tabs.pages[0]) == 1, tabs.pages[0])
        fill(url, jobs=4)
        expect(tabs.pages[1].locator("tbody tr")).to_have_count(7, timeout=LONG)
        for each in (tabs.pages[0], tabs.pages[7]):
            expect(each.locator("tbody tr").first).to_contain_text("7", timeout=LONG)


def test_when_the_tab_that_holds_the_stream_closes_or_crashes_another_takes_over(tmp_path: Path, watch: Watch) -> None:
    with many(tmp_path, watch) as (stage, tabs, url):
        tabs.all_live()
        for way in ("close", "crash", "navigate"):
            gone = tabs.one_holder()
            tabs.pages.remove(gone)
            if way == "close":
                gone.close()
            elif way == "crash":
                crash(gone)
            else:
                gone.goto("about:blank")
            tabs.one_holder()
            tabs.all_live()
        until(lambda: streams(stage, tabs.pages[0]) == 1, tabs.pages[0])
        # As many as before, and the last one answers at once.
        for _ in range(3):
            late = tabs.open("/jobs")
        expect(late.locator("tbody tr")).to_have_count(3)
        tabs.all_live()
        fill(url, jobs=2)
        expect(late.locator("tbody tr")).to_have_count(5, timeout=LONG)


def crash(page: Page) -> None:
    """Its renderer dies, and says nothing."""
    with page.expect_event("crash"), suppress(PlaywrightError):
        page.goto("chrome://crash")


def hide(page: Page, *, hidden: bool) -> None:
    """As if another tab were in front of it: without a screen all tabs count as visible."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_hidden_tab_hands_the_stream_over_and_without_a_visible_one_there_is_none(small: Stage, watch: Watch) -> None:
    tabs = Tabs(watch(small), "/queues", "/jobs", "/queues")
    tabs.all_live()
    for left in (2, 1, 0):
        hidden = tabs.one_holder()
        hide(hidden, hidden=True)
        until(lambda left=left: len(tabs.holders()) == min(left, 1), tabs.pages[0])  # type: ignore[misc]
        assert hidden not in tabs.holders()
    until(lambda: small.dashboard.hub.count == 0, tabs.pages[0])
    small.ask(small.app.enqueue("welcome", {}, queue="late"))
    for each in tabs.pages:
        hide(each, hidden=False)
    tabs.all_live()
    tabs.one_holder()
    for each in tabs.pages:  # what happened meanwhile
        expect(each.locator("tbody")).to_contain_text("late")


def test_a_paused_tab_leaves_the_stream_to_the_others(small: Stage, watch: Watch) -> None:
    tabs = Tabs(watch(small), "/queues", "/queues")
    tabs.all_live()
    paused = tabs.one_holder()
    paused.locator("#live").click()
    expect(paused.locator("#live")).to_have_attribute("data-live", "paused")
    tabs.pages.remove(paused)
    tabs.all_live()
    small.ask(small.app.enqueue("welcome", {}, queue="late"))
    expect(tabs.one_holder().locator("tbody")).to_contain_text("late")
    expect(paused.locator("tbody")).not_to_contain_text("late")
    paused.locator("#live").click()
    expect(paused.locator("tbody")).to_contain_text("late")


def test_a_tab_gets_topics_that_no_tab_before_it_wanted(small: Stage, watch: Watch) -> None:
    tabs = Tabs(watch(small), "/queues")
    tabs.all_live()
    other = tabs.open("/limits")
    tabs.all_live()
    small.ask(small.app.limits.set("mail", "7/s"))
    expect(other.locator("tbody")).to_contain_text("mail")
    tabs.one_holder()
    assert small.dashboard.hub.count == 1


def test_users_do_not_share_a_stream(small: Stage, watch: Watch) -> None:
    tabs = Tabs(watch(small), "/queues", "/queues")
    tabs.all_live()
    viewer = tabs.context.new_page()
    viewer.set_extra_http_headers({"x-role": "viewer"})
    tabs.pages.append(viewer)
    tabs.open("/queues", viewer)
    tabs.all_live()
    assert viewer in tabs.holders() and len(tabs.holders()) == 2
    until(lambda: small.dashboard.hub.count == 2, viewer)
    small.ask(small.app.enqueue("welcome", {}, queue="late"))
    for each in tabs.pages:
        expect(each.locator("tbody")).to_contain_text("late")


def test_charts_of_each_tab_go_on(sqlite_stage: Stage, watch: Watch) -> None:
    """Of different tasks, each by the points that the one stream carries for it, without a further question."""
    sqlite_stage.ask(_a_young_minute(sqlite_stage))
    sqlite_stage.ask(_ran(sqlite_stage, "shop.one", 3))
    sqlite_stage.ask(_ran(sqlite_stage, "shop.two", 5))
    tabs = Tabs(watch(sqlite_stage), *(f"/performance/task?task=shop.{it}&range=15m" for it in ("one", "two")))
    tabs.all_live()
    tabs.one_holder()
    one, two = tabs.pages
    wait_for(one, "#chart-throughput", "3")
    wait_for(two, "#chart-throughput", "5")
    for each in tabs.pages:
        each.wait_for_load_state("networkidle")
    asked: list[str] = []
    for each in tabs.pages:
        each.on("request", lambda request: asked.append(request.url))
    sqlite_stage.ask(_ran(sqlite_stage, "shop.one", 41))
    sqlite_stage.ask(_ran(sqlite_stage, "shop.two", 67))
    wait_for(one, "#chart-throughput", "41")
    wait_for(two, "#chart-throughput", "67")
    assert [url for url in asked if "/performance" in url] == []


def test_an_expired_session_shows_in_every_tab_and_so_does_the_login(guarded: Guarded, watch: Watch) -> None:
    seen = watch(guarded.stage)
    seen.allow("401")
    tabs = Tabs(seen)
    enter(seen, guarded.ann, "/queues")
    for path in ("/jobs", "/limits"):  # no topic of all of them is told of
        tabs.open(path)
    tabs.all_live()
    guarded.expire()
    hint(guarded)
    for each in tabs.pages:
        expect(each.get_by_role("dialog", name="Your session has expired")).to_be_visible(timeout=LONG)
        expect(each.locator("#live")).to_have_attribute("data-live", "logged out")
    until(lambda: guarded.stage.dashboard.hub.count == 0, seen.page)
    seen.page.wait_for_timeout(3_000)  # a question that was still due is asked: no tab finds out by itself any more
    log_in(tabs.pages[1], guarded.ann)
    for each in tabs.pages:
        expect(each.get_by_role("dialog", name="Your session has expired")).to_be_hidden(timeout=LONG)
    tabs.all_live()
    tabs.one_holder()


def test_that_storage_and_server_are_away_shows_in_every_tab(tmp_path: Path, watch: Watch) -> None:
    with postgres_server.a_server() as server:
        fill(server.tcp_url)
        with served(server.tcp_url, tmp_path) as stage:
            seen = watch(stage)
            for words in ("503", "ERR_"):
                seen.allow(words)
            tabs = Tabs(seen, "/queues", "/jobs", "/")
            tabs.all_live()
            until(lambda: any(each.evaluate("window.looked") for each in tabs.pages), seen.page)  # the server, at all
            server.stop("immediate")
            tabs.all_are("storage away")
            server.start()
            tabs.all_live()
        tabs.all_are("reconnecting")
        for each in tabs.pages:
            expect(each.locator("#stale")).to_contain_text("The server does not answer", timeout=LONG)
        tabs.leave()


def test_tabs_ask_by_themselves_while_the_one_with_the_stream_hangs(small: Stage, watch: Watch) -> None:
    tabs = Tabs(watch(small), "/queues", "/queues", "/queues")
    tabs.all_live()
    stuck = tabs.one_holder()
    debugger = tabs.context.new_cdp_session(stuck)
    debugger.send("Debugger.enable")
    debugger.send("Debugger.pause")
    others = [each for each in tabs.pages if each is not stuck]
    for each in others:
        expect(each.locator("#live")).to_have_attribute("data-live", "reconnecting", timeout=LONG)
    small.ask(small.app.enqueue("welcome", {}, queue="late"))
    for each in others:
        expect(each.locator("tbody")).to_contain_text("late", timeout=LONG)
    debugger.send("Debugger.disable")
    tabs.all_live()


def test_without_web_locks_there_is_one_stream_too(small: Stage, watch: Watch) -> None:
    """Plain HTTP to another machine: a browser has no Web Locks there."""
    seen = watch(small)
    seen.allow("Cross-Origin-Opener-Policy")  # does not count over plain HTTP, says Chromium
    tabs = Tabs(seen, base=f"http://{OTHER_HOST}:{small.port}")
    for number in range(MANY):
        tabs.open("/queues", tabs.pages[0] if number == 0 else None)
    assert tabs.pages[0].evaluate("navigator.locks === undefined && !isSecureContext")
    for way in ("close", "crash"):
        tabs.all_live()
        until(lambda: small.dashboard.hub.count == 1, tabs.pages[0])
        gone = tabs.one_holder()
        tabs.pages.remove(gone)
        gone.close() if way == "close" else crash(gone)
        until(lambda: tabs.holders(), tabs.pages[0])
    tabs.all_live()
    tabs.one_holder()
    small.ask(small.app.enqueue("welcome", {}, queue="late"))
    for each in tabs.pages:
        expect(each.locator("tbody")).to_contain_text("late")


def test_a_page_that_the_browser_kept_is_live_again(small: Stage, watch: Watch) -> None:
    """A browser that goes back shows the page as it was left. (Chromium keeps none with `no-store`, others do: so here
    are the events alone.)"""
    tabs = Tabs(watch(small), "/queues", "/queues")
    tabs.all_live()
    kept = tabs.one_holder()
    kept.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    until(lambda: kept not in tabs.holders() and tabs.holders(), kept)
    small.ask(small.app.enqueue("welcome", {}, queue="late"))
    kept.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    tabs.all_live()
    for each in tabs.pages:
        expect(each.locator("tbody")).to_contain_text("late")
    assert kept is not tabs.one_holder()
    small.ask(small.app.enqueue("welcome", {}, queue="later"))
    expect(kept.locator("tbody")).to_contain_text("later")


# The server's clock --------------------------------------------------------------------------------------------------

# The browser's clock is wrong, by `window.off` milliseconds.
WRONG = """
window.off = MINUTES * 60000;
window.Date = class extends Date {
  constructor(...all) { all.length ? super(...all) : super(Date.now()); }
  static now() { return super.now() + window.off; }
};
"""
# Right for longer than the second between two ticks: a live update brings the server's own words in between.
STAYS = """(pattern) => {
  const isRight = new RegExp(pattern).test(document.querySelector("tbody time[data-ago]").textContent);
  window.right = isRight ? (window.right ?? 0) + 1 : 0;
  return window.right > 8;
}"""
JUST = re.compile(r"^(now|\d+s ago|[1-4]m ago)$")  # the machine may be slow


@pytest.mark.parametrize("minutes", [-10, 10])
def test_times_are_by_the_clock_of_the_server(small: Stage, watch: Watch, minutes: int) -> None:
    seen = watch(small, timezone_id="Asia/Tokyo")
    seen.page.add_init_script(WRONG.replace("MINUTES", str(minutes)))
    page = seen.go("/jobs")
    said = page.locator("tbody time[data-ago]").first
    expect(said).to_have_text(JUST)  # as the page says it
    seen.live()
    expect(said).to_have_text(JUST)  # and as an answer does
    # The clock is set while the page is open.
    page.evaluate("window.off = -window.off")
    page.wait_for_function(STAYS, arg=JUST.pattern, polling=300)
    # Absolute times are where they are, in the reader's zone.
    page = seen.go(str(page.locator("tbody a[href*='/jobs/']").first.get_attribute("href")))
    clock = page.locator("time[data-clock]").first
    at = datetime.fromisoformat(str(clock.get_attribute("datetime"))) + timedelta(hours=9)
    expect(clock).to_have_text(at.strftime("%H:%M:%S.") + f"{at.microsecond // 1000:03}")


def test_a_moment_in_a_chart_is_by_the_clock_of_the_server(sqlite_stage: Stage, watch: Watch) -> None:
    sqlite_stage.ask(_ran(sqlite_stage, "shop.clock", 3))
    seen = watch(sqlite_stage)
    seen.page.add_init_script(WRONG.replace("MINUTES", "-10"))
    page = seen.go("/performance/task?task=shop.clock&range=15m")
    under_the_pointer(page, "#chart-throughput")  # its newest minute
    said = str(page.locator("#chart-throughput .uplot").get_attribute("title"))
    assert JUST.match(said.rpartition(" · ")[2]), said
