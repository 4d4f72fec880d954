"""Mounted in somebody's app, under any prefix."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from treadle import App
from treadle.web import Dashboard

from .world import client

pytestmark = pytest.mark.anyio


def mounted(app: App, prefix: str, root: str = "") -> Starlette:
    async def home(request: Request) -> PlainTextResponse:
        return PlainTextResponse("home")

    web = app.dashboard(access="open", hosts=["shop.example.com"])
    inner = Starlette(routes=[Mount(prefix, web)])
    return Starlette(routes=[Route("/", home), Mount(root, inner)]) if root else Starlette(routes=[
        Route("/", home), Mount(prefix, web)])  # fmt: skip


@pytest.mark.parametrize(("prefix", "root"), [("/jobs", ""), ("/a/b", ""), ("/jobs", "/admin"), ("/api", "")])
async def test_under_any_prefix(prefix: str, root: str) -> None:
    app = App("memory://")
    base = root + prefix
    async with app, client(mounted(app, prefix, root)) as http:
        assert (await http.get("/")).text == "home"
        assert (await http.get(f"{base}/healthz")).status_code == 200
        assert (await http.get(f"{base}/api/v1/jobs")).json()["items"] == []
        document = (await http.get(f"{base}/api/v1/openapi.json")).json()
        assert document["servers"] == [{"url": base}] and "/api/v1/jobs" in document["paths"]
        assert f'href="{base}/api/v1/openapi.json"' in (await http.get(f"{base}/api")).text
        paused = await http.post(f"{base}/api/v1/queues/x/pause", headers={"Origin": "http://localhost"})
        assert paused.status_code == 200
        assert (await http.get(f"{base}/api/v1/nothing")).status_code == 404
        page = await http.get(f"{base}/")
        assert page.status_code == 200 and f'href="{base}/' in page.text


async def test_a_host_of_ones_own_must_be_named() -> None:
    app = App("memory://")
    async with app, client(mounted(app, "/jobs"), "https://shop.example.com") as http:
        assert (await http.get("/jobs/healthz")).status_code == 200
    async with app, client(mounted(app, "/jobs"), "https://other.example.com") as http:
        answer = await http.get("/jobs/healthz")
        assert answer.status_code == 421 and "hosts=" in answer.text
    async with app, client(Dashboard(app, access="open", hosts="any", pages=False), "https://x.example.com") as http:
        assert (await http.get("/healthz")).status_code == 200


async def test_websockets_are_closed() -> None:
    app = App("memory://")
    sent: list[object] = []

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    async def send(message: object) -> None:
        sent.append(message)

    await Dashboard(app, access="open", pages=False)({"type": "websocket", "path": "/"}, receive, send)  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close", "code": 1000}]
