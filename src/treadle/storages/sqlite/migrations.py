"""The schema: numbered files, forward only, each applied wholly with its row in `treadle_schema`, or not at all.

A file starts with `-- compatible_from: N`: code that brings schema N or newer can use the result. So an older pod keeps
working beside a newer one as long as a migration only adds, and a file from the future is refused only if it must be.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from ...core.errors import SchemaTooNew, StorageUnavailable
from ...ports import SchemaStatus
from . import sql
from .rows import Database

_LEDGER: Final = """
create table if not exists treadle_schema (
    version         integer primary key,
    name            text    not null,
    checksum        text    not null,
    applied_at      real    not null,
    compatible_from integer not null
)
"""
# Seconds since the epoch, as every SQLite knows them.
_NOW: Final = "(julianday('now') - 2440587.5) * 86400.0"


class Migration(Struct, frozen=True):
    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def compatible_from(self) -> int:
        found = re.match(r"-- compatible_from: (\d+)\n", self.text)
        assert found is not None, f"{self.name} does not say from which version on it can be used"
        return int(found[1])

    def statements(self) -> Iterator[str]:
        """The script statement by statement: `executescript` would commit before the first."""
        collected = ""
        for line in self.text.splitlines(keepends=True):
            collected += line
            if sqlite3.complete_statement(collected):
                yield collected
                collected = ""


def known() -> tuple[Migration, ...]:
    return tuple(Migration(int(name.partition("_")[0]), name, text) for name, text in sql.migrations())


def status(db: Database) -> SchemaStatus:
    return status_at(_applied(db)[0])


def status_at(current: int) -> SchemaStatus:
    pending = tuple(migration.name for migration in known() if migration.version > current)
    return SchemaStatus(current=current, newest=known()[-1].version, pending=pending)


def check(db: Database) -> None:
    """Refuse a schema that is too new to be used, and tables that are somebody else's."""
    current, compatible_from = _applied(db)
    newest = known()[-1].version
    if current > newest and compatible_from > newest:
        raise SchemaTooNew(
            f"the database has schema {current}, which needs a Treadle that knows schema {compatible_from} or newer; "
            f"this one knows {newest}: upgrade Treadle"
        )
    if current == 0:
        foreign = db.execute(
            "select name from sqlite_master where name like 'treadle\\_%' escape '\\' and name <> 'treadle_schema'"
        ).fetchone()
        if foreign is not None and _applied(db)[0] == 0:  # else somebody has made it between the two looks
            raise StorageUnavailable(f"the database has a {foreign[0]} that Treadle did not make: use another file")


def apply(db: Database, migration: Migration, now: float) -> None:
    """Run one migration inside the caller's transaction."""
    db.execute(_LEDGER)
    if _applied(db)[0] >= migration.version:
        return  # another process was faster
    for statement in migration.statements():
        db.execute(statement)
    db.execute(
        "insert into treadle_schema (version, name, checksum, applied_at, compatible_from) values (?, ?, ?, ?, ?)",
        (migration.version, migration.name, migration.checksum, now, migration.compatible_from),
    )


def plan(current: int) -> list[str]:
    """What opening would do, a line for each migration."""
    return [f"{migration.name}: {_title(migration.text)}" for migration in known() if migration.version > current]


def script(current: int = 0) -> str:
    """The SQL of all migrations after `current`, for a person to read, or to run by the sqlite3 shell."""
    parts: list[str] = []
    for migration in known():
        if migration.version > current:
            values = f"{migration.version}, '{migration.name}', '{migration.checksum}', {_NOW}, "
            parts.append(migration.text.strip())
            parts.append(
                "insert into treadle_schema (version, name, checksum, applied_at, compatible_from)\n"
                f"values ({values}{migration.compatible_from});"
            )
    return "\n\n".join(["begin immediate;", f"{_LEDGER.strip()};", *parts, "commit;"]) + "\n" if parts else ""


def _title(text: str) -> str:
    lines = [line.removeprefix("--").strip() for line in text.splitlines()[1:] if line.startswith("--")]
    return next((line for line in lines if line), "")


def _applied(db: Database) -> tuple[int, int]:
    """The newest version in the database, and the oldest code that can use it; zeros for a database without ours."""
    exists = db.execute("select 1 from sqlite_master where type = 'table' and name = 'treadle_schema'").fetchone()
    if exists is None:
        return 0, 0
    row = db.execute("select version, compatible_from from treadle_schema order by version desc limit 1").fetchone()
    return (0, 0) if row is None else (row[0], row[1])
