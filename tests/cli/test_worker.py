"""`treadle worker`: what it refuses before it starts, what it hands on, and real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle import __version__
from treadle.runtime import main

from .conftest import Store, Treadle


class Started(BaseException):
    """Instead of becoming a worker to the end."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Catches the moment in which the command would become a worker."""
    told: dict[str, Any] = {}

    def run_worker(app: object, **options: Any) -> None:
        told.update(options, app=app)
        raise Started

    monkeypatch.setattr(main, "run_worker", run_worker)
    return told


def test_no_queues_is_a_clear_refusal(treadle: Treadle, shop: str) -> None:
    ran = treadle("worker", "-A", shop)
    assert ran.code == 78
    (line,) = ran.err.splitlines()
    assert "-q mail, TREADLE_QUEUES" in line  # those that its tasks use: nothing has to be looked up


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["-q", "mail,mail"], "twice"),
        (["-q", "-mail"], "queue name"),
        (["-q", "mail", "--slots", "0"], "slots (--slots)"),
        (["-q", "mail", "--log-format", "jsn"], 'did you mean "json"?'),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_starts(
    args: list[str], word: str, treadle: Treadle, shop: str
) -> None:
    ran = treadle("worker", "-A", shop, *args)
    assert ran.code == 78
    assert word in ran.err


def test_what_is_asked_for_is_handed_on(treadle: Treadle, shop: str, started: dict[str, Any], monkeypatch: Any) -> None:
    monkeypatch.setenv("TREADLE_WORKER_PREFIX", "shop")
    with pytest.raises(Started):
        treadle(
            *("worker", "-A", shop, "-q", "mail:20,default", "--slots", "7", "--burst", "--grace", "3s"),
            *("--threads", "2", "--no-lead"),
        )
    assert started["queues"] == {"mail": 20, "default": 7}
    assert (started["burst"], started["leads"]) == (True, False)
    assert (started["timing"].grace, started["limits"].threads) == (3.0, 2)
    assert started["label"]("9f3ab2c4") == "shop-worker-9f3a"
    assert "shop.welcome" in started["app"].tasks


def test_a_database_that_a_worker_creates_is_logged(
    treadle: Treadle, shop: str, started: dict[str, Any], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Started):
        treadle("worker", "-A", shop, "-q", "mail")
    assert f"new database {folder}/treadle.db: no file was there" in caplog.text


def test_the_queues_may_come_from_environment_or_file(
    treadle: Treadle, shop: str, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    (folder / "treadle.toml").write_text(f'app = "{shop}"\nqueues.slow = {{ slots = 2 }}\n')
    with pytest.raises(Started):
        treadle("worker")
    assert started["queues"] == {"slow": 2}
    monkeypatch.setenv("TREADLE_QUEUES", "mail")
    with pytest.raises(Started):
        treadle("worker")
    assert started["queues"] == {"mail": 50}


def test_what_the_file_says_of_a_queue_seeds_its_row(
    treadle: Treadle, shop: str, started: dict[str, Any], folder: Path
) -> None:
    table = '{ max_workers = 4, rate = "90/m", keep_failed = "forever" }'
    (folder / "treadle.toml").write_text(f'app = "{shop}"\nqueues.mail = {table}\nqueues.slow = {{ slots = 2 }}\n')
    with pytest.raises(Started):
        treadle("worker", "-q", "mail:3,slow")
    seeds = started["app"].seeds(started["queues"])
    assert seeds == {"mail": {"max_workers": 4, "rate": 1.5, "keep_failed": -1.0}}


def test_kill_switches(treadle: Treadle, shop: str, started: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_DISABLE", "worker")
    ran = treadle("worker", "-A", shop, "-q", "mail")
    assert (ran.code, started) == (0, {})
    assert "TREADLE_DISABLE" in ran.err
    monkeypatch.setenv("TREADLE_DISABLE", "services")
    with pytest.raises(Started):
        treadle("worker", "-A", shop, "-q", "mail")
    assert started["leads"] is False


# ---------------------------------------------------------------------------------------------------------------------
# Real processes


class Process:
    """`treadle worker` as a process of its own. It is killed if it outlives the test, or a minute."""

    def __init__(self, folder: Path, *args: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
        line = [sys.executable, "-m", "treadle.cli", "worker", *args]
        self.child = subprocess.Popen(line, cwd=folder, env=environ, stderr=subprocess.PIPE, text=True)
        self._said: list[str] = []
        self._watchdog = threading.Timer(60, self.child.kill)
        self._watchdog.start()

    def until(self, sign: str, times: int = 1) -> str:
        """Read what it says until it has said this."""
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self._said.append(line)
            times -= sign in line
            if not times:
                return line
        raise AssertionError(f"it ended, and never said {sign!r}: {''.join(self._said)}")

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def end(self) -> tuple[int, str]:
        """Its exit code, and all that it said."""
        assert self.child.stderr is not None
        self._said += self.child.stderr
        return self.child.wait(), "".join(self._said)

    def clear(self) -> None:
        self._watchdog.cancel()
        self.child.kill()
        self.child.wait()
        assert self.child.stderr is not None
        self.child.stderr.close()


@pytest.fixture
def worker(folder: Path, shop: str) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*args: str, app: str = shop) -> Process:
        started.append(Process(folder, "-A", app, "-q", "mail", *args))
        return started[-1]

    yield start
    for process in started:
        process.clear()


@pytest.mark.journey
def test_a_burst_drains_what_is_due_and_ends_with_0(worker: Callable[..., Process], store: Store) -> None:
    id = store.enqueue("shop.welcome", {"user_id": 42}, queue="mail")
    code, said = worker("--burst").end()
    assert code == 0, said
    assert store.run(lambda app: app.jobs.get(id)).result == "welcome 42"


@pytest.mark.journey
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_drains_after_a_signal_ends_with_0(
    number: signal.Signals, worker: Callable[..., Process]
) -> None:
    process = worker()
    assert "treadle.pod" in process.until("queues mail:50")
    process.signal(number)
    code, said = process.end()
    assert code == 0, said


@pytest.mark.journey
def test_the_third_signal_leaves_at_once_with_75(worker: Callable[..., Process], store: Store) -> None:
    store.enqueue("shop.stubborn", queue="mail")
    process = worker()
    for sign in ("stubborn runs", "stopping", "hurrying"):
        process.until(sign)
        process.signal(signal.SIGTERM)
    assert process.end()[0] == 75


@pytest.mark.journey
def test_at_boot_a_worker_says_in_one_line_what_it_is(folder: Path, worker: Callable[..., Process]) -> None:
    (folder / "treadle.toml").write_text('worker_prefix = "web"\nworker_version = "2026.11"\nworker_id = "a1f3"\n')
    process = worker("--burst")
    line = process.until("treadle.pod: pod")
    own = (
        f"pod web-worker-2026.11-a1f3 · treadle {__version__} · sqlite:///{folder / 'treadle.db'} · queues mail:50 · "
        f"50 threads · 3 tasks: shop.broken, shop.stubborn, shop.welcome · pid {process.child.pid}"
    )
    assert line.rstrip().endswith(own)


@pytest.mark.journey
def test_at_boot_a_worker_warns_of_queues_that_no_task_uses_and_of_tasks_that_it_does_not_serve(
    worker: Callable[..., Process],
) -> None:
    _, said = worker("-q", "mial", "--burst").end()
    assert "a queue is served here, but no known task uses it: mial\n" in said
    assert "a queue is not served here: mail; jobs of these tasks need another worker: shop.broken, " in said


@pytest.mark.journey
def test_a_job_that_fails_is_in_the_log_with_its_trace(worker: Callable[..., Process], store: Store) -> None:
    job = store.enqueue("shop.broken", queue="mail")
    _, said = worker("--burst").end()
    (line,) = [each for each in said.splitlines() if "treadle.jobs" in each]
    told = f"error   treadle.jobs: shop.broken {job} failed for good, attempt 1 of 1: ValueError: card declined"
    assert line.endswith(told)
    assert "    ValueError: card declined\n" in said
    assert "started" not in said


@pytest.mark.journey
def test_starts_and_successes_are_in_the_log_with_log_jobs_and_fields_in_json(
    worker: Callable[..., Process], store: Store
) -> None:
    good = store.enqueue("shop.welcome", {"user_id": 4111}, queue="mail")
    bad = store.enqueue("shop.broken", queue="mail")
    _, said = worker("--burst", "--log-jobs", "--log-format", "json").end()
    lines = [each for each in map(json.loads, said.splitlines()) if each["logger"] == "treadle.jobs"]
    told = {(each["job_id"], each["outcome"]): each for each in lines}
    assert told.keys() == {(good, "started"), (good, "succeeded"), (bad, "started"), (bad, "failed")}
    failed = told[bad, "failed"]
    assert (failed["task"], failed["queue"], failed["attempt"]) == ("shop.broken", "mail", 1)
    assert failed["error"] == "ValueError: card declined"
    assert "Traceback" in failed["trace"]
    assert '"user_id": 4111' not in said


@pytest.mark.journey
def test_log_lines_can_be_json(worker: Callable[..., Process]) -> None:
    _, said = worker("--burst", "--log-format", "json").end()
    lines = [json.loads(line) for line in said.splitlines()]
    assert lines[0]["level"] == "info"
    assert {"at", "logger", "message"} <= lines[0].keys()


@pytest.mark.journey
def test_several_processes_share_the_work_and_end_with_0(worker: Callable[..., Process], store: Store) -> None:
    ids = [store.enqueue("shop.welcome", {"user_id": number}, queue="mail") for number in range(4)]
    code, said = worker("--processes", "2", "--burst").end()
    assert code == 0, said
    assert {store.state(id) for id in ids} == {"succeeded"}
    assert said.count("queues mail:50") == 2


@pytest.mark.journey
def test_a_signal_to_the_parent_ends_all_its_children(worker: Callable[..., Process], store: Store) -> None:
    process = worker("--processes", "2")
    process.until("queues mail:50", times=2)
    process.signal(signal.SIGTERM)
    code, said = process.end()
    assert code == 0, said
    assert store.run(lambda app: app.pods.list()) == []


@pytest.mark.journey
def test_a_child_that_refuses_its_configuration_ends_all_with_78(worker: Callable[..., Process]) -> None:
    code, said = worker("--processes", "2", app="nowhere:app").end()
    assert code == 78
    assert "no module nowhere" in said


def test_only_services_is_refused_where_it_means_nothing(treadle: Treadle, shop: str) -> None:
    assert treadle("worker", "-A", shop, "--only-services", "-q", "mail").code == 2
    assert treadle("worker", "-A", shop, "--only-services", "--burst").code == 2
    ran = treadle("worker", "-A", shop, "--only-services", "--no-lead")
    assert ran.code == 78 and "is there to lead" in ran.err


@pytest.mark.journey
def test_a_pod_of_services_alone_is_shown_as_such_and_claims_nothing(
    folder: Path, shop: str, treadle: Treadle, store: Store
) -> None:
    (folder / "treadle.toml").write_text('queues = ["mail"]\nleader_every = "100ms"\n')
    id = store.enqueue("shop.welcome", {"user_id": 42}, queue="mail")
    process = Process(folder, "-A", shop, "--only-services")
    try:
        assert "no queues: only services" in process.until("treadle.pod: pod")
        process.until("this pod leads")
        assert "only services" in treadle("pods", "list").out
        (pod,) = treadle("pods", "list", "--json").objects
        assert (pod["queues"], pod["state"]) == ({}, "live")
        assert "only services" in treadle("top", "--once").out
        facts = treadle("doctor", "--json").out
        assert (
            "TREADLE-D013" in facts and "0 slots" not in facts
        )  # nobody serves mail; of the pod itself nothing is wrong
        assert store.state(id) == "ready"
        process.signal(signal.SIGTERM)
        assert process.end()[0] == 0
    finally:
        process.clear()
