"""Treadle on SQLite, at its defaults: synchronous=FULL."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from . import TALLY, pace

APP = "benchmarks.peers.treadle_jobs:app"
SETTLE = 1.0


class TreadleSQLite:
    name = "treadle-sqlite"
    title = "Treadle on SQLite"
    module = "treadle"
    does = frozenset({
        "drain", "drain-backlog", "drain-two", "bulk", "callers-100", "caller-1", "pickup-same", "pickup-across",
        "idle", "idle-50", "import",
    })  # fmt: skip
    share = 1.0
    stop = signal.SIGTERM
    python = sys.executable
    requirements = ()

    def settings(self) -> dict[str, str]:
        return {
            "version": metadata.version("treadle"),
            "durability": "WAL, synchronous=FULL (the default)",
            "worker": "`treadle worker -q default:SLOTS --log-level warning`, one process",
            "job": "async def, no-op",
        }

    def environ(self, place: Path) -> dict[str, str]:
        return {"TREADLE_URL": f"sqlite:///{self.database(place)}", TALLY: str(place / "tally")}

    def create(self, place: Path) -> None:
        from treadle import App

        async def open_once() -> None:
            async with App(self.environ(place)["TREADLE_URL"]):
                pass

        asyncio.run(open_once())

    def database(self, place: Path) -> Path:
        return place / "treadle.db"

    def worker(self, queues: dict[str, int]) -> list[str]:
        served = ",".join(f"{name}:{slots}" for name, slots in queues.items())
        return [sys.executable, "-m", "treadle.cli", "worker", "-A", APP, "-q", served, "--log-level", "warning"]

    def unfinished(self, place: Path) -> int:
        with contextlib.closing(sqlite3.connect(self.database(place))) as db:
            (count,) = db.execute(
                "select (select count(*) from treadle_job where state = 'running') + "
                "(select count(*) from treadle_job where state = 'ready' and queue = 'default' and task = ? "
                "and priority = 0 and run_at <= ?)",
                ("noop", time.time()),
            ).fetchone()
        return int(count)

    def backlog(self, place: Path, scheduled: int, finished: int) -> None:
        """Of the same queue, task and priority as the jobs that will be drained: nothing keeps them apart but time."""
        with contextlib.closing(sqlite3.connect(self.database(place), isolation_level=None)) as db:
            db.execute("pragma synchronous = off")
            db.execute("pragma cache_size = -1000000")
            for count, base, state, rows in (
                (finished, 1 << 36, "succeeded", "'pod', 'token', 'token', ?2 - 3600, ?2 - 3600 + n * 1e-3"),
                (scheduled, 1 << 37, "ready", "null, null, null, null, null"),
            ):
                db.execute("begin immediate")
                db.execute(
                    f"""
                    with recursive counted (n) as (select 1 union all select n + 1 from counted where n < ?1)
                    insert into treadle_job (
                        id, queue, task, state, priority, run_at, created_at, attempt, format, args,
                        pod, token, finished_token, started_at, finished_at
                    )
                    select
                        printf('018f%04x-%04x-7000-8000-%012x', (?3 + n) >> 24, ((?3 + n) >> 8) & 65535, n),
                        'default', ?4, '{state}', 0, ?2 + (86400 + n * 1e-3) * {int(state == "ready")}, ?2 - 7200, 1,
                        1, '{{"number":' || n || '}}', {rows}
                    from counted
                    """,
                    (count, time.time(), base, "noop"),
                )
                db.execute("commit")
            db.execute("pragma wal_checkpoint(truncate)")

    @contextlib.contextmanager
    def producer(self) -> Iterator[TreadleProducer]:
        with asyncio.Runner() as runner:
            producer = TreadleProducer(runner)
            runner.run(producer.open())
            yield producer
            runner.run(producer.close())


class TreadleProducer:
    def __init__(self, runner: asyncio.Runner) -> None:
        from . import treadle_jobs

        self._jobs = treadle_jobs
        self._runner = runner

    async def open(self) -> None:
        await self._jobs.app.open()

    async def close(self) -> None:
        await self._jobs.app.close()

    def bulk(self, jobs: int) -> int:
        async def send() -> int:
            return len(await self._jobs.app.enqueue_many(self._jobs.noop.bind(n) for n in range(jobs)))

        return self._runner.run(send())

    def callers(self, callers: int, seconds: float) -> int:
        async def call() -> int:
            count = 0
            while time.monotonic() < until:
                await self._jobs.noop.enqueue(count)
                count += 1
            return count

        async def all_calls() -> int:
            return sum(await asyncio.gather(*(call() for _ in range(callers))))

        until = time.monotonic() + seconds
        return self._runner.run(all_calls())

    def paced(self, jobs: int, rate: float) -> int:
        return self._runner.run(self._paced(jobs, rate))

    def beside_worker(self, jobs: int, rate: float, slots: int) -> int:
        async def work() -> int:
            async with self._jobs.app.worker(queues={"default": slots}):
                await asyncio.sleep(SETTLE)
                sent = await self._paced(jobs, rate)
                await asyncio.sleep(SETTLE)
            return sent

        return self._runner.run(work())

    async def _paced(self, jobs: int, rate: float) -> int:
        for wait in pace.waits(jobs, rate):
            await asyncio.sleep(wait)
            await self._jobs.stamp.enqueue(time.monotonic_ns())
        return jobs


peer = TreadleSQLite()
