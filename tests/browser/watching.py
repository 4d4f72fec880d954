"""A page under observation, and what axe says of it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from playwright.sync_api import ConsoleMessage, Page, Request

from .stage import OTHER_HOST, Stage

ROOT = Path(__file__).parent.parent.parent
HINTS = """
addEventListener("securitypolicyviolation", (e) => console.error("CSP: " + e.violatedDirective + " " + e.blockedURI))
"""


@functools.cache
def axe_source() -> str:
    path = ROOT / "node_modules" / "axe-core" / "axe.min.js"
    assert path.is_file(), "axe-core is not here: make assets"
    return path.read_text()


class Watched:
    def __init__(self, page: Page, stage: Stage) -> None:
        self.page = page
        self.stage = stage
        self.lines: list[str] = []
        self.asked: list[str] = []
        self.allowed: list[str] = []
        page.add_init_script(HINTS)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.lines.append(f"error: {error}"))
        page.on("request", self._request)

    def _said(self, message: ConsoleMessage) -> None:
        self.lines.append(f"{message.type}: {message.text} ({message.location.get('url', '')})")

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)

    def allow(self, part: str) -> None:
        """A line that this test brings about itself."""
        self.allowed.append(part)

    def go(self, path: str) -> Page:
        self.page.goto(self.stage.url + path)
        self.page.wait_for_selector("html[data-ready]")
        return self.page

    def leave(self) -> None:
        """Before its server ends: a page that is open asks it for news, and says on the console that it is gone."""
        self.page.goto("about:blank")

    def live(self) -> None:
        self.page.wait_for_selector('#live[data-live="live"]')

    def axe(self, *rules: str) -> list[str]:
        """Violations, in short; of these rules only, if some are named."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(axe_source())
        found: list[dict[str, Any]] = self.page.evaluate(
            "(rules) => axe.run(document, {resultTypes: ['violations'], elementRef: false, "
            "...(rules.length ? {runOnly: rules} : {})}).then((it) => it.violations)",
            list(rules),
        )
        return [
            f"{each['id']}: {each['help']} {node['target']} {node['html'][:160]}"
            for each in found
            for node in each["nodes"][:3]
        ]

    def check(self) -> None:
        own = tuple(f"http://{host}:{self.stage.port}/" for host in ("127.0.0.1", OTHER_HOST))
        foreign = [url for url in self.asked if not url.startswith((*own, "data:", "about:", "chrome://crash"))]
        assert not foreign, foreign
        left = [line for line in self.lines if not any(part in line for part in self.allowed)]
        assert not left, left
