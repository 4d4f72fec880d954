"""What producers have in common: callers, pace and steadiness, made of two calls that each peer has in its own way.

A job is a task's name and its arguments. The tasks are the same for all: `noop` counts, `stamp` tells when it was sent,
`nap` sleeps for ten milliseconds, `fail` raises every second time and is not tried again, `carry` has a payload.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

from . import pace

NAP = 0.01
IN_FLIGHT = 1000  # enqueues at once of a steady stream; an enqueue that is slower than the stream slows it
LINGER = 0.02  # a server's loop goes on after a job was enqueued, and may have to tell of it
SENDERS = 16  # the same, where every one takes a thread

Arguments = dict[str, Any]


def calls(jobs: int, size: int) -> Iterator[Arguments]:
    """The arguments of so many jobs, with a payload of so many bytes."""
    if not size:
        return ({"number": number} for number in range(jobs))
    pad = "x" * size
    return ({"number": number, "pad": pad} for number in range(jobs))


class AsyncProducer(ABC):
    """For libraries whose calls are awaited."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def __enter__(self) -> Self:
        self._runner.run(self.open())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self.close())

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def one(self, task: str, arguments: Arguments) -> None:
        """One job, committed at the return."""

    @abstractmethod
    async def many(self, task: str, every: Iterator[Arguments]) -> int:
        """Many, by the call that the library has for it."""

    def alone(self) -> None:  # noqa: B027 (most have nothing to choose)
        """The next calls come from one caller, one after the other: for those who would use another connection."""

    def together(self) -> None:  # noqa: B027
        """The next calls come from many callers at once."""

    def bulk(self, jobs: int, task: str = "noop", size: int = 0) -> int:
        return self._runner.run(self.many(task, calls(jobs, size)))

    def callers(self, callers: int, seconds: float) -> int:
        async def call() -> int:
            count = 0
            while time.monotonic() < until:
                await self.one("noop", {"number": count})
                count += 1
            return count

        async def all_calls() -> int:
            return sum(await asyncio.gather(*(call() for _ in range(callers))))

        self.alone() if callers == 1 else self.together()
        until = time.monotonic() + seconds
        return self._runner.run(all_calls())

    def blocking(self, seconds: float) -> int:
        raise NotImplementedError

    def paced(self, jobs: int, rate: float) -> int:
        self.alone()
        return self._runner.run(self.send_paced(jobs, rate))

    async def send_paced(self, jobs: int, rate: float) -> int:
        for wait in pace.waits(jobs, rate):
            await asyncio.sleep(wait)
            await self.one("stamp", {"sent": time.monotonic_ns()})
        return jobs

    def steady(self, jobs: int, rate: float) -> int:
        self.together()
        return self._runner.run(self._steady(jobs, rate))

    async def _steady(self, jobs: int, rate: float) -> int:
        """Every job at its instant, whether or not those before it have been committed, and none after the end."""
        places = asyncio.Semaphore(IN_FLIGHT)
        under_way: set[asyncio.Task[None]] = set()
        began, sent = time.monotonic(), 0

        async def send() -> None:
            try:
                await self.one("stamp", {"sent": time.monotonic_ns()})
            finally:
                places.release()

        while sent < jobs and time.monotonic() - began < jobs / rate:
            if (wait := began + sent / rate - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            await places.acquire()
            task = asyncio.ensure_future(send())
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            sent += 1
        await asyncio.gather(*under_way)
        await asyncio.sleep(LINGER)
        return sent

    def beside_worker(self, jobs: int, rate: float, slots: int) -> int:
        raise NotImplementedError


class ThreadProducer(ABC):
    """For libraries whose calls block: callers are threads."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return

    @abstractmethod
    def one(self, task: str, arguments: Arguments) -> None: ...

    @abstractmethod
    def many(self, task: str, every: Iterator[Arguments]) -> int: ...

    def bulk(self, jobs: int, task: str = "noop", size: int = 0) -> int:
        return self.many(task, calls(jobs, size))

    def callers(self, callers: int, seconds: float) -> int:
        counts = [0] * callers
        until = time.monotonic() + seconds

        def call(number: int) -> None:
            while time.monotonic() < until:
                self.one("noop", {"number": number})
                counts[number] += 1

        if callers == 1:
            call(0)
        else:
            _in_threads(callers, call)
        return sum(counts)

    def blocking(self, seconds: float) -> int:
        return self.callers(1, seconds)

    def paced(self, jobs: int, rate: float) -> int:
        for wait in pace.waits(jobs, rate):
            time.sleep(wait)
            self.one("stamp", {"sent": time.monotonic_ns()})
        return jobs

    def steady(self, jobs: int, rate: float) -> int:
        numbers, counts = itertools.count(), [0] * SENDERS
        began = time.monotonic()

        def send(sender: int) -> None:
            # `next` of a count is one step of the interpreter: no number goes to two threads.
            while (number := next(numbers)) < jobs and time.monotonic() - began < jobs / rate:
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
                self.one("stamp", {"sent": time.monotonic_ns()})
                counts[sender] += 1

        _in_threads(SENDERS, send)
        return sum(counts)

    def beside_worker(self, jobs: int, rate: float, slots: int) -> int:
        raise NotImplementedError


def _in_threads(count: int, run: Any) -> None:
    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
