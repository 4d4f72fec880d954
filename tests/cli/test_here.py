"""`treadle jobs run ID --here`, on jobs that are really stored."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from treadle import App

from .conftest import Store, Treadle

SHOP = """
import asyncio
import logging
import threading
from contextlib import asynccontextmanager

from treadle import App, BatchContext, Cancel, Context, Fail, Snooze, Wait


@asynccontextmanager
async def lifespan(app):
    yield {"rate": 3}


app = App(lifespan=lifespan)
told = []


@app.on_enqueued
def hear(job):
    raise SystemExit("a hook was told of what did not happen")


@app.task(name="add", queue="mail")
async def add(a: int, b: int) -> int:
    return a + b


@app.task(name="plain", queue="mail")
def plain(ctx: Context, n: int) -> dict:
    ctx.progress_sync(1, 2)
    ctx.checkpoint_sync({"at": n})
    ctx.log.info("a line")
    ctx.set_meta(seen=True)
    ctx.enqueue_sync(add.bind(n, 1))
    add.using(delay="5m").enqueue_sync(n, 2)
    app.enqueue_many_sync([add.bind(n, 3)])
    ctx.follow(add.bind(n, 4))
    return {"rate": ctx.state["rate"], "attempt": ctx.attempt, "most": ctx.max_attempts, "slot": ctx.slot,
            "apart": asyncio.run(here()) != threading.main_thread().ident}


async def here() -> int:
    return threading.get_ident()


@plain.follow_up("succeeded")
def then(job):
    return add.bind(job.args["n"], 5)


@app.task(name="child", executor="process")
def child(n: int) -> int:
    print("printed by the task")
    return n + 1


@app.task(name="broken", retry=1)
async def broken(order: int) -> None:
    remaining = order - 7
    raise ValueError(f"card declined, {remaining} left")


@app.task(name="plain_broken", retry=1)
def plain_broken(order: int) -> None:
    remaining = order - 7
    raise ValueError(remaining)


@app.task(name="again", retry=3)
def again() -> None:
    raise KeyError("once more")


@app.task(name="gather", batch=10)
async def gather(ctx: BatchContext, items: list[int]) -> list[int]:
    return [item * 2 for item in items]


@app.task(name="sleepy")
async def sleepy() -> None:
    raise Snooze("10m")


@app.task(name="off")
async def off() -> None:
    raise Cancel("not today")


@app.task(name="asks")
async def asks(ctx: Context) -> None:
    raise Wait(await ctx.answer_token("1h"))


@app.task(name="meddles")
async def meddles(ctx: Context) -> None:
    await app.jobs.cancel(ctx.job_id)


@app.task(name="writes")
async def writes(ctx: Context) -> None:
    async with ctx.transaction() as tx:
        tx.connection.execute("create table bills (n)")
        tx.connection.execute("insert into bills values (1)")
        ctx.follow(add.bind(8, 8))
        tx.result = tx.connection.execute("select count(*) from bills").fetchone()[0]


@app.task(name="writes_to_a_server")
async def writes_to_a_server(ctx: Context) -> None:
    async with ctx.transaction() as tx:
        await tx.connection.execute("create temporary table bills (n int)")
        ctx.follow(add.bind(8, 8))
        tx.result = await tx.connection.fetchval("select count(*) from bills")


@app.task(name="writes_plainly")
def writes_plainly(ctx: Context) -> None:
    with ctx.transaction_sync() as tx:
        tx.connection.execute("create table bills (n)")
        tx.result = "written"


@app.task(name="shop.welcome")
async def resumes(ctx: Context) -> object:
    await ctx.limit("far")
    async with app.lock("one", owner=ctx.job_id):
        return await ctx.resume()


app.limit("far", "10/m")


@app.command("/bin/echo", "{n}", name="outside")
def outside(n: int) -> None: ...
"""


@pytest.fixture
def jobs_app(folder: Path) -> str:
    (folder / "jobs.py").write_text(SHOP)
    return "jobs:app"


Rows = Callable[[], dict[str, list[tuple[Any, ...]]]]


@pytest.fixture
def rows(folder: Path, store: Store) -> Rows:
    """Everything that the database holds, but for rate limits and locks."""

    def read() -> dict[str, list[tuple[Any, ...]]]:
        with sqlite3.connect(folder / "treadle.db") as db:
            names = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
            kept = [name for name in names if not name.startswith(("sqlite_", "treadle_limit", "treadle_lock"))]
            return {name: db.execute(f"select * from {name}").fetchall() for name in kept}

    return read


def run(treadle: Treadle, id: str, *more: str) -> Any:
    return treadle("jobs", "run", id, "--here", *more)


def test_a_result_is_printed_and_nothing_is_written(treadle: Treadle, store: Store, jobs_app: str, rows: Rows) -> None:
    id = store.enqueue("add", {"a": 1, "b": 2}, queue="mail")
    before = rows()
    ran = run(treadle, id)
    assert (ran.code, ran.out) == (0, "3\n")
    assert rows() == before
    assert store.state(id) == "ready"


def test_what_it_enqueues_is_printed_by_whatever_way(treadle: Treadle, store: Store, jobs_app: str, rows: Rows) -> None:
    """ctx.enqueue, a task's own enqueue, enqueue_many, ctx.follow and declared follow-ups; progress, checkpoints, lines
    and meta are left out. The plain function runs in a thread without a loop, as in a worker."""
    id = store.enqueue("plain", {"n": 6}, queue="mail")
    before = rows()
    ran = run(treadle, id)
    assert ran.code == 0, ran.err
    assert ran.object == {"rate": 3, "attempt": 1, "most": 10, "slot": "here", "apart": True}
    lines = [line for line in ran.err.splitlines() if line.startswith("not enqueued")]
    assert lines == [
        'not enqueued: add {"a":6,"b":1} in queue mail',
        'not enqueued: add {"a":6,"b":2} in queue mail, 300 s from now',
        'not enqueued: add {"a":6,"b":3} in queue mail',
        'not enqueued: add {"a":6,"b":4} in queue mail',
        'not enqueued: add {"a":6,"b":5} in queue mail',
    ]
    assert rows() == before


def test_json_holds_it_all_and_not_what_the_task_prints(treadle: Treadle, store: Store, jobs_app: str) -> None:
    ran = run(treadle, store.enqueue("child", {"n": 6}), "--json")
    assert ran.code == 0
    assert "printed by the task" in ran.err
    assert ran.object["outcome"] == "succeeded" and ran.object["result"] == 7 and ran.object["error"] is None
    ran = run(treadle, store.enqueue("plain", {"n": 6}), "--json")
    assert [each["args"]["b"] for each in ran.object["enqueued"]] == [1, 2, 3, 4, 5]


def test_a_failure_is_its_traceback_and_1(treadle: Treadle, store: Store, jobs_app: str, rows: Rows) -> None:
    id = store.enqueue("broken", {"order": 10})
    before = rows()
    ran = run(treadle, id)
    assert (ran.code, ran.out) == (1, "")
    assert "broken failed; a worker would not try it again" in ran.err
    assert "ValueError: card declined, 3 left" in ran.err and "jobs.py" in ran.err
    assert "rehearsal.py" not in ran.err  # the user's frames, and none of ours
    ran = run(treadle, id, "--json")
    assert (ran.code, ran.object["outcome"]) == (1, "failed")
    assert ran.object["error"]["type"] == "ValueError" and ran.object["error"]["place"] == "jobs:broken"
    assert rows() == before
    assert run(treadle, store.enqueue("again"), "--json").object["outcome"] == "retried"


def test_last_nights_failure_is_run_as_it_is_stored(treadle: Treadle, store: Store, jobs_app: str, rows: Rows) -> None:
    id = store.failed(task="shop.broken", args={"order": 10})
    (Path("jobs.py")).write_text(SHOP.replace('"broken"', '"shop.broken"'))
    before = rows()
    assert run(treadle, id).code == 1
    assert rows() == before and store.state(id) == "failed"


def test_a_batch_task_gets_one_item(treadle: Treadle, store: Store, jobs_app: str) -> None:
    assert run(treadle, store.enqueue("gather", {"item": 21})).out == "42\n"


@pytest.mark.parametrize(("task", "outcome"), [("sleepy", "snoozed"), ("off", "cancelled")])
def test_a_signal_is_no_failure(treadle: Treadle, store: Store, jobs_app: str, task: str, outcome: str) -> None:
    ran = run(treadle, store.enqueue(task), "--json")
    assert (ran.code, ran.object["outcome"]) == (0, outcome)
    assert run(treadle, store.enqueue(task)).code == 0


@pytest.mark.parametrize(("task", "verb"), [("asks", "open_answer"), ("meddles", "apply")])
def test_whatever_else_would_write_is_refused(
    treadle: Treadle, store: Store, jobs_app: str, rows: Rows, task: str, verb: str
) -> None:
    id = store.enqueue(task)
    before = rows()
    ran = run(treadle, id)
    assert ran.code == 1
    assert f"{verb}: a job that is run by `treadle jobs run --here` changes nothing in the storage" in ran.err
    assert rows() == before


@pytest.mark.parametrize(("task", "result"), [("writes", "1\n"), ("writes_plainly", '"written"\n')])
def test_a_transaction_is_rolled_back(
    treadle: Treadle, store: Store, jobs_app: str, rows: Rows, task: str, result: str
) -> None:
    id = store.enqueue(task)
    before = rows()
    ran = run(treadle, id)
    assert (ran.code, ran.out) == (0, result), ran.err
    assert "not committed: what the task wrote in its ctx.transaction is rolled back" in ran.err
    assert ran.err.count("not enqueued") == (1 if task == "writes" else 0)
    assert rows() == before


def test_it_resumes_at_the_stored_checkpoint_with_real_limits_and_locks(
    treadle: Treadle, store: Store, jobs_app: str
) -> None:
    id = store.running("mail")

    async def keep(app: App) -> None:
        from treadle.core.progress import Report

        (job,) = await app.storage.get((id,))
        await app.storage.report([Report(id=id, token=job.token or "", attempt=1, checkpoint='{"value": 12}')])
        await app.limits.set("far", "10/m")

    store.run(keep)
    ran = run(treadle, id)
    assert (ran.code, ran.out) == (0, "12\n"), ran.err
    assert f"job {id} runs in pod pod1 meanwhile" in ran.err
    assert store.state(id) == "running"


def test_what_cannot_be_run_here_is_refused(treadle: Treadle, store: Store, jobs_app: str) -> None:
    id = store.enqueue("outside", {"n": 1})
    ran = treadle("jobs", "run", id)
    assert ran.code == 2 and "add --here" in ran.err and f"treadle jobs revive {id}" in ran.err
    ran = run(treadle, id)
    assert ran.code == 2 and "outside is run outside Python (command)" in ran.err
    assert run(treadle, id, "--pdb", "--json").code == 2
    ran = run(treadle, store.enqueue("nobody"))
    assert ran.code == 2 and 'no task "nobody" in the App; it has add, ' in ran.err
    assert run(treadle, "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11").code == 3


def test_in_production_it_asks(treadle: Treadle, store: Store, jobs_app: str, folder: Path) -> None:
    (folder / "treadle.toml").write_text('production = true\nenv = "live"\n')
    id = store.enqueue("add", {"a": 1, "b": 2})
    assert run(treadle, id).code == 2
    assert run(treadle, id, "--yes", "--env", "live").out == "3\n"


@pytest.mark.parametrize("task", ["broken", "plain_broken"])
def test_the_debugger_stands_where_it_failed(store: Store, jobs_app: str, folder: Path, task: str) -> None:
    id = store.enqueue(task, {"order": 10})
    line = [sys.executable, "-m", "treadle.cli", "jobs", "run", id, "--here", "--pdb"]
    ran = subprocess.run(line, input="p 'found', remaining * 1000\nq\n", cwd=folder, capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert "('found', 3000)" in ran.stdout
    assert json.dumps(store.state(id)) == '"ready"'


def test_a_transaction_on_a_server_is_rolled_back(treadle: Treadle, folder: Path, jobs_app: str) -> None:
    os.environ["TREADLE_SCHEMA"] = postgres_server.a_schema()
    os.environ["TREADLE_URL"] = url = postgres_server.shared_url()
    store = Store(url)
    id = store.enqueue("writes_to_a_server")
    before = store.run(lambda app: app.jobs.get(id))
    ran = run(treadle, id, "--json")
    assert (ran.code, ran.object["result"]) == (0, 0), ran.err
    assert [each["task"] for each in ran.object["enqueued"]] == ["add"]
    assert "is rolled back" in ran.err
    assert store.run(lambda app: app.jobs.get(id)) == before
    assert len(store.run(lambda app: app.jobs.find("")).jobs) == 1
