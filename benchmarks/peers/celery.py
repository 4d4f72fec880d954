"""Celery on Redis, with its own command and what its page on optimising says: no results, no gossip, long prefetch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .producing import Arguments, ThreadProducer
from .redis import RedisPeer

CHILDREN = 2  # its default is one for a core
PREFETCH = 128


class Celery(RedisPeer):
    name = "celery"
    title = "Celery on Redis"
    module = "celery"
    requirements = ("celery[redis]==5.7.0", "redis==8.1.0", "hiredis==3.5.0")
    left = (("llen", "default"), ("hlen", "unacked"))
    share = 0.05
    does = RedisPeer.does - {"naps-1000"}  # a thread a slot

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`celery worker --pool prefork -c {CHILDREN}` (a parent and {CHILDREN} children), prefetch "
            f"multiplier {PREFETCH}, without gossip, mingle and heartbeat, no results, log level warning; for naps "
            "`--pool threads`",
            "producer": "`apply_async`, one by one: its groups do the same",
            "job": "def, no-op",
        }

    def worker(self, queues: dict[str, int]) -> list[str]:
        return self._worker("prefork", CHILDREN, PREFETCH)

    def slotted(self, slots: int) -> list[str]:
        return self._worker("threads", slots, 4)

    def _worker(self, pool: str, slots: int, prefetch: int) -> list[str]:
        command = [
            self.command("celery"),
            "-A",
            "benchmarks.peers.celery_jobs:app",
            "--quiet",
            "worker",
            "-Q",
            "default",
        ]
        without = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        # Every worker needs a name of its own; %n and %h are Celery's.
        name = ["-n", f"bench-{id(object()):x}@%h"]
        options = ["--pool", pool, "-c", str(slots), "--prefetch-multiplier", str(prefetch), "-l", "WARNING"]
        return [*command, *options, *without, *name]

    @contextlib.contextmanager
    def producer(self) -> Iterator[CeleryProducer]:
        yield CeleryProducer()


class CeleryProducer(ThreadProducer):
    def __init__(self) -> None:
        from . import celery_jobs

        self._jobs: Any = celery_jobs

    def one(self, task: str, arguments: Arguments) -> None:
        getattr(self._jobs, task).apply_async(kwargs=arguments)

    def many(self, task: str, every: Iterator[Arguments]) -> int:
        sent = 0
        for each in every:
            self.one(task, each)
            sent += 1
        return sent


peer = Celery()
