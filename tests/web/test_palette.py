"""The palette's verbs: for whom they are, when they make sense, and that each leads to a page that asks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from treadle import App
from treadle.testing.conformance.builders import a_job, a_pod
from treadle.web import Dashboard

from .world import SAME, World, who, world_on

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", pages=True) as made:
        await made.app.storage.register(a_pod(label="web-1", queues={"default": 1}))
        yield made


async def titles(world: World, text: str, role: str = "admin") -> list[str]:
    answer = await world.get("/palette", role=role, params={"text": text})
    assert answer.status_code == 200, answer.text
    return [each["title"] for each in answer.json()["items"]]


async def test_a_verb_finds_its_subject(world: World) -> None:
    await world.app.queues.pause("later")
    await world.app.schedules.add("weekly", "0 3 * * 1", "hello", {"name": "x"})
    await world.app.schedules.pause("weekly")
    world.web.counts.forget()
    for text, first in {
        "pause default": "Pause queue default",
        "resume later": "Resume queue later",
        "unpause later": "Resume queue later",
        "scale default": "Scale queue default",
        "set default": "Scale queue default",
        "retry failures of broken": "Revive failures of task broken",
        "retry failures of default": "Revive failures of queue default",
        "kill later": "Cancel jobs of queue later",
        "cancel hello": "Cancel jobs of task hello",
        "enqueue hello": "Enqueue task hello",
        "fire nightly": "Fire schedule nightly",
        "trigger nightly": "Fire schedule nightly",
        "pause nightly": "Pause schedule nightly",
        "resume weekly": "Resume schedule weekly",
        "edit nightly": "Edit schedule nightly",
        "quiet web-1": "Quiet pod web-1",
        "drain web-1": "Quiet pod web-1",
        "stop web-1": "Stop pod web-1",
        "set limit slack": "Set limit slack",
        "unlock import": "Free lock import",
        "retry all": "Revive all failed jobs",
        "new schedule": "Add a schedule",
        f"retry {world.ids['failed']}": f"Revive job {world.ids['failed']}",
        f"kill {world.ids['ready']}": f"Cancel job {world.ids['ready']}",
        world.ids["scheduled"]: f"Open job {world.ids['scheduled']}",
    }.items():
        found = await titles(world, text)
        assert found[:1] == [first], (text, found)


async def test_what_makes_no_sense_is_not_offered(world: World) -> None:
    await world.app.queues.pause("later")
    await world.app.pods.quiet("web-1")
    world.web.counts.forget()
    assert "Pause queue later" not in await titles(world, "pause later")
    assert "Resume queue default" not in await titles(world, "resume default")
    assert "Resume schedule nightly" not in await titles(world, "resume nightly")
    assert "Quiet pod web-1" not in await titles(world, "quiet web-1")
    assert "Let pod web-1 serve" in await titles(world, "serve web-1")
    assert await titles(world, f"revive {world.ids['ready']}") == []
    assert "Revive failures of queue later" not in await titles(world, "revive later")
    assert await titles(world, "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11") == []


async def test_only_what_the_role_may_do_is_offered(world: World) -> None:
    for text, needs in {
        "pause default": "operator",
        "revive broken": "operator",
        "quiet web-1": "operator",
        "fire nightly": "admin",
        "scale default": "admin",
        "enqueue hello": "admin",
        "stop web-1": "admin",
        "free import": "admin",
    }.items():
        for role in ("viewer", "operator", "admin"):
            answer = await world.get("/palette", role=role, params={"text": text})
            verb = text.split()[0]
            asked = [each["title"] for each in answer.json()["items"] if each["title"].lower().startswith(verb)]
            may = role == "admin" or role == needs
            assert bool(asked) is may, (text, role, answer.json())
    assert "Open queue default" in await titles(world, "default", "viewer")


async def test_nothing_is_offered_where_nothing_can_be_changed(tmp_path: Path) -> None:
    async with world_on(tmp_path / "web.db", pages=True, read_only=True) as world:
        answer = await world.get("/palette", params={"text": "default"})
        assert {each["asks"] for each in answer.json()["items"]} == {False}


async def test_each_choice_leads_to_a_page_that_asks(world: World) -> None:
    """GET: nothing is changed by choosing."""
    before = len(await world.audit())
    words = ["default", "later", "hello", "nightly", "web-1", "slack", "import", "add", "all", "help"]
    words += [world.ids[key] for key in ("failed", "ready", "scheduled")]
    tried = 0
    for text in words:
        for each in (await world.get("/palette", params={"text": text})).json()["items"]:
            answer = await world.http.get(
                each["url"], headers={"X-Role": "admin", "HX-Request": "true", "Treadle-Dialog": "1", **SAME}
            )
            assert answer.status_code == 200, each
            if each["asks"] and each["title"] != "Help and keys":
                assert 'class="panel ask alone"' in answer.text and 'method="post"' in answer.text, each
            tried += 1
    assert tried >= 50
    assert len(await world.audit()) == before


async def test_the_palette_looks_at_every_one_of_very_many_queues(tmp_path: Path) -> None:
    """The first page of a list is not all there is."""
    app = App(f"sqlite:///{tmp_path / 'web.db'}", queues=["default"])
    async with app:
        await app.storage.insert([a_job(queue=f"queue-{n:05}") for n in range(5000)])
        world = World(app, Dashboard(app, access=who, pages=True))
        async with world.http:
            assert (await titles(world, "pause queue-04321"))[0] == "Pause queue queue-04321"
            assert len(await titles(world, "queue")) == 24
        await world.web.close()
