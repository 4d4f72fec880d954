"""The command line as a person uses it: a folder, a clean environment, a SQLite file, and jobs in every state."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from treadle import App
from treadle.cli import root
from treadle.core import lifecycle
from treadle.core.backoff import Retry
from treadle.core.job import ErrorEntry, Job
from treadle.core.outcome import Raised, Succeeded
from treadle.core.pod import PodCard
from treadle.ports import Lane, Want

SHOP = """
import sys
import threading

from treadle import App

app = App()
other = App("sqlite:///other.db")
number = 3


@app.task(name="shop.welcome", queue="mail")
async def welcome(user_id: int) -> str:
    return f"welcome {user_id}"


@app.task(name="shop.broken", queue="mail", retry=1)
def broken() -> None:
    raise ValueError("card declined")


@app.task(name="shop.stubborn", queue="mail")
def stubborn() -> None:
    print("stubborn runs", file=sys.stderr, flush=True)
    threading.Event().wait(60)
"""


@dataclass(frozen=True)
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str
    error: BaseException | None

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    @property
    def object(self) -> dict[str, Any]:
        (only,) = self.objects
        return only


Treadle = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, with no setting from outside and nothing left behind in this process."""
    environ, path, modules = dict(os.environ), list(sys.path), set(sys.modules)
    for name in environ:
        if name.startswith("TREADLE_"):
            del os.environ[name]
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.environ.clear()
    os.environ.update(environ)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def treadle(folder: Path) -> Treadle:
    def run(*args: str, answer: str | None = None) -> Ran:
        result = CliRunner().invoke(root, list(args), input=answer)
        error = None if isinstance(result.exception, SystemExit) else result.exception
        if error is not None:
            raise error
        return Ran(result.exit_code, result.stdout, result.stderr, error)

    return run


@pytest.fixture
def shop(folder: Path) -> str:
    """A module with an App, as `-A` names it."""
    (folder / "shop.py").write_text(SHOP)
    return "shop:app"


@pytest.fixture
def url(folder: Path) -> str:
    return f"sqlite:///{folder}/treadle.db"


class Store:
    """Puts jobs into the storage, in whatever state a test needs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def enqueue(self, task: str = "shop.welcome", args: dict[str, Any] | None = None, **options: Any) -> str:
        async def work(app: App) -> str:
            return (await app.enqueue(task, args or {}, **options)).id

        return self.run(work)

    def running(self, queue: str = "mail", *, pod: str = "pod1", lease: float = 30.0, **options: Any) -> str:
        id = self.enqueue(queue=queue, **options)
        self.run(lambda app: _claim(app, queue, pod, lease))
        return id

    def succeeded(self, queue: str = "mail", result: str = '"sent"', **options: Any) -> str:
        return self._ended(queue, Succeeded(result), **options)

    def unkept(self, queue: str = "mail", **options: Any) -> str:
        return self._ended(queue, Succeeded(None, "result not kept: the type set is not JSON"), **options)

    def failed(self, queue: str = "mail", message: str = "card declined", **options: Any) -> str:
        error = ErrorEntry(attempt=1, kind="error", type="ValueError", message=message, trace=f"ValueError: {message}")
        return self._ended(queue, Raised(error, final=True), **options)

    def state(self, id: str) -> str:
        return self.run(lambda app: app.jobs.get(id)).state

    def run(self, work: Callable[[App], Any]) -> Any:
        async def whole() -> Any:
            async with App(self.url) as app:
                return await work(app)

        return asyncio.run(whole())

    def _ended(self, queue: str, outcome: Any, **options: Any) -> str:
        id = self.enqueue(queue=queue, **options)

        async def work(app: App) -> None:
            for job in await _claim(app, queue, "pod1", 30.0):
                await app.storage.apply([lifecycle.finish(job, outcome, Retry(), 0.5)])
            await app.storage.sign_off("pod1")

        self.run(work)
        return id


async def _claim(app: App, queue: str, pod: str, lease: float) -> Sequence[Job]:
    tasks = ("shop.broken", "shop.welcome")
    card = PodCard(
        id=pod, label=pod, host="here", pid=os.getpid(), version="0", queues={queue: 5}, tasks=tasks, lease=lease
    )
    await app.storage.register(card)
    want = Want(queue, 1, (Lane(frozenset(tasks), 1),))
    return (await app.storage.claim(pod, f"token-{os.urandom(4).hex()}", [want])).jobs


@pytest.fixture
def store(url: str) -> Store:
    return Store(url)
