"""A locked storage is called locked, and the page, the command line and a worker's log name who locks it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from tests.storages.test_blockers import hold
from treadle import App
from treadle.cli import root
from treadle.config import Timing
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.web import Dashboard, dashboard
from treadle.web import blocking as blocking_module

from .world import ORIGIN, SAME, client, who

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")
Ask = Callable[..., Any]
PART = {"HX-Request": "true"}


@asynccontextmanager
async def served(storage: Any, deadline: float = 10.0) -> AsyncGenerator[tuple[App, Ask]]:
    app = App(storage=storage, timing=Timing(call=deadline))

    @app.task
    async def hello() -> None: ...

    async with app:
        web = Dashboard(app, access=who)
        async with client(web) as http:

            async def ask(path: str, method: str = "GET", **headers: str) -> Any:
                return await http.request(
                    method,
                    f"{ORIGIN}{path}",
                    headers={"X-Role": "admin", **SAME, **{n.replace("_", "-"): v for n, v in headers.items()}},
                )

            yield app, ask
        await web.close()


@pytest.fixture
async def ann() -> AsyncGenerator[Any]:
    connection = await asyncpg.connect(postgres_server.shared_url(), server_settings={"application_name": "psql"})
    yield connection
    await connection.close()


def a_storage(deadline: float = 10.0) -> PostgresStorage:
    return PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), call_deadline=deadline)


async def test_a_page_names_the_session_that_locks_a_table(ann: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "SLOWEST", 1.0)
    async with served(a_storage()) as (app, ask):
        schema = app.storage.schema_name  # type: ignore[attr-defined]
        job = await app.enqueue("hello")
        assert (await ask("/jobs")).status_code == 200
        await ann.execute(f"begin; lock table {schema}.job in access exclusive mode")
        pid = ann.get_server_pid()
        page = await ask("/jobs")
        assert page.status_code == 503 and page.headers["retry-after"]
        assert "The storage is locked" in page.text and "cannot be reached" not in page.text
        assert (
            f"table {schema}.job is locked by session {pid} (user postgres, psql, idle in transaction for" in page.text
        )
        assert f"SELECT pg_terminate_backend({pid})" in page.text
        for path, headers in ((f"/jobs/{job.id}", {"hx_request": "true"}), ("/api/v1/jobs", {})):
            told = (await ask(path, **headers)).json()["error"]
            assert told["fields"] == {"storage": "locked"} and f"session {pid} " in told["message"], path
        await ann.execute("rollback")
        assert (await ask("/jobs")).status_code == 200


async def test_a_read_that_is_only_slow_is_not_called_locked(ann: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that holds rows is in no reader's way."""
    async with served(a_storage()) as (app, ask):
        schema = app.storage.schema_name  # type: ignore[attr-defined]
        await app.enqueue("hello")
        await ann.execute(f"begin; lock table {schema}.job in share mode")
        assert (await ask("/jobs")).status_code == 200
        monkeypatch.setattr(dashboard, "SLOWEST", 0.0)
        page = await ask("/jobs")
        assert page.status_code == 503 and "narrow it" in page.text and "locked" not in page.text
        assert "This took too long" in page.text


async def test_an_act_names_the_session_that_holds_the_row(ann: Any) -> None:
    async with served(a_storage(2.0), 2.0) as (app, ask):
        schema = app.storage.schema_name  # type: ignore[attr-defined]
        job = await app.enqueue("hello")
        await ann.execute(f"begin; update {schema}.job set priority = 1")
        answer = await ask(f"/api/v1/jobs/{job.id}/cancel", "POST")
        told = answer.json()["error"]
        assert answer.status_code == 503 and told["fields"] == {"storage": "locked"}
        assert f"a row of table {schema}.job is locked by session {ann.get_server_pid()} " in told["message"]


async def test_many_requests_that_wait_ask_once(ann: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "SLOWEST", 0.5)
    monkeypatch.setattr(blocking_module, "HOLDS", 60.0)
    async with served(a_storage()) as (app, ask):
        asked: list[int] = []
        whole = app.storage.blockers

        async def counted() -> Any:
            asked.append(1)
            return await whole()

        monkeypatch.setattr(app.storage, "blockers", counted)
        await ann.execute(f"begin; lock table {app.storage.schema_name}.job in access exclusive mode")  # type: ignore[attr-defined]
        answers = await asyncio.gather(*(ask("/api/v1/jobs") for _ in range(5)))
        assert {each.json()["error"]["fields"]["storage"] for each in answers} == {"locked"} and len(asked) == 1


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs Linux's list of locks")
async def test_an_act_names_the_process_that_writes_to_the_file(tmp_path: Path) -> None:
    async with served(SQLiteStorage(tmp_path / "jobs.db", call_deadline=0.5), 0.5) as (app, ask):
        job = await app.enqueue("hello")
        with hold(tmp_path / "jobs.db") as holder:
            answer = await ask(f"/api/v1/jobs/{job.id}/cancel", "POST")
            told = answer.json()["error"]
            assert answer.status_code == 503 and told["fields"] == {"storage": "locked"}
            assert told["message"].startswith(f"the database file is locked by process {holder.pid} (python")
            assert str(tmp_path) not in told["message"]
            assert (await ask("/jobs")).status_code == 200  # reading goes on
            holder.communicate()
        assert (await ask(f"/api/v1/jobs/{job.id}/cancel", "POST")).status_code == 200


async def test_a_worker_logs_who_locks_its_storage(ann: Any, caplog: pytest.LogCaptureFixture) -> None:
    app = App(storage=a_storage(1.0), timing=Timing(call=1.0))

    @app.task
    async def hello() -> None: ...

    async with app, app.worker(slots=1):
        await ann.execute(f"begin; lock table {app.storage.schema_name}.job in access exclusive mode")  # type: ignore[attr-defined]
        with caplog.at_level(logging.WARNING, "treadle.turner"):
            async with asyncio.timeout(60):
                while not any("the storage is locked" in each for each in caplog.messages):
                    await asyncio.sleep(0.05)
        (line,) = [each for each in caplog.messages if "the storage is locked" in each]
        assert f"is locked by session {ann.get_server_pid()} " in line and "pg_terminate_backend" in line
        await ann.execute("rollback")


async def test_the_command_line_names_who_locks_the_storage(
    ann: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    storage = a_storage()
    await storage.open()
    await storage.close()
    for name in [name for name in os.environ if name.startswith("TREADLE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TREADLE_URL", postgres_server.shared_url())
    monkeypatch.setenv("TREADLE_SCHEMA", storage.schema_name)
    await ann.execute(f"begin; lock table {storage.schema_name}.job in access exclusive mode")
    ran = await asyncio.to_thread(CliRunner().invoke, root, ["jobs", "find", ""])
    assert ran.exit_code == 5
    assert f"treadle: table {storage.schema_name}.job is locked by session {ann.get_server_pid()} " in ran.stderr
    assert "pg_terminate_backend" in ran.stderr and "doctor" not in ran.stderr
