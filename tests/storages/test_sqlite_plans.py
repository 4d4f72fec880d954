"""The plans of the statements, on filled tables: no hot statement may walk over jobs or sort them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from treadle.core.filter import parse
from treadle.ports import Claimed, Query
from treadle.storages.shared.clock import SystemClock
from treadle.storages.shared.depths import Depths
from treadle.storages.sqlite import SQLiteStorage, apply, claim, find, insert, tally
from treadle.storages.sqlite.sql import statement
from treadle.testing.conformance.builders import a_job, want
from treadle.testing.conformance.steps import a_live_pod

pytestmark = pytest.mark.anyio

FILL = """
insert into treadle_job (id, queue, task, state, priority, run_at, created_at, format, args, finished_at, pod, token)
with recursive n (i) as (select 1 union all select i + 1 from n where i < ?)
select
    ? || i, 'default', 'task' || (i % 7), ?, i % 3, ? + i % 100, 0.0, 1, '{}', case when ? then ? - i % 1000 end,
    'pod' || (i % 5), 'token'
from n
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with plenty in every state."""
    storage = SQLiteStorage(tmp_path_factory.mktemp("plans") / "jobs.db")

    async def make() -> None:
        await storage.open()
        await storage.close()

    asyncio.run(make())
    now = time.time()
    with contextlib.closing(sqlite3.connect(storage.path)) as db:
        for state, count, due in (
            ("ready", 20_000, now + 1e6),
            ("succeeded", 20_000, now - 1e6),
            ("failed", 300, now - 1e6),
            ("running", 300, now - 1e6),
            ("waiting", 100, now - 1e6),
        ):
            db.execute(FILL, (count, state, state, due, state in ("succeeded", "failed"), now))
        db.execute("update treadle_job set attempt = 1 where state = 'ready' and seq % 100 = 0")
        db.execute("insert into treadle_queue (name) values ('default')")
        db.commit()
    return storage.path


@pytest.fixture
async def storage(path: str) -> AsyncIterator[SQLiteStorage]:
    storage = SQLiteStorage(path, synchronous="normal")
    await storage.open()
    yield storage
    await storage.close()


@pytest.fixture(params=["as it grew", "after ANALYZE"])
def db(request: pytest.FixtureRequest, path: str) -> Iterator[sqlite3.Connection]:
    """A user may run ANALYZE: the plans must not depend on whether somebody did."""
    db = sqlite3.connect(path, isolation_level=None)
    if request.param == "after ANALYZE":
        db.execute("analyze")
        db.close()
        db = sqlite3.connect(path, isolation_level=None)
    yield db
    if request.param == "after ANALYZE":
        db.execute("drop table sqlite_stat1")
    db.close()


def plan(db: sqlite3.Connection, sql: str) -> str:
    numbers = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    count = max([*numbers, 0]) + len(re.findall(r"\?(?!\d)", sql))
    return "\n".join(row[3] for row in db.execute(f"explain query plan {sql}", ["1"] * count))


def walks(text: str) -> bool:
    """A scan of jobs, or a sort. Scanning a list of values, a JSON array or the few rows of a recursion is fine."""
    return re.search(r"SCAN (treadle_job|job|later)\b|TEMP B-TREE", text) is not None


HOT = [
    "claim_heads",
    "due_count",
    "claim_due",
    "claim_first",
    "claim_read",
    "claim_take",
    "succeed_bare",
    "apply_find",
    "holder",
    "holder_succeeded",
    "replace",
    "get",
    "get_by_seq",
    "pod_live",
    "beat_slot",
    "beat_held",
    "queue",
    "upcoming",
    "upcoming_retries",
    "retry_heads",
    "count_ended",
    "count_waiting",
]


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_neither_walks_nor_sorts(db: sqlite3.Connection, name: str) -> None:
    found = plan(db, statement(name))
    assert "SEARCH" in found
    assert not walks(found), found


@pytest.mark.parametrize("count", [1, 2, 256])
def test_a_batch_of_successes_finds_each_job_by_its_id(db: sqlite3.Connection, count: int) -> None:
    found = plan(db, apply._succeed_sql(count))
    assert "SEARCH treadle_job USING INDEX treadle_job_id (id=?)" in found
    assert not walks(found), found


def test_an_insert_reads_nothing(db: sqlite3.Connection) -> None:
    assert not walks(plan(db, insert._insert_sql(256)))


def test_a_claim_seeks_in_the_index_made_for_it(db: sqlite3.Connection) -> None:
    due = plan(db, statement("claim_due"))
    assert due == ("SEARCH treadle_job USING INDEX treadle_job_claim (queue=? AND task=? AND priority=? AND run_at<?)")
    take = plan(db, statement("claim_take"))
    assert "SEARCH treadle_job USING INTEGER PRIMARY KEY (rowid=?)" in take


def test_running_jobs_are_found_by_their_pod(db: sqlite3.Connection) -> None:
    for name in ("recover", "beat_held"):
        assert "USING INDEX treadle_job_running (pod=?)" in plan(db, statement(name))
    assert "treadle_job_running" in plan(db, statement("abandoned"))


class Counting:
    """Counts the steps of SQLite's virtual machine that each statement took."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.steps = 0

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        def count() -> None:
            self.steps += 10

        self._db.set_progress_handler(count, 10)
        try:
            return self._db.execute(sql, parameters)
        finally:
            self._db.set_progress_handler(None, 10)


def test_a_claim_costs_the_same_however_much_is_scheduled_or_unknown(path: str) -> None:
    """20,000 scheduled jobs and thousands of tasks that this pod does not know lie in the queue: their number must
    not show. (The heads of 21 (task, priority) pairs are read; that is all.)"""
    db = sqlite3.connect(path, isolation_level=None)
    counting = Counting(db)
    db.execute("begin immediate")
    claimed = claim.claim(counting, "pod", "token", [want(limit=10, tasks=["task1", "task2"])], time.time())
    db.execute("rollback")
    db.close()
    assert isinstance(claimed, Claimed)
    assert claimed.jobs == []
    assert claimed.next_due is not None
    assert counting.steps < 5_000


async def test_order_and_next_due_are_exact_among_many(storage: SQLiteStorage) -> None:
    pod = await a_live_pod(storage)
    await storage.insert([a_job(task="task1", priority=n % 4) for n in range(20)])
    claimed = await storage.claim(pod, "fresh", [want(limit=8, tasks=["task1", "task2"])])
    assert [job.priority for job in claimed.jobs] == [3] * 5 + [2] * 3
    assert claimed.more
    assert claimed.next_due is not None
    assert 0 < claimed.next_due < 1e6 + 200


async def test_lists_for_operators_say_when_they_looked_at_the_newest_only(
    storage: SQLiteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "MOST_LOOKED_AT", 5_000)
    monkeypatch.setattr(find, "STRETCH", 1_000)
    monkeypatch.setattr(find, "FEW", 1_000)
    page = await storage.find(Query(filter=parse("args.n:7")))
    assert list(page.jobs) == []
    assert page.newest_only == 5_000
    page = await storage.find(Query(filter=parse("state:failed args.n:7")))
    assert page.newest_only is None  # an index has them all, and they are few


async def test_a_slow_search_ends_in_time(storage: SQLiteStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "LONGEST", 0.0)
    monkeypatch.setattr(find, "A_FEW", 0)
    monkeypatch.setattr(find, "FEW", 1_000)
    for next_first in (False, True):
        page = await storage.find(Query(filter=parse("reason:never"), next_first=next_first))
        assert page.newest_only is not None
    assert await storage.count(parse("reason:never")) == {}


def test_an_operators_list_of_scheduled_jobs_starts_without_sorting_them(path: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    counting = Counting(db)
    query = Query(filter=parse("state:scheduled"), next_first=True, limit=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "FEW", 1_000)
        page = find.find(counting, query, SystemClock())
    db.close()
    assert len(page.jobs) == 20
    assert [job.run_at for job in page.jobs] == sorted(job.run_at for job in page.jobs)
    assert counting.steps < 30_000


# So many steps of SQLite's machine, of the 200,000 and more that a walk over the table takes.
PAGES = [
    ("state:ready", 8_000),
    ("state:scheduled queue:default", 30_000),
    ("is:retrying", 12_000),
    ("is:retrying queue:default task:task3", 6_000),
    ("is:due", 8_000),
    ("state:failed finished:<1s", 6_000),
    ("finished:<1s", 12_000),
    ("state:running", 12_000),
]


@pytest.mark.parametrize(("text", "most"), PAGES)
def test_a_count_that_an_index_can_tell_walks_over_no_more_than_its_cap(
    db: sqlite3.Connection, text: str, most: int
) -> None:
    counting = Counting(db)
    tally.count(counting, parse(text), 1_000, SystemClock())
    assert counting.steps < most, counting.steps


@pytest.mark.parametrize("text", ["state:scheduled queue:default", "queue:default", "task:task3 queue:default"])
def test_the_newest_of_a_queue_are_found_without_sorting_it(
    db: sqlite3.Connection, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left to itself, the planner takes the index of the queue and sorts all that is in it."""
    monkeypatch.setattr(find, "FEW", 1_000)
    monkeypatch.setattr(find, "PATIENT_WITH", 100_000)
    said: list[str] = []
    db.set_trace_callback(said.append)
    find.find(db, Query(filter=parse(text), limit=10), SystemClock())
    db.set_trace_callback(None)
    walk = next(sql for sql in said if "order by job.seq desc" in sql)
    found = plan(db, walk)
    assert "USING INTEGER PRIMARY KEY" in found
    assert "TEMP B-TREE" not in found


def test_retrying_jobs_come_by_their_time_from_their_own_index(path: str) -> None:
    """20,000 are scheduled; one in a hundred waits for its retry. No other is looked at."""
    db = sqlite3.connect(path, isolation_level=None)
    counting = Counting(db)
    page = find.find(counting, Query(filter=parse("is:retrying"), next_first=True, limit=20), SystemClock())
    db.close()
    assert len(page.jobs) == 20
    assert page.newest_only is None
    assert [job.run_at for job in page.jobs] == sorted(job.run_at for job in page.jobs)
    assert counting.steps < 15_000


def test_large_depths_are_not_counted_every_time(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.storages.shared.depths.LARGE", 500)
    db = sqlite3.connect(path, isolation_level=None)
    depths: Depths[tally.Head] = Depths()
    steps: list[int] = []
    for _ in range(2):
        counting = Counting(db)
        (queue,) = tally.queues(counting, SystemClock(), depths)
        assert queue.scheduled == 20_000
        steps.append(counting.steps)
    db.close()
    assert steps[1] < steps[0] - 60_000
