"""Lines of the audit, written in the transaction of the act that they tell of."""

from __future__ import annotations

from typing import Final

import msgspec

from ...core.audit import AuditLine
from . import rows
from .talk import Talk

_NOTE: Final = (
    "insert into treadle.audit (id, at, body) values ($1::text, $2::float8, $3::text) on conflict (id) do nothing"
)


def write(line: AuditLine | None, now: float) -> Talk[None]:
    """A line says when it was written; one that is there already stays as it is."""
    if line is not None:
        yield _NOTE, (line.id, now, rows.json_text(msgspec.structs.replace(line, at=now)))


def is_written(id: str | None) -> Talk[bool]:
    """Whether the act of this line was done: sent again after a lost answer, it finds its own work."""
    return id is not None and bool((yield "select 1 from treadle.audit where id = $1::text", (id,)))
