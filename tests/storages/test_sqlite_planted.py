"""What a neighbour plants beside a database: links to a victim's files under the names that Treadle opens.

Whatever is planted, the victim's file keeps its content, and who opens the database hears which name is wrong, unless
the name is one that Treadle never writes to once it is taken.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle import ConfigError
from treadle.cli import unix_sockets
from treadle.core.errors import StorageUnavailable
from treadle.executors.folders import PREFIX, Folders
from treadle.private_files import Untrusted, open_there
from treadle.storages.sqlite import SQLiteStorage
from treadle.storages.sqlite.bells import Bell, Ringer
from treadle.storages.sqlite.locks import PodLocks, WriteLock
from treadle.testing.conformance.steps import a_live_pod, put
from treadle.web import tokens

pytestmark = pytest.mark.anyio
CONTENT = b"precious " * 100
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")
STRANGER = 54321


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here" / "jobs.db"


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """A file of somebody's, and a folder with files that have our names. Nothing of it may change."""
    folder = tmp_path / "victim"
    folder.mkdir()
    for name in ("file", "a.lock", "b.bell", "lock", "ballast"):
        (folder / name).write_bytes(CONTENT)
    before = {each.name: (each.read_bytes(), each.stat().st_mode, each.stat().st_ino) for each in folder.iterdir()}
    yield folder / "file"
    after = {each.name: (each.read_bytes(), each.stat().st_mode, each.stat().st_ino) for each in folder.iterdir()}
    assert after == before


async def is_refused(path: Path, text: str, *, read_only: bool = False) -> None:
    storage = SQLiteStorage(path, call_deadline=1.0, read_only=read_only)
    try:
        with pytest.raises(StorageUnavailable, match=text):
            await storage.open()
    finally:
        await storage.close()


async def works(path: Path) -> None:
    storage = SQLiteStorage(path)
    await storage.open()
    try:
        storage.listen(lambda _: None)
        await put(storage)
        await a_live_pod(storage)
    finally:
        await storage.close()


# Links ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["-treadle/lock", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["symbolic", "dangling", "hard"])
async def test_a_link_under_a_name_that_is_written_to_is_refused(
    path: Path, victim: Path, name: str, kind: str
) -> None:
    planted = Path(f"{path}{name}")
    planted.parent.mkdir(exist_ok=True)
    match kind:
        case "symbolic":
            planted.symlink_to(victim)
        case "dangling":
            planted.symlink_to(victim.parent / "new")
        case _:
            planted.hardlink_to(victim)
    await is_refused(path, rf"{name} is .*({'hard link' if kind == 'hard' else 'symbolic link'})")
    planted.unlink()
    await works(path)


@pytest.mark.parametrize("name", ["-treadle/.gitignore", "-treadle/ballast"])
@pytest.mark.parametrize("target", ["file", "new"])
async def test_a_link_under_a_name_that_is_only_ever_made_is_left_alone(
    path: Path, victim: Path, name: str, target: str
) -> None:
    planted = Path(f"{path}{name}")
    planted.parent.mkdir(exist_ok=True)
    planted.symlink_to(victim.parent / target)
    await works(path)
    assert not (victim.parent / "new").exists()


@pytest.mark.parametrize("name", ["-treadle", "-treadle/pods"])
async def test_a_folder_that_is_a_link_is_refused(path: Path, victim: Path, name: str) -> None:
    planted = Path(f"{path}{name}")
    planted.parent.mkdir(exist_ok=True)
    planted.symlink_to(victim.parent)
    await is_refused(path, rf"{name} is a symbolic link, which is not followed there: remove it")


@pytest.mark.parametrize("name", ["-pods", "-lock", "-ballast"])
async def test_files_of_the_first_layout_are_not_removed_through_a_link(path: Path, victim: Path, name: str) -> None:
    """All `*.lock` and `*.bell` in the folder behind `-pods` were deleted."""
    Path(f"{path}{name}").symlink_to(victim.parent if name == "-pods" else victim)
    await works(path)


async def test_the_database_itself_is_not_followed_once_its_path_was_resolved(path: Path, victim: Path) -> None:
    storage = SQLiteStorage(path)
    path.symlink_to(victim)
    with pytest.raises(StorageUnavailable, match=r"jobs\.db is a symbolic link"):
        await storage.open()
    reading = SQLiteStorage(path.parent / "other.db", read_only=True)
    (path.parent / "other.db").symlink_to(victim)
    with pytest.raises(StorageUnavailable, match=r"other\.db is a symbolic link"):
        await reading.open()


async def test_a_link_that_a_user_made_on_purpose_leads_to_the_real_file(path: Path, tmp_path: Path) -> None:
    """/srv/app/current/app.db → /srv/app/shared/app.db, whether it is there already or not."""
    current = tmp_path / "current"
    current.symlink_to(path.parent)
    (tmp_path / "link.db").symlink_to(current / "jobs.db")
    await works(tmp_path / "link.db")
    assert sorted(os.listdir(path.parent)) == ["jobs.db", "jobs.db-treadle"]
    await works(tmp_path / "link.db")
    os.chmod(path.parent, 0o777)
    await is_refused(tmp_path / "link.db", rf"anybody may replace files in {path.parent}")


async def test_a_database_that_becomes_a_link_while_it_is_open_is_written_no_more(path: Path) -> None:
    storage = SQLiteStorage(path)
    await storage.open()
    await put(storage)
    path.rename(path.with_name("moved.db"))
    path.symlink_to(path.with_name("moved.db"))
    assert storage._opened is not None and storage._opened.writer is not None
    with pytest.raises(StorageUnavailable, match="was replaced by another file"):
        storage._opened.writer._identity.check()
    await storage.close()


def test_the_lock_of_a_pod_is_no_link(path: Path, victim: Path) -> None:
    locks = PodLocks(str(path))
    locks.take("one")
    (Path(locks.directory) / "pod.lock").symlink_to(victim)
    (Path(locks.directory) / "hard.lock").hardlink_to(victim.parent / "a.lock")
    (Path(locks.directory) / "dangling.lock").symlink_to(victim.parent / "new")
    for pod in ("pod", "hard", "dangling"):
        with pytest.raises(StorageUnavailable, match=rf"{pod}\.lock is .* link"):
            locks.take(pod)
        assert not locks.is_dead(pod)  # and so its lease decides
    os.utime(Path(locks.directory) / "pod.lock", (0, 0), follow_symlinks=False)
    locks.sweep(["one"])
    locks.close()


def test_a_lock_that_somebody_replaces_by_a_link_is_not_renewed_into_it(path: Path, victim: Path) -> None:
    lock = WriteLock(str(path))
    os.unlink(lock.path)
    os.symlink(victim, lock.path)
    with pytest.raises(Untrusted, match="symbolic link"):
        lock.renew()
    assert lock.try_take()  # it still has the one that it had
    lock.release()
    lock.close()


def test_a_lock_that_is_a_pipe_or_a_folder_is_refused_without_waiting(path: Path) -> None:
    folder = Path(f"{path}-treadle")
    folder.mkdir()
    os.mkfifo(folder / "lock")
    with pytest.raises(Untrusted, match="is not a regular file"):
        WriteLock(str(path))
    (folder / "lock").unlink()
    (folder / "lock").mkdir()
    with pytest.raises(OSError, match=r"regular file|directory"):
        WriteLock(str(path))


def test_bells_ring_in_pipes_and_nowhere_else(path: Path, victim: Path) -> None:
    locks = PodLocks(str(path))
    locks.take("pod")
    directory = Path(locks.directory)
    bell = Bell(str(directory))
    elsewhere = victim.parent.parent / "pipe"
    os.mkfifo(elsewhere)
    overheard = os.open(elsewhere, os.O_RDWR | os.O_NONBLOCK)
    (directory / "link.bell").symlink_to(victim)
    (directory / "pipe.bell").symlink_to(elsewhere)
    (directory / "hard.bell").hardlink_to(elsewhere)
    (directory / "file.bell").hardlink_to(victim)
    os.mkfifo(directory / "everybodys.bell")
    os.chmod(directory / "everybodys.bell", 0o666)
    everybodys = os.open(directory / "everybodys.bell", os.O_RDWR | os.O_NONBLOCK)
    ringer = Ringer(str(directory))
    ringer.ring(["mail"], at_once=True)
    assert bell.read().queues == {"mail"}
    for heard in (overheard, everybodys):
        with pytest.raises(BlockingIOError):
            os.read(heard, 100)
        os.close(heard)
    ringer.close()
    bell.close()
    locks.close()


async def test_who_only_reads_makes_no_bell_behind_a_link_and_looks_instead(path: Path, victim: Path) -> None:
    await works(path)
    for name in os.listdir(f"{path}-treadle/pods"):
        os.unlink(f"{path}-treadle/pods/{name}")
    os.rmdir(f"{path}-treadle/pods")
    os.symlink(victim.parent, f"{path}-treadle/pods")
    reader = SQLiteStorage(path, read_only=True)
    await reader.open()
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    reader.listen(lambda _: loop.call_soon_threadsafe(heard.set))
    assert reader._signals._listening is not None
    assert reader._signals._listening.bell is None
    await reader.close()


async def test_a_file_that_is_opened_is_judged_after_it_was(path: Path, victim: Path) -> None:
    """Between a look at the name and the opening somebody may exchange what is there: the descriptor tells."""
    (path.parent / "hard").hardlink_to(victim)
    with pytest.raises(Untrusted, match="hard link"):
        open_there(str(path.parent / "hard"), os.O_RDWR)


# Whose folder it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_folder_where_anybody_may_replace_files_is_refused(path: Path, read_only: bool) -> None:
    await works(path)
    os.chmod(path.parent, 0o777)
    await is_refused(path, rf"anybody may replace files in {path.parent}: chmod o-w {path.parent}", read_only=read_only)
    os.chmod(path.parent, 0o1777)
    await works(path)
    os.chmod(path.parent, 0o775)
    await works(path)


async def test_our_own_folder_must_not_be_everybodys(path: Path) -> None:
    await works(path)
    os.chmod(f"{path}-treadle", 0o777)
    await is_refused(path, r"anybody may write to .*-treadle: chmod o-w")
    os.chmod(f"{path}-treadle", 0o770)
    await works(path)  # a group may share it
    os.chmod(f"{path}-treadle/lock", 0o666)
    await is_refused(path, r"anybody may write to .*-treadle/lock: chmod o-w")


@root_only
@pytest.mark.parametrize("name", ["", "-wal", "-shm", "-treadle"])
async def test_in_a_sticky_folder_what_is_there_must_be_ours(path: Path, name: str) -> None:
    """/tmp: others may make files there before we do."""
    await works(path)
    planted = Path(f"{path}{name}")
    for mode in (0o755, 0o1777):
        os.chmod(path.parent, mode)
        if not planted.exists():
            planted.touch()
        os.chown(planted, STRANGER, STRANGER)
        if mode == 0o755:
            await works(path)  # a volume of another user's, in a container
    await is_refused(path, rf"jobs\.db{name} belongs to another user \(uid {STRANGER}\)")
    if name == "":
        reader = SQLiteStorage(path, read_only=True)  # looking is no harm
        await reader.open()
        await reader.close()


async def test_in_a_sticky_folder_the_database_has_one_name(path: Path, tmp_path: Path) -> None:
    await works(path)
    (tmp_path / "snapshot.db").hardlink_to(path)
    await works(path)  # a snapshot by hard links is its owner's affair
    os.chmod(path.parent, 0o1777)
    await is_refused(path, r"jobs\.db is also another file's name")


async def test_several_who_make_one_database_in_a_sticky_folder_do_not_refuse_one_another(path: Path) -> None:
    os.chmod(path.parent, 0o1777)
    storages = [SQLiteStorage(path) for _ in range(6)]
    await asyncio.gather(*(storage.open() for storage in storages))
    for storage in storages:
        await a_live_pod(storage)
        await storage.close()


OPENS = """
import asyncio, os, sys, tempfile
from treadle.storages.sqlite import SQLiteStorage

async def opens(path):
    storage = SQLiteStorage(path)
    await storage.open()
    await storage.close()

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(opens(folder + "/other.db"))  # so that all is imported: another user may not be able to read it
user = int(sys.argv[2])
os.setgroups([])
os.setgid(user)
os.setuid(user)
asyncio.run(opens(sys.argv[1]))
"""


@root_only
async def test_a_user_of_the_group_may_still_share_a_database() -> None:
    """Another user, to whom the group of the files gives its rights, opens it for writing."""
    with tempfile.TemporaryDirectory() as folder:  # not below pytest's own, which is root's alone
        path = Path(folder) / "jobs.db"
        await works(path)
        ours = Path(f"{path}-treadle")
        for each in (path.parent, path, ours, ours / "lock", ours / "pods"):
            os.chown(each, 0, STRANGER)
            os.chmod(each, 0o770 if each.is_dir() else 0o660)
        ran = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", OPENS, str(path), str(STRANGER)], capture_output=True, timeout=60
        )
        assert ran.returncode == 0, ran.stderr.decode()
        await works(path)


# Backups, tokens, sockets, folders of runs ---------------------------------------------------------------------------


async def test_a_backup_goes_through_no_link_and_to_no_folder_of_everybodys(path: Path, victim: Path) -> None:
    storage = SQLiteStorage(path)
    await storage.open()
    try:
        for target in (victim, victim.parent / "new"):
            link = path.with_name("copy.db")
            link.symlink_to(target)
            with pytest.raises(StorageUnavailable, match="overwrites nothing"):
                await storage.backup(str(link))
            link.unlink()
        open_to_all = path.parent / "open"
        open_to_all.mkdir()
        os.chmod(open_to_all, 0o777)
        with pytest.raises(StorageUnavailable, match="anybody may replace files in"):
            await storage.backup(str(open_to_all / "copy.db"))
        assert os.listdir(open_to_all) == []
        os.chmod(open_to_all, 0o1777)
        await storage.backup(str(open_to_all / "copy.db"))
    finally:
        await storage.close()


def test_a_token_file_lies_where_nobody_else_can_replace_it(path: Path) -> None:
    file, (token, _) = path.with_name("tokens"), tokens.make("me", "admin")
    tokens.write(file, [token])
    link = path.parent.parent / "link"
    link.symlink_to(file)  # as secrets of Kubernetes are
    assert tokens.read(link) == (token,)
    tokens.write(link, [token])
    assert link.is_symlink()
    os.chmod(path.parent, 0o777)
    for act in (lambda: tokens.read(file), lambda: tokens.read(link), lambda: tokens.write(file, [token])):
        with pytest.raises(ConfigError, match=r"cannot be trusted: anybody may replace files in"):
            act()
    os.chmod(path.parent, 0o1777)
    assert tokens.read(file) == (token,)


@root_only
def test_a_token_file_in_tmp_is_ours(path: Path) -> None:
    file, (token, _) = path.with_name("tokens"), tokens.make("me", "admin")
    tokens.write(file, [token])
    os.chown(file, STRANGER, STRANGER)
    assert tokens.read(file) == (token,)
    os.chmod(path.parent, 0o1777)
    for act in (lambda: tokens.read(file), lambda: tokens.write(file, [token])):
        with pytest.raises(ConfigError, match=r"belongs to another user"):
            act()


def test_a_unix_socket_is_bound_through_no_link(path: Path, victim: Path) -> None:
    os.chmod(path.parent, 0o700)
    for target in (victim, victim.parent / "new"):
        link = path.with_name("web.sock")
        link.symlink_to(target)
        with pytest.raises(ConfigError, match="not a socket"):
            unix_sockets.listen(link)
        link.unlink()
    os.chmod(path.parent, 0o777)
    with pytest.raises(ConfigError, match="others may write to"):
        unix_sockets.listen(path.with_name("web.sock"))
    os.chmod(path.parent, 0o1777)
    made = unix_sockets.listen(path.with_name("web.sock"))
    assert made.family == socket.AF_UNIX
    unix_sockets.remove(made, path.with_name("web.sock"))


def test_the_folders_of_runs_lie_where_nobody_else_can_replace_them(path: Path, victim: Path) -> None:
    root = path.parent
    (root / f"{PREFIX}planted").mkdir()
    (root / f"{PREFIX}planted" / ".lock").symlink_to(victim)
    (root / f"{PREFIX}planted" / "kept").touch()
    os.chmod(root, 0o1777)
    folders = Folders(str(root))
    folders.open()
    assert (root / f"{PREFIX}planted" / "kept").exists()
    folders.close()
    os.chmod(root, 0o777)
    with pytest.raises(Untrusted, match="anybody may replace files in"):
        Folders(str(root)).open()
