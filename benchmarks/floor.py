"""Floor: what this machine does with the bare parts, so that our figures have something to be measured against.

Each part is tried a few times and the best time is taken: a floor is what is possible, not what is usual. The bare
worker has no safeguard at all: no leases, no history, no lanes, no limits, no timeouts. It claims, decodes, makes a
task, and deletes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRIES = 3
JOBS = 10_000
CLAIM = 500

Floor = dict[str, float]


def of_machine(folder: Path) -> Floor:
    """Microseconds of: a sync, a task that does nothing, JSON there and back."""
    return {
        "sync_us": _best(lambda: _sync(folder)),
        "task_us": _best(_tasks),
        "json_us": _best(_json),
    }


def of_postgres(url: str) -> Floor:
    """Microseconds of a round trip, of a commit of one row, of a wake-up; and of a job in a bare worker."""
    return asyncio.run(_postgres(url))


def of_sqlite(folder: Path) -> Floor:
    """Microseconds of a commit of one row, and of a job in a bare worker; synchronous=FULL, as ours."""
    path = folder / "floor.db"
    found: list[Floor] = []
    try:
        for _ in range(TRIES):
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("pragma journal_mode = wal")
                db.execute("pragma synchronous = full")
                db.execute("create table if not exists bare (id integer primary key, taken integer, args text)")
                found.append({"commit_us": _sqlite_commit(db), "job_us": _sqlite_work(db)})
    finally:
        for each in folder.glob("floor.db*"):
            each.unlink()
    return {name: min(each[name] for each in found) for name in found[0]}


def _sqlite_commit(db: sqlite3.Connection) -> float:
    times = []
    for number in range(200):
        began = time.perf_counter()
        db.execute("insert into bare (id, taken, args) values (?, 0, '{}')", (number,))
        times.append(time.perf_counter() - began)
    db.execute("delete from bare")
    return statistics.median(times) * 1e6


def _sqlite_work(db: sqlite3.Connection) -> float:
    """As on PostgreSQL, in one thread."""

    async def run(args: str) -> None:
        json.loads(args)

    async def work() -> None:
        while rows := db.execute(
            "update bare set taken = 1 where id in (select id from bare where taken = 0 order by id limit ?) "
            "returning id, args",
            (CLAIM,),
        ).fetchall():
            await asyncio.gather(*(asyncio.ensure_future(run(args)) for _, args in rows))
            db.execute("begin")
            db.executemany("delete from bare where id = ?", [(number,) for number, _ in rows])
            db.execute("commit")

    db.execute("begin")
    db.executemany("insert into bare values (?, 0, ?)", ((number, f'{{"number":{number}}}') for number in range(JOBS)))
    db.execute("commit")
    began = time.perf_counter()
    asyncio.run(work())
    return (time.perf_counter() - began) / JOBS * 1e6


def _best(measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(TRIES)) * 1e6


def _sync(folder: Path) -> float:
    """The middle of a hundred: the best would be the one that the disk did not do."""
    path = folder / "floor"
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(file, b"x" * 8192 * 100)
        os.fsync(file)
        times = []
        for number in range(100):
            began = time.perf_counter()
            os.pwrite(file, b"y" * 8192, 8192 * number)
            os.fdatasync(file)
            times.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return statistics.median(times)


def _tasks() -> float:
    async def nothing() -> None:
        pass

    async def run() -> float:
        began = time.perf_counter()
        for _ in range(JOBS // CLAIM):
            await asyncio.gather(*(asyncio.ensure_future(nothing()) for _ in range(CLAIM)))
        return (time.perf_counter() - began) / JOBS

    return asyncio.run(run())


def _json() -> float:
    began = time.perf_counter()
    for number in range(JOBS):
        json.loads(json.dumps({"number": number}))
    return (time.perf_counter() - began) / JOBS


async def _postgres(url: str) -> Floor:
    import asyncpg

    one, other = await asyncpg.connect(url), await asyncpg.connect(url)
    await one.execute("create table bare (id bigint primary key, taken boolean not null default false, args text)")
    found: list[Floor] = []
    for _ in range(TRIES):
        trip = await one.prepare("select 1")
        insert = await one.prepare("insert into bare (id, args) values ($1, '{}')")
        found.append({
            "trip_us": await _each(500, lambda _, trip=trip: trip.fetchval()),
            "commit_us": await _each(300, lambda number, insert=insert: insert.fetchval(-number - 1)),
            "wake_us": await _wake(one, other),
            "job_us": await _work(one),
        })  # fmt: skip
    await one.close()
    await other.close()
    return {name: min(each[name] for each in found) for name in found[0]}


async def _each(count: int, call: Callable[[int], Any]) -> float:
    began = time.perf_counter()
    for number in range(count):
        await call(number)
    return (time.perf_counter() - began) / count * 1e6


async def _wake(one: Any, other: Any) -> float:
    """An insert with a NOTIFY, committed, until another session has heard it and taken the row."""
    heard = asyncio.Event()
    await other.add_listener("bare", lambda *_: heard.set())
    times = []
    for number in range(50):
        heard.clear()
        began = time.perf_counter()
        async with one.transaction():
            await one.execute("insert into bare (id, args) values ($1, '{}')", 1_000_000 + number)
            await one.execute("notify bare")
        await heard.wait()
        await other.fetch("update bare set taken = true where id = $1 returning args", 1_000_000 + number)
        times.append(time.perf_counter() - began)
    await other.reset()
    await one.execute("truncate bare")
    return statistics.median(times) * 1e6


async def _work(one: Any) -> float:
    """A worker of thirty lines: claim five hundred, decode, a task each, delete; a commit each way."""

    async def run(args: str) -> None:
        json.loads(args)

    await one.execute(
        "insert into bare (id, args) select n, '{\"number\":' || n || '}' from generate_series(1, $1) as n", JOBS
    )
    await one.execute("analyze bare")
    claim = await one.prepare(
        "update bare set taken = true where id = any (array("
        "select id from bare where not taken order by id limit $1 for update skip locked)) returning id, args"
    )
    finish = await one.prepare("delete from bare where id = any ($1::bigint[])")
    began = time.perf_counter()
    while rows := await claim.fetch(CLAIM):
        await asyncio.gather(*(asyncio.ensure_future(run(row["args"])) for row in rows))
        await finish.fetch([row["id"] for row in rows])
    seconds = time.perf_counter() - began
    await one.execute("truncate bare")
    return seconds / JOBS * 1e6


# ---------------------------------------------------------------------------------------------------------------------
# Our distance


@dataclass(frozen=True)
class Distance:
    """A figure of ours beside what the machine allows. Both in microseconds a job."""

    what: str
    parts: str
    floor: float
    ours: float


UNITS = {
    "sync_us": "a sync of 8 kB",
    "task_us": "a task of asyncio that does nothing",
    "json_us": "JSON of one number, there and back",
    "trip_us": "a round trip to PostgreSQL (`select 1`)",
    "commit_us": "a commit of one row",
    "wake_us": "a commit with NOTIFY, heard by another session, and one row taken",
    "job_us": "a job in a bare worker",
}


def _of_rate(rate: float) -> float:
    return 1e6 / rate


def _of_ms(ms: float) -> float:
    return ms * 1e3


# What is compared, with the sum of which parts; our workload, its figure, and how that becomes microseconds.
_ROWS: tuple[tuple[str, tuple[str, ...], str, str, Callable[[float], float]], ...] = (
    ("a job of a drain, by the clock", ("job_us",), "drain", "rate", _of_rate),
    ("a job of a drain, worker's processor time", ("task_us", "json_us"), "drain", "worker_us", float),
    ("an enqueue of one caller", ("commit_us", "json_us"), "caller-1", "rate", _of_rate),
    ("a pickup", ("wake_us",), "pickup", "p50_ms", _of_ms),
    ("a pickup: two commits", ("commit_us", "commit_us"), "pickup-across", "p50_ms", _of_ms),
)


def distances(floor: Floor, ours: Callable[[str, str], float | None]) -> list[Distance]:
    """What can be compared; `ours` answers with a figure of a workload."""
    return [
        Distance(what, " + ".join(UNITS[part] for part in parts), sum(floor[part] for part in parts), turn(value))
        for what, parts, workload, figure, turn in _ROWS
        if all(part in floor for part in parts) and (value := ours(workload, figure))
    ]
