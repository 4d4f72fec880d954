"""Many jobs in one insert: a storage may write them another way, and nobody may notice."""

from __future__ import annotations

from typing import Any, Final

from ...core.job import NewJob, State
from ...core.outcome import Succeeded
from ...ports import Storage
from ..clock import FakeClock
from .builders import a_job, a_unique_job, finished, near, want
from .steps import Cases, a_live_pod, look, take

MANY: Final = 1_200


def _many(count: int = MANY, **fields: Any) -> list[NewJob]:
    return [a_job(args=f'{{"n":{n}}}', **fields) for n in range(count)]


class Bulk(Cases):
    async def test_a_large_insert_keeps_every_field(self, storage: Storage, clock: FakeClock) -> None:
        jobs = _many()
        jobs[7] = a_job(
            task="mail.send",
            queue="mail",
            args='{"a":"Grüße 👩‍👩‍👧‍👦"}',
            format=7,
            priority=-3,
            max_attempts=4,
            timeout=12.5,
            pinned=True,
            tags=("vip", 'e"u\\', "{}"),
            meta='{"tenant":9}',
            reason="asked by a test",
        )
        jobs[8] = a_job(delay=90.0)
        jobs[9] = a_job(run_at=clock.now() + 3600.5)
        jobs[10] = a_job(run_at=clock.now() - 3600.0)
        answers = await storage.insert(jobs)
        assert [(answer.id, answer.outcome) for answer in answers] == [(new.id, "inserted") for new in jobs]
        found = await look(storage, jobs[7].id)
        for name in (
            "task",
            "queue",
            "args",
            "format",
            "priority",
            "max_attempts",
            "timeout",
            "pinned",
            "tags",
            "meta",
        ):
            assert getattr(found, name) == getattr(jobs[7], name), name
        assert found.reason == "asked by a test"
        assert (found.state, found.attempt) == (State.READY, 0)
        assert near(found.created_at, clock.now())
        assert near((await look(storage, jobs[8].id)).run_at, clock.now() + 90)
        assert near((await look(storage, jobs[9].id)).run_at, clock.now() + 3600.5)
        assert near((await look(storage, jobs[10].id)).run_at, clock.now())

    async def test_the_order_of_a_large_insert_is_the_order_of_claiming(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        jobs = _many()
        await storage.insert(jobs)
        taken = await take(storage, pod, want(limit=MANY))
        assert [job.id for job in taken] == [new.id for new in jobs]

    async def test_a_large_insert_sent_again_is_the_same_jobs(self, storage: Storage) -> None:
        """Also those that run, and those that have ended meanwhile: nothing is written for them, nothing comes back."""
        pod = await a_live_pod(storage)
        jobs = _many()
        first = await storage.insert(jobs)
        started = await take(storage, pod, want(limit=20))
        await storage.apply([finished(job, Succeeded()) for job in started[:10]])
        assert await storage.insert(jobs) == first
        states = [(await look(storage, job.id)).state for job in started]
        assert states == [State.SUCCEEDED] * 10 + [State.RUNNING] * 10
        assert len(await take(storage, pod, want(limit=MANY))) == MANY - 20

    async def test_a_large_insert_of_which_only_ended_jobs_are_known_brings_none_back(self, storage: Storage) -> None:
        pod = await a_live_pod(storage)
        known = _many(5)
        await storage.insert(known)
        await storage.apply([finished(job, Succeeded()) for job in await take(storage, pod)])
        await storage.insert([*known, *_many()])
        assert len(await take(storage, pod, want(limit=2 * MANY))) == MANY

    async def test_keys_in_a_large_insert_are_settled(self, storage: Storage) -> None:
        await storage.insert([a_unique_job("taken")])
        jobs = [*_many(), a_unique_job("taken"), a_unique_job("free")]
        outcomes = [answer.outcome for answer in await storage.insert(jobs)]
        assert outcomes == ["inserted"] * MANY + ["duplicate", "inserted"]
