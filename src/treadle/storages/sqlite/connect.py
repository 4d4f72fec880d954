"""Connections: how each one is set up, and what SQLite's errors mean to a caller."""

from __future__ import annotations

import sqlite3
import sys
from typing import Final, Literal
from urllib.parse import quote

from ...core.errors import StorageUnavailable
from . import files

Synchronous = Literal["full", "normal"]
OLDEST_SQLITE: Final = (3, 35, 0)
_CACHED_STATEMENTS: Final = 256
_READER_PATIENCE: Final = 2.0

_IN_THE_WAY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
BUSY_SNAPSHOT: Final = sqlite3.SQLITE_BUSY_SNAPSHOT
_FSYNC_FAILED: Final = frozenset({sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC})
_BROKEN: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def check_library() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StorageUnavailable(f"SQLite {sqlite3.sqlite_version} is too old: {needed} or newer is needed (RETURNING)")


def to_write(path: str, synchronous: Synchronous) -> sqlite3.Connection:
    """The writer's connection. Converts the file to WAL, which is remembered in it."""
    db = _connect(path, "rw")
    try:
        mode = db.execute("pragma journal_mode = wal").fetchone()[0]
        if mode != "wal":
            raise StorageUnavailable(f"{path} cannot be switched to write-ahead logging (it stays at {mode!r})")
        db.execute(f"pragma synchronous = {synchronous}")
        if sys.platform == "darwin":
            # A plain fsync there reaches the drive's cache only.
            db.execute("pragma fullfsync = on")
            db.execute("pragma checkpoint_fullfsync = on")
        db.execute("pragma cache_size = -65536")
    except BaseException:
        db.close()
        raise
    return db


def to_read(path: str) -> sqlite3.Connection:
    db = _connect(path, "ro")
    db.execute("pragma query_only = on")
    return db


def _connect(path: str, mode: Literal["rw", "ro"]) -> sqlite3.Connection:
    # Where nobody can write, SQLite cannot make what it keeps beside a file; nor does it need to.
    still = mode == "ro" and files.is_still(path)
    db = sqlite3.connect(
        f"file:{quote(path)}?mode={mode}{'&immutable=1' if still else ''}",
        uri=True,
        # Who waits to write, for how long and holding what is decided in `writer`. A reader has to wait only while
        # somebody else opens or closes the file as its first or last user.
        timeout=0 if mode == "rw" else _READER_PATIENCE,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=_CACHED_STATEMENTS,
    )
    try:
        # Two connections that write and checkpoint at one instant can corrupt the file (fixed in 3.51.3): only the
        # writer checkpoints, while it holds the file lock.
        db.execute("pragma wal_autocheckpoint = 0")
        db.execute("pragma temp_store = memory")
        db.text_factory = text
        db.execute("select count(*) from sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def text(stored: bytes) -> str:
    """What a text column holds. Bytes that are no UTF-8 are shown as such: by default the whole read would fail, with
    the text of the row in its message."""
    return stored.decode("utf-8", "replace")


def code_of(error: BaseException) -> int:
    """The extended result code of an error of SQLite; 0 for any other."""
    return getattr(error, "sqlite_errorcode", 0) if isinstance(error, sqlite3.Error) else 0


def is_busy(error: BaseException) -> bool:
    return code_of(error) & 0xFF in _IN_THE_WAY


def is_full(error: BaseException) -> bool:
    return code_of(error) & 0xFF == sqlite3.SQLITE_FULL


def is_fatal(error: BaseException) -> bool:
    """After a failed fsync the kernel may have dropped the pages and call the next fsync good: never go on."""
    return code_of(error) in _FSYNC_FAILED or code_of(error) & 0xFF in _BROKEN


def explained(error: BaseException, path: str) -> BaseException:
    """The error to show a caller: ours, with the path and what it means."""
    if not isinstance(error, sqlite3.Error):
        return error
    if code_of(error) & 0xFF == sqlite3.SQLITE_NOTADB:
        text = f"{path} is not a SQLite database; it was left untouched"
    elif code_of(error) & 0xFF == sqlite3.SQLITE_CORRUPT:
        text = f"{path} is damaged ({error}): restore a backup, or see what `pragma integrity_check` says"
    elif is_full(error):
        text = f"there is no room for {path}: {error}"
    elif code_of(error) & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN) and not files.may_write(path):
        text = (
            f"{path} may not be written by this user, and can be read only while somebody else has it open: start a "
            "worker first, or allow writing to its directory"
        )
    elif code_of(error) in _FSYNC_FAILED:
        text = f"the disk failed to keep {path} ({error}): what was written last is uncertain, restart on a sound disk"
    else:
        text = f"{path}: {error}"
    explained = StorageUnavailable(text)
    explained.passing = is_full(error)
    explained.__cause__ = error
    return explained
