from __future__ import annotations

import pytest
from hypothesis import settings

from treadle.testing.clock import FakeClock

# A loaded machine is no counterexample.
settings.register_profile("treadle", deadline=None)
settings.load_profile("treadle")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
