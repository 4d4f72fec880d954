"""Dramatiq on Redis, with its own command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from .producing import Arguments, ThreadProducer
from .redis import RedisPeer

THREADS = 8  # its default


class Dramatiq(RedisPeer):
    name = "dramatiq"
    title = "Dramatiq"
    module = "dramatiq"
    requirements = ("dramatiq[redis]==2.2.1", "redis==8.1.0", "hiredis==3.5.0")
    left = (("hlen", "dramatiq:default.msgs"),)
    share = 0.1
    does = RedisPeer.does - {"naps-1000"}  # a thread a slot

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": f"`dramatiq --processes 1 --threads {THREADS} --skip-logging`; its own middleware; no results",
            "producer": "`send`, one by one: its groups do the same",
            "job": "def, no-op",
        }

    def worker(self, queues: dict[str, int]) -> list[str]:
        return self.slotted(THREADS)

    def slotted(self, slots: int) -> list[str]:
        module = "benchmarks.peers.dramatiq_jobs"
        return [self.command("dramatiq"), module, "--processes", "1", "--threads", str(slots), "--skip-logging"]

    @contextlib.contextmanager
    def producer(self) -> Iterator[DramatiqProducer]:
        yield DramatiqProducer()


class DramatiqProducer(ThreadProducer):
    def __init__(self) -> None:
        from . import dramatiq_jobs

        self._jobs: Any = dramatiq_jobs

    def one(self, task: str, arguments: Arguments) -> None:
        getattr(self._jobs, task).send(**arguments)

    def many(self, task: str, every: Iterator[Arguments]) -> int:
        sent, send = 0, getattr(self._jobs, task).send
        for each in every:
            send(**each)
            sent += 1
        return sent


peer = Dramatiq()
