"""A queue that ages, on PostgreSQL: as quick as any other, by the same index."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import postgres_server
from treadle.core.outcome import Succeeded
from treadle.storages.postgres import PostgresStorage
from treadle.testing.conformance.builders import a_job, finished, lane, want_lanes
from treadle.testing.conformance.steps import a_live_pod, edit, take

from .test_postgres_plans import _patience, scans

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")


@pytest.fixture
async def storage() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    yield storage
    await storage.close()


async def test_claims_of_an_aging_queue_read_no_more_than_they_take(storage: PostgresStorage) -> None:
    admin = await asyncpg.connect(postgres_server.shared_url())
    pod = await a_live_pod(storage, lease=600.0)
    await edit(storage, aging=60.0, timeout=30.0)
    await storage.insert([a_job(priority=priority, task="ab"[priority % 2]) for priority in range(-5, 5)])
    await admin.execute(
        f"insert into {storage.schema_name}.job (id, queue, task, priority, run_at) "
        "select gen_random_uuid(), 'default', chr(97 + n % 2), n % 10 - 5, now() - n * interval '1 second' "
        "from generate_series(1, 30000) as n"
    )
    await admin.execute(f"analyze {storage.schema_name}.job")
    await take(storage, pod, want_lanes(lane("a"), lane("b"), limit=10))
    before = await scans(admin, storage)
    took: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        jobs = await take(storage, pod, want_lanes(lane("a"), lane("b"), limit=100))
        took.append(time.perf_counter() - began)
        assert len(jobs) == 100
        assert {job.timeout for job in jobs} == {30.0}
        ages = [job.priority + int((job.started_at or 0.0) - job.run_at) // 60 for job in jobs]
        assert all(min(100, one) >= min(100, other) - 1 for one, other in itertools.pairwise(ages))
        await storage.apply([finished(job, Succeeded()) for job in jobs])
    # A hundred places in twenty lanes: two thousand rows are looked at, not thirty thousand.
    assert sorted(took)[5] < 0.1 * _patience(), took
    await storage.close()
    await storage.open()
    assert await scans(admin, storage) == before
    await admin.close()
