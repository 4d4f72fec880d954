"""Tables: what the catalogue says of a table's columns, and statements made of it. Rows travel as JSON."""

# ruff: noqa: S608 - the SQL is put together from the names of our own tables and columns

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from .talk import Row, Talk

_COLUMNS: Final = """
select
    a.attname, format_type(a.atttypid, a.atttypmod), a.attidentity <> '',
    coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0), a.attnotnull
from pg_attribute as a
left join pg_index as i on i.indrelid = a.attrelid and i.indisprimary
where a.attrelid = '{table}'::regclass and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by a.attnum
"""
MOVE_ON: Final = """
select setval(s.name, greatest($2::bigint, coalesce(pg_sequence_last_value(s.name::regclass), 1)))
from (select pg_get_serial_sequence('{table}', $1::text) as name) as s
"""


class Column(Struct, frozen=True):
    name: str
    type: str
    counted: bool  # numbered by the server, if nobody says a number
    key: int  # its place in the primary key; 0: not part of it
    must: bool  # every row has it

    @property
    def out(self) -> str:
        """How it is read."""
        name = f'job."{self.name}"'
        if self.type.startswith("timestamp"):
            return f"date_part('epoch', {name})"
        return f"{name}::text" if self.type in ("uuid", "json", "jsonb") else name

    @property
    def carried(self) -> str:
        """The type that it has in JSON."""
        if self.type.startswith("timestamp"):
            return "float8"
        return "text" if self.type in ("json", "jsonb") else self.type

    @property
    def back(self) -> str:
        """How it is written."""
        name = f'r."{self.name}"'
        if self.type.startswith("timestamp"):
            return f"to_timestamp({name})"
        return f"{name}::{self.type}" if self.type in ("json", "jsonb") else name


class Table(Struct, frozen=True):
    name: str
    columns: tuple[Column, ...]

    @property
    def keys(self) -> list[Column]:
        """Rows of a table without a primary key are known by all that every one of them has."""
        primary = sorted((column for column in self.columns if column.key), key=lambda column: column.key)
        return primary or [column for column in self.columns if column.must]

    def select(self, where: str, *more: str) -> str:
        shown = ", ".join([*(column.out for column in self.columns), *more])
        return f"select {shown} from {self.name} as job {where}"

    def record(self, row: Row) -> dict[str, Any]:
        return dict(zip((column.name for column in self.columns), row, strict=False))

    def insert(self, names: Iterable[str]) -> str:
        """The statement that writes rows with these columns, from JSON."""
        given = [column for column in self.columns if column.name in set(names)]
        return (
            f"insert into {self.name} ({', '.join(quoted(column) for column in given)}) overriding system value "
            f"select {', '.join(column.back for column in given)} from json_to_recordset($1::text::json) "
            f"as r ({', '.join(f'{quoted(column)} {column.carried}' for column in given)}) "
            "on conflict do nothing"
        )


def quoted(column: Column) -> str:
    return f'"{column.name}"'


def described(name: str) -> Talk[Table]:
    found = yield _COLUMNS.replace("{table}", name), ()
    return Table(name, tuple(Column(*row) for row in found))
