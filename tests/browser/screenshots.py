"""Pictures of every page on a living system, light and dark: `make screenshots` writes them to docs/screenshots."""

from __future__ import annotations

import linecache
import os
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from playwright.sync_api import Page, sync_playwright

from . import scene, shop
from .conftest import ARGUMENTS, CHROMIUM
from .stage import Stage

FOLDER = Path(__file__).parent.parent.parent / "docs" / "screenshots"
LARGEST = 150_000
SHOTS = {
    "overview": ("/", 1280, 900),
    "jobs": ("/jobs?filter=state:failed", 1280, 760),
    "job": ("/jobs/{failed}", 1280, 760),
    "job-waits": ("/jobs/{ready}", 1280, 560),
    "failures": ("/failures", 1280, 520),
    "queues": ("/queues", 1280, 620),
    "queue": ("/queues/mail", 1280, 900),
    "pods": ("/pods", 1280, 420),
    "schedules": ("/schedules", 1280, 420),
    "performance": ("/performance", 1280, 560),
    "performance-compared": ("/performance?range=24h&compare=before", 1280, 600),
    "task": ("/performance/task?task=shop.mail.welcome", 1280, 900),
    "limits": ("/limits", 1280, 480),
    "operations": ("/operations", 1280, 760),
    "system": ("/system", 1280, 760),
    "dry-run": ("/jobs?filter=state:failed", 1280, 760),
    "palette": ("/queues", 1280, 620),
    "phone-overview": ("/", 390, 780),
    "phone-jobs": ("/jobs?filter=state:failed", 390, 780),
}


def of_the_shop() -> ModuleType:
    """The same tasks as they would lie on a server: a traceback in a picture names no folder of whoever took it."""
    path, module = "/srv/shop/tasks.py", ModuleType("shop.tasks")
    source = Path(shop.__file__).read_text()
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    sys.modules[module.__name__] = module
    exec(compile(source, path, "exec"), module.__dict__)
    return module


def prepare(name: str, page: Page) -> None:
    if name == "dry-run":
        page.locator("input[name=id]").first.check()
        page.locator("input[name=all]").check()
        page.get_by_role("button", name="revive").click()
        page.wait_for_selector("#dialog[open] h1")
    if name == "palette":
        page.keyboard.press("Control+k")
        page.keyboard.type("ma")
        page.wait_for_selector("#palette li")
        page.wait_for_timeout(400)


def main(wanted: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    scene.shop = of_the_shop()  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(scene.make(f"sqlite:///{folder}/shop.db"), minutes=25 * 60)
        stage.start()
        stage.wait()
        assert stage.scene is not None
        stage.ask(scene.act(stage.app))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            for theme in ("light", "dark"):
                for name, (path, width, height) in SHOTS.items():
                    if wanted and name not in wanted:
                        continue
                    context = browser.new_context(
                        viewport={"width": width, "height": height}, color_scheme=theme, reduced_motion="reduce"
                    )
                    page = context.new_page()
                    page.goto(stage.url + path.format(**stage.scene.ids))
                    page.wait_for_selector("html[data-ready]")
                    page.wait_for_selector('#live[data-live="live"], #live[hidden]', state="attached")
                    page.wait_for_timeout(500)
                    prepare(name, page)
                    picture = FOLDER / f"{name}-{theme}.png"
                    page.screenshot(path=picture)
                    context.close()
                    size = picture.stat().st_size
                    sys.stdout.write(f"{os.path.relpath(picture)}  {size:,}\n")
                    if size > LARGEST:
                        sys.stderr.write(f"{picture} is larger than {LARGEST:,} bytes\n")
            browser.close()
        stage.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
