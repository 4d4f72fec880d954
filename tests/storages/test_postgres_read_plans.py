"""What the dashboard's pages read of a large PostgreSQL: by an index, and no more rows than they need. No clock."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from benchmarks import million

from tests import postgres_server
from treadle.core.filter import parse
from treadle.core.job import State
from treadle.ports import Query
from treadle.storages.postgres import PostgresStorage, counts, failures, find, pods, tally
from treadle.storages.postgres.sql import Schema
from treadle.storages.postgres.talk import Talk

pytestmark = pytest.mark.anyio
asyncpg: Any = pytest.importorskip("asyncpg")

JOBS = 60_000
CAP = 500
LARGE_TABLES = ("job", "job_history", "job_error")
NOW = (None, None, "")
# Terms that an index serves.
INDEXED = (
    "",
    "state:ready",
    "state:ready queue:mail",
    "state:scheduled",
    "is:retrying",
    "is:retrying queue:mail",
    "state:running",
    "state:waiting",
    "is:stuck",
    "state:failed",
    "state:failed queue:audit",
    "state:failed finished:<1h",
    "state:failed finished:<1s",
    "finished:<1s queue:mail",
    "is:poison finished:<24h",
    "queue:mail",
    "queue:audit",
    "tag:batch7",
    "parent:nobody",
    "state:ready queue:mail priority:>0",
    "state:ready queue:mail priority:0 due:<2026-01-01",
)
# So rare that a page of them is looked for among all.
RARE = ("is:poison finished:<24h", "queue:audit", "state:ready queue:mail priority:0 due:<2026-01-01")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def filled(anyio_backend: str) -> AsyncIterator[tuple[Any, Schema]]:
    """A connection to a schema with many jobs, and its name."""
    url, name = postgres_server.shared_url(), postgres_server.a_schema()
    storage = PostgresStorage(url, schema=name, auto_migrate=True)
    await storage.open()
    await storage.close()
    db = await asyncpg.connect(url)
    await million.into_postgres(db, name, JOBS, time.time())
    yield db, Schema(name)
    await db.execute(f"drop schema {name} cascade")
    await db.close()


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table here is large enough to be taken for one."""
    monkeypatch.setattr(find, "SMALL_FOR_SCANS", 0)


class Read:
    """What a talk has read: rows by table, and the tables that were read as a whole."""

    def __init__(self) -> None:
        self.answer: Any = None
        self.rows: Counter[str] = Counter()
        self.scanned: set[str] = set()
        self.statements = 0

    def see(self, plan: dict[str, Any]) -> None:
        for node in _nodes(plan):
            table = node.get("Relation Name")
            if table in LARGE_TABLES:
                each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                self.rows[table] += round(each * node["Actual Loops"])
                if "Seq Scan" in node["Node Type"]:
                    self.scanned.add(table)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


async def watched(filled: tuple[Any, Schema], talk: Talk[Any]) -> Read:
    """Hold the talk, and have every statement of it explained while it runs."""
    db, schema = filled
    read = Read()
    try:
        text, given = next(talk)
        while True:
            (plan,) = json.loads(
                await db.fetchval(f"explain (analyze, timing off, format json) {schema(text)}", *given)
            )
            read.see(plan["Plan"])
            read.statements += 1
            text, given = talk.send(await db.fetch(schema(text), *given))
    except StopIteration as stop:
        read.answer = stop.value
    return read


@pytest.mark.parametrize("text", INDEXED)
async def test_a_count_reads_no_more_than_its_cap_needs(filled: tuple[Any, Schema], text: str) -> None:
    remembers = tally.Tally()
    await watched(filled, counts.count(parse(text), CAP, NOW, remembers))
    read = await watched(filled, counts.count(parse(text), CAP, NOW, remembers))
    assert read.scanned == set()
    # Of the 30,000 live and the 30,000 ended jobs.
    assert read.rows["job"] <= 12 * CAP
    assert read.rows["job_history"] <= 6 * CAP
    assert read.statements <= 4  # the last one asks whether there may be more than were looked at


async def test_counts_are_right_up_to_the_cap(filled: tuple[Any, Schema]) -> None:
    db, schema = filled
    ready = await db.fetchval(
        schema("select count(*) from treadle.job where state = 'ready' and run_at <= now() and queue = 'audit'")
    )
    failed = await db.fetchval(
        schema("select count(*) from treadle.job_history where state = 'failed' and queue = 'audit'")
    )
    read = await watched(filled, counts.count(parse("queue:audit"), 10_000, NOW, tally.Tally()))
    assert 0 < ready < 500
    assert read.answer[State.READY] == ready
    assert read.answer[State.FAILED] == failed
    read = await watched(filled, counts.count(parse("state:ready"), CAP, NOW, tally.Tally()))
    assert read.answer == {State.READY: CAP}
    read = await watched(filled, counts.count(parse("state:ready -is:due"), CAP, NOW, tally.Tally()))
    assert read.answer == {}
    read = await watched(
        filled, counts.count(parse("state:ready -queue:mail,bulk,default,media"), CAP, NOW, tally.Tally())
    )
    assert 0 < read.answer[State.READY] < CAP
    everything = await watched(filled, counts.count(parse(""), 1 << 40, NOW, tally.Tally()))
    assert sum(everything.answer.values()) == JOBS


@pytest.mark.parametrize("text", [each for each in INDEXED if each not in RARE])
async def test_a_page_of_jobs_is_read_by_an_index(filled: tuple[Any, Schema], text: str) -> None:
    read = await watched(filled, find.find(Query(filter=parse(text), limit=50), NOW))
    assert read.scanned == set()
    assert read.rows["job"] + read.rows["job_history"] <= 12_000
    assert read.rows["job_error"] <= 51
    assert read.answer.newest_only is None


async def test_what_was_counted_is_remembered(filled: tuple[Any, Schema]) -> None:
    remembers = tally.Tally()
    first = await watched(filled, tally.queues(None, remembers))
    again = await watched(filled, tally.queues(None, remembers))
    assert first.answer[0].queue.name == "audit"
    assert [each.failed for each in again.answer] == [each.failed for each in first.answer]
    assert again.scanned == set()
    # What runs is looked at every time, and what there is little of.
    assert again.rows["job"] <= 3_000
    assert again.rows["job_history"] <= 2_000


async def test_failures_are_grouped_from_the_newest(filled: tuple[Any, Schema]) -> None:
    for queue, most in ((None, 2_500), ("mail", 4_900)):
        read = await watched(filled, failures.failures(failures.Causes(), queue, None, 50, 1_000, None))
        assert read.scanned == set()
        assert sum(group.failed for group in read.answer.groups) == 1_000
        assert sum(group.retrying for group in read.answer.groups) == 1_000
        assert read.answer.looked_at == 2_000
        assert not read.answer.all_retries  # a large table may hold more than were looked through
        assert read.answer.capped
        # The thousand, whether there are more, one sample of each of twelve groups (of the last, an incremental sort
        # looks at 32) and what it says.
        assert read.rows["job_history"] <= most
        # Of each retry its last error and the first that is kept, and those of the samples.
        assert read.rows["job_error"] <= 2_100
        assert all(group.message.startswith("refused") for group in read.answer.groups)


async def test_which_tasks_are_due_is_told_by_the_heads_of_the_lanes(filled: tuple[Any, Schema]) -> None:
    read = await watched(filled, pods.due_tasks(None))
    assert len(read.answer) == 6 * 12 or len({each.queue for each in read.answer}) == 6
    assert read.scanned == set()
    assert read.rows["job"] <= pods.MOST_LOOKED_AT


async def test_a_term_without_an_index_looks_at_the_newest_and_says_so(
    filled: tuple[Any, Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "MOST_LOOKED_AT", 20_000)
    read = await watched(filled, find.find(Query(filter=parse("reason:never"), limit=50), NOW))
    assert read.answer.newest_only is not None
    assert 20_000 <= read.answer.newest_only <= 20_000 + find.STRETCH
    assert read.answer.resume is not None


async def test_a_long_look_is_taken_step_by_step(filled: tuple[Any, Schema]) -> None:
    """Others who read on the same connection come in between."""
    db, schema = filled
    query = Query(filter=parse("args.amount:77"), limit=50)
    finding = find.Finding(query, NOW)
    lost = finding.step()  # its connection breaks in the middle
    text, given = next(lost)
    lost.send(await db.fetch(schema(text), *given))
    lost.close()
    steps = 0
    while finding.page is None:
        read = await watched(filled, finding.step())
        assert read.rows["job"] + read.rows["job_history"] <= 5 * find.STRETCH
        steps += 1
    assert steps > 2
    whole = await watched(filled, find.find(query, NOW))
    assert [job.id for job in finding.page.jobs] == [job.id for job in whole.answer.jobs]
    assert len(finding.page.jobs) == 50


@pytest.mark.parametrize(
    ("text", "unsure"),
    [
        ("queue:audit", {State.SUCCEEDED}),  # no index has them by queue: of the newest, so many
        ("state:failed queue:audit", set()),
        ("state:failed finished:<1h", set()),
        ("state:failed -queue:audit", {State.FAILED}),
        ("state:succeeded,failed task:task3 queue:audit", {State.SUCCEEDED, State.FAILED}),
        ("state:ready priority:99", set()),
        ("state:ready,scheduled task:nobody*", {State.READY, State.SCHEDULED}),
        ("tag:batch7", set()),
    ],
)
async def test_a_count_says_where_not_every_row_was_looked_at(
    filled: tuple[Any, Schema], monkeypatch: pytest.MonkeyPatch, text: str, unsure: set[State]
) -> None:
    monkeypatch.setattr(counts, "MOST_LOOKED_AT", 1_000)
    read = await watched(filled, counts.count(parse(text), 100_000, NOW, tally.Tally()))
    assert read.answer.at_least == unsure
    monkeypatch.setattr(counts, "MOST_LOOKED_AT", 1_000_000)
    read = await watched(filled, counts.count(parse(text), 100_000, NOW, tally.Tally()))
    assert read.answer.at_least == unsure - {State.SUCCEEDED, State.FAILED}
