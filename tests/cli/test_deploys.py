"""Deploys: a worker process says the version of its code, and what is new since is marked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import postgres_server
from treadle.core.deploy import LONGEST_VERSION

from .conftest import Store, Treadle
from .test_worker import Started, started  # noqa: F401 - a fixture

SHOP = """
from treadle import App

app = App()


@app.task(name="shop.charge", queue="mail", retry=1)
def charge() -> None:
    raise ValueError("card declined")


@app.task(name="shop.notify", queue="mail", retry=1)
def notify() -> None:
    {notify}
"""


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, folder: Path, url: str) -> None:
    """Where the jobs are, for every process that starts in the folder."""
    if request.param == "sqlite":
        (folder / "treadle.toml").write_text(f'url = "{url}"\n')
    else:
        schema, server = postgres_server.a_schema(), postgres_server.shared_url()
        (folder / "treadle.toml").write_text(f'url = "{server}"\nschema = "{schema}"\n')


def deploy(folder: Path, version: str, notify: str) -> None:
    """Put new code in place, and let a worker process with it run what is due."""
    (folder / "shop.py").write_text(SHOP.format(notify=notify))
    line = [sys.executable, "-B", "-m", "treadle.cli", "worker", "-A", "shop:app", "-q", "mail", "--burst"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
    ran = subprocess.run(
        [*line, "--worker-version", version], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.journey
@pytest.mark.usefixtures("place")
def test_what_fails_for_the_first_time_after_a_deploy_is_new_and_what_failed_before_is_not(
    treadle: Treadle, folder: Path
) -> None:
    def marks() -> dict[str, Any]:
        return {group["task"]: group["mark"] for group in treadle("jobs", "failures", "--json").objects}

    for task in ("shop.charge", "shop.notify"):
        assert treadle("enqueue", task, "--queue", "mail").code == 0
    deploy(folder, "2026.11.2", "pass")
    assert marks() == {"shop.charge": "new"}
    assert "1 new since 2026.11.2, deployed " in treadle("jobs", "failures").err

    for task in ("shop.charge", "shop.notify"):
        assert treadle("enqueue", task, "--queue", "mail").code == 0
    deploy(folder, "2026.11.3", "raise KeyError('address')")
    assert marks() == {"shop.charge": None, "shop.notify": "new"}
    assert "1 new since 2026.11.3, deployed " in treadle("jobs", "failures").err

    # Back to the code before: what came up with the new one is still what to look at.
    deploy(folder, "2026.11.2", "pass")
    assert marks() == {"shop.charge": None, "shop.notify": "new"}
    ran = treadle("pods", "deploys")
    assert [line.split()[0] for line in ran.lines] == ["version", "2026.11.3", "2026.11.2"]
    newest, old = treadle("pods", "deploys", "--json").objects
    assert (newest["version"], old["version"]) == ("2026.11.3", "2026.11.2")
    assert old["first_at"] < newest["first_at"] < old["seen_at"]


def test_without_a_version_nothing_is_said_of_deploys(treadle: Treadle, store: Store) -> None:
    store.failed()
    ran = treadle("jobs", "failures")
    assert ran.code == 0 and "deployed" not in ran.err and " new " in ran.out
    none = treadle("pods", "deploys")
    assert (none.code, none.out) == (0, "")
    assert "--worker-version" in none.err


def test_the_version_may_come_from_flag_environment_file_or_app(
    treadle: Treadle,
    shop: str,
    started: dict[str, Any],  # noqa: F811
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def version(*args: str) -> tuple[str | None, str]:
        for module in [name for name in sys.modules if name == "shop"]:
            del sys.modules[module]
        with pytest.raises(Started):
            treadle("worker", "-A", shop, "-q", "mail", *args)
        return started["worker_version"], started["label"]("9f3ab2c4")

    monkeypatch.setenv("TREADLE_WORKER_PREFIX", "web")
    assert version() == (None, "web-worker-9f3a")
    text = (folder / "shop.py").read_text()
    (folder / "shop.py").write_text(text.replace("app = App()", 'app = App(worker_version="of the code")'))
    assert version() == ("of the code", "web-worker-of-the-code-9f3a")
    (folder / "treadle.toml").write_text("worker_version = 7\n")
    assert version() == ("7", "web-worker-7-9f3a")
    monkeypatch.setenv("TREADLE_WORKER_VERSION", "1.4+build")
    assert version() == ("1.4+build", "web-worker-1.4-build-9f3a")
    assert version("--worker-version", "1.5") == ("1.5", "web-worker-1.5-9f3a")


@pytest.mark.parametrize("version", ["x" * (LONGEST_VERSION + 1), "two\nlines"])
def test_what_is_no_version_is_refused_before_anything_starts(treadle: Treadle, shop: str, version: str) -> None:
    ran = treadle("worker", "-A", shop, "-q", "mail", "--worker-version", version)
    assert ran.code == 78
    assert "worker_version (--worker-version): must be one line of at most 64 characters: 2026.11.3" in ran.err


def test_pods_show_the_version_of_the_code_beside_treadles(treadle: Treadle, store: Store) -> None:
    async def work(app: Any) -> None:
        async with app.worker("mail", worker_version="2026.11.3") as pod:
            listed.append(await app.pods.get(pod.id))

    listed: list[Any] = []
    store.run(work)
    (pod,) = listed
    assert pod.worker_version == "2026.11.3" and pod.version != pod.worker_version
    store.running(pod="old")
    head, row = treadle("pods", "list").lines
    assert head.split()[-2:] == ["version", "treadle"]
    assert row.split()[-1] == "0"
    assert treadle("pods", "show", "old", "--json").object["worker_version"] == ""
