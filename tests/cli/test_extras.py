"""A package of an extra that is not installed: hidden from a real child process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from treadle.cli import root

# Imported by `site` before anything else: such a module cannot be imported, as if it were not installed.
HIDE = "import os, sys\nsys.modules.update(dict.fromkeys(os.environ['HIDDEN'].split()))\n"
POSTGRES = "treadle: the PostgreSQL storage needs asyncpg: pip install 'treadle[postgres]'\n"
ID = "019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11"
HERE = ["-A", "shop:app"]
# One of each group. Not of `demo`, which makes a SQLite file of its own, nor of `tokens`, which is about a file.
COMMANDS = {
    "worker": [*HERE, "-q", "mail"],
    "dev": [*HERE, "-q", "mail", "--port", "0"],
    "web": [*HERE, "--port", "0"],
    "enqueue": ["shop.welcome", "user_id=1"],
    "jobs": ["find"],
    "answers": ["beat", "token"],
    "operations": ["list"],
    "audit": [],
    "queues": ["list"],
    "schedules": ["list"],
    "tasks": ["list"],
    "top": ["--once"],
    "stats": [],
    "limits": ["list"],
    "locks": ["list"],
    "pods": ["list"],
    "db": ["status"],
    "doctor": [],
}


def run(folder: Path, hidden: str, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(HIDE)
    environ = {**os.environ, "PYTHONPATH": str(folder), "HIDDEN": hidden}
    return subprocess.run([sys.executable, *args], env=environ, cwd=folder, capture_output=True, text=True)


def test_every_group_of_commands_is_tried_without_its_driver() -> None:
    assert set(COMMANDS) | {"demo", "tokens"} == set(root.list_commands(click.Context(root)))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_missing_driver_is_one_line(folder: Path, command: str) -> None:
    """The storage raised a plain ImportError where only a ModuleNotFoundError was caught: 86 lines of traceback."""
    (folder / "shop.py").write_text('from treadle import App\n\napp = App("postgresql://127.0.0.1:1/shop")\n')
    named = COMMANDS[command]
    url = [] if named[:2] == HERE else ["--url", "postgresql://127.0.0.1:1/shop"]
    ran = run(folder, "asyncpg", "-m", "treadle.cli", command, *named, *url)
    said = "" if command != "web" else "postgresql://127.0.0.1:1/shop; Ctrl-C ends it\n"  # it says where, then opens
    assert (ran.returncode, ran.stderr) == (78, said + POSTGRES)


def test_a_missing_driver_is_a_type_of_its_own(folder: Path) -> None:
    code = """
import treadle
app = treadle.App("postgresql://127.0.0.1:1/shop")  # declares nothing but where: no driver is needed yet
try:
    app.open_sync()
except treadle.MissingExtra as error:
    assert isinstance(error, treadle.ConfigError) and isinstance(error, ImportError)
    print(error)
"""
    ran = run(folder, "asyncpg", "-c", code)
    assert ran.stdout == POSTGRES.removeprefix("treadle: "), ran.stderr


@pytest.mark.parametrize(
    ("hidden", "module", "line"),
    [
        ("opentelemetry", "opentelemetry", "opentelemetry-api: pip install 'treadle[otel]'"),
        ("sentry_sdk", "sentry", "sentry-sdk: pip install 'treadle[sentry]'"),
    ],
)
def test_a_missing_integration_is_one_line(folder: Path, hidden: str, module: str, line: str) -> None:
    (folder / "shop.py").write_text(f"from treadle.contrib.{module} import instrument\n")
    ran = run(folder, hidden, "-m", "treadle.cli", "worker", "-A", "shop:app", "-q", "mail")
    assert ran.returncode == 78
    assert ran.stderr == f"treadle: treadle.contrib.{module} needs {line}\n"


def test_a_missing_loop_is_one_line(folder: Path, shop: str) -> None:
    (folder / "treadle.toml").write_text('loop = "uvloop"\n')
    ran = run(folder, "uvloop", "-m", "treadle.cli", "worker", "-A", shop, "-q", "mail")
    assert ran.returncode == 78
    assert ran.stderr == "treadle: loop = \"uvloop\" needs uvloop: pip install 'treadle[uvloop]'\n"
