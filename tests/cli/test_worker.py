"""`treadle worker`: what it refuses before it starts, what it hands on, and real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    assert "-q mail:20,default" in line
    assert "TREADLE_QUEUES" in line


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


def test_a_declared_limit_seeds_the_queue_once_and_never_again(
    treadle: Treadle, shop: str, started: dict[str, Any], store: Store, folder: Path
) -> None:
    (folder / "treadle.toml").write_text(f'app = "{shop}"\nqueues.mail = {{ max_workers = 4 }}\n')
    with pytest.raises(Started):
        treadle("worker")
    assert treadle("queues", "show", "mail", "--json").object["max_workers"] == 4
    assert treadle("queues", "set", "mail", "--max-workers", "9").code == 0
    with pytest.raises(Started):
        treadle("worker")
    assert treadle("queues", "show", "mail", "--json").object["max_workers"] == 9


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


def worker(folder: Path, *args: str) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
    line = [sys.executable, "-m", "treadle.cli", "worker", "-A", "shop:app", "-q", "mail", *args]
    return subprocess.Popen(line, cwd=folder, env=environ, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.journey
def test_a_burst_drains_what_is_due_and_ends_with_0(shop: str, store: Store, folder: Path) -> None:
    id = store.enqueue("shop.welcome", {"user_id": 42}, queue="mail")
    ran = worker(folder, "--burst")
    _, said = ran.communicate(timeout=60)
    assert ran.returncode == 0, said
    assert store.run(lambda app: app.jobs.get(id)).result == "welcome 42"


@pytest.mark.journey
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_drains_after_a_signal_ends_with_0(number: signal.Signals, shop: str, folder: Path) -> None:
    ran = worker(folder)
    assert ran.stderr is not None
    manifest = next(line for line in ran.stderr if "queues mail:50" in line)
    assert "treadle.pod" in manifest
    ran.send_signal(number)
    _, said = ran.communicate(timeout=60)
    assert ran.returncode == 0, said


@pytest.mark.journey
def test_the_third_signal_leaves_at_once_with_75(shop: str, store: Store, folder: Path) -> None:
    store.enqueue("shop.stubborn", queue="mail")
    ran = worker(folder)
    assert ran.stderr is not None
    for sign in ("stubborn runs", "stopping", "hurrying"):
        assert any(sign in line for line in ran.stderr)
        ran.send_signal(signal.SIGTERM)
    assert ran.wait(timeout=60) == 75
    ran.communicate()


@pytest.mark.journey
def test_log_lines_can_be_json(shop: str, folder: Path) -> None:
    import json

    ran = worker(folder, "--burst", "--log-format", "json")
    _, said = ran.communicate(timeout=60)
    lines = [json.loads(line) for line in said.splitlines()]
    assert lines[0]["level"] == "info"
    assert {"at", "logger", "message"} <= lines[0].keys()


@pytest.mark.journey
def test_several_processes_share_the_work_and_end_with_0(shop: str, store: Store, folder: Path) -> None:
    ids = [store.enqueue("shop.welcome", {"user_id": number}, queue="mail") for number in range(4)]
    ran = worker(folder, "--processes", "2", "--burst")
    _, said = ran.communicate(timeout=60)
    assert ran.returncode == 0, said
    assert {store.state(id) for id in ids} == {"succeeded"}
    assert said.count("queues mail:50") == 2


@pytest.mark.journey
def test_a_signal_to_the_parent_ends_all_its_children(shop: str, store: Store, folder: Path) -> None:
    ran = worker(folder, "--processes", "2")
    assert ran.stderr is not None
    seen = 0
    for line in ran.stderr:
        seen += "queues mail:50" in line
        if seen == 2:
            break
    ran.send_signal(signal.SIGTERM)
    _, said = ran.communicate(timeout=60)
    assert ran.returncode == 0, said
    assert store.run(lambda app: app.pods.list()) == []


@pytest.mark.journey
def test_a_child_that_refuses_its_configuration_ends_all_with_78(shop: str, folder: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
    line = [sys.executable, "-m", "treadle.cli", "worker", "-A", "nowhere:app", "-q", "mail", "--processes", "2"]
    ran = subprocess.run(line, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 78
    assert "no module nowhere" in ran.stderr
