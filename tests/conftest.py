from __future__ import annotations

import pytest

from treadle.testing.clock import FakeClock


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
