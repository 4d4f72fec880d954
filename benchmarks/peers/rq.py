"""RQ, with its own command and the worker that does not fork for every job."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .producing import Arguments, ThreadProducer
from .redis import URL, RedisPeer

BULK = 1_000


class RQ(RedisPeer):
    name = "rq"
    title = "RQ"
    module = "rq"
    requirements = ("rq==2.12.0", "redis==8.1.0", "hiredis==3.5.0")
    left = (("llen", "rq:queue:default"), ("zcard", "rq:wip:default"))
    share = 0.02
    # One job at a time: there are no slots to choose.
    does = RedisPeer.does - {"naps-10", "naps-100", "naps-1000"}

    def settings(self) -> dict[str, str]:
        return {
            "version": ", ".join(self.requirements).replace("==", " "),
            "worker": "`rq worker -w rq.worker.SimpleWorker -q --disable-job-desc-logging`: no fork for a job; results "
            "kept for no time (result_ttl=0); one process, one job at a time",
            "producer": f"`enqueue_many` of {BULK:,} each; `enqueue`",
            "job": "def, no-op",
        }

    def worker(self, queues: dict[str, int]) -> list[str]:
        options = ["-w", "rq.worker.SimpleWorker", "-q", "--disable-job-desc-logging"]
        return [self.command("rq"), "worker", *options, "default"]

    def environ(self, place: Path) -> dict[str, str]:
        own = super().environ(place)
        return own | {"RQ_REDIS_URL": own[URL]}

    @contextlib.contextmanager
    def producer(self) -> Iterator[RQProducer]:
        yield RQProducer()


class RQProducer(ThreadProducer):
    def __init__(self) -> None:
        import redis
        from rq import Queue

        self._queue: Any = Queue("default", connection=redis.Redis.from_url(os.environ[URL]))
        self._data: Any = Queue.prepare_data

    def one(self, task: str, arguments: Arguments) -> None:
        self._queue.enqueue(_path(task), kwargs=arguments, result_ttl=0)

    def many(self, task: str, every: Iterator[Arguments]) -> int:
        sent = 0
        while batch := [each for _, each in zip(range(BULK), every, strict=False)]:
            self._queue.enqueue_many([self._data(_path(task), kwargs=each, result_ttl=0) for each in batch])
            sent += len(batch)
        return sent


def _path(task: str) -> str:
    return f"benchmarks.peers.rq_jobs.{task}"


peer = RQ()
