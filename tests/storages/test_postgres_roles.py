"""Roles: what each may do, of every table and function that there is, also of those that come later.

That a worker's role can do all that a worker does is proved by the conformance suite, which runs under it behind a
pooler.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import postgres_server
from treadle.core.errors import StorageUnavailable
from treadle.core.filter import parse
from treadle.ports import Query
from treadle.storages.postgres import PostgresStorage
from treadle.testing.conformance.builders import a_job, a_unique_job, only
from treadle.testing.conformance.steps import a_live_pod, take

pytestmark = pytest.mark.anyio

VERBS = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
DML = {"select", "insert", "update", "delete"}
ROLES = ("treadle_worker", "treadle_enqueuer", "treadle_viewer")
# What an enqueue writes. Everything else it may only read.
ENQUEUER = {"job": DML, "held": DML, "queue": {"select", "insert"}, "lane": {"select", "insert"}} | {
    "job_progress": {"select", "delete"},
    "job_checkpoint": {"select", "delete"},
}
ENQUEUES = {
    *("ensure_1", "insert_1", "insert_one_1", "insert_told_1", "insert_keyed_1", "insert_keyed_2", "put_off_1"),
    "enqueue",
}


class Realm:
    """A schema with its roles, and logins for them."""

    def __init__(self, owner: PostgresStorage, admin: psycopg.Connection[Any]) -> None:
        self.owner = owner
        self.schema = owner.schema_name
        self.admin = admin

    def tables(self) -> list[str]:
        return [
            name
            for (name,) in self.ask("select tablename from pg_tables where schemaname = %s order by 1", self.schema)
        ]

    def may(self, role: str, table: str) -> set[str]:
        asked = ", ".join(f"has_table_privilege('{role}', '{self.schema}.{table}', '{verb}')" for verb in VERBS)
        (answers,) = self.ask(f"select {asked}")
        return {verb for verb, answer in zip(VERBS, answers, strict=True) if answer}

    def functions(self, role: str) -> set[str]:
        found = self.ask(
            "select proname from pg_proc where pronamespace = %s::regnamespace "
            "and has_function_privilege(%s::text, oid, 'execute')",
            self.schema,
            role,
        )
        return {name for (name,) in found}

    async def storage(self, role: str) -> PostgresStorage:
        """As a login that is a member of the role."""
        login = f"{self.schema}_{role}"
        self.ask(f"create role {login} login in role {role}")
        storage = PostgresStorage(
            f"postgresql://{login}@/postgres?{urlsplit(postgres_server.shared_url()).query}", schema=self.schema
        )
        await storage.open()
        return storage

    def ask(self, sql: str, *values: Any) -> list[Any]:
        done = self.admin.execute(sql, values or None)  # type: ignore[call-overload]
        return done.fetchall() if done.description else []


@pytest.fixture
async def realm() -> AsyncIterator[Realm]:
    owner = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await owner.open()
    with psycopg.connect(postgres_server.shared_url(), autocommit=True) as admin:
        for _ in range(2):  # again after every migration
            postgres_server.make_roles(admin, owner.roles())
        yield Realm(owner, admin)
    await owner.close()


async def test_every_table_has_the_grants_of_its_role(realm: Realm) -> None:
    tables = realm.tables()
    assert len(tables) >= 10
    for table in tables:
        assert realm.may("treadle_worker", table) == (DML if table != "schema_version" else {"select"}), table
        assert realm.may("treadle_enqueuer", table) == ENQUEUER.get(table, {"select"}), table
        assert realm.may("treadle_viewer", table) == {"select"}, table
        assert realm.may("treadle_owner", table) == set(VERBS), table


async def test_every_function_is_for_those_who_need_it(realm: Realm) -> None:
    every = realm.functions("postgres")
    assert realm.functions("treadle_worker") == every
    assert realm.functions("treadle_enqueuer") == ENQUEUES
    assert realm.functions("treadle_viewer") == set()


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_but_the_owner_makes_or_drops_anything(realm: Realm, role: str) -> None:
    realm.ask(f"set role {role}")
    for sql in ("drop table {0}.job", "create table {0}.mine (n int)", "truncate {0}.job", "drop schema {0} cascade"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            realm.ask(sql.format(realm.schema))


async def test_an_enqueuer_enqueues_and_looks_and_no_more(realm: Realm) -> None:
    storage = await realm.storage("treadle_enqueuer")
    new = [a_job(queue="mail"), a_job(queue="mail", delay=5.0)]
    assert {each.outcome for each in await storage.insert(new)} == {"inserted"}
    assert {each.outcome for each in await storage.insert(new)} == {"inserted"}
    assert only(await storage.insert([a_unique_job("k")])).outcome == "inserted"
    assert only(await storage.insert([a_unique_job("k", on_conflict="replace")])).outcome == "replaced"
    assert len(await storage.insert([a_job() for _ in range(2_000)])) == 2_000
    assert len(await storage.get([each.id for each in new])) == 2
    assert realm.ask(f"set role treadle_enqueuer; select {realm.schema}.enqueue('work')") is not None
    with pytest.raises(StorageUnavailable, match="permission denied"):
        await a_live_pod(storage)
    pod = await a_live_pod(realm.owner)
    with pytest.raises(StorageUnavailable, match="permission denied"):
        await take(storage, pod)
    await storage.close()


async def test_a_viewer_looks_and_no_more(realm: Realm) -> None:
    await realm.owner.insert([a_job()])
    storage = await realm.storage("treadle_viewer")
    assert len((await storage.find(Query(filter=parse("")))).jobs) == 1
    assert sum((await storage.count(parse(""))).values()) == 1
    assert [each.queue.name for each in await storage.queues()] == ["default"]
    assert list(await storage.pods()) == []
    with pytest.raises(StorageUnavailable, match="permission denied"):
        await storage.insert([a_job()])
    await storage.close()


async def test_a_migrator_may_migrate(realm: Realm) -> None:
    storage = await realm.storage("treadle_migrator")
    assert not (await storage.migrate()).pending
    await storage.close()
