"""For reading only: refused at the gate, by the storage that pages are given, and by the connection itself."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from treadle import App
from treadle.core.errors import ReadOnly, StorageUnavailable
from treadle.ports import Storage
from treadle.web import Dashboard
from treadle.web.storage_views import READS, read_only

from .world import SAME, client, make_app, who, world_on

pytestmark = pytest.mark.anyio

# Verbs of the port that write, or might.
WRITES = {
    "close", "detach", "migrate", "roles", "insert", "claim", "recover", "apply", "register", "beat", "sign_off",
    "lead", "save_schedule", "fire", "take", "save_limit", "drain_limit", "remove_limit", "seize", "free",
    "sweep_locks", "wake", "load", "save_operation", "advance", "note", "roll_up", "record", "forget_history",
    "prune", "sweep", "backup", "borrow", "borrow_async", "abandoned",
}  # fmt: skip


def test_every_verb_of_the_port_reads_or_is_refused() -> None:
    """A verb that is new is refused; if it only reads, name it in READS."""
    verbs = {name for name in vars(Storage) if not name.startswith("_")} | {"capabilities"}
    assert verbs >= READS and not READS & WRITES
    assert verbs - READS >= WRITES & verbs


async def call(verb: Any) -> None:
    found = verb()
    if inspect.isawaitable(found):
        await found


async def test_the_sealed_storage_refuses_whatever_writes(tmp_path: Path) -> None:
    app = make_app(f"sqlite:///{tmp_path}/x.db")
    async with app:
        sealed: Any = read_only(app.storage)
        for name in {each for each in vars(Storage) if not each.startswith("_")} - READS:
            with pytest.raises(ReadOnly):
                await call(getattr(sealed, name))
        assert (await sealed.queues()) == [] and sealed.capabilities.durable
        with pytest.raises(AttributeError):
            _ = sealed.nonsense


async def test_a_get_could_not_write_if_it_tried(tmp_path: Path) -> None:
    async with world_on(tmp_path / "x.db", filled=False) as world:
        with pytest.raises(ReadOnly):
            await world.web.reads.enqueue("hello", {"name": "x"})
        with pytest.raises(ReadOnly):
            await world.web.reads.queues.pause("x")
        # A limit that code declares is made by who uses it, and not by who looks at it.
        assert "slack" not in [each["name"] for each in (await world.get("/limits")).json()["items"]]


async def test_a_read_only_dashboard_changes_nothing(tmp_path: Path) -> None:
    async with world_on(tmp_path / "x.db", read_only=True, pages=True) as world:
        for route in world.web.table.routes:
            path = "/" + "/".join("x" if part.startswith("{") else part for part in route.parts)
            answer = await world.http.request(route.method, path, headers={"X-Role": "admin", **SAME})
            if not (route.is_safe or route.only_reads or route.in_memory):
                assert answer.status_code == 403 and "reading only" in answer.text, path
        shown = (await world.get("/capabilities")).json()
        assert shown["read_only"] and shown["actions"] == ["payload", "see"]
        assert (await world.post("/operations/preview", {"act": "cancel", "filter": "state:ready"})).status_code == 200
        assert await world.audit() == [] or all(line.act != "refused" for line in await world.audit())


async def test_a_read_only_connection(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    async with make_app(url) as app:
        await app.enqueue("hello", {"name": "x"})
    looking = App(url, read_only=True)
    async with looking, client(Dashboard(looking, access=who, read_only=True, pages=False)) as http:
        found = await http.get("/api/v1/jobs", headers={"X-Role": "viewer"})
        assert found.status_code == 200 and len(found.json()["items"]) == 1
        for path in (
            "/queues",
            "/pods",
            "/schedules",
            "/limits",
            "/audit",
            "/operations",
            "/series",
            "/system",
            "/doctor",
        ):
            assert (await http.get(f"/api/v1{path}", headers={"X-Role": "viewer"})).status_code == 200, path
        with pytest.raises((ReadOnly, StorageUnavailable)):
            await looking.enqueue("hello", {"name": "y"})
