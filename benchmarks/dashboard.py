"""How long the dashboard takes with a million jobs: `python -m benchmarks.dashboard [--jobs N] [--storage both]`.

Fills a SQLite file and a PostgreSQL server of its own (`benchmarks.million`), then asks each page's fragment and the
API's lists in process, through the ASGI app: `cold` is the first answer, `p50`, `p95` and `worst` are of the rounds
after it, with the counts that pages keep for two seconds thrown away before each. `cpu` is the median of what this
process computed for one: on a busy machine it says more than the clock (PostgreSQL's own work is not in it). At last
claims are timed: alone; while ten readers (`--readers`) go through the pages without a pause, in a process of their own
as with `treadle web`, or in this one on a loop in a thread as with `treadle worker --web`; and while they ask for what
no index has.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from tests import postgres_server

from benchmarks import million
from treadle import App
from treadle.runtime import loops
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import want
from treadle.testing.conformance.steps import a_live_pod
from treadle.web import Access, Dashboard
from treadle.web.server import yield_soon

PAGES = (
    "/",
    "/jobs",
    "/jobs?filter=state:ready",
    "/jobs?filter=state:ready+queue:mail",
    "/jobs?filter=state:scheduled",
    "/jobs?filter=is:retrying",
    "/jobs?filter=is:retrying+queue:mail",
    "/jobs?filter=state:running",
    "/jobs?filter=state:failed",
    "/jobs?filter=state:failed+finished:<1h",
    "/jobs?filter=queue:audit",
    "/jobs?filter=tag:batch77",
    "/jobs?filter=id:{id}",
    "/jobs/{id}",
    "/failures",
    "/queues",
    "/queues/mail",
    "/pods",
    "/schedules",
    "/performance",
    "/limits",
    "/operations",
    "/system",
    "/api/v1/jobs?total=false",
    "/api/v1/jobs?filter=state:scheduled&order=due",
    "/api/v1/jobs?filter=is:retrying&order=due",
    "/api/v1/jobs?filter=queue:mail",
    "/api/v1/queues",
    "/api/v1/failures",
)
# No index has these: they may take a second, and say how far they have looked.
OTHERS = (
    "/jobs?filter=task:task3",
    "/jobs?filter=created:<1h",
    "/jobs?filter=args.amount:77",
    "/jobs?filter=error:refused",
    "/jobs?filter=reason:never",
)
BUDGET = 0.050
CLAIMS = 200


def percentile(found: Sequence[float], share: float) -> float:
    return sorted(found)[min(len(found) - 1, int(len(found) * share))] * 1e3


class Reader:
    """Asks pages in process, as a script does that refreshes them."""

    def __init__(self, app: App, ids: Sequence[str]) -> None:
        self._web = Dashboard(app, access=lambda request: Access("bench", "admin"))
        transport = httpx.ASGITransport(self._web)
        self._http = httpx.AsyncClient(transport=transport, base_url="http://localhost", headers={"HX-Request": "true"})
        self._ids = ids
        self._chance = random.Random(7)

    async def ask(self, path: str) -> tuple[float, float]:
        """How long it took, and how long we computed."""
        self._web.counts.forget()
        begun, computed = time.perf_counter(), time.process_time()
        answer = await self._http.get(path.replace("{id}", self._chance.choice(self._ids)))
        took = time.perf_counter() - begun, time.process_time() - computed
        assert answer.status_code == 200, (path, answer.text[:300])
        return took

    async def is_shown(self, path: str) -> bool:
        """As with everybody's browser: what another has just counted is not counted again."""
        answer = await self._http.get(path.replace("{id}", self._chance.choice(self._ids)))
        return answer.status_code == 200


async def measure(reader: Reader, rounds: int) -> None:
    print(f"  {'':52} {'cold':>8} {'p50':>8} {'p95':>8} {'worst':>8} {'cpu':>8}  ms")
    for path in (*PAGES, *OTHERS):
        cold, _ = await reader.ask(path)
        both = [await reader.ask(path) for _ in range(rounds)]
        times, cpu = [took for took, _ in both], statistics.median(each for _, each in both) * 1e3
        p50, p95, worst = statistics.median(times) * 1e3, percentile(times, 0.95), max(times) * 1e3
        mark = "  no index" if path in OTHERS else "  over 50 ms" if p95 > BUDGET * 1e3 else ""
        print(f"  {path:52} {cold * 1e3:8.1f} {p50:8.1f} {p95:8.1f} {worst:8.1f} {cpu:8.1f}{mark}", flush=True)


async def claims(storage: Any) -> list[float]:
    """One claim after another, of ten jobs each, as a pod with ten slots makes them."""
    pod = await a_live_pod(storage, lease=600.0)
    wanted = want(queue="bulk", limit=10, tasks=[f"task{n}" for n in range(12)])
    times = list[float]()
    for _ in range(CLAIMS):
        begun = time.perf_counter()
        claimed = await storage.claim(pod, secrets.token_hex(8), [wanted])
        if not claimed.jobs:
            break  # there were few
        times.append(time.perf_counter() - begun)
        await asyncio.sleep(0.01)
    return times


async def go_through(app: App, paths: Sequence[str], readers: int, is_over: Callable[[], bool]) -> str:
    """Page after page, so many readers at once, each from another page on. Answers with how many pages they had."""
    reader = Reader(app, [job.id for job in (await app.jobs.find("", limit=50)).jobs])

    async def one(first: int) -> list[bool]:
        had: list[bool] = []
        while not is_over():
            had.append(await reader.is_shown(paths[(first + len(had)) % len(paths)]))
        return had

    had = [page for pages in await asyncio.gather(*(one(n * 3) for n in range(readers))) for page in pages]
    return f"{len(had)} pages, {had.count(False)} of them refused"


async def hammer(url: str, readers: int) -> None:
    """Until somebody closes our input."""
    over = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    async with App(url) as app:
        print(await go_through(app, PAGES, readers, over.done))


async def claims_beside_a_process(app: App, url: str, readers: int) -> tuple[list[float], str]:
    pipe = asyncio.subprocess.PIPE
    program = (sys.executable, "-m", "benchmarks.dashboard", "--hammer", url, "--readers", str(readers))
    other = await asyncio.create_subprocess_exec(*program, stdin=pipe, stdout=pipe)
    await asyncio.sleep(3.0)
    found = await claims(app.storage)
    said, _ = await other.communicate(b"")
    return found, said.decode().strip()


async def claims_beside_a_thread(app: App, paths: Sequence[str], readers: int) -> tuple[list[float], str]:
    over = threading.Event()
    asked: list[str] = []
    # As `treadle worker --web` does it.
    others = threading.Thread(
        target=lambda: asked.append(asyncio.run(go_through(app, paths, readers, over.is_set))), daemon=True
    )
    before = sys.getswitchinterval()
    yield_soon()
    others.start()
    await asyncio.sleep(1.0)
    try:
        found = await claims(app.storage)
    finally:
        over.set()
        await asyncio.to_thread(others.join)
        sys.setswitchinterval(before)
    return found, asked[0]


async def measure_claims(app: App, url: str, readers: int) -> None:
    told(await claims(app.storage), "alone")
    who = f"{readers} readers"
    found, asked = await claims_beside_a_process(app, url, readers)
    told(found, f"beside {who} in another process ({asked})")
    found, asked = await claims_beside_a_thread(app, PAGES, readers)
    told(found, f"beside {who} in this process ({asked})")
    found, asked = await claims_beside_a_thread(app, OTHERS, readers)
    told(found, f"beside {who} in this process, of what no index has ({asked})")


def told(found: Sequence[float], name: str) -> None:
    numbers = f"p50 {percentile(found, 0.5):.1f}, p95 {percentile(found, 0.95):.1f}, worst {max(found) * 1e3:.1f} ms"
    print(f"  claims of ten jobs, {name}: {numbers}", flush=True)


@asynccontextmanager
async def filled(storage: str, folder: Path, jobs: int) -> AsyncGenerator[str]:
    """The URL of a storage that has the jobs."""
    now = time.time()
    if storage == "sqlite":
        made = SQLiteStorage(folder / "dashboard.db")
        await made.open()
        await made.close()
        await asyncio.to_thread(million.into_sqlite, made.path, jobs, now)
        yield f"sqlite:///{made.path}"
        return
    with postgres_server.a_server(shared_buffers="512MB") as server:
        schema = PostgresStorage(server.url, schema="treadle", auto_migrate=True)
        await schema.open()
        await schema.close()
        db = await asyncpg.connect(server.url)
        await million.into_postgres(db, "treadle", jobs, now)
        await db.close()
        yield server.url


async def on(storage: str, jobs: int, rounds: int, readers: int) -> None:
    print(f"{storage}: {jobs:,} jobs; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        async with filled(storage, Path(folder), jobs) as url, App(url) as app:
            ids = [job.id for job in (await app.jobs.find("", limit=200)).jobs]
            loops.calm_collector()  # as `treadle web` does
            await measure(Reader(app, ids), rounds)
            await measure_claims(app, url, readers)


def arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--readers", type=int, default=10)
    parser.add_argument("--storage", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--hammer", metavar="URL", help=argparse.SUPPRESS)
    return parser.parse_args()


async def main() -> None:
    given = arguments()
    if given.hammer:
        await hammer(given.hammer, given.readers)
        return
    for storage in ("sqlite", "postgres") if given.storage == "both" else (given.storage,):
        await on(storage, given.jobs, given.rounds, given.readers)


if __name__ == "__main__":
    asyncio.run(main())
