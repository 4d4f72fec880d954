"""Progress, logs, checkpoints, iteration and meta, as a task uses them and a caller sees them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from treadle import App, Context, RetryAfter
from treadle.core import lifecycle
from treadle.core.errors import ClaimLost
from treadle.core.job import Job, State
from treadle.core.logline import MOST_BYTES, MOST_LINES
from treadle.core.outcome import Halt, Release
from treadle.core.view import as_json

from . import postgres_server

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    if request.param == "postgres":
        monkeypatch.setenv("TREADLE_SCHEMA", postgres_server.a_schema())
        return App(postgres_server.shared_url())
    return App("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")


@pytest.fixture
def memory() -> App:
    return App("memory://")


async def until(condition: Any, within: float = 5.0) -> Any:
    async with asyncio.timeout(within):
        while not (found := await condition()):
            await asyncio.sleep(0.02)
        return found


async def test_progress_is_shown_while_a_job_runs_and_kept_for_the_next_attempt(app: App) -> None:
    go_on = asyncio.Event()
    before: list[Any] = []

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        before.append(await ctx.last_progress())
        if ctx.attempt == 1:
            await ctx.progress(4, 10, "page 4 of 10", {"page": 4})
            await go_on.wait()
            await ctx.progress(5, 10)  # just before the end: written after it
            raise RetryAfter("1ms")

    async with app, app.worker(["default"]):
        handle = await work.enqueue()
        shown = await until(lambda: app.jobs.progress(handle.id))
        assert (shown.done, shown.total, shown.share, shown.note, shown.data) == (
            4,
            10,
            0.4,
            "page 4 of 10",
            {"page": 4},
        )
        view = await handle.status()
        assert view.progress == shown
        assert as_json(view)["progress"]["note"] == "page 4 of 10"
        (found,) = (await app.jobs.find("state:running")).jobs
        assert found.progress == shown
        go_on.set()
        await handle.result(10)
        assert before[0] is None
        assert before[1].done in (4.0, 5.0)  # whichever was written when the next attempt asked
        assert await app.jobs.progress(handle.id) is None
        assert (await handle.status()).progress is None


async def test_a_checkpoint_is_there_for_the_next_attempt_and_after_a_success_for_nobody(app: App) -> None:
    seen: list[Any] = []

    @app.task(name="work", retry=2)
    async def work(ctx: Context) -> None:
        seen.append(await ctx.resume({"page": 0}))
        await ctx.checkpoint({"page": ctx.attempt})
        seen.append(await ctx.resume())
        if ctx.attempt == 1:
            raise RetryAfter("1ms")

    async with app, app.worker(["default"]):
        handle = await work.enqueue()
        await handle.result(10)
        assert seen == [{"page": 0}, {"page": 1}, {"page": 1}, {"page": 2}]

        async def is_removed() -> bool:
            return not await app.storage.checkpoint(handle.id)

        await until(is_removed)
        seen.clear()
        await app.jobs.revive(handle.id)
        await handle.result(10)
        assert seen[0] == {"page": 0}


async def test_a_plain_function_has_the_same_verbs(app: App) -> None:
    seen: list[Any] = []

    @app.task(name="plain")
    def plain(ctx: Context) -> None:
        seen.append(ctx.resume_sync(0))
        ctx.progress_sync(0.5, "half")
        ctx.checkpoint_sync(7)
        ctx.flush_sync()
        last = ctx.last_progress_sync()
        assert last is not None
        seen.append((last.share, last.note))
        ctx.log.info("from a thread")
        logging.getLogger("shop").error("and by %s", "logging")
        if ctx.attempt == 1:
            raise RetryAfter("1ms")

    async with app:
        async with app.worker(["default"]):
            handle = await plain.enqueue()
            await handle.result(10)
        assert seen == [0, (0.5, "half"), 7, (0.5, "half")]
        lines = [(line.attempt, line.level, line.text) for line in await app.jobs.logs(handle.id)]
        assert lines == [
            (n, *each) for n in (1, 2) for each in (("info", "from a thread"), ("error", "shop: and by logging"))
        ]
        rest = await app.jobs.logs(handle.id, after=(await app.jobs.logs(handle.id))[1].n)
        assert [line.attempt for line in rest] == [2, 2]


async def test_the_log_names_its_own_job_whoever_runs_beside_it(memory: App) -> None:
    both = asyncio.Barrier(2)

    @memory.task(name="work")
    async def work(ctx: Context, word: str) -> None:
        await both.wait()
        logging.getLogger("shop").warning("say %s", word)
        await asyncio.to_thread(logging.getLogger("shop").warning, "thread %s", word)
        thread = threading.Thread(target=lambda: ctx.log.warning("own thread %s", word))
        thread.start()
        thread.join()
        try:
            raise ValueError("password=hunter2")
        except ValueError:
            ctx.log.exception("it broke")

    async with memory:
        async with memory.worker(["default"]):
            handles = [await work.enqueue(word) for word in ("one", "two")]
            for handle in handles:
                await handle.result(10)
        for handle, word in zip(handles, ("one", "two"), strict=True):
            first, second, third, broke = [line.text for line in await memory.jobs.logs(handle.id)]
            assert [first, second, third] == [f"shop: say {word}", f"shop: thread {word}", f"own thread {word}"]
            assert "it broke\nTraceback" in broke
            assert "ValueError" in broke
            assert "hunter2" not in broke


async def test_ctx_log_reaches_the_apps_handlers_once_and_names_its_caller(
    memory: App, caplog: pytest.LogCaptureFixture
) -> None:
    @memory.task(name="work")
    async def work(ctx: Context) -> None:
        ctx.log.warning("hello %s", "you")

    async with memory:
        async with memory.worker(["default"]):
            handle = await work.enqueue()
            await handle.result(10)
        (record,) = [each for each in caplog.records if each.getMessage() == "hello you"]
        assert (record.funcName, record.name) == ("work", "treadle.task.work")
        assert vars(record)["job_id"] == handle.id
        assert [line.text for line in await memory.jobs.logs(handle.id)] == ["hello you"]


async def test_lines_below_the_level_are_not_kept_and_logs_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, kept in (("error", ["bad"]), ("debug", ["fine", "bad"]), ("off", [])):
        monkeypatch.setenv("TREADLE_JOB_LOGS", setting)
        app = App("memory://")
        before = logging.getLogRecordFactory()

        @app.task(name="work")
        async def work(ctx: Context) -> None:
            ctx.log.debug("fine")  # held back by the app's own settings, and kept all the same
            ctx.log.error("bad")

        async with app:
            async with app.worker(["default"]):
                handle = await work.enqueue()
                await handle.result(10)
                assert (logging.getLogRecordFactory() is before) is (setting == "off")
            assert logging.getLogRecordFactory() is before
            assert [line.text for line in await app.jobs.logs(handle.id)] == kept


async def test_F15_a_task_that_logs_without_end_keeps_a_bounded_log(app: App) -> None:
    @app.task(name="chatty")
    async def chatty(ctx: Context) -> None:
        for n in range(20_000):
            ctx.log.info("line %d", n)
        ctx.log.info("x" * 10_000_000)
        await asyncio.sleep(0)
        for n in range(3_000):
            logging.getLogger("shop").warning("more %d", n)

    async with app:
        async with app.worker(["default"]) as pod:
            handle = await chatty.enqueue()
            await handle.result(20)
        lines = await app.jobs.logs(handle.id, limit=10_000)
        assert len(lines) <= MOST_LINES + 1
        assert sum(len(line.text.encode()) for line in lines) <= MOST_BYTES
        assert lines[-1].text == "shop: more 2999"
        assert pod.reporter.dropped >= 20_000


async def test_a_job_that_says_nothing_touches_nothing(memory: App) -> None:
    @memory.task(name="plain")
    async def plain() -> None: ...

    @memory.task(name="with_context")
    async def with_context(ctx: Context) -> None: ...

    async with memory, memory.worker(["default"]) as pod:
        for handle in [await task.enqueue() for task in (plain, with_context) for _ in range(20)]:
            await handle.result(10)
        await asyncio.sleep(0.1)
        verbs = set(pod.timed.seconds)
        assert verbs.isdisjoint({"report", "record_logs", "progress", "checkpoint", "logs"})
        assert not pod.reporter.is_used


async def test_a_run_that_lost_its_claim_is_told_so_by_its_checkpoint(app: App) -> None:
    told: list[BaseException] = []
    begun = asyncio.Event()

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        begun.set()
        while True:
            try:
                await ctx.checkpoint("old")
            except ClaimLost as error:
                told.append(error)
                raise
            await asyncio.sleep(0.01)

    async with app, app.worker(["default"]) as pod:
        handle = await work.enqueue()
        await begun.wait()
        (job,) = await app.storage.get([handle.id])
        # Somebody has rescued it: the run itself is heard no more.
        change = lifecycle.expire(job, 0.0)
        (answer,) = await app.storage.apply([change])
        assert answer.accepted
        await app.jobs.reschedule(handle.id)
        await handle.result(10)

        async def is_settled() -> bool:
            return pod.turner.counts["stale"] + pod.turner.counts["lost"] == 1

        await until(is_settled)
        assert len(told) == 1
        assert f"job {handle.id} is no longer this run's" in str(told[0])


async def test_meta_that_a_run_sets_is_stored_with_its_finish(app: App) -> None:
    seen: list[Any] = []

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        seen.append(ctx.meta)
        ctx.set_meta(**{f"attempt{ctx.attempt}": [1]}, last=ctx.attempt)
        assert ctx.meta["last"] == ctx.attempt
        with pytest.raises(ValueError, match="Treadle's own"):
            ctx.set_meta(**{"treadle:x": 1})
        if ctx.attempt == 1:
            raise RetryAfter("1ms")

    async with app, app.worker(["default"]):
        handle = await work.using(meta={"who": "ann"}).enqueue()
        await handle.result(10)
        assert seen == [{"who": "ann"}, {"who": "ann", "attempt1": [1], "last": 1}]
        assert (await handle.status()).meta == {"who": "ann", "attempt1": [1], "attempt2": [1], "last": 2}


@pytest.mark.parametrize("app", ["sqlite", "postgres"], indirect=True)
async def test_meta_is_stored_with_a_success_in_the_tasks_own_transaction(app: App) -> None:
    @app.task(name="work")
    async def work(ctx: Context) -> None:
        ctx.set_meta(paid=True)
        async with ctx.transaction() as tx:
            tx.result = 1

    async with app, app.worker(["default"]):
        handle = await work.enqueue()
        assert await handle.result(10) == 1
        assert (await handle.status()).meta == {"paid": True}


async def test_an_iteration_goes_on_behind_the_last_item_that_was_done(app: App) -> None:
    done: list[int] = []
    opened: list[Any] = []

    def pages(after: int | None) -> list[dict[str, int]]:
        opened.append(after)
        return [{"id": n} for n in range(10) if after is None or n > after]

    @app.task(name="sync_source")
    async def sync_source(ctx: Context) -> None:
        async for n in ctx.iterate(range(10), every=0):
            if n == 5 and ctx.attempt == 1:
                raise RetryAfter("1ms")
            done.append(n)

    @app.task(name="pages")
    async def by_pages(ctx: Context) -> None:
        async for page in ctx.iterate(pages, key=lambda page: page["id"], every=0):
            if page["id"] == 5 and ctx.attempt == 1:
                raise RetryAfter("1ms")
            done.append(page["id"])

    @app.task(name="threads")
    def threads(ctx: Context) -> None:
        for n in ctx.iterate_sync("abcdefghij", key=str.upper, every=0):
            if n == "f" and ctx.attempt == 1:
                raise RetryAfter("1ms")
            done.append("abcdefghij".index(n))

    async with app, app.worker(["default"]):
        for task in (sync_source, by_pages, threads):
            done.clear()
            await (await task.enqueue()).result(10)
            assert done == list(range(10))
        assert opened == [None, 4]


# A Context by itself --------------------------------------------------------------------------------------------------


class Notes:
    """A Notebook that forgets nothing."""

    least = 20

    def __init__(self) -> None:
        self.point: str | None = None
        self.saves = 0

    def progress(self, job: Job, progress: Any) -> None: ...
    def line(self, job: Job, level: int, text: str) -> None: ...
    async def flush(self, job: Job) -> None: ...

    async def last_progress(self, job: Job) -> None:
        return None

    async def save(self, job: Job, checkpoint: str) -> None:
        self.point = checkpoint
        self.saves += 1

    async def saved(self, job: Job) -> str | None:
        return self.point


def a_context(notes: Notes | None = None, **flags: Any) -> Context[Any]:
    job = Job(id="a", task="work", queue="q", state=State.RUNNING, attempt=1, token="t")
    return Context(job=job, state=None, notebook=notes or Notes(), **flags)


async def a_source() -> AsyncIterator[int]:
    for n in range(5):
        yield n


async def test_an_iteration_stops_with_its_pod_at_the_end_of_an_item() -> None:
    notes, stops = Notes(), [False]
    done: list[int] = []
    context = a_context(notes, stopping=lambda: stops[0])

    async def go() -> None:
        async for n in context.iterate(a_source()):
            done.append(n)
            stops[0] = n == 2

    with pytest.raises(Release):
        await go()
    assert (done, notes.saves) == ([0, 1, 2], 1)
    stops[0] = False
    async for n in a_context(notes).iterate(a_source()):
        done.append(n)
    assert done == [0, 1, 2, 3, 4]
    assert [n async for n in a_context(notes).iterate(a_source())] == []


async def test_an_iteration_ends_when_its_run_should() -> None:
    with pytest.raises(Halt):
        await anext(a_context(cancelled=lambda: True).iterate([1]))


async def test_two_iterations_need_names_and_do_not_disturb_the_tasks_own_checkpoint() -> None:
    notes = Notes()
    context = a_context(notes)
    await context.checkpoint("mine")
    assert [n async for n in context.iterate([1, 2])] == [1, 2]
    with pytest.raises(ValueError, match="iterates twice under the name ''"):
        _ = [n async for n in context.iterate([1, 2])]
    assert [n async for n in context.iterate([3], name="second")] == [3]
    later = a_context(notes)
    await later.checkpoint("still mine")
    assert [n async for n in later.iterate([1, 2])] == []
    assert await a_context(notes).resume() == "still mine"


async def test_a_source_that_lost_the_item_behind_which_to_go_on_is_an_error() -> None:
    notes = Notes()
    async for n in a_context(notes).iterate([5, 6, 7], key=lambda n: n, every=0):
        if n == 7:
            break
    with pytest.raises(LookupError, match="no longer has the item 6"):
        _ = [n async for n in a_context(notes).iterate([5, 7, 8], key=lambda n: n)]


async def test_saves_are_a_second_apart() -> None:
    notes = Notes()
    assert len([n async for n in a_context(notes).iterate(range(1000))]) == 1000
    assert notes.saves == 1


def test_a_task_that_is_called_as_the_function_it_is_has_a_context_that_keeps_nothing() -> None:
    app = App("memory://")

    @app.task(name="work")
    def work(ctx: Context) -> list[int]:
        ctx.progress_sync(0.5)
        ctx.flush_sync()
        ctx.log.info("hello")
        assert ctx.last_progress_sync() is None
        assert ctx.resume_sync(3) == 3
        ctx.checkpoint_sync(4)
        assert ctx.resume_sync() == 4
        return list(ctx.iterate_sync([1, 2]))

    assert work() == [1, 2]
