"""The writer thread: group commit, locks, deadlines, and what happens when something fails."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle.core.errors import StorageTimeout, StorageUnavailable
from treadle.core.outcome import Succeeded
from treadle.storages.sqlite import SQLiteStorage, connect, writer
from treadle.storages.sqlite.calls import Call, Wait
from treadle.storages.sqlite.news import News
from treadle.storages.sqlite.writer import Writer
from treadle.testing.conformance.builders import LEASE, a_job, a_unique_job, finished, want
from treadle.testing.conformance.steps import a_live_pod, ids, put, start, take

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


@pytest.fixture
async def storage(path: str) -> AsyncIterator[SQLiteStorage]:
    storage = SQLiteStorage(path, call_deadline=5.0)
    await storage.open()
    yield storage
    await storage.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


def writer_of(storage: SQLiteStorage) -> Writer:
    opened = storage._opened
    assert opened is not None
    assert opened.writer is not None
    return opened.writer


@contextlib.contextmanager
def file_lock(path: str) -> Iterator[None]:
    """Somebody else's turn to write: what is asked for meanwhile becomes one group."""
    descriptor = os.open(f"{path}-treadle/lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def write_transaction(path: str) -> Iterator[sqlite3.Connection]:
    """A transaction of the user's own, still open."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as db:
        db.execute("begin immediate")
        yield db
        db.execute("rollback")


async def as_one_group(path: str, *calls: Any) -> list[Any]:
    with file_lock(path):
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0.05)
    return await asyncio.gather(*tasks, return_exceptions=True)


def failing(db: sqlite3.Connection, _: News) -> None:
    db.execute("insert into treadle_queue (name) values ('half')")
    raise RuntimeError("a bad operation")


# Groups --------------------------------------------------------------------------------------------------------------


async def test_callers_that_come_together_share_one_commit(storage: SQLiteStorage, path: str) -> None:
    before = writer_of(storage).commits
    answers = await as_one_group(path, *(storage.insert([a_job()]) for _ in range(60)))
    assert all(answer[0].outcome == "inserted" for answer in answers)
    assert writer_of(storage).commits - before == 1


async def test_a_turns_apply_and_claim_share_one_commit(storage: SQLiteStorage, path: str) -> None:
    job = await start(storage)
    await put(storage)
    pod = await a_live_pod(storage)
    before = writer_of(storage).commits
    applied, claimed = await as_one_group(
        path, storage.apply([finished(job, Succeeded())]), storage.claim(pod, "token", [want()])
    )
    assert applied[0].accepted
    assert len(claimed.jobs) == 1
    assert writer_of(storage).commits - before == 1


async def test_one_caller_alone_is_served_at_once(storage: SQLiteStorage) -> None:
    """No timer gathers a group: a lone insert must cost a commit, not a waiting time."""
    times: list[float] = []
    # A timer would hold up each of them, a busy machine only some.
    while len(times) < 20 or (sorted(times)[3] >= 0.02 and len(times) < 500):
        start = time.perf_counter()
        await storage.insert([a_job()])
        times.append(time.perf_counter() - start)
    assert sorted(times)[3] < 0.02


async def test_a_beat_overtakes_what_was_queued_before_it(storage: SQLiteStorage, path: str) -> None:
    order: list[str] = []

    def note(what: str) -> Callable[[sqlite3.Connection, News], None]:
        return lambda db, news: order.append(what)

    slow, beat = writer_of(storage).run(note("insert"), 5.0), writer_of(storage).run(note("beat"), 5.0, urgent=True)
    await as_one_group(path, slow, beat)
    assert order == ["beat", "insert"]


async def test_one_bad_operation_spares_its_neighbours(storage: SQLiteStorage, path: str) -> None:
    """The group is rolled back and tried again one by one: what the bad one wrote before it failed is gone too."""
    good = [a_job() for _ in range(5)]
    calls = [storage.insert([job]) for job in good]
    before = writer_of(storage).commits
    answers = await as_one_group(path, *calls[:3], writer_of(storage).run(failing, 5.0), *calls[3:])
    assert isinstance(answers[3], RuntimeError)
    assert await ids(storage) == [job.id for job in reversed(good)]
    assert writer_of(storage).commits - before == 5
    assert "half" not in [each.queue.name for each in await storage.queues()]


async def test_a_bad_operation_alone_leaves_nothing_open(storage: SQLiteStorage) -> None:
    with pytest.raises(RuntimeError):
        await writer_of(storage).run(failing, 5.0)
    await put(storage)


async def test_inserts_of_many_callers_share_one_statement(storage: SQLiteStorage, path: str) -> None:
    """Every step of a statement gives the interpreter away, and beside a busy event loop it is long in coming back:
    sixty statements could cost seconds, where one costs milliseconds."""
    statements: list[str] = []
    thread = writer_of(storage)
    await thread.run(lambda db, news: db.set_trace_callback(statements.append), 5.0)
    jobs = [a_job() for _ in range(60)]
    answers = await as_one_group(path, *(storage.insert([job]) for job in jobs))
    await thread.run(lambda db, news: db.set_trace_callback(None), 5.0)
    assert [answer[0].id for answer in answers] == [job.id for job in jobs]
    assert len([text for text in statements if text.startswith("insert into treadle_job")]) == 1


async def test_callers_that_share_a_statement_are_still_told_each_their_own(storage: SQLiteStorage, path: str) -> None:
    calls = [storage.insert([a_job(), a_unique_job(tags=("t",)), a_job()]) for _ in range(4)]
    bad = storage.insert([a_job(args="\ud800")])
    *answers, failed = await as_one_group(path, *calls, bad)
    assert [[each.outcome for each in answer] for answer in answers] == [
        ["inserted", "inserted", "inserted"],
        *[["inserted", "duplicate", "inserted"]] * 3,
    ]
    assert isinstance(failed, UnicodeEncodeError)
    assert len(await ids(storage)) == 9


async def test_a_value_that_sqlite_cannot_store_costs_only_its_own_change(storage: SQLiteStorage) -> None:
    pod = await a_live_pod(storage)
    await storage.insert([a_job() for _ in range(3)])
    jobs = await take(storage, pod)
    bad = finished(jobs[1], Succeeded("\ud800"))
    answers = await storage.apply([finished(jobs[0], Succeeded()), bad, finished(jobs[2], Succeeded())])
    assert [answer.accepted for answer in answers] == [True, False, True]
    assert "UnicodeEncodeError" in (answers[1].error or "")


# A full disk ---------------------------------------------------------------------------------------------------------


async def test_a_full_database_fails_only_who_needs_room(storage: SQLiteStorage, path: str) -> None:
    """SQLITE_FULL rolls back the whole transaction behind the program's back; the next statement would then commit by
    itself. So the group starts over, one by one, and a finish that fits is recorded."""
    job = await start(storage)

    def limit(db: sqlite3.Connection, _: News) -> None:
        pages = db.execute("pragma page_count").fetchone()[0]
        db.execute(f"pragma max_page_count = {pages + 3}")

    await writer_of(storage).run(limit, 5.0)
    huge = [a_job(args=f'"{"x" * 5000}"') for _ in range(50)]
    small = a_job()
    inserted, applied, refused = await as_one_group(
        path, storage.insert([small]), storage.apply([finished(job, Succeeded())]), storage.insert(huge)
    )
    assert isinstance(refused, StorageUnavailable)
    assert "room" in str(refused)
    assert inserted[0].outcome == "inserted"
    assert applied[0].accepted
    assert await ids(storage) == [small.id, job.id]


async def test_at_disk_full_the_ballast_makes_room_for_finishes_only(
    storage: SQLiteStorage, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await start(storage)  # registering a pod has put the ballast in place
    assert os.path.getsize(f"{path}-treadle/ballast") == 8 << 20
    free = 0
    monkeypatch.setattr(storage._ballast, "free", lambda: free)

    def no_room(db: sqlite3.Connection, _: News) -> None:
        if os.path.exists(f"{path}-treadle/ballast"):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    await writer_of(storage).run(no_room, 5.0, grows=False)
    assert not os.path.exists(f"{path}-treadle/ballast")
    with pytest.raises(StorageUnavailable, match="full: only finishes"):
        await storage.insert([a_job()])
    assert (await storage.apply([finished(job, Succeeded())]))[0].accepted

    free = 1 << 30
    async with asyncio.timeout(5):
        while True:
            with contextlib.suppress(StorageUnavailable):
                await put(storage)
                break
            await asyncio.sleep(0.1)
    writer_of(storage)._tick()
    assert os.path.exists(f"{path}-treadle/ballast")


# Locks and deadlines -------------------------------------------------------------------------------------------------


async def test_an_open_transaction_of_the_user_is_waited_for(storage: SQLiteStorage, path: str) -> None:
    with write_transaction(path):
        insert = asyncio.ensure_future(storage.insert([a_job()]))
        await asyncio.sleep(0.05)
        assert not insert.done()
    assert (await insert)[0].outcome == "inserted"


async def test_an_open_transaction_makes_callers_meet_their_deadline_and_says_so(path: str) -> None:
    storage = SQLiteStorage(path, call_deadline=0.3)
    await storage.open()
    with write_transaction(path):
        start = time.monotonic()
        with pytest.raises(StorageTimeout, match="may still be open: pass within=connection, or commit it"):
            await storage.insert([a_job()])
        assert 0.25 < time.monotonic() - start < 10.0
    await put(storage)
    assert len(await ids(storage)) == 1
    await storage.close()


async def test_a_caller_found_late_after_the_pause_is_told_what_it_waited_for(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deadline that passes between the look after the pause and the next round is found by the other look; it said
    "other writes took until after the deadline", and the operator was not told who holds the lock."""
    storage = SQLiteStorage(path, call_deadline=0.3)
    await storage.open()
    monkeypatch.setattr(Writer, "_expire", lambda *_: None)
    with (
        write_transaction(path),
        pytest.raises(StorageTimeout, match="may still be open: pass within=connection, or commit it"),
    ):
        await storage.insert([a_job()])
    await storage.close()


async def test_the_file_lock_is_free_while_sqlites_own_lock_is_waited_for(storage: SQLiteStorage, path: str) -> None:
    """If the writer kept its flock while a user's transaction holds SQLite's lock, every other process would queue up
    behind it, and with them the very process whose transaction it is."""
    with write_transaction(path):
        insert = asyncio.ensure_future(storage.insert([a_job()]))
        await asyncio.sleep(0.05)
        descriptor = os.open(f"{path}-treadle/lock", os.O_RDWR)
        taken = 0
        for _ in range(50):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                taken += 1
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            await asyncio.sleep(0.001)
        os.close(descriptor)
        assert taken > 25
        assert not insert.done()
    await insert


async def test_a_time_out_names_the_process_that_holds_the_file_lock(path: str) -> None:
    storage = SQLiteStorage(path, call_deadline=0.3)
    await storage.open()
    script = (
        "import sys, time\n"
        "from treadle.storages.sqlite.locks import WriteLock\n"
        "assert WriteLock(sys.argv[1]).try_take()\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StorageTimeout, match=f"process {holder.pid} holds"):
            await storage.insert([a_job()])
        holder.kill()
    await put(storage)
    await storage.close()


async def test_an_operation_whose_deadline_passed_is_never_run(storage: SQLiteStorage, path: str) -> None:
    ran: list[str] = []
    with file_lock(path), pytest.raises(StorageTimeout):
        await writer_of(storage).run(lambda db, news: ran.append("late"), 0.05)
    await put(storage)
    assert ran == []


async def test_an_operation_whose_caller_was_cancelled_is_not_run(storage: SQLiteStorage, path: str) -> None:
    with file_lock(path):
        insert = asyncio.ensure_future(storage.insert([a_job()]))
        await asyncio.sleep(0.02)
        insert.cancel()
        with pytest.raises(asyncio.CancelledError):
            await insert
    await put(storage)
    assert len(await ids(storage)) == 1


async def test_a_writer_that_hangs_in_the_disk_does_not_hang_its_callers(storage: SQLiteStorage) -> None:
    release = threading.Event()
    hanging = asyncio.ensure_future(writer_of(storage).run(lambda db, news: release.wait(10), 5.0))
    await asyncio.sleep(0.02)
    with pytest.raises(StorageTimeout, match="did not answer"):
        await writer_of(storage).run(lambda db, news: None, 0.1)
    release.set()
    await hanging


async def test_a_thread_without_an_event_loop_is_served_too(storage: SQLiteStorage) -> None:
    found: list[Any] = []

    def work() -> None:
        found.append(writer_of(storage).run_bulk_sync(lambda db, news, items: [item + 1 for item in items], [41], 5.0))
        with pytest.raises(RuntimeError):
            writer_of(storage).run_bulk_sync(lambda db, news, items: failing(db, news), [1], 5.0)

    thread = threading.Thread(target=work)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert found == [[42]]


async def test_a_thread_does_not_hang_with_the_disk_either(storage: SQLiteStorage) -> None:
    release = threading.Event()
    hanging = asyncio.ensure_future(writer_of(storage).run(lambda db, news: release.wait(10), 5.0))
    await asyncio.sleep(0.02)
    with pytest.raises(StorageTimeout, match="did not answer"):
        await asyncio.to_thread(writer_of(storage).run_bulk_sync, lambda db, news, items: [None], [1], 0.1)
    release.set()
    await hanging


async def test_a_call_that_comes_in_the_instant_of_the_end_is_answered(
    storage: SQLiteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The writer has looked, there was nothing; then comes a call, and only then the end.
    own, late = writer_of(storage), list[Wait[int]]()
    next_group = own._next_group

    def looked() -> list[Call[Any]] | None:
        group = next_group()
        if group == [] and not late:
            answer: Wait[int] = Wait()
            own._submit(Call(lambda db, news: 42, time.monotonic() + 5, answer, None), urgent=False)
            own._closing = True
            late.append(answer)
        return group

    monkeypatch.setattr(own, "_patience", lambda: 0.01)
    monkeypatch.setattr(own, "_next_group", looked)
    await put(storage)  # it looks by the new way from now on
    async with asyncio.timeout(5):
        while not late:
            await asyncio.sleep(0.01)
    assert await asyncio.to_thread(late[0].result, 5) == 42


async def test_who_is_interrupted_while_it_waits_leaves_nothing_to_be_done(storage: SQLiteStorage, path: str) -> None:
    # Ctrl-C, and the same once more, must not be two jobs.
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with file_lock(path):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                storage.insert_sync([a_job()])
    finally:
        signal.signal(signal.SIGALRM, before)
    second = await put(storage)
    assert await ids(storage) == [second]


# The end of all writing ----------------------------------------------------------------------------------------------


class FailingDisk:
    """A connection whose commits fail as they do when fsync returns EIO."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *parameters: Any) -> Any:
        if sql == "commit":
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error
        return self._db.execute(sql, *parameters)


async def test_after_a_failed_fsync_nothing_is_called_written_any_more(storage: SQLiteStorage, path: str) -> None:
    """The kernel may have dropped the dirty pages, and calls the next fsync good: the group is not tried again, and
    the writer refuses everything until the storage is opened anew."""
    thread = writer_of(storage)
    sound = thread._db
    commits = thread.commits
    thread._db = FailingDisk(sound)  # type: ignore[assignment]
    answers = await as_one_group(path, storage.insert([a_job()]), storage.insert([a_job()]))
    thread._db = sound
    assert all(isinstance(answer, StorageUnavailable) for answer in answers)
    with pytest.raises(StorageUnavailable, match="failed to keep"):
        await storage.insert([a_job()])
    assert thread.commits == commits
    await storage.close()
    await storage.open()
    await put(storage)


async def test_a_file_that_was_moved_away_is_not_written_to(storage: SQLiteStorage, path: str) -> None:
    """SQLite goes on writing to an unlinked file without a word, and all of it is lost."""
    await put(storage)
    os.rename(path, f"{path}.moved")
    with pytest.raises(StorageUnavailable, match="is gone"):
        await storage.insert([a_job()])
    with pytest.raises(StorageUnavailable, match="is gone"):
        await ids(storage)
    os.rename(f"{path}.moved", path)
    with pytest.raises(StorageUnavailable, match="is gone"):
        await storage.beat("pod", LEASE, [])
    await storage.close()
    await storage.open()
    assert len(await ids(storage)) == 1


async def test_a_file_that_was_replaced_is_not_written_to(storage: SQLiteStorage, path: str) -> None:
    await put(storage)
    os.rename(path, f"{path}.old")
    Path(path).touch()
    with pytest.raises(StorageUnavailable, match="was replaced by another file"):
        await storage.insert([a_job()])
    assert os.path.getsize(path) == 0
    os.replace(f"{path}.old", path)


async def test_an_idle_writer_notices_that_the_file_is_gone(
    storage: SQLiteStorage, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.rename(path, f"{path}.moved")
    monkeypatch.setattr(writer, "_TICK", 0.0)
    await asyncio.sleep(0)
    with contextlib.suppress(StorageUnavailable):
        await storage.beat("nobody", LEASE, [])
    with pytest.raises(StorageUnavailable, match="is gone"):
        storage._check()
    os.rename(f"{path}.moved", path)


async def test_a_storage_is_not_used_across_fork(storage: SQLiteStorage) -> None:
    """Shared descriptors break SQLite's locks, and the writer's thread does not exist in the child."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if child == 0:
        try:
            storage._check()
        except StorageUnavailable as error:
            os._exit(7 if "fork" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    await put(storage)


async def test_a_closed_storage_says_so(storage: SQLiteStorage) -> None:
    await storage.close()
    with pytest.raises(StorageUnavailable, match="not open"):
        await storage.insert([a_job()])
    await storage.open()


async def test_closing_answers_what_is_queued_first(storage: SQLiteStorage, path: str) -> None:
    with file_lock(path):
        inserts = [asyncio.ensure_future(storage.insert([a_job()])) for _ in range(5)]
        await asyncio.sleep(0.02)
        closing = asyncio.ensure_future(storage.close())
        await asyncio.sleep(0.02)
    await closing
    answers = await asyncio.gather(*inserts)
    assert all(answer[0].outcome == "inserted" for answer in answers)
    await storage.open()
    assert len(await ids(storage)) == 5


# Checkpoints ---------------------------------------------------------------------------------------------------------


async def test_only_the_writer_checkpoints(storage: SQLiteStorage, path: str) -> None:
    """Below SQLite 3.51.3, two connections that write and checkpoint at one instant can corrupt the file."""
    opened = storage._opened
    assert opened is not None
    found = await writer_of(storage).run(lambda db, news: db.execute("pragma wal_autocheckpoint").fetchone(), 5.0)
    assert found == (0,)
    assert await storage._read(lambda db: db.execute("pragma wal_autocheckpoint").fetchone()) == (0,)
    assert await storage._read(lambda db: db.execute("pragma query_only").fetchone()) == (1,)


async def test_the_log_stays_short_under_a_steady_load(storage: SQLiteStorage, path: str) -> None:
    for _ in range(30):
        await storage.insert([a_job(args=f'"{"x" * 4000}"') for _ in range(100)])
    assert os.path.getsize(path) > 8 << 20
    assert os.path.getsize(f"{path}-wal") < 16 << 20


async def test_an_idle_writer_empties_the_log(
    storage: SQLiteStorage, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_IDLE", 0.01)
    await storage.insert([a_job(args=f'"{"x" * 4000}"') for _ in range(100)])
    async with asyncio.timeout(5):
        while os.path.getsize(f"{path}-wal"):
            await asyncio.sleep(0.01)


async def test_every_commit_is_synchronous_by_default(storage: SQLiteStorage, tmp_path: Path) -> None:
    def mode(db: sqlite3.Connection, _: News) -> tuple[str, int]:
        return db.execute("pragma journal_mode").fetchone()[0], db.execute("pragma synchronous").fetchone()[0]

    assert await writer_of(storage).run(mode, 5.0) == ("wal", 2)
    relaxed = SQLiteStorage(tmp_path / "relaxed.db", synchronous="normal")
    await relaxed.open()
    assert await writer_of(relaxed).run(mode, 5.0) == ("wal", 1)
    await relaxed.close()


@pytest.mark.parametrize(("platform", "pragmas"), [("darwin", [1, 1]), ("linux", [0, 0])])
def test_on_macos_a_commit_reaches_the_platter(
    platform: str, pragmas: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain fsync there ends in the drive's cache. The pragmas are known everywhere, and used where they matter."""
    path = tmp_path / "jobs.db"
    path.touch()
    monkeypatch.setattr(sys, "platform", platform)
    with contextlib.closing(connect.to_write(str(path), "full")) as db:
        found = [db.execute(f"pragma {name}").fetchone()[0] for name in ("fullfsync", "checkpoint_fullfsync")]
    assert found == pragmas


def test_an_old_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(StorageUnavailable, match=r"3\.35\.0 or newer"):
        SQLiteStorage("jobs.db")


async def test_only_commits_that_matter_after_power_loss_wait_for_the_disk(storage: SQLiteStorage, path: str) -> None:
    """A claim or a beat that power loss takes is taken from a pod that is gone with it. An enqueue or a finish in the
    same group makes the whole group wait, and brings along what was committed before it."""

    async def level(operation: Any) -> int:
        def at_commit(step: str) -> None:
            if step == "group.before_commit":
                seen.append(writer_of(storage)._db.execute("pragma synchronous").fetchone()[0])

        seen: list[int] = []
        writer.on_step = at_commit
        try:
            await operation
        finally:
            writer.on_step = None
        return seen[-1]

    pod = await a_live_pod(storage)
    full, normal = 2, 1
    assert await level(storage.insert([a_job()])) == full
    assert await level(storage.claim(pod, "t1", [want()])) == normal
    assert await level(storage.beat(pod, LEASE, ())) == normal
    assert await level(storage.insert([a_job()])) == full
    (job,) = await take(storage, pod)
    assert await level(storage.apply([finished(job, Succeeded())])) == full
    both = as_one_group(path, storage.claim(pod, "t2", [want()]), storage.insert([a_job()]))
    assert await level(both) == full


async def test_synchronous_normal_never_waits(path: str) -> None:
    storage = SQLiteStorage(path, synchronous="normal")
    await storage.open()
    await storage.insert([a_job()])
    assert writer_of(storage)._db.execute("pragma synchronous").fetchone()[0] == 1
    await storage.close()
