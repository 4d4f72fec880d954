"""Items of attention that somebody knows of, and the buttons that mend them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests import postgres_server
from treadle import App
from treadle.core.attention import Act, Item, Verb
from treadle.core.rollup import Rollup
from treadle.ports import Storage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import a_job, a_pod
from treadle.web import Dashboard
from treadle.web.access import ROLES
from treadle.web.attending import Attending
from treadle.web.mending import WAYS, buttons

from .world import SAME, client, who, world_on

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Storage]:
    if request.param == "sqlite":
        made: Storage = SQLiteStorage(tmp_path / "x.db")
    else:
        made = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await made.open()
    yield made
    await made.close()


async def items_of(web: Dashboard, attending: Attending | None = None) -> dict[str, Item]:
    web.counts.forget()
    attending = attending or web.attending
    return {item.kind: item for item in attending.judge(await attending.gather())}


async def paused(app: App) -> None:
    await app.storage.insert([a_job(queue="mail")])
    await app.queues.pause("mail", by="ann")


def posting(role: str) -> dict[str, str]:
    return {"X-Role": role, **SAME}


async def test_an_acknowledged_item_is_folded_until_it_changes(storage: Storage) -> None:
    app = App(storage=storage)
    await paused(app)
    web = Dashboard(app, access=who, pages=True)
    key = (await items_of(web))["paused"].key
    async with client(web) as http:
        asked = await http.get("/attention/acknowledge", params={"key": key}, headers=posting("operator"))
        assert "Acknowledge this?" in asked.text and "queue mail is paused" in asked.text
        form = {"key": key, "note": "on it"}
        done = await http.post("/attention/acknowledge", data=form, headers=posting("operator"))
        assert done.status_code == 303
        page = (await http.get("/", headers=posting("operator"))).text
        fresh, _, folded = page.partition('id="acknowledged"')
        assert "queue mail is paused" not in fresh and "queue mail is paused" in folded
        assert "Acknowledged by the-operator" in folded and ": on it" in folded and "Show it again" in folded
        assert "Show it again" not in (await http.get("/", headers=posting("viewer"))).text
        told = (await http.get("/api/v1/attention", headers=posting("viewer"))).json()["items"]
        (item,) = [each for each in told if each["kind"] == "paused"]
        known = item["acknowledged"]
        assert (known["by"], known["note"], known["kept_here"]) == ("the-operator", "on it", False)
        assert told[-1] == item and item["fingerprint"] == ""
        assert [each.muted for each in (await app.jobs.failures()).groups] == []
        line = next(each for each in await app.audit.list(50) if each.act == "attention.acknowledge")
        assert (line.subject, line.by, line.reason) == ("paused mail", "the-operator", "on it")
        await app.queues.resume("mail", by="ann")
        await app.queues.pause("mail", by="bob")  # over, and back again
        assert (await items_of(web))["paused"].acknowledged is None
    await web.close()


async def test_it_can_be_shown_again_and_over_http(tmp_path: Path) -> None:
    async with world_on(tmp_path / "x.db", filled=False) as world:
        await paused(world.app)
        key = (await items_of(world.web))["paused"].key
        assert (await world.post("/attention/acknowledge", {"key": key}, "viewer")).status_code == 403
        answer = await world.post("/attention/acknowledge", {"key": key, "note": "x"}, "operator")
        assert answer.json() == {"key": key, "acknowledged": True, "kept_here": False}
        assert (await items_of(world.web))["paused"].acknowledged is not None
        assert (await world.post("/attention/unacknowledge", {"key": key}, "operator")).status_code == 200
        assert (await items_of(world.web))["paused"].acknowledged is None
        assert (await world.post("/attention/unacknowledge", {"key": key})).status_code == 404
        assert (await world.post("/attention/acknowledge", {"key": "!attention:x"})).status_code == 404


async def test_a_read_only_dashboard_remembers_in_its_process(tmp_path: Path) -> None:
    async with world_on(tmp_path / "x.db", filled=False, pages=True, read_only=True) as world:
        await paused(world.app)
        key = (await items_of(world.web))["paused"].key
        answer = await world.http.post("/attention/acknowledge", data={"key": key}, headers=posting("viewer"))
        assert answer.status_code == 403
        answer = await world.post("/attention/acknowledge", {"key": key}, "operator")
        assert answer.json()["kept_here"] is True
        page = (await world.http.get("/", headers=posting("operator"))).text
        assert "kept in this process only" in page.partition('id="acknowledged"')[2]
        assert [*await world.app.storage.mutes()] == []
        assert not [each for each in await world.audit() if each.act.startswith("attention.")]
        assert (await items_of(world.web, Attending(world.web)))["paused"].acknowledged is None
        assert (await world.post("/attention/unacknowledge", {"key": key}, "operator")).status_code == 200
        assert (await items_of(world.web))["paused"].acknowledged is None


async def test_an_acknowledgement_of_what_is_over_goes_with_the_next_one(tmp_path: Path) -> None:
    async with world_on(tmp_path / "x.db", filled=False) as world:
        now = 100.0
        attending = world.web.attending = Attending(world.web, clock=lambda: now)
        await paused(world.app)
        await attending.acknowledge((await items_of(world.web))["paused"].key, by="ann")
        await world.app.queues.resume("mail")
        await items_of(world.web)
        now += 600.0
        await items_of(world.web)
        assert len(await world.app.storage.mutes()) == 1  # a page writes nothing
        await world.app.storage.insert([a_job(queue="other")])
        await world.app.queues.pause("other")
        await attending.acknowledge((await items_of(world.web))["paused"].key, by="ann")
        (kept,) = await world.app.storage.mutes()
        assert kept.cause.startswith("!attention:paused:")


async def test_since_when_survives_a_restart_of_the_web_process(storage: Storage) -> None:
    now = await storage.time()
    minute = now - now % 60
    bad = [
        Rollup(resolution=60, at=minute - n * 60, queue="mail", task="pay", outcomes={"retried": 30}) for n in range(5)
    ]
    good = [
        Rollup(resolution=60, at=minute - n * 60, queue="mail", task="pay", outcomes={"succeeded": 30})
        for n in range(5, 40)
    ]
    await storage.roll_up([*bad, *good])
    await storage.insert([a_job(queue="alone"), a_job(queue="held")])
    app = App(storage=storage)
    await app.queues.pause("held", by="ann")
    await storage.register(a_pod(label="gone", queues={"mail": 1}, lease=0.001))
    web = Dashboard(app, access=who, pages=False)
    async with asyncio.timeout(60):
        while "lost-pod" not in (first := await items_of(web)):
            await asyncio.sleep(0.02)
    second = await items_of(web, Attending(web, clock=lambda: 10.0**6))
    for kind in ("failing", "unserved", "paused", "lost-pod"):
        one, other = first[kind], second[kind]
        assert one.seconds is not None and other.seconds is not None and not one.at_least and not other.at_least
        assert other.seconds == pytest.approx(one.seconds, abs=5.0), kind
    assert (first["failing"].seconds or 0) >= 240.0
    await web.close()


# The buttons ---------------------------------------------------------------------------------------------------------


def test_every_act_has_a_route_that_is_declared_with_its_action() -> None:
    table = Dashboard(App("memory://"), access="open", pages=True).table
    assert set(WAYS) == set(get_args(Verb))
    for verb, way in WAYS.items():
        (button,) = buttons([Act(verb, "x")], lambda _: True)
        route = table.find(way.method, button.path).route
        assert route is not None, verb
        # The page that previews an operation asks for the action that its query names.
        assert button.query.get("act") == way.action if route.path == "/operations/new" else route.action == way.action


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_the_buttons_of_what_it_may(role: str) -> None:
    shown = buttons([Act(verb, "x") for verb in WAYS], lambda action: action in ROLES[role])
    assert {each.way.action for each in shown} == {way.action for way in WAYS.values()} & ROLES[role]


@pytest.mark.parametrize(
    ("role", "read_only", "has_it"),
    [("admin", False, True), ("operator", False, True), ("viewer", False, False), ("admin", True, False)],
)
async def test_the_button_that_mends_an_item(tmp_path: Path, role: str, read_only: bool, has_it: bool) -> None:
    async with world_on(tmp_path / "x.db", filled=False, pages=True, read_only=read_only) as world:
        await paused(world.app)
        page = (await world.http.get("/", headers={"X-Role": role})).text
        assert ('action="/queues/mail/resume"' in page) is has_it
        assert ("/attention/acknowledge?key=" in page) is (role != "viewer")
        assert "treadle queues resume mail" in page


def test_the_routes_that_pass_where_all_is_read_only_are_these() -> None:
    table: Any = Dashboard(App("memory://"), access="open", pages=True).table
    assert {(route.method, route.path, route.action) for route in table.routes if route.in_memory} == {
        ("POST", f"{base}/attention/{act}", "mute")
        for base in ("", "/api/v1")
        for act in ("acknowledge", "unacknowledge")
    }


async def test_many_queues_with_one_trouble_are_one_row_that_leads_to_them(tmp_path: Path) -> None:
    async with world_on(tmp_path / "x.db", filled=False, pages=True) as world:
        await world.app.storage.insert([a_job(queue=f"q-{n:03}") for n in range(30)])
        page = (await world.http.get("/", headers={"X-Role": "admin"})).text
        assert (
            "30 queues have ready jobs, and no live pod serves them: " in page
            and 'href="/queues?show=unserved"' in page
        )
        listed = (await world.http.get("/queues?show=unserved", headers={"X-Role": "admin"})).text
        assert "q-000" in listed and "30 of 3" in listed
        none = (await world.http.get("/queues?show=paused", headers={"X-Role": "admin"})).text
        assert "No queue matches any more" in none
