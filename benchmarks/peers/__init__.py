"""Peers: the libraries that are measured, one small file each, behind one interface.

A peer is asked from two places. The harness, which must never open a peer's database while others use it, asks for
commands and environments. The child process asks for a Producer. What is counted (a no-op job) and how (a Tally) is
the same for all.

To add one: write `peers/NAME.py` with a class like this, put the declared jobs where its worker can import them, and
name it in PEERS. What a peer cannot do it leaves out of `does`.
"""

from __future__ import annotations

import importlib
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

PEERS = {
    "treadle-sqlite": "treadle_sqlite",
    "huey-sqlite": "huey_sqlite",
    "treadle-postgres": "treadle_postgres",
    "pgqueuer": "pgqueuer",
    "awa-pg": "awa_pg",
    "procrastinate": "procrastinate",
    "chancy": "chancy",
    "saq-postgres": "saq_postgres",
    "celery": "celery",
    "dramatiq": "dramatiq",
    "arq": "arq",
    "rq": "rq",
    "saq-redis": "saq_redis",
    "huey-redis": "huey_redis",
}
TALLY = "BENCH_TALLY"  # the folder of the tallies, in every child's environment

# Workloads that ask nothing special of a library. A peer takes away what it cannot do, and adds what it can.
COMMON = frozenset({
    "drain", "drain-two", "drain-four", "bulk", "caller-1", "callers-16", "callers-64", "callers-100",
    "steady-500", "steady-5000", "naps-10", "naps-100", "naps-1000", "payload-100", "payload-10k", "payload-100k",
    "failures", "memory", "start-up", "idle", "import",
})  # fmt: skip


class Producer(Protocol):
    """Enqueues, in a process of its own. Every method answers with the number of jobs, once they are committed."""

    def bulk(self, jobs: int, task: str = "noop", size: int = 0) -> int:
        """Many at once, by the call that the library has for it; with a payload of so many bytes."""
        ...

    def callers(self, callers: int, seconds: float) -> int:
        """So many callers that each enqueue one job after the other."""
        ...

    def blocking(self, seconds: float) -> int:
        """One caller without an event loop, one job after the other."""
        ...

    def paced(self, jobs: int, rate: float) -> int:
        """At a steady pace, with some jitter, jobs that carry the instant just before their enqueue."""
        ...

    def steady(self, jobs: int, rate: float) -> int:
        """A stream that does not wait for its own commits; it ends on time, and answers with what it sent."""
        ...

    def beside_worker(self, jobs: int, rate: float, slots: int) -> int:
        """The same, with the worker in this very process; until all have run."""
        ...


class Peer(Protocol):
    name: str
    title: str
    module: str  # what its users import
    does: frozenset[str]  # names of workloads
    share: float  # of a workload's jobs: a slower peer is measured on fewer, so that a run takes seconds
    stop: signal.Signals  # ends a worker gracefully
    python: str  # the interpreter that has the library
    requirements: tuple[str, ...]  # of an environment of its own; none: the library is in ours

    def settings(self) -> dict[str, str]:
        """Versions and settings, for the report."""
        ...

    def environ(self, place: Path) -> dict[str, str]:
        """For every process that shall use the database in this folder."""
        ...

    def create(self, place: Path) -> None:
        """Make the database."""
        ...

    def database(self, place: Path) -> Path | None:
        """The SQLite file, if it is one: its commits and WAL bytes are then counted."""
        ...

    def worker(self, queues: dict[str, int]) -> list[str]:
        """The command line of one worker process for these queues and slots."""
        ...

    def slotted(self, slots: int) -> list[str]:
        """The same with exactly so many slots, whatever is best for no-op jobs."""
        ...

    def unfinished(self, place: Path) -> int:
        """How many due jobs the database still holds, read while the worker runs."""
        ...

    def backlog(self, place: Path, scheduled: int, finished: int) -> None:
        """Write jobs that are not to be run straight into the tables."""
        ...

    def producer(self) -> AbstractContextManager[Producer]: ...


def find(name: str) -> Peer:
    peer: Peer = importlib.import_module(f"{__name__}.{PEERS[name]}").peer
    return peer
