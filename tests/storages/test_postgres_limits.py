"""Rate limits on PostgreSQL, where somebody else's open transaction may hold a row."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

import pytest

from tests import postgres_server
from treadle.core.errors import StorageTimeout
from treadle.core.job import QueueChange
from treadle.core.limit import Take
from treadle.storages.postgres import PostgresStorage
from treadle.storages.postgres.connect import Lost, Target, explained

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")


def a_storage(schema: str) -> PostgresStorage:
    return PostgresStorage(postgres_server.shared_url(), schema=schema)


async def test_a_take_does_not_wait_long_for_a_row_that_is_held() -> None:
    """A pod's turn waits for it: for as long as it does, nothing is claimed from any queue."""
    storage = a_storage(postgres_server.a_schema())
    await storage.open()
    await storage.save_limit("slack", 5, 1.0)
    admin = await asyncpg.connect(postgres_server.shared_url())
    async with admin.transaction():
        await admin.execute(f"select from {storage.schema_name}.rate_limit for update")
        begun = time.monotonic()
        with pytest.raises(StorageTimeout):
            await storage.take([Take(scope="slack", want=1)])
        assert time.monotonic() - begun < 5  # not the deadline of a call
    await admin.close()
    assert (await storage.take([Take(scope="slack", want=1)]))[0].got == 1
    await storage.close()


async def test_many_who_make_the_same_buckets_do_not_wait_for_each_other() -> None:
    schema = postgres_server.a_schema()
    storages = [a_storage(schema) for _ in range(6)]
    names = [f"q{n}" for n in range(8)]
    await storages[0].open()
    await storages[0].apply([QueueChange(name=name, rate=100.0, burst=1000) for name in names])
    for storage in storages[1:]:
        await storage.open()
    orders = [names, names[::-1]] * 3
    begun = time.monotonic()
    got = await asyncio.gather(
        *(
            storage.take([Take(scope=f"queue:{name}", want=1) for name in order])
            for storage, order in zip(storages, orders, strict=True)
        )
    )
    assert all(taken.got == 1 for answers in got for taken in answers)
    assert time.monotonic() - begun < 5
    for storage in storages:
        await storage.close()


@pytest.mark.parametrize("column", ["tokens", "at", "refill"])
async def test_a_damaged_bucket_harms_no_other(column: str) -> None:
    storage = a_storage(postgres_server.a_schema())
    await storage.open()
    for scope in ("bad", "good"):
        await storage.save_limit(scope, 5, 1.0)
    admin = await asyncpg.connect(postgres_server.shared_url())
    await admin.execute(f"alter table {storage.schema_name}.rate_limit drop constraint rate_limit_bounds")
    await admin.execute(f"update {storage.schema_name}.rate_limit set {column} = 'NaN' where scope = 'bad'")
    await admin.close()
    bad, good = await storage.take([Take(scope="bad", want=1), Take(scope="good", want=1)])
    assert (bad.problem, good.got) == (None, 1)
    assert all(math.isfinite(each.tokens) for each in await storage.limits())
    await storage.close()


async def test_whoever_stands_still_in_a_transaction_holds_its_rows_no_longer_than_a_call_may_take() -> None:
    storage = a_storage(postgres_server.a_schema())
    await storage.open()
    await storage.save_limit("slack", 5, 1.0)
    stopped = await Target(postgres_server.shared_url(), "test").connect(1.0)
    await stopped.execute("begin")
    await stopped.execute(f"select from {storage.schema_name}.rate_limit for update")
    begun = time.monotonic()
    assert await storage.save_limit("slack", 6, 1.0) is not None  # waits for the row
    assert time.monotonic() - begun < 5
    with pytest.raises(Exception, match=r"idle.in.transaction|closed") as caught:
        await stopped.execute("commit")
    assert isinstance(explained(caught.value), Lost)
    stopped.terminate()
    await storage.close()
