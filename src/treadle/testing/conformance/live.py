"""Live settings of queues: each is kept, goes back to the built-in, and takes effect where the storage acts on it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from ...core import catalog
from ...core.job import NO_TIMEOUT, NewJob, QueueChange, RetryOverride
from ...core.outcome import Succeeded, Throttled
from ...core.pod import Descriptor
from ...core.queue import FOR_EVER
from ...ports import Storage
from ..clock import FakeClock
from .builders import LEASE, TICK, a_job, a_pod, a_token, lane, near, only, want, want_lanes
from .concurrency import Sharing
from .signals import Ear
from .steps import Cases, a_live_pod, edit, end, look, put, queue, start, take, take_one, write

EVERY_SETTING: Final[dict[str, Any]] = {
    "max_workers": 7,
    "rate": 1.5,
    "burst": 20,
    "aging": 60.0,
    "timeout": 90.0,
    "retry": RetryOverride(max_attempts=3, base=2.0, cap=60.0, curve="linear"),
    "cool_base": 10.0,
    "cool_cap": 7200.0,
    "keep_succeeded": 3600.0,
    "keep_failed": FOR_EVER,
    "keep_cancelled": 0.0,
}


class LiveSettings(Cases):
    async def test_every_setting_is_kept(self, storage: Storage) -> None:
        await edit(storage, **EVERY_SETTING)
        row = await queue(storage)
        assert {name: getattr(row, name) for name in EVERY_SETTING} == EVERY_SETTING

    async def test_a_retry_delay_of_zero_is_kept(self, storage: Storage) -> None:
        await edit(storage, retry=RetryOverride(base=0.0))
        assert (await queue(storage)).retry == RetryOverride(base=0.0)

    async def test_every_setting_alone_is_kept_and_leaves_the_others(self, storage: Storage) -> None:
        for name, value in EVERY_SETTING.items():
            await edit(storage, **{name: value})
        row = await queue(storage)
        assert {name: getattr(row, name) for name in EVERY_SETTING} == EVERY_SETTING
        for name in EVERY_SETTING:
            before = (await queue(storage)).version
            back: dict[str, Any] = {name: None}
            await edit(storage, **back)
            row = await queue(storage)
            assert getattr(row, name) is None
            assert row.version > before
        assert all(getattr(row, name) is None for name in EVERY_SETTING)

    async def test_every_setting_is_told_by_the_beat(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await edit(storage, **EVERY_SETTING)
        beaten = await storage.beat(pod, LEASE, [])
        told = only([each for each in beaten.queues if each.name == "default"])
        assert told == await queue(storage)
        assert {name: getattr(told, name) for name in EVERY_SETTING} == EVERY_SETTING

    async def test_a_refused_edit_changes_no_setting(self, storage: Storage) -> None:
        await edit(storage, rate=1.0)
        seen = (await queue(storage)).version
        await edit(storage, rate=2.0, timeout=5.0)
        refused = QueueChange(name="default", version=seen, **EVERY_SETTING)
        assert not (await write(storage, refused)).accepted
        row = await queue(storage)
        assert (row.rate, row.timeout, row.aging, row.retry) == (2.0, 5.0, None, None)

    async def test_a_cool_down_leaves_the_settings(self, storage: Storage) -> None:
        await edit(storage, **EVERY_SETTING)
        await end(storage, await start(storage), Throttled())
        row = await queue(storage)
        assert {name: getattr(row, name) for name in EVERY_SETTING} == EVERY_SETTING

    async def test_a_pause_leaves_the_settings(self, storage: Storage) -> None:
        await edit(storage, **EVERY_SETTING)
        await edit(storage, paused=True)
        await edit(storage, paused=False)
        row = await queue(storage)
        assert {name: getattr(row, name) for name in EVERY_SETTING} == EVERY_SETTING

    async def test_the_cool_down_follows_the_queues_base_and_cap(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=1_000.0)
        await edit(storage, cool_base=2.0, cool_cap=5.0)
        await put(storage)
        waits: list[float] = []
        for _ in range(4):
            await end(storage, await take_one(storage, pod), Throttled())
            until = (await queue(storage)).cool_until or 0.0
            waits.append(round(until - clock.now(), 3))
            clock.advance(until - clock.now() + TICK)
        assert waits == [2, 4, 5, 5]

    async def test_a_listener_hears_of_edited_settings(self, storage: Storage) -> None:
        ear = Ear(storage)
        await edit(storage, max_workers=1)
        assert await ear.hears(lambda wake: wake.settings)
        ear.stop()


class LiveTimeout(Cases):
    async def test_a_queues_timeout_replaces_one_that_the_caller_did_not_choose(
        self, storage: Storage, clock: FakeClock
    ) -> None:
        pod = await a_live_pod(storage)
        await edit(storage, timeout=20.0)
        plain, unset = a_job(timeout=3600.0), a_job()
        pinned = a_job(timeout=50.0, pinned=True, meta='{"a":1}')
        marked = a_job(timeout=3600.0, tags=("t",))
        await put(storage, plain, unset, pinned, marked)
        jobs = {job.id: job for job in await take(storage, pod)}
        for new, timeout in ((plain, 20.0), (unset, 20.0), (pinned, 50.0), (marked, 20.0)):
            assert near(jobs[new.id].deadline, clock.now() + timeout)
            assert jobs[new.id].timeout == timeout
            assert near((await look(storage, new.id)).deadline, clock.now() + timeout)

    async def test_a_job_that_nothing_gives_a_timeout_has_no_deadline(self, storage: Storage, clock: FakeClock) -> None:
        """PostgreSQL's `least` passes over nulls: where a queue of the claim had a live timeout or aging, such a job's
        row had a deadline 1e9 seconds away."""
        pod = await a_live_pod(storage)
        await edit(storage, timeout=20.0)
        await edit(storage, "aged", aging=60.0)
        live, pinned = a_job(), a_job(pinned=True, max_attempts=2)
        other, aged = a_job(queue="other"), a_job(queue="aged")
        long = a_job(queue="aged", timeout=2e9)
        await put(storage, live, pinned, other, aged, long)
        jobs = {job.id: job for job in await take(storage, pod, want(), want("other"), want("aged"))}
        assert len(jobs) == 5
        assert near(jobs[live.id].deadline, clock.now() + 20.0)
        assert near((await look(storage, live.id)).deadline, clock.now() + 20.0)
        for new in (pinned, other, aged):
            assert (jobs[new.id].timeout, jobs[new.id].deadline) == (None, None)
            assert (await look(storage, new.id)).deadline is None
        assert (await look(storage, long.id)).deadline is not None

    async def test_a_queues_timeout_may_be_no_timeout(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await edit(storage, timeout=NO_TIMEOUT)
        await put(storage, timeout=3600.0)
        job = await take_one(storage, pod)
        assert (job.timeout, job.deadline) == (NO_TIMEOUT, None)
        assert (await look(storage, job.id)).deadline is None

    async def test_a_queues_timeout_holds_for_its_own_jobs_only(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await edit(storage, timeout=20.0)
        await put(storage, a_job(timeout=100.0), a_job(timeout=100.0, queue="other"))
        jobs = await take(storage, pod, want("other"), want("default"))
        assert [(job.queue, job.timeout) for job in jobs] == [("other", 100.0), ("default", 20.0)]

    async def test_a_timeout_that_is_taken_back_leaves_the_jobs_own(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        await edit(storage, timeout=20.0)
        await put(storage, timeout=100.0)
        job = await take_one(storage, pod)
        await end(storage, job, Throttled())
        await edit(storage, timeout=None, cool_until=None)
        clock.advance(LEASE - 1)
        again = await take_one(storage, pod)
        assert again.timeout == 100.0
        assert near(again.deadline, clock.now() + 100.0)

    async def test_a_recovered_claim_has_the_timeout_of_its_claim(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage)
        token = a_token()
        await edit(storage, timeout=20.0)
        await put(storage, timeout=3600.0)
        (claimed,) = (await storage.claim(pod, token, [want()])).jobs
        (found,) = await storage.recover(pod, token)
        assert (found.timeout, claimed.timeout) == (20.0, 20.0)
        assert near(found.deadline, clock.now() + 20.0)


class Aging(Cases):
    async def test_without_aging_priority_alone_decides(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=10_000.0)
        old = await put(storage)
        clock.advance(3_600)
        urgent = await put(storage, priority=1)
        assert [job.id for job in await take(storage, pod)] == [urgent, old]

    async def test_a_waiting_job_gains_one_step_for_each_interval(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=10_000.0)
        await edit(storage, aging=60.0)
        old = await put(storage)
        clock.advance(120 - TICK)
        urgent = await put(storage, priority=2)
        assert (await take_one(storage, pod)).id == urgent
        clock.advance(2 * TICK)
        urgent = await put(storage, priority=2)
        assert [job.id for job in await take(storage, pod)] == [old, urgent]

    async def test_aging_stops_at_the_highest_priority(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=100_000.0)
        await edit(storage, aging=1.0)
        first = await put(storage, priority=-100)
        clock.advance(1)
        second = await put(storage, priority=100)
        clock.advance(10_000)
        assert [job.id for job in await take(storage, pod)] == [first, second]

    async def test_the_priority_of_the_row_stays(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=10_000.0)
        await edit(storage, aging=1.0)
        await put(storage, priority=3)
        clock.advance(50)
        job = await take_one(storage, pod)
        assert job.priority == (await look(storage, job.id)).priority == 3

    async def test_aging_concerns_its_own_queue_only(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=10_000.0)
        await edit(storage, aging=1.0)
        jobs = [a_job(queue=name) for name in ("other", "default")]
        await put(storage, *jobs)
        clock.advance(50)
        urgent = [a_job(queue=name, priority=9) for name in ("other", "default")]
        await put(storage, *urgent)
        taken = await take(storage, pod, want("other"), want("default"))
        assert [job.id for job in taken] == [urgent[0].id, jobs[0].id, jobs[1].id, urgent[1].id]

    async def test_aging_with_lanes_and_limits(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=10_000.0)
        await edit(storage, aging=10.0)
        old = [a_job(task="ab"[n % 2]) for n in range(6)]
        await put(storage, *old)
        clock.advance(55)  # five steps more
        new = [a_job(task="ab"[n % 2], priority=n + 3) for n in range(6)]
        await put(storage, *new)
        taken = await take(storage, pod, want_lanes(lane("a", limit=2), lane("b"), limit=6))
        by_order = [new[5], new[4], new[3], old[0], old[1], old[3]]
        assert [job.id for job in taken] == [job.id for job in by_order]

    async def test_an_aging_queue_gives_the_same_order_one_by_one(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=10_000.0)
        await edit(storage, aging=10.0)
        jobs: list[NewJob] = []
        for n in range(12):
            jobs.append(a_job(priority=(n * 7) % 5, task="ab"[n % 2]))
            await put(storage, jobs[-1])
            clock.advance(7)
        taken = [only(await take(storage, pod, want(limit=1, tasks=("a", "b")))) for _ in jobs]
        steps = [(job.priority + int((12 - n) * 7 // 10), -n) for n, job in enumerate(jobs)]
        expected = [job.id for _, job in sorted(zip(steps, jobs, strict=True), key=lambda each: each[0], reverse=True)]
        assert [job.id for job in taken] == expected

    async def test_pods_that_claim_an_aging_queue_at_once_never_share_a_job(self, storage: Storage) -> None:
        pods = [await a_live_pod(storage) for _ in range(4)]
        await edit(storage, aging=1.0)
        await put(storage, *(a_job(priority=n % 5) for n in range(200)))
        taken: list[str] = []
        for _ in range(200):
            answers = await asyncio.gather(*(take(storage, pod, want(limit=7)) for pod in pods))
            taken += [job.id for jobs in answers for job in jobs]
            if not any(answers):
                break
        assert len(taken) == len(set(taken)) == 200

    async def test_a_paused_queue_that_ages_gives_nothing(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        await edit(storage, aging=1.0, timeout=1.0, paused=True)
        await put(storage)
        claimed = await storage.claim(pod, a_token(), [want()])
        assert (list(claimed.jobs), claimed.next_due) == ([], None)

    async def test_what_is_not_due_does_not_age(self, storage: Storage, clock: FakeClock) -> None:
        pod = await a_live_pod(storage, lease=10_000.0)
        await edit(storage, aging=1.0)
        later = await put(storage, delay=100.0)
        clock.advance(50)
        claimed = await storage.claim(pod, a_token(), [want()])
        assert list(claimed.jobs) == []
        assert near(claimed.next_due, 50)
        clock.advance(50)
        now = await put(storage)
        assert [job.id for job in await take(storage, pod)] == [later, now]

    async def test_a_job_that_aged_ends_as_any_other(self, storage: Storage, clock: FakeClock) -> None:
        await edit(storage, aging=1.0, timeout=5.0)
        job = await end(storage, await start(storage, tags=("x",)), Succeeded("1"))
        assert (job.state.value, job.result, job.tags) == ("succeeded", "1", ("x",))


class LaneOrder(Cases):
    async def test_lane_limits_hold_across_priorities(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        jobs = [a_job(task="ab"[n % 2], priority=(2, 2, 1, 1, 0, 0)[n % 6]) for n in range(18)]
        await put(storage, *jobs)
        taken = await take(storage, pod, want_lanes(lane("a", limit=4), lane("b", limit=2), limit=5))
        expected: list[str] = []
        left = {"a": 4, "b": 2}
        for job in sorted(jobs, key=lambda job: -job.priority):
            if left[job.task] and len(expected) < 5:
                left[job.task] -= 1
                expected.append(job.id)
        assert [job.id for job in taken] == expected


class Catalogue(Cases):
    async def test_what_a_pod_says_of_its_tasks_is_kept(self, storage: Storage, clock: FakeClock) -> None:
        mail = Descriptor(description="Sends mail", owner="ops", docs="https://wiki/mail", tags=("m",), queue="mail")
        card = a_pod(about={"task work": mail, "queue mail": Descriptor(owner="dev"), "no such thing": Descriptor()})
        await storage.register(card)
        task, queue = sorted(await storage.catalog(), key=lambda entry: entry.kind, reverse=True)
        assert (task.kind, task.name, task.descriptor) == ("task", "work", mail)
        assert (queue.kind, queue.name, queue.descriptor.owner) == ("queue", "mail", "dev")
        assert near(task.seen_at, clock.now())
        assert only(await storage.pods()).card.about == card.about

    async def test_the_last_word_counts_and_outlives_its_pod(self, storage: Storage, clock: FakeClock) -> None:
        first = a_pod(about={"task work": Descriptor(owner="ops")})
        second = a_pod(about={"task work": Descriptor(owner="dev")})
        await storage.register(first)
        clock.advance(5)
        await storage.register(second)
        assert only(await storage.catalog()).descriptor.owner == "dev"
        clock.advance(5)
        await storage.sign_off(second.id)
        entry = only(await storage.catalog())
        assert entry.descriptor.owner == "dev"
        assert near(entry.seen_at, clock.now())

    async def test_a_pod_that_goes_does_not_speak_again(self, storage: Storage, clock: FakeClock) -> None:
        """In a rolling deployment the old ones sign off after the new ones have come: what they said then is over."""
        old = a_pod(about={"task work": Descriptor(owner="ops")})
        new = a_pod(about={"task work": Descriptor(owner="dev")})
        await storage.register(old)
        await storage.register(new)
        clock.advance(5)
        await storage.sign_off(old.id)
        entry = only(await storage.catalog())
        assert entry.descriptor.owner == "dev"
        assert near(entry.seen_at, clock.now())

    async def test_a_pod_that_crashed_was_seen_until_its_last_beat(self, storage: Storage, clock: FakeClock) -> None:
        """Also when its row is gone: else what ran for a month until yesterday would seem unseen for a month."""
        card = a_pod(about={"task work": Descriptor(owner="ops")})
        await storage.register(card)
        clock.advance(20)
        await storage.beat(card.id, 30.0, ())
        last = clock.now()
        clock.advance(2 * 3600)
        await storage.abandoned(10, 30.0)
        (known,) = catalog.survey("task", await storage.catalog(), await storage.pods(), clock.now())
        assert known.seen_at is not None
        assert near(known.seen_at, last)

    async def test_a_storage_that_nobody_told_anything_knows_nothing(self, storage: Storage) -> None:
        await a_live_pod(storage)
        assert list(await storage.catalog()) == []


class HeardElsewhere(Sharing):
    """Two handles on one place: what one edits, the other hears of and goes by."""

    async def test_another_handle_hears_of_edited_settings(self, storage: Storage, clock: FakeClock) -> None:
        async def use(other: Storage) -> None:
            ear = Ear(other)
            await _until_it_hears(other)
            await edit(storage, max_workers=1)
            assert await ear.hears(lambda wake: wake.settings)
            ear.stop()

        await self.both(storage, clock, use)

    async def test_another_handle_goes_by_edited_settings_at_once(self, storage: Storage, clock: FakeClock) -> None:
        async def use(other: Storage) -> None:
            pod = await a_live_pod(other, lease=10_000.0)
            old = await put(other, timeout=100.0)
            clock.advance(600)
            new = await put(other, timeout=100.0, priority=5)
            await edit(storage, aging=60.0, timeout=7.0)
            jobs = await take(other, pod)
            assert [(job.id, job.timeout) for job in jobs] == [(old, 7.0), (new, 7.0)]

        await self.both(storage, clock, use)


async def _until_it_hears(storage: Storage) -> None:
    """A handle that has just begun to listen may need a moment to be reached."""
    for _ in range(500):
        if storage.signals_work:
            return
        await asyncio.sleep(0.01)
    pytest.skip("needs signals that work: here pods ask")
