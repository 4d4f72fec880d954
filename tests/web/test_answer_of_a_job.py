"""A job that waits for an outside answer is answered, or its wait failed, from its page and over HTTP, by its id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import postgres_server
from treadle import AnswerFailed, App, Context, Fail, Wait
from treadle.ports import Storage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.web import Dashboard

from .world import SAME, client, who

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


@pytest.fixture
async def app(storage: Storage) -> AsyncGenerator[App]:
    app = App(storage=storage)

    @app.task(name="approve", retry=1)
    async def approve(ctx: Context[Any]) -> Any:
        if ctx.has_answer:
            try:
                return await ctx.answer()
            except AnswerFailed as refused:
                raise Fail(f"refused: {refused.error}") from None
        raise Wait(await ctx.answer_token("1h"))

    async with app, app.worker(slots=2):
        yield app


async def waiting(app: App) -> str:
    handle = await app.enqueue("approve")
    async with asyncio.timeout(20):
        while (await handle.status()).state != "waiting":
            await asyncio.sleep(0.02)
    return handle.id


async def send(http: httpx.AsyncClient, path: str, role: str = "operator", **form: str) -> httpx.Response:
    return await http.post(path, data=form, headers={"X-Role": role, "HX-Request": "true", **SAME})


async def test_a_page_answers_a_job_that_waits(app: App) -> None:
    async with client(Dashboard(app, access=who, pages=True)) as http:
        id = await waiting(app)
        page = await http.get(f"/jobs/{id}", headers={"X-Role": "operator"})
        assert f'href="/jobs/{id}/answer"' in page.text and f'href="/jobs/{id}/fail"' in page.text
        dialog = await http.get(f"/jobs/{id}/answer", headers={"X-Role": "operator"})
        assert "waits for an answer from outside until" in dialog.text
        wrong = await send(http, f"/jobs/{id}/answer", value='{"paid": tru}')
        assert wrong.status_code == 400 and "the answer is not JSON" in wrong.text
        twice = await send(http, f"/jobs/{id}/answer", value='{"a": 1, "a": 2}')
        assert twice.status_code == 400 and "twice" in twice.text
        assert (await send(http, f"/jobs/{id}/answer", value='{"paid": true}')).status_code == 200
        ended = await app.client.wait_for_end(id, 20)
        assert (ended.state, ended.result) == ("succeeded", '{"paid":true}')
        late = await send(http, f"/jobs/{id}/answer", value="1")
        assert late.status_code == 409 and "it does not wait for an answer" in late.text
        (line,) = [each for each in await app.audit.list(50) if each.act == "jobs.answer"]
        assert (line.subject, line.by) == (id, "the-operator")
        assert line.detail.startswith("answered: result (operator, request ")
        (told,) = [each for each in await app.history.timeline(id) if each.what == "answered"]
        assert told.by == "the-operator"
        page = await http.get(f"/jobs/{id}", headers={"X-Role": "operator"})
        assert "/answer" not in page.text


async def test_a_page_fails_the_wait_and_the_task_meets_the_reason(app: App) -> None:
    async with client(Dashboard(app, access=who, pages=True)) as http:
        id = await waiting(app)
        assert (await send(http, f"/jobs/{id}/fail", error="")).status_code == 400
        assert (await send(http, f"/jobs/{id}/fail", error="card declined")).status_code == 200
        ended = await app.client.wait_for_end(id, 20)
        assert ended.state == "failed" and ended.errors[-1].message == "refused: card declined"
        (line,) = [each for each in await app.audit.list(50) if each.act == "jobs.answer"]
        assert (line.reason, line.detail.partition(" (")[0]) == ("card declined", "answered with an error")


async def test_who_may_not_act_has_no_button_and_is_refused(app: App) -> None:
    id = await waiting(app)
    async with client(Dashboard(app, access=who, pages=True)) as http:
        for role in ("viewer", "viewer+payload"):
            page = await http.get(f"/jobs/{id}", headers={"X-Role": role})
            assert "/answer" not in page.text and f"/jobs/{id}/fail" not in page.text
            assert (await http.get(f"/jobs/{id}/answer", headers={"X-Role": role})).status_code == 403
            assert (await send(http, f"/jobs/{id}/answer", role, value="1")).status_code == 403
            assert (await send(http, f"/jobs/{id}/fail", role, error="no")).status_code == 403
    async with client(Dashboard(app, access=who, pages=True, read_only=True)) as http:
        page = await http.get(f"/jobs/{id}", headers={"X-Role": "admin"})
        assert "/answer" not in page.text
        assert (await send(http, f"/jobs/{id}/answer", "admin", value="1")).status_code == 403
    assert (await app.jobs.get(id)).state == "waiting"


async def test_over_http_a_job_is_answered_by_its_id(app: App) -> None:
    async with client(Dashboard(app, access=who, pages=False)) as http:
        headers = {"X-Role": "operator", **SAME}
        id = await waiting(app)
        path = f"/api/v1/jobs/{id}/answer"
        for wrong in ({"result": 1, "error": 2}, {"again": "soon"}, {"x": 1}):
            assert (await http.post(path, json=wrong, headers=headers)).status_code == 400
        again = await http.post(path, json={"again": "1h", "reason": "not now"}, headers=headers)
        assert (again.json()["outcome"], again.json()["job"]["state"]) == ("won", "scheduled")
        refused = await http.post(path, json={"result": 1}, headers=headers)
        assert refused.status_code == 409 and refused.json()["error"]["fields"] == {"state": "scheduled"}
        missing = await http.post("/api/v1/jobs/019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11/answer", json={}, headers=headers)
        assert missing.status_code == 404


async def test_of_many_operators_at_once_one_wins(app: App) -> None:
    id = await waiting(app)
    told = await asyncio.gather(*(app.answers.give_job(id, n, by="ann") for n in range(8)), return_exceptions=True)
    assert [each for each in told if each == "won"] == ["won"]
    lines = [each for each in await app.audit.list(50) if each.act == "jobs.answer"]
    assert len(lines) == 1
