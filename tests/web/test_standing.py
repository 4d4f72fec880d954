"""A dashboard that finds out by itself that nothing can be written: no buttons, a banner, and a clear refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treadle import App
from treadle.core.errors import ReadOnly, StorageUnavailable
from treadle.web import Dashboard
from treadle.web.writability import LOOK, Writability

from .world import SAME, client, make_app, who, world_on

pytestmark = pytest.mark.anyio

ADMIN = {"X-Role": "admin", **SAME}
BANNER = "this storage can be read and not written"


async def test_a_storage_that_can_only_be_read_makes_the_dashboard_so(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    async with make_app(url) as app:
        await app.enqueue("hello", {"name": "x"})
    looking = App(url, read_only=True)
    async with looking, client(Dashboard(looking, access=who)) as http:  # which was not told
        shown = await http.get("/queues/default", headers=ADMIN)
        assert BANNER in shown.text and "/queues/default/pause" not in shown.text
        able = (await http.get("/api/v1/capabilities", headers=ADMIN)).json()
        assert able["read_only"] and able["actions"] == ["payload", "see"]
        assert (await http.get("/api/v1/system", headers=ADMIN)).json()["read_only"]
        refused = await http.post("/api/v1/queues/default/pause", headers=ADMIN, json={})
        assert refused.status_code == 403 and "for reading only" in refused.json()["error"]["message"]
        with pytest.raises(ReadOnly):
            await looking.queues.pause("default")


async def test_even_the_first_request_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    async with make_app(url) as app:
        await app.enqueue("hello", {"name": "x"})
    looking = App(url, read_only=True)
    async with looking, client(Dashboard(looking, access=who, pages=False)) as http:
        assert (await http.post("/api/v1/queues/default/pause", headers=ADMIN, json={})).status_code == 403


async def test_where_it_can_be_written_there_is_no_banner(tmp_path: Path) -> None:
    async with world_on(tmp_path / "x.db", pages=True) as world:
        shown = await world.http.get("/queues/later", headers=ADMIN)
        assert "Read-only" not in shown.text and "/queues/later/pause" in shown.text
        assert not world.web.is_read_only


async def test_what_was_chosen_is_said_otherwise(tmp_path: Path) -> None:
    async with world_on(tmp_path / "x.db", pages=True, read_only=True) as world:
        shown = (await world.http.get("/queues/later", headers=ADMIN)).text
        assert "Read-only: nothing can be changed" in shown and BANNER not in shown


class Asked:
    """An app of which nothing but this is asked."""

    def __init__(self) -> None:
        self.writable: bool | Exception = True
        self.times = 0
        self.client = self

    async def ask(self, verb: Any, pauses: Any) -> bool:
        self.times += 1
        if isinstance(self.writable, Exception):
            raise self.writable
        return self.writable


async def test_it_asks_now_and_then_and_keeps_what_it_knows_while_nobody_answers() -> None:
    app, now = Asked(), 100.0
    standing = Writability(app, chosen=False, clock=lambda: now)  # type: ignore[arg-type]
    await standing.keep_up()
    assert app.times == 1 and not standing.is_read_only
    app.writable = False
    await standing.keep_up()
    assert app.times == 1  # too soon
    now += LOOK
    await standing.keep_up()  # in passing: this request does not wait for it
    assert standing._looking is not None
    await standing._looking
    assert app.times == 2 and standing.is_read_only
    app.writable = StorageUnavailable("away")
    await standing.look()
    assert standing.is_read_only
    app.writable = True  # promoted
    await standing.look()
    assert not standing.is_read_only


async def test_what_was_chosen_asks_nobody() -> None:
    app = Asked()
    standing = Writability(app, chosen=True)  # type: ignore[arg-type]
    await standing.keep_up()
    assert app.times == 0 and standing.is_read_only and not standing.stands_by


async def test_a_page_that_is_opened_while_the_storage_is_away_comes_back_by_itself(tmp_path: Path) -> None:
    away = App(f"sqlite:///{tmp_path}/nowhere/x.db")
    async with client(Dashboard(away, access=who)) as http:
        shown = await http.get("/queues", headers=ADMIN)
        assert shown.status_code == 503 and '<meta http-equiv="refresh" content="5">' in shown.text
        asked = await http.get("/api/v1/queues", headers=ADMIN)
        assert asked.status_code == 503 and "cannot be reached" in asked.json()["error"]["message"]
        lost = await http.get("/nowhere", headers=ADMIN)
        assert lost.status_code == 404 and "http-equiv" not in lost.text
    (tmp_path / "nowhere").mkdir()
    await away.close()
