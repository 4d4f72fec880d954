"""What operators do to jobs that have not started: another queue, another priority."""

from __future__ import annotations

from ...core import lifecycle
from ...core.job import State
from ...core.outcome import Succeeded
from ...ports import Storage
from ..clock import FakeClock
from .builders import a_job, near, want
from .steps import Cases, a_live_pod, edit, end, look, put, queue, start, take, take_one, write


class Move(Cases):
    async def test_a_moved_job_is_claimed_from_its_new_queue(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        job = await look(storage, await put(storage))
        answer = await write(storage, lifecycle.move(job, "elsewhere"))
        assert (answer.accepted, answer.state) == (True, State.READY)
        assert not await take(storage, pod)
        assert (await take_one(storage, pod, "elsewhere")).id == job.id

    async def test_a_moved_job_keeps_its_state_and_its_time(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage, delay=60.0))
        answer = await write(storage, lifecycle.move(job, "elsewhere"))
        assert (answer.accepted, answer.state) == (True, State.SCHEDULED)
        now = await look(storage, job.id)
        assert (now.queue, now.state, now.attempt) == ("elsewhere", State.SCHEDULED, 0)
        assert near(now.run_at, clock.now() + 60)

    async def test_a_queue_exists_as_soon_as_a_job_is_moved_to_it(self, storage: Storage) -> None:
        job = await look(storage, await put(storage))
        await write(storage, lifecycle.move(job, "elsewhere"))
        assert (await queue(storage, "elsewhere")).name == "elsewhere"

    async def test_a_job_moved_to_a_paused_queue_waits_there(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await edit(storage, "elsewhere", paused=True)
        job = await look(storage, await put(storage))
        assert (await write(storage, lifecycle.move(job, "elsewhere"))).accepted
        assert not await take(storage, pod, want("elsewhere"))

    async def test_a_move_that_meets_a_run_is_refused(self, storage: Storage) -> None:
        change = lifecycle.move(await look(storage, await put(storage)), "elsewhere")
        running = await take_one(storage, await a_live_pod(storage))
        answer = await write(storage, change)
        assert (answer.accepted, answer.state) == (False, State.RUNNING)
        assert await look(storage, running.id) == running

    async def test_a_move_that_meets_an_end_is_refused(self, storage: Storage) -> None:
        change = lifecycle.move(await look(storage, await put(storage)), "elsewhere")
        ended = await end(storage, await take_one(storage, await a_live_pod(storage)), Succeeded())
        answer = await write(storage, change)
        assert (answer.accepted, answer.state) == (False, State.SUCCEEDED)
        assert await look(storage, ended.id) == ended


class Priority(Cases):
    async def test_a_job_with_another_priority_is_claimed_in_its_new_place(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        first, second = a_job(), a_job()
        await put(storage, first, second)
        answer = await write(storage, lifecycle.set_priority(await look(storage, second.id), 7))
        assert (answer.accepted, answer.state) == (True, State.READY)
        assert [job.id for job in await take(storage, pod)] == [second.id, first.id]

    async def test_another_priority_keeps_state_and_time(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage, delay=60.0, priority=5))
        assert (await write(storage, lifecycle.set_priority(job, -5))).accepted
        now = await look(storage, job.id)
        assert (now.priority, now.state, now.queue) == (-5, State.SCHEDULED, "default")
        assert near(now.run_at, clock.now() + 60)

    async def test_another_priority_for_a_run_is_refused(self, storage: Storage) -> None:
        change = lifecycle.set_priority(await look(storage, await put(storage)), 7)
        running = await take_one(storage, await a_live_pod(storage))
        answer = await write(storage, change)
        assert (answer.accepted, answer.state) == (False, State.RUNNING)
        assert await look(storage, running.id) == running

    async def test_an_ended_job_has_no_other_priority(self, storage: Storage) -> None:
        assert lifecycle.set_priority(await end(storage, await start(storage), Succeeded()), 7) is None
