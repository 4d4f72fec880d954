"""One of two processes on one SQLite file: reads a line for each verb to run, and answers with a line.

python -m tests.interleavings.child PATH SIDE
"""

from __future__ import annotations

import asyncio
import json
import sys

from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import FakeClock

from .verbs import VERBS, plain


async def main(path: str, side: int) -> None:
    clock = FakeClock()
    storage = SQLiteStorage(path, clock=clock, synchronous="normal")
    await storage.open()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        verb, now, steady, wait = json.loads(line)
        clock._now, clock._steady = now, steady
        await asyncio.sleep(wait)
        print(json.dumps(plain(await VERBS[verb](storage, side))), flush=True)
    await storage.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
