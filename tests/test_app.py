from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from treadle import (
    App,
    ConfigError,
    Conflict,
    Context,
    FilterError,
    JobNotFound,
    JobView,
    PayloadError,
    StorageTimeout,
    StorageUnavailable,
    Unique,
)
from treadle.config import Limits, Timing
from treadle.ports import Capabilities
from treadle.storages.memory.storage import MemoryStorage
from treadle.testing.clock import FakeClock

try:
    from treadle.storages.sqlite import SQLiteStorage
except ImportError:
    SQLiteStorage = None  # type: ignore[assignment, misc]

pytestmark = pytest.mark.anyio
needs_sqlite = pytest.mark.skipif(SQLiteStorage is None, reason="the SQLite storage is not there yet")

FAST = Timing(start_jitter=0.0, grace=2.0)
UNKNOWN = "00000000-0000-7000-8000-000000000000"


class Counting(MemoryStorage):
    """Counts how often it was opened and closed; `open` waits for `gate`, if there is one."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        super().__init__(clock)
        self.opened = self.closed = 0
        self.gate: Callable[[], Any] | None = None

    async def open(self) -> None:
        if self.gate is not None:
            await self.gate()
        self.opened += 1

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may find the settings, or the database, of the folder it is started in."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TREADLE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def storage() -> Counting:
    return Counting()


@pytest.fixture
def app(storage: Counting) -> Iterator[App]:
    app = App(storage=storage, timing=FAST)
    yield app
    app.close_sync()


def add_tasks(app: App) -> Any:
    @app.task(name="add")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    return add


# Where the storage comes from ----------------------------------------------------------------------------------------


def test_without_settings_the_storage_is_a_file_beside() -> None:
    assert App().url == "sqlite:///treadle.db"


def test_the_url_is_the_arguments_then_the_environments_then_the_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "treadle.toml").write_text('url = "sqlite:///file.db"\n')
    assert App().url == "sqlite:///file.db"
    monkeypatch.setenv("TREADLE_URL", "memory://")
    assert App().url == "memory://"
    assert App("sqlite:///own.db").url == "sqlite:///own.db"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlit:///x.db", "did you mean sqlite://"),
        ("redis://h", "use sqlite:///path, postgresql"),
        ("treadle.db", "not a storage URL"),
        ("sqlite://treadle.db", "sqlite:///treadle.db"),
        ("sqlite:///", "names a file"),
        ("sqlite:///:memory:", "use memory://"),
        ("sqlite:///x.db?mode=ro", "no options after"),
        ("postgresql://u:secret@h1:5432,h2:none/d", "cannot be read"),
    ],
)
def test_a_url_that_names_no_storage_is_refused_at_once(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        App(url)
    assert "secret" not in str(caught.value)


def test_a_url_and_a_storage_exclude_each_other(storage: Counting) -> None:
    with pytest.raises(ConfigError, match="not both"):
        App("memory://", storage=storage)


def test_windows_is_refused_when_the_sqlite_storage_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    app = App("sqlite:///x.db")
    with pytest.raises(ConfigError, match="Windows"):
        app.storage


def test_the_password_of_a_url_is_not_shown() -> None:
    app = App("memory://")
    app.url = "postgresql://u:secret@h/d"
    assert "secret" not in repr(app)


# Opening and closing -------------------------------------------------------------------------------------------------


async def test_async_with_opens_and_closes_and_may_be_nested_and_repeated(app: App, storage: Counting) -> None:
    for round_ in (1, 2):
        async with app:
            assert app.is_open
            async with app:
                pass
            assert app.is_open
        assert not app.is_open
        assert (storage.opened, storage.closed) == (round_, round_)


async def test_an_enqueue_opens_an_app_that_is_not_open(app: App, storage: Counting) -> None:
    add = add_tasks(app)
    await add.enqueue(1)
    await add.enqueue(2)
    assert (storage.opened, storage.closed) == (1, 0)
    await app.close()
    await add.enqueue(3)
    assert (storage.opened, storage.closed) == (2, 1)
    assert (await app.jobs.count())["ready"] == 3


async def test_many_who_open_at_once_open_once(app: App, storage: Counting) -> None:
    add = add_tasks(app)
    let_go = asyncio.Event()
    storage.gate = let_go.wait
    waiting = [asyncio.create_task(add.enqueue(n)) for n in range(10)]
    await asyncio.sleep(0)
    waiting[3].cancel()
    await asyncio.sleep(0)
    let_go.set()
    done = await asyncio.gather(*waiting, return_exceptions=True)
    assert storage.opened == 1
    assert sum(isinstance(each, asyncio.CancelledError) for each in done) == 1


async def test_if_the_one_who_opens_is_cancelled_another_one_does_it(app: App, storage: Counting) -> None:
    add = add_tasks(app)
    let_go = asyncio.Event()
    storage.gate = let_go.wait
    first = asyncio.create_task(add.enqueue(1))
    await asyncio.sleep(0)
    second = asyncio.create_task(add.enqueue(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    let_go.set()
    assert (await second).outcome == "inserted"
    assert storage.opened == 1


async def test_an_open_that_fails_is_told_and_may_be_repeated(app: App, storage: Counting) -> None:
    async def refuse() -> None:
        raise ConfigError("no")

    storage.gate = refuse
    with pytest.raises(ConfigError):
        async with app:
            pass
    storage.gate = None
    async with app:
        assert app.is_open
    assert not app.is_open


def test_an_app_survives_several_event_loops(app: App, storage: Counting) -> None:
    add = add_tasks(app)
    for n in range(3):
        asyncio.run(add.enqueue(n))
    assert storage.opened == 1
    assert app.jobs.count_sync()["ready"] == 3


async def test_two_apps_do_not_notice_each_other() -> None:
    one, two = App("memory://"), App("memory://")
    add_one, add_two = add_tasks(one), add_tasks(two)
    await add_one.enqueue(1)
    assert not two.is_open
    await add_two.enqueue(1)
    await add_two.enqueue(2)
    await one.close()
    assert two.is_open
    assert (await two.jobs.count())["ready"] == 2
    await two.close()


def test_an_app_that_is_dropped_is_closed(storage: Counting) -> None:
    app = App(storage=storage)
    asyncio.run(add_tasks(app).enqueue(1))
    del app
    gc.collect()
    _until(lambda: storage.closed == 1)
    _until(lambda: not _sync_threads())


def test_an_app_that_is_dropped_after_a_loan_lets_go_of_its_thread(storage: Counting) -> None:
    """The storage that the thread was started for had been taken back, so nothing was open, and the thread stayed."""
    app = App("memory://")
    app.lend(storage)
    add_tasks(app).enqueue_sync(1)
    assert _sync_threads()
    app.take_back()
    del app
    gc.collect()
    _until(lambda: not _sync_threads())


def _until(condition: Callable[[], bool]) -> None:
    """Wait for another thread, which nothing here can be awaited of."""
    ending = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < ending
        time.sleep(0.001)


def _sync_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "treadle-sync"]


def test_a_lent_storage_is_used_until_it_is_taken_back(app: App, storage: Counting) -> None:
    add = add_tasks(app)
    add.enqueue_sync(1)
    other = Counting()
    app.lend(other)
    assert app in App.all()
    assert (app.is_open, app.jobs.count_sync()["ready"]) == (False, 0)
    add.enqueue_sync(2)
    app.take_back()
    assert (app.is_open, app.jobs.count_sync()["ready"], other.opened, storage.opened) == (True, 1, 1, 1)


# Sync ----------------------------------------------------------------------------------------------------------------


def test_sync_twins_do_what_the_others_do(app: App) -> None:
    add = add_tasks(app)
    handle = add.enqueue_sync(1)
    assert handle.status_sync().args == {"a": 1}
    assert handle.cancel_sync() == "cancelled"
    assert [each.outcome for each in app.enqueue_many_sync([add.bind(1), add.bind(2)])] == ["inserted"] * 2
    assert app.enqueue_many_sync([]) == []
    assert app.enqueue_sync("add", {"a": 1}, queue="q").status_sync().queue == "q"
    assert app.enqueue_sync(add.bind(1)).status_sync().queue == "default"


def test_a_wrong_sync_call_fails_in_the_caller(app: App, storage: Counting) -> None:
    add = add_tasks(app)
    with pytest.raises(TypeError):
        add.enqueue_sync()
    with pytest.raises(PayloadError):
        add.enqueue_sync(object())
    assert storage.opened == 0


def test_sync_calls_from_many_threads_share_one_loop(app: App) -> None:
    add = add_tasks(app)
    threads = [threading.Thread(target=add.enqueue_sync, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.jobs.count_sync()["ready"] == 8
    assert len(_sync_threads()) == 1
    app.close_sync()
    assert not _sync_threads()


async def test_a_sync_call_on_a_running_loop_works_and_warns_once(app: App) -> None:
    add = add_tasks(app)
    with pytest.warns(RuntimeWarning, match="blocks the event loop") as said:
        add.enqueue_sync(1)
    assert said[0].filename == __file__  # where the call is, and not somewhere in Treadle
    add.enqueue_sync(2)
    assert (await app.jobs.count())["ready"] == 2
    await app.close()
    assert not _sync_threads()


def test_a_sync_call_inside_a_sync_call_is_refused_instead_of_waiting_for_ever(app: App) -> None:
    add = add_tasks(app)
    caught = list[BaseException]()

    @app.on("enqueued")
    def again(view: JobView) -> None:
        try:
            add.enqueue_sync(2)
        except RuntimeError as error:
            caught.append(error)

    add.enqueue_sync(1)
    assert "wait for itself" in str(caught[0])


@pytest.mark.parametrize("how", ["enqueue_sync", "enqueue"])
def test_the_interpreter_ends_although_nobody_closed_the_app(how: str, tmp_path: Path) -> None:
    url = "memory://" if SQLiteStorage is None else f"sqlite:///{tmp_path}/jobs.db"
    script = f"""
import asyncio, treadle
app = treadle.App({url!r})
@app.task
def work() -> None: ...
if {how!r} == "enqueue":
    asyncio.run(work.enqueue())
else:
    work.enqueue_sync()
print("done")
"""
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, timeout=30, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


@needs_sqlite
def test_a_forked_child_enqueues_on_its_own_connection(tmp_path: Path) -> None:
    script = """
import os, sys, treadle
app = treadle.App("sqlite:///jobs.db")
@app.task
def work() -> None: ...
work.enqueue_sync()
child = os.fork()
if child == 0:
    work.enqueue_sync()
    app.close_sync()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
work.enqueue_sync()
print(app.jobs.count_sync()["ready"])
"""
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "script.py"],
        capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("3\n", "")


# Enqueue by name -----------------------------------------------------------------------------------------------------


async def test_a_task_whose_code_is_elsewhere_is_enqueued_by_name(app: App, storage: Counting) -> None:
    handle = await app.enqueue("other.send", {"user_id": 42}, queue="mail", priority=5, unique=True, tags=["x"])
    view = await handle.status()
    assert (view.task, view.args, view.queue, view.priority, view.tags) == (
        "other.send", {"user_id": 42}, "mail", 5, ("x",),
    )  # fmt: skip
    assert (view.max_attempts, view.timeout) == (None, None)
    assert (await app.enqueue("other.send", {"user_id": 42}, unique=True)).outcome == "duplicate"
    assert (await app.enqueue("other.send")).outcome == "inserted"


async def test_a_known_task_keeps_its_options_and_signature_when_it_is_named(app: App) -> None:
    @app.task(name="new", aliases=["old"], queue="mail", retry=3, timeout=9)
    def send(a: int) -> None: ...

    view = await (await app.enqueue("old", {"a": 1}, priority=2)).status()
    assert (view.task, view.queue, view.max_attempts, view.timeout, view.priority) == ("new", "mail", 3, 9.0, 2)
    with pytest.raises(TypeError, match="'b'"):
        await app.enqueue("new", {"a": 1, "b": 2})


async def test_what_cannot_be_enqueued_is_refused(app: App) -> None:
    add = add_tasks(app)
    with pytest.raises(ValueError, match="task name"):
        await app.enqueue("no spaces")
    with pytest.raises(PayloadError):
        await app.enqueue("t", {"a": object()})
    with pytest.raises(TypeError, match="prioritty"):
        await app.enqueue("t", {}, prioritty=5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="arguments and options"):
        await app.enqueue(add.bind(1), {"a": 1})  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"task\.bind"):
        await app.enqueue(add)  # type: ignore[call-overload]


# In the caller's transaction -----------------------------------------------------------------------------------------


@needs_sqlite
@pytest.mark.parametrize("commit", [True, False])
async def test_a_job_enqueued_within_a_transaction_is_there_if_it_commits(tmp_path: Path, commit: bool) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    add = add_tasks(app)
    async with app:
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        connection.execute("begin immediate")
        within = add.using(within=connection)
        handles = [await within.enqueue(1), within.enqueue_sync(2)]
        handles += await app.enqueue_many([add.bind(3), within.bind(4)])
        handles += app.enqueue_many_sync([add.bind(5)], within=connection)
        assert [handle.outcome for handle in handles] == ["inserted"] * 5
        connection.execute("commit" if commit else "rollback")
        connection.close()
        assert (await app.jobs.count())["ready"] == (5 if commit else 0)


@needs_sqlite
@pytest.mark.parametrize("commit", [True, False])
async def test_a_cancel_within_a_transaction_holds_if_it_commits(tmp_path: Path, commit: bool) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    add = add_tasks(app)
    async with app:
        one, two = await app.enqueue_many([add.bind(1), add.bind(2)])
        connection = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
        connection.execute("begin immediate")
        assert await app.jobs.cancel(one.id, within=connection, by="ann") == "cancelled"
        assert app.jobs.cancel_sync(two.id, within=connection, by="ann", reason="twice") == "cancelled"
        assert app.jobs.cancel_sync(two.id, within=connection) == "too late"
        assert app.jobs.cancel_sync(UNKNOWN, within=connection) == "not found"
        connection.execute("commit" if commit else "rollback")
        connection.close()
        assert (await app.jobs.count())["cancelled"] == (2 if commit else 0)
        told = [(line.subject, line.by, line.reason) for line in await app.audit.list()]
        assert sorted(told) == ([(one.id, "ann", None), (two.id, "ann", "twice")] if commit else [])


async def test_an_app_that_cannot_open_beside_the_callers_transaction_says_what_to_do(
    app: App, storage: Counting
) -> None:
    async def locked() -> None:
        raise StorageTimeout("jobs.db is busy")

    storage.gate = locked
    add = add_tasks(app)
    with pytest.raises(StorageUnavailable, match="open it before the transaction begins"):
        await add.using(within=object()).enqueue(1)
    with pytest.raises(StorageUnavailable, match="open it before the transaction begins"):
        await app.jobs.cancel(UNKNOWN, within=object())


def test_an_app_can_be_opened_before_sync_code_begins_its_transaction(app: App, storage: Counting) -> None:
    app.open_sync()
    app.open_sync()
    assert storage.opened == 1


# Work ----------------------------------------------------------------------------------------------------------------


async def test_a_worker_runs_what_is_enqueued(app: App) -> None:
    add = add_tasks(app)

    @app.task(name="twice")
    def twice(a: int) -> int:
        return 2 * a

    async with app.worker() as pod:
        one, two = await add.enqueue(1), await twice.enqueue(4)
        assert (await one.result(timeout="10s"), await two.result(timeout="10s")) == (2, 8)
        assert [view.id for view in await app.pods.list()] == [pod.id]
    assert not app.is_open
    assert pod.stopped.is_set()


async def test_an_app_may_work_stop_and_work_again(app: App) -> None:
    add = add_tasks(app)
    for _ in range(2):
        async with app.worker():
            assert await (await add.enqueue(1)).result(timeout="10s") == 2


async def test_a_run_enqueues_follows_and_sees_the_lifespans_state(storage: Counting) -> None:
    entered = list[str]()

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncGenerator[dict[str, int]]:
        entered.append("in")
        yield {"answer": 42}
        entered.append("out")

    app = App(storage=storage, timing=FAST, lifespan=lifespan, router={"child": "children"})

    @app.task(name="child")
    async def child(ctx: Context[dict[str, int]], n: int) -> int:
        return n + ctx.state["answer"]

    @app.task(name="parent")
    async def parent(ctx: Context) -> str:
        ctx.follow(child.using(tags=["second"]).bind(2))
        return (await ctx.enqueue(child.bind(1))).id

    @app.task(name="threaded")
    def threaded(ctx: Context) -> str:
        return ctx.enqueue_sync(child.bind(3)).id

    async with app.worker():
        handle = await parent.enqueue()
        first = await app.jobs.get(await handle.result(timeout="10s"))
        assert (first.task, first.queue, first.meta) == ("child", "children", {"treadle:parent": handle.id})
        follow_up = (await app.jobs.find("tag:second")).jobs
        assert [view.args for view in follow_up] == [{"n": 2}]
        third = await (await threaded.enqueue()).result(timeout="10s")
        assert (await app.jobs.get(third)).args == {"n": 3}
    assert entered == ["in", "out"]


@pytest.mark.parametrize(
    ("queues", "slots", "served"),
    [
        (["mail", "default"], None, {"mail": 7, "default": 7}),
        (["mail"], 3, {"mail": 3}),
        (["mail", "b"], {"mail": 20}, {"mail": 20, "b": 7}),
        ({"mail": 20}, None, {"mail": 20}),
        ("mail:20,default", None, {"mail": 20, "default": 7}),
        (None, None, {"default": 7, "own": 7, "routed": 7}),
    ],
)
async def test_a_worker_serves_the_queues_it_is_told_to(
    storage: Counting, queues: Any, slots: Any, served: dict[str, int]
) -> None:
    app = App(storage=storage, timing=FAST, limits=Limits(slots=7), router={"r": "routed"})
    app.task(name="a", queue="own")(lambda: None)
    app.task(name="b")(lambda: None)
    app.task(name="r")(lambda: None)
    async with app.worker(queues, slots=slots):
        (pod,) = await app.pods.list()
    assert pod.queues == served


async def test_without_a_list_a_worker_serves_what_app_or_settings_name(
    storage: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_QUEUES", "env:3")
    async with (app := App(storage=storage, timing=FAST)).worker():
        assert (await app.pods.list())[0].queues == {"env": 3}
    async with (app := App(storage=storage, timing=FAST, queues="own:2")).worker():
        assert (await app.pods.list())[0].queues == {"own": 2}


@pytest.mark.parametrize(
    ("queues", "slots", "said"),
    [
        ([], None, "needs queues"),
        ({}, None, "needs queues"),
        (None, None, "needs queues"),
        ("", None, "queue list is needed"),
        (["a b"], None, "queue name"),
        (["mail"], {"mial": 5}, "does not serve"),
        (["mail"], -1, "1 slot or more"),
    ],
)
async def test_a_worker_with_nothing_to_serve_is_refused(app: App, queues: Any, slots: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        async with app.worker(queues, slots=slots):
            pass


async def test_a_worker_that_is_switched_off_runs_nothing(storage: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_DISABLE", "worker")
    app = App(storage=storage, timing=FAST)
    async with app.worker(["q"]):
        assert await app.pods.list() == []


async def test_the_apps_name_is_in_the_label_of_its_pods(storage: Counting) -> None:
    async with (app := App(storage=storage, timing=FAST, name="shop")).worker(["q"]) as pod:
        assert (await app.pods.list())[0].label == f"shop-worker-{pod.id[:4]}"
    async with app.worker(["q"], label="mine"):
        assert (await app.pods.list())[0].label == "mine"


async def test_hooks_of_the_app_hear_of_runs(app: App) -> None:
    add = add_tasks(app)
    told = list[tuple[str, str]]()
    both = asyncio.Event()

    @app.on("started")
    def started(view: JobView) -> None:
        told.append(("started", view.id))

    @app.on("succeeded")
    async def succeeded(view: JobView) -> None:
        told.append((view.state, view.id))
        both.set()

    async with app.worker():
        handle = await add.enqueue(1)
        async with asyncio.timeout(10):
            await both.wait()
    assert told == [("started", handle.id), ("succeeded", handle.id)]


def test_an_unknown_hook_is_refused(app: App) -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        app.on("succeded")(print)  # type: ignore[arg-type]


# Operators -----------------------------------------------------------------------------------------------------------


async def test_jobs_are_found_counted_and_paged(app: App) -> None:
    add = add_tasks(app)
    handles = await app.enqueue_many(add.using(tags=["vip"] if n % 2 else []).bind(n) for n in range(5))
    page = await app.jobs.find("state:ready", limit=2)
    assert [view.id for view in page.jobs] == [handles[4].id, handles[3].id]
    rest = await app.jobs.find("state:ready", cursor=page.next)
    assert [view.args["a"] for view in rest.jobs] == [2, 1, 0]
    assert rest.next is None
    counts = await app.jobs.count("tag:vip")
    assert counts == {
        "waiting": 0, "scheduled": 0, "ready": 2, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0,
    }  # fmt: skip
    with pytest.raises(FilterError, match="column 1"):
        await app.jobs.find("quue:mail")
    with pytest.raises(ValueError, match="limit"):
        await app.jobs.find(limit=0)


async def test_a_job_is_revived_rescheduled_and_removed(app: App) -> None:
    handle = await add_tasks(app).enqueue(1)
    assert await app.jobs.reschedule(handle.id, delay="1h") == "rescheduled"
    assert (await handle.status()).state == "scheduled"
    assert await app.jobs.reschedule(handle.id) == "rescheduled"
    assert (await handle.status()).state == "ready"
    assert await app.jobs.remove(handle.id) == "cancelled"
    at = datetime.now(UTC) + timedelta(days=1)
    assert await app.jobs.revive(handle.id, at=at, priority=9, queue="other") == "revived"
    view = await handle.status()
    assert (view.state, view.run_at, view.priority, view.queue) == ("scheduled", at, 9, "other")
    await app.jobs.cancel(handle.id)
    assert await app.jobs.remove(handle.id) == "removed"
    with pytest.raises(JobNotFound):
        await app.jobs.get(handle.id)


async def test_what_a_state_forbids_is_a_conflict_that_names_it(app: App) -> None:
    handle = await add_tasks(app).using(unique="k").enqueue(1)
    with pytest.raises(Conflict, match="is ready: only an ended job"):
        await app.jobs.revive(handle.id)
    await handle.cancel()
    with pytest.raises(Conflict, match="is cancelled: only a scheduled or ready"):
        await app.jobs.reschedule(handle.id)
    await app.enqueue("other", unique="k")
    with pytest.raises(Conflict, match="unique key"):
        await app.jobs.revive(handle.id)


async def test_an_act_on_no_job_is_not_found(app: App) -> None:
    for act in (app.jobs.get, app.jobs.revive, app.jobs.reschedule, app.jobs.remove):
        with pytest.raises(JobNotFound, match=UNKNOWN):
            await act(UNKNOWN)
    assert await app.jobs.cancel(UNKNOWN) == "not found"


async def test_a_queue_is_paused_resumed_limited_and_warmed(app: App) -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    view = await app.queues.pause("mail", reason="provider down", until=until, by="ada")
    assert (view.paused, view.pause_reason, view.paused_until, view.paused_by) == (True, "provider down", until, "ada")
    view = await app.queues.set("mail", max_workers=5)
    assert (view.max_workers, view.paused) == (5, True)
    view = await app.queues.resume("mail")
    assert (view.paused, view.pause_reason, view.max_workers) == (False, None, 5)
    assert (await app.queues.set("mail", max_workers=None)).max_workers is None
    assert (await app.queues.warm("mail")).cool_until is None
    assert [each.name for each in await app.queues.list()] == ["mail"]


async def test_an_edit_of_an_outdated_queue_is_a_conflict(app: App) -> None:
    version = (await app.queues.get("mail")).version
    await app.queues.pause("mail", version=version)
    with pytest.raises(Conflict, match="mail"):
        await app.queues.resume("mail", version=version)


async def test_a_queue_nobody_used_is_empty(app: App) -> None:
    view = await app.queues.get("fresh")
    assert (view.name, view.ready, view.paused) == ("fresh", 0, False)
    with pytest.raises(ValueError, match="queue name"):
        await app.queues.get("no, no")
    with pytest.raises(ValueError, match="time zone"):
        await app.queues.pause("q", until=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="max_workers"):
        await app.queues.set("q", max_workers=-1)


def test_operators_have_sync_twins(app: App) -> None:
    handle = add_tasks(app).enqueue_sync(1)
    assert app.jobs.get_sync(handle.id).id == handle.id
    assert len(app.jobs.find_sync("", limit=5).jobs) == 1
    assert app.jobs.reschedule_sync(handle.id, delay=5) == "rescheduled"
    assert app.jobs.cancel_sync(handle.id) == "cancelled"
    assert app.jobs.revive_sync(handle.id) == "revived"
    assert app.jobs.remove_sync(handle.id) == "cancelled"
    assert app.queues.pause_sync("q").paused
    assert not app.queues.resume_sync("q").paused
    assert app.queues.set_sync("q", max_workers=1).max_workers == 1
    assert app.queues.warm_sync("q").name == app.queues.get_sync("q").name
    assert [each.name for each in app.queues.list_sync()] == ["default", "q"]
    assert app.pods.list_sync() == []


# On SQLite -----------------------------------------------------------------------------------------------------------


@needs_sqlite
async def test_on_sqlite_a_job_goes_all_the_way(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", timing=FAST)
    add = add_tasks(app)
    assert isinstance(app.storage.capabilities, Capabilities)
    async with app.worker():
        handle = await add.using(unique=Unique()).enqueue(1)
        assert await handle.result(timeout="10s") == 2
        assert (await handle.status()).state == "succeeded"
        assert await handle.cancel() == "too late"


@needs_sqlite
def test_on_sqlite_sync_code_and_several_loops_share_one_file(tmp_path: Path) -> None:
    app = App("sqlite:///jobs.db")
    add = add_tasks(app)
    add.enqueue_sync(1)
    asyncio.run(add.enqueue(2))
    asyncio.run(add.enqueue(3))
    assert app.jobs.count_sync()["ready"] == 3
    app.close_sync()
    add.enqueue_sync(4)
    assert app.jobs.count_sync()["ready"] == 4
    app.close_sync()
    assert (tmp_path / "jobs.db").exists()
