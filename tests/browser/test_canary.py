"""Text that a browser would run is in every text that is stored. On no page does it run, or become an element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from treadle.storages.postgres import PostgresStorage

from .. import postgres_server
from . import hostile, scene
from .stage import Stage
from .watching import Watched

PAGES = (
    "/",
    "/jobs",
    "/jobs?filter=state:failed",
    "/jobs?filter=state:running",
    "/jobs/{failed}",
    "/jobs/{succeeded}",
    "/jobs/{running}",
    "/jobs/{scheduled}",
    "/jobs/{running}/cancel",
    "/jobs/{failed}/delete",
    "/jobs/{scheduled}/reschedule",
    "/jobs/{scheduled}/priority",
    "/jobs/{scheduled}/move",
    "/enqueue?like={failed}",
    "/failures/mute?cause={cause}",
    "/failures",
    "/failures?task={task}",
    "/failures?queue={queue}",
    "/queues",
    "/queues/{queue}",
    "/queues/hostile",
    "/queues/hostile/pause",
    "/queues/hostile/scale",
    "/queues/hostile/settings",
    "/pods",
    "/pods/{pod}",
    "/pods/{pod}/stop",
    "/schedules",
    "/schedules/{schedule}",
    "/schedules/hostile",
    "/schedules/hostile/edit",
    "/schedules/hostile/pause",
    "/schedules/hostile/remove",
    "/performance",
    "/performance/task?task={task}",
    "/limits",
    "/operations",
    "/operations/{operation}",
    "/operations/new?act=revive&filter=state:failed",
    "/system",
)
# Elements that no page of ours has, and attributes that only a stored text could have brought.
MADE = "img, script:not([src]), [id^=made-], [onerror], iframe, object, embed"


@pytest.fixture(params=["sqlite", "postgres"])
def planted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    if request.param == "sqlite":
        app = scene.make(f"sqlite:///{tmp_path_factory.mktemp('hostile') / 'shop.db'}")
    else:
        url, schema = postgres_server.shared_url(), postgres_server.a_schema()
        app = scene.make(storage=PostgresStorage(url, schema=schema, auto_migrate=True))
    made = Stage(app, living=False, minutes=2)
    made.start()
    made.wait()
    assert made.scene is not None
    made.scene.ids = made.ask(hostile.plant(app))
    yield made
    made.end()


def inert(page: Page, where: str) -> str:
    """What the page shows, as source, once it is sure that nothing of it has run."""
    assert page.locator("main").count(), f"{where}: not a page"
    assert page.evaluate("window.ran") is None, f"{where}: a stored text was run"
    made = page.locator(MADE).evaluate_all("(all) => all.map((it) => it.outerHTML.slice(0, 200))")
    assert made == [], f"{where}: an element was made of a stored text"
    source = page.content()
    assert "1337" not in source, f"{where}: a stored text was read as a template"
    return source


def test_no_stored_text_is_run(planted: Stage, watch: Callable[..., Watched]) -> None:
    _on_pages(planted, watch)
    _in_suggestions(planted, watch)
    _in_stacks(planted, watch)


def _on_pages(planted: Stage, watch: Callable[..., Watched]) -> None:
    assert planted.scene is not None
    ids = {key: quote(value, safe="") for key, value in planted.scene.ids.items()}
    watched = watch(planted)
    watched.allow("made-")  # a page is refused to a name that no checked verb can have made
    shown = ""
    for path in PAGES:
        where = path.format(**ids)
        page = watched.go(where)
        shown += inert(page, path)
    missing = [field for field in hostile.FIELDS if f"shown-{field}." not in shown]
    assert missing == [], f"no page has shown {missing}: the test proves nothing of them"


def _in_suggestions(planted: Stage, watch: Callable[..., Watched]) -> None:
    """What scripts build of stored texts: the palette, completions, a toast, what came after a hint."""
    assert planted.scene is not None
    watched = watch(planted)
    watched.allow("made-")
    page = watched.go("/jobs")
    page.keyboard.press("Control+k")
    page.keyboard.type("img")
    expect(page.locator("#palette")).to_contain_text("shown-queue.")
    inert(page, "the palette")
    page.keyboard.press("Escape")
    for key in ("queue", "task", "tag", "schedule", "cause"):
        page.fill("#filter", "")
        page.locator("#filter").press_sequentially(f"{key}:")
        expect(page.locator("#complete")).to_contain_text("shown-")
        inert(page, f"completion of {key}")
    page.keyboard.press("Escape")
    watched.go("/schedules")
    watched.live()
    page.locator("tr", has_text="shown-schedule.").get_by_role("button", name="Resume").click()
    page.wait_for_selector(".toast")
    inert(page, "a toast")


def _in_stacks(planted: Stage, watch: Callable[..., Watched]) -> None:
    assert planted.scene is not None
    pod = planted.scene.ids["pod"]
    page = watch(planted).go(f"/pods/{pod}")
    page.get_by_role("button", name="Stack dump").click(no_wait_after=True)
    planted.ask(hostile.beat(planted.app, pod))
    expect(page.locator("pre")).to_contain_text("shown-stacks.")
    inert(page, "a dump of stacks")
