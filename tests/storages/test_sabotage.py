"""The conformance suite is itself tested: every broken storage fails it, and the whole one passes it."""

from __future__ import annotations

import asyncio

import pytest

from treadle.ports import Storage
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing import sabotage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance import Suite

SABOTAGES = sabotage.every()
# In memory a wake is there before the verb has returned: whoever waits for one waits in vain.
PATIENCE = 0.1


class Sabotage(Suite):
    def __init__(self, broken: type[sabotage.Sabotaged]) -> None:
        self.broken = broken

    async def make(self, clock: FakeClock) -> Storage:
        return self.broken(clock)


class Whole(Suite):
    async def make(self, clock: FakeClock) -> Storage:
        return MemoryStorage(clock)


@pytest.mark.parametrize("broken", SABOTAGES, ids=lambda broken: broken.__name__)
def test_a_storage_without_one_safeguard_is_caught(broken: type[sabotage.Sabotaged]) -> None:
    with pytest.raises(AssertionError):
        asyncio.run(Sabotage(broken).run(broken.caught_by, wakes_within=PATIENCE))


def test_the_whole_storage_passes_every_case() -> None:
    async def run_all() -> None:
        for case in Whole.cases():
            await Whole().run(case, wakes_within=PATIENCE)

    asyncio.run(run_all())


def test_there_are_enough_sabotages_and_each_has_its_own_name() -> None:
    assert len({broken.__name__ for broken in SABOTAGES}) == len(SABOTAGES) >= 20


def test_every_sabotage_is_caught_by_a_case_that_exists() -> None:
    cases = set(Suite.cases())
    assert {broken.caught_by for broken in SABOTAGES} <= cases
