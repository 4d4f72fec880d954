"""Huey on Redis, with its own consumer. As on SQLite a job is off the list when it starts, and nothing says its end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

from .huey_sqlite import HueyProducer
from .redis import RedisPeer

THREADS = 8  # every one waits for its own answer of Redis


class HueyRedis(RedisPeer):
    name = "huey-redis"
    title = "Huey on Redis"
    module = "huey"
    requirements = ("huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0")
    left = (("llen", "huey.redis.bench"),)
    share = 0.15
    stop = signal.SIGINT
    does = RedisPeer.does - {"naps-1000"}  # a thread a slot

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`huey_consumer -k thread -w {THREADS} -q -n`, one process; blocking reads, its default",
            "producer": "`.map`, which enqueues one by one; a call",
            "job": "def, no-op",
        }

    def worker(self, queues: dict[str, int]) -> list[str]:
        return self.slotted(THREADS)

    def slotted(self, slots: int) -> list[str]:
        consumer = self.command("huey_consumer")
        return [consumer, "benchmarks.peers.huey_jobs.huey", "-k", "thread", "-w", str(slots), "-q", "-n"]

    @contextlib.contextmanager
    def producer(self) -> Iterator[HueyProducer]:
        yield HueyProducer()


peer = HueyRedis()
