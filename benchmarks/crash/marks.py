"""What a job of any peer does, and how it says so: a line appended to a file, which no kill takes back.

Imported by every peer's own interpreter: the standard library only.

* `victim`   sleeps at its first run, until its worker is killed; returns at once when it is run again
* `healthy`  sleeps for longer than every rescue takes, in a worker that nobody kills
* `poison`   kills its worker, each time
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

FILE = "CRASH_MARKS"
MODE = "CRASH_MODE"  # "default" or "fast"
HEALTHY = 150.0
FOR_EVER = 600.0


def is_fast() -> bool:
    return os.environ[MODE] == "fast"


async def act(kind: str, number: int, beat: Callable[[], Awaitable[object]] | None = None) -> None:
    for _ in range(int(_begin(kind, number))):
        await asyncio.sleep(1.0)
        if beat is not None:
            await beat()
    _mark("ended", kind, number)


def act_in_thread(kind: str, number: int) -> None:
    time.sleep(_begin(kind, number))
    _mark("ended", kind, number)


def _begin(kind: str, number: int) -> float:
    """Say so; answers with how long to sleep."""
    before = sum(mark["what"] == "began" and mark["job"] == [kind, number] for mark in read(os.environ[FILE]))
    _mark("began", kind, number)
    if kind == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    return HEALTHY if kind == "healthy" else 0.0 if before else FOR_EVER


def _mark(what: str, kind: str, number: int) -> None:
    line = {"what": what, "job": [kind, number], "pid": os.getpid(), "at": time.monotonic()}
    file = os.open(os.environ[FILE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, json.dumps(line).encode() + b"\n")
    os.close(file)


def read(file: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in Path(file).read_bytes().splitlines()]
