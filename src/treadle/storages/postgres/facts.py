"""Facts: what `doctor` should know about a PostgreSQL server and what is in it."""

from __future__ import annotations

from ...ports import Fact
from . import migrations
from .sql import Schema
from .talk import Talk


def facts(schema: Schema, pooled: bool) -> Talk[list[Fact]]:
    found: list[Fact] = []
    ((version,),) = yield "select current_setting('server_version')", ()
    found.append(Fact("postgres-version", "ok", f"PostgreSQL {version}"))
    status = yield from migrations.status(schema)
    if status.pending:
        found.append(
            Fact("schema", "error", f"schema {status.current}, {status.newest} is needed", "treadle db migrate")
        )
    else:
        found.append(Fact("schema", "ok", f"schema {status.current} in {schema.name}"))
    return found
