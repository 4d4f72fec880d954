"""Eight processes on one limit: no window of time ever sees more than its capacity and what has grown in it.

Each process notes when it uses a token: the instant at which its broker decides that the token may be used, by the
machine's monotonic clock, which all processes share. (What the scheduler does to a process afterwards is not counted.)
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import postgres_server
from treadle import App
from treadle.config import Timing
from treadle.storages.postgres import PostgresStorage

PROCESSES = 8
SECONDS = 2.0

USE = """
import asyncio, sys, time
from treadle import App, RateLimited

async def main():
    app = App()
    app.limit("slack", sys.argv[1], burst=int(sys.argv[2]))
    looked = 0.0
    def clock():
        nonlocal looked
        looked = time.monotonic()
        return looked
    app.client.broker._clock = clock
    uses = []
    async with app:
        print("open", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + float(sys.argv[3])
        async def work():
            while time.monotonic() < until:
                try:
                    await app.limits.take("slack", wait=0.2)
                except RateLimited:
                    continue
                uses.append(looked)
        await asyncio.gather(*(work() for _ in range(4)))
    print(*uses, flush=True)

asyncio.run(main())
"""


def used(seconds: float, url: str, rate: str, burst: int, **env: str) -> list[float]:
    given = {**os.environ, "TREADLE_URL": url, **env}
    command = [sys.executable, "-c", USE, rate, str(burst), str(seconds)]
    answers: list[str] = []
    with contextlib.ExitStack() as running:
        started = [
            running.enter_context(
                subprocess.Popen(command, env=given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for _ in range(PROCESSES)
        ]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in started:
            answers.append(process.communicate(timeout=60)[0])
            assert process.returncode == 0
    return sorted(float(each) for answer in answers for each in answer.split())


def most_above(uses: list[float], capacity: int, refill: float) -> float:
    """By how many tokens the worst window exceeds what it may have; negative if none does."""
    # uses[i..j] fit if j − i + 1 ≤ capacity + refill · (t_j − t_i): the smallest of (i − refill · t_i) so far decides.
    worst, least = float("-inf"), float("inf")
    for place, at in enumerate(uses):
        least = min(least, place - refill * at)
        worst = max(worst, place + 1 - refill * at - least - capacity)
    return worst


def check(measure: Callable[[float], list[float]], capacity: int, refill: float) -> None:
    """Never too many. And the limit is made use of: what the leases hold back is a part, not the most. Where the
    machine has something else to do, one of several measurements must show it; the later ones get more time."""
    for seconds in (SECONDS, SECONDS, 2 * SECONDS, 4 * SECONDS):
        uses = measure(seconds)
        assert most_above(uses, capacity, refill) <= 0.01
        if len(uses) >= 0.4 * (capacity + refill * SECONDS):
            return
    raise AssertionError(f"only {len(uses)} uses")


def test_the_measure_finds_a_window_that_is_too_full() -> None:
    assert most_above([0.0, 0.1, 0.2], 2, 1.0) == pytest.approx(0.8)
    assert most_above([0.0, 0.5, 1.0], 1, 2.0) == pytest.approx(0.0)
    assert most_above([0.0, 5.0, 5.1], 1, 2.0) == pytest.approx(0.8)


@pytest.mark.parametrize(("rate", "burst", "refill"), [("10/s", 2, 10.0), ("300/s", 40, 300.0)])
def test_on_sqlite(tmp_path: Path, rate: str, burst: int, refill: float) -> None:
    files = itertools.count()
    check(lambda seconds: used(seconds, f"sqlite:///{tmp_path}/{next(files)}.db", rate, burst), burst, refill)


@pytest.mark.anyio
async def test_pods_together_claim_no_faster_than_their_queues_rate(tmp_path: Path) -> None:
    """By the storage's own clock: `started_at` is when a job was claimed."""
    apps = [App(f"sqlite:///{tmp_path}/treadle.db") for _ in range(3)]
    for app in apps:

        @app.task(name="work")
        async def work() -> None:
            pass

    capacity, refill, jobs = 4, 40.0, 60
    await apps[0].queues.set("default", rate=refill, burst=capacity)
    handles = await apps[0].enqueue_many(apps[0].tasks["work"].bind() for _ in range(jobs))
    quick = Timing(start_jitter=0.0)
    async with contextlib.AsyncExitStack() as running:
        for app in apps:
            await running.enter_async_context(app.worker(timing=quick, slots=10))
        for handle in handles:
            await handle.result(timeout="20s")
        found = await apps[0].storage.get([handle.id for handle in handles])
    started = sorted(job.started_at or 0.0 for job in found)
    for app in apps:
        await app.close()
    assert most_above(started, capacity, refill) <= 0.01
    assert started[-1] - started[0] < 10 * jobs / refill


@pytest.mark.parametrize(("rate", "burst", "refill"), [("10/s", 2, 10.0), ("300/s", 40, 300.0)])
def test_on_postgres(rate: str, burst: int, refill: float) -> None:
    url = postgres_server.shared_url()

    async def migrate(schema: str) -> None:
        storage = PostgresStorage(url, schema=schema)
        await storage.open()
        await storage.close()

    def measure(seconds: float) -> list[float]:
        schema = postgres_server.a_schema()
        asyncio.run(migrate(schema))
        return used(seconds, url, rate, burst, TREADLE_SCHEMA=schema)

    check(measure, burst, refill)
