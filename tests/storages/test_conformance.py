"""Every storage passes the shipped suite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from tests import pooler, postgres_server
from treadle.core.errors import StorageUnavailable
from treadle.ports import Storage
from treadle.storages.memory.storage import MemoryStorage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance import Suite


class TestMemory(Suite):
    async def make(self, clock: FakeClock) -> Storage:
        return MemoryStorage(clock)


class TestSQLite(Suite):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.path = tmp_path / "treadle.db"

    async def make(self, clock: FakeClock) -> Storage:
        return SQLiteStorage(self.path, clock=clock)


@pytest.fixture(scope="module")
def cleared() -> Iterator[Cleared]:
    """One schema for all cases, which costs half the time of one for each."""
    with psycopg.connect(postgres_server.shared_url(), autocommit=True) as connection:
        yield Cleared(connection)


@pytest.fixture(scope="module")
def pooled(cleared: Cleared) -> Iterator[str]:
    """The URL of a pooler."""
    way = parse_qs(urlsplit(postgres_server.shared_url()).query)
    with pooler.a_bouncer(way["host"][0], way["port"][0], cleared.login) as bouncer:
        yield bouncer.url


class Cleared:
    """A schema that can be made as it was right after its migrations, and a login of a worker's role."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.schema = postgres_server.a_schema()
        self.login = f"{self.schema}_login"
        self._connection = connection
        asyncio.run(self._make())
        tables = self._ask(f"select tablename from pg_tables where schemaname = '{self.schema}' order by 1")
        clear = [f"delete from {self.schema}.{name}" for (name,) in tables if name != "schema_version"]
        self._ask(f"create schema {self.schema}_seed")
        for (name,) in tables:
            if name != "schema_version" and self._ask(f"select 1 from {self.schema}.{name} limit 1"):
                seed = f"{self.schema}_seed.{name}"
                self._ask(f"create table {seed} as table {self.schema}.{name}")
                clear.append(f"insert into {self.schema}.{name} overriding system value table {seed}")
        self._clear = "; ".join(clear)

    async def _make(self) -> None:
        storage = PostgresStorage(postgres_server.shared_url(), schema=self.schema)
        await storage.open()
        postgres_server.make_roles(self._connection, storage.roles())
        self._ask(f"create role {self.login} login in role treadle_worker")
        await storage.close()

    def clear(self) -> None:
        self._ask(self._clear)

    def _ask(self, sql: str) -> list[Any]:
        done = self._connection.execute(sql)  # type: ignore[call-overload]
        return done.fetchall() if done.description else []


class TestPostgres(Suite):
    @pytest.fixture(autouse=True)
    def place(self, cleared: Cleared) -> None:
        cleared.clear()
        self.schema = cleared.schema

    async def make(self, clock: FakeClock) -> Storage:
        return PostgresStorage(postgres_server.shared_url(), schema=self.schema, clock=clock)


class TestPooledPostgres(Suite):
    """Through a pooler in transaction mode, where statements of one verb may meet another session each time, and as a
    worker's role, which may do all of it but migrate."""

    @pytest.fixture(autouse=True)
    def place(self, pooled: str, cleared: Cleared) -> None:
        cleared.clear()
        self.url, self.schema = pooled, cleared.schema

    async def make(self, clock: FakeClock) -> Storage:
        return PostgresStorage(self.url, schema=self.schema, clock=clock)

    async def test_another_handle_hears_of_edited_settings(self, storage: Storage, clock: FakeClock) -> None:
        """It does not, and says so: such a pooler passes no notification on, and pods ask."""
        stop = storage.listen(lambda wake: None)
        await asyncio.sleep(0.3)
        assert not storage.signals_work
        stop()

    async def test_a_migration_may_be_repeated_and_harms_nothing(self, storage: Storage) -> None:
        with pytest.raises(StorageUnavailable, match="permission denied"):
            await storage.migrate()
