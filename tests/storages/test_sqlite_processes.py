"""Several processes on one file: fairness, proof of death, and a sound file after it all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import a_job
from treadle.testing.conformance.steps import ids, put, search

pytestmark = pytest.mark.anyio

WRITE = """
import asyncio, sys, time, uuid
from treadle.core.job import NewJob
from treadle.storages.sqlite import SQLiteStorage

async def main():
    storage = SQLiteStorage(sys.argv[1])
    await storage.open()
    print("open", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + float(sys.argv[2])
    rounds = 0
    async def enqueue():
        nonlocal rounds
        while time.monotonic() < until:
            await storage.insert([NewJob(id=str(uuid.uuid4()), task="work", queue="mail") for _ in range(20)])
            rounds += 1
    await asyncio.gather(*(enqueue() for _ in range(4)))
    await storage.close()
    print(rounds, flush=True)

asyncio.run(main())
"""

HOLD = """
import asyncio, os, sys, time
from treadle.core.pod import PodCard
from treadle.ports import Lane, Want
from treadle.storages.sqlite import SQLiteStorage

async def main():
    storage = SQLiteStorage(sys.argv[1])
    await storage.open()
    card = PodCard(id="doomed", label="doomed", host="h", pid=os.getpid(), version="0", queues={"default": 1},
                   tasks=("work",), lease=600.0)
    await storage.register(card)
    claimed = await storage.claim("doomed", "token", [Want("default", 5, (Lane(frozenset({"work"}), 5),))])
    if len(sys.argv) > 2 and os.fork() == 0:
        os.close(1)
        time.sleep(30)
        os._exit(0)
    print(len(claimed.jobs), flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""

COMMIT = """
import asyncio, os, sys
from treadle.core.job import NewJob
from treadle.storages.sqlite import SQLiteStorage, writer

async def main():
    storage = SQLiteStorage(sys.argv[1])
    await storage.open()
    await storage.insert([NewJob(id="first", task="work", queue="mail")])
    writer.on_step = lambda step: os._exit(9) if step == sys.argv[2] else None
    await storage.insert([NewJob(id=f"job{n}", task="work", queue="mail") for n in range(3)])

asyncio.run(main())
"""


COME_AND_GO = """
import asyncio, sys, uuid
from treadle.core.filter import parse
from treadle.core.job import NewJob
from treadle.ports import Query
from treadle.storages.sqlite import SQLiteStorage

async def main():
    for _ in range(20):
        storage = SQLiteStorage(sys.argv[1])
        await storage.open()
        await storage.insert([NewJob(id=str(uuid.uuid4()), task="work", queue="mail")])
        await storage.find(Query(filter=parse("")))
        await storage.close()

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


def integrity(path: str) -> str:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return str(db.execute("pragma integrity_check").fetchone()[0])


def test_two_processes_share_the_file_fairly(path: str) -> None:
    """With SQLite's busy_timeout alone, measured, the second process got none of 100,000 turns."""
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WRITE, path, "1.5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            for _ in range(2)
        ]
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"open\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()
        rounds = sorted(int(process.communicate(timeout=30)[0]) for process in processes)
    assert rounds[0] > rounds[1] / 4, rounds
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select count(*) from treadle_job").fetchone() == (20 * sum(rounds),)
    assert integrity(path) == "ok"


def test_processes_come_and_go_without_meeting_a_locked_database(path: str) -> None:
    """The last one to close a file takes it for itself while it merges the log, and so does the first one to open it:
    whoever comes at that moment must wait, not fail."""
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-c", COME_AND_GO, path]
        processes = [stack.enter_context(subprocess.Popen(command)) for _ in range(3)]
        assert [process.wait(30) for process in processes] == [0, 0, 0]
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("select count(*) from treadle_job").fetchone() == (60,)
    assert integrity(path) == "ok"


@pytest.mark.parametrize("forked", [False, True])
async def test_a_killed_pod_is_lost_at_once_even_if_a_forked_child_lives_on(path: str, forked: bool) -> None:
    """A child made by fork shares its parent's open files, and with them the flock that says "alive": unless the
    child lets go of it, a dead pod would stay alive for as long as its lease."""
    storage = SQLiteStorage(path)
    await storage.open()
    await storage.insert([a_job() for _ in range(3)])
    command = [sys.executable, "-W", "ignore", "-c", HOLD, path, *(["fork"] if forked else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as pod:
        assert pod.stdout is not None
        assert await asyncio.to_thread(pod.stdout.readline) == b"3\n"
        assert await storage.abandoned(10, 30.0) == []
        pod.kill()
        pod.wait()
        found = await storage.abandoned(10, 30.0)
        assert {each.label for each in found} == {"doomed"}
        assert len(found) == 3
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pod.pid, signal.SIGKILL)
    await storage.close()


@pytest.mark.parametrize(
    ("step", "written"),
    [("group.before_begin", 1), ("group.begun", 1), ("group.before_commit", 1), ("group.after_commit", 4)],
)
async def test_a_process_killed_around_a_commit_has_written_all_or_nothing(path: str, step: str, written: int) -> None:
    found = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", COMMIT, path, step])
    assert found.returncode == 9
    storage = SQLiteStorage(path)
    await storage.open()
    assert len(await ids(storage)) == written
    await put(storage)
    await storage.close()
    assert integrity(path) == "ok"


async def test_readers_do_not_stand_in_the_writers_way(path: str) -> None:
    """A reader that holds an old snapshot keeps the log from being emptied, but commits go on beside it."""
    storage = SQLiteStorage(path)
    await storage.open()
    await storage.insert([a_job() for _ in range(1000)])
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from treadle_job").fetchone()
        searches = [asyncio.ensure_future(search(storage, "args.n:1")) for _ in range(10)]
        for _ in range(20):
            await storage.insert([a_job(args=f'"{"x" * 2000}"') for _ in range(100)])
        await asyncio.gather(*searches)
        assert reader.execute("select count(*) from treadle_job").fetchone() == (1000,)
    assert len(await ids(storage, limit=10_000)) == 3000
    await storage.close()
    assert integrity(path) == "ok"


async def test_opening_and_closing_leaks_neither_descriptors_nor_threads(path: str) -> None:
    async def use() -> None:
        storage = SQLiteStorage(path)
        await storage.open()
        stop = storage.listen(lambda _: None)
        await put(storage)
        await ids(storage)
        await storage.close()
        stop()

    await use()
    descriptors, threads = len(os.listdir("/dev/fd")), threading.active_count()
    for _ in range(50):
        await use()
    assert len(os.listdir("/dev/fd")) == descriptors
    async with asyncio.timeout(5):
        while threading.active_count() > threads:  # one that has answered may still be on its way out
            await asyncio.sleep(0.01)
    assert [name for name in os.listdir(f"{path}-treadle/pods") if name.endswith(".bell")] == []
