"""Every storage passes the shipped suite."""

from __future__ import annotations

from treadle.ports import Storage
from treadle.storages.memory import MemoryStorage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance import Suite


class TestMemory(Suite):
    async def make(self, clock: FakeClock) -> Storage:
        return MemoryStorage(clock)
