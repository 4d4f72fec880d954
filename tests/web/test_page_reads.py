"""What each page asks of the storage: a bound on its reads and statements, and nothing twice. No clock is looked at."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from treadle.core.rollup import HOUR, MINUTE, Rollup
from treadle.storages.sqlite import SQLiteStorage, connect, find
from treadle.storages.sqlite.readers import Readers
from treadle.web import request_cache
from treadle.web.counts import Counts
from treadle.web.server import TURN, yield_soon

from .world import World, world_on

pytestmark = pytest.mark.anyio

# The verbs that cost most, and that several parts of a page ask for.
DEAR = ("queues", "pods", "due_tasks", "failures", "catalog", "schedules", "mutes", "facts")
# Page → (reads, statements): as many as there are now, and a few more. The world has two queues and three tasks.
PAGES = {
    "/": (20, 68),
    "/jobs": (7, 67),
    "/jobs?filter=state:ready": (7, 60),
    "/jobs?filter=state:scheduled": (7, 60),
    "/jobs?filter=is:retrying": (7, 60),
    "/jobs?filter=state:failed": (7, 60),
    "/jobs?filter=tag:vip": (7, 18),
    "/jobs?filter=id:{succeeded}": (7, 45),
    "/jobs/{succeeded}": (9, 48),
    "/jobs/{failed}": (10, 48),
    "/jobs/{ready}": (13, 60),
    "/failures": (9, 37),
    "/queues": (6, 27),
    "/queues/default": (11, 37),
    "/pods": (3, 12),
    "/schedules": (7, 27),
    "/schedules/nightly": (6, 18),
    "/performance": (5, 12),
    "/limits": (7, 27),
    "/operations": (4, 9),
    "/system": (12, 67),
}

MORE_WHILE_YOUNG = 4  # whether there is older history, its seconds, and depths by seconds


class Watch:
    """Counts verbs, reads and statements."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.verbs: Counter[str] = Counter()
        self.reads = 0
        self.statements: list[str] = []
        for name in DEAR:
            monkeypatch.setattr(SQLiteStorage, name, self._counted(name, getattr(SQLiteStorage, name)))
        run, to_read = Readers.run, connect.to_read

        async def counted(readers: Readers, *args: Any) -> Any:
            self.reads += 1
            return await run(readers, *args)

        def traced(path: str) -> sqlite3.Connection:
            db = to_read(path)
            db.set_trace_callback(self._note)
            return db

        monkeypatch.setattr(Readers, "run", counted)
        monkeypatch.setattr(connect, "to_read", traced)

    def _counted(self, name: str, verb: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.verbs[name] += 1
            return await verb(*args, **kwargs)

        return call

    def _note(self, sql: str) -> None:
        if sql not in ("begin", "rollback"):
            self.statements.append(sql)

    def reset(self) -> None:
        self.verbs.clear()
        self.reads = 0
        self.statements.clear()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with world_on(tmp_path / "web.db", pages=True) as made:
        yield made


async def page(world: World, path: str) -> str:
    answer = await world.http.get(path, headers={"X-Role": "admin", "HX-Request": "true"})
    assert answer.status_code == 200, answer.text[:300]
    return answer.text


@pytest.mark.parametrize("more", [0, MORE_WHILE_YOUNG], ids=["old", "young"])
async def test_pages_ask_for_little_and_for_nothing_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: int
) -> None:
    watch = Watch(monkeypatch)
    async with world_on(tmp_path / "web.db", pages=True) as world:
        if not more:
            at = await world.app.storage.time() // MINUTE * MINUTE - HOUR
            await world.app.storage.roll_up([Rollup(resolution=MINUTE, at=at, queue="default", task="ok", pod="p")])
        await world.web.attending.look()  # what doctor does beside the first page, and not again for a while
        for path, (reads, statements) in PAGES.items():
            world.web.counts.forget()
            watch.reset()
            await page(world, path.format(**world.ids))
            twice = {verb: times for verb, times in watch.verbs.items() if times > 1}
            assert not twice, (path, twice)
            assert watch.reads <= reads + more, (path, watch.reads)
            assert len(watch.statements) <= statements + more, (path, len(watch.statements), watch.statements)


@pytest.mark.parametrize(
    ("text", "said"), [("reason:never", "None found so far"), ("args.name:p4yl04d-of-a-job", "None found so far")]
)
async def test_a_page_whose_time_is_up_says_how_far_it_looked(
    world: World, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    assert "Only the newest" not in await page(world, f"/jobs?filter={text}")
    monkeypatch.setattr(find, "FEW", 0)
    monkeypatch.setattr(find, "LONGEST", 0.0)
    monkeypatch.setattr(find, "A_FEW", 0)
    world.web.counts.forget()
    shown = await page(world, f"/jobs?filter={text}")
    assert "Only the newest" in shown
    assert said in shown


class Asked:
    """A storage that counts."""

    def __init__(self) -> None:
        self.times = 0
        self.fails = False

    async def queues(self) -> list[int]:
        self.times += 1
        await asyncio.sleep(0)
        if self.fails:
            self.fails = False
            raise OSError("away")
        return [self.times]

    async def time(self) -> float:
        self.times += 1
        return 0.0


async def test_a_request_asks_once() -> None:
    asked = Asked()
    storage: Any = request_cache.once(asked)  # type: ignore[arg-type]
    with request_cache.remembering():
        assert await storage.queues() == [1]
        assert await asyncio.gather(storage.queues(), storage.queues()) == [[1], [1]]
    with request_cache.remembering():
        assert await asyncio.gather(storage.queues(), storage.queues()) == [[2], [2]]
    assert await storage.queues() == [3]  # nobody's request


async def test_only_lists_are_remembered() -> None:
    asked = Asked()
    storage: Any = request_cache.once(asked)  # type: ignore[arg-type]
    with request_cache.remembering():
        await storage.time()
        await storage.time()
    assert asked.times == 2


async def test_a_refusal_is_no_answer() -> None:
    asked = Asked()
    asked.fails = True
    storage: Any = request_cache.once(asked)  # type: ignore[arg-type]
    with request_cache.remembering():
        first, second = await asyncio.gather(storage.queues(), storage.queues(), return_exceptions=True)
        assert isinstance(first, OSError)
        assert second == [2]
        assert await storage.queues() == [3]


async def test_what_outlives_a_request_asks_for_itself() -> None:
    asked = Asked()
    storage: Any = request_cache.once(asked)  # type: ignore[arg-type]
    go = asyncio.Event()

    async def later() -> Any:
        await storage.queues()
        await go.wait()
        return await storage.queues()

    with request_cache.remembering():
        task = asyncio.ensure_future(later())
        await asyncio.sleep(0.01)
    go.set()
    assert await task == [2]


async def test_nobody_waits_for_what_takes_long_and_the_next_one_has_it() -> None:
    counts = Counts(None)  # type: ignore[arg-type]
    go = asyncio.Event()

    async def ask() -> str:
        await go.wait()
        return "found"

    assert await counts.quickly(("runs", "a"), ask, within=0.01) is None
    go.set()
    await asyncio.sleep(0.01)
    assert await counts.quickly(("runs", "a"), ask, within=0.01) == "found"


async def test_an_answer_may_be_kept_for_longer() -> None:
    now = 0.0
    counts = Counts(None, clock=lambda: now)  # type: ignore[arg-type]
    asked = Asked()
    assert await counts.get(("q",), asked.queues) == [1]
    now = 10.0
    assert await counts.get(("q",), asked.queues, fresh=30.0) == [1]
    assert await counts.get(("q",), asked.queues) == [2]


def test_a_dashboard_in_a_worker_takes_short_turns() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        yield_soon()
        assert sys.getswitchinterval() == pytest.approx(TURN, rel=0.05)
        sys.setswitchinterval(TURN / 10)
        yield_soon()
        assert sys.getswitchinterval() == pytest.approx(TURN / 10, rel=0.05)  # what somebody chose is not made longer
    finally:
        sys.setswitchinterval(before)
