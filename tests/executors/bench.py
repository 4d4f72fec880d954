"""What tests of outside work share: a quick clockwork, a worker, and a look at processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from treadle import App, JobView
from treadle.config import Timing
from treadle.context.context import Handle
from treadle.core.backoff import Retry

QUICK = Timing(
    lease=3.0, beat=0.2, scan=0.1, poll=0.05, grace=2.0, cancel_grace=0.5, leader_every=0.05, start_jitter=0.0
)
ONCE = Retry(max_attempts=1)


@asynccontextmanager
async def at_work(app: App, timing: Timing = QUICK) -> AsyncIterator[None]:
    async with app.worker(timing=timing):
        yield


async def ended(handle: Handle[Any], *states: str, within: float = 20.0) -> JobView:
    """The job, once it is in one of these states (or has ended)."""
    wanted = states or ("succeeded", "failed", "cancelled")
    async with asyncio.timeout(within):
        while (job := await handle.status()).state not in wanted:
            await asyncio.sleep(0.01)
    return job


async def until(condition: Any, within: float = 20.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def pid_in(file: Path) -> int:
    await until(lambda: file.exists() and file.read_text().strip())
    return int(file.read_text())


def a_script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
