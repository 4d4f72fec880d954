"""The stage of a journey: a SQLite file, worker processes on it, and the test's own process as a driver nobody kills.

What happened is told by three witnesses that do not depend on one another:

* **history**: triggers in the database write down every move of every job, in the transaction that makes it;
* **effects**: tasks append a line to a file for whatever they do (`journey_app.note`);
* **logs**: what each worker said.

`check` reads them after the journey and demands what the design promises, whatever the journey was about.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treadle import App, Call

from .journey_app import act, newer_tasks, tasks

HERE = Path(__file__).parent
PATIENCE = 60.0  # for what should take a moment: the machine may be busy
TERMINAL = {"succeeded", "failed", "cancelled"}

# About a tenth of the defaults.
QUICK = {
    "lease": 3.0,
    "beat": 1.0,
    "scan": 0.5,
    "neighbours": 0.2,
    "poll": 0.1,
    "grace": 2.5,
    "cancel_grace": 0.5,
    "overdue": 3.0,
    "leader_ttl": 1.5,
    "leader_every": 0.5,
    "balance": 0.5,
    "start_jitter": 0.02,
    "loop_lag": 0.5,
}

_AUDIT = """
create table journey_history (
    n integer primary key, at real, id text, was text, became text,
    old_token text, token text, old_attempt integer, attempt integer, crashes integer, old_pod text, pod text
);
create trigger journey_insert after insert on treadle_job begin
    insert into journey_history (at, id, became, attempt, crashes)
    values ((julianday('now') - 2440587.5) * 86400.0, new.id, new.state, new.attempt, new.crashes);
end;
create trigger journey_update after update on treadle_job
when old.state is not new.state or old.token is not new.token begin
    insert into journey_history (at, id, was, became, old_token, token, old_attempt, attempt, crashes, old_pod, pod)
    values (
        (julianday('now') - 2440587.5) * 86400.0, new.id, old.state, new.state, old.token, new.token,
        old.attempt, new.attempt, new.crashes, old.pod, new.pod
    );
end;
"""


@dataclass(frozen=True, kw_only=True)
class Move:
    """One line of the history: a job was inserted (`was` is None), claimed, finished, given back …"""

    n: int
    at: float
    id: str
    was: str | None
    became: str
    old_token: str | None
    token: str | None
    old_attempt: int | None
    attempt: int
    crashes: int
    old_pod: str | None
    pod: str | None

    @property
    def is_claim(self) -> bool:
        return self.became == "running"

    @property
    def is_end(self) -> bool:
        return self.became in TERMINAL

    @property
    def is_given_back(self) -> bool:
        """Uncharged: the run, or the wait that was answered."""
        ran = self.was in ("running", "waiting") and self.became == "ready"
        return ran and self.attempt == (self.old_attempt or 0) - 1


@dataclass(frozen=True, kw_only=True)
class Effect:
    what: str
    task: str
    id: str
    attempt: int
    token: str
    pid: int
    at: float


@dataclass(kw_only=True)
class Tally:
    """What a journey did to its workers, for the summary of the whole run."""

    kills: int = 0
    recoveries: list[float] = field(default_factory=list[float])


class Worker:
    """One worker process (or the supervisor of several)."""

    def __init__(self, stage: Stage, process: subprocess.Popen[bytes], log: Path) -> None:
        self._stage = stage
        self.process = process
        self.log_file = log
        self.killed_at: float | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def lives(self) -> bool:
        return self.process.poll() is None

    def said(self, words: str) -> bool:
        return words in self.log

    def is_serving(self) -> bool:
        assert self.lives, f"the worker has ended with {self.process.returncode}:\n{self.log}"
        return self.said("pid ") or self.said("starting")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, and wait until the kernel has buried it."""
        self.killed_at = time.time()
        self.send(signal.SIGKILL)
        self.process.wait()
        self._stage.tally.kills += 1

    def was_killed(self) -> None:
        """Wait until it has killed itself."""
        assert self.exit_code() == -signal.SIGKILL, self.log
        self.killed_at = time.time()
        self._stage.tally.kills += 1

    def has_stopped(self) -> bool:
        """Whether SIGSTOP has taken hold."""
        return state_of(self.pid) == "T"

    def exit_code(self, within: float = PATIENCE) -> int:
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end within {within:g} s:\n{self.log}") from None


class Stage:
    def __init__(self, folder: Path, database: Path | None = None) -> None:
        self.folder = folder
        self.database = database or folder / "jobs.db"
        self.url = f"sqlite:///{self.database}"
        self.gates = folder / "gates"
        self.gates.mkdir()
        self.effects_file = folder / "effects"
        self.effects_file.touch()
        self.workers: list[Worker] = []
        self.tally = Tally()
        self.known: set[str] = set()  # every job that was enqueued, and its enqueue returned
        self.perhaps: set[str] = set()  # and those of which nobody knows
        self._effects: list[Effect] = []  # as far as the file has been read
        self._effects_read = 0
        self.app = App(self.url)
        self.app.include(tasks)
        self.app.include(newer_tasks)
        self._db: sqlite3.Connection | None = None

    def open(self) -> None:
        self.app.client.run_sync(self.app.open())
        with contextlib.closing(sqlite3.connect(self.database)) as db:
            db.executescript(_AUDIT)

    # The driver ------------------------------------------------------------------------------------------------------

    def enqueue(self, *calls: Call[Any]) -> list[str]:
        ids = [handle.id for handle in self.app.enqueue_many_sync(calls)]
        self.known.update(ids)
        return ids

    def act(self, what: str = "return", *, count: int = 1, **more: Any) -> list[str]:
        """Enqueue jobs of the task that acts by its argument."""
        return self.enqueue(*(act.bind(what, **more) for _ in range(count)))

    def open_gate(self, name: str) -> None:
        (self.gates / name).touch()

    # Workers ---------------------------------------------------------------------------------------------------------

    def start(
        self,
        *arguments: str,
        queues: str = "default:4",
        app: str = "journey_app:app",
        point: tuple[str, str, str] | None = None,
        ready: bool = True,
        **settings: float | str,
    ) -> Worker:
        """A worker process; with a `point`, one that stops or dies there. Settings go in as TREADLE_*."""
        command = ["-m", "treadle.cli"] if point is None else [str(HERE / "with_points.py"), *point]
        log = self.folder / f"worker-{len(self.workers)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, *command, "worker", "-A", app, "-q", queues, *arguments],
                cwd=HERE,
                env=self.environ(**settings),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        worker = Worker(self, process, log)
        self.workers.append(worker)
        if ready:
            self.wait(worker.is_serving, "the worker serves")
        return worker

    def start_many(self, count: int = 2, **how: Any) -> list[Worker]:
        """Several worker processes at once: they come up side by side."""
        started = [self.start(ready=False, **how) for _ in range(count)]
        for worker in started:
            self.wait(worker.is_serving, "the worker serves")
        return started

    def environ(self, **settings: float | str) -> dict[str, str]:
        own = {f"TREADLE_{name.upper()}": str(value) for name, value in {**QUICK, **settings}.items()}
        plain = {
            name: value for name, value in os.environ.items() if not name.startswith(("TREADLE_", "COV_", "PYTEST"))
        }
        return {
            **plain,
            **own,
            "TREADLE_URL": self.url,
            "TREADLE_LOOP": "asyncio",  # as most people have it; the journeys on PostgreSQL go by uvloop
            "JOURNEY_EFFECTS": str(self.effects_file),
            "JOURNEY_GATES": str(self.gates),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def processes(self) -> list[int]:
        """Every living process that belongs to this stage, whoever started it."""
        mark = f"JOURNEY_GATES={self.gates}".encode()
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes().split(b"\0") and state_of(int(entry.name)) != "Z":
                        found.append(int(entry.name))
        return found

    # Witnesses -------------------------------------------------------------------------------------------------------

    def ask(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        if self._db is None:
            self._db = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=30)
            self._db.row_factory = sqlite3.Row
        return self._db.execute(sql, values).fetchall()

    def jobs(self) -> dict[str, sqlite3.Row]:
        return {row["id"]: row for row in self.ask("select * from treadle_job")}

    def job(self, id: str) -> sqlite3.Row:
        (row,) = self.ask("select * from treadle_job where id = ?", id)
        return row

    def state(self, id: str) -> str:
        return self.job(id)["state"]

    def errors(self, id: str) -> list[dict[str, Any]]:
        rows = self.ask("select entry from treadle_job_error join treadle_job using (seq) where id = ? order by n", id)
        return [json.loads(row["entry"]) for row in rows]

    def history(self, *ids: str) -> list[Move]:
        moves = [Move(**dict(row)) for row in self.ask("select * from journey_history order by n")]
        return [move for move in moves if not ids or move.id in ids]

    def claims(self, *ids: str) -> list[Move]:
        return [move for move in self.history(*ids) if move.is_claim]

    def effects(self, what: str = "effect", *ids: str) -> list[Effect]:
        with self.effects_file.open("rb") as file:
            file.seek(self._effects_read)
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._effects_read += len(whole) + 1
            self._effects += [Effect(**json.loads(line)) for line in whole.splitlines()]
        return [each for each in self._effects if each.what == what and (not ids or each.id in ids)]

    def began(self, *ids: str) -> Callable[[], bool]:
        """A condition: every one of these jobs has begun to run."""
        return lambda: {each.id for each in self.effects("began", *ids)} >= set(ids)

    def pods_of(self, pid: int) -> list[str]:
        """The pods that a process registered and whose rows are still there."""
        return [row["id"] for row in self.ask("select * from treadle_pod") if json.loads(row["card"])["pid"] == pid]

    def serving(self) -> list[int]:
        """The living processes that have a pod."""
        cards = [json.loads(row["card"]) for row in self.ask("select card from treadle_pod where not lost")]
        return sorted({card["pid"] for card in cards} & set(self.processes()))

    def held_by(self, pods: Sequence[str]) -> list[str]:
        """The jobs that are running under these pods, dead or alive."""
        running = self.ask("select id, pod from treadle_job where state = 'running'")
        return [row["id"] for row in running if row["pod"] in pods]

    # Waiting ---------------------------------------------------------------------------------------------------------

    def wait(self, condition: Callable[[], object], what: str, within: float = PATIENCE) -> float:
        """Wait until it holds; answers with how long that took."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > within:
                raise AssertionError(f"not within {within:g} s: {what}\n{self.report()}")
            time.sleep(0.02)
        return time.monotonic() - begun

    def drain(self, *ids: str, within: float = PATIENCE) -> float:
        """Wait until all jobs (or these) have ended."""
        wanted = ids or tuple(self.known)
        return self.wait(lambda: self._have_ended(wanted), "all jobs have ended", within)

    def _have_ended(self, ids: Sequence[str]) -> bool:
        live = {row["id"] for row in self.ask("select id from treadle_job where finished_at is null")}
        return live.isdisjoint(ids)

    def recovery(self, victim: Worker, ids: Iterable[str], *, within: float = PATIENCE) -> float:
        """From the death of a worker to the next claim of one of these, its jobs."""
        assert victim.killed_at is not None
        wanted = set(ids)

        def next_claim() -> float | None:
            return next((each.at for each in self.claims(*wanted) if each.at > (victim.killed_at or 0)), None)

        self.wait(lambda: next_claim() is not None, "a job of the dead worker is claimed again", within)
        took = (next_claim() or 0) - victim.killed_at
        self.tally.recoveries.append(took)
        return took

    def report(self) -> str:
        """All that may tell why a journey went wrong."""
        rows = self.jobs().values()
        lines = [f"states: {dict(Counter(row['state'] for row in rows))}"]
        lines += [
            f"  {row['id']} {row['state']} attempt {row['attempt']} crashes {row['crashes']} pod {row['pod']}"
            for row in list(rows)[:20]
        ]
        lines += [f"pod {dict(row)}" for row in self.ask("select id, lost, lease_until, beat_at from treadle_pod")]
        for worker in self.workers:
            lines.append(f"--- worker {worker.pid}, exit code {worker.process.poll()}")
            lines += worker.log.splitlines()[-25:]
        return "\n".join(lines)

    # The end ---------------------------------------------------------------------------------------------------------

    def stop_workers(self) -> None:
        """Ask those that are left to stop; an idle worker obeys at once, with 0."""
        left = [worker for worker in self.workers if worker.lives]
        for worker in left:
            worker.send(signal.SIGTERM)
        for worker in left:
            assert worker.exit_code() == 0, worker.log

    def check(self) -> None:
        """What holds at the end of every journey."""
        self.wait(lambda: not self.processes(), "no process is left behind", within=10)
        jobs, moves = self.jobs(), defaultdict[str, list[Move]](list)
        for move in self.history():
            moves[move.id].append(move)
        effects = {(each.id, each.token) for each in self.effects()}

        assert self.known <= jobs.keys(), f"lost: {self.known - jobs.keys()}"
        assert jobs.keys() <= self.known | self.perhaps, "ghosts: jobs that nobody enqueued"
        for id, job in jobs.items():
            check_life(id, job, moves[id])
            if job["state"] == "succeeded":
                assert (id, job["finished_token"]) in effects, f"{id} succeeded, but not under the accepted token"
        with contextlib.closing(sqlite3.connect(self.database)) as db:
            assert db.execute("pragma integrity_check").fetchone() == ("ok",)

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        self.app.close_sync()
        if self._db is not None:
            self._db.close()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for worker in self.workers:
            worker.process.wait()


def check_life(id: str, job: Mapping[str, Any] | sqlite3.Row, moves: Sequence[Move]) -> None:
    """One job's whole history: one owner at a time, every token once, one end, and the attempts add up."""
    told = "\n".join(f"  {move}" for move in moves)
    assert job["state"] in TERMINAL, f"{id} is {job['state']}:\n{told}"
    assert [move.is_end for move in moves] == [False] * (len(moves) - 1) + [True], f"{id} did not end once:\n{told}"
    assert moves[-1].became == job["state"]
    tokens = [move.token for move in moves if move.is_claim]
    assert len(set(tokens)) == len(tokens), f"{id}: a token was used twice:\n{told}"
    for before, move in itertools.pairwise(moves):
        assert move.was == before.became, f"{id}: {move.was} is not what it was:\n{told}"
        assert not (move.was == "running" and move.is_claim), f"{id} had two owners:\n{told}"
        assert move.is_claim or move.token == before.token, f"{id}: changed under another token:\n{told}"
    charged = len(tokens) - sum(move.is_given_back for move in moves)
    assert job["attempt"] == charged, f"{id}: attempt {job['attempt']}, but {charged} were charged:\n{told}"
    assert charged <= (job["max_attempts"] or 10), f"{id}: more attempts than it may have:\n{told}"
    assert job["crashes"] <= 3, f"{id}: {job['crashes']} crashes"


def state_of(pid: int) -> str:
    """The kernel's letter for what a process is doing; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
