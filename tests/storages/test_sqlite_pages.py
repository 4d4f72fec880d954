"""What the dashboard reads, on a filled file: by an index, and no further than a page needs. No clock is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from benchmarks import million

from treadle.core.filter import parse
from treadle.ports import Query
from treadle.storages.shared.clock import SystemClock
from treadle.storages.shared.depths import Depths
from treadle.storages.sqlite import SQLiteStorage, facts, failures, find, places, pods, soonest, tally, terms

JOBS = 30_000
CLOCK = SystemClock()
NOW = time.time()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    storage = SQLiteStorage(tmp_path_factory.mktemp("pages") / "jobs.db")

    async def make() -> None:
        await storage.open()
        await storage.close()

    asyncio.run(make())
    million.into_sqlite(storage.path, JOBS, time.time())
    return storage.path


@pytest.fixture(params=["as it grew", "after ANALYZE"])
def db(request: pytest.FixtureRequest, path: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """As with a million jobs: nothing but one tag, one id and what runs is few."""
    monkeypatch.setattr(find, "FEW", 400)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        if request.param == "after ANALYZE":
            db.execute("analyze")
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db
        if request.param == "after ANALYZE":
            db.execute("drop table sqlite_stat1")


def one_page(text: str, *, next_first: bool = False) -> Callable[[sqlite3.Connection], object]:
    return lambda db: find.find(db, Query(filter=parse(text), limit=50, next_first=next_first), CLOCK)


def one_count(text: str) -> Callable[[sqlite3.Connection], object]:
    return lambda db: tally.count(db, parse(text), 1_000, CLOCK)


LISTS = (
    "", "state:ready", "state:ready queue:mail", "state:scheduled", "is:retrying", "is:retrying queue:mail",
    "state:running", "state:failed", "state:failed finished:<1h", "queue:audit", "queue:mail", "tag:batch7",
    "id:0199a1b2-0000-7000-8000-000000000000", "parent:0199a1b2-0000-7000-8000-000000000000",
    "task:task3 state:succeeded,failed,cancelled", 'state:running pod:"pod1"',
)  # fmt: skip
COUNTS = (
    "", "state:ready", "state:scheduled", "is:retrying", "is:retrying queue:mail", "state:running", "state:failed",
    "state:failed finished:<1h", "is:stuck", "is:stuck queue:mail", "is:stuck tag:vip", "queue:mail", "queue:audit",
    "tag:batch7", "is:poison finished:<24h",
)  # fmt: skip
READS: dict[str, Callable[[sqlite3.Connection], object]] = {
    **{f"page of {text or 'all'}": one_page(text) for text in LISTS},
    **{f"next of {text}": one_page(text, next_first=True) for text in ("state:scheduled", "is:retrying", "is:due")},
    **{f"count of {text or 'all'}": one_count(text) for text in COUNTS},
    "queues": lambda db: tally.queues(db, CLOCK, Depths()),
    "failures": lambda db: failures.failures(db, failures.Causes(), None, None, 50, 1_000, NOW),
    "due tasks": lambda db: pods.due_tasks(db, time.time()),
    "facts": lambda db: list(facts._rows(db)),
}
# What runs is no more than there are slots: it may be walked over, and sorted.
RUNNING = re.compile(r"(SCAN|SEARCH) (treadle_job|job)\b.* USING (COVERING )?INDEX treadle_job_running\b")
# So are the jobs of one tag, mostly.
TAGGED = "SEARCH named USING PRIMARY KEY (tag=?"
# All that waits is walked over to be counted, but no further than the cap.
WAITING = re.compile(r"SCAN job USING (COVERING )?INDEX treadle_job_waiting\b")
WALK = re.compile(r"SCAN (treadle_job|job|later|error|named|last)\b")


def statements(db: sqlite3.Connection, read: Callable[[sqlite3.Connection], object]) -> list[str]:
    said: list[str] = []
    db.set_trace_callback(said.append)
    try:
        read(db)
    finally:
        db.set_trace_callback(None)
    return [sql for sql in said if "treadle_job" in sql and not sql.startswith("--  ")]


def steps_of(db: sqlite3.Connection, sql: str) -> list[str]:
    said = re.sub(r"\bInf\b", "9e999", sql)  # a parameter that is infinite is not told as SQLite reads it
    return [row[3] for row in db.execute(f"explain query plan {said}")]


def trouble(sql: str, steps: list[str]) -> list[str]:
    """The steps that cost more the more jobs there are."""
    is_newest = "order by seq desc" in sql and "limit" in sql  # from the end of the table, a few of them
    walks = [
        step
        for step in steps
        if WALK.search(step) and not RUNNING.search(step) and not WAITING.search(step) and not is_newest
    ]
    is_of_few = any(RUNNING.search(step) or TAGGED in step for step in steps)
    return walks + [step for step in steps if "TEMP B-TREE" in step and not step.startswith("UNION") and not is_of_few]


@pytest.mark.parametrize("name", READS)
def test_no_read_of_a_page_walks_over_all_jobs_or_sorts_them(db: sqlite3.Connection, name: str) -> None:
    said = statements(db, READS[name])
    assert said
    for sql in said:
        steps = steps_of(db, sql)
        assert not trouble(sql, steps), (sql, steps)


def test_the_check_sees_a_walk_and_a_sort(db: sqlite3.Connection) -> None:
    for sql in (
        "select id from treadle_job order by run_at",
        "select count(*) from treadle_job as job where reason = 'x'",
    ):
        assert trouble(sql, steps_of(db, sql))


class Counting:
    """Counts statements, and the steps of SQLite's machine."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.asked: list[str] = []
        self.steps = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        def count() -> None:
            self.steps += 10

        self.asked.append(sql)
        self._db.set_progress_handler(count, 10)
        try:
            return self._db.execute(sql, parameters)
        finally:
            self._db.set_progress_handler(None, 10)


def test_states_are_counted_in_their_index_alone(db: sqlite3.Connection) -> None:
    """A parameter in place of the written state would fetch every row: the index does not promise it then."""
    for state in ("running", "waiting"):
        (sql,) = statements(db, one_count(f"state:{state}"))
        rows = {row[1] for row in db.execute(f"explain {sql}")}
        assert "Column" not in rows, "it looks at a column of each row"


def test_what_is_next_is_found_in_a_few_of_many_pieces(db: sqlite3.Connection) -> None:
    """164 (queue, task, priority) have scheduled jobs: only those are opened that can be among the first ten."""
    counting = Counting(db)
    parts = terms.take_apart(parse("state:scheduled"), CLOCK)
    heads = list(places.heads(db, parts, time.time()))
    found = soonest.merged(counting, parts, (time.time(), -1))
    first = [next(found) for _ in range(10)]
    opened = [sql for sql in counting.asked if "limit ?6" in sql]
    assert len(heads) > 100
    assert 1 <= len(opened) <= 11
    whole = db.execute(
        "select run_at, seq from treadle_job where state = 'ready' and run_at > ? order by run_at, seq limit 10",
        (time.time(),),
    ).fetchall()
    assert first == whole


@pytest.mark.parametrize("text", ["state:scheduled", "is:retrying", "is:due", "is:retrying queue:mail task:task3"])
def test_pages_in_the_order_of_time_miss_nothing_and_repeat_nothing(db: sqlite3.Connection, text: str) -> None:
    found: list[str] = []
    cursor: str | None = None
    for _ in range(6):
        page = find.find(db, Query(filter=parse(text), limit=37, next_first=True, cursor=cursor), CLOCK)
        found += [job.id for job in page.jobs]
        cursor = page.next
        if cursor is None:
            break
    parts = terms.take_apart(parse(text), CLOCK)
    where = terms.joined(parts.conditions)
    sql = f"select id from treadle_job as job where {where.sql} order by run_at, seq limit ?"
    assert found == [id for (id,) in db.execute(sql, (*where.parameters, len(found)))]
    assert len(found) > 10


def test_what_was_read_of_a_failure_is_not_read_again(db: sqlite3.Connection) -> None:
    causes = failures.Causes()
    first, again = Counting(db), Counting(db)
    told = failures.failures(first, causes, None, None, 50, 1_000, NOW)
    assert failures.failures(again, causes, None, None, 50, 1_000, NOW) == told
    assert told.looked_at == 2_000  # failures, and as many retries
    assert told.capped
    assert any("json_each" in sql for sql in first.asked)
    assert not any("json_each" in sql for sql in again.asked)


def test_many_queues_have_their_failures_in_the_same_order(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_sqlite = failures.failures(db, failures.Causes(), None, None, 50, 700, NOW)
    monkeypatch.setattr(failures, "MERGED", 2)
    assert failures.failures(db, failures.Causes(), None, None, 50, 700, NOW) == by_sqlite


def test_what_is_known_of_failures_does_not_grow_for_ever(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "MOST_KNOWN", 100)
    causes = failures.Causes()
    for queue in ("mail", "bulk", "default"):
        failures.failures(db, causes, queue, None, 50, 150, NOW)
    assert len(causes._failed) <= 250
    assert len(causes._retries) <= 250
