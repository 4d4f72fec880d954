"""The pool of child processes itself: who is recycled, what cannot be started, and who dies with whom."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle.context.context import Context
from treadle.core.errors import ConfigError
from treadle.core.job import ErrorEntry, Job, State
from treadle.core.outcome import (
    Brought,
    Cancel,
    Elsewhere,
    Fail,
    NotBegun,
    Release,
    RetryAfter,
    Signal,
    Snooze,
    Throttle,
    Wait,
)
from treadle.core.payload import encode_arguments
from treadle.executors import deaths, pipe, warm
from treadle.executors.origin import Finder, Origin, origin_of
from treadle.executors.process import ProcessExecutor
from treadle.ports import Call
from treadle.tasks.task import Registry

from . import process_app
from .process_app import app

pytestmark = pytest.mark.anyio


def a_call(task: str, *, stopping: Callable[[], bool] = lambda: False, **arguments: Any) -> Call:
    job = Job(
        id="1", task=task, queue="default", state=State.RUNNING, attempt=1, token="t", args=encode_arguments(arguments)
    )
    function = app.by_name[task].function if task in app.by_name else lambda: None
    return Call(function, (), {}, job, Context(job=job, state=None, stopping=stopping, door=app.client))


@contextlib.asynccontextmanager
async def a_pool(*names: str, **more: Any) -> AsyncGenerator[ProcessExecutor]:
    options: dict[str, Any] = {"origin": lambda: origin_of(app), "size": 1, "grace": 1.0, **more}
    executor = ProcessExecutor(tasks=lambda: [app.by_name[name] for name in names or ("double",)], **options)
    await executor.start()
    try:
        yield executor
    finally:
        await executor.close()
        assert executor.children == 0


async def pid_of(executor: ProcessExecutor) -> int:
    answer = await executor.run(a_call("double", value=1))
    return answer["pid"]


async def test_a_child_gives_way_after_so_many_calls() -> None:
    async with a_pool(calls=2) as executor:
        pids = [await pid_of(executor) for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_a_child_that_has_grown_gives_way() -> None:
    async with a_pool(memory=1) as executor:
        assert await pid_of(executor) != await pid_of(executor)


async def test_a_call_takes_its_place_at_once_and_a_warm_child_is_there_before_the_first() -> None:
    async with a_pool() as executor:
        assert (executor.children, executor.places()) == (1, 1)
        running = asyncio.create_task(executor.run(a_call("double", value=1)))
        await asyncio.sleep(0)
        assert executor.places() == 0
        await running
        assert executor.places() == 1


async def test_a_pool_that_is_not_kept_warm_starts_a_child_when_it_is_needed_and_lets_go_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("treadle.executors.process.IDLE", 0.05)
    async with a_pool(warm=False) as executor:
        assert executor.children == 0
        pid = await pid_of(executor)
        assert pid != os.getpid()
        async with asyncio.timeout(5):
            while executor.children or is_alive(pid):
                await asyncio.sleep(0.01)


async def test_a_task_sees_that_the_pod_stops() -> None:
    async with a_pool("act") as executor:
        stop = False
        running = asyncio.create_task(executor.run(a_call("act", what="until stopping", stopping=lambda: stop)))
        await asyncio.sleep(0.1)
        assert not running.done()
        stop = True
        async with asyncio.timeout(5):
            assert await running == "stopping"


async def test_a_task_that_returns_although_it_was_cancelled_has_returned() -> None:
    async with a_pool("act") as executor:
        running = asyncio.create_task(executor.run(a_call("act", what="stubborn")))
        await asyncio.sleep(0.3)
        running.cancel()
        assert await running == "all the same"


# What cannot be started ----------------------------------------------------------------------------------------------


async def test_a_child_that_cannot_be_started_later_costs_the_job_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    good = origin_of(app)
    where = [good]
    async with a_pool(calls=1, origin=lambda: where[0]) as executor:
        where[0] = msgspec.structs.replace(good, modules=("no.such.module",))
        await pid_of(executor)
        with pytest.raises(NotBegun, match="No module named") as caught:
            await executor.run(a_call("double", value=1))
        assert caught.value.delay >= 1
        assert executor.places() == 0, "it rests"
        assert "No module named" in (executor.trouble or "")
        assert not executor.is_possible
        where[0] = good
        executor._rests_until = 0.0
        assert executor.is_possible
        assert await pid_of(executor)
        assert executor.is_possible
        assert executor.trouble is None


async def test_a_task_that_is_declared_later_is_not_begun_in_an_older_child() -> None:
    async with a_pool() as executor:
        with pytest.raises(NotBegun, match="before later was declared"):
            await executor.run(a_call("later"))


async def test_an_app_that_takes_for_ever_to_import_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm, "START_PATIENCE", 0.05)
    with pytest.raises(ConfigError, match="has not imported"):
        async with a_pool():
            pass


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import nothing_like_that", "ModuleNotFoundError"),
        ("raise ValueError('the setting is missing')", "the setting is missing"),
        ("import os; os._exit(3)", "ended before it had imported"),
        ("app = None", "has no"),
    ],
)
async def test_what_is_wrong_with_the_app_is_said_at_start(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_app.py").write_text(source)
    origin = Origin(app="broken_app:app", path=(str(tmp_path), *sys.path))
    with pytest.raises(ConfigError, match=words):
        async with a_pool(origin=lambda: origin):
            pass


# Scripts, and the end of the pod -------------------------------------------------------------------------------------

SCRIPT = """
import asyncio, os, subprocess, sys, time
from treadle import App, Context, Retry

app = App("sqlite:///jobs.db")

class Own(Exception): ...

@app.task(executor="process", retry=Retry(max_attempts=5, base=0.01, give_up_on=Own))
def fails() -> None:
    raise Own

@app.task(executor="process")
def pay(ctx: Context) -> None:
    with ctx.transaction_sync() as tx:
        tx.connection.execute("create table paid (pid integer)")
        tx.connection.execute("insert into paid values (?)", (os.getpid(),))
        tx.result = "paid"
    family.enqueue_sync()  # through the child's own way to the storage

@app.task(executor="process")
def family() -> None:
    child = subprocess.Popen(["sleep", "60"])
    print("pids", os.getpid(), child.pid, flush=True)
    open(sys.path[0] + "/pids", "w").write(f"{os.getpid()} {child.pid} ")
    end = time.monotonic() + 60
    sum(1 for _ in iter(time.monotonic, end))  # never gives way of itself

async def main() -> None:
    async with app.worker():
        handle = await fails.enqueue()
        while (job := await handle.status()).state not in ("succeeded", "failed"):
            await asyncio.sleep(0.01)
        print(job.task, job.attempt, job.error.type, flush=True)
        print(await (await pay.enqueue()).result(timeout="15s"), flush=True)
        await asyncio.sleep(60)

if __name__ == "__main__":
    asyncio.run(main())
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_L1_L2_children_of_a_script_die_with_it_and_take_theirs_along(tmp_path: Path) -> None:
    script = tmp_path / "shop-jobs.py"
    script.write_text(SCRIPT)
    pod = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert pod.stdout is not None
    try:
        assert pod.stdout.readline().split() == ["shop-jobs.fails", "1", "shop-jobs.Own"]
        assert pod.stdout.readline() == "paid\n"
        end = time.monotonic() + 15
        pids: list[int] = []
        while len(pids) < 2 and time.monotonic() < end:
            with contextlib.suppress(OSError):
                pids = [int(each) for each in (tmp_path / "pids").read_text().split()]
            time.sleep(0.01)
        assert [is_alive(pid) for pid in pids] == [True, True]
    finally:
        pod.send_signal(signal.SIGKILL)
        pod.wait()
        pod.stdout.close()
    end = time.monotonic() + 5
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.01)
    assert [is_alive(pid) for pid in pids] == [False, False]


def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(SCRIPT.replace('if __name__ == "__main__":\n    ', ""))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path, timeout=30)
    assert done.returncode != 0
    assert 'if __name__ == "__main__"' in done.stderr.splitlines()[-1]


# Values --------------------------------------------------------------------------------------------------------------


def test_frames_come_in_any_pieces() -> None:
    messages: list[Any] = [pipe.Ready(7), pipe.Ask(1, "status", msgspec.Raw(b'["x"]')), pipe.Unknown("t")]
    data = b"".join(map(pipe.encode, messages))
    for size in (1, 3, 7, len(data)):
        frames = pipe.Frames()
        found = [frame for at in range(0, len(data), size) for frame in frames.feed(data[at : at + size])]
        assert [pipe.from_child.decode(frame) for frame in found] == messages


def test_what_cannot_be_a_frame_is_refused() -> None:
    with pytest.raises(ValueError, match="a frame of"):
        pipe.Frames().feed(b"\xff" * 8)


@pytest.mark.parametrize(
    "signal",
    [RetryAfter(2.5, "again"), Snooze(7), Throttle(), Throttle(3), Fail("no"), Cancel("no"), Wait("x"), Release()],
)
def test_signals_travel(signal: Signal) -> None:
    thrown = pipe.thrown(signal)
    assert thrown is not None
    again = pipe.signal_of(msgspec.json.decode(msgspec.json.encode(thrown), type=pipe.Thrown))
    assert (type(again), str(again), vars(again)) == (type(signal), str(signal), vars(signal))


def test_other_exceptions_travel_by_the_names_of_their_classes() -> None:
    assert pipe.thrown(ValueError()) is None
    assert pipe.types_of(FileNotFoundError(), None)[:3] == (
        "builtins.FileNotFoundError",
        "builtins.OSError",
        "builtins.Exception",
    )
    own = type("Own", (Exception,), {"__module__": "script"})
    assert pipe.types_of(own(), "script")[-1] == "__main__.Own"


@pytest.mark.parametrize(
    ("code", "more", "kind", "words"),
    [
        (3, {}, "worker_lost", "left with exit code 3"),
        (-signal.SIGSEGV, {}, "worker_lost", "killed by SIGSEGV"),
        (-signal.SIGKILL, {"starved": True}, "worker_lost", "the machine was out of memory"),
        (-signal.SIGSEGV, {"starved": True}, "worker_lost", "killed by SIGSEGV"),
        (-signal.SIGABRT, {"memory": 512 << 20}, "worker_lost", "its limit is 512MiB"),
        (-signal.SIGXCPU, {"cpu": 30.0}, "limit", "more than its 30 s of CPU time"),
        (-signal.SIGXCPU, {}, "worker_lost", "killed by SIGXCPU"),
    ],
)
def test_the_end_of_a_child_has_a_cause(code: int, more: dict[str, Any], kind: str, words: str) -> None:
    lost = deaths.cause(code, **{"memory": None, "cpu": None, "starved": False, **more})
    assert (lost.kind, words in str(lost)) == (kind, True)


def test_where_an_app_comes_from() -> None:
    found = origin_of(app)
    assert found.app == f"{process_app.__name__}:app"
    assert found.modules == (process_app.__name__,)
    assert found.main is None
    assert origin_of(app, "shop.jobs:holder.app").app == "shop.jobs:holder.app"


def test_an_app_is_looked_for_once_until_it_has_more_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = []
    monkeypatch.setattr("treadle.executors.origin.origin_of", lambda *given: looks.append(given) or origin_of(*given))
    registry = Registry()
    find = Finder(registry)
    for _ in range(3):
        with pytest.raises(ConfigError, match="no attribute of any module"):
            find()
    assert len(looks) == 1
    registry.task(name="more")(lambda: None)
    with pytest.raises(ConfigError):
        find()
    assert len(looks) == 2


async def test_an_elsewhere_and_a_brought_are_values_of_the_core() -> None:
    entry = ErrorEntry(attempt=1, kind="error", type="Odd", message="x")
    assert str(Elsewhere(entry)) == "Odd: x"
    assert Brought() == Brought(None, None)
