"""`treadle db` on a PostgreSQL server, with schemas of other versions."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests import postgres_server
from treadle.storages.postgres import migrations
from treadle.storages.postgres.sql import Schema

from .conftest import Store, Treadle

asyncpg: Any = pytest.importorskip("asyncpg")

KNOWN = migrations.known()
NEWEST = KNOWN[-1].version
SOURCE = str(Path(__file__).parents[2] / "src")
CLI = [sys.executable, "-m", "treadle.cli", "db"]
# As the command does it, but killed in the middle of the second migration that it applies.
DYING = """
import os, signal
from treadle.cli import root
from treadle.storages.postgres import migrations

whole, applied = migrations.apply, []

def driven(schema, migration):
    talk = whole(schema, migration)
    answer = None
    while True:
        try:
            ask = talk.send(answer)
        except StopIteration:
            return
        if len(applied) == 2:
            os.kill(os.getpid(), signal.SIGKILL)  # its statements were sent, its commit was not
        if ask[0] == migration.text:
            applied.append(migration)
        answer = yield ask

migrations.apply = driven
root.main()
"""


@pytest.fixture
def schema(folder: Path) -> str:
    name = os.environ["TREADLE_SCHEMA"] = postgres_server.a_schema()
    os.environ["TREADLE_URL"] = postgres_server.shared_url()
    return name


def execute(text: str) -> list[Any]:
    async def run() -> list[Any]:
        connection = await asyncpg.connect(postgres_server.shared_url())
        try:
            if text.startswith("select"):
                return list(await connection.fetch(text))
            await connection.execute(text)
            return []
        finally:
            await connection.close()

    return asyncio.run(run())


def make_roles(text: str) -> None:
    """Roles belong to the whole server: not by two test processes at once."""
    with psycopg.connect(postgres_server.shared_url(), autocommit=True) as admin:
        postgres_server.make_roles(admin, text)


def make(schema: str, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema as the release left it that brought this version."""
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "known", lambda: tuple(each for each in KNOWN if each.version <= version))
        execute(migrations.script(Schema(schema)))


def versions(schema: str) -> list[int]:
    return [row[0] for row in execute(f"select version from {schema}.schema_version order by 1")]


def a_process(*args: str, code: str | None = None) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-c", code, "db", *args] if code is not None else [*CLI, *args]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_status_plan_and_sql_make_nothing(treadle: Treadle, schema: str) -> None:
    status = treadle("db", "status", "--json")
    assert (status.code, status.object["current"], status.object["newest"]) == (78, 0, NEWEST)
    assert len(treadle("db", "plan").lines) == len(KNOWN)
    assert treadle("db", "plan", "--json").object["plan"][0].startswith("0001_start: ")
    assert treadle("db", "sql").out.startswith("begin;")
    assert execute(f"select 1 from pg_namespace where nspname = '{schema}'") == []


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_schema_is_looked_at_and_migrated(
    treadle: Treadle, schema: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is too old to be opened."""
    make(schema, version, monkeypatch)
    status = treadle("db", "status")
    assert status.code == 78
    assert f"schema {version} of {NEWEST}" in status.lines[0]
    assert treadle("jobs", "find").code == (78 if version < migrations.OLDEST_USABLE else 0)
    plan = treadle("db", "plan")
    assert [line.partition(":")[0] for line in plan.lines] == [each.name for each in KNOWN if each.version > version]
    assert versions(schema) == list(range(1, version + 1))
    ran = treadle("db", "migrate", "--json")
    assert (ran.code, ran.object["current"], ran.object["pending"]) == (0, NEWEST, [])
    assert treadle("db", "status").code == 0
    nothing = treadle("db", "plan")
    assert (nothing.code, nothing.out) == (0, "")
    assert treadle("db", "sql").out == ""


@pytest.mark.parametrize("version", range(2, NEWEST + 1))
def test_a_migration_keeps_all_jobs(
    treadle: Treadle, schema: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From every schema that a release may have left, filled from SQL as that release could be."""
    make(schema, version, monkeypatch)
    execute(f"do $$ begin perform {schema}.enqueue('shop.welcome', '{{\"user_id\": 1}}', 'mail') "
            "from generate_series(1, 20); end $$")  # fmt: skip
    execute(
        f"with gone as (delete from {schema}.job where id in (select id from {schema}.job limit 5) returning *) "
        f"insert into {schema}.job_history (seq, id, run_at, created_at, finished_at, priority, format, pinned, "
        "attempt, crashes, snoozes, throttles, error_count, state, queue, task, args) "
        "select seq, id, run_at, created_at, now(), priority, format, pinned, 1, 0, 0, 0, 0, 'succeeded', queue, task, "
        "args from gone"
    )
    before = jobs(schema)
    assert treadle("db", "migrate").code == 0
    assert jobs(schema) == before
    assert len(before) == 20
    store = Store(os.environ["TREADLE_URL"])
    assert counted(store) == {"ready": 15, "succeeded": 5}
    store.succeeded()  # enqueues one more, and ends the first in the queue
    assert counted(store) == {"ready": 15, "succeeded": 6}


def jobs(schema: str) -> list[Any]:
    return execute(f"select id, args from {schema}.job union all select id, args from {schema}.job_history order by 1")


def counted(store: Store) -> dict[str, int]:
    return {state: count for state, count in store.run(lambda app: app.jobs.count("")).items() if count}


def test_the_printed_sql_brings_an_old_schema_forward(
    treadle: Treadle, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(schema, 2, monkeypatch)
    execute(treadle("db", "sql").out)
    assert treadle("db", "status").code == 0
    assert versions(schema) == [each.version for each in KNOWN]
    assert treadle("enqueue", "shop.welcome").code == 0


def test_all_of_the_sql_needs_no_server(treadle: Treadle, schema: str) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    ran = treadle("db", "sql", "--all", "--url", nowhere)
    assert ran.code == 0
    assert ran.out.count("schema_version (version, name") == len(KNOWN)
    assert treadle("db", "sql", "--all", "--json", "--url", nowhere).object["after"] == 0
    roles = treadle("db", "roles", "--url", nowhere)
    assert roles.code == 0
    assert schema in roles.out


def test_roles_can_be_made_by_what_is_printed(treadle: Treadle, schema: str) -> None:
    assert treadle("db", "migrate").code == 0
    make_roles(treadle("db", "roles").out)
    make_roles(treadle("db", "roles", "--prefix", f"p{schema[-6:]}").out)
    made = [row[0] for row in execute(f"select rolname from pg_roles where rolname like 'p{schema[-6:]}%' order by 1")]
    assert [name.partition("_")[2] for name in made] == ["enqueuer", "migrator", "owner", "viewer", "worker"]
    assert treadle("db", "roles", "--prefix", "no good").code == 2


def test_every_table_is_open_to_those_who_need_it(treadle: Treadle, schema: str) -> None:
    """A new table wants its line in roles.sql."""
    assert treadle("db", "migrate").code == 0
    make_roles(treadle("db", "roles").out)
    found = execute(
        "select relname, has_table_privilege('treadle_worker', oid, 'insert') from pg_class "
        f"where relkind = 'r' and relnamespace = '{schema}'::regnamespace"
    )
    assert [name for name, writes in found if not writes] == ["schema_version"]


def test_a_migrator_may_copy_and_migrate(treadle: Treadle, schema: str, url: str) -> None:
    assert treadle("db", "migrate").code == 0
    make_roles(treadle("db", "roles").out)
    execute(f"create role {schema}_me login in role treadle_migrator")
    mine = os.environ["TREADLE_URL"].replace("postgres@", f"{schema}_me@", 1)
    Store(url).enqueue()
    Store(url).run(lambda app: app.storage.seize("lock", "me", 1.0))
    ran = treadle("db", "copy", url, mine, "--json")
    assert ran.code == 0, ran.err
    assert ran.object["jobs"]["target"] == {"ready": 1}
    assert treadle("db", "migrate", "--url", mine).code == 0


def test_two_migrators_at_once(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make(schema, 1, monkeypatch)
    both = [a_process("migrate", "--json") for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err.decode()
        assert f'"current": {NEWEST}' in out.decode()
    assert versions(schema) == [each.version for each in KNOWN]


def test_a_migrator_that_was_killed_is_followed_by_one_that_completes_it(
    treadle: Treadle, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(schema, 1, monkeypatch)
    killed = a_process("migrate", code=DYING)
    killed.communicate(timeout=60)
    assert killed.returncode == -signal.SIGKILL
    done = versions(schema)
    assert 1 < max(done) < NEWEST or NEWEST <= 3
    assert treadle("db", "migrate").code == 0
    assert versions(schema) == [each.version for each in KNOWN]


def test_a_schema_from_the_future_is_78(treadle: Treadle, schema: str) -> None:
    assert treadle("db", "migrate").code == 0
    execute(
        f"insert into {schema}.schema_version (version, name, checksum, compatible_from) values (999, 'x', 'x', 999)"
    )
    for line in (["db", "status"], ["db", "plan"], ["db", "sql"], ["db", "migrate"], ["jobs", "find"]):
        ran = treadle(*line)
        assert (ran.code, len(ran.err.splitlines())) == (78, 1), line
        assert "upgrade Treadle" in ran.err


def test_tables_of_somebody_else_are_left_alone(treadle: Treadle, schema: str) -> None:
    execute(f"create schema {schema}; create table {schema}.precious (n int)")
    for line in (["db", "status"], ["db", "plan"], ["db", "migrate"]):
        ran = treadle(*line)
        assert (ran.code, len(ran.err.splitlines())) == (5, 1), line
        assert "precious" in ran.err
    assert len(execute(f"select 1 from pg_tables where schemaname = '{schema}'")) == 1
