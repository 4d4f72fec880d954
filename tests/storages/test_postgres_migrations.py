"""The schema: made by itself in an empty database, by command elsewhere, once, and wholly or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests import postgres_server
from treadle.core.errors import SchemaTooNew, SchemaTooOld, StorageUnavailable
from treadle.storages.postgres import PostgresStorage, migrations
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


async def test_a_schema_that_is_too_old_names_the_command(admin: Any) -> None:
    storage = a_storage()
    await storage.open()
    await storage.close()
    await admin.execute(f"delete from {storage.schema_name}.schema_version where version > 1")
    with pytest.raises(SchemaTooOld, match="treadle db migrate"):
        await storage.open()


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


async def test_tables_of_somebody_else_are_left_alone(admin: Any) -> None:
    schema = postgres_server.a_schema()
    await admin.execute(f"create schema {schema}; create table {schema}.precious (n int)")
    with pytest.raises(StorageUnavailable, match="precious"):
        await a_storage(schema).open()
    tables = await admin.fetch("select tablename from pg_tables where schemaname = $1", schema)
    assert [row[0] for row in tables] == ["precious"]


async def test_a_migration_that_fails_half_way_leaves_nothing(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = a_storage()
    broken = migrations.Migration(
        2, "0002_broken", "-- compatible_from: 1\ncreate table treadle.x (n int); select 1/0;"
    )
    with monkeypatch.context() as patch:
        first = migrations.known()[0]
        patch.setattr(migrations, "known", lambda: (first, broken))
        with pytest.raises(Exception, match="division by zero"):
            await storage.open()
    assert await admin.fetchval("select to_regclass($1)", f"{storage.schema_name}.x") is None
    with pytest.raises(SchemaTooOld):
        await storage.open()
    # Only the first step was applied: the command completes it.
    other = a_storage(storage.schema_name)
    other._desks.open()
    assert not (await other.migrate()).pending
    await other.close()


async def test_the_printed_sql_makes_the_same_schema(admin: Any) -> None:
    storage = a_storage()
    await admin.execute(storage.sql())
    await storage.open()
    assert not (await storage.schema()).pending
    assert only(await storage.insert([a_job()])).outcome == "inserted"
    await storage.close()
    assert migrations.plan(0)
    assert migrations.plan(migrations.known()[-1].version) == []


@pytest.mark.parametrize("name", ["", "pg_x", "A", 'a"b', "a-b", "1a", "a" * 49, "a'b", "a b"])
def test_a_schema_name_is_checked(name: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        Schema(name)


async def test_roles_can_do_what_they_should_and_nothing_else(admin: Any) -> None:
    storage = a_storage()
    await storage.open()
    await admin.execute(storage.roles())
    await admin.execute(storage.roles())  # again after every migration
    schema = storage.schema_name
    await admin.execute("set role treadle_enqueuer")
    assert await admin.fetchval(f"select {schema}.enqueue('work')") is not None
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await admin.execute(f"select {schema}.finish_1(null, null, null, null, null, null, null, null, null)")
    await admin.execute("set role treadle_viewer")
    assert await admin.fetchval(f"select count(*) from {schema}.job") == 1
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await admin.execute(f"select {schema}.enqueue('work')")
    await admin.execute("set role treadle_worker")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await admin.execute(f"drop table {schema}.job")
    await admin.execute("reset role")
    await storage.close()


async def test_facts_are_told_for_the_doctor() -> None:
    storage = a_storage()
    await storage.open()
    facts = {fact.code: fact for fact in await storage.facts()}
    assert {"postgres-version", "schema", "pooler", "old-snapshot", "claim-plan", "connections", "clock-skew"} <= set(
        facts
    )
    assert facts["claim-plan"].level == "ok"
    await storage.close()
