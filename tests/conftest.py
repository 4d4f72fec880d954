from __future__ import annotations

import os
import shutil
import signal

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

# Under nohup, or in a background job of a shell, SIGINT and SIGHUP are ignored, and so they would be in every process
# that a test starts and means to stop by them. A signal that has a handler has its default again after an exec; this
# handler does nothing, so that the tests themselves still outlive their terminal.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()
