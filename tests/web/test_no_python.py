"""No page says anything as a Python program prints it: None, True, a tuple, a float with sixteen digits."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from treadle import Context, Snooze, Throttle, Wait
from treadle.core.audit import AuditLine

from .world import World, world_on

pytestmark = pytest.mark.anyio

PYTHON = re.compile(
    r"\b(?:None|True|False|UNSET|nan|inf|NoneType|RetryOverride|timedelta|Decimal|Struct|Ellipsis)\b"
    r"|datetime\.|\bUUID\(|<function|<class|<object|object at 0x|\{'|\['|(?<!\w)\('|(?<!\w)\(\)"
    r"|\bb'[^s]|, \)|\d\.\d{6,}|=None"
)
SAID = ("title", "aria-label", "placeholder", "value", "data-copy", "data-command", "alt")


class Text(HTMLParser):
    """What somebody can read of a page, its labels and its fields included."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in ("script", "style")
        self.parts += [value for name, value in attrs if name in SAID and value]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)


def python_in(page: str) -> list[str]:
    read = Text()
    read.feed(page)
    return [
        part[max(0, match.start() - 40) : match.end() + 40] for part in read.parts for match in PYTHON.finditer(part)
    ]


def test_the_test_finds_what_it_looks_for() -> None:
    for text in ("max_workers None", "rate 0.016666666666666666", "('a', 'b')", "{'a': 1}"):
        assert python_in(f"<p>{text}</p>"), text
        assert python_in(f'<p title="{text}">x</p>'), text
    assert not python_in("<p>None-such is 0.25 of a task, Trueman</p><script>None</script>".replace("None-such", "x"))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", pages=True) as made:
        await _enrich(made)
        yield made


async def _enrich(world: World) -> None:
    """Acts of all kinds, states of all kinds, and lines that an older version wrote."""
    app, ids = world.app, world.ids

    @app.task(name="waits")
    async def waits(ctx: Context[Any]) -> None:
        raise Wait(await ctx.answer_token("1h"))

    @app.task(name="slow", timeout=0.05, retry=1)
    async def slow() -> None:
        await asyncio.sleep(10)

    @app.task(name="stops")
    async def stops() -> None:
        await asyncio.sleep(10)

    @app.task(name="snoozes")
    async def snoozes(times: int) -> None:
        raise Snooze("1h")

    @app.task(name="throttled", queue="throttled")
    async def throttled() -> None:
        raise Throttle("10m")

    started = {
        "waiting": "waits",
        "timeout": "slow",
        "stopped": "stops",
        "snoozed": "snoozes",
        "throttled": "throttled",
    }
    for key, task in started.items():
        ids[key] = (await app.enqueue(task, {"times": 1} if task == "snoozes" else {})).id
    left = {"waiting": "waiting", "timeout": "failed", "stopped": "cancelled", "snoozed": "scheduled"}
    async with app.worker({"default": 4, "throttled": 1}, label="pod-2"), asyncio.timeout(20):
        while (await app.jobs.get(ids["stopped"])).state != "running":
            await asyncio.sleep(0.02)
        world.pod = (await app.pods.list())[0].id
        await app.jobs.cancel(ids["stopped"], by="ann")
        for key, state in left.items():
            while (await app.jobs.get(ids[key])).state != state:
                await asyncio.sleep(0.02)
    queues = app.queues
    await queues.set("later", rate="1/m", max_workers=None, keep_failed="forever", timeout="off", by="ann")
    await queues.set("later", backoff="linear", backoff_base="30s", max_attempts=5, by="ann")
    await queues.set("later", backoff=None, backoff_base=None, max_attempts=None, rate=None, by="ann")
    await queues.set("later", rate="7/h", aging="on", burst=3, by="ann")
    await queues.scale("default", 3, by="ann")
    await queues.pause("later", by="ann")
    await queues.cool("mail", "10m", by="ann")
    await queues.warm("mail", by="ann")
    await app.schedules.add("often", "every 90s", "hello", {"name": "x"}, tz="Europe/Berlin", by="ann", jitter="5s")
    await app.schedules.edit("often", priority=3, catch_up=2, by="ann")
    await app.schedules.pause("often", by="ann")
    await app.schedules.fire("nightly", by="ann")
    await app.limits.set("mail", "1/m", by="ann")
    await app.limits.drain("mail", by="ann")
    begun = await app.operations.start("reschedule", "state:scheduled", delay="10m", by="ann")
    begun = await app.operations.start("priority", "state:scheduled", priority=5)
    ids["operation"] = begun.id
    ids["cause"] = (await app.jobs.failures()).groups[0].cause
    await app.jobs.mute(ids["cause"], "1h", by="ann")
    old = (
        "rate 0.016666666666666666, max_workers None",
        "retry RetryOverride(base=30.0, curve='linear')",
        "retry None",
    )
    lines = [AuditLine(id=f"old-{n}", act="queues.set", subject="mail", detail=each) for n, each in enumerate(old)]
    await app.client.ask(lambda storage: storage.note(lines))


def every_page(world: World) -> list[str]:
    """Each GET route of the pages, with things that are there."""
    ids = world.ids
    known = {
        "/jobs/{id}": [ids[key] for key in ids if key not in ("operation", "cause")],
        "/operations/{id}": [ids["operation"]],
        "/pods/{id}": [world.pod],
        "/queues/{name}": ["default", "later", "throttled", "mail"],
        "/schedules/{name}": ["nightly", "often"],
        "/limits/{scope}": ["mail", "slack"],
    }
    more = {
        "/performance/task": "?task=hello",
        "/operations/new": "?act=cancel&filter=state:scheduled",
        "/enqueue": f"?like={ids['failed']}",
        "/jobs": "?filter=state:failed",
    }
    found: list[str] = []
    for route in world.web.table.routes:
        if route.method != "GET" or route.path.startswith(
            ("/static", "/login", "/api", "/metrics", "/healthz", "/readyz")
        ):
            continue
        stem = next((stem for stem in known if route.path.startswith(stem)), None)
        for value in known[stem] if stem else [""]:
            path = re.sub(r"\{[^}]*\}", value, route.path, count=1) if stem else route.path
            found.append(path.replace("{cause}", ids["cause"]) + more.get(route.path, ""))
    return found


async def test_no_page_says_anything_as_python_prints_it(world: World) -> None:
    wrong: dict[str, list[str]] = {}
    seen: set[str] = set()
    for path in every_page(world):
        assert "{" not in path, path
        answer = await world.http.get(path, headers={"X-Role": "admin"})
        if answer.headers.get("content-type", "").startswith("text/html"):
            seen.add(path)
            if told := python_in(answer.text):
                wrong[path] = told
    assert len(seen) > 60, seen
    assert not wrong, "\n".join(f"{path}: {told}" for path, told in wrong.items())


async def test_the_audit_says_settings_as_people_write_them(world: World) -> None:
    page = (await world.http.get("/operations", headers={"X-Role": "admin"})).text
    for told in ("rate 1/m, max_workers –", "keep_failed forever", "timeout off", "backoff_base 30s", "delay 10m"):
        assert told in page, told
    assert "until resumed" in page and "cool-down ended" in page
