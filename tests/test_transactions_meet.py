"""Where a finish inside the task's own transaction meets other promises: what is kept behind the run, what its task
declares for its end, a beat that comes after the commit."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from tests.test_transactions import Ledger, ledger
from treadle import App, Context, Unique
from treadle.client.finish_within import StorageDesk
from treadle.config import Timing
from treadle.core import lifecycle
from treadle.core.view import JobView
from treadle.executors.async_ import AsyncExecutor

__all__ = ["ledger"]

pytestmark = pytest.mark.anyio

LAST = Unique(key="k", on_conflict="keep_last")


async def ended(app: App, id: str) -> str:
    return (await app.client.wait_for_end(id, 20)).state


async def test_what_is_kept_behind_takes_over_with_the_commit(ledger: Ledger) -> None:
    # Refused instead, the run's effect would be undone for the sake of a request that came while it ran.
    app, begun, go = ledger.app, asyncio.Event(), asyncio.Event()

    @app.task(name="pay")
    async def pay(ctx: Context, n: int) -> None:
        if n == 1:
            begun.set()
            await go.wait()
        async with ctx.transaction() as tx:
            await ledger.write(tx.connection, n)

    async with app.worker():
        holder = await pay.using(unique=LAST).enqueue(1)
        await begun.wait()
        kept = await pay.using(unique=LAST).enqueue(2)
        assert kept.outcome == "kept"
        go.set()
        assert await ended(app, holder.id) == "succeeded"
        assert await ended(app, kept.id) == "succeeded"
    assert ledger.rows() == [1, 2]
    assert (await holder.status()).attempt == 1


async def test_what_the_task_declares_for_its_success_commits_with_it(ledger: Ledger) -> None:
    app, seen = ledger.app, []

    @app.task(name="receipt")
    async def receipt(n: int) -> None: ...

    @app.task(name="pay")
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await ledger.write(tx.connection, n)
            tx.result = n

    @pay.follow_up("succeeded")
    def told(job: JobView) -> object:
        seen.append((job.state, job.result))
        return receipt.bind(job.result)

    async with app.worker():
        handle = await pay.enqueue(7)
        await handle.result(timeout="20s")
        (child,) = (await app.jobs.find("task:receipt")).jobs
        assert await ended(app, child.id) == "succeeded"
    assert (await app.jobs.count("task:receipt"))["succeeded"] == 1
    assert seen == [("succeeded", 7)]


async def test_a_task_that_goes_on_after_its_commit_is_not_taken_for_lost(ledger: Ledger) -> None:
    app, told, after = ledger.app, [], []

    @app.task(name="pay")
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await ledger.write(tx.connection, n)
        await asyncio.sleep(0.8)
        after.append(n)

    app.on("succeeded")(lambda job: told.append(job.task))
    async with app.worker(timing=Timing(beat=0.1, lease=5.0)) as pod:
        handle = await pay.enqueue(7)
        await handle.result(timeout="20s")
        async with asyncio.timeout(10):
            while len(pod.roster):
                await asyncio.sleep(0.01)
    assert (after, told) == ([7], ["pay"])
    assert pod.turner.counts["lost"] == 0


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_beat_between_the_commit_and_its_news_does_not_take_the_claim_for_lost(
    ledger: Ledger, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The job has ended in the storage, and the pod has not yet been told by whom: several beats see that.
    app, told, after, was = ledger.app, [], [], (StorageDesk.transact, StorageDesk.transact_async)

    @contextlib.contextmanager
    def transact(desk: StorageDesk, connection: object) -> Generator[object]:
        with was[0](desk, connection) as own:
            yield own
        time.sleep(0.5)

    @contextlib.asynccontextmanager
    async def transact_async(desk: StorageDesk, connection: object) -> AsyncGenerator[object]:
        async with was[1](desk, connection) as own:
            yield own
        await asyncio.sleep(0.5)

    monkeypatch.setattr(StorageDesk, "transact", transact)
    monkeypatch.setattr(StorageDesk, "transact_async", transact_async)

    @app.task(name="async")
    async def awaited(ctx: Context) -> None:
        async with ctx.transaction():
            pass
        after.append(ctx.cancelled)

    @app.task(name="thread")
    def plain(ctx: Context) -> None:
        with ledger.connect() as own, ctx.transaction_sync(own):
            pass
        after.append(ctx.cancelled)

    app.on("succeeded")(lambda job: told.append(job.task))
    async with app.worker(timing=Timing(beat=0.1, lease=5.0)) as pod:
        await (awaited if kind == "async" else plain).enqueue()
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0.01)
    assert (after, told, pod.turner.counts["lost"]) == ([False], [kind], 0)


async def test_a_run_whose_commit_fails_is_found_lost_by_the_next_beat(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise a run that was once about to commit could go on for ever beside the one that has its job now.
    app, was = ledger.app, StorageDesk.transact_async

    @contextlib.asynccontextmanager
    async def transact_async(desk: StorageDesk, connection: object) -> AsyncGenerator[object]:
        async with was(desk, connection) as own:
            yield own
            raise OSError("the commit was lost on its way")

    monkeypatch.setattr(StorageDesk, "transact_async", transact_async)

    @app.task(name="pay")
    async def pay(ctx: Context) -> None:
        with contextlib.suppress(OSError):
            async with ctx.transaction():
                pass
        (job,) = await app.storage.get([ctx.job_id])
        await app.storage.apply([replace(lifecycle.rescue(job, "another"), if_lapsed=False)])
        await asyncio.sleep(30)

    async with app.worker(timing=Timing(beat=0.1, lease=5.0)) as pod:
        await pay.enqueue()
        async with asyncio.timeout(10):
            while not pod.turner.counts["lost"]:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_what_a_child_said_before_a_beat_is_heard_before_it(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    # It lies in the socket when the beat's answer comes to the loop, which reads only after that.
    async def main() -> None:
        app, loop = App("memory://"), asyncio.get_running_loop()

        @app.task(name="pay")
        async def pay() -> None:
            await asyncio.sleep(60)

        async def rounds() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        async with app, app.worker(timing=Timing(cancel_grace=0.1, grace=0.1)) as pod:
            await pay.enqueue()
            while not (runs := [run for run in pod.roster.runs() if run.begun]):
                await asyncio.sleep(0.01)
            (run,), (pods, childs) = runs, socket.socketpair()
            run.executor = Elsewhere()
            loop.add_reader(pods, lambda: run.may_commit(pods.recv(1) == b"c"))
            loop.call_soon(childs.send, b"c")
            loop.call_soon(pod.crew.lose, *run.claim)
            await rounds()
            assert (run.commits, run.reason) == (True, None)
            run.may_commit(False)
            pod.crew.lose(*run.claim)
            await rounds()
            assert run.reason == "lost"
            loop.remove_reader(pods)
            pods.close()
            childs.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())


class Elsewhere(AsyncExecutor):
    asks = True


async def test_what_was_committed_is_told_although_the_pod_was_declared_lost_meanwhile(tmp_path: Path) -> None:
    app, told, committed, go = App(f"sqlite:///{tmp_path / 'jobs.db'}"), [], asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.task(name="pay")
    def pay(ctx: Context) -> None:
        with ctx.transaction_sync():
            pass
        loop.call_soon_threadsafe(committed.set)
        go.wait(5)

    app.on("succeeded")(lambda job: told.append(job.task))
    async with app, app.worker() as pod:
        await pay.enqueue()
        await committed.wait()
        for run in pod.roster.runs():
            pod.crew.stop_run(run.job.id, run.job.token or "", "lost")
        go.set()
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0.01)
    assert (told, pod.turner.counts["lost"], pod.turner.counts["succeeded"]) == (["pay"], 0, 1)


async def test_what_was_committed_is_told_although_the_pod_is_declared_lost_before_its_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, told = App(f"sqlite:///{tmp_path / 'jobs.db'}"), []

    @app.task(name="pay")
    async def pay(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    app.on("succeeded")(lambda job: told.append(job.task))
    async with app, app.worker() as pod:
        finished = pod.turner.finished

        def finished_and_lost(*given: Any) -> None:
            finished(*given)
            pod.turner.forget()

        monkeypatch.setattr(pod.turner, "finished", finished_and_lost)
        await pay.enqueue()
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0.01)
    assert (told, pod.turner.counts["stale"], pod.turner.counts["succeeded"]) == (["pay"], 0, 1)


async def test_transactions_of_several_runs_wait_for_each_other_and_not_the_loop_for_them(ledger: Ledger) -> None:
    # Where there is one write lock, a run that waited for it on the loop would keep its holder from ever letting go.
    app, pauses = ledger.app, [0.0]

    @app.task(name="pay", retry=1)
    async def pay(ctx: Context, n: int) -> None:
        async with ctx.transaction() as tx:
            await ledger.write(tx.connection, n)
            await asyncio.sleep(0.02)

    async def watch() -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            pauses.append(time.monotonic() - before)

    async with app.worker(slots=5):
        watching = asyncio.create_task(watch())
        handles = [await pay.enqueue(n) for n in range(5)]
        for handle in handles:
            await handle.result(timeout="20s")
        watching.cancel()
    assert ledger.rows() == [0, 1, 2, 3, 4]
    assert max(pauses) < 1.0


async def test_a_connection_of_the_users_own_waits_for_the_lock_too(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task(name="pay", retry=1)
    async def pay(ctx: Context) -> int:
        with contextlib.closing(sqlite3.connect(tmp_path / "jobs.db", timeout=7.0)) as db:
            db.row_factory = sqlite3.Row
            async with ctx.transaction(db) as tx:
                await asyncio.sleep(0.02)
                tx.result = db.execute("pragma busy_timeout").fetchone()[0]
        return 0

    async with app, app.worker(slots=3):
        handles = [await pay.enqueue() for _ in range(3)]
        assert [await handle.result(timeout="20s") for handle in handles] == [7000] * 3


@pytest.mark.parametrize("end", ["timeout", "shutdown"])
async def test_a_run_that_is_given_up_after_its_commit_has_succeeded(tmp_path: Path, end: str) -> None:
    app, told, committed, go = App(f"sqlite:///{tmp_path / 'jobs.db'}"), [], asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.task(name="pay", timeout=0.3 if end == "timeout" else None)
    def pay(ctx: Context) -> None:
        with ctx.transaction_sync():
            pass
        loop.call_soon_threadsafe(committed.set)
        go.wait(5)

    for what in ("succeeded", "retried", "failed"):
        app.on(what)(lambda job, what=what: told.append(what))  # type: ignore[call-overload]
    async with app:
        async with app.worker(timing=Timing(cancel_grace=0.2, grace=0.3)) as pod:
            await pay.enqueue()
            await committed.wait()
            async with asyncio.timeout(10):
                while end == "timeout" and len(pod.roster):
                    await asyncio.sleep(0.01)
        go.set()
    assert told == ["succeeded"]
    assert {why: pod.turner.counts[why] for why in ("succeeded", "retried", "released")} == {
        "succeeded": 1,
        "retried": 0,
        "released": 0,
    }


CHILD = """
import asyncio, os, sys, time
from treadle import App, Context
from treadle.config import Timing

app = App("sqlite:///jobs.db")
settled = Context.settled

def late(self, outcome) -> None:
    if __name__ != "__main__":
        time.sleep(0.5)  # in the child, whose pod beats meanwhile and sees that the job has ended
    settled(self, outcome)

Context.settled = late

@app.task(name="receipt")
async def receipt(n: int) -> None: ...

@app.task(name="pay", executor="process")
def pay(ctx: Context, end: str) -> None:
    with ctx.transaction_sync() as tx:
        tx.result = end
    time.sleep(0.5)
    if end == "killed":
        os._exit(9)
    open("undisturbed", "x").close()

pay.follow_up("succeeded")(lambda job: receipt.bind(1))

async def main() -> None:
    told = []
    app.on("succeeded")(lambda job: told.append(job.task))
    async with app.worker(timing=Timing(beat=0.1, lease=5.0)) as pod:
        for end in ("returned", "killed"):
            handle = await pay.enqueue(end)
            print(await handle.result(timeout="15s"), flush=True)
            while len(pod.roster):
                await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            while len(told) < 4:
                await asyncio.sleep(0.01)
        job = await handle.status()
        print(sorted(told), pod.turner.counts["lost"], job.state, job.attempt, job.crashes, flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_what_a_child_process_has_committed_is_a_success_whatever_becomes_of_the_child(tmp_path: Path) -> None:
    script = tmp_path / "shop.py"
    script.write_text(CHILD)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=30)
    assert done.stdout.splitlines() == [
        "returned",
        "killed",
        "['pay', 'pay', 'receipt', 'receipt'] 0 succeeded 1 0",
    ], done.stderr
    assert (tmp_path / "undisturbed").exists(), done.stderr


LEFT_BEHIND = """
import asyncio, threading, time
from treadle import App, Context
from treadle.config import Limits
from treadle.core.outcome import Succeeded

app = App("sqlite:///jobs.db")

@app.task(name="first", executor="process")
def first(ctx: Context) -> None:
    def later() -> None:
        time.sleep(0.5)
        ctx.settled(Succeeded())  # as at the end of a transaction
        try:
            ctx.checkpoint_sync({"page": 7})
        except RuntimeError as error:
            open("told", "w").write(str(error))

    threading.Thread(target=later).start()

@app.task(name="second", executor="process", retry=1)
def second(ctx: Context) -> None:
    time.sleep(1.5)
    raise ValueError(ctx.resume_sync())

async def main() -> None:
    async with app.worker(limits=Limits(children=1)):
        await (await first.enqueue()).result(timeout="15s")
        handle = await second.enqueue()
        ended = await app.client.wait_for_end(handle.id, 15)
        print(ended.state, ended.errors[-1].message)

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_a_thread_that_a_task_has_left_behind_does_not_speak_for_the_next_run_of_its_child(tmp_path: Path) -> None:
    # Its commit, taken for the other run's, made a job succeed that had failed.
    (tmp_path / "shop.py").write_text(LEFT_BEHIND)
    done = subprocess.run([sys.executable, "shop.py"], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert done.stdout.split() == ["failed", "None"], done.stderr
    assert (tmp_path / "told").read_text() == "the run has ended"
