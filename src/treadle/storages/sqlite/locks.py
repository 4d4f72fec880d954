"""Locks between processes: who may write now, and which pods are alive. Both are flocks on small files of our own.

An flock belongs to an open file, not to a process: the kernel frees it when the last descriptor of that open file is
closed, however the process ends. That makes it proof of death. A child made by `fork` shares its parent's open files,
so it closes them at once (`os.register_at_fork`), or it would keep a dead parent's pod alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import random
import re
import stat
import time
import weakref
from collections.abc import Iterable
from typing import Final

from ... import private_files
from ...core.errors import StorageUnavailable
from . import files

_PID_FIELD: Final = 24
_MARK_FIELD: Final = 24
_FRESH: Final = 0.05
_COURTESY: Final = 0.001
_LONGEST_COURTESY: Final = 0.025  # a little more than the writer's longest pause between two tries
_COURTESY_STEP: Final = 0.0001
_UNTOUCHED: Final = 3600.0
_names = itertools.count()


class WriteLock:
    """Whose turn it is to write, among the processes of this file.

    SQLite's own lock would do for safety, but not for fairness: measured, a second process behind `busy_timeout` got 0
    of 100,000 turns. The file says who holds the lock, for messages, and when somebody last failed to get it: whoever
    releases the lock and finds that mark fresh lets the other go first.
    """

    def __init__(self, path: str) -> None:
        self._database = path
        self.path = os.path.join(files.folder(path), "lock")
        self._name = f"{os.getpid()}.{next(_names)}".encode().ljust(_PID_FIELD)
        self._taken_at = self._held = 0.0
        self._fd = self._open()
        _inherited.add(self)

    def _open(self) -> int:
        files.make_folder(self._database)
        return private_files.open_or_make(self.path)

    def renew(self) -> None:
        """If somebody removed the file, meet the others at the new one; not while the lock is held."""
        if not _is_still(self.path, self._fd):
            renewed = self._open()  # or what is there is refused, and the old one is kept
            os.close(self._fd)
            self._fd = renewed

    def try_take(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.pwrite(self._fd, f"{time.monotonic():<{_MARK_FIELD}.6f}".encode(), _PID_FIELD)
            return False
        self._taken_at = time.monotonic()
        # Mostly nobody else was here since: then nothing is written.
        if os.pread(self._fd, _PID_FIELD, 0) != self._name:
            os.pwrite(self._fd, self._name, 0)
        return True

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        self._held = time.monotonic() - self._taken_at

    def give_way(self) -> None:
        """After a release: let a process that waits have its turn first. The longer the lock was held, the more rarely
        that one looks: a bulk that is written piece by piece would else always be the first to lock again."""
        if time.monotonic() - self._last_refusal() > _FRESH:
            return
        until = time.monotonic() + min(max(_COURTESY, self._held), _LONGEST_COURTESY)
        while time.monotonic() < until:
            time.sleep(_COURTESY_STEP)
            if os.pread(self._fd, _PID_FIELD, 0) != self._name:
                return

    def holder(self) -> str:
        """The process id of who had the lock last."""
        return os.pread(self._fd, _PID_FIELD, 0).decode(errors="replace").strip().partition(".")[0] or "unknown"

    def _last_refusal(self) -> float:
        try:
            return float(os.pread(self._fd, _MARK_FIELD, _PID_FIELD) or 0)
        except ValueError:
            return 0.0

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class PodLocks:
    """One flock per registered pod of this process, in `<database>-treadle/pods/`."""

    def __init__(self, path: str) -> None:
        self._database = path
        self.directory = files.pods_folder(path)
        self._held: dict[str, int] = {}
        _inherited.add(self)

    def take(self, pod: str) -> None:
        """Hold the pod's lock until `drop` or the end of the process."""
        if pod in self._held:
            return
        path = self._path(pod)
        while True:
            try:
                files.make_folder(self._database)
                descriptor = private_files.open_or_make(path)
            except private_files.Untrusted as error:
                raise StorageUnavailable(str(error)) from error
            try:
                # A neighbour that tests whether we live holds it for a moment.
                _lock_patiently(descriptor)
                if _is_still(path, descriptor):
                    self._held[pod] = descriptor
                    return
            except BlockingIOError:
                os.close(descriptor)
                raise StorageUnavailable(f"pod {pod} is registered by another process") from None
            os.close(descriptor)

    def is_dead(self, pod: str) -> bool:
        """Proof that the process of a pod is gone. False proves nothing: its lock may never have been there."""
        if pod in self._held:
            return False
        return _is_free(self._path(pod))

    def bury(self, pods: Iterable[str]) -> None:
        """Remove the lock files of pods that were declared lost, or are gone."""
        for pod in pods:
            with contextlib.suppress(OSError):
                os.unlink(self._path(pod))

    def drop(self, pod: str) -> None:
        descriptor = self._held.pop(pod, None)
        if descriptor is not None:
            self.bury([pod])
            os.close(descriptor)

    def sweep(self, pods: Iterable[str]) -> None:
        """Remove old lock files that belong to none of these pods and to nobody alive."""
        known = {os.path.basename(self._path(pod)) for pod in (*pods, *self._held)}
        with contextlib.suppress(OSError):
            for entry in os.scandir(self.directory):
                if entry.name in known or _age(entry) < _UNTOUCHED:
                    continue
                if entry.name.endswith(".lock") and _is_free(entry.path):
                    os.unlink(entry.path)

    def close(self) -> None:
        """Let go of all: pods that did not sign off are now provably gone."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _path(self, pod: str) -> str:
        name = pod if re.fullmatch(r"[A-Za-z0-9_-]{1,100}", pod) else hashlib.sha256(pod.encode()).hexdigest()
        return os.path.join(self.directory, f"{name}.lock")


def clear_first_layout(path: str) -> None:
    """Remove what was kept beside the database before there was a folder: `-lock`, `-ballast` and `-pods/`.

    A process of that time takes other locks than we do. SQLite's own still keeps the two from writing at once, but
    neither sees whether the other's pods are alive. So one that has a live pod is refused to be worked beside; its
    lease would else be the only word about it."""
    pods = f"{path}-pods"
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, private_files.Untrusted):
        files.check_folder(pods)  # what is behind a link, or another user's, is not ours to remove
        for entry in list(os.scandir(pods)):
            if entry.name.endswith(".lock") and not _is_free(entry.path) and os.path.exists(entry.path):
                raise StorageUnavailable(
                    f"a worker of an earlier version of Treadle runs on {path}, and holds {entry.path}: stop it first"
                )
            if entry.name.endswith((".lock", ".bell")):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
        with contextlib.suppress(OSError):
            os.rmdir(pods)
    for name, most in ((f"{path}-lock", _PID_FIELD + _MARK_FIELD), (f"{path}-ballast", files.BALLAST)):
        with contextlib.suppress(OSError):
            found = os.lstat(name)
            if stat.S_ISREG(found.st_mode) and found.st_size <= most:
                os.unlink(name)


def _age(entry: os.DirEntry[str]) -> float:
    return time.time() - entry.stat(follow_symlinks=False).st_mtime


def _lock_patiently(descriptor: int, patience: float = 1.0) -> None:
    until = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.0005, 0.002))  # noqa: S311


def _is_free(path: str) -> bool:
    """Whether a lock file is there and nobody holds it."""
    try:
        descriptor = private_files.open_there(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _is_still(path: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except OSError:
        return False


_inherited: weakref.WeakSet[WriteLock | PodLocks] = weakref.WeakSet()


def _close_in_child() -> None:
    for lock in list(_inherited):
        lock.close()


os.register_at_fork(after_in_child=_close_in_child)
