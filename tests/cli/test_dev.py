"""`treadle dev`: a worker, the dashboard, and a new start when the code changes, as one real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from treadle import App
from treadle.cli.dev import _line
from treadle.cli.reload import Watch, marks, own_files, sources

CODE = """
from treadle import App

app = App()

@app.task(name="greet")
async def greet(name: str) -> str:
    return "Hello, " + name
"""


class Dev:
    def __init__(self, folder: Path, *args: str) -> None:
        self.folder = folder
        (folder / "jobs.py").write_text(CODE)
        self.output = folder / "output"
        env = {name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "treadle.cli", "dev", "jobs:app", "--port", "0", *args],
                cwd=folder,
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.app = App(f"sqlite:///{folder}/treadle.db")

    @property
    def said(self) -> str:
        return self.output.read_text()

    @property
    def url(self) -> str:
        return self.until(lambda: next((line for line in self.said.splitlines() if line.startswith("http://")), ""))

    def until(self, found: Callable[[], Any], patience: float = 90.0) -> Any:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if answer := found():
                return answer
            assert self.process.poll() is None, self.said
            time.sleep(0.05)
        raise AssertionError(self.said)

    def save(self, code: str, at: int | None = None) -> None:
        """As editors do it: the file is never half there. `at` is when, in nanoseconds."""
        new = self.folder / "jobs.new"
        new.write_text(code)
        if at is not None:
            os.utime(new, ns=(at, at))
        new.replace(self.folder / "jobs.py")

    def greeted(self) -> str:
        answer: str = self.app.enqueue_sync("greet", {"name": "Ada"}).result_sync("60s")
        return answer

    def get(self, path: str) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    dev = Dev(tmp_path)
    yield dev
    dev.app.close_sync()
    dev.process.kill()
    dev.process.wait()


def test_it_serves_and_starts_anew_when_the_code_changes(dev: Dev) -> None:
    url = dev.url
    assert dev.greeted() == "Hello, Ada"
    assert [queue["name"] for queue in dev.get("/api/v1/queues")["items"]] == ["default"]
    # As long as the word before it, and in the same second: by what Python goes by, its compiled code is still good.
    second, fraction = divmod((dev.folder / "jobs.py").stat().st_mtime_ns, 10**9)
    dev.save(CODE.replace("Hello", "Salve"), second * 10**9 + (fraction + 1) % 10**9)
    dev.until(lambda: dev.said.count("treadle.pod: pod") >= 3)  # it began, it stopped, it began
    assert dev.greeted() == "Salve, Ada"
    assert dev.url == url
    assert dev.get("/api/v1/queues")["items"]
    # Half-written code is waited for, not died of.
    dev.save("def broken(")
    dev.until(lambda: "waiting for a change" in dev.said)
    dev.save(CODE.replace("Hello", "Ahoj"))
    dev.until(lambda: dev.said.count("treadle.pod: pod") >= 5)
    assert dev.greeted() == "Ahoj, Ada"
    assert dev.end() == 0


# Code that, while it is loaded, is saved anew. What it holds then is the next one.
SAVED = """
from pathlib import Path

Path(__file__).write_text({next!r})
"""


def test_what_is_saved_while_the_code_loads_is_noticed(dev: Dev) -> None:
    """Both where it can be loaded and where it cannot: what is running is never older than what is saved."""
    assert dev.url
    broken = SAVED.format(next=CODE.replace("Hello", "Ahoj")) + "raise ValueError('half-written')"
    dev.save(SAVED.format(next=broken) + CODE)
    dev.until(lambda: "half-written (jobs.py:5); --traceback shows the rest; waiting for a change" in dev.said)
    dev.until(lambda: dev.said.count("treadle.pod: pod") >= 5)
    assert dev.greeted() == "Ahoj, Ada"


def test_code_that_cannot_be_loaded_at_first_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("def broken(")
    found = subprocess.run(
        [sys.executable, "-m", "treadle.cli", "dev", "jobs:app"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode != 0
    assert "jobs" in found.stderr


def test_the_command_keeps_its_port() -> None:
    assert _line(["dev", "a:b", "--port", "0", "--again"], 4000) == ["dev", "a:b", "--port", "4000", "--again"]
    assert _line(["dev", "--port=0", "-q", "x"], 4000) == ["dev", "-q", "x", "--port", "4000", "--again"]


def test_a_watch_tells_what_changed_went_or_came(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    watch = Watch([file])
    assert watch.changed() is None
    file.write_text("x")
    assert watch.changed() == file
    assert watch.changed() is None
    os.utime(file, (1, 1))
    assert watch.changed() == file
    file.unlink()
    assert watch.changed() == file


def test_a_watch_tells_what_changed_since_the_code_was_loaded(tmp_path: Path) -> None:
    """And not only since it began itself."""
    old, same, new = tmp_path / "old.toml", tmp_path / "same.toml", tmp_path / "new.toml"
    old.write_text("x")
    same.write_text("x")
    before = marks([old, same])
    assert Watch([old, same], before).changed() is None
    old.write_text("longer")
    new.write_text("nobody knows how it was")
    assert Watch([old, same, new], before).changed() == old


def test_only_the_users_own_code_is_watched(tmp_path: Path) -> None:
    assert Path(__file__) in own_files()
    assert not any("site-packages" in str(path) or "/treadle/cli/" in str(path) for path in own_files())
    (tmp_path / "a.py").touch()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "b.py").touch()
    assert sources(tmp_path) == [tmp_path / "a.py"]
