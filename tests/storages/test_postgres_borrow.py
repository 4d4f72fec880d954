"""Verbs inside the caller's own transaction, on every kind of connection that `borrow` takes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests import postgres_server
from treadle.core import lifecycle
from treadle.core.errors import StorageUnavailable
from treadle.core.job import State
from treadle.ports import Wake
from treadle.storages.postgres import PostgresStorage
from treadle.testing.conformance.builders import a_job, a_unique_job, only

pytestmark = pytest.mark.anyio

SYNC = ("psycopg", "session", "sqlalchemy", "django")
ASYNC = ("asyncpg", "psycopg", "session", "sqlalchemy", "session+asyncpg")


@pytest.fixture
async def storage() -> AsyncIterator[PostgresStorage]:
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    yield storage
    await storage.close()


def sqlalchemy_url(driver: str) -> str:
    _, _, query = postgres_server.shared_url().partition("?")
    return f"postgresql+{driver}://postgres@/postgres?{query}"


@contextlib.contextmanager
def a_transaction(kind: str) -> Iterator[tuple[Any, Any, Any]]:
    """(what within= takes, how to commit, how to roll back)"""
    if kind == "psycopg":
        psycopg = pytest.importorskip("psycopg")
        with contextlib.closing(psycopg.connect(postgres_server.shared_url())) as connection:
            yield connection, connection.commit, connection.rollback
    elif kind == "django":
        django = pytest.importorskip("django")
        yield from _django(django)
    else:
        sqlalchemy = pytest.importorskip("sqlalchemy")
        engine = sqlalchemy.create_engine(sqlalchemy_url("psycopg"))
        try:
            if kind == "session":
                orm = pytest.importorskip("sqlalchemy.orm")
                with orm.Session(engine) as session:
                    yield session, session.commit, session.rollback
            else:
                with engine.connect() as connection:
                    connection.begin()
                    yield connection, connection.commit, connection.rollback
        finally:
            engine.dispose()


def _django(django: Any) -> Iterator[tuple[Any, Any, Any]]:
    from urllib.parse import parse_qs

    from django.conf import settings

    query = parse_qs(postgres_server.shared_url().partition("?")[2])
    if not settings.configured:
        settings.configure(
            DATABASES={
                "default": {
                    "ENGINE": "django.db.backends.postgresql",
                    "NAME": "postgres",
                    "USER": "postgres",
                    "HOST": query["host"][0],
                    "PORT": query["port"][0],
                }
            },
            INSTALLED_APPS=[],
        )
        django.setup()
    # Its own guard against blocking the loop; the tests run on one.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    from django.db import connection, transaction

    atomic = transaction.atomic()
    atomic.__enter__()
    done: list[str] = []

    def commit() -> None:
        done.append("commit")
        atomic.__exit__(None, None, None)

    def roll_back() -> None:
        done.append("rollback")
        error = RuntimeError("rolled back")
        atomic.__exit__(RuntimeError, error, None)

    try:
        yield connection, commit, roll_back
    finally:
        if not done:
            roll_back()
        connection.close()


@pytest.mark.parametrize("kind", SYNC)
async def test_what_is_inserted_within_is_there_when_the_caller_commits(storage: PostgresStorage, kind: str) -> None:
    with a_transaction(kind) as (connection, commit, _):
        new = a_job(tags=("a", 'q"\\'), priority=3, delay=5.0)
        answer = only(storage.borrow(connection).insert([new]))
        assert (answer.id, answer.outcome) == (new.id, "inserted")
        assert await storage.get([new.id]) == []
        assert only(storage.borrow(connection).get([new.id])).tags == ("a", 'q"\\')
        commit()
        assert only(await storage.get([new.id])).state is State.SCHEDULED


@pytest.mark.parametrize("kind", SYNC)
async def test_what_is_inserted_within_vanishes_when_the_caller_rolls_back(storage: PostgresStorage, kind: str) -> None:
    with a_transaction(kind) as (connection, _, roll_back):
        jobs = [a_job(), a_unique_job("k"), a_job(queue="new", priority=7)]
        storage.borrow(connection).insert(jobs)
        roll_back()
    assert await storage.get([job.id for job in jobs]) == []
    assert only(await storage.insert([a_unique_job("k")])).outcome == "inserted"


@pytest.mark.parametrize("kind", ["session", "django"])
async def test_listeners_are_woken_after_the_commit_where_the_library_says_when(
    storage: PostgresStorage, kind: str
) -> None:
    heard: list[Wake] = []
    stop = storage.listen(heard.append)
    with a_transaction(kind) as (connection, commit, _):
        storage.borrow(connection).insert([a_job(queue="mail")])
        assert not any("mail" in wake.queues for wake in heard)
        commit()
        assert any("mail" in wake.queues for wake in heard)
    stop()


async def test_a_bad_change_within_spares_the_callers_transaction(storage: PostgresStorage) -> None:
    one, other = a_job(), a_job()
    await storage.insert([one, other])
    with a_transaction("psycopg") as (connection, commit, _):
        borrowed = storage.borrow(connection)
        found = borrowed.get([one.id, other.id])
        good = lifecycle.cancel(found[0])
        bad = lifecycle.reschedule(found[1], run_at=1e300)
        assert good is not None
        assert bad is not None
        answers = borrowed.apply([bad, good])
        assert [answer.accepted for answer in answers] == [False, True]
        commit()
    assert [job.state for job in await storage.get([one.id, other.id])] == [State.CANCELLED, State.READY]


async def test_an_autocommit_connection_is_refused_with_what_to_do(storage: PostgresStorage) -> None:
    psycopg = pytest.importorskip("psycopg")
    with contextlib.closing(psycopg.connect(postgres_server.shared_url(), autocommit=True)) as connection:
        with pytest.raises(StorageUnavailable, match="without within="):
            storage.borrow(connection)
        with connection.transaction():
            storage.borrow(connection).insert([a_job()])


async def test_a_connection_to_another_database_is_refused(storage: PostgresStorage) -> None:
    psycopg = pytest.importorskip("psycopg")
    name = postgres_server.a_schema()
    url = postgres_server.shared_url()
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(f"create database {name}")
    with (
        contextlib.closing(psycopg.connect(url, dbname=name)) as connection,
        pytest.raises(StorageUnavailable, match="no Treadle tables"),
    ):
        storage.borrow(connection).insert([a_job()])
    twin = PostgresStorage(url.replace("/postgres?", f"/{name}?"), schema=storage.schema_name)
    await twin.open()
    await twin.close()
    with (
        contextlib.closing(psycopg.connect(url, dbname=name)) as connection,
        pytest.raises(StorageUnavailable, match="not the one"),
    ):
        storage.borrow(connection).insert([a_job()])
    with contextlib.closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(f"drop database {name}")


async def test_a_stranger_is_told_what_is_taken(storage: PostgresStorage) -> None:
    with pytest.raises(TypeError, match=r"psycopg\.Connection"):
        storage.borrow(object())
    with pytest.raises(TypeError, match=r"psycopg\.Connection"):
        storage.borrow_async(object())


# Async ---------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def an_async_transaction(kind: str) -> AsyncIterator[tuple[Any, Any, Any]]:
    url = postgres_server.shared_url()
    if kind == "asyncpg":
        asyncpg = pytest.importorskip("asyncpg")
        connection = await asyncpg.connect(url)
        transaction = connection.transaction()
        await transaction.start()
        yield connection, transaction.commit, transaction.rollback
        await connection.close()
    elif kind == "psycopg":
        psycopg = pytest.importorskip("psycopg")
        connection = await psycopg.AsyncConnection.connect(url)
        yield connection, connection.commit, connection.rollback
        await connection.close()
    else:
        extension = pytest.importorskip("sqlalchemy.ext.asyncio")
        pytest.importorskip("greenlet")
        engine = extension.create_async_engine(sqlalchemy_url("asyncpg" if "asyncpg" in kind else "psycopg"))
        if kind.startswith("session"):
            async with extension.AsyncSession(engine) as session:
                yield session, session.commit, session.rollback
        else:
            async with engine.connect() as connection:
                await connection.begin()
                yield connection, connection.commit, connection.rollback
        await engine.dispose()


@pytest.mark.parametrize("kind", ASYNC)
async def test_async_what_is_inserted_within_is_there_when_the_caller_commits(
    storage: PostgresStorage, kind: str
) -> None:
    async with an_async_transaction(kind) as (connection, commit, _):
        jobs = [a_job(tags=("a",)), a_unique_job("k")]
        answers = await storage.borrow_async(connection).insert(jobs)
        assert [answer.outcome for answer in answers] == ["inserted", "inserted"]
        assert await storage.get([jobs[0].id]) == []
        assert len(await storage.borrow_async(connection).get([job.id for job in jobs])) == 2
        await commit()
    assert len(await storage.get([job.id for job in jobs])) == 2


@pytest.mark.parametrize("kind", ASYNC)
async def test_async_what_is_inserted_within_vanishes_when_the_caller_rolls_back(
    storage: PostgresStorage, kind: str
) -> None:
    async with an_async_transaction(kind) as (connection, _, roll_back):
        new = a_job()
        await storage.borrow_async(connection).insert([new])
        await roll_back()
    assert await storage.get([new.id]) == []


async def test_async_a_connection_without_a_transaction_is_refused(storage: PostgresStorage) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    connection = await asyncpg.connect(postgres_server.shared_url())
    with pytest.raises(StorageUnavailable, match="not in a transaction"):
        await storage.borrow_async(connection).insert([a_job()])
    await connection.close()


# The SQL function ----------------------------------------------------------------------------------------------------


async def test_the_sql_function_enqueues_with_the_same_checks(storage: PostgresStorage) -> None:
    asyncpg = pytest.importorskip("asyncpg")
    connection = await asyncpg.connect(postgres_server.shared_url())
    function = f"{storage.schema_name}.enqueue"
    id = await connection.fetchval(
        f"""select {function}('mail.send', '{{"user": 1}}', queue => 'mail', delay => '1 minute', priority => 5,
        tags => array['vip'], unique_key => 'u:1', timeout => '30 s')::text"""
    )
    job = only(await storage.get([id]))
    assert (job.task, job.queue, job.args, job.priority) == ("mail.send", "mail", '{"user": 1}', 5)
    assert (job.tags, job.unique_key, job.timeout, job.state) == (("vip",), "u:1", 30.0, State.SCHEDULED)
    again = await connection.fetchval(f"select {function}('mail.send', unique_key => 'u:1')::text")
    assert again == id
    assert id[14] == "7"  # a version 7 id, as the client makes them: it sorts by time
    for wrong in ("'bad name'", "'x', '[1]'", "'x', queue => ''", "'x', priority => 101", "'x', max_attempts => 0"):
        with pytest.raises(asyncpg.PostgresError):
            await connection.execute(f"select {function}({wrong})")
    await connection.close()
