"""A small world to serve: an app on a SQLite file with jobs in many states, a schedule, a limit, and a secret."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from treadle import App, Fail
from treadle.client.client import Client
from treadle.core.job import Change
from treadle.ports import Applied
from treadle.web import Access, Dashboard

from .wire import Wire

CANARY = "c4n4ry-of-a-secret"  # nobody may see it
PAYLOAD = "p4yl04d-of-a-job"  # only who may see payloads
ORIGIN = "http://localhost"
SAME = {"Sec-Fetch-Site": "same-origin"}
ROLES = ("viewer", "viewer+payload", "operator", "admin")


def who(request: Request) -> Access | None:
    """Whoever the header names is believed: this is a test."""
    role = request.headers.get("x-role")
    return None if role is None else Access(f"the-{role}", role)


class World:
    def __init__(self, app: App, web: Dashboard) -> None:
        self.app = app
        self.web = web
        self.ids: dict[str, str] = {}
        self.pod = ""
        self.http = client(web)

    async def ask(
        self, method: str, path: str, *, role: str | None = "admin", json: Any = None, **options: Any
    ) -> httpx.Response:
        headers = {**({} if role is None else {"X-Role": role}), **SAME, **options.pop("headers", {})}
        if path.startswith("/") and not path.startswith(
            ("/api", "/healthz", "/readyz", "/metrics", "/login", "/logout")
        ):
            path = f"/api/v1{path}"
        return await self.http.request(method, path, headers=headers, json=json, **options)

    async def get(self, path: str, role: str | None = "admin", **options: Any) -> httpx.Response:
        return await self.ask("GET", path, role=role, **options)

    async def post(self, path: str, json: Any = None, role: str | None = "admin", **options: Any) -> httpx.Response:
        return await self.ask("POST", path, role=role, json=json, **options)

    async def audit(self) -> list[Any]:
        return list(await self.app.audit.list(50))


def client(web: Any, base: str = ORIGIN) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=Wire(web), base_url=base)


def make_app(url: str) -> App:
    app = App(url, queues=["default"])

    @app.task(name="hello")
    async def hello(name: str, times: int = 1) -> str:
        return f"hello {name}" * times

    @app.task(name="broken", retry=1)
    async def broken(card: str, password: str = "") -> None:
        raise ValueError(f"card refused, token={CANARY}")

    @app.task(name="given_up")
    async def given_up() -> None:
        raise Fail("no")

    app.limit("slack", "100/m")
    return app


async def fill(world: World) -> None:
    """Jobs in every state but running, a schedule, a lock, a paused queue."""
    app, ids = world.app, world.ids
    secret = {"password": CANARY, "card": f"postgresql://ann:{CANARY}@db/x"}
    ids["succeeded"] = (await app.enqueue("hello", {"name": PAYLOAD}, tags=["vip"], reason="signup")).id
    ids["failed"] = (await app.enqueue("broken", secret, meta={"api_key": CANARY, "tenant": "acme"})).id
    ids["given_up"] = (await app.enqueue("given_up")).id
    async with app.worker(slots=4, label="pod-1"):
        for key in ("succeeded", "failed", "given_up"):
            with contextlib.suppress(Exception):
                await app.client.wait_for_end(ids[key], 10)
    ids["ready"] = (await app.enqueue("hello", {"name": "bob"}, queue="later")).id
    ids["scheduled"] = (await app.enqueue("hello", {"name": "cyd"}, delay="1h", queue="later")).id
    ids["cancelled"] = (await app.enqueue("hello", {"name": "dan"}, queue="later")).id
    await app.jobs.cancel(ids["cancelled"])
    await app.schedules.add("nightly", "0 3 * * *", "hello", {"name": PAYLOAD})
    await app.limits.set("mail", "10/s")
    await app.lock("import", ttl="10m", owner="somebody").acquire()


@contextlib.asynccontextmanager
async def world_on(
    path: Path, *, filled: bool = True, redact: Iterable[str] = (), **options: Any
) -> AsyncGenerator[World]:
    options.setdefault("pages", False)
    app = make_app(f"sqlite:///{path}")
    async with app:
        world = World(app, Dashboard(app, access=who, redact=redact, **options))
        if filled:
            await fill(world)
        async with world.http:
            yield world
        await world.web.close()


def revive_before_the_next_write(world: World, id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next Change that any client sends finds that the job was revived after it was read."""
    send = Client._apply  # pyright: ignore[reportPrivateUsage]

    async def late(self: Client, change: Change) -> Applied:
        monkeypatch.setattr(Client, "_apply", send)
        await world.app.jobs.revive(id)
        return await send(self, change)

    monkeypatch.setattr(Client, "_apply", late)
