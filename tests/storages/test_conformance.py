"""Every storage passes the shipped suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.ports import Storage
from treadle.storages.memory import MemoryStorage
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
