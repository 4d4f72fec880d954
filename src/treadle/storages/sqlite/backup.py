"""Backup: a consistent copy while everything runs. A `cp` would miss what is still in the write-ahead log."""

from __future__ import annotations

import contextlib
import os
import sqlite3

from ...core.errors import StorageUnavailable
from . import connect, files


def backup(path: str, target: str) -> None:
    """Copy the database to a new file, readable by its owner only."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, files.PRIVATE))
    except FileExistsError:
        raise StorageUnavailable(f"{target} exists already: a backup overwrites nothing") from None
    except OSError as error:
        raise StorageUnavailable(f"{target} cannot be made: {error.strerror}") from None
    try:
        with contextlib.closing(connect.to_read(path)) as db:
            # Into an empty file: VACUUM INTO takes it as its own, and keeps its mode.
            db.execute("pragma query_only = off")
            db.execute("vacuum into ?", (target,))
        _sync(target)
        _sync(os.path.dirname(os.path.abspath(target)))
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(target)
        if isinstance(error, sqlite3.Error):
            raise connect.explained(error, path) from error
        raise


def _sync(path: str) -> None:
    """VACUUM INTO leaves that to us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
