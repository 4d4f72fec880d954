"""Those who act in a soak: worker processes, which are killed and replaced, and clients, which are not."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.journeys.stage import QUICK
from treadle import Call, TreadleError
from treadle.client.client import new_id

from .ground import Ground
from .soak_app import fenced, note, work

HERE = Path(__file__).parent
QUEUES = ("default", "mail")
BACKLOG = 60  # above so many live jobs clients wait: a soak is about faults, not about load


class Worker:
    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log = log
        self.stopped = False  # by SIGSTOP
        self.leaving = False  # by SIGTERM
        self.seen = time.time()  # when it was last known to be alive

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


class Fleet:
    """So many workers at any time; one that is gone is replaced."""

    def __init__(self, ground: Ground, folder: Path, size: int) -> None:
        self._ground = ground
        self._folder = folder
        self._size = size
        self._started = 0
        self._closing = False
        self.workers: list[Worker] = []
        self.deaths: list[tuple[int, float]] = []  # pid, and when it was last known to be alive
        self.counts: Counter[str] = Counter()
        self.surprises: list[str] = []

    def start(self, skew: float | None = None) -> None:
        log = self._folder / f"worker-{self._started}.log"
        self._started += 1
        path = os.pathsep.join([str(HERE / "skewed"), *filter(None, [os.environ.get("PYTHONPATH")])])
        shifted = {} if skew is None else {"SOAK_SKEW": str(skew), "PYTHONPATH": path}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "treadle.cli", "worker", "-A", "soak_app:app", "-q", "default:5,mail:3"],
                cwd=HERE,
                env={**self._environ(), **shifted},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.workers.append(Worker(process, log))

    def _environ(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "PYTEST"))}
        timing = {f"TREADLE_{name.upper()}": str(value) for name, value in QUICK.items()}
        return {**plain, **timing, **self._ground.environ(), "PYTHONDONTWRITEBYTECODE": "1"}

    def tick(self) -> None:
        """Note who is gone, and replace him."""
        for worker in self.workers[:]:
            now = time.time()
            code = worker.process.poll()
            if code is None:
                worker.seen = now
                continue
            self.workers.remove(worker)
            self.deaths.append((worker.pid, worker.seen))
            self.counts[_ended(code)] += 1
            if code not in (0, -signal.SIGKILL) and not worker.leaving:
                self.surprises.append(f"a worker ended by itself with {code}: {worker.log.read_text()[-1500:]}")
        while len(self.workers) < self._size and not self._closing:
            self.counts["restarts"] += 1
            self.start()

    def fill(self) -> None:
        while len(self.workers) < self._size:
            self.start()

    def stop(self, within: float = 60.0) -> None:
        """All of them, gracefully; an idle worker obeys at once, with 0."""
        self._closing = True
        for worker in self.workers:
            worker.send(signal.SIGCONT)
            worker.send(signal.SIGTERM)
        for worker in self.workers:
            try:
                code = worker.process.wait(within)
            except subprocess.TimeoutExpired:
                self.surprises.append(f"a worker did not stop: {worker.log.read_text()[-1500:]}")
                continue
            if code != 0:
                self.surprises.append(f"an idle worker stopped with {code}: {worker.log.read_text()[-1500:]}")

    def remove(self) -> None:
        self._closing = True
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()


def _ended(code: int) -> str:
    return "ended by kill -9" if code == -signal.SIGKILL else "ended gracefully" if code == 0 else f"ended with {code}"


class Clients:
    """Threads that enqueue and cancel, whatever happens. What an enqueue ended with goes into the history."""

    def __init__(self, ground: Ground, seed: str, count: int) -> None:
        self._ground = ground
        self._ending = threading.Event()
        self.counts: Counter[str] = Counter()
        self.crowded = False
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"{seed}/client/{n}"),), daemon=True)
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(60)
            if thread.is_alive():
                self.errors.append(AssertionError("an enqueue hangs"))

    def _run(self, chance: random.Random) -> None:
        mine: list[str] = []
        try:
            while not self._ending.wait(chance.expovariate(1 / 0.12)):
                if not self.crowded:
                    self._act(chance, mine)
        except BaseException as error:
            self.errors.append(error)

    def _act(self, chance: random.Random, mine: list[str]) -> None:
        drawn = chance.random()
        if drawn < 0.06 and mine:
            self._try("cancel", lambda: self._ground.app.jobs.cancel_sync(chance.choice(mine[-20:])))
        elif drawn < 0.75:
            mine += self.enqueue([a_call(chance, new_id())])
        else:
            mine += self.enqueue([a_call(chance, id) for id in new_id.many(chance.randint(2, 12))])
        del mine[:-50]

    def _try(self, what: str, act: Callable[[], Any]) -> None:
        with contextlib.suppress(TreadleError):
            act()
            self.counts[what] += 1

    def enqueue(self, calls: list[Call[Any]]) -> list[str]:
        wanted = tuple(str(call.options.id) for call in calls)
        try:
            ids = tuple(handle.id for handle in self._ground.app.enqueue_many_sync(calls))
        except TreadleError:
            # It may have happened all the same, or may yet.
            note("asked", ids=wanted, how="unknown")
            self.counts["unknown"] += len(wanted)
            return []
        note("asked", ids=ids, how="ok")
        self.counts["ok"] += len(ids)
        return list(ids)


def a_call(chance: random.Random, id: str) -> Call[Any]:
    options: dict[str, Any] = {"id": id, "queue": chance.choice(QUEUES), "priority": chance.randint(-1, 1)}
    if chance.random() < 0.25:
        options["delay"] = chance.uniform(0.1, 3.0)
    if chance.random() < 0.2:
        options["unique"] = f"key-{chance.randint(1, 5)}"
    if chance.random() < 0.1:
        return fenced.using(**options).bind(chance.choice([0.0, 0.05, 0.5]))
    kinds = ["ok"] * 8 + ["flaky", "later", "snooze", "fail", "cancel", "hang", "stubborn", "follow", "long", "long"]
    kind = chance.choice(kinds)
    if kind in ("hang", "stubborn"):
        options["timeout"] = "2s"
    if kind == "flaky" and chance.random() < 0.5:
        options["max_attempts"] = chance.randint(1, 3)
    seconds = chance.uniform(1.0, 4.0) if kind == "long" else chance.choice([0.0, 0.0, 0.05, 0.3])
    return work.using(**options).bind(kind, 1 if kind in ("hang", "stubborn") else chance.randint(1, 3), seconds)


def a_poison(id: str) -> Call[Any]:
    return work.using(id=id).bind("poison", 99)
