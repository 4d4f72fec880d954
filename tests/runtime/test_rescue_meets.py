"""Where a rescue meets other promises: follow-ups that a storage refuses, and ends that a kept request makes of it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from tests import postgres_server
from treadle.config import Timing
from treadle.core.job import Change, Job, NewJob, State
from treadle.ports import Storage
from treadle.runtime.services.rescuer import Rescuer
from treadle.storages.memory.storage import MemoryStorage
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import FakeClock
from treadle.testing.conformance.answers import MINUTE, a_waiting_job
from treadle.testing.conformance.builders import a_job, an_id, only
from treadle.testing.conformance.keeping import ask, begin
from treadle.testing.conformance.steps import look

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def storage(request: pytest.FixtureRequest, clock: FakeClock, tmp_path: Path) -> AsyncIterator[Storage]:
    made: Storage
    match request.param:
        case "memory":
            made = MemoryStorage(clock)
        case "sqlite":
            made = SQLiteStorage(tmp_path / "jobs.db", clock=clock)
        case _:
            made = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), clock=clock)
    await made.open()
    await made.migrate()
    yield made
    await made.close()


def a_rescuer(storage: Storage, declared: Callable[[Change, Job], Change]) -> Rescuer:
    return Rescuer(
        storage,
        Timing(),
        random.Random(1),
        every=5.0,
        jitter=0.5,
        beat_age=lambda: 0.0,
        rescued=lambda change, job: None,
        declared=declared,
    )


class Declared:
    """A follow-up for one end."""

    def __init__(self, why: str, new: NewJob) -> None:
        self.why = why
        self.new = new

    def __call__(self, change: Change, job: Job) -> Change:
        return (
            msgspec.structs.replace(change, follow_ups=(*change.follow_ups, self.new))
            if change.why == self.why
            else change
        )


async def a_taken_id(storage: Storage) -> NewJob:
    new = a_job(task="told")
    await storage.insert([new])
    return new


async def test_a_rescue_is_written_without_follow_ups_that_cannot_be(storage: Storage) -> None:
    # Refused again with every pass, the job would be nobody's for ever.
    job = await begin(storage, max_attempts=1)
    rescuer = a_rescuer(storage, Declared("failed", await a_taken_id(storage)))
    await storage.sign_off(job.pod or "")
    await rescuer.run_once()
    assert (await look(storage, job.id)).state is State.FAILED


async def test_a_wait_in_vain_ends_without_follow_ups_that_cannot_be(storage: Storage, clock: FakeClock) -> None:
    job, _ = await a_waiting_job(storage, max_attempts=1)
    rescuer = a_rescuer(storage, Declared("failed", await a_taken_id(storage)))
    clock.advance(2 * MINUTE)
    await rescuer.end_waits()
    assert (await look(storage, job.id)).state is State.FAILED


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_rescue_that_is_superseded_is_followed_as_a_cancel(storage: Storage, is_taken: bool) -> None:
    job = await begin(storage)
    kept = await ask(storage, args='{"n":2}')
    new = await a_taken_id(storage) if is_taken else a_job(id=an_id(), task="told")
    rescuer = a_rescuer(storage, Declared("cancelled", new))
    await storage.sign_off(job.pod or "")
    await rescuer.run_once()
    assert (await look(storage, job.id)).state is State.CANCELLED
    assert (await look(storage, kept.id)).behind is None
    assert only(await storage.get([new.id])).task == "told"
