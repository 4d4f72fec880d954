"""Finishing inside the task's own transaction: its writes, its follow-ups and its success, or nothing of it."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from tests.storages.test_postgres_borrow import a_transaction, sqlalchemy_url
from treadle import App, ClaimLost, Context, Retry
from treadle.core import lifecycle
from treadle.storages.postgres import PostgresStorage

pytestmark = pytest.mark.anyio

STORAGES = ("sqlite", "postgres")


class Ledger:
    """An app, and a table of its user's in the same database."""

    def __init__(self, app: App, table: str, path: Path | None) -> None:
        self.app = app
        self.table = table
        self.path = path

    async def write(self, connection: Any, n: int) -> None:
        text = f"insert into {self.table} values ({n})"
        if isinstance(connection, sqlite3.Connection):
            connection.execute(text)
        elif hasattr(connection, "exec_driver_sql"):
            await connection.exec_driver_sql(text)
        elif hasattr(connection, "sync_session"):
            await (await connection.connection()).exec_driver_sql(text)
        else:
            await connection.execute(text)

    def connect(self) -> contextlib.AbstractContextManager[Any]:
        if self.path is not None:
            return contextlib.closing(sqlite3.connect(self.path))
        import psycopg

        return psycopg.connect(postgres_server.shared_url())

    def rows(self) -> list[int]:
        with self.connect() as db:
            return sorted(n for (n,) in db.execute(f"select n from {self.table}"))


@pytest.fixture(params=STORAGES)
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledger]:
    if request.param == "sqlite":
        path = tmp_path / "jobs.db"
        app = App(f"sqlite:///{path}")
        await app.open()
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("create table paid (n integer)")
        yield Ledger(app, "paid", path)
        await app.close()
        return
    import psycopg

    schema = postgres_server.a_schema()
    storage = PostgresStorage(postgres_server.shared_url(), schema=schema)
    app = App(storage=storage)
    await app.open()
    with psycopg.connect(postgres_server.shared_url()) as db:
        db.execute(f"create table {schema}_paid (n integer)")  # type: ignore[call-overload]
    yield Ledger(app, f"{schema}_paid", None)
    await app.close()
    await storage.close()


async def test_all_of_it_commits_together(ledger: Ledger) -> None:
    app, told = ledger.app, []

    @app.task(name="receipt")
    async def receipt(n: int) -> None: ...

    @app.task(name="pay")
    async def pay(ctx: Context, n: int) -> str:
        ctx.follow(receipt.bind(n))
        async with ctx.transaction() as tx:
            await ledger.write(tx.connection, n)
            tx.result = {"paid": n}
        with pytest.raises(RuntimeError, match="committed already"):
            ctx.follow(receipt.bind(n))
        with pytest.raises(RuntimeError, match="committed already"):
            ctx.transaction()
        return "not this"

    app.on("succeeded")(lambda job: told.append(job.task))
    async with app.worker():
        handle = await pay.enqueue(7)
        assert await handle.result(timeout="20s") == {"paid": 7}
        (child,) = (await app.jobs.find("task:receipt")).jobs
        assert (await app.client.wait_for_end(child.id, 20)).state == "succeeded"
    assert ledger.rows() == [7]
    assert Counter(told) == {"pay": 1, "receipt": 1}


async def test_what_raises_inside_leaves_nothing(ledger: Ledger) -> None:
    app = ledger.app

    @app.task(name="receipt")
    async def receipt(n: int) -> None: ...

    @app.task(name="pay", retry=Retry(max_attempts=2, base=0.01))
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            ctx.follow(receipt.bind(n))
            await ledger.write(tx.connection, n)
            if ctx.attempt == 1:
                raise ValueError("the card was declined")

    async with app.worker():
        handle = await pay.enqueue(7)
        await handle.result(timeout="20s")
    assert (await handle.status()).attempt == 2
    assert ledger.rows() == [7]
    assert len((await app.jobs.find("task:receipt")).jobs) == 1


async def test_a_run_whose_claim_is_lost_leaves_nothing(ledger: Ledger) -> None:
    # Without the finish in the transaction, or without its fence, the effect of the lost run would stay.
    app, lost, once = ledger.app, [], iter([True])

    @app.task(name="pay", retry=Retry(max_attempts=5, base=0.01))
    async def pay(ctx: Context, n: int) -> None:
        if next(once, False):
            (job,) = await app.storage.get([ctx.job_id])
            from msgspec.structs import replace

            (taken,) = await app.storage.apply([replace(lifecycle.rescue(job, "another"), if_lapsed=False)])
            assert taken.accepted
        try:
            async with ctx.transaction() as tx:
                await ledger.write(tx.connection, n)
        except ClaimLost as error:
            lost.append(str(error))
            raise

    async with app.worker():
        handle = await pay.enqueue(7)
        await handle.result(timeout="20s")
    assert len(lost) == 1
    assert "nothing of its transaction is written" in lost[0]
    assert ledger.rows() == [7]


async def test_what_happens_after_the_commit_changes_nothing(ledger: Ledger) -> None:
    app = ledger.app

    @app.task(name="pay")
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await ledger.write(tx.connection, n)
        raise ValueError("too late")

    async with app.worker():
        handle = await pay.enqueue(7)
        await handle.result(timeout="20s")
    view = await handle.status()
    assert (view.state, view.attempt, view.error) == ("succeeded", 1, None)
    assert ledger.rows() == [7]


async def test_a_result_that_cannot_be_kept_is_told_before_the_commit(ledger: Ledger) -> None:
    app = ledger.app

    @app.task(name="pay", retry=1)
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await ledger.write(tx.connection, n)
            tx.result = object()

    async with app.worker():
        handle = await pay.enqueue(7)
        with pytest.raises(Exception, match="result"):
            await handle.result(timeout="20s")
    assert ledger.rows() == []


async def test_a_plain_function_has_the_same_in_its_thread(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    app = App(f"sqlite:///{path}")

    @app.task(name="receipt")
    def receipt(n: int) -> None: ...

    @app.task(name="pay")
    def pay(ctx: Context, n: int) -> None:
        with contextlib.closing(sqlite3.connect(path)) as db, ctx.transaction_sync(db) as tx:
            tx.connection.execute("insert into paid values (?)", (n,))
            ctx.follow(receipt.bind(n))
            tx.result = n

    async with app:
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("create table paid (n integer)")
        async with app.worker():
            assert await (await pay.enqueue(7)).result(timeout="20s") == 7
        assert len((await app.jobs.find("task:receipt")).jobs) == 1
    assert Ledger(app, "paid", path).rows() == [7]


@contextlib.asynccontextmanager
async def a_connection(kind: str) -> AsyncIterator[Any]:
    async with contextlib.AsyncExitStack() as stack:
        if kind == "asyncpg":
            import asyncpg  # type: ignore[import-untyped]

            connection = await asyncpg.connect(postgres_server.shared_url())
            stack.push_async_callback(connection.close)
            yield connection
        elif kind == "psycopg":
            import psycopg

            yield await stack.enter_async_context(await psycopg.AsyncConnection.connect(postgres_server.shared_url()))
        else:
            from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

            engine = create_async_engine(sqlalchemy_url("asyncpg" if kind.endswith("asyncpg") else "psycopg"))
            stack.push_async_callback(engine.dispose)
            own: Any = AsyncSession(engine) if kind.startswith("session") else engine.connect()
            yield await stack.enter_async_context(own)


@pytest.mark.parametrize("ledger", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", ["asyncpg", "psycopg", "session", "sqlalchemy", "session+asyncpg"])
@pytest.mark.parametrize("ending", ["commit", "raise"])
async def test_any_async_connection_of_the_users(ledger: Ledger, kind: str, ending: str) -> None:
    app = ledger.app

    @app.task(name="pay", retry=1)
    async def pay(ctx: Context, n: int) -> None:
        async with a_connection(kind) as connection, ctx.transaction(connection) as tx:
            assert tx.connection is connection
            await ledger.write(connection, n)
            if ending == "raise":
                raise ValueError("no")

    async with app.worker():
        handle = await pay.enqueue(7)
        view = await app.client.wait_for_end(handle.id, 20)
    assert (view.state, ledger.rows()) == (("succeeded", [7]) if ending == "commit" else ("failed", []))


@pytest.mark.parametrize("ledger", ["postgres"], indirect=True)
@pytest.mark.parametrize("kind", ["psycopg", "session", "sqlalchemy"])
@pytest.mark.parametrize("ending", ["commit", "raise"])
async def test_any_sync_connection_of_the_users(ledger: Ledger, kind: str, ending: str) -> None:
    app = ledger.app

    @app.task(name="pay", retry=1)
    def pay(ctx: Context, n: int) -> None:
        with a_transaction(kind) as (connection, _, _), ctx.transaction_sync(connection):
            text = f"insert into {ledger.table} values ({n})"
            if kind == "psycopg":
                connection.execute(text)
            else:
                (connection.connection() if kind == "session" else connection).exec_driver_sql(text)
            if ending == "raise":
                raise ValueError("no")

    async with app.worker():
        handle = await pay.enqueue(7)
        view = await app.client.wait_for_end(handle.id, 20)
    assert (view.state, ledger.rows()) == (("succeeded", [7]) if ending == "commit" else ("failed", []))


@pytest.mark.parametrize(("storage", "wanted"), [("memory://", "memory"), ("sqlite", "sqlite3.Connection")])
async def test_what_cannot_be_a_transaction_is_said(tmp_path: Path, storage: str, wanted: str) -> None:
    app = App("memory://" if storage == "memory://" else f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="pay", retry=1)
    async def pay(ctx: Context) -> None:
        async with ctx.transaction(object()):
            pass

    async with app, app.worker():
        handle = await pay.enqueue()
        await app.client.wait_for_end(handle.id, 20)
        error = (await handle.status()).error
    assert error is not None
    assert wanted in error.message


# Killed anywhere -----------------------------------------------------------------------------------------------------

WORKER = """
import asyncio, os, random
from treadle import App, Context, Retry

app = App()

@app.task(name="pay", retry=Retry(max_attempts=50, base=0.01), queue="pay")
async def pay(ctx: Context, n: int) -> None:
    await asyncio.sleep(random.random() * 0.01)
    async with ctx.transaction() as tx:
        row = f"insert into {os.environ['PAID']} values ({n})"
        answer = tx.connection.execute(row)
        if asyncio.iscoroutine(answer):
            await answer
            await asyncio.sleep(random.random() * 0.01)
    await asyncio.sleep(random.random() * 0.01)
"""


@pytest.fixture(params=STORAGES)
def killing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[App, dict[str, str], Ledger]]:
    (tmp_path / "worker_app.py").write_text(WORKER)
    quick = {"LEASE": "1", "BEAT": "0.3", "SCAN": "0.3", "NEIGHBOURS": "0.2", "START_JITTER": "0", "LEADER_TTL": "1"}
    env = dict(os.environ) | {f"TREADLE_{name}": value for name, value in quick.items()}
    if request.param == "sqlite":
        path = tmp_path / "jobs.db"
        app = App(f"sqlite:///{path}")
        app.open_sync()
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("create table paid (n integer)")
        ledger = Ledger(app, "paid", path)
        env |= {"TREADLE_URL": f"sqlite:///{path}"}
    else:
        import psycopg

        schema = postgres_server.a_schema()
        env |= {"TREADLE_URL": postgres_server.shared_url(), "TREADLE_SCHEMA": schema}
        app = App(storage=PostgresStorage(postgres_server.shared_url(), schema=schema))
        app.open_sync()
        with psycopg.connect(postgres_server.shared_url()) as db:
            db.execute(f"create table {schema}_paid (n integer)")  # type: ignore[call-overload]
        ledger = Ledger(app, f"{schema}_paid", None)
    yield app, env | {"PAID": ledger.table, "PYTHONPATH": str(tmp_path)}, ledger
    app.close_sync()


@pytest.mark.slow
def test_a_worker_killed_anywhere_leaves_each_effect_once_or_not_at_all(
    killing: tuple[App, dict[str, str], Ledger],
) -> None:
    app, env, ledger = killing
    count, chance, kills = 150, random.Random(7), 0
    # By name: the task's code is the workers' alone.
    handles = [app.enqueue_sync("pay", {"n": n}, queue="pay", max_attempts=50) for n in range(count)]
    command = [sys.executable, "-m", "treadle.cli", "worker", "-A", "worker_app:app", "-q", "pay:4"]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (left := _left(app)):
        worker = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # In the middle of its work, wherever that is just then; the fifth worker may do the rest.
        until = max(0, left - chance.randint(10, 35)) if kills < 4 else 0
        while time.monotonic() < deadline and _left(app) > until:
            time.sleep(0.01)
        time.sleep(chance.random() * 0.01)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        kills += 1
    assert kills >= 4
    states = {n: handle.status_sync().state for n, handle in enumerate(handles)}
    assert set(states.values()) <= {"succeeded", "failed"}  # failed: it was running in three workers that were killed
    assert Counter(ledger.rows()) == {n: 1 for n, state in states.items() if state == "succeeded"}
    assert list(states.values()).count("succeeded") > count * 0.9


def _left(app: App) -> int:
    return sum(app.jobs.count_sync("state:ready,scheduled,running").values())
