"""What a job takes with it when it is moved, and what it must not be hidden by."""

from __future__ import annotations

import asyncio

from ...core import lifecycle
from ...core.job import State
from ...core.outcome import Succeeded
from ...ports import Inserted, Storage
from ..clock import FakeClock
from .builders import a_unique_job, want
from .signals import PATIENCE, Ear
from .steps import Cases, a_live_pod, end, look, put, start, take, write


class Moved(Cases):
    async def test_a_moved_job_still_falls_due(self, storage: Storage, clock: FakeClock) -> None:
        id = await put(storage, delay=60.0)
        await write(storage, lifecycle.move(await look(storage, id), "bulk"))
        await write(storage, lifecycle.set_priority(await look(storage, id), 3))
        clock.advance(61)
        assert (await look(storage, id)).state is State.READY

    async def test_a_moved_job_keeps_its_unique_key(self, storage: Storage) -> None:
        id = await put(storage, a_unique_job())
        await write(storage, lifecycle.move(await look(storage, id), "bulk"))
        assert list(await storage.insert([a_unique_job()])) == [Inserted(id, "duplicate")]

    async def test_a_job_moved_behind_later_claims_is_claimed_all_the_same(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        """Its time is older than what was last claimed there: no mark of how far the claims have come may hide it."""
        pod = await a_live_pod(storage)
        late = await put(storage, queue="slow")
        clock.advance(2)
        for _ in range(3):
            await end(storage, await start(storage, pod, queue="bulk", priority=3), Succeeded())
        await write(storage, lifecycle.move(await look(storage, late), "bulk"))
        await write(storage, lifecycle.set_priority(await look(storage, late), 3))
        async with asyncio.timeout(PATIENCE):  # a storage may keep such a mark for a second or so
            while not (jobs := await take(storage, pod, want("bulk"))):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert [job.id for job in jobs] == [late]

    async def test_a_move_wakes_the_new_queue(self, storage: Storage) -> None:
        id = await put(storage)
        ear = Ear(storage)
        await write(storage, lifecycle.move(await look(storage, id), "bulk"))
        assert await ear.hears_of("bulk")
        ear.stop()
