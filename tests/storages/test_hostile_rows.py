"""Hostile rows: every column of a number, a time, an array or a closed set of words at its extremes, on both databases.

The columns come from the catalog of the database, and rows for them are made up from it: a column or a table that is
added later is covered by itself. Each value must be refused by the database, or named by `treadle doctor`, or be among
those that are known to be harmless (`HARMLESS`); and whatever it is, planted behind the back of every check, all sound
jobs in the same and in another queue run to their end, nothing that people look at fails, and the bad job can be
deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest
from click.testing import CliRunner

from tests import postgres_server
from tests.web.wire import Wire
from treadle import App
from treadle.cli import root
from treadle.config import Timing
from treadle.core import filter as filters
from treadle.core.catalog import Descriptor
from treadle.core.job import Change, NewJob, State, UniqueClaim
from treadle.core.pod import PodCard
from treadle.operate import doctor
from treadle.ports import Lane, Query, RunReport, Storage, Want
from treadle.storages.postgres import PostgresStorage
from treadle.storages.postgres import bounds as postgres_bounds
from treadle.storages.sqlite import SQLiteStorage
from treadle.storages.sqlite import bounds as sqlite_bounds

pytestmark = pytest.mark.anyio

QUICK = Timing(
    lease=30.0, beat=0.3, scan=0.1, neighbours=0.1, poll=0.05, grace=2.0, cancel_grace=0.2, overdue=1.0, leader_ttl=0.9,
    leader_every=0.3, start_jitter=0.0,
)  # fmt: skip
GOOD_QUEUE, OTHER_QUEUE = "mail", "other"
TASK = "shop.note"
CARD = (
    '{"id":"odd","label":"odd","host":"h","pid":1,"version":"0","queues":{"mail":1},"tasks":["shop.note"],"lease":30}'
)
FILTERS = [
    "", "state:failed", "state:ready,scheduled", "-state:succeeded", "is:stuck", "is:retrying", "tag:vip", "tag:v*",
    "error:x", "age:>1h", "attempt:>1", "priority:>5", "due:<1h", "finished:<1h", "is:poison",
]  # fmt: skip

# What is made up of every row unless its column is the hostile one. Of a job there are several.
JOB_STATES: dict[str, dict[str, str]] = {
    "ready": {"state": "'ready'"},
    "left running": {"state": "'running'", "pod": "'gone'", "token": "'t'", "attempt": "1", "started_at": "{now}"},
    "waiting": {"state": "'waiting'"},
    # Under a pod that lives: only the deadline is looked at.
    "running here": {"state": "'running'", "pod": "'living'", "token": "'t'", "attempt": "1", "started_at": "{now}"},
}


class Column(NamedTuple):
    table: str
    name: str
    kind: str
    nullable: bool
    has_default: bool
    is_key: bool


class Case(NamedTuple):
    column: Column
    value: str  # as SQL
    base: str = ""

    def __str__(self) -> str:
        return f"{self.column.table}.{self.column.name} = {self.value[:40]}"


NUMBERS = itertools.count(1)


def an_id() -> str:
    return f"01990000-0000-7000-8000-{next(NUMBERS):012x}"


# PostgreSQL -----------------------------------------------------------------------------------------------------------

POSTGRES_VALUES: dict[str, list[str]] = {
    "smallint": ["-32768", "32767", "0", "-1"],
    "integer": ["-2147483648", "2147483647", "0", "-1"],
    "bigint": ["-9223372036854775808", "9223372036854775807", "0", "-1"],
    "double precision": ["'NaN'", "'Infinity'", "'-Infinity'", "1.7e308", "-1.7e308", "0", "-1"],
    "timestamp with time zone": [
        "'infinity'", "'-infinity'", "'294276-12-31 23:59:59+00'", "'4713-01-02 00:00:00+00 BC'"
    ],
    "ARRAY": [
        "'{}'", "array[null]::text[]", "array['a', null]::text[]", "array[['a', 'b'], ['c', 'd']]",
        "array_fill('x'::text, array[10000])",
    ],
    "word": ["'dancing'", "''"],
}  # fmt: skip
# Closed sets of words that the database itself does not know as such.
WORDS = {
    ("operation", "state"), ("fire", "outcome"), ("answer", "kind"), ("job_log", "level"), ("catalog", "kind"),
}  # fmt: skip
POSTGRES_COLUMNS = """
select
    c.table_name, c.column_name, c.data_type, c.is_nullable = 'YES',
    c.column_default is not null or c.is_identity = 'YES',
    exists (
        select from information_schema.key_column_usage as k
        where k.table_schema = c.table_schema and k.table_name = c.table_name and k.column_name = c.column_name
    ),
    exists (
        select from pg_constraint as n
        join pg_attribute as a on a.attrelid = n.conrelid and a.attname = c.column_name
        where
            n.conrelid = format('%I.%I', c.table_schema, c.table_name)::regclass and n.contype = 'c'
            and n.conkey = array[a.attnum] and pg_get_constraintdef(n.oid) like '%ANY (ARRAY[%'
    )
from information_schema.columns as c
join information_schema.tables as t using (table_schema, table_name)
where c.table_schema = $1 and t.table_type = 'BASE TABLE' and c.table_name not in ('schema_version')
order by 1, c.ordinal_position
"""

# Neither refused nor named, and why that is right.
HARMLESS: dict[str, str] = {
    "job.seq": "orders jobs of one instant, and nothing else",
    "job_history.seq": "as that of job",
    "job.format": "an unknown one is undecodable where it is run, and fails alone",
    "job_history.format": "nobody decodes the arguments of an ended job by it but to show them",
    "leader.until": "nobody leads, since ever",
    "pod.n": "orders the pods in their list",
    "operation.state": "what cannot be read is passed over; `body` has what counts",
    "fire.outcome": "shown as it is",
    "answer.kind": "what is no kind is read as a failure of the answer (core.answer)",
    "job_log.level": "shown as it is",
    "catalog.kind": "an entry that nobody asks for",
    # SQLite
    "job_log.n": "orders the lines of one job", "job_error.seq": "an error of a job that is not there",
    "job_tag.seq": "a tag of a job that is not there",
}  # fmt: skip
# Values that are sound, in columns that may be zero, below zero, or empty.
PLAIN = {"0", "-1", "2147483648", "'{}'", "'[]'", "0.5"}


async def postgres_cases(admin: Any, schema: str) -> list[Case]:
    cases: list[Case] = []
    for table, name, type, nullable, default, key, closed in await admin.fetch(POSTGRES_COLUMNS, schema):
        kind = "word" if closed or (table, name) in WORDS else type
        column = Column(table, name, kind, nullable, default, key)
        for value in POSTGRES_VALUES.get(kind, ()):
            cases += [Case(column, value, base) for base in (JOB_STATES if table == "job" else ("",))]
    return cases


def postgres_row(columns: list[Column], case: Case) -> dict[str, str]:
    """A row of the case's table, with what it must have made up."""
    table = case.column.table
    number = next(NUMBERS)
    known: dict[str, str] = {"id": f"'{an_id()}'", "job_id": f"'{an_id()}'", "queue": f"'{GOOD_QUEUE}'"}
    known |= {"task": f"'{TASK}'", "card": f"'{CARD}'", "definition": "'{}'", "progress": "'{}'", "entry": "'{}'"}
    known |= {"body": "'{}'", "descriptor": "'{}'", "value": "'1'", "args": "'{\"n\": 1}'", "refill": "1"}
    if table == "job":
        known |= {key: value.format(now="now()") for key, value in JOB_STATES[case.base].items()}
        known |= {"tags": "array['vip']"}
    if table == "job_history":
        known |= {"state": "'failed'", "attempt": "1"}
    if table in ("pod", "share", "lane") or table == "queue":
        known |= {"id": f"'odd-{number}'", "name": f"'odd-{number}'", "queue": f"'odd-{number}'"}
    if table == "run":
        known |= {"pod": "'gone'", "token": "'t'"}
    if table == "answer":
        known |= {"waits": "true", "expires_at": "2"}  # it is over, and its job is not there
    row: dict[str, str] = {}
    for each in columns:
        if each.name in known and (not each.has_default or table in ("job", "job_history")):
            row[each.name] = known[each.name]
        elif not each.nullable and not each.has_default:
            made_up = {"boolean": "false", "text": f"'odd-{number}'", "timestamp with time zone": "now()"}
            row[each.name] = made_up.get(each.kind, f"'odd-{number}'" if each.kind == "word" else "1")
    return {**row, case.column.name: case.value}


def insert_of(table: str, row: dict[str, str]) -> str:
    return f"insert into {table} ({', '.join(row)}) overriding system value values ({', '.join(row.values())})"


def unvalidated(constraint: str) -> str:
    return f"{constraint.removesuffix(' NOT VALID')} not valid"


class Postgres:
    """A schema, and somebody who writes to it as they like."""

    def __init__(self, storage: PostgresStorage, admin: Any) -> None:
        self.storage = storage
        self.admin = admin
        self.cases: list[Case] = []
        self.columns: dict[str, list[Column]] = {}
        self.checks: list[tuple[str, str, str]] = []

    async def prepare(self) -> None:
        schema = self.storage.schema_name
        await self.admin.execute(f"set search_path to {schema}")
        self.cases = await postgres_cases(self.admin, schema)
        for table, name, kind, nullable, default, key, _ in await self.admin.fetch(POSTGRES_COLUMNS, schema):
            self.columns.setdefault(table, []).append(Column(table, name, kind, nullable, default, key))
        found = await self.admin.fetch(
            "select conname, conrelid::regclass::text, pg_get_constraintdef(oid) from pg_constraint "
            "where connamespace = $1::regnamespace and contype = 'c'",
            schema,
        )
        self.checks = [(name, table, text) for name, table, text in found]

    async def drop_checks(self) -> None:
        for name, table, _ in self.checks:
            await self.admin.execute(f"alter table {table} drop constraint {name}")

    async def put_checks_back(self) -> None:
        """As the migration does: what is there already stays."""
        for name, table, text in self.checks:
            await self.admin.execute(f"alter table {table} add constraint {name} {unvalidated(text)}")

    async def plant(self, case: Case) -> str | None:
        """Write the row; its id if it is a job."""
        table = case.column.table
        if table == "leader":
            await self.admin.execute(f"update leader set {case.column.name} = {case.value}")
            return None
        row = postgres_row(self.columns[table], case)
        await self.admin.execute(insert_of(table, row))
        return row["id"].strip("'") if table in ("job", "job_history") else None

    async def named(self) -> set[tuple[str, str]]:
        """(table, column) of all that doctor names."""
        small = dict.fromkeys(postgres_bounds.TABLES, True)
        talk = postgres_bounds.flaws(small)
        text, _ = next(talk)
        found = await self.admin.fetch(text.replace("treadle.", f"{self.storage.schema_name}."))
        return named_in(found)


def named_in(found: Any) -> set[tuple[str, str]]:
    return {
        (row[0], word.group(1))
        for row in found
        for word in re.finditer(r"(?:^|, )([a-z_]+) is ", row[4])
    }  # fmt: skip


@pytest.fixture
async def postgres() -> AsyncIterator[Postgres]:
    asyncpg: Any = pytest.importorskip("asyncpg")
    storage = PostgresStorage(postgres_server.shared_url(), schema=postgres_server.a_schema())
    await storage.open()
    admin = await asyncpg.connect(postgres_server.shared_url())
    try:
        ground = Postgres(storage, admin)
        await ground.prepare()
        yield ground
    finally:
        await admin.close()
        await storage.close()


def is_known_to_be_harmless(case: Case) -> bool:
    column = case.column
    return f"{column.table}.{column.name}" in HARMLESS or case.value in PLAIN


async def test_postgres_refuses_or_doctor_names_every_extreme(postgres: Postgres) -> None:
    """One by one: each is planted with the doctor, and again without them, and taken back."""
    errors: Any = pytest.importorskip("asyncpg.exceptions")
    admin = postgres.admin
    cases = [case for case in postgres.cases if case.base in ("", "ready")]
    assert len(cases) > 200
    refused: set[Case] = set()
    for case in cases:
        transaction = admin.transaction()
        await transaction.start()
        try:
            await postgres.plant(case)
        except (errors.DataError, errors.IntegrityConstraintViolationError):
            refused.add(case)
        await transaction.rollback()
    await postgres.drop_checks()
    wrong: list[str] = []
    for case in cases:
        transaction = admin.transaction()
        await transaction.start()
        await postgres.plant(case)
        is_named = (case.column.table, case.column.name) in await postgres.named()
        await transaction.rollback()
        if case in refused and not is_named:
            wrong.append(f"{case} is refused, and doctor would not name it if it were there")
        elif not is_named and not is_known_to_be_harmless(case):
            wrong.append(f"{case} is neither refused nor named by doctor, and nobody says that it is harmless")
    assert not wrong, "\n".join(wrong)
    # What statements count with is refused at the door.
    doors = {"attempt", "crashes", "snoozes", "throttles", "error_count", "state"}
    assert doors <= {case.column.name for case in refused if case.column.table == "job"}


# Both -----------------------------------------------------------------------------------------------------------------

Plant: TypeAlias = Callable[[Case], Awaitable[str | None]]


def want(queue: str, tasks: frozenset[str] = frozenset({TASK})) -> Want:
    return Want(queue, 50, (Lane(tasks, 50),))


async def look_everywhere(storage: Storage, ids: list[str]) -> None:
    """Each verb that reads or keeps up. None of them may raise because of a row."""
    for text in FILTERS:
        filter = filters.parse(text)
        for next_first in (False, True):
            page = await storage.find(Query(filter=filter, limit=5, next_first=next_first))
            seen = len(page.jobs)
            while page.next is not None and seen < 2000:
                page = await storage.find(Query(filter=filter, limit=500, cursor=page.next, next_first=next_first))
                seen += len(page.jobs)
            assert page.next is None, "a cursor that goes round in circles"
        await storage.count(filter)
    assert {job.id for job in await storage.get(ids)} == {*ids}
    for verb in ("queues", "pods", "facts", "failures", "operations", "audit", "due_tasks", "schedules", "limits",
                 "locks", "catalog", "deploys", "mutes", "vitals", "blockers", "sweep", "sweep_locks"):  # fmt: skip
        await getattr(storage, verb)()
    await storage.abandoned(100, 1.0)
    await storage.waits_over(100)
    await storage.rollups(60, 0.0, 1e10)
    await storage.readings(60, 0.0, 1e10)
    for kind in storage.kinds():
        await storage.dump(kind)
    for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
        await storage.prune(state, queue="nobody")


async def one_alone(storage: Storage, plant: Plant, case: Case, number: int) -> None:
    """A storage with one bad row: its neighbours are claimed and finished, and everything else works."""
    pod = f"worker-{number}"
    for id in (pod, "living"):
        card = PodCard(
            id=id, label=id, host="h", pid=1, version="0", queues={GOOD_QUEUE: 50, OTHER_QUEUE: 50}, tasks=(TASK,),
            lease=1000.0,
        )  # fmt: skip
        await storage.register(card)
    bad = await plant(case)
    good = [NewJob(id=an_id(), task=TASK, queue=queue, args="{}") for queue in (GOOD_QUEUE, OTHER_QUEUE)]
    await storage.insert(good)
    token = f"token-{number}"
    jobs = {job.id: job for job in (await storage.claim(pod, token, [want(GOOD_QUEUE), want(OTHER_QUEUE)])).jobs}
    assert {new.id for new in good} <= jobs.keys()
    if bad in jobs and isinstance(storage, PostgresStorage):  # SQLite's knows no bounds for what it can compute with
        assert is_known_to_be_harmless(case) or not is_claimed_from(case), "it should have been ended"
    beaten = await storage.beat(pod, 1000.0, [RunReport(id, token, "s") for id in jobs])
    assert not beaten.lost
    if case.base == "running here" and bad is not None:
        assert not (await storage.beat("living", 1000.0, [RunReport(bad, "t", "s")])).lost
    running = frozenset({State.RUNNING})
    ends = [
        Change(id=id, why="succeeded", expect=running, to=State.SUCCEEDED, token=token, result="1", warning=None)
        for id in jobs
    ]
    assert all(answer.accepted for answer in await storage.apply(ends))
    assert await storage.lead(pod, 0.001) is not None
    await storage.step_down(pod)
    await storage.abandoned(10, 1.0)
    page = await storage.find(Query(filter=filters.parse(""), limit=50))
    assert {new.id for new in good} <= {job.id for job in page.jobs}
    await storage.count(filters.parse(""))
    await storage.queues()
    await storage.pods()
    await storage.locks()
    await storage.due_tasks()
    await storage.sign_off(pod)


def is_claimed_from(case: Case) -> bool:
    return case.column.table == "job" and case.base == "ready" and case.column.name not in ("deadline", "started_at")


@pytest.mark.parametrize("constraints", ["dropped", "back"])
async def test_postgres_one_hostile_row_alone_stops_nobody(postgres: Postgres, constraints: str) -> None:
    """What a claim, a beat and a rescue compute with: the tables that they read, with the checks dropped, and with the
    checks put back over the row that is there."""
    tables = ("job", "queue", "lane", "pod", "leader", "run", "share", "named_lock", "job_error")
    admin = postgres.admin
    await postgres.drop_checks()
    failures: list[str] = []
    # With the checks back only rows that are written again can meet them.
    cases = [case for case in postgres.cases if case.column.table in (tables if constraints == "dropped" else ("job",))]

    async def plant(case: Case) -> str | None:
        id = await postgres.plant(case)
        if constraints == "back":
            await admin.execute(bounds_of_job)
        return id

    bounds_of_job = next(
        f"alter table {table} add constraint {name} {unvalidated(text)}"
        for name, table, text in postgres.checks
        if name == "job_bounds"
    )
    for number, case in enumerate(cases):
        try:
            async with asyncio.timeout(20):
                await one_alone(postgres.storage, plant, case, number)
        except Exception as error:  # all of them are told at once
            failures.append(f"{case} ({case.base}): {type(error).__name__}: {error}")
        await admin.execute(
            "alter table job drop constraint if exists job_bounds; delete from job; delete from job_history; "
            "delete from job_error; delete from run; delete from pod; delete from share; delete from named_lock; "
            "delete from lane where priority not between -100 and 100 or queue like 'odd%'; "
            "delete from queue where name like 'odd%'; "
            "update leader set one = 1, holder = '', term = 1, until = '-infinity'"
        )
        postgres.storage._ensured.clear()
    assert not failures, "\n".join(failures)


# SQLite ---------------------------------------------------------------------------------------------------------------

SQLITE_VALUES: dict[str, list[str]] = {
    "INTEGER": ["-9223372036854775808", "9223372036854775807", "0", "-1", "2147483648", "1e300", "0.5", "'many'",
                "x'ff'"],
    "REAL": ["9e999", "-9e999", "1.7e308", "-1.7e308", "0", "-1", "'soon'", "x'ff'", "cast(x'ff41fe' as text)"],
    "word": ["'dancing'", "''", "x'ff'", "7"],
    "array": ["'[]'", "'[null]'", "'[\"a\", null]'", "'[[\"a\"], [\"b\"]]'", "'{}'", "'['",
              "(select json_group_array('x') from (with recursive n(i) as (select 1 union all select i + 1 from n "
              "where i < 10000) select i from n))"],
}  # fmt: skip
SQLITE_WORDS = {*WORDS, ("job", "state"), ("pod", "wish")}
SQLITE_ARRAYS = {("job", "tags")}


class SQLite:
    def __init__(self, storage: SQLiteStorage, db: sqlite3.Connection) -> None:
        self.storage = storage
        self.db = db
        self.columns: dict[str, list[Column]] = {}
        self.cases: list[Case] = []
        names = db.execute("select name from sqlite_master where type = 'table' and name like 'treadle_%'").fetchall()
        for (name,) in sorted(names):
            table = name.removeprefix("treadle_")
            if table == "schema":
                continue
            for _, column, kind, required, default, key in db.execute(f"pragma table_info({name})"):
                found = Column(table, column, kind, not required and not key, default is not None, bool(key))
                self.columns.setdefault(table, []).append(found)
                which = "word" if (table, column) in SQLITE_WORDS else kind
                which = "array" if (table, column) in SQLITE_ARRAYS else which
                for value in SQLITE_VALUES.get(which, ()):
                    if (column, key) == ("seq", 1) and not re.fullmatch(r"-?\d+", value):
                        continue  # a rowid is a whole number: SQLite refuses any other
                    if (column, key) == ("one", 1):
                        continue  # likewise
                    own = found._replace(kind=which)
                    self.cases += [Case(own, value, base) for base in (JOB_STATES if table == "job" else ("",))]

    def write(self, text: str) -> None:
        self.db.execute("begin immediate")
        self.db.execute(text)
        self.db.execute("commit")

    async def plant(self, case: Case) -> str | None:
        table, number = case.column.table, next(NUMBERS)
        if table in ("leader", "fence"):
            self.write(f"update treadle_{table} set {case.column.name} = {case.value}")
            return None
        known = {"id": f"'{an_id()}'", "job_id": f"'{an_id()}'", "queue": f"'{GOOD_QUEUE}'", "task": f"'{TASK}'",
                 "card": f"'{CARD}'", "entry": "'{}'", "body": "'{}'", "args": "'{\"n\": 1}'", "refill": "1.0",
                 "leases": "'[]'", "definition": "'{}'", "progress": "'{}'", "descriptor": "'{}'"}  # fmt: skip
        now = "(julianday('now') - 2440587.5) * 86400.0"
        if table == "job":
            known |= {key: value.format(now=now) for key, value in JOB_STATES[case.base].items()}
            known |= {"priority": "0", "run_at": now, "created_at": now, "format": "1"}
        if table in ("queue", "pod", "share"):
            known |= {"id": f"'odd-{number}'", "name": f"'odd-{number}'", "queue": f"'odd-{number}'"}
        row: dict[str, str] = {}
        for each in self.columns[table]:
            if each.name in known and not (each.has_default and table != "job"):
                row[each.name] = known[each.name]
            elif not each.nullable and not each.has_default and not (each.is_key and each.kind == "INTEGER"):
                row[each.name] = {"INTEGER": str(number), "REAL": "1.0"}.get(each.kind, f"'odd-{number}'")
        row[case.column.name] = case.value
        self.write(f"insert into treadle_{table} ({', '.join(row)}) values ({', '.join(row.values())})")
        return row["id"].strip("'") if table == "job" else None

    def clear(self) -> None:
        for table in self.columns:
            if table in ("leader", "fence"):
                continue
            self.write(f"delete from treadle_{table}")
        self.write("update treadle_leader set holder = '', term = 1, until = 0.0")
        self.write("update treadle_fence set last = 1")


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SQLite]:
    storage = SQLiteStorage(tmp_path / "jobs.db")
    await storage.open()
    with contextlib.closing(sqlite3.connect(storage.path, isolation_level=None, timeout=20)) as db:
        db.text_factory = lambda text: text.decode("utf-8", "backslashreplace")
        yield SQLite(storage, db)
    await storage.close()


async def test_on_sqlite_doctor_names_every_extreme(sqlite: SQLite) -> None:
    """SQLite refuses nothing: each is planted, and taken back."""
    cases = [case for case in sqlite.cases if case.base in ("", "ready")]
    assert len(cases) > 300
    wrong: list[str] = []
    for case in cases:
        try:
            await sqlite.plant(case)
        except sqlite3.IntegrityError:
            sqlite.db.execute("rollback")
            continue
        stored = sqlite.db.execute(
            f"select 1 from treadle_{case.column.table} where {case.column.name} is not null"
        ).fetchone()
        is_named = (case.column.table, case.column.name) in named_in(sqlite_bounds.flaws(sqlite.db))
        sqlite.clear()
        if not is_named and stored and not is_known_to_be_harmless(case):
            wrong.append(str(case))
    assert not wrong, "\n".join(wrong)


async def test_on_sqlite_one_hostile_row_alone_stops_nobody(sqlite: SQLite) -> None:
    tables = ("job", "queue", "pod", "leader", "share", "lock", "fence", "job_error")
    failures: list[str] = []
    for number, case in enumerate(case for case in sqlite.cases if case.column.table in tables):
        try:
            async with asyncio.timeout(20):
                await one_alone(sqlite.storage, sqlite.plant, case, number)
        except Exception as error:  # all of them are told at once
            failures.append(f"{case} ({case.base}): {type(error).__name__}: {error}")
        if sqlite.db.in_transaction:
            sqlite.db.execute("rollback")
        sqlite.clear()
    assert not failures, "\n".join(failures)


# All at once, under a pod ---------------------------------------------------------------------------------------------


async def a_pod_among_them(app: App, planted: dict[str, Case]) -> None:
    """A pod, with good jobs in the same and in another queue: all of them run, and everybody can look."""
    storage, bad = app.storage, list(planted)

    @app.task(name=TASK, queue=GOOD_QUEUE)
    async def note(n: int) -> int:
        return n

    good = await app.enqueue_many([note.bind(n) for n in range(30)])
    good += await app.enqueue_many([note.using(queue=OTHER_QUEUE).bind(n) for n in range(30)])
    await look_everywhere(storage, bad)
    named = [fact for fact in await doctor.examine(app.client) if fact.code == "TREADLE-JOB-ROW"]
    assert named
    for fact in named:
        assert any(f"the row of job {id} (queue {GOOD_QUEUE}, task {TASK}) is damaged: " in fact.text for id in bad)
    async with app.worker({GOOD_QUEUE: 5, OTHER_QUEUE: 5}, timing=QUICK) as pod:
        async with asyncio.timeout(120):
            for handle in good:
                while (await app.jobs.get(handle.id)).state != "succeeded":
                    await asyncio.sleep(0.02)
            # What a dead pod has left running among them is rescued, too, or ended.
            while any(job.state is State.RUNNING for job in await storage.get(bad)):
                await asyncio.sleep(0.1)
            while not pod.heart.may_claim():  # a busy machine may have kept it from a beat
                await asyncio.sleep(0.1)
        assert pod.turner.counts["errors"] == 0
    await look_everywhere(storage, bad)
    await pages(app, bad)
    for id, case in planted.items():
        for _ in range(3):  # a live one is cancelled first, as any other
            if await app.jobs.remove(id) == "removed":
                break
        assert await storage.get([id]) == [], f"{case} ({case.base}) cannot be deleted"


async def pages(app: App, bad: list[str]) -> None:
    """What a browser and the API show: never a 500."""
    import httpx

    web = app.dashboard(access="open")
    async with httpx.AsyncClient(transport=Wire(web), base_url="http://localhost") as client:
        paths = ["/", "/jobs", "/queues", "/pods", "/schedules", "/limits", "/operations", "/failures", "/performance"]
        paths += ["/api/v1/jobs", "/api/v1/queues", "/api/v1/pods", "/api/v1/stats"]
        paths += [f"/jobs/{id}" for id in bad[::4]] + [f"/api/v1/jobs/{id}" for id in bad[::4]]
        for path in paths:
            answer = await client.get(path, follow_redirects=True)
            assert answer.status_code in (200, 404), (path, answer.status_code, answer.text[:500])


@pytest.mark.parametrize("constraints", ["dropped", "back"])
async def test_postgres_a_pod_runs_every_sound_job_among_all_of_them(postgres: Postgres, constraints: str) -> None:
    await postgres.drop_checks()
    bad: dict[str, Case] = {}
    for case in postgres.cases:
        if case.base == "running here" or case.column.name == "one":
            continue
        with contextlib.suppress(Exception):  # what a key or an index refuses even so
            id = await postgres.plant(case)
            bad |= {} if id is None else {id: case}
    assert len(bad) > 150
    if constraints == "back":
        await postgres.put_checks_back()
    app = App(storage=postgres.storage)
    async with app:
        await a_pod_among_them(app, bad)


async def test_on_sqlite_a_pod_runs_every_sound_job_among_all_of_them(sqlite: SQLite) -> None:
    bad: dict[str, Case] = {}
    for case in sqlite.cases:
        if case.base == "running here":
            continue
        with contextlib.suppress(sqlite3.IntegrityError):
            id = await sqlite.plant(case)
            bad |= {} if id is None else {id: case}
        if sqlite.db.in_transaction:
            sqlite.db.execute("rollback")
    assert len(bad) > 200
    app = App(storage=sqlite.storage)
    async with app:
        await a_pod_among_them(app, bad)


# One row, as it was reported ------------------------------------------------------------------------------------------


async def test_postgres_an_attempt_that_cannot_be_counted_stops_no_queue_and_people_can_deal_with_it(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await postgres.drop_checks()
    storage = postgres.storage
    attempt = next(case for case in postgres.cases if str(case) == "job.attempt = 2147483647" and case.base == "ready")
    bad = await postgres.plant(attempt)
    resting = await postgres.plant(attempt._replace(base="waiting"))
    assert bad is not None
    assert resting is not None
    await postgres.put_checks_back()
    monkeypatch.setenv("TREADLE_URL", postgres_server.shared_url())
    monkeypatch.setenv("TREADLE_SCHEMA", storage.schema_name)

    async def treadle(*args: str) -> tuple[int, str]:
        ran = await asyncio.to_thread(CliRunner().invoke, root, list(args))
        assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
        return ran.exit_code, ran.output

    code, said = await treadle("doctor")
    assert code == 4
    for id in (bad, resting):
        line = f"the row of job {id} (queue mail, task shop.note) is damaged: attempt is 2147483647"
        assert line in " ".join(said.split())
        assert (await treadle("jobs", "show", id))[0] == 0
    assert f"treadle jobs delete {bad}" in " ".join(said.split())
    app = App(storage=storage)
    async with app:

        @app.task(name=TASK, queue=GOOD_QUEUE)
        async def note(n: int) -> int:
            return n

        handles = [await note.using(queue=queue).enqueue(7) for queue in (GOOD_QUEUE, OTHER_QUEUE)]
        async with app.worker({GOOD_QUEUE: 2, OTHER_QUEUE: 2}, timing=QUICK) as pod:
            for handle in handles:
                assert await handle.result(timeout="20s") == 7
            assert pod.turner.counts["errors"] == 0
        view = await app.jobs.get(bad)
        assert view.error is not None
        assert (view.state, view.error.kind) == ("failed", "undecodable")
        assert "attempt is 2147483647" in view.error.message
        told = [record.getMessage() for record in caplog.records if bad in record.getMessage()]
        assert len(told) == 1, "one line names it"
        for id in (bad, resting):
            assert (await treadle("jobs", "delete", id, "--yes"))[0] == 0
            await treadle("jobs", "delete", id, "--yes")  # the one that waited was cancelled first
            assert await storage.get([id]) == []
        assert "is damaged" not in (await treadle("doctor"))[1]


async def test_postgres_what_is_kept_behind_a_damaged_job_is_not_lost(postgres: Postgres) -> None:
    """`keep_last`: an accepted request that waits inside the damaged row becomes a job as the row is ended."""
    storage = postgres.storage
    unique = UniqueClaim("one", on_conflict="keep_last")
    holder, kept = (NewJob(id=an_id(), task=TASK, queue=GOOD_QUEUE, args="{}", unique=unique) for _ in range(2))
    await storage.register(PodCard(id="p", label="p", host="h", pid=1, version="0", queues={}, tasks=(), lease=1e3))
    await storage.insert([holder])
    assert len((await storage.claim("p", "first", [want(GOOD_QUEUE)])).jobs) == 1
    assert [each.outcome for each in await storage.insert([kept])] == ["kept"]
    await postgres.drop_checks()
    await postgres.admin.execute("update job set state = 'ready', attempt = 2147483647")
    await postgres.put_checks_back()
    claimed = await storage.claim("p", "second", [want(GOOD_QUEUE)])
    assert [job.id for job in claimed.jobs] == [kept.id]
    assert [job.state for job in await storage.get([holder.id])] == [State.FAILED]


async def test_postgres_a_row_that_can_neither_be_claimed_nor_ended_holds_up_its_own_queue_only(
    postgres: Postgres, caplog: pytest.LogCaptureFixture
) -> None:
    """A trigger of somebody's own refuses whatever is done to it."""
    storage, admin = postgres.storage, postgres.admin
    await storage.register(PodCard(id="p", label="p", host="h", pid=1, version="0", queues={}, tasks=(), lease=1e3))
    bad, good = (NewJob(id=an_id(), task=TASK, queue=queue, args="{}") for queue in (GOOD_QUEUE, OTHER_QUEUE))
    await storage.insert([bad, good])
    await admin.execute(
        "create function no() returns trigger language plpgsql as $$ begin raise exception 'never'; end $$; "
        "create trigger no before update or delete on job for each row "
        f"when (old.id = '{bad.id}') execute function no()"
    )
    for token in ("first", "second"):
        claimed = await storage.claim("p", token, [want(GOOD_QUEUE), want(OTHER_QUEUE)])
        assert [job.id for job in claimed.jobs] == ([good.id] if token == "first" else [])
    assert [record.getMessage() for record in caplog.records] == ["queue mail cannot be claimed from: never"]


@pytest.mark.parametrize("card", ["{", "7", "[]", '{"queues": 7}', '{"queues": {"mail": 1}'])
@pytest.mark.parametrize("column", ["card", "stats"])
async def test_postgres_a_pod_whose_card_is_no_json_keeps_nobody_from_beating(
    postgres: Postgres, column: str, card: str
) -> None:
    storage = postgres.storage
    for id in ("p", "odd"):
        queues = {GOOD_QUEUE: 1}
        await storage.register(
            PodCard(id=id, label=id, host="h", pid=1, version="0", queues=queues, tasks=(), lease=1e3)
        )
    await postgres.admin.execute(f"update pod set {column} = $1 where id = 'odd'", card)
    beaten = await storage.beat("p", 1000.0, [])
    assert not beaten.lost
    assert beaten.live_pods == 2
    assert beaten.serving[GOOD_QUEUE] >= 1
    assert {pod.card.id for pod in await storage.pods()} == {"p", "odd"}


async def test_postgres_an_answer_for_a_job_whose_id_is_none_keeps_no_other_wait_from_its_end(
    postgres: Postgres,
) -> None:
    await postgres.admin.execute(
        "insert into answer (id, job_id, claim, timeout, opened_at, expires_at, waits) "
        "select 'a' || n, x, 'c', 1, 1, 2, true "
        "from unnest(array['', 'x', repeat('-', 36), repeat('0', 36), '{}']) with ordinality as u (x, n)"
    )
    await postgres.storage.insert([NewJob(id=an_id(), task=TASK, queue=GOOD_QUEUE, args="{}")])
    await postgres.admin.execute("update job set state = 'waiting', token = 'c'")
    assert await postgres.storage.waits_over(10) == []
    assert await postgres.admin.fetchval("select count(*) from answer where waits") == 0


async def test_postgres_a_pod_that_is_forgotten_may_have_been_seen_at_no_time_at_all(postgres: Postgres) -> None:
    storage = postgres.storage
    about = {f"task {TASK}": Descriptor()}
    await storage.register(
        PodCard(id="p", label="p", host="h", pid=1, version="0", queues={}, tasks=(), lease=1e3, about=about)
    )
    await postgres.drop_checks()
    await postgres.admin.execute("update pod set swept = true, gone = true, beat_at = 'infinity'")
    await postgres.put_checks_back()
    await storage.abandoned(10, 1.0)
    assert await storage.pods() == []


async def test_postgres_a_pod_puts_its_own_damaged_row_right_and_beats_on(postgres: Postgres) -> None:
    storage = postgres.storage
    await storage.register(PodCard(id="p", label="p", host="h", pid=1, version="0", queues={}, tasks=(), lease=1e3))
    await postgres.drop_checks()
    await postgres.admin.execute("update pod set started_at = 'infinity', stacks_asked = '-infinity', wish = 'dance'")
    assert (await storage.beat("p", 1000.0, [])).wish == "serve"
    await postgres.put_checks_back()
    assert not (await storage.beat("p", 1000.0, [])).lost


async def test_postgres_bounds_are_added_without_reading_a_row(postgres: Postgres) -> None:
    """`not valid`: no scan under a lock, and no refusal because of what is there."""
    found = await postgres.admin.fetch(
        "select conname, convalidated from pg_constraint "
        "where connamespace = $1::regnamespace and contype = 'c' and conname like '%bounds'",
        postgres.storage.schema_name,
    )
    assert len(found) >= 20
    assert [name for name, validated in found if validated] == []


async def test_on_sqlite_a_state_of_nobodys_can_be_seen_deleted_and_revived(sqlite: SQLite) -> None:
    app = App(storage=sqlite.storage)
    async with app:
        for state in ("'dancing'", "x'ff'", "7"):
            first, second = await app.enqueue("shop.note", {"n": 1}), await app.enqueue("shop.note", {"n": 1})
            sqlite.write(f"update treadle_job set state = {state}")
            view = await app.jobs.get(first.id)
            assert view.state == "failed"
            assert view.warning is not None
            assert "no version of Treadle writes" in view.warning
            assert await app.jobs.remove(first.id) == "removed"
            await app.jobs.revive(second.id)
            assert (await app.jobs.get(second.id)).state == "ready"
            sqlite.clear()


@pytest.fixture(autouse=True, scope="module")
def apps_are_closed() -> Iterator[None]:
    yield
    for app in App.all():
        app.close_sync()
