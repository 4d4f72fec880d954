"""Inserting jobs: what was asked for is what is there."""

from __future__ import annotations

import asyncio
import json
from typing import Final

import pytest

from ...core.job import State, UniqueClaim
from ...ports import Inserted, Storage
from ..clock import FakeClock
from .builders import a_job, near
from .steps import Cases, look, put, queue

HOSTILE: Final = (
    "Grüße, 你好, שלום, नमस्ते, 👩‍👩‍👧‍👦, e\u0301",
    "'; DROP TABLE jobs; --",
    "\"double\" 'single' `back` \\slash\\ $1 %s {} ? :name @name",
    "line\nbreak\r\ttab \u2028 \u202e",
    "100 % _like_ *glob*",
    "null",
    " ",
    "x" * 1_000,
)


class Insert(Cases):
    async def test_an_inserted_job_is_kept_as_it_was_asked_for(self, storage: Storage) -> None:
        new = a_job(
            task="mail.send",
            queue="mail",
            args='{"a":[1,2.5,null,true]}',
            format=7,
            priority=-3,
            max_attempts=4,
            timeout=12.5,
            pinned=True,
            tags=("vip", "eu"),
            meta='{"tenant":9}',
            reason="asked by a test",
        )
        await put(storage, new)
        job = await look(storage, new.id)
        for field in ("id", "task", "queue", "args", "format", "priority", "max_attempts", "timeout", "pinned"):
            assert getattr(job, field) == getattr(new, field), field
        assert (job.tags, job.meta, job.reason) == (("vip", "eu"), '{"tenant":9}', "asked by a test")

    async def test_a_new_job_has_nothing_behind_it(self, storage: Storage) -> None:
        job = await look(storage, await put(storage))
        assert (job.attempt, job.crashes, job.snoozes, job.throttles, job.error_count) == (0, 0, 0, 0, 0)
        assert (job.pod, job.slot, job.token, job.started_at, job.deadline, job.finished_at) == (None,) * 6
        assert (job.result, job.warning, job.errors, job.error, job.cancel_wanted) == (None, None, (), None, False)

    async def test_options_that_were_not_given_stay_open(self, storage: Storage) -> None:
        job = await look(storage, await put(storage))
        assert (job.max_attempts, job.timeout, job.pinned) == (None, None, False)
        assert (job.tags, job.meta, job.reason, job.unique_key) == ((), None, None, None)

    async def test_no_timeout_is_not_the_same_as_no_wish(self, storage: Storage) -> None:
        assert (await look(storage, await put(storage, timeout=0.0))).timeout == 0.0

    async def test_a_job_without_delay_is_ready(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage))
        assert job.state is State.READY
        assert near(job.run_at, clock.now())

    async def test_the_storages_clock_says_when_a_job_was_made(self, storage: Storage, clock: FakeClock) -> None:
        clock.advance(1234)
        assert near((await look(storage, await put(storage))).created_at, clock.now())

    async def test_a_delay_counts_from_the_storages_clock(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage, delay=90.0))
        assert job.state is State.SCHEDULED
        assert near(job.run_at, clock.now() + 90)

    async def test_an_instant_is_kept(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage, run_at=clock.now() + 3600.25))
        assert job.state is State.SCHEDULED
        assert near(job.run_at, clock.now() + 3600.25)

    async def test_an_instant_outranks_a_delay(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage, run_at=clock.now() + 5, delay=500.0))
        assert near(job.run_at, clock.now() + 5)

    async def test_an_instant_in_the_past_means_now(self, storage: Storage, clock: FakeClock) -> None:
        job = await look(storage, await put(storage, run_at=clock.now() - 3600))
        assert job.state is State.READY
        assert near(job.run_at, clock.now())

    async def test_a_scheduled_job_reads_as_ready_once_it_is_due(self, storage: Storage, clock: FakeClock) -> None:
        id = await put(storage, delay=10.0)
        clock.advance(10)
        assert (await look(storage, id)).state is State.READY

    async def test_answers_come_in_the_order_of_the_requests(self, storage: Storage) -> None:
        jobs = [a_job() for _ in range(100)]
        answers = await storage.insert(jobs)
        assert [answer.id for answer in answers] == [job.id for job in jobs]
        assert {answer.outcome for answer in answers} == {"inserted"}

    async def test_an_empty_insert_is_no_error(self, storage: Storage) -> None:
        assert list(await storage.insert([])) == []

    async def test_a_thread_that_waits_by_itself_is_answered_alike(self, storage: Storage) -> None:
        jobs = [a_job(unique=UniqueClaim(key="k")) for _ in range(2)]
        if not storage.capabilities.waits:
            pytest.skip("needs the capability: waits")
        first = list(await asyncio.to_thread(storage.insert_sync, jobs))
        assert first == [Inserted(jobs[0].id, "inserted"), Inserted(jobs[0].id, "duplicate")]
        assert list(await storage.insert(jobs)) == first
        assert list(await asyncio.to_thread(storage.insert_sync, [])) == []
        assert (await look(storage, jobs[0].id)).state is State.READY

    async def test_a_batch_may_hold_two_thousand_jobs(self, storage: Storage) -> None:
        jobs = [a_job() for _ in range(2_000)]
        await storage.insert(jobs)
        assert len(await storage.get([job.id for job in jobs])) == 2_000

    async def test_an_insert_makes_its_queue_known(self, storage: Storage) -> None:
        await put(storage, queue="mail")
        assert (await queue(storage, "mail")).name == "mail"

    async def test_both_ends_of_priority_are_kept(self, storage: Storage) -> None:
        for priority in (-100, 100):
            assert (await look(storage, await put(storage, priority=priority))).priority == priority

    async def test_hostile_text_comes_back_as_it_went_in(self, storage: Storage) -> None:
        for text in HOSTILE:
            args = json.dumps({"text": text}, ensure_ascii=False)
            job = await look(storage, await put(storage, args=args, tags=(text,), meta=args, reason=text))
            assert (job.args, job.tags, job.meta, job.reason) == (args, (text,), args, text)

    async def test_escaped_text_stays_escaped(self, storage: Storage) -> None:
        args = '{"text":"\\u00fc\\ud83d\\ude00"}'
        assert (await look(storage, await put(storage, args=args))).args == args

    async def test_a_mebibyte_of_arguments_comes_back_whole(self, storage: Storage) -> None:
        args = json.dumps({"text": "ü" * (512 * 1024 - 16)}, ensure_ascii=False)
        assert (await look(storage, await put(storage, args=args))).args == args
