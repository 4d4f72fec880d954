"""Wakes: hints that something may have changed. Late or doubled is fine; here, none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import pytest

from ...core import lifecycle
from ...core.outcome import Interrupted, Succeeded
from ...ports import Storage, Wake
from .builders import a_job
from .steps import Cases, a_live_pod, edit, end, put, start, write

# How long a wake is waited for before it counts as lost.
PATIENCE: Final = 5.0
patience: Final = ContextVar("patience", default=PATIENCE)


class Ear:
    """Listens, and can wait until it has heard what it waits for."""

    def __init__(self, storage: Storage) -> None:
        self.heard: list[Wake] = []
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self.stop = storage.listen(self._on_wake)

    def _on_wake(self, wake: Wake) -> None:
        self.heard.append(wake)
        self._loop.call_soon_threadsafe(self._changed.set)

    async def hears(self, what: Callable[[Wake], bool]) -> bool:
        try:
            async with asyncio.timeout(patience.get()):
                while not any(what(wake) for wake in self.heard):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def hears_of(self, queue: str) -> bool:
        return await self.hears(lambda wake: not wake.queues or queue in wake.queues)


class Wakes(Cases):
    async def test_a_listener_hears_of_inserted_jobs(self, storage: Storage) -> None:
        ear = Ear(storage)
        await put(storage, queue="mail")
        assert await ear.hears_of("mail")
        ear.stop()

    async def test_a_listener_hears_of_what_a_thread_inserts_by_itself(self, storage: Storage) -> None:
        if not storage.capabilities.waits:
            pytest.skip("needs the capability: waits")
        ear = Ear(storage)
        await asyncio.to_thread(storage.insert_sync, [a_job(queue="mail")])
        assert await ear.hears_of("mail")
        ear.stop()

    async def test_a_listener_hears_of_every_queue_of_a_batch(self, storage: Storage) -> None:
        ear = Ear(storage)
        await put(storage, a_job(queue="a"), a_job(queue="b"), a_job(queue="b"))
        assert await ear.hears_of("a")
        assert await ear.hears_of("b")
        ear.stop()

    async def test_a_listener_hears_of_ended_jobs(self, storage: Storage) -> None:
        job = await start(storage)
        ear = Ear(storage)
        await end(storage, job, Succeeded())
        assert await ear.hears(lambda wake: job.id in wake.ended)
        ear.stop()

    async def test_a_listener_hears_of_wanted_cancels(self, storage: Storage) -> None:
        job = await start(storage)
        ear = Ear(storage)
        await write(storage, lifecycle.cancel(job))
        assert await ear.hears(lambda wake: wake.cancels)
        ear.stop()

    async def test_a_listener_hears_of_released_jobs(self, storage: Storage) -> None:
        job = await start(storage, queue="mail")
        ear = Ear(storage)
        await end(storage, job, Interrupted())
        assert await ear.hears_of("mail")
        ear.stop()

    async def test_a_listener_hears_of_follow_ups(self, storage: Storage) -> None:
        job = await start(storage)
        ear = Ear(storage)
        await end(storage, job, Succeeded(follow_ups=(a_job(queue="next"),)))
        assert await ear.hears_of("next")
        ear.stop()

    async def test_a_listener_hears_of_a_resumed_queue(self, storage: Storage) -> None:
        await edit(storage, "mail", paused=True)
        ear = Ear(storage)
        await edit(storage, "mail", paused=False)
        assert await ear.hears_of("mail")
        ear.stop()

    async def test_a_listener_hears_a_wake(self, storage: Storage) -> None:
        ear = Ear(storage)
        await storage.wake(["mail"])
        assert await ear.hears_of("mail")
        ear.stop()

    async def test_every_listener_hears(self, storage: Storage) -> None:
        ears = [Ear(storage) for _ in range(3)]
        await put(storage, queue="mail")
        for ear in ears:
            assert await ear.hears_of("mail")
            ear.stop()

    async def test_who_stopped_listening_hears_nothing(self, storage: Storage) -> None:
        stopped, other = Ear(storage), Ear(storage)
        stopped.stop()
        await put(storage, queue="mail")
        assert await other.hears_of("mail")
        assert stopped.heard == []
        other.stop()

    async def test_stopping_twice_is_no_error(self, storage: Storage) -> None:
        ear = Ear(storage)
        ear.stop()
        ear.stop()
        await a_live_pod(storage)
        assert ear.heard == []
