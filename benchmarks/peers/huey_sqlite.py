"""Huey on SQLite, with its fsync on and its own consumer, set for throughput.

`fsync=True` is `pragma synchronous=FULL`, the same promise as ours: what was enqueued survives power loss. (Its
default leaves the pragma alone, which is FULL as well unless SQLite was built otherwise.) Huey takes a job off the
table when it starts and does not write that it ended: a consumer that dies loses the jobs it was running, and one
commit a job is all it has to pay. Results are stored only if they are not None.
"""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from . import COMMON, TALLY
from .producing import Arguments, ThreadProducer

# One thread: all threads of a consumer share one connection and one lock, so that more of them only wait for it.
# Measured here, jobs/s: 1 thread 3,360–3,880, 2 threads 2,540–2,790, 10 threads 2,110–2,700, 1 process 3,380–3,520.
WORKERS = "1"


class HueySQLite:
    name = "huey-sqlite"
    title = "Huey on SQLite"
    module = "huey"
    does = (COMMON | {"caller-1-sync", "pickup-across"}) - {"naps-1000", "steady-5000"}
    share = 0.08
    stop = signal.SIGINT
    python = sys.executable
    requirements = ()

    def settings(self) -> dict[str, str]:
        return {
            "version": metadata.version("huey"),
            "durability": "SqliteHuey(fsync=True, journal_mode='wal'): WAL, synchronous=FULL",
            "worker": f"`huey_consumer -k thread -w {WORKERS} -q -n`, one process; polling at its defaults",
            "job": "def, no-op",
        }

    def environ(self, place: Path) -> dict[str, str]:
        return {"BENCH_HUEY_FILE": str(self.database(place)), TALLY: str(place / "tally")}

    def create(self, place: Path) -> None:
        from huey import SqliteHuey

        SqliteHuey("bench", filename=str(self.database(place)), fsync=True).storage.close()

    def database(self, place: Path) -> Path:
        return place / "huey.db"

    def worker(self, queues: dict[str, int]) -> list[str]:
        return self.slotted(int(WORKERS))

    def slotted(self, slots: int) -> list[str]:
        consumer = Path(self.python).with_name("huey_consumer")
        return [str(consumer), "benchmarks.peers.huey_jobs.huey", "-k", "thread", "-w", str(slots), "-q", "-n"]

    def unfinished(self, place: Path) -> int:
        with contextlib.closing(sqlite3.connect(self.database(place))) as db:
            return int(db.execute("select count(*) from task").fetchone()[0])

    def backlog(self, place: Path, scheduled: int, finished: int) -> None:
        raise NotImplementedError("Huey keeps no finished jobs")

    @contextlib.contextmanager
    def producer(self) -> Iterator[HueyProducer]:
        yield HueyProducer()


class HueyProducer(ThreadProducer):
    def __init__(self) -> None:
        from . import huey_jobs

        self._jobs = huey_jobs
        _ = huey_jobs.huey.storage.conn  # open

    def one(self, task: str, arguments: Arguments) -> None:
        getattr(self._jobs, task)(**arguments)

    def many(self, task: str, every: Iterator[Arguments]) -> int:
        """`.map` is what it has; it enqueues one by one."""
        return len(getattr(self._jobs, task).map(tuple(each.values()) for each in every))


peer = HueySQLite()
