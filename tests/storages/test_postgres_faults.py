"""What the PostgreSQL storage survives: servers that go away, sessions that are ended, answers that never come."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import postgres_server
from treadle.core.errors import StorageTimeout, StorageUnavailable
from treadle.core.job import State
from treadle.core.outcome import Succeeded
from treadle.storages.postgres import PostgresStorage
from treadle.storages.postgres import connect as connecting
from treadle.testing.conformance.builders import LEASE, a_job, a_token, a_unique_job, finished, only, want
from treadle.testing.conformance.steps import a_live_pod, start, take

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")


@pytest.fixture
async def storage() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema(), call_deadline=5.0)
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture
async def admin() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_server.shared_url())
    yield connection
    await connection.close()


class Proxy:
    """A TCP proxy in front of the session's server that can go deaf, in one direction or both, or cut everything."""

    def __init__(self) -> None:
        self.deaf = False  # what the server says is dropped
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"postgresql://postgres@127.0.0.1:{port}/postgres"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(_socket_path())
        self._writers += [writer, back]
        await asyncio.gather(self._pump(reader, back, False), self._pump(there, writer, True), return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not (self.deaf and answers):
                    writer.write(data)
                    await writer.drain()
        writer.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.sleep(0.05)


def _socket_path() -> str:
    from urllib.parse import parse_qs

    query = parse_qs(postgres_server.shared_url().partition("?")[2])
    return f"{query['host'][0]}/.s.PGSQL.{query['port'][0]}"


@pytest.fixture
async def proxied() -> AsyncIterator[tuple[PostgresStorage, Proxy]]:
    proxy = Proxy()
    storage = PostgresStorage(await proxy.start(), schema=postgres_server.a_schema(), call_deadline=1.5)
    await storage.open()
    yield storage, proxy
    proxy.deaf = False
    await storage.close()
    await proxy.stop()


async def test_a_call_goes_on_when_its_session_was_ended(storage: PostgresStorage, admin: Any) -> None:
    pod = await a_live_pod(storage)
    end_all = "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'treadle%' || $1"
    for _ in range(5):
        await admin.fetch(end_all, storage.schema_name)
        # The claim alone is not sent again by itself: its caller recovers it by its token.
        with contextlib.suppress(StorageUnavailable):
            await storage.claim(pod, a_token(), [want(limit=1)])
        job = await start(storage, pod)
        await admin.fetch(end_all, storage.schema_name)
        assert only(await storage.apply([finished(job, Succeeded())])).accepted
        await storage.beat(pod, LEASE, [])


async def test_a_lost_claim_is_recovered_by_its_token(proxied: tuple[PostgresStorage, Proxy]) -> None:
    storage, proxy = proxied
    pod = await a_live_pod(storage)
    await storage.insert([a_job() for _ in range(3)])
    await take(storage, pod, want(limit=1))
    proxy.deaf = True
    token = a_token()
    with pytest.raises(StorageTimeout):
        await storage.claim(pod, token, [want()])
    proxy.deaf = False
    assert len(await storage.recover(pod, token)) == 2
    held = (await storage.beat(pod, LEASE, [])).held
    assert sum(each.token == token for each in held) == 2


async def test_a_deaf_connection_is_given_up_at_the_deadline_and_never_used_again(
    proxied: tuple[PostgresStorage, Proxy],
) -> None:
    storage, proxy = proxied
    job = await start(storage)
    change = finished(job, Succeeded())
    proxy.deaf = True
    began = time.monotonic()
    with pytest.raises(StorageTimeout):
        await storage.apply([change])
    assert time.monotonic() - began < 15.0  # without a deadline: never
    proxy.deaf = False
    again = only(await storage.apply([change]))
    assert again.accepted
    assert only(await storage.get([job.id])).state is State.SUCCEEDED


async def test_an_insert_whose_connection_is_cut_is_sent_again_and_is_one_job(
    proxied: tuple[PostgresStorage, Proxy],
) -> None:
    storage, proxy = proxied
    await storage.insert([a_job()])
    proxy.deaf = True
    new = a_job()
    sending = asyncio.create_task(storage.insert([new]))
    await asyncio.sleep(0.2)
    proxy.deaf = False
    proxy.cut()
    assert only(await sending).outcome == "inserted"
    assert only(await storage.get([new.id])).id == new.id


async def test_a_foreign_key_is_not_waited_for_for_ever_and_holds_up_nobody(
    storage: PostgresStorage, admin: Any
) -> None:
    await storage.insert([a_job()])
    transaction = admin.transaction()
    await transaction.start()
    await admin.execute(f"select {storage.schema_name}.enqueue('work', unique_key => 'k')")
    waiting = asyncio.create_task(storage.insert([a_unique_job("k")]))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(4.0):  # not the deadline of a call
        await storage.insert([a_job()])
    assert not waiting.done()
    with pytest.raises(StorageTimeout, match="another open transaction"):
        await waiting
    await transaction.rollback()
    assert only(await storage.insert([a_unique_job("k")])).outcome == "inserted"


async def test_a_row_that_somebody_holds_does_not_keep_its_neighbours(storage: PostgresStorage, admin: Any) -> None:
    pod = await a_live_pod(storage)
    await storage.insert([a_job(), a_job()])
    held, free = await take(storage, pod)
    transaction = admin.transaction()
    await transaction.start()
    await admin.execute(f"select 1 from {storage.schema_name}.job where id = '{held.id}' for update")
    changes = [finished(held, Succeeded()), finished(free, Succeeded())]
    with pytest.raises(StorageTimeout):
        await storage.apply(changes)
    assert only(await storage.get([free.id])).state is State.SUCCEEDED
    await transaction.rollback()
    assert [answer.accepted for answer in await storage.apply(changes)] == [True, True]


async def test_one_bad_insert_does_not_spoil_those_that_share_its_statement(storage: PostgresStorage) -> None:
    good = [a_job() for _ in range(20)]
    bad = a_job(reason="a\x00b")
    calls = [storage.insert([new]) for new in (*good[:10], bad, *good[10:])]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(answer, BaseException) for answer in answers) == 1
    assert isinstance(answers[10], ValueError)
    assert len(await storage.get([new.id for new in good])) == 20


async def test_a_read_only_server_is_named(admin: Any) -> None:
    told = connecting.explained(asyncpg.ReadOnlySQLTransactionError("cannot execute INSERT in a read-only transaction"))
    assert isinstance(told, StorageUnavailable)
    assert "read-only" in str(told)


async def test_a_loop_that_ended_without_a_word_leaves_nothing_open(storage: PostgresStorage, admin: Any) -> None:
    async def count() -> int:
        found = await admin.fetchval(
            "select count(*) from pg_stat_activity where application_name = 'treadle ' || $1", storage.schema_name
        )
        return int(found)

    before = await count()

    def elsewhere() -> None:
        asyncio.run(storage.insert([a_job()]))  # type: ignore[arg-type]

    for _ in range(3):
        await asyncio.to_thread(elsewhere)
    loop = asyncio.new_event_loop()
    loop.close()

    async def on_another_loop() -> None:
        await storage.get([])
        await storage.queues()
        await storage.detach()

    await asyncio.to_thread(lambda: asyncio.run(on_another_loop()))
    await asyncio.sleep(0.2)
    assert await count() <= before + 1


async def test_calls_during_a_restart_are_answered_after_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with postgres_server.a_server() as server:
        storage = PostgresStorage(server.url)
        await storage.open()
        pod = await a_live_pod(storage)
        job = await start(storage, pod)
        for stop in (lambda: server.stop("fast"), lambda: server.stop("immediate"), server.kill):
            await asyncio.to_thread(stop)
            calls = [
                asyncio.create_task(storage.insert([a_job()])),
                asyncio.create_task(storage.beat(pod, LEASE, [])),
            ]
            await asyncio.sleep(0.3)
            await asyncio.to_thread(server.start)
            inserted, beaten = await asyncio.gather(*calls)
            assert only(inserted).outcome == "inserted"  # type: ignore[arg-type]
            assert not beaten.lost  # type: ignore[union-attr]
        assert only(await storage.apply([finished(job, Succeeded())])).accepted
        assert len(await take(storage, pod)) == 3
        await storage.close()


async def test_a_server_that_is_not_there_is_told_in_one_line() -> None:
    storage = PostgresStorage("postgresql://nobody:secret@127.0.0.1:1/none", call_deadline=0.5)
    with pytest.raises(StorageUnavailable) as told:
        await storage.open()
    assert "secret" not in str(told.value)
    assert "\n" not in str(told.value)
