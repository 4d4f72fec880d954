"""The schema: numbered files, forward only, each applied wholly with its row in `schema_version`, or not at all.

A file starts with `-- compatible_from: N`: code that brings schema N or newer can use the result. So an older pod keeps
working beside a newer one as long as a migration only adds, and a database from the future is refused only if it must
be. Two at once wait for each other by a lock that ends with its transaction, whatever becomes of its holder.

An empty database gets all files in one transaction: whoever opens it meanwhile sees nothing, or a schema to work with.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from typing import Final

from msgspec import Struct

from ...core.errors import SchemaTooNew, SchemaTooOld, StorageUnavailable
from ...ports import SchemaStatus
from . import sql
from .connect import OLDEST
from .sql import Schema
from .talk import BEGIN, COMMIT, Talk

OLDEST_USABLE: Final = 18
"""Code of this version cannot work with a schema below this one."""

_LEDGER: Final = """
create table if not exists treadle.schema_version (
    version         integer     not null,
    name            text        not null,
    checksum        text        not null,
    applied_at      timestamptz not null default clock_timestamp(),
    compatible_from integer     not null,
    constraint schema_version_pkey primary key (version)
)
"""
_RECORD: Final = (
    "insert into treadle.schema_version (version, name, checksum, compatible_from) "
    "values ($1::int, $2::text, $3::text, $4::int)"
)


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


def known() -> tuple[Migration, ...]:
    return tuple(Migration(int(name.partition("_")[0]), name, text) for name, text in sql.migrations())


def check_server() -> Talk[None]:
    ((number,),) = yield "select current_setting('server_version_num')::int", ()
    if number < OLDEST:
        raise StorageUnavailable(f"this is PostgreSQL {number // 10_000}, and Treadle needs 14 or newer")


def is_writable() -> Talk[bool]:
    """Whether anything can be written: not on a standby, nor where transactions only read."""
    ((found,),) = yield "select not (pg_is_in_recovery() or current_setting('transaction_read_only')::boolean)", ()
    return bool(found)


def status(schema: Schema) -> Talk[SchemaStatus]:
    current, _ = yield from _applied(schema)
    return _status(current)


def look(schema: Schema) -> Talk[SchemaStatus]:
    """As `status`, also of a schema that is too old to be used; what can never be used is refused all the same."""
    with contextlib.suppress(SchemaTooOld):
        yield from check(schema)
    return (yield from status(schema))


def _status(current: int) -> SchemaStatus:
    pending = tuple(migration.name for migration in known() if migration.version > current)
    return SchemaStatus(current=current, newest=known()[-1].version, pending=pending)


def check(schema: Schema) -> Talk[bool]:
    """Refuse a schema that this code cannot use. Whether there is nothing yet, so that it may be made at once."""
    current, compatible_from = yield from _applied(schema)
    newest = known()[-1].version
    if current > newest and compatible_from > newest:
        raise SchemaTooNew(
            f"the database has schema {current}, which needs a Treadle that knows schema {compatible_from} or newer; "
            f"this one knows {newest}: upgrade Treadle"
        )
    if current == 0:
        foreign = yield (
            "select relname from pg_class where relnamespace = to_regnamespace($1::text)::oid "
            "and relkind in ('r', 'v', 'p') and relname not like 'schema_version%' limit 1",
            (f'"{schema.name}"',),
        )
        if foreign and (yield from _applied(schema))[0]:  # somebody has made it between the two looks
            return (yield from check(schema))
        if foreign:
            raise StorageUnavailable(
                f"the schema {schema.name} has a table {foreign[0][0]} that Treadle did not make: use another schema"
            )
        return True
    if current < OLDEST_USABLE:
        raise SchemaTooOld(
            f"the database has schema {current}, and this Treadle needs {OLDEST_USABLE} or newer: "
            "run `treadle db migrate`"
        )
    return False


def apply(schema: Schema, migration: Migration) -> Talk[None]:
    """One migration, in one transaction with its row in the ledger; all of them if there is nothing yet."""
    yield BEGIN
    yield "select set_config('lock_timeout', '3000', true), set_config('statement_timeout', '0', true)", ()
    yield "select pg_advisory_xact_lock(hashtextextended($1::text, 0))", (schema.channel,)
    exists = yield "select 1 from pg_namespace where nspname = $1::text", (schema.name,)
    if not exists:
        yield f'create schema "{schema.name}"', ()
    yield _LEDGER, ()
    current, _ = yield from _applied(schema)
    for each in known() if current == 0 else (migration,):
        if current < each.version:
            yield each.text, ()
            yield _RECORD, (each.version, each.name, each.checksum, each.compatible_from)
    yield COMMIT


def identity() -> Talk[str]:
    """What tells this schema from one of the same name in another database."""
    made = yield (
        "select (extract(epoch from applied_at) * 1000000)::bigint::text from treadle.schema_version "
        "where version >= $1::int order by version limit 1",
        (1,),
    )
    return str(made[0][0])


def plan(current: int) -> list[str]:
    """What `migrate` would do, a line for each migration."""
    return [f"{migration.name}: {_title(migration.text)}" for migration in known() if migration.version > current]


def script(schema: Schema, current: int = 0) -> str:
    """The SQL of all migrations after `current`, for a person to run by psql; empty if there are none."""
    if not plan(current):
        return ""
    parts = [
        "begin;\nset local lock_timeout = '3s';",
        f"select pg_advisory_xact_lock(hashtextextended('{schema.channel}', 0));",
        f'create schema if not exists "{schema.name}";',
        schema.put_in(_LEDGER).strip() + ";",
    ]
    for migration in known():
        if migration.version > current:
            parts.append(schema.put_in(migration.text).strip())
            values = f"{migration.version}, '{migration.name}', '{migration.checksum}', {migration.compatible_from}"
            parts.append(
                f'insert into "{schema.name}".schema_version (version, name, checksum, compatible_from)\n'
                f"values ({values});"
            )
    return "\n\n".join([*parts, "commit;"]) + "\n"


def _title(text: str) -> str:
    lines = [line.removeprefix("--").strip() for line in text.splitlines()[1:] if line.startswith("--")]
    return next((line for line in lines if line), "")


def _applied(schema: Schema) -> Talk[tuple[int, int]]:
    """The newest version in the database, and the oldest code that can use it; zeros for a database without ours."""
    exists = yield "select to_regclass($1::text) is not null", (f'"{schema.name}".schema_version',)
    if not exists[0][0]:
        return 0, 0
    row = yield (
        "select version, compatible_from from treadle.schema_version where version > $1::int "
        "order by version desc limit 1",
        (0,),
    )
    return (row[0][0], row[0][1]) if row else (0, 0)
