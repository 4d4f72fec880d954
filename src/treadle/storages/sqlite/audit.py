"""Lines of the audit, written in the transaction of the act that they tell of."""

from __future__ import annotations

import msgspec

from ...core.audit import AuditLine
from . import rows
from .rows import Database


def write(db: Database, line: AuditLine | None, now: float) -> None:
    """A line says when it was written; one that is there already stays as it is."""
    if line is not None:
        db.execute(
            "insert into treadle_audit (id, at, body) values (?, ?, ?) on conflict do nothing",
            (line.id, now, rows.json_text(msgspec.structs.replace(line, at=now))),
        )


def is_written(db: Database, id: str | None) -> bool:
    """Whether the act of this line was done: sent again after a lost answer, it finds its own work."""
    return db.execute("select 1 from treadle_audit where id = ?", (id,)).fetchone() is not None
