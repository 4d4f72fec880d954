"""An answer from outside, over HTTP."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from treadle import App, Context, Wait
from treadle.core import answer as answering
from treadle.web import Dashboard
from treadle.web.tokens import Tokens, make

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


def spellings(token: str) -> list[str]:
    """Paths with a token in it, right and wrong ones."""
    base = f"/api/v1/answers/{token}"
    quoted = "".join(f"%{ord(letter):02x}" for letter in token)
    return [
        base, f"{base}/", f"{base}//", f"{base}/beat", f"{base}/beat/", f"{base}/other", f"//api/v1/answers/{token}",
        f"/api/v1//answers/{token}", f"/API/V1/ANSWERS/{token}", f"/api/v1/answers/{quoted}",
        f"/api/v1/answers/{quoted}/",
        f"/api/v1/answers%2F{token}%2F", f"/api/v1/answers/{token}%0aX", f"/api/v1/./answers/{token}/.",
        f"/answers/{token}",
        f"/api/v1/jobs/{token}", f"/api/v1/jobs/{token}/cancel", f"/{token}", f"/jobs/{token}", f"{base};x=1",
        f"/api/v1/answer/{token}", f"/queues/{token}/pause",
    ]  # fmt: skip


@pytest.mark.parametrize("pages", [False, True])
async def test_no_spelling_brings_a_token_into_a_log_or_a_page(
    app: App, caplog: pytest.LogCaptureFixture, pages: bool
) -> None:
    token = "q8Xz0yWJmM4y1m6a1q5kG2c4xQmUoT7bVn3pLr9sHdE"
    kept, right = make("ann", "viewer")
    web = Dashboard(app, access=Tokens([kept]), pages=pages)
    same = {"Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
    callers: list[dict[str, str]] = [
        {},
        same,
        {**same, "Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {right}"},
        {**same, "Host": "evil.example"},
    ]
    async with app, client(web) as http:
        with caplog.at_level(logging.DEBUG, "treadle"):
            for path in spellings(token):
                for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", f"X-{token[:4]}"):
                    for headers in callers:
                        answer = await http.request(method, path, headers=headers)
                        assert answer.status_code < 500
                        if "answers" in path.lower():  # elsewhere it may be repeated, as a job's id
                            assert token not in answer.text, (method, path)
                            assert token not in answer.headers.get("location", ""), (method, path)
        audit = await app.audit.list(200)
    assert caplog.records
    for record in caplog.records:
        assert token not in record.getMessage()
    assert token not in str(audit)


async def test_a_bug_in_an_answer_is_logged_without_its_token(
    app: App, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: Any, token: str, said: Any) -> str:
        raise RuntimeError(f"no row for {token}")

    monkeypatch.setattr("treadle.operate.answers.Answers.say", broken)
    web = Dashboard(app, access="open", pages=False)
    async with app, app.worker(), client(web) as http:
        _, token = await waiting(app)
        answer = await http.post(f"/api/v1/answers/{token}", json={"result": 1})
    assert answer.status_code == 500 and "no row for *" in caplog.text and "Traceback" in caplog.text
    assert token not in caplog.text


async def test_an_answer_with_a_key_twice_is_refused(app: App) -> None:
    web = Dashboard(app, access="open", pages=False)
    async with app, app.worker(), client(web) as http:
        _, token = await waiting(app)
        kind = {"Content-Type": "application/json"}
        for body in (b'{"result":1,"result":2}', b'{"result":{"a":1,"a":2}}'):
            answer = await http.post(f"/api/v1/answers/{token}", content=body, headers=kind)
            assert answer.status_code == 400 and "twice" in answer.json()["error"]["message"]


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
