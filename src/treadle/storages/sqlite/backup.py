"""Backup: a consistent copy while everything runs. A `cp` would miss what is still in the write-ahead log."""

from __future__ import annotations

import contextlib
import os
import sqlite3

from ... import private_files
from ...core.errors import StorageUnavailable
from . import connect, files


def backup(path: str, target: str) -> None:
    """Copy the database to a new file, readable by its owner only."""
    folder = os.path.realpath(os.path.dirname(os.path.abspath(target)))
    target = os.path.join(folder, os.path.basename(target))
    try:
        private_files.check_parent(folder)
        os.close(private_files.make(target))
        made = files.Identity(target)
    except FileExistsError:
        raise StorageUnavailable(f"{target} exists already: a backup overwrites nothing") from None
    except private_files.Untrusted as error:
        raise StorageUnavailable(str(error)) from None
    except OSError as error:
        raise StorageUnavailable(f"{target} cannot be made: {error.strerror}") from None
    try:
        with contextlib.closing(connect.to_read(path)) as db:
            # Into an empty file: VACUUM INTO takes it as its own, and keeps its mode.
            db.execute("pragma query_only = off")
            db.execute("vacuum into ?", (target,))
        made.check()
        _sync(target)
        _sync(folder)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(target)
        if isinstance(error, sqlite3.Error):
            raise connect.explained(error, path) from error
        raise


def _sync(path: str) -> None:
    """VACUUM INTO leaves that to us."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
