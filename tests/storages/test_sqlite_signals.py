"""Wakes: in this process by the writer, from other processes by the bell, from anybody by the data version."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from treadle.core import lifecycle
from treadle.core.job import QueueChange
from treadle.core.outcome import Succeeded
from treadle.ports import Wake
from treadle.storages.sqlite import SQLiteStorage, wakes
from treadle.storages.sqlite.bells import Bell, Ringer
from treadle.testing.conformance.builders import a_job, failing, finished
from treadle.testing.conformance.steps import put, start

pytestmark = pytest.mark.anyio

INSERT = """
import asyncio, sys
from treadle.core.job import NewJob
from treadle.storages.sqlite import SQLiteStorage

async def main():
    storage = SQLiteStorage(sys.argv[1])
    await storage.open()
    await storage.insert([NewJob(id=sys.argv[2], task="work", queue="mail")])
    await storage.close()

asyncio.run(main())
"""

REST = """
import asyncio, sys, time
from treadle.storages.sqlite import SQLiteStorage

async def main():
    storage = SQLiteStorage(sys.argv[1])
    await storage.open()
    storage.listen(lambda wake: None)
    await asyncio.sleep(0.5)
    before = time.process_time()
    await asyncio.sleep(2)
    print(time.process_time() - before)
    await storage.close()

asyncio.run(main())
"""


class Listener:
    """Collects what it hears, and can be waited for."""

    def __init__(self) -> None:
        self.heard: list[Wake] = []
        self._changed = threading.Condition()

    def __call__(self, wake: Wake) -> None:
        with self._changed:
            self.heard.append(wake)
            self._changed.notify_all()

    async def hears(self, wanted: Callable[[Wake], bool], patience: float = 5.0) -> bool:
        def wait() -> bool:
            with self._changed:
                return self._changed.wait_for(lambda: any(map(wanted, self.heard)), patience)

        return await asyncio.to_thread(wait)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
async def storage(path: str) -> AsyncIterator[SQLiteStorage]:
    storage = SQLiteStorage(path)
    await storage.open()
    yield storage
    await storage.close()


# In this process -----------------------------------------------------------------------------------------------------


async def test_a_listener_hears_of_an_insert_when_its_caller_does(storage: SQLiteStorage) -> None:
    listener = Listener()
    storage.listen(listener)
    await put(storage, queue="mail")
    assert await listener.hears(lambda wake: wake.queues == {"mail"})


async def test_a_listener_hears_which_jobs_ended_and_that_a_cancel_is_wanted(storage: SQLiteStorage) -> None:
    listener = Listener()
    storage.listen(listener)
    first, second = await start(storage), await start(storage)
    await storage.apply([finished(first, Succeeded())])
    assert await listener.hears(lambda wake: wake.ended == {first.id})
    cancel = lifecycle.cancel(second)
    assert cancel is not None
    await storage.apply([cancel])
    assert await listener.hears(lambda wake: wake.cancels)


async def test_what_was_rolled_back_is_not_told(storage: SQLiteStorage) -> None:
    listener = Listener()
    storage.listen(listener)
    with pytest.raises(UnicodeEncodeError):
        await storage.insert([a_job(queue="ghost", args="\ud800")])
    await put(storage, queue="real")
    assert await listener.hears(lambda wake: "real" in wake.queues)
    assert not any("ghost" in wake.queues for wake in listener.heard)


async def test_a_listener_that_fails_harms_nobody(storage: SQLiteStorage, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Wake) -> None:
        raise RuntimeError("no")

    listener = Listener()
    storage.listen(broken)
    storage.listen(listener)
    await put(storage, queue="mail")
    assert await listener.hears(lambda wake: "mail" in wake.queues)
    await put(storage)
    assert "a listener failed" in caplog.text


async def test_who_stopped_listening_hears_nothing_more(storage: SQLiteStorage) -> None:
    listener = Listener()
    stop = storage.listen(listener)
    stop()
    await put(storage)
    assert listener.heard == []


# Across processes ----------------------------------------------------------------------------------------------------


async def test_an_insert_of_another_process_rings_the_bell(storage: SQLiteStorage, path: str) -> None:
    """The bell names the queue; the data version, which would notice a quarter of a second later, knows no names."""
    listener = Listener()
    storage.listen(listener)
    subprocess.run([sys.executable, "-c", INSERT, path, a_job().id], check=True)
    assert await listener.hears(lambda wake: wake.queues == {"mail"})


async def test_the_bell_rings_for_retries_cancels_and_wakes(storage: SQLiteStorage, path: str) -> None:
    other = SQLiteStorage(path)
    await other.open()
    job, cancelled = await start(storage), await start(storage)
    listener = Listener()
    other.listen(listener)
    await storage.apply([finished(job, failing(after=0.0))])
    assert await listener.hears(lambda wake: wake.queues == {"default"})
    cancel = lifecycle.cancel(cancelled)
    assert cancel is not None
    await storage.apply([cancel])
    assert await listener.hears(lambda wake: wake.cancels)
    await storage.wake(["media", "mail"])
    assert await listener.hears(lambda wake: {"media", "mail"} <= wake.queues)
    await storage.apply([QueueChange(name="mail", max_workers=1)])
    # Its queue was rung for a moment ago, and is again a moment later: the word of the settings does not wait for it.
    assert await listener.hears(lambda wake: wake.settings)
    await other.close()


async def test_a_commit_that_nobody_rang_for_is_noticed_by_the_data_version(storage: SQLiteStorage, path: str) -> None:
    """A user's own transaction with jobs in it commits in the user's connection: nothing of ours sees it happen."""
    listener = Listener()
    storage.listen(listener)
    for _ in range(10):  # the first look is what later ones are compared with: a commit before it is not noticed
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("begin immediate")
            storage.borrow(connection).insert([a_job()])
            connection.execute("commit")
        if await listener.hears(lambda wake: wake == Wake(), 3.0):
            return
    raise AssertionError("no commit was noticed")


async def test_without_a_bell_the_data_version_is_asked_more_often(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no FIFOs here")

    monkeypatch.setattr(os, "mkfifo", refuse)
    monkeypatch.setattr(wakes, "_LOOK_EVERY", 60.0)
    one, other = SQLiteStorage(path), SQLiteStorage(path)
    await one.open()
    await other.open()
    listener = Listener()
    one.listen(listener)
    for _ in range(10):  # until one is noticed: the first look may come after a commit
        await put(other)
        if await listener.hears(lambda wake: True, 3.0):
            break
    assert listener.heard
    assert "no bell" in caplog.text
    # Nobody says what a commit was about, so it may have been an edit of settings.
    assert await listener.hears(lambda wake: wake.settings)
    await one.close()
    await other.close()


async def test_listening_may_begin_before_opening_and_outlives_it(path: str) -> None:
    storage, other = SQLiteStorage(path), SQLiteStorage(path)
    listener = Listener()
    storage.listen(listener)
    await other.open()
    for queue in ("first", "second"):
        await storage.open()
        await put(other, queue=queue)
        assert await listener.hears(lambda wake, queue=queue: wake.queues == {queue})
        await storage.close()
    await other.close()


async def test_a_process_that_only_enqueues_has_no_bell_and_no_listening_thread(
    storage: SQLiteStorage, path: str
) -> None:
    await put(storage)
    assert os.listdir(f"{path}-treadle/pods") == []
    assert not [thread for thread in threading.enumerate() if "listener" in thread.name]


async def test_an_idle_process_rests(path: str) -> None:
    found = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", REST, path], check=True, stdout=subprocess.PIPE
    )
    assert float(found.stdout) < 0.02  # of two seconds: one per cent


# Bells ---------------------------------------------------------------------------------------------------------------


def test_a_bell_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    """Its FIFO stays behind when it is killed; nobody reads it any more, and opening it says so."""
    dead, alive = Bell(str(tmp_path)), Bell(str(tmp_path))
    os.close(dead.descriptor)
    Ringer(str(tmp_path)).ring(["mail"])
    assert alive.read() == Wake(queues=frozenset({"mail"}))
    assert os.listdir(tmp_path) == [alive.name]
    alive.close()


def test_a_bell_whose_process_dies_later_is_removed_too(tmp_path: Path) -> None:
    bell, ringer = Bell(str(tmp_path)), Ringer(str(tmp_path))
    ringer.ring(["mail"])
    os.close(bell.descriptor)
    ringer.ring(["mail"], at_once=True)
    assert os.listdir(tmp_path) == []
    ringer.close()


def test_a_full_pipe_stops_nobody(tmp_path: Path) -> None:
    bell, ringer = Bell(str(tmp_path)), Ringer(str(tmp_path))
    for number in range(20_000):
        ringer.ring([f"queue{number}"], at_once=True)
    assert "queue0" in bell.read().queues
    ringer.close()
    bell.close()


def test_a_queue_is_rung_for_once_in_two_milliseconds_and_never_forgotten(tmp_path: Path) -> None:
    bell, ringer = Bell(str(tmp_path)), Ringer(str(tmp_path))
    assert ringer.ring(["mail"]) is None
    assert bell.read().queues == {"mail"}
    rest = ringer.ring(["mail"])
    if rest is not None:  # a slow machine may have let the time pass
        time.sleep(rest)
        assert ringer.ring([]) is None
    assert bell.read().queues == {"mail"}
    ringer.close()
    bell.close()


def test_more_names_than_fit_become_any(tmp_path: Path) -> None:
    bell, ringer = Bell(str(tmp_path)), Ringer(str(tmp_path))
    ringer.ring([f"a-long-name-of-a-queue-{number}" for number in range(100)])
    assert bell.read() == Wake(cancels=True, settings=True)
    ringer.close()
    bell.close()


def test_an_own_bell_is_not_rung(tmp_path: Path) -> None:
    bell, ringer = Bell(str(tmp_path)), Ringer(str(tmp_path))
    ringer.leave_out(bell.name)
    ringer.ring(["mail"])
    assert bell.read() == Wake()
    bell.close()


def test_what_is_no_fifo_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "trap.bell").write_text("precious")
    Ringer(str(tmp_path)).ring(["mail"])
    assert (tmp_path / "trap.bell").read_text() == "precious"
