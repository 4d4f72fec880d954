"""Memory is the oracle: the same verbs, drawn by chance, go to both storages, and every answer is compared."""

from __future__ import annotations

import pytest

from tests import postgres_server
from tests.storages.test_sqlite_agrees import Program
from treadle.storages.memory import MemoryStorage
from treadle.storages.postgres import PostgresStorage
from treadle.testing.clock import FakeClock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("seed", range(8))
async def test_postgres_answers_every_verb_as_memory_does(seed: int, clock: FakeClock) -> None:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), clock=clock)
    await storage.open()
    program = Program(seed, MemoryStorage(clock), storage, clock)
    for _ in range(250):
        await program.step()
    await program.end()
    await storage.close()
