"""A unix socket to listen on: its owner's alone from its first moment, and no file is left behind."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

from ..core.errors import ConfigError


def listen(path: Path) -> socket.socket:
    """The socket, bound now. One that a dead process has left is replaced; one that somebody answers at is not, and
    nothing but a socket ever is."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _check_directory(path)
        _clear(path)
        before = os.umask(0o177)
        try:
            made.bind(str(path))
        finally:
            os.umask(before)
        made.listen(128)
    except OSError as error:
        made.close()
        raise ConfigError(f"web: cannot listen on {path}: {error.strerror or error}") from None
    except BaseException:
        made.close()
        raise
    made.setblocking(False)
    return made


def remove(listening: socket.socket, path: Path) -> None:
    """At the end, unless somebody else has put another one in its place."""
    listening.close()
    try:
        if stat.S_ISSOCK(path.lstat().st_mode) and not _answers(path):
            path.unlink()
    except OSError:
        pass  # it is gone


def _check_directory(path: Path) -> None:
    """Who may write to the directory may put a socket of his own in the place of ours. A sticky one forbids that."""
    mode = path.absolute().parent.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise ConfigError(f"web: others may write to {path.absolute().parent}: use a directory of your own (chmod 700)")


def _clear(path: Path) -> None:
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found):
        raise ConfigError(f"web: {path} is there, and is not a socket")
    if _answers(path):
        raise ConfigError(f"web: somebody listens on {path} already")
    path.unlink()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True  # too busy to answer is busy
    return True
