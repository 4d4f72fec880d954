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

from . import COMMON, TALLY
from .producing import Arguments, AsyncProducer

APP = "benchmarks.peers.treadle_jobs:app"
SETTLE = 1.0


class TreadleSQLite:
    name = "treadle-sqlite"
    title = "Treadle on SQLite"
    module = "treadle"
    does = COMMON | {"drain-backlog", "caller-1-sync", "pickup-same", "pickup-across", "idle-50"}
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

    def slotted(self, slots: int) -> list[str]:
        return self.worker({"default": slots})

    def unfinished(self, place: Path) -> int:
        with contextlib.closing(sqlite3.connect(self.database(place))) as db:
            (count,) = db.execute(
                "select (select count(*) from treadle_job where state = 'running') + "
                "(select count(*) from treadle_job where state = 'ready' and queue = 'default' "
                "and task in ('noop', 'stamp', 'nap', 'fail', 'carry') "
                "and priority = 0 and run_at <= ?)",
                (time.time(),),
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
        with asyncio.Runner() as runner, TreadleProducer(runner) as producer:
            yield producer


class TreadleProducer(AsyncProducer):
    def __init__(self, runner: asyncio.Runner) -> None:
        super().__init__(runner)
        from . import treadle_jobs

        self._jobs = treadle_jobs

    async def open(self) -> None:
        await self._jobs.app.open()

    async def close(self) -> None:
        await self._jobs.app.close()

    async def one(self, task: str, arguments: Arguments) -> None:
        await getattr(self._jobs, task).enqueue(**arguments)

    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        bind = getattr(self._jobs, task).bind
        return len(await self._jobs.app.enqueue_many(bind(**each) for each in every))

    def blocking(self, seconds: float) -> int:
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            self._jobs.noop.enqueue_sync(count)
            count += 1
        return count

    def beside_worker(self, jobs: int, rate: float, slots: int) -> int:
        async def work() -> int:
            async with self._jobs.app.worker(queues={"default": slots}):
                await asyncio.sleep(SETTLE)
                sent = await self.send_paced(jobs, rate)
                await asyncio.sleep(SETTLE)
            return sent

        return self._runner.run(work())


peer = TreadleSQLite()
