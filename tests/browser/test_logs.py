"""The log of a job in a real browser: it opens at its newest line, follows, keeps a reader's place, sifts and folds."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Page, expect

from treadle import App
from treadle.core.logline import LogLine

from .stage import Stage
from .watching import Watched

Watch = Callable[..., Watched]
LEVELS = ("debug", "info", "warning", "error", "critical")
IN_SIGHT = """(it) => { const box = it.closest("[data-log]").getBoundingClientRect(), own = it.getBoundingClientRect();
 return own.bottom <= box.bottom + 2 && own.top >= box.top - 2 }"""
# The first line that a reader sees, and where it stands.
PLACE = """(box) => { const top = box.getBoundingClientRect().top;
 const line = [...box.querySelectorAll(".line")].find((it) => it.getBoundingClientRect().bottom > top + 1);
 return [line.id, Math.round(line.getBoundingClientRect().top - top)] }"""
AGAIN = """new Promise((done) => { document.addEventListener('treadle:swapped', done, { once: true });
 document.dispatchEvent(new CustomEvent('treadle:changed')) })"""


async def _job(app: App) -> str:
    """One that nobody serves: it stays as it is."""
    return (await app.enqueue("shop.mail.receipt", {"order_id": 1}, queue="logged")).id


async def _log(app: App, id: str, first: int, count: int, attempt: int = 1) -> None:
    await app.storage.record_logs(
        [LogLine(id, n, attempt, LEVELS[n % 5], f"step {n} of {attempt}") for n in range(first, first + count)]
    )


def _ends_at(page: Page, n: int, attempt: int = 1) -> None:
    line = page.locator(f"#l{n}")
    expect(line).to_contain_text(f"step {n} of {attempt}")
    assert line.evaluate(IN_SIGHT), n


def test_it_opens_at_its_newest_line_and_follows(stage: Stage, watch: Watch) -> None:
    assert stage.scene is not None
    id = stage.scene.ids["running"]
    newest = [line.n for line in stage.ask(stage.app.jobs.logs(id))]
    first = max(newest, default=0) + 1
    attempt = stage.ask(stage.app.jobs.get(id)).attempt
    stage.ask(_log(stage.app, id, first, 100, attempt))
    watched = watch(stage)
    page = watched.go(f"/jobs/{id}")
    _ends_at(page, first + 99, attempt)
    watched.live()
    stage.ask(_log(stage.app, id, first + 100, 30, attempt))  # it runs: the page asks again by itself
    expect(page.locator(f"#l{first + 129}")).to_be_visible(timeout=15_000)
    page.wait_for_function(f"({IN_SIGHT})(document.getElementById('l{first + 129}'))")
    expect(page.locator("[data-newest]").first).to_be_hidden()
    assert watched.axe() == []


def test_a_reader_who_has_scrolled_up_keeps_his_place(sqlite_stage: Stage, watch: Watch) -> None:
    stage = sqlite_stage
    id = stage.ask(_job(stage.app))
    stage.ask(_log(stage.app, id, 1, 200))
    page = watch(stage).go(f"/jobs/{id}")
    # Chromium keeps a place by itself; not every browser does.
    page.evaluate("document.styleSheets[0].insertRule('.log { overflow-anchor: none }')")
    _ends_at(page, 200)
    box, more = page.locator("#log-1"), page.locator("[data-newest=log-1]")
    box.evaluate("(box) => { box.scrollTop = -600 }")
    page.wait_for_function("document.querySelector('#log-1').scrollTop < -500")
    before = box.evaluate(PLACE)
    stage.ask(_log(stage.app, id, 201, 7))
    page.evaluate(AGAIN)
    expect(more).to_have_text("7 new lines below")
    assert box.evaluate(PLACE) == before
    stage.ask(_log(stage.app, id, 208, 1))
    page.evaluate(AGAIN)
    expect(more).to_have_text("8 new lines below")
    assert box.evaluate(PLACE) == before
    more.click()
    page.wait_for_function(f"({IN_SIGHT})(document.getElementById('l208'))")
    expect(more).to_be_hidden()
    stage.ask(_log(stage.app, id, 209, 1))
    page.evaluate(AGAIN)
    _ends_at(page, 209)


def test_levels_have_their_colour_and_their_word(sqlite_stage: Stage, watch: Watch) -> None:
    stage = sqlite_stage
    id = stage.ask(_job(stage.app))
    stage.ask(_log(stage.app, id, 1, 10))
    watched = watch(stage)
    for theme in ("light", "dark"):
        watched.page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        page = watched.go(f"/jobs/{id}")
        colours = [
            page.locator(f"#log-1 .line:has-text('{level.upper()}') b").first.evaluate(
                "(it) => getComputedStyle(it).color"
            )
            for level in LEVELS
        ]
        assert len(set(colours)) == 4 and colours[3] == colours[4]  # an error is as red as a critical one
        assert watched.axe() == []
    hostile = LogLine(id, 100, 1, "hidden button", "safe\u202efdp.exe <b>x</b>")
    stage.ask(stage.app.storage.record_logs([hostile]))
    page = watched.go(f"/jobs/{id}")
    line = page.locator("#l100")
    expect(line).to_contain_text("safe\\u202efdp.exe <b>x</b>")
    assert (line.get_attribute("class") or "").split() == ["line"]


def test_the_log_is_sifted_while_one_types(sqlite_stage: Stage, watch: Watch) -> None:
    stage = sqlite_stage
    id = stage.ask(_job(stage.app))
    stage.ask(_log(stage.app, id, 1, 30, attempt=1))
    stage.ask(_log(stage.app, id, 31, 30, attempt=2))
    watched = watch(stage)
    page = watched.go(f"/jobs/{id}")
    field, told = page.get_by_label("Lines of the log that have"), page.locator("[data-sifted]")
    field.fill("STEP 3")
    expect(told).to_contain_text("11 of 60 lines shown here have it")  # 3, and 30 to 39
    expect(page.locator(".line:visible")).to_have_count(11)  # the attempt that was folded is open
    field.blur()
    page.evaluate(AGAIN)
    expect(field).to_have_value("STEP 3")
    expect(page.locator(".line:visible")).to_have_count(11)
    assert watched.axe() == []
    field.press("Enter")
    page.wait_for_url("**/jobs/*?log=STEP+3*")
    expect(told).to_have_text("11 of 60 lines have “STEP 3”")
    expect(page.locator(".line")).to_have_count(11)
    page.get_by_role("link", name="Show all lines").click()
    expect(page.locator(".line")).to_have_count(60)


def test_attempts_are_folded_and_stay_as_a_reader_left_them(sqlite_stage: Stage, watch: Watch) -> None:
    stage = sqlite_stage
    id = stage.ask(_job(stage.app))
    stage.ask(_log(stage.app, id, 1, 3, attempt=1))
    stage.ask(_log(stage.app, id, 4, 3, attempt=2))
    page = watch(stage).go(f"/jobs/{id}")
    old, new = page.locator("#log-of-1"), page.locator("#log-of-2")
    expect(new).to_have_attribute("open", "")
    assert old.get_attribute("open") is None
    new.locator("summary").click()
    old.locator("summary").click()
    stage.ask(_log(stage.app, id, 7, 1, attempt=2))
    page.evaluate(AGAIN)
    expect(new.locator("summary")).to_contain_text("4 lines")
    expect(old).to_have_attribute("open", "")
    assert new.get_attribute("open") is None
    stage.ask(_log(stage.app, id, 8, 1, attempt=3))
    page.evaluate(AGAIN)
    expect(page.locator("#log-of-3")).to_have_attribute("open", "")


def test_without_scripts_it_opens_at_its_end_and_is_searched_by_the_server(sqlite_stage: Stage, watch: Watch) -> None:
    stage = sqlite_stage
    id = stage.ask(_job(stage.app))
    stage.ask(_log(stage.app, id, 1, 200))
    page = watch(stage, java_script_enabled=False).page
    page.goto(stage.url + f"/jobs/{id}")
    box, line = page.locator("#log-1").bounding_box(), page.locator("#l200").bounding_box()
    assert box is not None and line is not None
    assert box["y"] <= line["y"] and line["y"] + line["height"] <= box["y"] + box["height"]
    page.get_by_label("Lines of the log that have").fill("step 19")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.locator(".line")).to_have_count(11)
    expect(page.locator("[data-sifted]")).to_have_text("11 of 200 lines have “step 19”")
