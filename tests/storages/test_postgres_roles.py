"""Roles: what each may do, of every table, view, function and verb that there is, also of those that come later.

That a worker's role can do all that a worker does is proved by the conformance suite, which runs under it behind a
pooler.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]
import httpx
import psycopg
import pytest

from tests import postgres_server
from treadle import App, JobFailed, ResultTimeout, StorageDenied
from treadle.core import answer as answering
from treadle.core import retention
from treadle.core.answer import NewAnswer
from treadle.core.audit import AuditLine
from treadle.core.balance import Share
from treadle.core.event import Event
from treadle.core.filter import parse
from treadle.core.firing import Fire
from treadle.core.job import ErrorEntry, Job, QueueChange, State
from treadle.core.lifecycle import cancel
from treadle.core.limit import Take
from treadle.core.logline import LogLine
from treadle.core.mute import Mute
from treadle.core.operation import Operation
from treadle.core.outcome import Raised, Succeeded
from treadle.core.progress import Progress, Report
from treadle.core.rollup import Rollup
from treadle.core.schedule import Plan, Schedule
from treadle.ports import Query, Storage
from treadle.storages.postgres import PostgresStorage, roles
from treadle.testing.conformance.builders import a_job, a_pod, a_token, a_unique_job, an_id, only, want
from treadle.testing.conformance.steps import a_live_pod, end, put, start, take

pytestmark = pytest.mark.anyio

VERBS = ("select", "insert", "update", "delete", "truncate", "references", "trigger")
DML = {"select", "insert", "update", "delete"}
ROLES = ("treadle_worker", "treadle_enqueuer", "treadle_viewer")
# What a viewer may not read as it is: what jobs carry, and which views leave it out of.
CARRIES = {*roles.VIEWED, "job_checkpoint"}
ENQUEUES = {
    *("ensure_1", "insert_1", "insert_one_1", "insert_told_1", "insert_keyed_1", "insert_keyed_2", "put_off_1"),
    *("enqueue", "get_1", "kept_1", "progress_1"),
}
# Functions that have their owner's rights, whoever calls them.
DEFINERS = {
    *("ensure_1", "insert_1", "insert_one_1", "insert_keyed_1", "insert_keyed_2", "get_1", "kept_1", "progress_1"),
    "prune_audit_1",
}
SECRET = "4929-1234"


class Realm:
    """A schema with its roles, and logins for them."""

    def __init__(self, owner: PostgresStorage, admin: psycopg.Connection[Any]) -> None:
        self.owner = owner
        self.schema = owner.schema_name
        self.admin = admin

    def tables(self) -> list[str]:
        return self._relations("r")

    def views(self) -> list[str]:
        return self._relations("v")

    def _relations(self, kind: str) -> list[str]:
        found = self.ask(
            "select relname from pg_class where relnamespace = %s::regnamespace and relkind = %s order by 1",
            self.schema,
            kind,
        )
        return [name for (name,) in found]

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

    def url(self, role: str) -> str:
        """Of a login that is a member of the role."""
        login = f"{self.schema}_{role}"
        if not self.ask("select 1 from pg_roles where rolname = %s", login):
            self.ask(f"create role {login} login in role {role}")
        return f"postgresql://{login}@/postgres?{urlsplit(postgres_server.shared_url()).query}"

    async def storage(self, role: str) -> PostgresStorage:
        storage = PostgresStorage(self.url(role), schema=self.schema)
        await storage.open()
        return storage

    def app(self, role: str) -> App:
        return App(storage=PostgresStorage(self.url(role), schema=self.schema))

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


# ---------------------------------------------------------------------------------------------------------------------
# Tables and functions


async def test_every_table_has_the_grants_of_its_role(realm: Realm) -> None:
    tables = realm.tables()
    assert len(tables) >= 20
    for table in tables:
        by_hand = {"schema_version": {"select"}, "audit": {"select", "insert"}}
        assert realm.may("treadle_worker", table) == by_hand.get(table, DML), table
        assert realm.may("treadle_enqueuer", table) == ({"select"} if table == "schema_version" else set()), table
        assert realm.may("treadle_viewer", table) == (set() if table in CARRIES else {"select"}), table
        assert realm.may("treadle_owner", table) == set(VERBS), table


async def test_views_are_for_viewers_and_have_the_columns_of_their_tables(realm: Realm) -> None:
    assert realm.views() == sorted(f"viewer_{table}" for table in roles.VIEWED)
    columns = (
        "select attname, format_type(atttypid, atttypmod) from pg_attribute "
        "where attrelid = %s::regclass and attnum > 0 and not attisdropped order by 1"
    )
    for table in roles.VIEWED:
        assert realm.may("treadle_viewer", f"viewer_{table}") == {"select"}
        assert realm.may("treadle_enqueuer", f"viewer_{table}") == set()
        of_table = realm.ask(columns, f"{realm.schema}.{table}")
        assert realm.ask(columns, f"{realm.schema}.viewer_{table}") == of_table, table


async def test_every_function_is_for_those_who_need_it(realm: Realm) -> None:
    every = realm.functions("postgres")
    assert realm.functions("treadle_worker") == every
    assert realm.functions("treadle_enqueuer") == ENQUEUES
    assert realm.functions("treadle_viewer") == {"without_1", "plans_1"}


async def test_functions_have_a_pinned_search_path_and_nobody_may_call_them_by_default() -> None:
    """Also where roles.sql was never run: PostgreSQL lets everybody call a new function."""
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    await storage.close()
    with psycopg.connect(postgres_server.shared_url(), autocommit=True) as admin:
        found = admin.execute(
            "select p.proname, p.prokind, p.prosecdef, coalesce(p.proconfig, '{}'), "
            "exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a where a.grantee = 0) "
            "from pg_proc as p where p.pronamespace = %s::regnamespace",
            (storage.schema_name,),
        ).fetchall()
    assert len(found) >= 20
    assert {name for name, _, owners, _, _ in found if owners} == DEFINERS
    assert not [name for *_, is_public in found for name in ("?",) if is_public]
    for name, kind, _, settings, _ in found:
        if kind == "p":  # it commits, and can have neither
            assert name == "insert_told_1"
        else:
            assert "search_path=pg_catalog, pg_temp" in settings, name


async def test_the_procedure_that_commits_names_everything_in_full(realm: Realm) -> None:
    ((text,),) = realm.ask(
        "select prosrc from pg_proc where pronamespace = %s::regnamespace and prokind = 'p'", realm.schema
    )
    called = [word for line in text.splitlines() for word in line.replace("(", " ( ").split()]
    before_brackets = [word for word, after in itertools.pairwise(called) if after == "("]
    assert before_brackets
    assert all(word.split(".")[0] in ("pg_catalog", f'"{realm.schema}"') for word in before_brackets), before_brackets


async def test_a_caller_that_brings_functions_of_its_own_does_not_have_them_called(realm: Realm) -> None:
    """An enqueuer whose search_path begins with a schema of its own, in which functions that an enqueue uses are made
    anew: with the rights of the owner, they could do anything."""
    own = f"{realm.schema}_own"
    realm.ask(f"create schema {own}")
    login = realm.url("treadle_enqueuer").split("//")[1].split("@")[0]
    realm.ask(f"grant all on schema {own} to {login}")
    realm.ask(f"grant usage on schema {own} to public")  # or the owner would pass over it
    with psycopg.connect(realm.url("treadle_enqueuer"), autocommit=True) as caller:
        for name, given, answer in (
            ("to_timestamp", "float8", "timestamptz"),
            ("clock_timestamp", "", "timestamptz"),
            ("date_part", "text, timestamptz", "float8"),
            ("floor", "float8", "float8"),
        ):
            caller.execute(
                f"create function {own}.{name}({given}) returns {answer} language plpgsql as "
                "$$ begin raise exception 'called as %', current_user; end $$"
            )
        caller.execute(f"set search_path = {own}, pg_catalog")
        with pytest.raises(psycopg.errors.RaiseException):
            caller.execute("select clock_timestamp()")
        ((id,),) = caller.execute(f"select {realm.schema}.enqueue('work', unique_key => 'k')").fetchall()
        values = f"'{an_id()}', 'q', 'work', '{{}}', null, null, null, null, null, null, null, null, null, null"
        caller.execute(f"call {realm.schema}.insert_told_1(null, {values})")
        caller.execute(f"select {realm.schema}.get_1(null, array['{id}'::uuid])")
    assert len((await realm.owner.find(Query(filter=parse("")))).jobs) == 2


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_but_the_owner_makes_or_drops_anything(realm: Realm, role: str) -> None:
    realm.ask(f"set role {role}")
    for sql in ("drop table {0}.job", "create table {0}.mine (n int)", "truncate {0}.job", "drop schema {0} cascade"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            realm.ask(sql.format(realm.schema))


async def test_grants_of_an_earlier_version_go_when_the_roles_are_made_again(realm: Realm) -> None:
    realm.ask(f"grant all on all tables in schema {realm.schema} to treadle_enqueuer, treadle_viewer, treadle_worker")
    postgres_server.make_roles(realm.admin, realm.owner.roles())
    assert realm.may("treadle_enqueuer", "job") == set()
    assert realm.may("treadle_viewer", "job") == set()
    assert realm.may("treadle_worker", "audit") == {"select", "insert"}


# ---------------------------------------------------------------------------------------------------------------------
# Verbs


class Scene:
    """One of everything, made by the owner, with a secret wherever something can be carried."""

    job: Job  # runs, with progress, a checkpoint and a log
    failed: Job
    succeeded: Job
    answer = "an-answer"

    @classmethod
    async def of(cls, owner: Storage) -> Scene:
        scene = cls()
        carried = {"args": f'{{"card":"{SECRET}"}}', "meta": f'{{"card":"{SECRET}"}}'}
        failed = await start(owner, **carried)
        error = ErrorEntry(attempt=1, kind="error", type="Declined", message=SECRET, trace=SECRET, place="shop:pay")
        scene.failed = await end(owner, failed, Raised(error, final=True))
        scene.succeeded = await end(owner, await start(owner, **carried), Succeeded(f'"{SECRET}"'))
        scene.job = await start(owner, **carried)
        token = scene.job.token or ""
        progress = Progress(done=1, total=2, data=json.dumps({"card": SECRET}))
        report = Report(id=scene.job.id, token=token, attempt=1, progress=progress, checkpoint=f'"{SECRET}"')
        await owner.report([report])
        await owner.record_logs([LogLine(scene.job.id, 1, 1, "info", SECRET)])
        assert await owner.open_answer(NewAnswer(id=scene.answer, job=scene.job.id, claim=token))
        await owner.answer(scene.answer, answering.Given(kind="result", value=f'"{SECRET}"'))
        plan = Plan(expression="0 9 * * *", task="work", queue="default", args=carried["args"])
        nightly = Schedule(name="nightly", version=1, plan=plan, declared=plan, anchor=0.0, created_at=0.0)
        assert await owner.save_schedule(nightly, 0)
        rival = a_unique_job("kept", on_conflict="keep_last", **carried)
        await put(owner, a_unique_job("kept", queue="other", **carried))
        assert only(await take(owner, await a_live_pod(owner), want("other"))).unique_key == "kept"
        assert only(await owner.insert([rival])).outcome == "kept"
        return scene


Sample = Callable[[Storage, Scene], Awaitable[Any]]
EVERYBODY: Final = frozenset({"worker", "enqueuer", "viewer"})
WORKER: Final = frozenset({"worker"})
LOOKS: Final = frozenset({"worker", "viewer"})
BY_ID: Final = EVERYBODY
LINE: Final = AuditLine(id="line", act="jobs.revive")
PLAN: Final = Plan(expression="* * * * *", task="work", queue="default")
# Every verb of the port, with who may use it. What needs no rights, or cannot be asked of a login, is in APART.
TABLE: Final[dict[str, tuple[frozenset[str], Sample]]] = {
    "insert": (frozenset({"worker", "enqueuer"}), lambda it, _: it.insert([a_job()])),
    "get": (BY_ID, lambda it, scene: it.get([scene.job.id])),
    "progress": (BY_ID, lambda it, scene: it.progress([scene.job.id])),
    "schema": (EVERYBODY, lambda it, _: it.schema()),
    "plan": (EVERYBODY, lambda it, _: it.plan()),
    "time": (EVERYBODY, lambda it, _: it.time()),
    "wake": (EVERYBODY, lambda it, _: it.wake(["default"])),
    "is_writable": (EVERYBODY, lambda it, _: it.is_writable()),
    # Reads
    "find": (LOOKS, lambda it, _: it.find(Query(filter=parse("")))),
    "count": (LOOKS, lambda it, _: it.count(parse(""))),
    "queues": (LOOKS, lambda it, _: it.queues()),
    "catalog": (LOOKS, lambda it, _: it.catalog()),
    "deploys": (LOOKS, lambda it, _: it.deploys()),
    "pods": (LOOKS, lambda it, _: it.pods()),
    "due_tasks": (LOOKS, lambda it, _: it.due_tasks()),
    "recover": (LOOKS, lambda it, _: it.recover("pod", "token")),
    "answer_of": (LOOKS, lambda it, scene: it.answer_of(scene.answer)),
    "awaited": (LOOKS, lambda it, scene: it.awaited(scene.failed.id)),
    "waits_over": (LOOKS, lambda it, _: it.waits_over(10)),
    "schedules": (LOOKS, lambda it, _: it.schedules()),
    "fires": (LOOKS, lambda it, _: it.fires("nightly")),
    "limits": (LOOKS, lambda it, _: it.limits()),
    "locks": (LOOKS, lambda it, _: it.locks()),
    "failures": (LOOKS, lambda it, _: it.failures()),
    "mutes": (LOOKS, lambda it, _: it.mutes()),
    "operation": (LOOKS, lambda it, _: it.operation("x")),
    "operations": (LOOKS, lambda it, _: it.operations()),
    "audit": (LOOKS, lambda it, _: it.audit()),
    "rollups": (LOOKS, lambda it, _: it.rollups(60, 0.0)),
    "readings": (LOOKS, lambda it, _: it.readings(60, 0.0)),
    "timeline": (LOOKS, lambda it, scene: it.timeline(scene.job.id)),
    "logs": (LOOKS, lambda it, scene: it.logs(scene.job.id)),
    "vitals": (EVERYBODY, lambda it, _: it.vitals()),
    "blockers": (EVERYBODY, lambda it, _: it.blockers()),
    "facts": (EVERYBODY, lambda it, _: it.facts()),
    # A copy needs all that there is, and so does a run that goes on from its checkpoint.
    "dump": (WORKER, lambda it, _: it.dump("job")),
    "checkpoint": (WORKER, lambda it, scene: it.checkpoint(scene.job.id)),
    # Pods
    "claim": (WORKER, lambda it, _: it.claim("pod", a_token(), [want()])),
    "apply": (WORKER, lambda it, scene: it.apply([_cancelling(scene.job)])),
    "register": (WORKER, lambda it, _: it.register(a_pod())),
    "beat": (WORKER, lambda it, _: it.beat("pod", 30.0, ())),
    "sign_off": (WORKER, lambda it, _: it.sign_off("pod")),
    "lead": (WORKER, lambda it, _: it.lead("pod", 1.0)),
    "step_down": (WORKER, lambda it, _: it.step_down("pod")),
    "order_pod": (WORKER, lambda it, _: it.order_pod("pod", "quiet")),
    "save_shares": (WORKER, lambda it, _: it.save_shares([Share("default", "pod", 1)])),
    "abandoned": (WORKER, lambda it, _: it.abandoned(10, 60.0)),
    "report": (WORKER, lambda it, scene: it.report([_report(scene.job)])),
    "record_logs": (WORKER, lambda it, scene: it.record_logs([LogLine(scene.job.id, 2, 1, "info", "x")])),
    "record": (WORKER, lambda it, scene: it.record([Event(id=an_id(), job=scene.job.id, what="snoozed")])),
    "roll_up": (WORKER, lambda it, _: it.roll_up([Rollup(resolution=60, at=0.0, queue="q", task="t")])),
    "forget_history": (WORKER, lambda it, _: it.forget_history("minutes", 1.0)),
    "take": (WORKER, lambda it, _: it.take([Take(scope="s", want=1)])),
    "seize": (WORKER, lambda it, _: it.seize("lock", "me", 1.0)),
    "free": (WORKER, lambda it, _: it.free("lock", "me")),
    "sweep_locks": (WORKER, lambda it, _: it.sweep_locks()),
    "fire": (WORKER, lambda it, _: it.fire(Fire(name="nightly", version=1))),
    "open_answer": (WORKER, lambda it, scene: it.open_answer(_asking(scene.job))),
    "answer": (WORKER, lambda it, scene: it.answer(scene.answer, answering.EXPIRED)),
    "beat_answer": (WORKER, lambda it, scene: it.beat_answer(scene.answer)),
    "prune": (WORKER, lambda it, _: it.prune(State.SUCCEEDED)),
    "sweep": (WORKER, lambda it, _: it.sweep()),
    # Operators
    "save_schedule": (WORKER, lambda it, _: it.save_schedule(_a_schedule(), 0)),
    "save_limit": (WORKER, lambda it, _: it.save_limit("s", 1, 1.0)),
    "drain_limit": (WORKER, lambda it, _: it.drain_limit("s")),
    "remove_limit": (WORKER, lambda it, _: it.remove_limit("s")),
    "mute": (WORKER, lambda it, _: it.mute(Mute(cause="c"))),
    "unmute": (WORKER, lambda it, _: it.unmute("c")),
    "save_operation": (WORKER, lambda it, _: it.save_operation(Operation(id=an_id(), act="revive", filter=""), None)),
    "advance": (WORKER, lambda it, _: it.advance(Operation(id="x", act="revive", filter=""), [], lambda _: _)),  # type: ignore[arg-type,return-value]
    "note": (WORKER, lambda it, _: it.note([LINE])),
    "load": (WORKER, lambda it, _: it.load("mute", [{"cause": "c2", "at": 1.0, "until": None, "who": None}])),
}
APART: Final = {
    *("open", "close", "detach", "sql", "roles", "kinds", "listen", "signals_work", "insert_sync", "backup"),
    *("borrow", "borrow_async", "transact", "transact_async"),  # the rights are those of the caller's connection
    "migrate",  # see test_a_migrator_may_migrate
}


def _cancelling(job: Job) -> Any:
    change = cancel(job)
    assert change is not None
    return change


def _report(job: Job) -> Report:
    return Report(id=job.id, token=job.token or "", attempt=1, progress=Progress(done=1))


def _asking(job: Job) -> NewAnswer:
    return NewAnswer(id=an_id(), job=job.id, claim=job.token or "")


def _a_schedule() -> Schedule:
    return Schedule(name=an_id(), version=1, plan=PLAN, anchor=0.0, created_at=0.0)


def test_the_table_has_every_verb_of_the_port() -> None:
    port = {name for name in vars(Storage) if not name.startswith("_")}
    assert port == TABLE.keys() | APART


@pytest.mark.parametrize("role", ["worker", "enqueuer", "viewer"])
async def test_every_verb_is_for_the_roles_of_the_table(realm: Realm, role: str) -> None:
    scene = await Scene.of(realm.owner)
    realm.ask(f"update {realm.schema}.job_history set finished_at = 'epoch' where state = 'succeeded'")  # for prune
    storage = await realm.storage(f"treadle_{role}")
    wrong: list[str] = []
    for verb, (who, ask) in TABLE.items():
        try:
            await ask(storage, scene)
            is_denied = False
        except StorageDenied:
            is_denied = True
        if is_denied == (role in who):
            wrong.append(f"{verb}: {'denied' if is_denied else 'permitted'}")
    await storage.close()
    assert not wrong


async def test_an_operators_edit_of_a_queue_is_the_workers_alone(realm: Realm) -> None:
    await put(realm.owner)
    edit = QueueChange(name="default", max_workers=3)
    for role in ("treadle_enqueuer", "treadle_viewer"):
        storage = await realm.storage(role)
        with pytest.raises(StorageDenied):
            await storage.apply([edit])
        await storage.close()


# ---------------------------------------------------------------------------------------------------------------------
# Enqueuers


async def test_an_enqueuer_enqueues_in_every_way(realm: Realm) -> None:
    storage = await realm.storage("treadle_enqueuer")
    new = [a_job(queue="mail"), a_job(queue="mail", delay=5.0)]
    assert {each.outcome for each in await storage.insert(new)} == {"inserted"}
    assert {each.outcome for each in await storage.insert(new)} == {"inserted"}
    assert only(await storage.insert([a_job()])).outcome == "inserted"
    assert only(await storage.insert([a_unique_job("k")])).outcome == "inserted"
    assert only(await storage.insert([a_unique_job("k", on_conflict="replace")])).outcome == "replaced"
    assert len(await storage.insert([a_job() for _ in range(2_000)])) == 2_000
    assert len(await storage.get([each.id for each in new])) == 2
    assert realm.ask(f"set role treadle_enqueuer; select {realm.schema}.enqueue('work')") is not None
    await storage.close()


async def test_an_enqueuers_bulk_goes_by_functions_because_copy_needs_the_table(realm: Realm) -> None:
    storage = await realm.storage("treadle_enqueuer")
    many = [a_job(priority=n % 3, tags=("a", "b") if n % 2 else ()) for n in range(1_200)]
    assert [each.id for each in await storage.insert(many)] == [new.id for new in many]
    assert [job.id for job in await realm.owner.get([new.id for new in many])] == [new.id for new in many]
    await storage.close()


@pytest.mark.parametrize(
    "sql",
    [
        "update {0}.job set state = 'running'",
        "delete from {0}.job",
        "select args from {0}.job",
        "select * from {0}.viewer_job",
        "insert into {0}.job (id, queue, task) values (gen_random_uuid(), 'q', 't')",
        "delete from {0}.held",
        "select * from {0}.claim_2(null, null, null, null, null, null, null, null, null, null, null, null, null, null)",
        "select {0}.prune_audit_1(1e12)",
    ],
)
async def test_an_enqueuer_has_no_way_around_its_functions(realm: Realm, sql: str) -> None:
    await put(realm.owner)
    refused = (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFunction)
    with psycopg.connect(realm.url("treadle_enqueuer"), autocommit=True) as caller, pytest.raises(refused):
        caller.execute(sql.format(realm.schema))


async def test_an_enqueuer_learns_how_its_job_goes_and_not_what_others_were_given(realm: Realm) -> None:
    scene = await Scene.of(realm.owner)
    storage = await realm.storage("treadle_enqueuer")
    failed, succeeded = await storage.get([scene.failed.id, scene.succeeded.id])
    assert failed.state is State.FAILED
    assert failed.error is not None and failed.error.message == SECRET  # what its caller is told, it may know
    assert succeeded.result == f'"{SECRET}"'
    assert {failed.args, succeeded.args} == {'{"hidden":true}'}
    assert {failed.meta, succeeded.meta, failed.token} == {None}
    await storage.close()


async def test_a_request_that_waits_behind_a_job_is_found_by_its_enqueuer(realm: Realm) -> None:
    storage = await realm.storage("treadle_enqueuer")
    await put(storage, a_unique_job("k", args=f'{{"card":"{SECRET}"}}'))
    await take(realm.owner, await a_live_pod(realm.owner))
    kept = only(await storage.insert([a_unique_job("k", on_conflict="keep_last", args=f'{{"card":"{SECRET}"}}')]))
    assert kept.outcome == "kept"
    job = only(await storage.get([kept.id]))
    assert (job.id, job.state) == (kept.id, State.WAITING)
    assert SECRET not in repr(job)
    await storage.close()


async def test_an_app_of_an_enqueuer_enqueues_waits_and_is_told_of_a_failure(realm: Realm) -> None:
    """What a web process does: the plainest use of the role, on a `def` task with default settings."""
    worker, web = realm.app("treadle_worker"), realm.app("treadle_enqueuer")

    def double(number: int) -> int:
        if number < 0:
            raise ValueError("below zero")
        return 2 * number

    worker.task(double)
    task = web.task(double)
    async with worker, web, worker.worker(queues=["default"]):
        good = await task.enqueue(21)
        assert await good.result(timeout="30s") == 42
        assert (await good.status()).state == "succeeded"
        bad = await task.using(max_attempts=1).enqueue(-1)
        with pytest.raises(JobFailed, match="below zero"):
            await bad.result(timeout="30s")
    async with web:
        idle = await task.using(queue="nobody").enqueue(1)
        with pytest.raises(ResultTimeout, match="did not end"):
            await idle.result(timeout="100ms")
        with pytest.raises(StorageDenied, match="treadle db roles"):
            await idle.cancel()


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_an_enqueuer_enqueues_within_a_transaction_of_its_own(realm: Realm, driver: str) -> None:
    storage = await realm.storage("treadle_enqueuer")
    kept, dropped = a_job(), a_unique_job("k")
    if driver == "asyncpg":
        own = await asyncpg.connect(realm.url("treadle_enqueuer"))
        async with own.transaction():
            await storage.borrow_async(own).insert([kept])
        other = own.transaction()
        await other.start()
        await storage.borrow_async(own).insert([dropped])
        await other.rollback()
        await own.close()
    else:
        with psycopg.connect(realm.url("treadle_enqueuer")) as mine:
            storage.borrow(mine).insert([kept])
            mine.commit()
            storage.borrow(mine).insert([dropped])
            mine.rollback()
    assert [job.id for job in await storage.get([kept.id, dropped.id])] == [kept.id]
    await storage.close()


async def test_a_running_program_follows_when_its_grants_change(realm: Realm) -> None:
    """Roles are made again while programs run: what they may read is looked up anew, and they need no restart."""
    id = await put(realm.owner)
    storage = await realm.storage("treadle_enqueuer")
    assert only(await storage.get([id])).args == '{"hidden":true}'
    login = realm.url("treadle_enqueuer").split("//")[1].split("@")[0]
    realm.ask(f"revoke treadle_enqueuer from {login}")
    realm.ask(f"grant treadle_viewer to {login}")
    assert only((await storage.find(Query(filter=parse("")))).jobs).id == id
    realm.ask(f"revoke treadle_viewer from {login}")
    realm.ask(f"grant treadle_worker to {login}")
    assert only(await storage.get([id])).args == "{}"
    await storage.close()


# ---------------------------------------------------------------------------------------------------------------------
# Viewers


async def test_no_verb_tells_a_viewer_what_jobs_carry(realm: Realm) -> None:
    scene = await Scene.of(realm.owner)
    worker, viewer = await realm.storage("treadle_worker"), await realm.storage("treadle_viewer")
    told: dict[str, bool] = {}
    for verb, (who, ask) in TABLE.items():
        if "viewer" in who:
            assert SECRET not in repr(await ask(viewer, scene)), verb
            told[verb] = SECRET in repr(await ask(worker, scene))
    # Where the worker sees it, so that what the viewer does not see is not merely missing.
    assert {verb for verb, is_told in told.items() if is_told} >= {"get", "find", "schedules", "logs", "answer_of"}
    groups = (await viewer.failures()).groups
    assert [(group.type, group.place) for group in groups] == [("Declined", "shop:pay")]
    error = only(await viewer.get([scene.failed.id])).error
    assert error is not None
    assert (error.kind, error.type, error.place, error.trace) == ("error", "Declined", "shop:pay", "")
    for role in (worker, viewer):
        await role.close()


async def test_no_statement_tells_a_viewer_either(realm: Realm) -> None:
    await Scene.of(realm.owner)
    with psycopg.connect(realm.url("treadle_viewer"), autocommit=True) as caller:
        seen = 0
        for name in (*realm.tables(), *realm.views()):
            try:
                found = caller.execute(f"select row_to_json(r)::text from {realm.schema}.{name} as r").fetchall()
            except psycopg.errors.InsufficientPrivilege:
                continue
            seen += 1
            assert SECRET not in repr(found), name
        assert seen >= 20


async def test_a_viewer_counts_and_finds_as_a_worker_does(realm: Realm) -> None:
    await Scene.of(realm.owner)
    viewer = await realm.storage("treadle_viewer")
    for text in ("", "state:failed", "queue:default", "error:Declined", "attempt:>0", "due:<1h"):
        of_owner = [job.id for job in (await realm.owner.find(Query(filter=parse(text)))).jobs]
        assert [job.id for job in (await viewer.find(Query(filter=parse(text)))).jobs] == of_owner, text
        assert await viewer.count(parse(text)) == await realm.owner.count(parse(text)), text
    for text in (f"args.card:{SECRET}", f"meta.card:{SECRET}", f"result.card:{SECRET}", f"error:*{SECRET}*"):
        assert not (await viewer.find(Query(filter=parse(text)))).jobs, text
    await viewer.close()


async def test_a_dashboard_with_a_viewers_login_shows_every_page_and_offers_nothing(realm: Realm) -> None:
    scene = await Scene.of(realm.owner)
    app = realm.app("treadle_viewer")
    async with app:
        dashboard = app.dashboard(access="open")
        transport = httpx.ASGITransport(app=dashboard)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as web:
            for path in (
                *("/", "/jobs", "/failures", "/queues", "/queues/default", "/pods", "/schedules", "/schedules/nightly"),
                *("/performance", "/limits", "/operations", "/system", f"/jobs/{scene.job.id}"),
                *(f"/jobs/{scene.failed.id}", f"/jobs/{scene.succeeded.id}", "/api/v1/attention"),
                *("/api/v1/jobs", f"/api/v1/jobs/{scene.failed.id}", "/api/v1/failures", "/api/v1/schedules"),
                *("/api/v1/queues", "/api/v1/pods", f"/api/v1/jobs/{scene.job.id}/logs", "/metrics", "/readyz"),
            ):
                answer = await web.get(path)
                assert answer.status_code == 200, (path, answer.text)
                assert SECRET not in answer.text, path
            refused = await web.post("/api/v1/queues/default/pause", headers={"Origin": "http://localhost"}, json={})
            assert refused.status_code == 403


async def test_the_command_line_of_a_viewer_shows_and_is_refused(realm: Realm) -> None:
    scene = await Scene.of(realm.owner)
    environment = {**os.environ, "TREADLE_URL": realm.url("treadle_viewer"), "TREADLE_SCHEMA": realm.schema}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "treadle.cli", *words], env=environment, capture_output=True, text=True, check=False
        )

    for words in (
        ("jobs", "find"),
        ("jobs", "show", scene.failed.id),
        ("jobs", "failures"),
        ("queues", "list"),
        ("pods", "list"),
        ("schedules", "list"),
        ("top", "--once"),
        ("doctor",),
        ("db", "status"),
    ):
        done = await asyncio.to_thread(run, *words)
        assert done.returncode in (0, 4), (words, done.stderr)  # 4: doctor has found something
        assert SECRET not in done.stdout + done.stderr
    done = await asyncio.to_thread(run, "queues", "pause", "default")
    assert (done.returncode, "permission denied" in done.stderr) == (78, True), done.stderr


# ---------------------------------------------------------------------------------------------------------------------
# Workers and migrators


async def test_the_audit_can_be_added_to_and_never_changed(realm: Realm) -> None:
    with psycopg.connect(realm.url("treadle_worker"), autocommit=True) as worker:
        worker.execute(f"insert into {realm.schema}.audit (id, at, body) values ('a', 1, '{{}}')")
        for sql in ("delete from {0}.audit", "update {0}.audit set body = ''", "truncate {0}.audit"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                worker.execute(sql.format(realm.schema))


async def test_the_audit_is_pruned_by_a_function_that_knows_the_90_days(realm: Realm) -> None:
    """Whatever time its caller says it is."""
    kept = retention.RECORDS_KEPT
    ((now,),) = realm.ask("select date_part('epoch', clock_timestamp())::float8")
    for id, age in (("old", kept + 60), ("young", kept - 3600), ("new", 0)):
        realm.ask(f"insert into {realm.schema}.audit (id, at, body) values (%s, %s, '{{}}')", id, now - age)
    with psycopg.connect(realm.url("treadle_worker"), autocommit=True) as worker:
        ((gone,),) = worker.execute(f"select {realm.schema}.prune_audit_1(%s)", (now + 10 * kept,)).fetchall()
    assert gone == 1
    assert [id for (id,) in realm.ask(f"select id from {realm.schema}.audit order by at")] == ["young", "new"]


async def test_a_migrator_may_migrate(realm: Realm) -> None:
    storage = await realm.storage("treadle_migrator")
    assert not (await storage.migrate()).pending
    await storage.close()
