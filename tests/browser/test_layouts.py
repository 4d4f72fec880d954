"""Every page and dialog of a crowded system at three widths: nothing wider than the window, no act out of reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from . import crowded, scene
from .stage import Stage
from .watching import Watched

PAGES = (
    "/", "/jobs", "/jobs?filter=state:failed", "/jobs/{failed}", "/jobs/{succeeded}", "/jobs/{running}",
    "/jobs/{ready}",
    "/failures", "/queues", "/queues/{queue}", "/pods", "/pods/{pod}", "/schedules", "/schedules/{schedule}",
    "/performance", "/performance?range=24h&compare=before", "/performance/task?task={task}", "/limits", "/operations",
    "/operations/{operation}", "/system",
)  # fmt: skip
ASKING = (
    "/enqueue?like={failed}", "/queues/{queue}/settings", "/queues/{queue}/pause", "/schedules/{schedule}/edit",
    "/schedules-new", "/operations/new?act=revive&filter=state:failed", "/jobs/{running}/cancel",
    "/limits/set?name={limit}",
)  # fmt: skip
# What is in the main content and can be pressed, but not within the width of the window: it can be reached only by
# scrolling the page. What a table scrolls may be outside, but its acts may not: they stay at its edge.
OUT_OF_REACH = """(width) => [...document.querySelectorAll("main a, main button")].filter((it) => {
  const box = it.getBoundingClientRect();
  if (!it.checkVisibility() || !box.width || it.closest(".sr, .tabs, .trace, .value-box")) return false;
  if (it.closest(".scroll") && !it.closest(".acts")) return false;
  return box.left < -1 || box.right > width + 1;
}).map((it) => it.outerHTML.slice(0, 160))"""
WIDER = "(width) => Math.max(document.documentElement.scrollWidth, innerWidth) - width"
SQUEEZED = """() => [...document.querySelectorAll("main tbody th, main td.break")].filter((it) => {
  const box = it.getBoundingClientRect();
  return it.checkVisibility() && it.textContent.trim().length > 30 && box.width < 120;
}).map((it) => `${it.getBoundingClientRect().width} px: ${it.textContent.trim().slice(0, 60)}`)"""
IN_SIGHT = """() => {
  const box = [...document.querySelectorAll(".ask > footer .button")].at(-1).getBoundingClientRect();
  return box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth;
}"""


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    made = Stage(scene.make(f"sqlite:///{tmp_path_factory.mktemp('crowd') / 'x.db'}"), living=False, minutes=5)
    made.start()
    made.wait()
    assert made.scene is not None
    made.scene.ids = {key: quote(value, safe="") for key, value in made.ask(crowded.fill(made.app)).items()}
    yield made
    made.end()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_a_crowded_system_fits(crowd: Stage, watch: Callable[..., Watched], width: int, theme: str) -> None:
    assert crowd.scene is not None
    phone = width < 640
    watched = watch(crowd, width=width, color_scheme=theme, is_mobile=phone, has_touch=phone)
    wrong: list[str] = []
    for path in PAGES + ASKING:
        page = watched.go(path.format(**crowd.scene.ids))
        if (more := page.evaluate(WIDER, width)) > 0:
            wrong.append(f"{path}: {more} px wider than the window")
        wrong += [f"{path}: out of reach: {each}" for each in page.evaluate(OUT_OF_REACH, width)[:3]]
        wrong += [f"{path}: squeezed: {each}" for each in page.evaluate(SQUEEZED)[:3]]
        nav = page.locator("nav.bottom" if phone else "nav.rail").bounding_box()
        if nav is None or nav["y"] < 0 or nav["y"] + nav["height"] > 901 or nav["x"] + nav["width"] > width + 1:
            wrong.append(f"{path}: the navigation is out of sight: {nav}")
        if path in ASKING:
            for height in (900, 700):
                page.set_viewport_size({"width": width, "height": height})
                if not page.evaluate(IN_SIGHT):
                    wrong.append(f"{path}: its button is out of sight at {height} px")
            page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("window.ran") is None, path
    assert wrong == []


@pytest.mark.parametrize("width", [1024, 390])
def test_a_dialog_keeps_its_button_in_sight(crowd: Stage, watch: Callable[..., Watched], width: int) -> None:
    assert crowd.scene is not None
    watched = watch(crowd, width=width)
    for path, link in (
        ("/queues/{queue}", 'a[href$="/settings"]'),
        ("/schedules", 'a[href$="/schedules-new"]'),
        ("/jobs/{failed}", 'a[href*="/enqueue"]'),
        ("/failures", 'a[href*="act=revive"]'),
    ):
        page = watched.go(path.format(**crowd.scene.ids))
        page.locator(f"main {link}").first.click()
        page.wait_for_selector("#dialog[open] h1")
        for height in (900, 700):
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate(IN_SIGHT), f"{path} at {height} px"
        page.set_viewport_size({"width": width, "height": 900})


def test_a_long_name_shortens_and_can_be_copied(crowd: Stage, watch: Callable[..., Watched]) -> None:
    page = watch(crowd, width=1024).go("/queues")
    name = page.locator("bdi.long").filter(has_text=crowded.QUEUE).first
    assert name.get_attribute("title") == crowded.QUEUE
    assert name.inner_text() == crowded.QUEUE  # in one piece, whatever is seen of it
    room = name.evaluate("(it) => [it.firstElementChild.scrollWidth, it.firstElementChild.clientWidth]")
    assert room[0] > room[1], "the name is shown whole: there is nothing to shorten"
    source = page.content()
    assert "\u202e" not in source
    assert "\u2066" not in source
