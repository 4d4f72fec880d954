"""Queues: live settings, pauses and cool-downs, all tested in the claim itself."""

from __future__ import annotations

from ...core import lifecycle
from ...core.job import QueueChange, State
from ...core.outcome import Succeeded, Throttled
from ...core.queue import COOL_CAP, Queue, QueueStats
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, TICK, a_job, finished, near
from .steps import Cases, a_live_pod, edit, end, look, put, queue, start, stats, take, take_one, write


class Pause(Cases):
    async def test_a_paused_queue_gives_nothing(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        id = await put(storage)
        await edit(storage, paused=True)
        assert list(await take(storage, pod)) == []
        assert (await look(storage, id)).attempt == 0
        await edit(storage, paused=False)
        assert len(await take(storage, pod)) == 1

    async def test_a_pause_leaves_other_queues_open(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        await edit(storage, "other", paused=True)
        assert len(await take(storage, pod)) == 1

    async def test_runs_and_inserts_go_on_during_a_pause(self, storage: Storage) -> None:
        job = await start(storage)
        await edit(storage, paused=True)
        assert (await end(storage, job, Succeeded())).state is State.SUCCEEDED
        assert (await look(storage, await put(storage))).state is State.READY

    async def test_a_pause_with_an_end_opens_by_itself(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        await edit(storage, paused=True, paused_until=clock.now() + 10)
        clock.advance(10 - TICK)
        assert list(await take(storage, pod)) == []
        clock.advance(2 * TICK)
        assert len(await take(storage, pod)) == 1

    async def test_a_pause_remembers_who_when_and_why(self, storage: Storage, clock: FakeClock) -> None:
        await edit(storage, paused=True, paused_by="ann", pause_reason='it\'s "broken"', paused_until=clock.now() + 9)
        row = await queue(storage)
        assert (row.paused, row.paused_by, row.pause_reason) == (True, "ann", 'it\'s "broken"')
        assert near(row.paused_at, clock.now())
        assert near(row.paused_until, clock.now() + 9)

    async def test_a_resume_forgets_who_when_and_why(self, storage: Storage, clock: FakeClock) -> None:
        await edit(storage, paused=True, paused_by="ann", pause_reason="broken", paused_until=clock.now() + 9)
        await edit(storage, paused=False)
        row = await queue(storage)
        assert (row.paused, row.paused_by, row.pause_reason, row.paused_at, row.paused_until) == (False, *(None,) * 4)

    async def test_a_new_pause_does_not_inherit_the_end_of_the_last(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        await edit(storage, paused=True, paused_by="ann", pause_reason="broken", paused_until=clock.now() + 5)
        clock.advance(6)
        await edit(storage, paused=True)
        assert list(await take(storage, pod)) == []
        row = await queue(storage)
        assert (row.paused_until, row.paused_by, row.pause_reason) == (None, None, None)

    async def test_a_queue_may_be_paused_before_it_has_jobs(self, storage: Storage) -> None:
        pod = await a_live_pod(storage, queues={})
        await edit(storage, "early", paused=True)
        await put(storage, queue="early")
        assert list(await take(storage, pod)) == []
        assert (await queue(storage, "early")).paused


class Settings(Cases):
    async def test_a_queue_without_a_row_has_the_built_in_settings(self, storage: Storage) -> None:
        await put(storage)
        row = await queue(storage)
        assert (row.paused, row.max_workers, row.cool_until, row.cool_exponent) == (False, None, None, 0)

    async def test_an_edit_changes_only_what_it_names(self, storage: Storage) -> None:
        await edit(storage, max_workers=5)
        await edit(storage, paused=True)
        row = await queue(storage)
        assert (row.max_workers, row.paused) == (5, True)
        await edit(storage, max_workers=None)
        row = await queue(storage)
        assert (row.max_workers, row.paused) == (None, True)

    async def test_every_edit_raises_the_version(self, storage: Storage) -> None:
        versions: list[int] = []
        for number in range(3):
            await edit(storage, max_workers=number)
            versions.append((await queue(storage)).version)
        assert versions == sorted(set(versions))

    async def test_an_edit_of_an_old_version_is_refused(self, storage: Storage) -> None:
        await edit(storage, max_workers=1)
        seen = (await queue(storage)).version
        await edit(storage, max_workers=2, version=seen)
        answer = await write(storage, QueueChange(name="default", max_workers=3, version=seen))
        assert not answer.accepted
        assert answer.error
        assert (await queue(storage)).max_workers == 2

    async def test_a_refused_edit_makes_no_queue(self, storage: Storage) -> None:
        await put(storage)
        assert not (await write(storage, QueueChange(name="never", paused=True, version=99))).accepted
        assert [each.queue.name for each in await storage.queues()] == ["default"]
        pod = await a_live_pod(storage)
        assert "never" not in {each.name for each in (await storage.beat(pod, LEASE, [])).queues}

    async def test_edits_and_finishes_may_share_a_batch(self, storage: Storage) -> None:
        job = await start(storage)
        bad = QueueChange(name="default", max_workers=3, version=99)
        answers = await storage.apply(
            [bad, finished(job, Succeeded()), QueueChange(name="default", max_workers=4), finished(job, Succeeded())]
        )
        assert [(answer.accepted, answer.repeated) for answer in answers] == [
            (False, False),
            (True, False),
            (True, False),
            (True, True),
        ]
        assert (await queue(storage)).max_workers == 4


async def throttle(storage: Storage, pod: str, hint: float | None = None) -> float:
    """Start a job and throttle it; how long its queue cools from now."""
    job = await take_one(storage, pod)
    await end(storage, job, Throttled(hint))
    return (await queue(storage)).cool_until or 0.0


class CoolDown(Cases):
    async def test_a_cooling_queue_gives_nothing_until_it_has_cooled(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        await throttle(storage, pod, 20.0)
        clock.advance(20 - TICK)
        assert list(await take(storage, pod)) == []
        clock.advance(2 * TICK)
        assert len(await take(storage, pod)) == 2

    async def test_a_cool_down_concerns_its_own_queue_only(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job(queue="other"))
        await throttle(storage, pod)
        assert (await take_one(storage, pod, "other")).queue == "other"

    async def test_runs_and_inserts_go_on_during_a_cool_down(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        one, other = await take(storage, pod)
        await end(storage, one, Throttled(60.0))
        assert (await end(storage, other, Succeeded())).state is State.SUCCEEDED
        await put(storage)

    async def test_the_wait_doubles_from_window_to_window(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=1_000.0)
        await put(storage)
        waits: list[float] = []
        for _ in range(4):
            until = await throttle(storage, pod)
            waits.append(round(until - clock.now(), 3))
            clock.advance(until - clock.now() + TICK)
        assert waits == [5, 10, 20, 40]

    async def test_the_wait_has_a_cap(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        wait = 0.0
        for _ in range(12):
            until = await throttle(storage, pod)
            wait = until - clock.now()
            clock.advance(wait + TICK)
            await storage.beat(pod, LEASE, [])
        assert near(wait, COOL_CAP)

    async def test_many_throttles_in_one_window_raise_the_wait_once(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, *(a_job() for _ in range(10)))
        jobs = await take(storage, pod)
        await storage.apply([finished(job, Throttled()) for job in jobs[:5]])
        clock.advance(1)
        await storage.apply([finished(job, Throttled()) for job in jobs[5:]])
        row = await queue(storage)
        assert near(row.cool_until, clock.now() + 4)
        assert row.cool_exponent == 1

    async def test_a_larger_hint_lengthens_the_window(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        one, other = await take(storage, pod)
        await end(storage, one, Throttled(10.0))
        clock.advance(1)
        job = await end(storage, other, Throttled(60.0))
        row = await queue(storage)
        assert near(row.cool_until, clock.now() + 60)
        assert near(job.run_at, clock.now() + 60)
        assert row.cool_exponent == 1

    async def test_a_smaller_hint_does_not_shorten_the_window(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        one, other = await take(storage, pod)
        await end(storage, one, Throttled(60.0))
        job = await end(storage, other, Throttled(10.0))
        assert near((await queue(storage)).cool_until, clock.now() + 60)
        assert near(job.run_at, clock.now() + 60)

    async def test_a_hint_is_a_lower_bound(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        assert near(await throttle(storage, pod, 2.0), clock.now() + 5)

    async def test_an_operator_may_end_a_cool_down(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage, a_job(), a_job())
        await throttle(storage, pod, 600.0)
        await edit(storage, cool_until=None)
        row = await queue(storage)
        assert (row.cool_until, row.cool_exponent) == (None, 0)
        assert len(await take(storage, pod)) == 2  # the one that was thrown back, too

    async def test_an_operator_may_set_a_cool_down(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await put(storage)
        await edit(storage, cool_until=clock.now() + 30)
        assert list(await take(storage, pod)) == []
        clock.advance(LEASE)
        await storage.beat(pod, LEASE, [])
        assert len(await take(storage, pod)) == 1

    async def test_a_throttled_job_takes_its_old_place_again(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        first = await put(storage, priority=5)
        second = await put(storage)
        clock.advance(1)
        until = await throttle(storage, pod)
        clock.advance(until - clock.now())
        assert [job.id for job in await take(storage, pod)] == [first, second]


class Counts(Cases):
    async def test_ready_and_scheduled_jobs_are_counted_to_the_last_one(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        """What ended is counted so far and no further; what is to be done is not."""
        many = QueueStats(queue=Queue(name="any")).capped_at + 1
        for number in range(0, many, 1_000):
            size = min(1_000, many - number)
            await storage.insert([a_job() for _ in range(size)])
            await storage.insert([a_job(run_at=clock.now() + 60) for _ in range(size)])
        found = await stats(storage)
        assert (found.ready, found.scheduled) == (many, many)

    async def test_a_queue_counts_its_jobs_by_state(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await end(storage, await start(storage, pod), Succeeded())
        await start(storage, pod)
        cancelled = await put(storage)
        await write(storage, lifecycle.cancel(await look(storage, cancelled)))
        await put(storage, a_job(), a_job(), a_job(delay=60.0), a_job(queue="other"))
        found = await stats(storage)
        counted = (found.ready, found.scheduled, found.running, found.succeeded, found.failed, found.cancelled)
        assert counted == (2, 1, 1, 1, 0, 1)
        assert (await stats(storage, "other")).ready == 1

    async def test_a_job_that_is_due_counts_as_ready(self, storage: Storage, clock: FakeClock) -> None:
        await put(storage, delay=10.0)
        assert (await stats(storage)).scheduled == 1
        clock.advance(10)
        found = await stats(storage)
        assert (found.ready, found.scheduled) == (1, 0)

    async def test_a_queue_shows_how_long_its_oldest_ready_job_waits(self, storage: Storage, clock: FakeClock) -> None:
        await put(storage, delay=600.0)
        assert (await stats(storage)).oldest_ready_seconds is None
        await put(storage)
        clock.advance(7)
        await put(storage)
        assert near((await stats(storage)).oldest_ready_seconds, 7)
