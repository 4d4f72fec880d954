"""The files beside and around the database: may this path be used, is it still the same file, is there room on disk.

`app.db` is accompanied by SQLite's `app.db-wal` and `app.db-shm`, and by one folder of ours, `app.db-treadle/`: `lock`
(who may write, `locks`), `pods/` (who is alive, and the bells of those who listen), `ballast` (room for the last
finishes on a full disk) and a `.gitignore` that ignores them all. All are for their owner's eyes only. Whoever opens
the database for writing makes the folder; whoever only reads never does.

The path of a database may be a symbolic link, or lead through one: whoever configured it has chosen so. It is resolved
once, when the storage is made, and from then on no link is followed: neither at the file's own name nor at any name
beside it. Who else may write there is asked of the real folder (`core.file_trust`).

The database file itself is never opened here once it exists: POSIX drops *all* locks that a process has on a file when
it closes any descriptor of it, SQLite's locks among them.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path
from typing import Final

from ... import private_files
from ...core.errors import StorageUnavailable
from ...core.file_trust import Rules

BALLAST: Final = 8 << 20
ROOM_FOR_BALLAST: Final = 100 << 20
_SHORTEST_DATABASE: Final = 512
_MAKING: Final = 1.0
PRIVATE: Final = private_files.PRIVATE
PRIVATE_DIRECTORY: Final = 0o700

# WAL needs shared memory and honest locks; these have neither, or only on good days.
NETWORK: Final = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs",
        "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs",
    }
)  # fmt: skip


def real_path(path: str | os.PathLike[str]) -> str:
    """Absolute and without symbolic links: whoever names the file otherwise must meet the same locks."""
    text = os.fspath(path)
    if not text or text == ":memory:" or "\0" in text:
        raise ValueError(f"{text!r} is no path of a file; for jobs in memory use memory://")
    return os.path.realpath(text)


def check(path: str, *, read_only: bool) -> None:
    """Refuse, in one clear line, a place where the promises could not be kept."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise StorageUnavailable(f"there is no directory {directory}: create it, or choose another path")
    exists = os.path.lexists(path)
    try:
        shared = private_files.check_parent(directory)
        shared = shared and not read_only  # whoever only looks may look at another user's
        if shared:
            _wait_until_made(path)
        # Its mode, and another name in a snapshot, are its owner's affair; not where anybody may have made it.
        private_files.check_if_there(path, Rules(shared=shared, private=False, one_name=shared))
        for name in ("-wal", "-shm", "-journal"):  # SQLite follows no link there either, but says nothing clear of it
            private_files.check_if_there(path + name, Rules(shared=shared, private=False))
    except private_files.Untrusted as error:
        raise StorageUnavailable(str(error)) from None
    if exists and 0 < os.lstat(path).st_size < _SHORTEST_DATABASE:
        # SQLite would take a file of one byte for an empty database, and write over it.
        raise StorageUnavailable(f"{path} is not a SQLite database; it was left untouched")
    kind = file_system(directory)
    if kind in NETWORK:
        raise StorageUnavailable(
            f"{path} is on a network file system ({kind}), where SQLite's locks cannot be trusted: "
            "use a local disk, or PostgreSQL"
        )
    if read_only:
        if not exists:
            raise StorageUnavailable(f"there is no file {path}")
        return
    if why := _why_not(path):
        raise StorageUnavailable(why)


def may_write(path: str) -> bool:
    """Whether a file that is there may be written by this user, and what SQLite keeps beside it."""
    return not os.path.exists(path) or not _why_not(path)


def is_still(path: str) -> bool:
    """Whether a database cannot change: its file system is read-only, and no log is left to be read with it."""
    directory = os.path.dirname(path)
    return bool(os.statvfs(directory).f_flag & os.ST_RDONLY) and not os.path.exists(f"{path}-wal")


def _why_not(path: str) -> str:
    directory = os.path.dirname(path)
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return f"{directory} is on a read-only file system"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"{directory} may not be written to: SQLite keeps files beside the database there"
    if os.path.lexists(path) and not os.access(path, os.R_OK | os.W_OK):
        return f"{path} may not be read and written by this user"
    return ""


def file_system(path: str) -> str:
    """The type of the file system that a path is on, as the kernel names it; empty where it does not say."""
    try:
        table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    kind, longest = "", -1
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        mount = before.split()[4].replace("\\040", " ")
        # Of several mounts on one point the last one is seen: hence >=.
        if len(mount) >= longest and os.path.commonpath((path, mount)) == mount:
            kind, longest = after.split()[0], len(mount)
    return kind


def create(path: str) -> None:
    """Make the empty file, private from its first moment; SQLite gives -wal and -shm the same mode."""
    if os.path.lexists(path):
        return
    # Under another name first: closing our descriptor must not drop the locks of a thread that found the file.
    unready = f"{path}-{secrets.token_hex(8)}.new"
    os.close(private_files.make(unready))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(unready, path)
    finally:
        os.unlink(unready)


def _wait_until_made(path: str) -> None:
    """A neighbour that makes the file just now has it under two names for a moment (`create`)."""
    until = time.monotonic() + _MAKING
    with contextlib.suppress(FileNotFoundError):
        while os.lstat(path).st_nlink > 1 and time.monotonic() < until:
            time.sleep(0.001)


def folder(path: str) -> str:
    """Where the files of ours are that belong to a database."""
    return f"{path}-treadle"


def pods_folder(path: str) -> str:
    return os.path.join(folder(path), "pods")


def make_folder(path: str) -> None:
    """The folder with all that must be in it before it is used; also again, if somebody removed it. Untrusted if
    somebody else may have made it, or may write to it."""
    for directory in (folder(path), pods_folder(path)):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, PRIVATE_DIRECTORY)
        check_folder(directory)
    with contextlib.suppress(FileExistsError):
        descriptor = private_files.make(os.path.join(folder(path), ".gitignore"))
        try:
            os.write(descriptor, b"*\n")
        finally:
            os.close(descriptor)


def check_folder(directory: str) -> None:
    """Untrusted unless a folder of ours is one, and not everybody's."""
    shared = private_files.check_parent(os.path.dirname(directory))
    private_files.check(directory, Rules(kind="folder", shared=shared))


class Identity:
    """Remembers which file was opened under a path: writes to an unlinked file succeed, and are lost."""

    def __init__(self, path: str) -> None:
        self._path = path
        found = os.lstat(path)
        self._inode = (found.st_dev, found.st_ino)

    def check(self) -> None:
        try:
            found = os.lstat(self._path)
        except OSError as error:
            raise StorageUnavailable(f"{self._path} is gone ({error.strerror}): nothing is written any more") from None
        if (found.st_dev, found.st_ino) != self._inode:
            raise StorageUnavailable(f"{self._path} was replaced by another file: nothing is written any more")


class Ballast:
    """Eight megabytes to throw overboard: at disk full even the finish of a job could not be written."""

    def __init__(self, path: str) -> None:
        self._path = os.path.join(folder(path), "ballast")
        self._disk = os.path.dirname(path)
        self._wanted = False

    def free(self) -> int:
        found = os.statvfs(self._disk)
        return found.f_bavail * found.f_frsize

    def take(self) -> None:
        """From now on it should be there."""
        self._wanted = True
        self.keep()

    def keep(self) -> None:
        """Put it (back) in place, if it is missing and there is plenty of room."""
        if not self._wanted:
            return
        if os.path.lexists(self._path) or self.free() < ROOM_FOR_BALLAST or not hasattr(os, "posix_fallocate"):
            return
        with contextlib.suppress(OSError):
            descriptor = private_files.make(self._path)
            try:
                os.posix_fallocate(descriptor, 0, BALLAST)
            finally:
                os.close(descriptor)

    def drop(self) -> bool:
        """Give the room back; False if it was not there."""
        try:
            os.unlink(self._path)
        except OSError:
            return False
        return True
