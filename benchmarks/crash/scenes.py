"""The scenes: a worker is killed with jobs in hand, and a job kills every worker that runs it.

Each scene has a database of its own and is judged by what the jobs themselves wrote down (`marks`), and by what the
peer's tables hold in the end. Nothing is asked of the peer's own code.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import psycopg
from msgspec import Struct

from .. import server
from ..processes import HERE, Failed
from . import marks
from .peers import CrashPeer

JOBS = 4  # of each kind, and so many slots has each worker
WATCH = 60.0
LONG_WATCH = 150.0
PATIENCE = 90.0


class Killed(Struct, kw_only=True):
    """What became of the jobs that a killed worker was running."""

    jobs: int
    soon: int  # run again within a minute
    again: int  # run again as long as we watched
    seconds: float | None  # until the median of them was
    worst: float | None
    left: int  # not run again within a minute, and still in the tables as if they would be
    failed: int  # and said to have failed
    lost: int  # and nowhere
    twice: int  # jobs of a living worker that somebody else ran as well


class Poisoned(Struct, kw_only=True):
    deaths: int
    seconds: float  # that were watched, or until it had ended
    ended: bool
    lost: bool  # after one death, without a trace


class Scene:
    def __init__(self, peer: CrashPeer, mode: str, place: Path) -> None:
        self._peer = peer
        self._place = place
        self._marks = place / "marks"
        self._marks.touch()
        self._processes: list[subprocess.Popen[bytes]] = []
        url = server.url(place) if not peer.on_sqlite else ""
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TREADLE_")},
            marks.FILE: str(self._marks),
            marks.MODE: mode,
            "BENCH_PG_URL": url,
            "CRASH_FILE": str(place / "jobs.db"),
            "TREADLE_URL": url or f"sqlite:///{place / 'jobs.db'}",
            "PYTHONPATH": str(HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(peer.quick if mode == "fast" else {}),
        }

    # Parts -----------------------------------------------------------------------------------------------------------

    def do(self, *words: str) -> None:
        command = self._peer.verb(*words)
        done = subprocess.run(
            command, check=False, cwd=self._place, env=self._environ, capture_output=True, text=True, timeout=PATIENCE
        )
        if done.returncode:
            raise Failed(f"{self._peer.name}: {' '.join(words)}: {done.stderr[-1500:]}")

    def start(self) -> subprocess.Popen[bytes]:
        log = self._place / f"worker-{len(self._processes)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._peer.worker(),
                cwd=self._place,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def marks(self, what: str, kind: str) -> list[dict[str, object]]:
        found = marks.read(str(self._marks))
        return [mark for mark in found if mark["what"] == what and _job(mark)[0] == kind]

    def wait(self, condition: Callable[[], bool], what: str, within: float = PATIENCE) -> None:
        until = time.monotonic() + within
        while not condition():
            if time.monotonic() > until:
                logs = "\n".join(log.read_text()[-800:] for log in sorted(self._place.glob("worker-*.log")))
                raise Failed(f"{self._peer.name}: not within {within:g} s: {what}\n{logs}")
            time.sleep(0.1)

    def ask(self, question: str | None) -> int:
        if question is None:
            return 0
        if self._peer.on_sqlite:
            with contextlib.closing(sqlite3.connect(self._place / "jobs.db", timeout=30)) as db:
                return int(db.execute(question).fetchone()[0])
        with psycopg.connect(server.url(self._place), autocommit=True) as connection:
            row = connection.execute(question.encode()).fetchone()
            assert row is not None
            return int(row[0])

    @contextlib.contextmanager
    def cleaning(self) -> Iterator[None]:
        try:
            yield
        finally:
            for process in self._processes:
                _kill(process)

    # Scenes ----------------------------------------------------------------------------------------------------------

    def killed(self) -> Killed:
        """A has four jobs in hand, B four others. A is killed, and C is started in its place."""
        self.do("install")
        self.start()
        self.do("enqueue", "healthy", str(JOBS))
        self.wait(lambda: len(self.marks("began", "healthy")) == JOBS, "B runs its jobs")
        victim = self.start()
        self.do("enqueue", "victim", str(JOBS))
        with contextlib.suppress(
            Failed
        ):  # some begin by running those of B, which are not theirs, and have no place left
            self.wait(lambda: len(self.marks("began", "victim")) == JOBS, "A runs its jobs", WATCH)
        held = len(self.marks("began", "victim"))
        at = time.monotonic()
        _kill(victim)
        self.start()
        time.sleep(max(0.0, at + WATCH - time.monotonic()))
        # Nobody but the victims and those of B is in the tables, and B says when its jobs end.
        of_b = JOBS - len({_job(mark)[1] for mark in self.marks("ended", "healthy")})
        soon = self._again(at) if held else {}
        left = min(max(0, self.ask(self._peer.left) - of_b), held - len(soon))
        failed = min(self.ask(self._peer.failed), held - len(soon) - left)
        self.wait(
            lambda: len({_job(mark)[1] for mark in self.marks("ended", "healthy")}) == JOBS, "B's jobs end", 240.0
        )
        while time.monotonic() < at + LONG_WATCH and len(self._again(at)) < held:
            time.sleep(0.5)
        times = sorted(self._again(at).values()) if held else []
        # What its tables did not show after a minute, and was run again later, was not lost.
        lost = min(held - len(soon) - left - failed, held - len(times))
        left = held - len(soon) - failed - lost
        return Killed(
            jobs=held,
            soon=len(soon),
            again=len(times),
            seconds=median(times) if times else None,
            worst=times[-1] if times else None,
            left=left,
            failed=failed,
            lost=lost,
            twice=self._twice(),
        )

    def _again(self, at: float) -> dict[int, float]:
        """Which of the victims were begun again, and how long after the kill."""
        first: dict[int, float] = {}
        for mark in self.marks("began", "victim"):
            if _at(mark) > at:
                first.setdefault(_job(mark)[1], _at(mark) - at)
        return first

    def _twice(self) -> int:
        """Healthy jobs that were begun again before they had ended: B lived all the while."""
        ended = {_job(mark)[1]: _at(mark) for mark in reversed(self.marks("ended", "healthy"))}
        begun: dict[int, list[float]] = {}
        for mark in self.marks("began", "healthy"):
            begun.setdefault(_job(mark)[1], []).append(_at(mark))
        return sum(any(at < ended.get(number, at + 1) for at in times[1:]) for number, times in begun.items())

    def poisoned(self) -> Poisoned:
        """A job kills its worker, a supervisor starts the next at once."""
        self.do("install")
        worker = self.start()
        self.do("enqueue", "poison", "1")
        begun = time.monotonic()
        last = begun
        while time.monotonic() < begun + 2 * WATCH:
            if worker.poll() is not None:
                last = time.monotonic()
                worker = self.start()
            time.sleep(0.1)
            if self.marks("began", "poison") and time.monotonic() - last > WATCH / 3 and not self.ask(self._peer.left):
                break
        deaths = len(self.marks("began", "poison"))
        left = self.ask(self._peer.left)
        failed = self.ask(self._peer.failed)
        return Poisoned(
            deaths=deaths, seconds=last - begun if not left else time.monotonic() - begun, ended=not left,
            lost=not left and not failed and deaths == 1,
        )  # fmt: skip


def _job(mark: dict[str, object]) -> tuple[str, int]:
    kind, number = mark["job"]  # type: ignore[misc]
    return str(kind), int(str(number))


def _at(mark: dict[str, object]) -> float:
    at = mark["at"]
    assert isinstance(at, float)
    return at


def _kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the process and of whatever it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
