"""Plain functions: as many threads as slots, started when they are needed, and a pod that lives beside them."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle import App
from treadle.config import Limits, Timing
from treadle.core.switching import SHORTEST, interval
from treadle.executors.thread import ThreadExecutor
from treadle.runtime import main
from treadle.runtime.pod import Pod

pytestmark = pytest.mark.anyio


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path / 'app.db'}")


def threads_of(pod: Pod) -> ThreadExecutor:
    executor = pod._executors["thread"]
    assert isinstance(executor, ThreadExecutor)
    return executor


async def until(check: object, patience: float = 60.0) -> None:
    assert callable(check)
    async with asyncio.timeout(patience):
        while not check():
            await asyncio.sleep(0.005)


async def test_as_many_plain_functions_run_at_once_as_there_are_slots(app: App) -> None:
    """There were min(32, cpus + 4) threads whatever the slots: on two cores 40 slots ran 6 plain functions at once."""
    together = threading.Barrier(41)

    @app.task(queue="mail")
    def waits() -> None:
        together.wait(60)

    async with app:
        await app.enqueue_many(waits.bind() for _ in range(80))
        async with app.worker({"mail": 40}) as pod:
            for _ in range(2):
                # Passed by 40 runs and this test, or by nobody.
                await asyncio.get_running_loop().run_in_executor(None, together.wait, 60)
            assert threads_of(pod)._threads == 40


async def test_threads_are_started_only_when_they_are_needed(app: App) -> None:
    @app.task(queue="mail")
    def brief() -> None: ...

    async with app.worker({"mail": 80}) as pod:
        for _ in range(5):
            await (await brief.enqueue()).result(timeout=30)
        assert threads_of(pod)._threads == 1


@pytest.mark.parametrize(
    ("queues", "limits", "size"),
    [
        ({"mail": 40, "default": 20}, Limits(), 60),  # the slots of all served queues
        ({"mail": 80, "default": 80}, Limits(), 100),
        ({"mail": 80, "default": 80}, Limits(max_threads=120), 120),
        ({"mail": 40, "default": 40}, Limits(pod_slots=30), 30),
        ({"mail": 20}, Limits(pod_slots=50), 20),
        ({"mail": 40}, Limits(threads=3), 3),
        ({"mail": 1}, Limits(), 10),  # spare ones, for runs that are given up
    ],
)
async def test_threads_follow_the_slots(app: App, queues: dict[str, int], limits: Limits, size: int) -> None:
    pod = app.make_pod(queues=queues, limits=limits)
    assert threads_of(pod).size == size
    inline = app.make_pod(queues=queues, limits=limits, children=False)._executors["process"]
    assert inline.places() == size


async def test_one_thread_that_never_returns_does_not_end_a_worker_of_one_slot(app: App) -> None:
    """With exactly as many threads as slots, one run that was given up would hold the only thread: the worker would
    start anew, and an embedded pod would run no plain function any more."""
    let_go = threading.Event()

    @app.task(queue="mail", timeout=0.1, retry=1)
    def deaf() -> None:
        let_go.wait(60)

    @app.task(queue="mail")
    def quick() -> int:
        return 1

    try:
        async with app.worker({"mail": 1}, timing=Timing(cancel_grace=0.1)) as pod:
            stuck = await deaf.enqueue()
            await until(lambda: pod.crew.stuck == 1)
            assert await (await quick.enqueue()).result(timeout=30) == 1
            assert not pod.ordered_off.is_set()
            assert (await stuck.status()).state == "failed"
    finally:
        let_go.set()


@pytest.fixture
def like_a_worker() -> Iterator[None]:
    """`treadle worker` sets the switch interval; a host that embeds a pod is told to."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORTEST)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("like_a_worker")
async def test_beats_and_the_loop_go_on_beside_100_busy_threads(app: App) -> None:
    """They do what plain functions mostly do: wait, and work a little on what came. The loop's turns are measured in
    the processor time that this process has used, which a busy machine does not lengthen."""
    over, lock, busy = threading.Event(), threading.Lock(), 0

    @app.task(queue="mail", timeout=None)
    def works() -> None:
        nonlocal busy
        with lock:
            busy += 1
        while not over.wait(0.02):
            sum(range(1000))

    timing = Timing(beat=0.2)
    async with app:
        await app.enqueue_many(works.bind() for _ in range(100))
        async with app.worker({"mail": 100}, timing=timing) as pod:
            try:
                first = pod.id
                await until(lambda: busy == 100)
                beats: set[float] = set()
                longest = 0.0
                async with asyncio.timeout(120):
                    while len(beats) < 5:
                        used = time.process_time()
                        await asyncio.sleep(0)
                        longest = max(longest, time.process_time() - used)
                        beats.add(pod.heart._answered)
                assert longest < timing.loop_lag
                assert pod.heart.may_claim()
                assert (pod.id, len(pod.roster)) == (first, 100)  # it was never declared lost
            finally:
                over.set()


@pytest.mark.usefixtures("like_a_worker")
async def test_threads_that_compute_keep_the_interpreter_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread that waits for the interpreter wakes once per interval, and at the shortest one fifty threads that
    compute were slower than six. The clocks are the test's own: on a busy machine nothing computes at full speed."""

    class Clocks:
        def __init__(self) -> None:
            self.at = 0.0
            self.share = 0.0
            self.used = 0.0

        def monotonic(self) -> float:
            self.at += 1.0
            return self.at

        def process_time(self) -> float:
            self.used += self.share
            return self.used

        def thread_time(self) -> float:
            return 0.0

    class Pod:
        busy_threads = 50

    clocks, pod = Clocks(), Pod()
    monkeypatch.setattr(main, "time", clocks)
    monkeypatch.setattr(main, "SWITCH_EVERY", 0.0)
    following = asyncio.create_task(main._follow_threads(pod))  # type: ignore[arg-type]
    try:
        clocks.share = 0.9
        await until(lambda: sys.getswitchinterval() == pytest.approx(interval(50, 0.9)))
        clocks.share = 0.1  # they wait: the loop and the Heart come first again
        await until(lambda: sys.getswitchinterval() == pytest.approx(SHORTEST))
    finally:
        following.cancel()
