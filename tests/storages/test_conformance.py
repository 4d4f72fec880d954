"""Every storage passes the shipped suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import postgres_server
from treadle.ports import Storage
from treadle.storages.memory import MemoryStorage
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


class TestPostgres(Suite):
    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.url = postgres_server.shared_url()
        self.schema = postgres_server.a_schema()

    async def make(self, clock: FakeClock) -> Storage:
        return PostgresStorage(self.url, schema=self.schema, clock=clock)
