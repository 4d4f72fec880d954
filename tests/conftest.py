from __future__ import annotations

import os
import shutil

import pytest
from hypothesis import settings

from treadle.testing.clock import FakeClock

# A loaded machine is no counterexample.
settings.register_profile("treadle", deadline=None)
settings.load_profile("treadle")

# Our SQLite syncs at every commit. On a disk that is most of what many tests would do, and whoever else writes to it
# could make them late. What a test is about, a file system in memory has too.
MEMORY = "/dev/shm"  # pytest makes a folder of its own in it
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 2 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
