"""Clocks that step and machines that start again."""

from __future__ import annotations

from ...core.job import State
from ...core.outcome import Succeeded
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, near, only
from .steps import Cases, a_live_pod, end, put, rescue, start, take


class Time(Cases):
    async def test_a_wall_clock_that_jumps_ahead_ends_no_lease(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.step_wall(10 * LEASE)
        assert list(await storage.abandoned(10, 30.0)) == []
        await put(storage)
        assert len(await take(storage, job.pod or "")) == 1

    async def test_a_wall_clock_that_falls_back_prolongs_no_lease(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.step_wall(-10 * LEASE)
        clock.advance(LEASE + 1)
        assert [found.job.id for found in await storage.abandoned(10, 30.0)] == [job.id]
        assert (await rescue(storage, job)).state is State.READY

    async def test_a_beat_after_a_step_of_the_wall_clock_renews_for_the_whole_lease(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        id = await a_live_pod(storage)
        clock.step_wall(-5 * LEASE)
        await storage.beat(id, LEASE, [])
        clock.advance(LEASE - 1)
        pod = only(await storage.pods())
        assert pod.live
        assert near(pod.lease_left, 1)

    async def test_a_step_of_the_wall_clock_ends_no_leadership(self, storage: Storage, clock: FakeClock) -> None:
        one, other = await a_live_pod(storage), await a_live_pod(storage)
        await storage.lead(one, 15.0)
        clock.step_wall(1_000)
        assert await storage.lead(other, 15.0) is None

    async def test_another_boot_ends_every_lease(self, storage: Storage, clock: FakeClock) -> None:
        job = await start(storage)
        clock.reboot()
        assert [found.job.id for found in await storage.abandoned(10, 30.0)] == [job.id]
        pod = only(await storage.pods())
        assert not pod.live
        await put(storage)
        assert list(await take(storage, job.pod or "")) == []

    async def test_a_pod_of_another_boot_is_lost(self, storage: Storage, clock: FakeClock) -> None:
        id = await a_live_pod(storage)
        clock.reboot()
        assert (await storage.beat(id, LEASE, [])).lost

    async def test_work_goes_on_after_a_reboot(self, storage: Storage, clock: FakeClock) -> None:
        old = await start(storage)
        clock.reboot()
        await rescue(storage, old)
        pod = await a_live_pod(storage)
        new = only(await take(storage, pod))
        assert (await end(storage, new, Succeeded())).state is State.SUCCEEDED

    async def test_what_is_due_follows_the_wall_clock(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, delay=60.0)
        clock.step_wall(60)
        assert len(await take(storage, pod)) == 1

    async def test_what_was_due_is_not_due_after_the_wall_clock_fell_back(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        clock.step_wall(-60)
        assert list(await take(storage, pod)) == []
        clock.step_wall(60)
        assert len(await take(storage, pod)) == 1
