"""Bells: how one process tells another that there is work, within a fraction of a millisecond.

Whoever listens makes a FIFO in `<database>-treadle/pods/`; a process that only reads has none where no writer made that
folder. Whoever has committed something of interest writes the names of the queues into every FIFO but its own. Nothing
blocks: a full pipe has enough in it to wake its reader, and a pipe without a reader belonged to a process that is gone,
so it is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterable
from typing import Final

from ... import private_files
from ...core.file_trust import Rules
from ...ports import Wake
from . import files

ANY: Final = "*"
CANCEL: Final = "!"  # no queue's name starts so
SETTINGS: Final = "?"
_LONGEST: Final = 500  # an atomic write on every POSIX system
_GAP: Final = 0.002
_UNTRUSTED: Final = 100_000_000  # nanoseconds for which a directory may change without its mtime telling
_MANY: Final = 1000
_A_BELL: Final = Rules(kind="pipe")


class Bell:
    """The FIFO of one listening process."""

    def __init__(self, directory: str) -> None:
        self.name = f"{secrets.token_hex(8)}.bell"
        self._path = os.path.join(directory, self.name)
        # Under its final name it must have a reader from the first moment, or a neighbour takes it for a dead one.
        unready = f"{self._path}.new"
        files.check_folder(os.path.dirname(directory))
        files.check_folder(directory)
        os.mkfifo(unready, files.PRIVATE)
        try:
            self.descriptor = private_files.open_there(unready, os.O_RDWR, _A_BELL)
            os.rename(unready, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(unready)
            raise

    def read(self) -> Wake:
        """What was rung, all in one."""
        try:
            heard = os.read(self.descriptor, 1 << 16).decode(errors="replace").split("\n")
        except BlockingIOError:
            return Wake()
        names = {name for name in heard if name}
        queues = frozenset[str]() if ANY in names else frozenset(names - {CANCEL, SETTINGS})
        return Wake(queues=queues, cancels=CANCEL in names, settings=SETTINGS in names)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self.descriptor)


class Ringer:
    """Rings the bells of all other processes, each queue at most once in two milliseconds."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._own: set[str] = set()
        self._open: dict[str, int] = {}
        self._listed_at = (-1, 0)  # the directory's mtime when it was read, and the time then
        self._rung: dict[str, float] = {}
        self._put_off: set[str] = set()
        self._mutex = threading.Lock()

    def leave_out(self, name: str) -> None:
        """This process's own bell need not be rung."""
        self._own.add(name)

    def ring(self, names: Iterable[str], *, at_once: bool = False) -> float | None:
        """Ring for these names; the answer is in how many seconds to come back for those that were rung just now."""
        with self._mutex:
            self._put_off.update(names)
            if not self._put_off:
                return None
            self._refresh()
            if not self._open:
                self._put_off.clear()
                return None
            now = time.monotonic()
            due = {name for name in self._put_off if at_once or now - self._rung.get(name, 0.0) >= _GAP}
            self._put_off -= due
            if due:
                if len(self._rung) > _MANY:
                    self._rung.clear()
                self._rung.update(dict.fromkeys(due, now))
                self._send(_message(due))
            return _GAP if self._put_off else None

    def _refresh(self) -> None:
        try:
            found = os.lstat(self._directory)
        except OSError:
            return
        changed_at = found.st_mtime_ns
        if not stat.S_ISDIR(found.st_mode):
            return
        if changed_at == self._listed_at[0] and self._listed_at[1] - changed_at > _UNTRUSTED:
            return
        self._listed_at = (changed_at, time.time_ns())
        present = {name for name in os.listdir(self._directory) if name.endswith(".bell")} - self._own
        for gone in self._open.keys() - present:
            os.close(self._open.pop(gone))
        for name in present - self._open.keys():
            self._add(name)

    def _add(self, name: str) -> None:
        path = os.path.join(self._directory, name)
        try:
            private_files.check(path, _A_BELL)  # before it is opened, too: some devices notice that they are
            self._open[name] = private_files.open_there(path, os.O_WRONLY, _A_BELL)
        except OSError as error:
            if error.errno == errno.ENXIO:
                self._remove(name)

    def _send(self, message: bytes) -> None:
        for name, descriptor in list(self._open.items()):
            try:
                os.write(descriptor, message)
            except BlockingIOError:
                pass
            except OSError:
                os.close(self._open.pop(name))
                self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, name))

    def close(self) -> None:
        with self._mutex:
            while self._open:
                os.close(self._open.popitem()[1])
            self._put_off.clear()
            self._listed_at = (-1, 0)


def _message(names: Iterable[str]) -> bytes:
    text = "\n".join(sorted(names)) + "\n"
    encoded = text.encode(errors="replace")
    return encoded if len(encoded) <= _LONGEST else f"{ANY}\n{CANCEL}\n{SETTINGS}\n".encode()
