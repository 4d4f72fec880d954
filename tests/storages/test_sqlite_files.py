"""The files around the database: which places are refused, who may read them, and what they prove."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from treadle.core.errors import ReadOnly, SchemaTooOld, StorageUnavailable
from treadle.storages.sqlite import SQLiteStorage, files
from treadle.storages.sqlite.locks import PodLocks, WriteLock
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.builders import a_job
from treadle.testing.conformance.steps import a_live_pod, ids, put, start

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def storage(path: Path) -> AsyncIterator[SQLiteStorage]:
    storage = SQLiteStorage(path)
    await storage.open()
    yield storage
    await storage.close()


async def is_refused(path: Path, text: str) -> None:
    with pytest.raises(StorageUnavailable, match=text):
        await SQLiteStorage(path, call_deadline=1.0).open()


# Places --------------------------------------------------------------------------------------------------------------


async def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    await is_refused(tmp_path / "nowhere" / "jobs.db", f"there is no directory {tmp_path}/nowhere")


async def test_what_the_system_refuses_is_told_as_ours(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quota, a name too long, a lock file of somebody else's: no bare OSError reaches who enqueues."""
    await is_refused(path.with_name("x" * 250), r"cannot be used: File name too long")
    path.with_name("jobs.db-treadle").write_bytes(b"")
    await is_refused(path, r"jobs\.db-treadle is not a directory")


async def test_a_directory_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").mkdir()
    await is_refused(tmp_path / "jobs.db", "not a regular file")


@pytest.mark.parametrize("content", [b"This is a letter.\n" * 100, b"x"])
async def test_a_file_that_is_no_database_is_refused_and_left_untouched(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    await is_refused(path, "is not a SQLite database; it was left untouched")
    assert path.read_bytes() == content
    assert os.listdir(path.parent) == ["jobs.db"]


async def test_a_damaged_file_is_never_taken_for_an_empty_queue(path: Path) -> None:
    storage = SQLiteStorage(path)
    await storage.open()
    await storage.insert([a_job() for _ in range(500)])
    await storage.close()
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)

    async def look() -> None:
        await storage.open()
        await ids(storage)

    with pytest.raises(StorageUnavailable, match=r"damaged|malformed|not a"):
        await look()
    await storage.close()


async def test_a_log_that_was_cut_off_loses_its_tail_only(path: Path, storage: SQLiteStorage, tmp_path: Path) -> None:
    """As after a crash of the machine: what is whole is used, what is torn is passed over."""
    written = [await put(storage) for _ in range(10)]
    copy = tmp_path / "copy.db"
    shutil.copy(path, copy)
    shutil.copy(f"{path}-wal", f"{copy}-wal")
    os.truncate(f"{copy}-wal", os.path.getsize(f"{copy}-wal") - 1000)
    restored = SQLiteStorage(copy)
    await restored.open()
    found = (await ids(restored))[::-1]
    assert 0 < len(found) < 10
    assert found == written[: len(found)]
    await restored.close()


async def test_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """WAL needs shared memory and honest locks, and NFS has neither."""
    monkeypatch.setattr(files, "file_system", lambda _: "nfs4")
    await is_refused(path, r"network file system \(nfs4\)")
    assert not path.exists()


async def test_a_read_only_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mounted:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: Mounted())
    await is_refused(path, "read-only file system")


async def test_a_directory_without_permission_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # chmod does not stop root
    await is_refused(path, "may not be written to")


def test_the_type_of_a_file_system_is_that_of_the_deepest_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    table = (
        "21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        "22 21 0:5 / /data rw - xfs /dev/sdb1 rw\n"
        "23 22 0:6 / /data/with\\040space rw - nfs4 server:/ rw\n"
        "24 21 0:7 / /database rw - tmpfs none rw\n"
    )
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: table)
    assert files.file_system("/home/me") == "ext4"
    assert files.file_system("/data/jobs") == "xfs"
    assert files.file_system("/data/with space/jobs") == "nfs4"
    assert files.file_system("/database") == "tmpfs"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_type_of_a_file_system_is_known_on_linux(tmp_path: Path) -> None:
    assert files.file_system("/proc") == "proc"
    assert files.file_system(str(tmp_path)) != ""


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b"])
def test_what_is_no_path_is_refused_at_construction(path: str) -> None:
    with pytest.raises(ValueError, match="no path"):
        SQLiteStorage(path)


async def test_two_names_of_one_file_share_one_lock(path: Path, storage: SQLiteStorage) -> None:
    """The folder with the lock is named after the real path: a symbolic link must not lead to a second lock."""
    link = path.parent / "link.db"
    link.symlink_to(path)
    other = SQLiteStorage(link)
    await other.open()
    assert other.path == storage.path
    id = await put(storage)
    assert await ids(other) == [id]
    await other.close()


# Privacy -------------------------------------------------------------------------------------------------------------


async def test_all_files_are_for_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        storage = SQLiteStorage(tmp_path / "jobs.db")
        await storage.open()
        await start(storage)
        storage.listen(lambda _: None)
        await storage.backup(str(tmp_path / "copy.db"))
        found = {str(file.relative_to(tmp_path)): stat.S_IMODE(file.lstat().st_mode) for file in tmp_path.rglob("*")}
        await storage.close()
    finally:
        os.umask(before)
    ours = {f"jobs.db-treadle{name}" for name in ("", "/lock", "/ballast", "/pods", "/.gitignore")}
    assert {"jobs.db", "jobs.db-wal", "jobs.db-shm", "copy.db", *ours} <= found.keys()
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}
    assert len([name for name in found if name.endswith((".lock", ".bell"))]) == 2


# The folder beside the database --------------------------------------------------------------------------------------


async def test_one_folder_beside_the_database_holds_all_that_is_ours(path: Path) -> None:
    """A worker left an 8 MiB file, a lock and a directory beside `app.db`, in the middle of a project folder."""
    storage = SQLiteStorage(path)
    await storage.open()
    await start(storage)
    storage.listen(lambda _: None)
    assert sorted(os.listdir(path.parent)) == ["jobs.db", "jobs.db-shm", "jobs.db-treadle", "jobs.db-wal"]
    assert sorted(os.listdir(f"{path}-treadle")) == [".gitignore", "ballast", "lock", "pods"]
    assert Path(f"{path}-treadle/.gitignore").read_text() == "*\n"
    await storage.close()


async def test_a_worker_can_do_without_the_ballast(path: Path) -> None:
    storage = SQLiteStorage(path, ballast=False)
    await storage.open()
    await start(storage)
    assert not os.path.exists(f"{path}-treadle/ballast")
    await storage.close()


async def test_who_only_reads_makes_no_folder_and_hears_all_the_same(path: Path, storage: SQLiteStorage) -> None:
    """A listener made the directory of the bells, even in a storage that was opened for reading only."""
    await storage.close()
    shutil.rmtree(f"{path}-treadle")
    reader = SQLiteStorage(path, read_only=True)
    await reader.open()
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    reader.listen(lambda _: loop.call_soon_threadsafe(heard.set))
    assert not os.path.exists(f"{path}-treadle")
    await storage.open()
    async with asyncio.timeout(30):
        while not heard.is_set():  # the listener knows of commits since its first look
            await put(storage)
            await asyncio.sleep(0.01)
    await reader.close()


async def test_a_folder_that_was_removed_is_made_again(path: Path, storage: SQLiteStorage) -> None:
    shutil.rmtree(f"{path}-treadle")
    assert storage._opened is not None
    assert storage._opened.writer is not None
    storage._opened.writer._lock.renew()
    assert sorted(os.listdir(f"{path}-treadle")) == [".gitignore", "lock", "pods"]


def first_layout(path: Path) -> tuple[Path, Path, Path]:
    lock, ballast, pods = (path.with_name(f"jobs.db-{name}") for name in ("lock", "ballast", "pods"))
    lock.write_bytes(b" " * 48)
    ballast.write_bytes(b"\0" * 100)
    pods.mkdir()
    (pods / "a.lock").touch()
    os.mkfifo(pods / "b.bell")
    return lock, ballast, pods


async def test_files_of_the_first_layout_are_removed(path: Path) -> None:
    left = first_layout(path)
    storage = SQLiteStorage(path)
    await storage.open()
    assert [each for each in left if each.exists()] == []
    await storage.close()


async def test_a_file_of_somebody_elses_with_such_a_name_is_left_alone(path: Path) -> None:
    lock, _, pods = first_layout(path)
    lock.write_text("{}" * 100)
    (pods / "notes.txt").touch()
    storage = SQLiteStorage(path)
    await storage.open()
    assert lock.exists()
    assert os.listdir(pods) == ["notes.txt"]
    await storage.close()


async def test_a_live_pod_of_the_first_layout_is_not_worked_beside(path: Path) -> None:
    """It looks for the locks of pods in another place than we do: a dead one would be found by its lease alone."""
    _, _, pods = first_layout(path)
    with (pods / "a.lock").open("rb+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await is_refused(path, r"a worker of an earlier version .* stop it first")
        assert not os.path.exists(f"{path}-treadle")
    storage = SQLiteStorage(path)
    await storage.open()
    await storage.close()


# The write lock ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("held", "taken"), [(0.0005, False), (1.0, True)])
def test_after_a_long_hold_the_lock_is_left_to_who_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: float, taken: bool
) -> None:
    """Who waits tries every 20 ms in the end, and a release left it 1 ms: a large bulk, written in pieces of a second,
    locked again each time before the other looked, and an enqueue beside it met its deadline."""
    now = 1000.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        if now - released > 0.02 and not tries:
            tries.append(other.try_take())

    monkeypatch.setattr("treadle.storages.sqlite.locks.time.monotonic", lambda: now)
    monkeypatch.setattr("treadle.storages.sqlite.locks.time.sleep", sleep)
    lock, other = WriteLock(str(tmp_path / "jobs.db")), WriteLock(str(tmp_path / "jobs.db"))
    tries: list[bool] = []
    assert lock.try_take()
    now += held
    assert not other.try_take()
    lock.release()
    released = now
    lock.give_way()
    assert tries == [True] * taken
    assert now - released < 0.03
    lock.close()
    other.close()


# A pod's lock --------------------------------------------------------------------------------------------------------


def test_a_live_pod_is_not_proved_dead_and_a_dead_one_is(tmp_path: Path) -> None:
    """An flock belongs to an open file, not to a process: a second look in the same process finds it held."""
    mine, other = PodLocks(str(tmp_path / "jobs.db")), PodLocks(str(tmp_path / "jobs.db"))
    mine.take("pod")
    assert not mine.is_dead("pod")
    assert not other.is_dead("pod")
    mine.close()
    assert other.is_dead("pod")
    other.bury(["pod"])
    assert not other.is_dead("pod")  # no file, no proof: the lease decides


def test_a_pod_that_signed_off_leaves_no_file(tmp_path: Path) -> None:
    locks = PodLocks(str(tmp_path / "jobs.db"))
    locks.take("a pod/with an odd name")
    assert len(os.listdir(locks.directory)) == 1
    locks.drop("a pod/with an odd name")
    assert os.listdir(locks.directory) == []


def test_a_lock_file_that_was_removed_in_between_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the opening of the file and its lock a neighbour may bury it; a lock on an unlinked file proves nothing
    to anybody."""
    locks = PodLocks(str(tmp_path / "jobs.db"))
    real = os.open
    removed: list[str] = []

    def racing(path: str, *args: int) -> int:
        descriptor = real(path, *args)
        if path.endswith(".lock") and not removed:
            removed.append(path)
            os.unlink(path)
        return descriptor

    monkeypatch.setattr(os, "open", racing)
    locks.take("pod")
    monkeypatch.undo()
    assert removed
    assert os.listdir(locks.directory) == ["pod.lock"]
    assert not PodLocks(str(tmp_path / "jobs.db")).is_dead("pod")
    locks.close()


def test_old_lock_files_of_nobody_are_swept(tmp_path: Path) -> None:
    locks = PodLocks(str(tmp_path / "jobs.db"))
    for pod in ("held", "known", "orphan", "fresh"):
        locks.take(pod)
    directory = Path(locks.directory)
    other = PodLocks(str(tmp_path / "jobs.db"))
    other._held["held"] = locks._held.pop("held")
    locks.close()
    for name in ("held", "known", "orphan"):
        os.utime(directory / f"{name}.lock", (0, 0))
    locks.sweep(["known"])
    assert sorted(os.listdir(directory)) == ["fresh.lock", "held.lock", "known.lock"]
    other.close()


async def test_a_pod_whose_process_is_gone_is_lost_at_once(path: Path, storage: SQLiteStorage) -> None:
    """The lease would leave its jobs waiting for half a minute; the lock is proof, and needs none of it."""
    other = SQLiteStorage(path)
    await other.open()
    job = await start(other)
    assert await storage.abandoned(10, 30.0) == []
    await other.close()  # without signing off: as a killed process leaves it
    (found,) = await storage.abandoned(10, 30.0)
    assert (found.job.id, found.why, found.label) == (job.id, "gone", "pod-on-test")
    (pod,) = await storage.pods()
    assert pod.lost
    assert (await storage.beat(pod.card.id, 30.0, [])).lost
    assert os.listdir(f"{path}-treadle/pods") == []


async def test_without_a_lock_file_the_lease_decides(path: Path) -> None:
    clock = FakeClock()
    storage = SQLiteStorage(path, clock=clock)
    await storage.open()
    job = await start(storage)
    for name in os.listdir(f"{path}-treadle/pods"):
        os.unlink(f"{path}-treadle/pods/{name}")
    assert await storage.abandoned(10, 30.0) == []
    clock.advance(31)
    assert [found.job.id for found in await storage.abandoned(10, 30.0)] == [job.id]
    await storage.close()


async def test_the_rows_of_pods_long_gone_are_removed_once_they_hold_nothing(path: Path) -> None:
    clock = FakeClock()
    storage = SQLiteStorage(path, clock=clock)
    await storage.open()
    holding = await start(storage)
    await a_live_pod(storage)
    clock.advance(30 + 3600)
    alive = await a_live_pod(storage)
    await storage.abandoned(10, 1e9)
    assert {pod.card.id for pod in await storage.pods()} == {holding.pod, alive}
    await storage.close()


# The write lock ------------------------------------------------------------------------------------------------------


def test_a_lock_file_that_somebody_removed_is_met_anew(tmp_path: Path) -> None:
    one, other = WriteLock(str(tmp_path / "jobs.db")), WriteLock(str(tmp_path / "jobs.db"))
    os.unlink(one.path)
    one.renew()
    other.renew()
    assert one.try_take()
    assert not other.try_take()
    one.close()
    other.close()


# Reading only --------------------------------------------------------------------------------------------------------


async def test_a_storage_for_reading_only_reads_and_refuses_to_write(path: Path, storage: SQLiteStorage) -> None:
    id = await put(storage)
    reading = SQLiteStorage(path, read_only=True)
    await reading.open()
    assert await ids(reading) == [id]
    with pytest.raises(ReadOnly):
        await reading.insert([a_job()])
    with pytest.raises(ReadOnly):
        await a_live_pod(reading)
    await reading.close()


async def test_reading_only_creates_and_migrates_nothing(path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="there is no file"):
        await SQLiteStorage(path, read_only=True).open()
    sqlite3.connect(path).close()
    path.touch()
    with pytest.raises(SchemaTooOld, match="open it for writing once"):
        await SQLiteStorage(path, read_only=True).open()


# Backup --------------------------------------------------------------------------------------------------------------


async def test_a_backup_holds_what_is_still_in_the_log(path: Path, storage: SQLiteStorage, tmp_path: Path) -> None:
    """A `cp` of the database file would miss every commit that no checkpoint has moved yet."""
    id = await put(storage)
    assert os.path.getsize(f"{path}-wal") > 0
    await storage.backup(str(tmp_path / "copy.db"))
    copy = SQLiteStorage(tmp_path / "copy.db")
    await copy.open()
    assert await ids(copy) == [id]
    await copy.close()


async def test_a_backup_overwrites_nothing(storage: SQLiteStorage, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep me")
    with pytest.raises(StorageUnavailable, match="overwrites nothing"):
        await storage.backup(str(target))
    assert target.read_text() == "keep me"
    with pytest.raises(StorageUnavailable, match="cannot be made"):
        await storage.backup(str(tmp_path / "nowhere" / "copy.db"))
