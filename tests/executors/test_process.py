"""Functions in child processes: real ones, that are killed, starved and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from treadle import ConfigError, Handle, ResultNotKept
from treadle.config import Limits, Timing
from treadle.core.job import Job
from treadle.core.view import JobView
from treadle.runtime.pod import Pod

from . import process_app
from .process_app import Point, aact, act, adouble, app, busy, choosy, double, hungry, typed

TIMING = Timing(poll=0.02, cancel_grace=1.0, grace=3.0, start_jitter=0.0, beat=1.0, lease=30.0)
SOON = "15s"


class Stage:
    """A pod on a loop of its own, in a thread, for all tests of this file: a child takes a while to start."""

    def __init__(self) -> None:
        self.pod: Pod | None = None
        self._started = threading.Event()
        self._stop: Callable[[], None] = lambda: None
        self._error: BaseException | None = None
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        try:
            async with app.worker(["default", "cool", "alone"], timing=TIMING, limits=Limits(children=2)) as self.pod:
                self._started.set()
                await stop.wait()
        except BaseException as error:
            self._error = error
            self._started.set()

    def start(self) -> None:
        self.thread.start()
        assert self._started.wait(30)
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        self._stop()
        self.thread.join(30)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def stage() -> Generator[Stage]:
    stage = Stage()
    stage.start()
    yield stage
    stage.close()
    app.close_sync()


def until(condition: Callable[[], Any], within: float = 15.0) -> Any:
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
    return found


def ended(handle: Handle[Any]) -> JobView:
    return until(lambda: view if (view := handle.status_sync()).state in ("succeeded", "failed", "cancelled") else None)


def the_job(handle: Handle[Any]) -> Job:
    return app.client.run_sync(app.client.get(handle.id))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# What comes back -----------------------------------------------------------------------------------------------------


def test_plain_functions_and_coroutines_run_in_warm_children(stage: Stage) -> None:
    answers = [double.enqueue_sync(n).result_sync(SOON) for n in range(6)]
    answers += [adouble.enqueue_sync(n).result_sync(SOON) for n in range(6)]
    assert [answer["twice"] for answer in answers] == [0, 2, 4, 6, 8, 10] * 2
    pids = {answer["pid"] for answer in answers}
    assert len(pids) <= 2
    assert os.getpid() not in pids
    assert stage.pod is not None
    assert 1 <= stage.pod.children <= 2
    assert stage.pod._stats().children == stage.pod.children


def test_arguments_and_results_have_their_types(stage: Stage) -> None:
    assert typed.enqueue_sync(Point(1, 2)).result_sync(SOON) == Point(2, 1)
    unkept = act.enqueue_sync("unkept")
    with pytest.raises(ResultNotKept, match="the type object is not JSON"):
        unkept.result_sync(SOON)
    assert "result not kept" in (unkept.status_sync().warning or "")


@pytest.mark.parametrize("task", [act, aact], ids=["def", "async def"])
def test_the_lifespan_is_entered_once_in_each_child_and_the_context_is_whole(stage: Stage, task: Any) -> None:
    said = task.using(timeout="1m").enqueue_sync("state").result_sync(SOON)
    again = task.enqueue_sync("state").result_sync(SOON)
    assert said["state"]["pid"] == said["pid"]
    assert 0 < said["left"] <= 60
    assert said["slot"].startswith("default-")
    if again["pid"] == said["pid"]:
        assert again["state"] == said["state"]


def test_the_context_reaches_the_pod_from_a_child(stage: Stage) -> None:
    handle = act.enqueue_sync("verbs")
    assert handle.result_sync(SOON) == {"result": 8, "state": "succeeded"}
    assert handle.status_sync().meta["colour"] == "red"
    (follow,) = [
        job
        for job in app.client.run_sync(app.jobs.find("task:double state:scheduled")).jobs
        if job.args == {"value": 5}
    ]
    assert follow.meta["treadle:parent"] == handle.id


def test_an_answer_from_outside_reaches_a_child(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    handle = act.enqueue_sync("wait")
    until(lambda: handle.status_sync().state == "waiting")
    (token,) = [each for record in caplog.records if (each := record.getMessage()).startswith("token ")]
    assert app.answers.give_sync(token.split()[1], {"paid": True}) == "won"
    assert handle.result_sync(SOON) == {"paid": True}


def test_a_run_in_a_child_that_waits_for_its_own_full_queue_is_told_so(stage: Stage) -> None:
    """The child's ask is answered by a task of the pod that serves many runs: it does not know by itself which of them
    waits."""
    app.queues.set_sync("alone", max_workers=1)
    first = act.using(queue="alone").enqueue_sync("own queue")  # the context of a child's first run stays with it
    second = act.using(queue="alone").enqueue_sync("own queue")
    for handle in (first, second):
        assert f"job {handle.id} (" in (text := handle.result_sync(SOON)), text
        assert "waits for it in a slot of the same queue alone" in text


def test_a_storage_in_memory_cannot_be_had_in_a_child_and_says_so(stage: Stage) -> None:
    job = ended(act.using(max_attempts=1).enqueue_sync("enqueue by the app"))
    assert job.error is not None
    assert job.error.type == "ConfigError"
    assert "ctx.enqueue" in job.error.message


# What is raised ------------------------------------------------------------------------------------------------------


def test_signals_mean_what_they_mean_elsewhere(stage: Stage) -> None:
    retried, failed, cancelled = (act.enqueue_sync(what) for what in ("retry", "fail", "cancel"))
    snoozed = act.enqueue_sync("snooze")
    throttled = act.using(queue="cool").enqueue_sync("throttle")
    job = ended(retried)
    assert (job.state, job.attempt, job.error and job.error.message) == ("failed", 3, "again")
    job = ended(failed)
    assert (job.state, job.attempt, job.error and job.error.message) == ("failed", 1, "never")
    assert job.error is not None
    assert job.error.place == "tests.executors.process_app:do"  # of the task's own code, not of ours
    job = ended(cancelled)
    assert (job.state, job.error and job.error.kind) == ("cancelled", "cancelled")
    until(lambda: the_job(snoozed).snoozes == 1)
    assert the_job(snoozed).attempt == 0
    until(lambda: the_job(throttled).throttles == 1)


@pytest.mark.parametrize("task", [act, aact], ids=["def", "async def"])
@pytest.mark.parametrize(
    ("what", "type"),
    [
        ("sys.exit", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
        ("cancelled", "asyncio.exceptions.CancelledError"),
        ("recursion", "RecursionError"),
    ],
)
def test_F5_F6_F7_F13_whatever_a_task_raises_is_a_failed_attempt(stage: Stage, task: Any, what: str, type: str) -> None:
    job = ended(task.using(max_attempts=1).enqueue_sync(what))
    assert (job.state, job.crashes) == ("failed", 0)
    assert job.error is not None
    assert (job.error.kind, job.error.type) == ("error", type)


def test_an_error_has_its_trace_and_its_place_and_the_retry_policy_knows_its_class(stage: Stage) -> None:
    odd, key, value = (choosy.enqueue_sync(what) for what in ("odd", "key", "value"))
    job = ended(odd)  # a subclass of what the policy names
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert job.error.type == "tests.executors.process_app.Odder"
    assert job.error.place == "tests.executors.process_app:choosy"
    assert 'raise Odder(what) if what == "odd"' in (job.error.trace or "")
    assert ended(key).attempt == 1  # a built-in one
    assert ended(value).attempt == 5


# Crashes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("kill", "killed by SIGKILL"),
        ("exit", "left with exit code 7"),
    ],
)
def test_a_child_that_dies_costs_its_own_job_alone(stage: Stage, what: str, words: str) -> None:
    beside = aact.enqueue_sync("state")
    job = ended(act.enqueue_sync(what))
    assert (job.state, job.attempt, job.crashes) == ("failed", 3, 3)
    kinds = [(error.kind, words in error.message) for error in job.errors]
    assert kinds == [("worker_lost", True), ("worker_lost", True), ("poison", True)]
    assert ended(beside).attempt == 1
    assert double.enqueue_sync(2).result_sync(SOON)["twice"] == 4


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("segfault", "killed by SIGSEGV"),
        ("close", "closed its connection"),
        ("garble", "wrote into the worker's own connection"),
    ],
)
def test_why_a_child_was_lost_is_told(stage: Stage, what: str, words: str) -> None:
    handle = act.using(max_attempts=1).enqueue_sync(what)
    job = ended(handle)
    assert (job.state, job.crashes) == ("failed", 1)
    assert job.error is not None
    assert job.error.kind == "worker_lost"
    assert words in job.error.message


def test_F13_too_much_memory_is_told_as_its_limit(stage: Stage) -> None:
    assert hungry.enqueue_sync(16).result_sync(SOON) == 16 << 20
    job = ended(hungry.using(max_attempts=1).enqueue_sync(500))
    assert job.error is not None
    assert (job.state, job.error.kind, job.error.type, job.crashes) == ("failed", "limit", "MemoryError", 0)
    assert "64MiB" in job.error.message


def test_too_much_time_of_the_processor_is_told_as_its_limit(stage: Stage) -> None:
    job = ended(busy.enqueue_sync(30.0))
    assert job.error is not None
    assert (job.state, job.error.kind, job.crashes) == ("failed", "limit", 0)
    assert "1 s of CPU time" in job.error.message


# Cancel and deadline -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [act, aact], ids=["def", "async def"])
def test_a_cancel_really_ends_it(stage: Stage, task: Any) -> None:
    handle = task.enqueue_sync("sleep")
    until(lambda: handle.status_sync().state == "running")
    time.sleep(0.1)  # it is asleep by now, and not only claimed
    assert handle.cancel_sync() == "asked"
    assert ended(handle).state == "cancelled"  # long before its minute is over
    assert double.enqueue_sync(2).result_sync(SOON)["twice"] == 4


def test_L4_who_ignores_term_is_killed_with_all_that_it_started(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    deaf, parent = act.enqueue_sync("deaf"), act.enqueue_sync("grandchild")

    def grandchild() -> int | None:
        words = [record.getMessage() for record in caplog.records if record.name == "treadle.task.act"]
        return next((int(each.split()[1]) for each in words if each.startswith("grandchild ")), None)

    pid = until(grandchild)
    until(lambda: deaf.status_sync().state == "running")
    assert is_alive(pid)
    deaf.cancel_sync()
    parent.cancel_sync()
    assert [ended(handle).state for handle in (deaf, parent)] == ["cancelled", "cancelled"]
    until(lambda: not is_alive(pid))


def test_a_deadline_tells_where_the_task_was(stage: Stage) -> None:
    for handle in [double.enqueue_sync(1) for _ in range(8)]:
        handle.result_sync(SOON)  # whoever was killed by an earlier test has a successor
    job = ended(act.using(timeout="500ms", max_attempts=1).enqueue_sync("sleep"))
    assert job.error is not None
    assert (job.state, job.error.kind) == ("failed", "timeout")
    assert job.error.place == "tests.executors.process_app:do"
    assert "time.sleep(60)" in (job.error.trace or "")


# The rest ------------------------------------------------------------------------------------------------------------


def test_F14_what_a_task_changes_of_its_process_is_put_back(stage: Stage) -> None:
    answers = {act.enqueue_sync("change the process").result_sync(SOON) for _ in range(3)}
    assert len(answers) == 1  # seeded alike
    for _ in range(3):
        assert act.enqueue_sync("look at the process").result_sync(SOON) == [os.getcwd(), None, False]


def test_logs_and_output_of_a_child_are_the_workers(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    handle = act.enqueue_sync("log", "hello")
    handle.result_sync(SOON)
    act.enqueue_sync("print").result_sync(SOON)
    (warned,) = [record for record in caplog.records if record.name == "shop"]
    assert (warned.levelname, warned.getMessage()) == ("WARNING", "from a child: hello")
    assert vars(warned)["order"] == 7
    assert warned.filename == "process_app.py"
    (own,) = [record for record in caplog.records if record.getMessage() == "of its own"]
    assert (own.name, vars(own)["job_id"]) == ("treadle.task.act", handle.id)

    def said() -> set[tuple[str, str]]:
        lines = [record for record in caplog.records if record.name == "treadle.child"]
        return {(record.levelname, record.getMessage().partition(": ")[2]) for record in lines}

    until(lambda: {("INFO", "to stdout"), ("WARNING", "to stderr")} <= said())


def test_F15_L3_a_flood_of_output_is_read_and_bounded(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    act.enqueue_sync("flood").result_sync(SOON)
    lines = [record.getMessage() for record in caplog.records if record.name == "treadle.child"]
    assert sum(map(len, lines)) < 100_000


def test_the_log_of_a_job_has_each_line_once(stage: Stage) -> None:
    handle = act.enqueue_sync("log", "hello")
    handle.result_sync(SOON)
    storage = app.storage
    lines = until(lambda: found if len(found := app.client.run_sync(storage.logs(handle.id))) >= 2 else None)
    assert [line.text for line in lines] == ["shop: from a child: hello", "of its own"]


# Start ---------------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_an_app_that_cannot_be_imported_elsewhere_is_refused_at_start() -> None:
    from treadle import App

    local = App("memory://")

    @local.task(name="local", executor="process")
    def nowhere() -> None: ...

    with pytest.raises(
        ConfigError, match=r"no attribute of any module.*declared inside test_an_app_.*test_process\.py:"
    ):
        async with local.worker():
            pass
    await local.close()


@pytest.mark.anyio
async def test_a_task_that_a_child_does_not_find_is_named_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_app, "app", None)  # found under another name here, which a child does not have
    monkeypatch.setattr(process_app, "other_name", app, raising=False)
    with pytest.raises(ConfigError, match="other_name"):
        async with app.worker(["default"], timing=TIMING, limits=Limits(children=1)):
            pass


@pytest.mark.anyio
async def test_a_nested_function_that_a_child_cannot_import_is_refused_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child imports the module, and never calls the function that declares the task. What a function declares while
    its module is imported, a child finds: that is no reason to refuse."""
    (tmp_path / "nested_app.py").write_text(
        "from treadle import App\n"
        "def make():\n"
        "    made = App('memory://')\n"
        "    @made.task(executor='process')\n"
        "    def early(): ...\n"
        "    return made\n"
        "app = make()\n"
        "def later():\n"
        "    @app.task(executor='process')\n"
        "    def late(): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    nested: Any = importlib.import_module("nested_app")
    limits = Limits(children=1)
    async with nested.app.worker(timing=TIMING, limits=limits):
        pass
    del nested.app.tasks["nested_app.early"]
    nested.later()
    with pytest.raises(
        ConfigError, match=r"no task nested_app\.late.*declared inside later, .*nested_app\.py:9: move it"
    ):
        async with nested.app.worker(timing=TIMING, limits=limits):
            pass
    await nested.app.close()


@pytest.mark.anyio
async def test_a_worker_without_such_tasks_starts_no_child() -> None:
    from treadle import App

    plain = App("memory://")

    @plain.task(name="plain")
    async def nothing() -> None: ...

    async with plain.worker(timing=TIMING) as pod:
        handle = await nothing.enqueue()
        await handle.result(SOON)
        assert pod.children == 0
    with contextlib.suppress(ConfigError):
        await plain.close()
