from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from treadle.storages.postgres import PostgresStorage
from treadle.web.pages import assets

from .. import postgres_server
from . import scene
from .stage import OTHER_HOST, Stage
from .watching import Watched

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1",
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if shutil.which(CHROMIUM) is None:
        pytest.fail(f"no {CHROMIUM}: apt-get install chromium, or name another by CHROMIUM=…")
    if not assets.has("lib/htmx.min.js"):
        pytest.fail("the dashboard's libraries are not here: make assets")
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()


@pytest.fixture(scope="session")
def sqlite_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    path: Path = tmp_path_factory.mktemp("stage") / "shop.db"
    made = Stage(scene.make(f"sqlite:///{path}"))
    made.start()
    yield made.wait()
    made.end()


@pytest.fixture(scope="session")
def postgres_stage() -> Iterator[Stage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), auto_migrate=True)
    made = Stage(scene.make(storage=storage))
    made.start()
    yield made.wait()
    made.end()


@pytest.fixture(params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return request.getfixturevalue(f"{request.param}_stage")


@pytest.fixture
def watch(browser: Browser) -> Iterator[Callable[..., Watched]]:
    """Pages that are watched: at the end of the test nothing may have been said on the console, refused by the CSP, or
    asked of another host."""
    made: list[Watched] = []

    def new(stage: Stage, *, role: str = "admin", width: int = 1440, **options: object) -> Watched:
        context = browser.new_context(
            base_url=stage.url,
            viewport={"width": width, "height": 900},
            extra_http_headers={"x-role": role},
            reduced_motion="reduce",
            **options,  # type: ignore[arg-type]
        )
        context.set_default_timeout(10_000)
        page: Page = context.new_page()
        made.append(Watched(page, stage))
        return made[-1]

    yield new
    for each in made:
        each.page.context.close()
    for each in made:
        each.check()
