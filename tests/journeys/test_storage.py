"""A disk that is full, and a file that somebody else has locked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from treadle import StorageUnavailable

from .stage import Stage

MEGABYTE = 1 << 20
DISK = 160 * MEGABYTE


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Path]:
    """A small disk of our own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        why = f"this journey mounts a small tmpfs and needs root for it: {mounted.stderr.strip()}"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.fixture
def stage_on_disk(disk: Path, stage_on: Callable[[Path], Stage]) -> Stage:
    return stage_on(disk / "jobs.db")


def test_a_full_disk_stops_the_work_and_loses_nothing(stage_on_disk: Stage, disk: Path) -> None:
    """E3. The results are larger than all the room that the log and the ballast have left, so the work must stop."""
    stage = stage_on_disk
    worker = stage.start()
    running = stage.act("gate", gate="go", count=4)
    stage.wait(stage.began(*running), "jobs run")
    stage.act("big", count=150)
    _fill(disk)
    stage.open_gate("go")
    stage.wait(lambda: worker.said("storage trouble"), "the worker meets the full disk")
    stage.drain(*running)  # there is the ballast, for the finishes of what runs
    _fill(disk)  # and now there is none
    left = [id for id, job in stage.jobs().items() if job["state"] != "succeeded"]
    assert left, "the disk was not full enough to stop anything"
    # Until what was taken for the time being has failed too.
    stage.wait(lambda: worker.said("a beat was not answered"), "not even a beat can be written")
    assert worker.lives
    with pytest.raises(StorageUnavailable):  # whoever enqueues is told so, and nothing is left behind
        _enqueue_in_vain(stage)

    (disk / "filler").unlink()
    took = stage.wait(lambda: any(stage.state(id) == "succeeded" for id in left), "the work goes on")
    assert took < 10.0, f"it went on {took:.1f} s after there was room again"
    stage.drain()
    assert {job["state"] for job in stage.jobs().values()} == {"succeeded"}


def _enqueue_in_vain(stage: Stage) -> None:
    for _ in range(200):
        stage.act(gate="x" * 50_000)


def _fill(disk: Path) -> None:
    with (disk / "filler").open("ab", buffering=0) as filler:
        with contextlib.suppress(OSError):
            while True:
                filler.write(b"\0" * MEGABYTE)
        with contextlib.suppress(OSError):
            while True:
                filler.write(b"\0" * 512)


def test_an_outside_writer_holds_everybody_up_and_harms_nobody(stage: Stage) -> None:
    """E1, R29. It holds the lock longer than a call's deadline, and longer than a lease: calls time out and are
    repeated. When it lets go every lease is over, and still nobody is taken for dead, because nobody could beat."""
    workers = stage.start_many(call=0.7)
    running = stage.act("gate", gate="go", count=8)
    stage.wait(stage.began(*running), "both workers run jobs")
    with _outside_writer(stage):
        stage.open_gate("go")
        for worker in workers:
            stage.wait(lambda: worker.said("storage trouble"), "a worker cannot write")  # noqa: B023
        stage.wait(lambda: _leases_have_lapsed(stage), "every lease is over")
    more = stage.act(count=20)
    stage.drain()
    assert all(worker.lives for worker in workers)
    assert len(stage.effects("effect", *running)) == 8, "nothing ran twice"
    assert len(stage.claims(*running, *more)) == 28


def test_a_worker_that_is_stopped_while_it_cannot_write_still_writes_what_has_ended(stage: Stage) -> None:
    """E1 with J1: the pause after trouble has grown by then, and a stop cuts it short."""
    worker = stage.start(call=0.3, grace=60.0)
    running = stage.act("gate", gate="go", count=4)
    stage.wait(stage.began(*running), "jobs run")
    with _outside_writer(stage):
        stage.open_gate("go")
        stage.wait(lambda: worker.said("storage trouble"), "the worker cannot write")
        worker.send(signal.SIGTERM)
        stage.wait(lambda: worker.said("stopping"), "it has heard the signal")
    assert worker.exit_code() == 0
    assert {(job["state"], job["attempt"]) for job in stage.jobs().values()} == {("succeeded", 1)}


@contextlib.contextmanager
def _outside_writer(stage: Stage) -> Generator[None]:
    """Another process has SQLite's write lock, and knows nothing of Treadle."""
    script = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)\n"
        "db.execute('begin exclusive')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
        "db.execute('rollback')\n"
    )
    command = [sys.executable, "-c", script, str(stage.database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outsider:
        try:
            assert outsider.stdout is not None
            assert outsider.stdout.readline() == b"held\n"
            yield
        finally:
            outsider.communicate()


def _leases_have_lapsed(stage: Stage) -> bool:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return all(row["lease_until"] < now for row in stage.ask("select lease_until from treadle_pod"))
