"""Causes that people know of: folded on the page, left out of the overview, told of in the audit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from .world import World, world_on

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shown(tmp_path: Path) -> AsyncIterator[World]:
    async with world_on(tmp_path / "shown.db", pages=True) as world:
        yield world


async def cause(world: World) -> str:
    groups = (await world.app.jobs.failures()).groups
    return next(each.cause for each in groups if each.task == "broken")


async def test_mute_and_unmute_over_http(world: World) -> None:
    which = await cause(world)
    answer = await world.post("/failures/mute", {"cause": which, "reason": "known"}, "operator")
    assert answer.json() == {"cause": which, "muted": True}
    line = next(each for each in await world.audit() if each.act == "jobs.mute")
    assert (line.subject, line.by, line.reason) == (which, "the-operator", "known")
    assert f"request {answer.headers['x-request-id']}" in line.detail
    items = (await world.get("/failures")).json()["items"]
    assert {each["cause"]: each["muted"] for each in items}[which] is True
    assert sum(each["muted"] for each in items) == 1
    answer = await world.post("/failures/unmute", {"cause": which}, "operator")
    assert answer.json() == {"cause": which, "muted": False}
    assert not any(each["muted"] for each in (await world.get("/failures")).json()["items"])
    assert (await world.post("/failures/unmute", {"cause": which})).status_code == 404
    assert next(each for each in await world.audit() if each.act == "jobs.unmute").subject == which


@pytest.mark.parametrize(
    "body", [{"cause": "x"}, {"cause": "a:b:c", "until": "2020-01-01T00:00:00Z"}, {"cause": "a:b:c", "until": "soon"}]
)
async def test_what_cannot_be_muted(world: World, body: dict[str, str]) -> None:
    assert (await world.post("/failures/mute", body)).status_code == 400


async def test_a_viewer_mutes_nothing(world: World) -> None:
    body = {"cause": await cause(world)}
    assert (await world.post("/failures/mute", body, "viewer+payload")).status_code == 403
    assert [*await world.app.storage.mutes()] == []


async def test_a_muted_cause_is_folded_and_left_out_of_the_overview(shown: World) -> None:
    which = await cause(shown)

    async def page(path: str, role: str = "operator") -> str:
        shown.web.counts.forget()
        return (await shown.http.get(path, headers={"X-Role": role})).text

    assert 'id="muted"' not in await page("/failures")
    assert "ValueError" in await page("/")
    await shown.app.jobs.mute(which, "1h", by="ann")
    failures = await page("/failures")
    shut, _, folded = failures.partition('id="muted"')
    assert "in broken" not in shut.replace("</a>", "") and "ValueError" not in shut
    assert "ValueError" in folded and "muted by ann" in folded and "Unmute" in folded
    assert "ValueError" not in await page("/")
    assert "Unmute" not in await page("/failures", "viewer")
