"""What tasks do that nobody expects of them, in a child process: forks, and text that no encoding has."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from treadle.core.outcome import ChildLost, Elsewhere, Fail
from treadle.executors import deaths, posix, usage
from treadle.executors.origin import origin_of
from treadle.executors.process import FEW
from treadle.executors.warm import WarmChild

from . import process_app
from .bench import is_alive
from .test_process_pool import a_call, a_pool

pytestmark = pytest.mark.anyio


async def test_a_task_may_fork_and_end_what_it_forked() -> None:
    """A fork has our handler of SIGTERM, our socket and our log, and none of them is its own."""
    async with a_pool("act", "double") as executor:
        for _ in range(2):
            assert await executor.run(a_call("act", what="fork")) == sum(n * n for n in range(20))


FORKED_AND_ENDED_AT_ONCE = """
import os, signal, socket, time
from treadle.executors.child import Link

ours, _ = socket.socketpair()
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))  # before it has come to itself
signal.signal(signal.SIGTERM, lambda *_: print("ours"))
Link(ours, os.getppid()).watch_forks()
if not (child := os.fork()):
    time.sleep(10)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_fork_that_is_ended_before_it_has_come_to_itself_ends() -> None:
    """A pool of two whose first worker has done all the work ends the second one while that is still being born. It
    took the signal for its parent's, and the task waited for it for ever."""
    done = subprocess.run([sys.executable, "-c", FORKED_AND_ENDED_AT_ONCE], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == [str(-signal.SIGTERM), "ours"], done.stderr


FIRST_THREAD_DIES = """
import ctypes, os, platform, subprocess, sys, threading

CHILD = "import os, time; from treadle.executors.child import _die_with as look; look(os.getppid())" + chr(10)
CHILD += "print('lives', flush=True); [(time.sleep(0.01), look(os.getppid())) for _ in range(1000)]"
child = subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()

def wait():
    print(child.wait(), flush=True)
    os._exit(0)

threading.Thread(target=wait).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # of this thread alone
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_child_of_a_dying_pod_knows_it() -> None:
    """It is still the pod's child then. (A pod that is killed is in this state for some milliseconds.)"""
    done = subprocess.run([sys.executable, "-c", FIRST_THREAD_DIES], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(-signal.SIGKILL)], done.stderr


async def test_records_of_an_apps_own_kind_cost_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The app sets them up in the pod, and where a child imports it: what a record has already may come again."""
    factory = logging.getLogRecordFactory()

    def own(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = factory(*args, **kwargs)
        record.shop = "there"
        return record

    def broken(record: logging.LogRecord) -> bool:
        raise KeyError(record.name)

    async with a_pool("act", "double") as executor:
        logging.setLogRecordFactory(own)
        try:
            assert (await executor.run(a_call("act", what="log by a factory"))).result is None
            assert [getattr(each, "shop", "") for each in caplog.records if "usual" in each.message] == ["here"]
            logging.getLogger("shop").addFilter(broken)
            assert (await executor.run(a_call("act", what="log by a factory"))).result is None
        finally:
            logging.getLogger("shop").removeFilter(broken)
            logging.setLogRecordFactory(factory)


@pytest.mark.parametrize("what", ["odd text", "long text"])
async def test_text_that_cannot_travel_is_told_as_far_as_it_can(what: str) -> None:
    async with a_pool("act", "double") as executor:
        with pytest.raises(Elsewhere) as caught:
            await executor.run(a_call("act", what=what))
        assert isinstance(caught.value.signal, Fail)
        assert caught.value.error.type == "Fail"
        assert (await executor.run(a_call("double", value=2)))["twice"] == 4


async def test_a_start_that_is_given_up_in_its_last_moment_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[WarmChild] = []
    ready = WarmChild.heard

    def heard(child: WarmChild, message: Any) -> None:
        ready(child, message)
        if not started:
            started.append(child)
            starting.cancel()

    monkeypatch.setattr(WarmChild, "heard", heard)
    starting = asyncio.ensure_future(WarmChild.start(origin_of(process_app.app), ["double"]))
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    assert started
    assert not is_alive(started[0].process.pid)


async def test_a_kill_is_not_told_as_a_lack_of_memory_that_was_over_before(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = [0]
    monkeypatch.setattr(deaths, "oom_kills", lambda: kills[0])
    async with a_pool("act", "double") as executor:
        kills[0] = 1  # somebody else, while the child was idle
        monkeypatch.setattr(deaths, "_last", (-1.0, 0))
        with pytest.raises(ChildLost) as caught:
            await executor.run(a_call("act", what="kill"))
        assert "memory" not in str(caught.value)


async def test_suspects_are_soon_many_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a worker with hundreds of long jobs was killed, each of them needs a child; nobody has planned for them."""

    async def never(*_: Any) -> WarmChild:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(WarmChild, "start", never)
    for plenty in (False, True):
        monkeypatch.setattr(usage, "is_plenty", lambda plenty=plenty: plenty)
        async with a_pool(size=64, warm=False) as executor:
            assert executor.ready(3) == 0
            assert len(executor._starting) == 3
            assert executor.ready(500) == 0
            assert len(executor._starting) == FEW  # no more at once than that
            executor._children.update(cast("Any", range(FEW)))
            for starting in executor._starting:
                starting.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            executor.ready(500)
            assert len(executor._starting) == (os.cpu_count() if plenty else 0)
            executor._children.clear()


def test_memory_is_plenty_only_if_every_group_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most, used = tmp_path / "most", tmp_path / "used"
    monkeypatch.setattr(usage, "_groups", lambda: [(str(most), str(used))])
    monkeypatch.setattr(usage, "_of_machine", lambda: (100, 200))
    assert usage.is_plenty()  # no group
    for text, is_plenty in (("max", True), ("1000", True), ("401", True), ("399", False)):
        most.write_text(text)
        used.write_text("300")
        assert usage.is_plenty() is is_plenty
    monkeypatch.setattr(usage, "_of_machine", lambda: None)
    most.unlink()
    assert not usage.is_plenty()


@pytest.mark.parametrize("missing", [("pidfd_open",), ("pidfd_open", "waitid")])
async def test_the_end_of_a_child_is_noticed_on_other_systems_too(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in missing:
        monkeypatch.delattr(os, name, raising=False)
    child = posix.Child(subprocess.Popen(["/bin/sh", "-c", "exit 3"], start_new_session=True))
    async with asyncio.timeout(10):
        assert await child.exit() == 3
