"""Facts: what `doctor` should know about a SQLite file and the library that reads it."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

from ...core.file_trust import is_shared
from ...ports import Fact
from . import bounds, files, migrations
from .checkpoints import BIG
from .rows import Database


def facts(db: Database, path: str, synchronous: str) -> list[Fact]:
    return [
        library(sqlite3.sqlite_version_info),
        *_journal(db, synchronous),
        _file_system(path),
        _modes(path),
        _above(path),
        _log(path),
        *_room(db, path),
        *_schema(db),
        *_rows(db),
    ]


def library(version: tuple[int, ...]) -> Fact:
    text = ".".join(map(str, version[:3]))
    # The WAL-reset bug: mended in 3.51.3, and carried back to two older lines.
    mended = version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51, 0) or (3, 44, 6) <= version < (3, 45, 0)
    if mended:
        return Fact("sqlite-version", "ok", f"SQLite {text}")
    return Fact(
        "sqlite-version",
        "warn",
        f"SQLite {text} has the WAL-reset bug: processes that write and checkpoint at one instant can damage the file. "
        "Treadle serialises its own checkpoints; other programs on the same file do not",
        "use SQLite 3.51.3 or newer (or 3.50.7, 3.44.6), or one process per file",
    )


def _journal(db: Database, synchronous: str) -> Iterator[Fact]:
    mode = db.execute("pragma journal_mode").fetchone()[0]
    if mode == "wal":
        yield Fact("journal-mode", "ok", "write-ahead logging")
    else:
        yield Fact("journal-mode", "error", f"journal mode is {mode}, not wal", "open the app once to switch it")
    if synchronous == "full":
        yield Fact("synchronous", "ok", "every commit reaches the disk before it is confirmed")
    else:
        yield Fact(
            "synchronous",
            "warn",
            f"synchronous is {synchronous}: power loss may undo the last commits",
            'use synchronous="full", the default',
        )


def _file_system(path: str) -> Fact:
    kind = files.file_system(os.path.dirname(path))
    if kind in files.NETWORK:
        return Fact("file-system", "error", f"{path} is on {kind}, a network file system", "use a local disk")
    return Fact("file-system", "ok", f"on {kind or 'a file system that does not say its type'}")


def _modes(path: str) -> Fact:
    wide = [
        name
        for suffix in ("", "-wal", "-shm", "-treadle/lock", "-treadle/ballast")
        if os.path.exists(name := path + suffix) and stat.S_IMODE(os.stat(name).st_mode) & 0o077
    ]
    if wide:
        return Fact("file-mode", "warn", f"others may read {', '.join(wide)}", f"chmod 600 {' '.join(wide)}")
    return Fact("file-mode", "ok", "only its owner may read the file")


def _above(path: str) -> Fact:
    """Who may write to a directory further up can put another one in the place of ours. (The nearest is refused.)"""
    for folder in Path(path).parents:
        mode = folder.stat().st_mode
        if is_shared(mode) and not mode & stat.S_ISVTX:
            return Fact("directory", "warn", f"anybody may replace what is in {folder}", f"chmod o-w {folder}")
    return Fact("directory", "ok", "nobody else can put another directory in its place")


def _log(path: str) -> Fact:
    size = os.stat(f"{path}-wal").st_size if os.path.exists(f"{path}-wal") else 0
    text = f"the write-ahead log has {size / (1 << 20):.1f} MiB"
    if size >= BIG:
        return Fact("wal-size", "warn", text, "end the transaction that has been reading for long, such as a shell's")
    return Fact("wal-size", "ok", text)


def _room(db: Database, path: str) -> Iterator[Fact]:
    free = files.Ballast(path).free()
    text = f"{free / (1 << 20):,.0f} MiB free on the disk"
    if free < files.ROOM_FOR_BALLAST:
        yield Fact("disk-room", "warn", text, "make room: at disk full nothing is enqueued or claimed")
    else:
        yield Fact("disk-room", "ok", text)
    (pages,) = db.execute("pragma page_count").fetchone()
    (unused,) = db.execute("pragma freelist_count").fetchone()
    (size,) = db.execute("pragma page_size").fetchone()
    yield Fact("file-size", "ok", f"{pages * size / (1 << 20):.1f} MiB, of which {unused} pages are free for use")


def _schema(db: Database) -> Iterator[Fact]:
    status = migrations.status(db)
    if status.pending:
        yield Fact("schema", "error", f"schema {status.current}, {status.newest} is needed", "treadle db migrate")
    else:
        yield Fact("schema", "ok", f"schema {status.current}")
    applied = dict(db.execute("select version, checksum from treadle_schema").fetchall())
    for migration in migrations.known():
        if applied.get(migration.version, migration.checksum) != migration.checksum:
            yield Fact(
                "schema-checksum",
                "warn",
                f"migration {migration.name} was applied from another text than this version's",
                "see which Treadle made the file",
            )


def _rows(db: Database) -> Iterator[Fact]:
    """Rows that somebody else wrote or damaged: they are passed over wherever jobs are read, or ended where they would
    be claimed."""
    found = bounds.flaws(db)
    jobs = [flaw for flaw in found if flaw[0] not in bounds.KEYS]
    others = [flaw for flaw in found if flaw[0] in bounds.KEYS]
    for table, key, queue, task, what in jobs[: bounds.MOST_NAMED] + others[: bounds.MOST_NAMED]:
        if table not in bounds.KEYS:
            text = f"the row of job {key} (queue {queue}, task {task}) is damaged: {what}"
            yield Fact("job-row", "error", text, f"treadle jobs delete {key}; find out who else writes to it")
        else:
            text = f"the table treadle_{table} has a damaged row ({bounds.KEYS[table]} {key}): {what}"
            yield Fact("row", "error", text, "find out who else writes to the file, then mend or delete the row")
