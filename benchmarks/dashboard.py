"""How long the dashboard reads with a million jobs: `python -m benchmarks.dashboard [--jobs N] [--storage both]`.

Fills a SQLite file and a PostgreSQL schema by loading rows (a few real jobs, many times over, with other ids and
instants), then asks the API in process, one request after another, and prints p50, p95 and the worst of each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from tests import postgres_server

from treadle import App, Fail
from treadle.web import Access, Dashboard

INDEXED = (
    "/jobs?total=false",
    "/jobs?filter=state:failed&total=false",
    "/jobs?filter=state:ready+queue:bulk&total=false",
    "/jobs?filter=state:scheduled&order=due&total=false",
    "/jobs?filter=queue:bulk&total=false",
    "/jobs?filter=task:works&total=false",
    "/jobs?filter=finished:<1h&total=false",
    "/jobs?filter=id:{id}",
    "/jobs/{id}",
    "/jobs/{id}/timeline",
    "/queues",
    "/pods",
    "/series",
    "/audit",
)
OTHERS = (
    "/jobs",
    "/counts",
    "/failures",
    "/jobs?filter=args.n:77&total=false",
    "/jobs?filter=error:refused&total=false",
)
CHUNK = 1000
BUDGET = 0.050


def make(url: str) -> App:
    app = App(url, queues=["bulk"])

    @app.task(name="works", queue="bulk")
    async def works(n: int) -> int:
        return n

    @app.task(name="fails", queue="bulk", retry=1)
    async def fails(n: int) -> None:
        raise Fail("card refused")

    return app


async def fill(app: App, jobs: int) -> list[str]:
    """Real jobs of every kind, then their rows many times over."""
    async with app.worker(slots=10):
        for n in range(5):
            await app.client.wait_for_end((await app.enqueue("works", {"n": n})).id, 30)
        await app.client.wait_for_end((await app.enqueue("fails", {"n": 0})).id, 30)
    await app.enqueue("works", {"n": 1})
    await app.enqueue("works", {"n": 2}, delay="1d")
    page = await app.storage.dump("job", None, 500)
    models = list(page.records)
    chance, now, made = random.Random(7), time.time(), []
    kept: list[str] = []
    begun = time.monotonic()
    for number in range(jobs):
        row = dict(chance.choice(models))
        at = now - chance.random() * 7 * 86_400
        milliseconds = int(at * 1000)
        id = str(
            uuid.UUID(
                int=milliseconds << 80 | 7 << 76 | chance.getrandbits(12) << 64 | 2 << 62 | chance.getrandbits(62)
            )
        )
        row |= {"id": id, "args": f'{{"n": {number}}}', "seq": None}
        row |= {name: at + 1 for name in ("created_at", "started_at", "finished_at") if row.get(name)}
        if row.get("state") not in ("scheduled",):
            row["run_at"] = at
        made.append({name: value for name, value in row.items() if value is not None})
        if len(made) == CHUNK or number == jobs - 1:
            answers = await app.storage.load("job", made)
            bad = next((each for each in answers if each.outcome != "written"), None)
            assert bad is None, bad
            kept.append(id)
            made = []
    print(f"  {jobs:,} jobs in {time.monotonic() - begun:.0f} s")
    return kept


async def measure(app: App, ids: list[str], rounds: int) -> dict[str, list[float]]:
    web = Dashboard(app, access=lambda request: Access("bench", "admin"), pages=False)
    chance = random.Random(7)
    times: dict[str, list[float]] = {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://localhost/api/v1") as http:
        for _ in range(rounds):
            for path in (*INDEXED, *OTHERS):
                web.counts._kept.clear()
                begun = time.perf_counter()
                answer = await http.get(path.format(id=chance.choice(ids)))
                times.setdefault(path, []).append(time.perf_counter() - begun)
                assert answer.status_code == 200, (path, answer.text)
    return times


@asynccontextmanager
async def on(storage: str, folder: Path) -> AsyncGenerator[App]:
    if storage == "postgres":
        os.environ["TREADLE_SCHEMA"] = postgres_server.a_schema()
        os.environ["TREADLE_AUTO_MIGRATE"] = "true"
        app = make(postgres_server.shared_url())
    else:
        app = make(f"sqlite:///{folder}/dashboard.db")
    async with app:
        yield app


async def main(jobs: int, storages: list[str], rounds: int) -> None:
    for storage in storages:
        print(storage)
        with tempfile.TemporaryDirectory() as folder:
            async with on(storage, Path(folder)) as app:
                ids = await fill(app, jobs)
                times = await measure(app, ids, rounds)
        print(f"  {'':48} {'p50':>8} {'p95':>8} {'worst':>8}  ms")
        for path, found in times.items():
            p50, p95 = statistics.median(found), sorted(found)[int(len(found) * 0.95)]
            mark = "  over 50 ms" if path in INDEXED and p95 > BUDGET else ""
            print(f"  {path:48} {p50 * 1e3:8.1f} {p95 * 1e3:8.1f} {max(found) * 1e3:8.1f}{mark}")


def arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--storage", choices=["sqlite", "postgres", "both"], default="both")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    chosen = ["sqlite", "postgres"] if given.storage == "both" else [given.storage]
    asyncio.run(main(given.jobs, chosen, given.rounds))
