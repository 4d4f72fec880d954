"""Waking across processes (here: two storage objects), and what happens when the listener's connection is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import postgres_server
from treadle.core import lifecycle
from treadle.ports import Wake
from treadle.storages.postgres import PostgresStorage, desk, insert, rows, wakes
from treadle.storages.postgres.sql import Schema
from treadle.storages.postgres.talk import BadValue
from treadle.testing.conformance.builders import a_job
from treadle.testing.conformance.steps import a_live_pod, start, write

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")


class Pair:
    """One that writes and one that listens."""

    def __init__(self) -> None:
        url, schema = postgres_server.shared_url(), postgres_server.a_schema()
        self.writer = PostgresStorage(url, schema=schema)
        self.listener = PostgresStorage(url, schema=schema)
        self.heard: list[Wake] = []

    async def open(self) -> None:
        await self.writer.open()
        await self.listener.open()
        self.listener.listen(self.heard.append)
        await until(lambda: self.listener.signals_work)
        self.heard.clear()

    async def close(self) -> None:
        await self.writer.close()
        await self.listener.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()
    await pair.open()
    yield pair
    await pair.close()


async def until(what: Any, patience: float = 10.0) -> float:
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < patience, "it never happened"
        await asyncio.sleep(0.005)
    return time.monotonic() - began


async def test_another_process_hears_of_inserted_jobs(pair: Pair) -> None:
    await pair.writer.insert([a_job(queue="mail")])
    await until(lambda: any("mail" in wake.queues for wake in pair.heard))


async def test_another_process_hears_of_a_wanted_cancel(pair: Pair) -> None:
    job = await start(pair.writer)
    await write(pair.writer, lifecycle.cancel(job))
    await until(lambda: any(wake.cancels for wake in pair.heard))


async def test_many_inserts_are_few_notifications(pair: Pair, monkeypatch: Any) -> None:
    """However long the inserts take: in each period a job tells of itself at most once, and the desk at most once of
    what is owed."""
    monkeypatch.setattr(wakes, "AT_MOST_EVERY", 0.5)
    monkeypatch.setattr(desk, "AT_MOST_EVERY", 0.5)
    began = time.monotonic()
    for _ in range(200):
        await pair.writer.insert([a_job(queue="mail")])
    await until(lambda: len(pair.heard) >= 2)
    assert len(pair.heard) <= 2 * (1 + (time.monotonic() - began) / 0.5)


async def test_a_lone_job_tells_of_itself(pair: Pair) -> None:
    """In the round trip that writes it: no second connection is opened for the word, nor a thread."""
    await pair.writer.insert([a_job(queue="mail")])
    await until(lambda: any("mail" in wake.queues for wake in pair.heard))
    assert pair.writer._signals._bell is None
    await pair.writer.insert([a_job(queue="mail"), a_job(queue="mail")])
    assert pair.writer._signals._bell is not None


@pytest.mark.parametrize("closed", [False, True], ids=["somebody waits", "it is closed at once"])
async def test_a_lone_job_right_after_another_is_told_of_too(pair: Pair, monkeypatch: Any, closed: bool) -> None:
    """Not at once, because the last word is too young: by the next one that tells, by the bell after a while, or by who
    closes the storage."""
    monkeypatch.setattr(wakes, "AT_MOST_EVERY", 5.0)
    monkeypatch.setattr(desk, "AT_MOST_EVERY", 60.0 if closed else 0.05)
    await pair.writer.insert([a_job(queue="mail")])
    await until(lambda: len(pair.heard) == 1)
    await pair.writer.insert([a_job(queue="mail")])
    await pair.writer.insert([a_job(queue="mail")])
    if closed:
        assert len(pair.heard) == 1
        await pair.writer.close()
    await until(lambda: len(pair.heard) == 2)


async def test_a_lone_job_that_cannot_be_written_takes_no_word_from_others(pair: Pair, monkeypatch: Any) -> None:
    """What is owed of one before it is still said."""
    monkeypatch.setattr(desk, "AT_MOST_EVERY", 0.1)
    await pair.writer.insert([a_job(queue="mail")])
    await pair.writer.insert([a_job(queue="mail")])
    pair.writer._signals._told_at.clear()
    with pytest.raises(BadValue):
        await pair.writer.insert([a_job(queue="mail", args='"\x00"')])
    await until(lambda: len(pair.heard) == 2)


async def test_the_word_of_a_lone_job_is_not_in_its_transaction(pair: Pair) -> None:
    """Or its commit would hold the lock of all NOTIFYs while the disk is waited for: so it ends its own transaction,
    which cannot be done inside somebody else's."""
    job = a_job(queue="mail")
    connection = await asyncpg.connect(postgres_server.shared_url())
    call = Schema(pair.writer.schema_name)(insert.INSERT_TOLD)
    with pytest.raises(asyncpg.InvalidTransactionTerminationError):
        async with connection.transaction():
            await connection.fetch(call, None, *rows.values_of(job))
    await connection.close()
    assert await pair.writer.get([job.id]) == []
    assert pair.heard == []


async def test_whoever_listens_hears_of_its_own_lone_job_once(pair: Pair) -> None:
    await pair.listener.insert([a_job(queue="mail")])
    await asyncio.sleep(0.2)
    assert pair.heard == [Wake(queues=frozenset({"mail"}))]


async def test_nothing_is_notified_inside_a_callers_transaction(pair: Pair) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_server.shared_url()) as connection:
        pair.writer.borrow(connection).insert([a_job(queue="mail")])
    await asyncio.sleep(0.1)
    assert pair.heard == []


async def test_a_lost_listener_is_restored_and_looks_at_once(pair: Pair) -> None:
    admin = await asyncpg.connect(postgres_server.shared_url())
    ended = await admin.fetch(
        "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'treadle wake ' || $1",
        pair.listener.schema_name,
    )
    assert ended
    await admin.close()
    await until(lambda: Wake() in pair.heard, 15.0)
    await until(lambda: pair.listener.signals_work)
    pair.heard.clear()
    await pair.writer.insert([a_job(queue="mail")])
    await until(lambda: any("mail" in wake.queues for wake in pair.heard))


async def test_a_deaf_listener_warns_once_and_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    storage._signals._target.pooled = True  # as behind a transaction pooler
    await storage.open()
    storage.listen(lambda wake: None)
    await until(lambda: "LISTEN hears nothing" in caplog.text)
    assert not storage.signals_work
    pod = await a_live_pod(storage)
    await storage.insert([a_job()])
    assert len((await storage.claim(pod, "t", [])).jobs) == 0
    await storage.close()
    assert caplog.text.count("LISTEN hears nothing") == 1
