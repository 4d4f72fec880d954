"""The schema: made by itself in an empty database, by command elsewhere, once, and wholly or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import postgres_server
from treadle import App, RetryAfter
from treadle.config import Timing
from treadle.core.errors import SchemaTooNew, SchemaTooOld, StorageUnavailable
from treadle.storages.postgres import PostgresStorage, migrations
from treadle.storages.postgres.connect import Target
from treadle.storages.postgres.lines import Line
from treadle.storages.postgres.sql import Schema
from treadle.testing.conformance.builders import a_job, only

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")


@pytest.fixture
async def admin() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_server.shared_url())
    yield connection
    await connection.close()


def a_storage(schema: str | None = None) -> PostgresStorage:
    return PostgresStorage(postgres_server.shared_url(), schema=schema or postgres_server.a_schema())


async def test_an_empty_database_is_migrated_at_open() -> None:
    storage = a_storage()
    await storage.open()
    status = await storage.schema()
    assert (status.current, status.pending) == (status.newest, ())
    await storage.close()


async def test_many_that_open_at_once_make_one_schema() -> None:
    schema = postgres_server.a_schema()
    storages = [a_storage(schema) for _ in range(6)]
    await asyncio.gather(*(storage.open() for storage in storages))
    for storage in storages:
        assert not (await storage.schema()).pending
        await storage.close()


async def test_an_empty_database_gets_all_migrations_in_one_transaction() -> None:
    """Or whoever opens it meanwhile would see a schema between two of them, and call it too old."""
    storage = a_storage()
    line = Line(Target(postgres_server.shared_url(), "test"), Schema(storage.schema_name), 10.0)
    await line.run(lambda: migrations.apply(Schema(storage.schema_name), KNOWN[0]))
    await line.close()
    status = await storage.schema()
    assert (status.current, status.pending) == (KNOWN[-1].version, ())


def test_a_schema_that_is_made_between_two_looks_is_ours() -> None:
    talk = migrations.check(Schema("treadle"))
    next(talk)
    talk.send([[False]])  # there is no ledger
    text, _ = talk.send([["job"]])  # but a table, by now
    assert "to_regclass" in text
    talk.send([[True]])
    talk.send([[KNOWN[-1].version, 2]])
    talk.send([[True]])
    with pytest.raises(StopIteration) as done:
        talk.send([[KNOWN[-1].version, 2]])
    assert done.value.value is False


async def test_a_schema_that_is_too_old_names_the_command(admin: Any) -> None:
    storage = a_storage()
    await storage.open()
    await storage.close()
    await admin.execute(f"delete from {storage.schema_name}.schema_version where version > 1")
    with pytest.raises(SchemaTooOld, match="treadle db migrate"):
        await storage.open()


async def test_an_old_schema_is_migrated_at_open_only_if_that_was_asked_for(admin: Any) -> None:
    schema = postgres_server.a_schema()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "known", lambda: KNOWN[:1])
        await admin.execute(migrations.script(Schema(schema)))
    with pytest.raises(SchemaTooOld):
        await a_storage(schema).open()
    storage = PostgresStorage(postgres_server.shared_url(), schema=schema, auto_migrate=True)
    await storage.open()
    assert not (await storage.schema()).pending
    await storage.close()


async def test_a_schema_from_the_future_is_refused_only_if_it_must_be(admin: Any) -> None:
    storage = a_storage()
    await storage.open()
    await storage.close()
    newest = migrations.known()[-1].version
    table = f"{storage.schema_name}.schema_version"
    await admin.execute(
        f"insert into {table} (version, name, checksum, compatible_from) values (999, 'x', 'x', {newest})"
    )
    await storage.open()
    await storage.close()
    await admin.execute(f"update {table} set compatible_from = 999 where version = 999")
    with pytest.raises(SchemaTooNew, match="upgrade Treadle"):
        await storage.open()


KNOWN = migrations.known()
EXPAND = """-- compatible_from: {compatible}
--
-- A step of the next release that only adds.
alter table treadle.job add column colour text not null default 'blue';
alter table treadle.job_history add column colour text;
alter table treadle.queue add column shape text;
create table treadle.next_release (n integer not null primary key);
"""


async def test_workers_of_this_version_run_through_an_expanding_step(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Expand, then contract: a database may be a version ahead of the workers on it, while they work."""
    storage = a_storage()
    app = App(storage=storage, timing=Timing(poll=0.02, scan=0.2, start_jitter=0.0))
    ran: list[int] = []

    @app.task(retry=5)
    async def count(n: int) -> int:
        ran.append(n)
        if n % 10 == 0 and ran.count(n) == 1:
            raise RetryAfter(0.01)
        return n

    newest = migrations.known()[-1].version
    step = migrations.Migration(newest + 1, f"{newest + 1:04}_next", EXPAND.format(compatible=newest))
    last = step.text.replace(f"compatible_from: {newest}", f"compatible_from: {newest + 2}").replace("next_", "last_")
    last = last.replace("colour", "sound").replace("shape", "smell")
    handles: list[Any] = []
    async with app.worker("default:8"):
        for n in range(100):
            handles.append(await count.enqueue(n))
        later = a_storage(storage.schema_name)
        with monkeypatch.context() as patch:
            patch.setattr(migrations, "known", lambda: (*KNOWN, step))
            assert (await later.migrate()).current == newest + 1
        for n in range(100, 200):
            handles.append(await count.enqueue(n))
        for handle in handles:
            assert isinstance(await handle.result(timeout=20), int)
        # A new process of this version may come, too; it is told nothing is pending.
        newcomer = a_storage(storage.schema_name)
        await newcomer.open()
        assert (await newcomer.schema()).current == newest + 1
        assert only(await newcomer.insert([a_job()])).outcome == "inserted"
        await newcomer.close()
    assert {*ran} == {*range(200)}
    table = f"{storage.schema_name}.job_history"
    assert await admin.fetchval(f"select count(*) from {table} where state = 'succeeded'") == 200
    # The contracting step comes a release later, and is not for this version.
    with monkeypatch.context() as patch:
        end = migrations.Migration(newest + 2, f"{newest + 2:04}_last", last)
        patch.setattr(migrations, "known", lambda: (*KNOWN, step, end))
        await later.migrate()
    with pytest.raises(SchemaTooNew, match=f"knows schema {newest + 2} or newer"):
        await a_storage(storage.schema_name).open()


async def test_tables_of_somebody_else_are_left_alone(admin: Any) -> None:
    schema = postgres_server.a_schema()
    await admin.execute(f"create schema {schema}; create table {schema}.precious (n int)")
    with pytest.raises(StorageUnavailable, match="precious"):
        await a_storage(schema).open()
    tables = await admin.fetch("select tablename from pg_tables where schemaname = $1", schema)
    assert [row[0] for row in tables] == ["precious"]


@pytest.mark.parametrize("made", [0, 1], ids=["in an empty database", "over the first"])
async def test_a_migration_that_fails_half_way_leaves_nothing(
    admin: Any, monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    storage = a_storage()
    first = migrations.known()[0]
    broken = migrations.Migration(
        2, "0002_broken", "-- compatible_from: 1\ncreate table treadle.x (n int); select 1/0;"
    )
    with monkeypatch.context() as patch:
        if made:
            patch.setattr(migrations, "known", lambda: (first,))
            await admin.execute(storage.sql())
        patch.setattr(migrations, "known", lambda: (first, broken))
        with pytest.raises(Exception, match="division by zero"):
            await storage.migrate()
    assert await admin.fetchval("select to_regclass($1)", f"{storage.schema_name}.x") is None
    assert (await storage.schema()).current == made
    # The command completes it, on a storage that could not be opened.
    assert not (await storage.migrate()).pending
    await storage.open()
    await storage.close()


async def test_the_printed_sql_makes_the_same_schema(admin: Any) -> None:
    storage = a_storage()
    await admin.execute(storage.sql())
    await storage.open()
    assert not (await storage.schema()).pending
    assert only(await storage.insert([a_job()])).outcome == "inserted"
    await storage.close()
    assert migrations.plan(0)
    assert migrations.plan(migrations.known()[-1].version) == []


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [each.version for each in migrations.known()] == list(range(1, migrations.known()[-1].version + 1))
    assert migrations.known()[-1].version >= migrations.OLDEST_USABLE


def test_every_migration_says_from_which_version_on_it_can_be_used() -> None:
    """Version 2 is the first that was released: every later one only adds to it."""
    for each in migrations.known():
        assert 1 <= each.compatible_from <= min(each.version, 2), each.name


@pytest.mark.parametrize("name", ["", "pg_x", "A", 'a"b', "a-b", "1a", "a" * 49, "a'b", "a b"])
def test_a_schema_name_is_checked(name: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        Schema(name)


async def test_facts_are_told_for_the_doctor() -> None:
    storage = a_storage()
    await storage.open()
    facts = {fact.code: fact for fact in await storage.facts()}
    assert {"postgres-version", "schema", "pooler", "old-snapshot", "claim-plan", "connections", "clock-skew"} <= set(
        facts
    )
    assert facts["claim-plan"].level == "ok"
    await storage.close()
