"""Copy: whole rows, on their way from or to another storage. How a new table joins is told at `Storage.kinds`."""

# ruff: noqa: S608 - the SQL is put together from the names of our own tables and columns

from __future__ import annotations

import functools
import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ...core import record as records
from ...core.job import ErrorEntry
from ...core.queue import Queue
from ...core.record import Record
from ...ports import Dumped, Loaded
from . import insert, migrations, rows
from .rows import Database
from .sql import JOB_COLUMNS, QUEUE_COLUMNS, statement
from .writer import Operation

T = TypeVar("T")

APART: Final = frozenset(
    {
        "job_error",  # travel with their jobs
        "job_tag",
        "pod",  # are of this place alone
        "leader",
        "share",
        "lock",
    }
)
_FIRST: Final = ("queue", "job")
_STATES: Final = frozenset({"waiting", "ready", "running", "succeeded", "failed", "cancelled"})
_BAD: Final = (
    sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError, msgspec.ValidationError, OverflowError,
    KeyError,
)  # fmt: skip
_JOB: Final = tuple(JOB_COLUMNS.split(", "))
_QUEUE: Final = tuple(QUEUE_COLUMNS.split(", "))
_as_entry: Final = functools.partial(msgspec.convert, type=ErrorEntry)


class Copying:
    """The verbs. `_read` and `_write` are the storage's own."""

    def kinds(self) -> Sequence[str]:
        return kinds()

    async def dump(self, kind: str, cursor: str | None = None, limit: int = 500) -> Dumped:
        table = _table(kind)

        def read(db: sqlite3.Connection) -> Dumped:
            return _OF.get(kind, _Table)(db, table).dump(cursor, limit)

        return await self._read(read)

    async def load(self, kind: str, records: Sequence[Record]) -> Sequence[Loaded]:
        table = _table(kind)

        def operation(db: sqlite3.Connection, _: object) -> list[Loaded]:
            write = _OF.get(kind, _Table)(db, table).load
            return [_tried(write, record) for record in records]

        return await self._write(operation, grows=True)

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError

    async def _write(
        self, operation: Operation[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
    ) -> T:
        raise NotImplementedError


@functools.cache
def kinds() -> tuple[str, ...]:
    tables = {name for migration in migrations.known() for name in tables_of(migration.text)}
    return (*_FIRST, *sorted(tables - APART - set(_FIRST)))


def tables_of(text: str) -> list[str]:
    """The tables that a migration makes."""
    return re.findall(r"^create table (?:if not exists )?treadle_(\w+)", text, re.MULTILINE)


def _table(kind: str) -> str:
    if kind not in kinds():
        raise ValueError(f'there is no kind "{kind}"; there are {", ".join(kinds())}')
    return f"treadle_{kind}"


def _tried(write: Callable[[Record], Loaded], record: Record) -> Loaded:
    try:
        return write(record)
    except _BAD as error:
        return Loaded("refused", f"{type(error).__name__}: {error}")


# ---------------------------------------------------------------------------------------------------------------------
# Tables


class _Table:
    """Reads and writes rows of a table by their columns, whatever these are."""

    def __init__(self, db: Database, table: str) -> None:
        self.db = db
        self.table = table
        shape = db.execute(f"pragma table_info({table})").fetchall()
        self.columns = [name for _, name, *_ in shape]
        keys = sorted((key, name) for _, name, _, _, _, key in shape if key)
        # Rows of a table without a primary key are known by all that every one of them has.
        self.keys = [name for _, name in keys] or [name for _, name, _, must, _, _ in shape if must]

    def dump(self, cursor: str | None, limit: int) -> Dumped:
        order = ", ".join(self.keys)
        after: list[Any] = json.loads(cursor) if cursor is not None else []
        where = f"where ({order}) > ({_places(self.keys)})" if after else ""
        found = self.fetch(f"select * from {self.table} {where} order by {order} limit ?", *after, limit)
        records: list[Record] = []
        damaged: list[str] = []
        for row in found:
            record = self.record(row)
            if record is not None:
                records.append(record)
            else:
                damaged.append(self.name_of(row))
        full = len(found) == limit
        return Dumped(
            records, json.dumps([found[-1][key] for key in self.keys], default=str) if full else None, damaged
        )

    def name_of(self, row: Record) -> str:
        return " ".join(str(row[key]) for key in self.keys)

    def record(self, row: Record) -> Record | None:
        """A row as it travels; None if no code of ours can have written it."""
        return None if any(isinstance(value, bytes) for value in row.values()) else row

    def load(self, record: Record) -> Loaded:
        there = self.find(record)
        if there is not None:
            return _compared(there, record)
        return Loaded("written") if self.insert(record) is not None else Loaded("refused", "its place is taken")

    def find(self, record: Record) -> Record | None:
        """The row that has the record's key, as it travels; nothing in it if it is damaged."""
        named = " and ".join(f"{key} = ?" for key in self.keys)
        found = self.fetch(f"select * from {self.table} where {named}", *[record[key] for key in self.keys])
        return (self.record(found[0]) or dict.fromkeys(found[0])) if found else None

    def insert(self, record: Record) -> int | None:
        """The row's number, or None if something that must be unique is taken."""
        values = {name: _value(value) for name, value in record.items() if name in self.columns}
        done = self.db.execute(
            f"insert into {self.table} ({', '.join(values)}) values ({_places(values)}) on conflict do nothing",
            tuple(values.values()),
        )
        return done.lastrowid if done.rowcount == 1 else None

    def fetch(self, sql: str, *parameters: Any) -> list[Record]:
        found = self.db.execute(sql, parameters)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found]


class _Queues(_Table):
    """A queue travels as the Queue: how its settings lie in columns is each storage's own affair."""

    def record(self, row: Record) -> Record | None:
        if super().record(row) is None:
            return None
        queue: Record = msgspec.to_builtins(rows.queue_of(tuple(row[name] for name in _QUEUE)))
        return queue

    def load(self, record: Record) -> Loaded:
        queue = msgspec.convert(record, Queue)
        there = self.find(record)
        if there is not None:
            compared = _compared(there, record)
            if compared.outcome == "same" or there["version"] != 0:
                return compared
        self.db.execute(statement("queue_save"), rows.queue_values(queue))
        return Loaded("written")


class _Jobs(_Table):
    def __init__(self, db: Database, table: str) -> None:
        super().__init__(db, table)
        self.known_queues: set[str] = set()

    def name_of(self, row: Record) -> str:
        return str(row["id"])

    def record(self, row: Record) -> Record | None:
        if not rows.is_sound(tuple(row[name] for name in _JOB)) or row["state"] not in _STATES:
            return None
        tags = list(rows.tags_of(row["tags"])) if row["tags"] is not None else None
        errors = rows.all_errors(self.db, row["seq"]) if row["error_count"] else ()
        return {**row, "tags": tags, "errors": msgspec.to_builtins(errors)}

    def find(self, record: Record) -> Record | None:
        found = self.fetch("select * from treadle_job where id = ?", record["id"])
        return (self.record(found[0]) or dict.fromkeys(found[0])) if found else None

    def load(self, record: Record) -> Loaded:
        there = self.find(record)
        if there is not None:
            return _compared(there, record)
        if record["state"] not in _STATES:
            return Loaded("refused", f"there is no state {record['state']!r}")
        tags = tuple(map(str, record.get("tags") or ()))
        errors: list[ErrorEntry] = [_as_entry(entry) for entry in record.get("errors") or ()]
        row = {**record, "tags": rows.tags_text(tags)}
        seq = self.insert(row)
        if seq is None:  # its place is taken, or its key
            row.pop("seq", None)
            seq = self.insert(row)
        if seq is None:
            return Loaded("refused", f"another job holds its unique key {record.get('unique_key')}")
        for n, entry in enumerate(errors, record["error_count"] - len(errors) + 1):
            self.db.execute(
                "insert or replace into treadle_job_error (seq, n, entry) values (?, ?, ?)",
                (seq, n, rows.entry_text(entry)),
            )
        for tag in tags:
            self.db.execute("insert into treadle_job_tag (tag, seq) values (?, ?) on conflict do nothing", (tag, seq))
        if record["queue"] not in self.known_queues:
            insert.ensure_queue(self.db, record["queue"])
            self.known_queues.add(record["queue"])
        return Loaded("written")


class _Fence(_Table):
    """One row that only rises: no lock may ever be given a fence that was given before."""

    def load(self, record: Record) -> Loaded:
        raised = self.db.execute("update treadle_fence set last = ?1 where last < ?1", (record["last"],))
        return Loaded("written" if raised.rowcount else "same")


_OF: Final[dict[str, type[_Table]]] = {"queue": _Queues, "job": _Jobs, "fence": _Fence}


def _compared(there: Record, record: Record) -> Loaded:
    differing = records.differing(there, record)
    return Loaded("differs", ", ".join(differing)) if differing else Loaded("same")


def _value(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def _places(values: Iterable[Any]) -> str:
    return ", ".join("?" for _ in values)
