"""The PostgreSQL suite: how its measurements are taken, what they are, and what they should come to."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import venvs
from .harness import Bench, Figures, Target, Workload
from .peers import Peer, find
from .peers.treadle_postgres import TreadlePostgres
from .processes import Failed, cpu_seconds
from .server import Server
from .tally import Tallies
from .workloads import bulk, caller_1, callers_100, pickup_across

MILLION_MORE = 0.25  # on top of the backlog: what all rounds together may take from it


@dataclass
class PostgresBench(Bench):
    """A Bench whose databases are those of a server, and whose costs are the server's too."""

    server: Server = None  # type: ignore[assignment]
    _templates: dict[str, Path] = field(default_factory=dict)

    @contextlib.contextmanager
    def place(self, peer: Peer) -> Iterator[Path]:
        place = self._folder(peer)
        try:
            self.server.create(place, self._template(peer))
            yield place
        finally:
            self.server.drop(place)
            shutil.rmtree(place)

    def _template(self, peer: Peer) -> Path:
        """A database with the peer's empty tables, made once: every other one is a copy of it."""
        if peer.name not in self._templates:
            place = self._folder(peer)
            self.server.create(place)
            self.in_child(peer, place, "create")
            self._templates[peer.name] = place
        return self._templates[peer.name]

    def enqueue(self, peer: Peer, place: Path, action: str, **arguments: float) -> Figures:
        commits, extra = self.server.commits(place), 0.0
        with self.producer(peer, place) as producer:
            extra += producer.do("callers", callers=1, seconds=0.01)["jobs"]  # it is up, and the database is open
            cpu, server, wal = cpu_seconds(producer.pid), self.server.cpu(), self.server.wal()
            answer = producer.do(action, **arguments)
            jobs = answer["jobs"]
            figures = {
                "rate": jobs / answer["seconds"],
                "producer_us": (cpu_seconds(producer.pid) - cpu) / jobs * 1e6,
                "server_us": (self.server.cpu() - server) / jobs * 1e6,
                "wal_bytes": (self.server.wal() - wal) / jobs,
            }
        return figures | {"commits": (self.server.commits(place) - commits) / (jobs + extra)}

    def drain(self, peer: Peer, place: Path, jobs: int, workers: int = 1, *, all_of_them: bool = True) -> Figures:
        """From the first line of the first job until the database says that all are done; or, out of a backlog, until
        so many have run."""
        tallies = Tallies(place / "tally")
        commits = self.server.commits(place)
        with contextlib.ExitStack() as stack:
            pids = [stack.enter_context(self.worker(peer, place)) for _ in range(workers)]
            self.wait(lambda: tallies.count > 0, "the first job")
            cpu, server, wal = sum(map(cpu_seconds, pids)), self.server.cpu(), self.server.wal()
            began, done = tallies.first, tallies.count
            self.wait(lambda: tallies.count >= jobs, f"{jobs} jobs")
            if all_of_them:
                self.wait(lambda: peer.unfinished(place) == 0, "the last finish")
                if tallies.count != jobs:
                    raise Failed(f"{tallies.count} runs of {jobs} jobs")
            ran, seconds = tallies.count, time.monotonic() - began
            counted = ran - done
            figures = {
                "rate": ran / seconds,
                "worker_us": (sum(map(cpu_seconds, pids)) - cpu) / counted * 1e6,
                "server_us": (self.server.cpu() - server) / counted * 1e6,
                "wal_bytes": (self.server.wal() - wal) / counted,
                **({"smaller_share": tallies.counts[workers - 1] / ran} if workers > 1 else {}),
            }
        # With those of the workers' start and end: what a session did is known for certain only when it is gone.
        return figures | {"commits": (self.server.commits(place) - commits) / tallies.count}

    def prepare(self, place: Path) -> None:
        """As autovacuum would have done it by the time that a backlog has grown."""
        self.server.run(place, b"vacuum analyze")
        self.server.settle()


def run_of(bench: Bench) -> PostgresBench:
    assert isinstance(bench, PostgresBench)
    return bench


def drain(bench: Bench, peer: Peer, workers: int = 1, times: float = 1.0) -> Figures:
    own = run_of(bench)
    jobs = int(own.sizes.drain * times * peer.share)
    with own.place(peer) as place:
        with own.producer(peer, place) as producer:
            producer.do("bulk", jobs=jobs)
        own.prepare(place)
        return own.drain(peer, place, jobs, workers)


def drain_two(bench: Bench, peer: Peer) -> Figures:
    """Twice the jobs: the second process starts a little later than the first."""
    return drain(bench, peer, workers=2, times=2.0)


def drain_snapshot(bench: Bench, peer: Peer) -> Figures:
    own = run_of(bench)
    jobs = own.sizes.drain * 3
    with own.place(peer) as place, own.server.connected(place) as other:
        own.prepare(place)
        other.execute("begin isolation level repeatable read")
        other.execute("select count(*) from treadle.job")
        with own.producer(peer, place) as producer:
            producer.do("bulk", jobs=jobs)
        own.server.run(place, b"analyze")
        own.server.settle()
        return own.drain(peer, place, jobs)


def drain_million(bench: Bench, peer: Peer) -> Figures:
    """The database is filled once and kept: filling takes longer than measuring."""
    own = run_of(bench)
    assert isinstance(peer, TreadlePostgres)
    kept = own._backlogs.get(peer.name)
    if kept is None:
        kept = own._folder(peer)
        own.server.create(kept, own._template(peer))
        with own.producer(peer, kept) as producer:
            producer.do("callers", callers=1, seconds=0.01)  # the queue is known
        own.server.run(kept, peer.ready(int(own.sizes.backlog * (1 + MILLION_MORE))).encode())
        own._backlogs[peer.name] = kept
    shutil.rmtree(kept / "tally", ignore_errors=True)
    own.prepare(kept)
    return own.drain(peer, kept, own.sizes.drain, all_of_them=False)


@contextlib.contextmanager
def serving(names: list[str], folder: Path) -> Iterator[Server]:
    """The peers' environments, and a server of our own."""
    for peer in map(find, names):
        if peer.requirements:
            venvs.make(peer.name, peer.requirements)
    server = Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.remove()


OURS = "treadle-postgres"
PEER = "pgqueuer"
COSTS = ("worker_us", "server_us", "commits", "wal_bytes")
ENQUEUE = ("rate", "producer_us", "server_us", "commits", "wal_bytes")

WORKLOADS = (
    Workload(
        "drain",
        "No-op jobs enqueued beforehand, one worker process",
        ("rate", *COSTS),
        drain,
        (Target("rate", 2, beside=("drain", PEER)),),
    ),
    Workload(
        "drain-two",
        "The same, two worker processes and twice the jobs",
        ("rate", *COSTS, "smaller_share"),
        drain_two,
        (Target("rate", 1.8, beside=("drain-two", PEER)), Target("rate", 1, beside=("drain", OURS))),
    ),
    Workload(
        "drain-million",
        "The same number of jobs, out of a million that are ready",
        ("rate", *COSTS),
        drain_million,
        (Target("rate", 0.8, beside=("drain", OURS)),),
    ),
    Workload(
        "drain-snapshot",
        "Three times the jobs, while another session holds a snapshot from before their enqueue",
        ("rate", *COSTS),
        drain_snapshot,
        (Target("rate", 0.7, beside=("drain", OURS)),),
    ),
    Workload(
        "bulk",
        "50,000 jobs at once",
        ENQUEUE,
        bulk,
        (Target("rate", 1.5, beside=("bulk", PEER)),),
    ),
    Workload(
        "caller-1",
        "One caller, one job after the other",
        ENQUEUE,
        caller_1,
        (Target("rate", 1, beside=("caller-1", PEER)),),
    ),
    Workload(
        "callers-100",
        "100 callers at once, each enqueues one job after the other",
        ENQUEUE,
        callers_100,
        (Target("rate", 10_000),),
    ),
    Workload(
        "pickup",
        "From just before the enqueue to the task's first line, 20 jobs/s, worker in another process",
        ("p50_ms", "p99_ms", "max_ms"),
        pickup_across,
        (Target("p50_ms", 2.0, at_least=False), Target("p99_ms", 10.0, at_least=False)),
    ),
)

HOW = """\
One PostgreSQL server of the harness' own, on the same machine as everything else, with fsync and synchronous_commit on.
Every measurement has fresh processes and a fresh database; each peer runs in a virtual environment of its own, with
the versions and settings above, by its own worker command where it has one. The rounds are interleaved: each takes
every workload for every peer once, the next one in the opposite order, and the table has the median, with the lowest
and the highest round. Before a drain the tables are vacuumed and analysed, and a checkpoint is made.

* **drain**: from the first line of the first job until the database says that no job is left. The jobs were enqueued
  before; the time that a worker needs to start is not counted.
* **drain-million**: the rows of the backlog are written by SQL, once; each round takes its jobs from the front of it.
* **drain-snapshot**: a transaction of another session is open from before the enqueue to the end, so that no row
  version can be cleared away.
* **bulk, callers**: from the call to its return, which is after the commit.
* **pickup**: CLOCK_MONOTONIC, which all processes share; 20 jobs a second with ±40 % jitter.
* **processor time**: read from the kernel's clocks of the worker (or the producer), and of all processes of the server
  together, over the span that is measured.
* **commits**: transactions that the server counted in this database, read-only ones too, and those of start and stop.
* **WAL bytes**: how far the server's log advanced over the span that is measured.
* **others**: processor time of the machine that neither our processes nor the server took, as a share of all cores.
"""
