"""Three storages that are told the same, and what each of them then holds."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
import msgspec

from tests import postgres_server
from tests.storages.test_postgres_agrees import rounded
from treadle.core.record import Record, differing
from treadle.ports import Storage
from treadle.storages.memory.storage import MemoryStorage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import FakeClock

_NAMED_BY: Final = {"job": "id", "queue": "name", "held": "key"}


class Disagreement(AssertionError):
    """A storage answers otherwise than memory does, or holds other rows."""


class Trio:
    """Storages with one clock: memory, SQLite and PostgreSQL. The first of them is the reference."""

    def __init__(self, clock: FakeClock, storages: Sequence[Storage]) -> None:
        self.clock = clock
        self.storages = storages

    async def ask(self, verb: Callable[[Storage], Awaitable[Any]], shape: Callable[[Any], Any] = lambda x: x) -> Any:
        """Say the same to all, and compare what they answer."""
        first, *others = await asyncio.gather(*map(verb, self.storages))
        expected = rounded(msgspec.to_builtins(shape(first)))
        for storage, other in zip(self.storages[1:], others, strict=True):
            told = rounded(msgspec.to_builtins(shape(other)))
            if told != expected:
                raise Disagreement(f"{type(storage).__name__} answers\n  {told}\nand memory\n  {expected}")
        return first

    async def compare(self) -> dict[str, dict[str, Record]]:
        """All rows of jobs, queues and held keys are the same everywhere, and so is the order of the jobs."""
        first, *others = await asyncio.gather(*map(self._rows, self.storages))
        for storage, rows in zip(self.storages[1:], others, strict=True):
            for kind in _NAMED_BY:
                _compare(type(storage).__name__, kind, rows[kind], first[kind])
        return first

    async def _rows(self, storage: Storage) -> dict[str, dict[str, Record]]:
        found: dict[str, dict[str, Record]] = {}
        for kind, name in _NAMED_BY.items():
            records: list[Record] = []
            cursor = None
            while True:
                page = await storage.dump(kind, cursor)
                assert not page.damaged
                records += page.records
                if (cursor := page.next) is None:
                    break
            if kind == "job":
                records.sort(key=lambda record: int(record["seq"]))
            if kind == "held":  # those that are over may be forgotten at any time
                records = [record for record in records if record["until"] > self.clock.now()]
                records.sort(key=lambda record: str(record["key"]))
            if kind == "queue":
                records.sort(key=lambda record: str(record["name"]))
            found[kind] = {record[name]: record for record in records}
        return found


def _compare(who: str, kind: str, rows: dict[str, Record], expected: dict[str, Record]) -> None:
    if list(rows) != list(expected):
        raise Disagreement(f"{who} has the {kind}s {list(rows)} and memory {list(expected)}")
    for name, row in rows.items():
        if columns := differing(row, expected[name]):
            both = {column: (row[column], expected[name][column]) for column in columns}
            raise Disagreement(f"{kind} {name} in {who} and in memory: {both}")


class Duos:
    """Memory beside a storage that is broken on purpose."""

    def __init__(self, broken: type[MemoryStorage]) -> None:
        self.runner = asyncio.Runner()
        self._broken = broken

    def begin(self) -> Trio:
        clock = FakeClock()
        return Trio(clock, [MemoryStorage(clock), self._broken(clock)])

    def close(self) -> None:
        self.runner.close()


class Stages:
    """Makes trios, one after the other, on one schema: a new one for each program would take longer than it."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self._url = postgres_server.shared_url()
        self._schema = postgres_server.a_schema()
        self._directory = tempfile.TemporaryDirectory(prefix="treadle-model-")
        self._number = 0
        self._trio: Trio | None = None
        self._connection: Any = self.runner.run(asyncpg.connect(self._url))
        self._clear = ""

    def close(self) -> None:
        self._end()
        self.runner.run(self._connection.execute(f'drop schema if exists "{self._schema}" cascade'))
        self.runner.run(self._connection.close())
        self._directory.cleanup()
        self.runner.close()

    def begin(self) -> Trio:
        self._end()
        self._trio = self.runner.run(self._begin())
        return self._trio

    def _end(self) -> None:
        if self._trio is not None:
            for storage in self._trio.storages:
                self.runner.run(storage.close())
        self._trio = None

    async def _begin(self) -> Trio:
        if self._clear:
            await self._connection.execute(self._clear)
        self._number += 1
        clock = FakeClock()
        path = Path(self._directory.name) / f"{self._number}.db"
        storages: list[Storage] = [
            MemoryStorage(clock),
            SQLiteStorage(path, clock=clock, synchronous="normal"),
            PostgresStorage(self._url, schema=self._schema, clock=clock),
        ]
        for storage in storages:
            await storage.open()
        if not self._clear:
            found = await self._connection.fetch(
                "select tablename from pg_tables where schemaname = $1 and tablename <> all ($2)",
                self._schema,
                ["schema_version", "leader"],
            )
            self._clear = "; ".join(f'delete from "{self._schema}"."{table}"' for (table,) in found)
        return Trio(clock, storages)
