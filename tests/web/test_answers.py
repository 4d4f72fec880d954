"""An answer from outside, over HTTP."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from treadle import App, Context, Wait
from treadle.core import answer as answering
from treadle.web import Dashboard

from .world import client

pytestmark = pytest.mark.anyio


@pytest.fixture
def app() -> App:
    app = App("memory://", queues=["default"])
    app.tokens = []  # type: ignore[attr-defined]

    @app.task(name="asks")
    async def asks(ctx: Context[Any]) -> Any:
        if ctx.has_answer:
            return await ctx.answer()
        token = await ctx.answer_token("1h")
        app.tokens.append(token)  # type: ignore[attr-defined]
        raise Wait(token)

    return app


async def waiting(app: App) -> tuple[Any, str]:
    handle = await app.enqueue("asks")
    for _ in range(200):
        if (await handle.status()).state == "waiting":
            break
        await asyncio.sleep(0.02)
    return handle, app.tokens[-1]  # type: ignore[attr-defined]


async def test_an_answer_needs_no_login_and_no_origin(app: App, caplog: pytest.LogCaptureFixture) -> None:
    web = Dashboard(app, access=lambda request: None, pages=False)
    async with app, app.worker(), client(web) as http:
        handle, token = await waiting(app)
        with caplog.at_level(logging.DEBUG, "treadle.web"):
            beat = await http.post(f"/api/v1/answers/{token}/beat")
            assert beat.status_code == 200 and beat.json()["until"].endswith("Z")
            for outcome in ("won", "same"):
                answer = await http.post(f"/api/v1/answers/{token}", json={"result": {"ok": True}})
                assert answer.json() == {"outcome": outcome}, answer.text
        assert token not in caplog.text
        assert await handle.result(10) == {"ok": True}
        assert (await http.post(f"/api/v1/answers/{token}", json={"result": 2})).status_code == 409
        assert (await http.post("/api/v1/answers/nonsense", json={"result": 1})).status_code == 404
        for wrong in ({"result": 1, "error": 2}, {"x": 1}, [1]):
            assert (await http.post(f"/api/v1/answers/{token}", json=wrong)).status_code == 400


async def test_with_a_secret_the_answer_must_be_signed(app: App) -> None:
    import msgspec

    app.config = msgspec.structs.replace(app.config, answer_secret="s")
    web = Dashboard(app, access="open", pages=False)
    async with app, app.worker(), client(web) as http:
        handle, token = await waiting(app)
        body = b'{"error": "no"}'
        path, kind = f"/api/v1/answers/{token}", {"Content-Type": "application/json"}
        for wrong in ({}, {"X-Treadle-Signature": "sha256=00"}):
            assert (await http.post(path, content=body, headers={**kind, **wrong})).status_code == 401
        signed = {**kind, "X-Treadle-Signature": f"sha256={answering.sign('s', token, body)}"}
        assert (await http.post(path, content=body, headers=signed)).json() == {"outcome": "won"}
        assert '"s"' not in (await http.get("/api/v1/system")).text
        del handle


async def test_a_read_only_dashboard_takes_no_answers(app: App) -> None:
    web = Dashboard(app, access="open", pages=False, read_only=True)
    async with app, client(web) as http:
        assert (await http.post("/api/v1/answers/x", json={"result": 1})).status_code == 403
