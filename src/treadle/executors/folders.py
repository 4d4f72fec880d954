"""Folders: a private working folder for each run, below a root, and nothing left of it.

Each executor has one folder of its own below the root, and holds a lock on a file in it for as long as it lives. So
whoever comes next can tell what a killed pod has left behind from what a living neighbour uses, and removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from .. import private_files

PREFIX: Final = "treadle-run-"
FORGOTTEN: Final = 3600.0
_LOCK: Final = ".lock"


class Folders:
    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._own: Path | None = None
        self._lock = -1

    def open(self) -> None:
        """Remove what the dead have left, and make our own. OSError if the root cannot be used, or if anybody could
        replace what is in it."""
        private_files.check_parent(os.path.realpath(self._root))
        for folder in self._root.glob(f"{PREFIX}*"):
            _remove_if_dead(folder)
        while self._own is None:
            own = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._root))
            own.chmod(0o711)  # a run that is another user's must be able to enter its own folder
            # A neighbour that comes just now may take us for dead before the lock is ours: then we begin again.
            with contextlib.suppress(FileNotFoundError):
                lock = private_files.make(str(own / _LOCK), os.O_RDWR)
                fcntl.flock(lock, fcntl.LOCK_EX)
                if (own / _LOCK).exists():
                    self._own, self._lock = own, lock
                else:
                    os.close(lock)

    def make(self, owner: tuple[int, int] | None = None) -> str:
        """A folder for one run, that nobody else may look into."""
        if self._own is None or not self._own.exists():  # those who tidy /tmp tidy this, too
            self.close()
            self.open()
        folder = tempfile.mkdtemp(dir=self._own)
        if owner is not None:
            os.chown(folder, *owner)
        return folder

    def close(self) -> None:
        if self._own is not None:
            remove(self._own)
            os.close(self._lock)
            self._own, self._lock = None, -1


def remove(folder: str | Path) -> None:
    """Remove a folder with all that is in it, whatever a program has made of its modes. Never raises."""
    if sys.version_info >= (3, 12):
        shutil.rmtree(folder, onexc=_open_up)
    else:
        shutil.rmtree(folder, onerror=_open_up)
    shutil.rmtree(folder, ignore_errors=True)


def _open_up(function: Callable[..., Any], path: str, info: Any) -> None:
    """A folder that may not be entered or written is its owner's all the same. Links are not followed. Root needs no
    leave; and what is another user's could become a link between the look and the change."""
    if os.geteuid() == 0:
        return
    for each in (os.path.dirname(path), path):
        with contextlib.suppress(OSError):
            if stat.S_ISDIR(os.lstat(each).st_mode):
                os.chmod(each, 0o700)


def _remove_if_dead(folder: Path) -> None:
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return  # not ours, whatever it is called
        if time.time() - found.st_mtime > FORGOTTEN:
            with contextlib.suppress(OSError):
                folder.rmdir()  # its pod died before it had a lock: there is nothing in it
        lock = private_files.open_there(str(folder / _LOCK), os.O_RDWR)
    except OSError:
        return  # without its lock it is just being made, or is not one of ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for each in folder.iterdir():
            if each.name != _LOCK:
                remove(each)
        (folder / _LOCK).unlink()  # at the end: whoever is killed here leaves something that can be found again
        folder.rmdir()
    except OSError:
        pass  # somebody lives there
    finally:
        os.close(lock)
