"""Settings that somebody wrote into the database by hand: what cannot be read is built in, and work goes on."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from treadle.core.outcome import Throttled
from treadle.storages.postgres import PostgresStorage
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.conformance.builders import LEASE
from treadle.testing.conformance.steps import a_live_pod, edit, end, put, queue, take_one

pytestmark = pytest.mark.anyio

DAMAGED = ["", "{", "[]", '{"aging":0}', '{"timeout":-1}', '{"timeout":"soon"}', '{"retry":7}', "\x00", "ÿ"]


@pytest.mark.parametrize("text", [*DAMAGED, b"\xff\xfe", 7, 1.5])
async def test_in_a_sqlite_file(tmp_path: Path, text: object) -> None:
    storage = SQLiteStorage(tmp_path / "jobs.db")
    await storage.open()
    try:
        pod = await a_live_pod(storage)
        await edit(storage, rate=2.0, timeout=5.0, aging=1.0, max_workers=3)
        with contextlib.closing(sqlite3.connect(storage.path)) as db:
            db.execute("update treadle_queue set settings = ?", (text,))
            db.commit()
        await works_with_the_built_in(storage, pod)
    finally:
        await storage.close()


@pytest.mark.parametrize("text", [text for text in DAMAGED if "\x00" not in text])
async def test_in_a_postgres_schema(text: str) -> None:
    asyncpg: Any = pytest.importorskip("asyncpg")
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    admin = await asyncpg.connect(postgres_server.shared_url())
    try:
        pod = await a_live_pod(storage)
        await edit(storage, rate=2.0, max_workers=3)
        await admin.execute(f"update {storage.schema_name}.queue set settings = $1", text)
        await works_with_the_built_in(storage, pod)
        for column in ("aging", "timeout"):
            for value in ("-1", "'nan'", "'infinity'"):
                with pytest.raises(asyncpg.CheckViolationError):
                    await admin.execute(f"update {storage.schema_name}.queue set {column} = {value}")
    finally:
        await admin.close()
        await storage.close()


async def works_with_the_built_in(storage: Any, pod: str) -> None:
    row = await queue(storage)
    assert (row.max_workers, row.rate, row.timeout, row.aging, row.retry) == (3, None, None, None, None)
    assert not (await storage.beat(pod, LEASE, [])).lost
    await put(storage, timeout=100.0)
    job = await take_one(storage, pod)
    assert job.timeout == 100.0
    assert (await end(storage, job, Throttled())).throttles == 1
    await edit(storage, rate=4.0)
    assert (await queue(storage)).rate == 4.0
