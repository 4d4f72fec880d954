"""Every page, in both themes and three widths: nothing for axe to find, nothing on the console, nothing from elsewhere,
and no stored text that a browser would run."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .stage import Stage
from .watching import Watched

PAGES = (
    "/",
    "/?range=24h",
    "/jobs",
    "/jobs?filter=state:failed",
    "/jobs?filter=task:nothing",
    "/jobs/{failed}",
    "/jobs/{running}",
    "/jobs/{ready}",
    "/jobs/{hostile}",
    "/failures",
    "/enqueue?like={failed}",
    "/queues",
    "/queues/mail",
    "/queues/webhooks",
    "/pods",
    "/schedules",
    "/schedules/newsletter",
    "/operations",
    "/limits",
    "/performance",
    "/performance?range=24h&compare=before",
    "/performance/task?task=shop.mail.welcome",
    "/system",
    "/help",
    "/enqueue",
    "/queues/mail/settings",
    "/schedules-new",
    "/operations/new?act=revive&filter=state:failed",
)


def path_of(page: str, stage: Stage) -> str:
    assert stage.scene is not None
    return page.format(**stage.scene.ids)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_can_be_read_by_everybody(sqlite_stage: Stage, watch: Callable[..., Watched], path: str) -> None:
    watched = watch(sqlite_stage, color_scheme="light")
    page = watched.go(path_of(path, sqlite_stage))
    for width in (1440, 768, 360):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme="light")
        assert watched.axe() == [], f"light, {width}"
        page.emulate_media(color_scheme="dark")  # the same page in other colours
        assert watched.axe("color-contrast") == [], f"dark, {width}"
        overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{width} px: the page is {overflow} px wider than the window"
    assert page.title() != "XSS"
    assert page.locator("img").count() == 0


@pytest.mark.parametrize("path", PAGES)
def test_a_page_on_postgres(postgres_stage: Stage, watch: Callable[..., Watched], path: str) -> None:
    watched = watch(postgres_stage)
    page = watched.go(path_of(path, postgres_stage))
    assert page.locator("h1").count() == 1
    assert page.title() != "XSS"


def test_sizes(sqlite_stage: Stage, watch: Callable[..., Watched]) -> None:
    """First load, gzipped: at most 60 KB of JavaScript and 15 KB of CSS."""
    watched = watch(sqlite_stage)
    sizes: dict[str, int] = {}

    def add(response: object) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0]  # type: ignore[attr-defined]
        sizes[kind] = sizes.get(kind, 0) + int(response.headers.get("content-length", "0"))  # type: ignore[attr-defined]

    watched.page.on("response", add)
    watched.go("/")
    assert 0 < sizes["text/javascript"] <= 60_000
    assert 0 < sizes["text/css"] <= 15_000


def test_an_unknown_page(sqlite_stage: Stage, watch: Callable[..., Watched]) -> None:
    watched = watch(sqlite_stage)
    watched.allow("404")
    page = watched.go("/nothing-here")
    assert "Not found" in page.inner_text("h1")
    assert watched.axe() == []
