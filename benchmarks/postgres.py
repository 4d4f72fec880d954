"""The PostgreSQL suite: what is measured, and what it should come to."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from .harness import Bench, Figures, Target, Workload
from .peers import Peer, find
from .peers.treadle_postgres import TreadlePostgres
from .proxy import Proxy
from .server import SOCKET
from .servers import bench_of
from .shapes import COSTS, SHAPES, drain_four, enqueue_of_many, filled_drain
from .workloads import bulk, caller_1, callers_100, idle, idle_50, import_time, pickup_across
from .workloads import drain as drain_of_file

MILLION_MORE = 0.25  # on top of the backlog: what all rounds together may take from it
TRIPS = 5_000
SQLITE = "treadle-sqlite"


def drain(bench: Bench, peer: Peer) -> Figures:
    return filled_drain(bench, peer, int(bench.sizes.drain * peer.share))


def drain_sqlite(bench: Bench, peer: Peer) -> Figures:
    """Not this peer but its brother on a file, in the same rounds: nobody should have to leave SQLite for speed."""
    return drain_of_file(Bench(bench.sizes, bench.folder), find(SQLITE))


def drain_two(bench: Bench, peer: Peer) -> Figures:
    return filled_drain(bench, peer, int(bench.sizes.drain * 2 * peer.share), workers=2)


def drain_snapshot(bench: Bench, peer: Peer) -> Figures:
    own = bench_of(bench)
    jobs = own.sizes.drain * 3
    with own.place(peer) as place, own.postgres.connected(place) as other:
        own.prepare(peer, place)
        other.execute("begin isolation level repeatable read")
        other.execute("select count(*) from treadle.job")
        with own.producer(peer, place) as producer:
            producer.do("bulk", jobs=jobs)
        own.postgres.run(place, b"analyze")
        own.postgres.settle()
        return own.drain(peer, place, jobs)


def drain_million(bench: Bench, peer: Peer) -> Figures:
    assert isinstance(peer, TreadlePostgres)
    kept = _kept(bench, peer, "ready", peer.ready(int(bench.sizes.backlog * (1 + MILLION_MORE))))
    bench.prepare(peer, kept)
    return bench_of(bench).drain(peer, kept, bench.sizes.drain, all_of_them=False)


def drain_scheduled(bench: Bench, peer: Peer) -> Figures:
    assert isinstance(peer, TreadlePostgres)
    return _beside(bench, peer, _kept(bench, peer, "scheduled", peer.scheduled(bench.sizes.backlog)))


def drain_finished(bench: Bench, peer: Peer) -> Figures:
    assert isinstance(peer, TreadlePostgres)
    return _beside(bench, peer, _kept(bench, peer, "finished", peer.finished(bench.sizes.backlog)))


def _beside(bench: Bench, peer: Peer, place: Path) -> Figures:
    """A drain in a database with a million of others."""
    own = bench_of(bench)
    with own.producer(peer, place) as producer:
        producer.do("bulk", jobs=own.sizes.drain)
    own.prepare(peer, place)
    return own.drain(peer, place, own.sizes.drain, all_of_them=False)


def _kept(bench: Bench, peer: Peer, what: str, statement: str) -> Path:
    """A database that is filled once and kept: filling takes longer than measuring."""
    own, name = bench_of(bench), f"{peer.name} {what}"
    kept = own._backlogs.get(name)
    if kept is None:
        kept = own._folder(peer)
        own.postgres.create(kept, own.template(peer))
        with own.producer(peer, kept) as producer:
            producer.do("paced", jobs=1, rate=1000.0)  # the queue is known
        own.postgres.run(kept, statement.encode())
        own._backlogs[name] = kept
    shutil.rmtree(kept / "tally", ignore_errors=True)
    return kept


def trips(bench: Bench, peer: Peer) -> Figures:
    """A drain through a proxy that counts. It is slower than one without: no time is taken from it."""
    own, jobs = bench_of(bench), int(min(TRIPS, bench.sizes.drain) * peer.share)
    with own.place(peer) as place:
        with own.producer(peer, place) as producer:
            producer.do("bulk", jobs=jobs)
        own.prepare(peer, place)
        peer.unfinished(place)  # our own connection is not to go through it
        direct = os.environ[SOCKET]
        with Proxy(direct, place) as proxy, contextlib.ExitStack() as stack:
            stack.callback(os.environ.__setitem__, SOCKET, direct)
            os.environ[SOCKET] = proxy.address
            own.drain(peer, place, jobs)
            return {"trips": proxy.trips / jobs}


OURS = "treadle-postgres"
PEER = "pgqueuer"
ENQUEUE = ("rate", "producer_us", "server_us", "commits", "wal_bytes")

WORKLOADS = (
    Workload(
        "drain",
        "No-op jobs enqueued beforehand, one worker process",
        ("rate", *COSTS),
        drain,
        (Target("rate", 2.5, beside=("drain", PEER)), Target("worker_us", 60, at_least=False)),
    ),
    Workload(
        "drain-sqlite",
        "The same by Treadle on a SQLite file, one worker process",
        ("rate", "worker_us", "commits", "wal_bytes"),
        drain_sqlite,
        (Target("rate", 1, beside=("drain", OURS)),),
        run_by=SQLITE,
    ),
    Workload(
        "drain-two",
        "The same, two worker processes and twice the jobs",
        ("rate", *COSTS, "smaller_share"),
        drain_two,
        (Target("rate", 2, beside=("drain-two", PEER)), Target("rate", 1, beside=("drain", OURS))),
    ),
    Workload(
        "drain-four",
        "The same, four worker processes and four times the jobs",
        ("rate", *COSTS),
        drain_four,
        (Target("rate", 1, beside=("drain-two", OURS)),),
    ),
    Workload(
        "drain-million",
        "The same number of jobs, out of a million that are ready",
        ("rate", *COSTS),
        drain_million,
        (Target("rate", 0.8, beside=("drain", OURS)),),
    ),
    Workload(
        "drain-scheduled",
        "The same number of jobs, beside a million that are due tomorrow",
        ("rate", *COSTS),
        drain_scheduled,
        (Target("rate", 0.8, beside=("drain", OURS)),),
    ),
    Workload(
        "drain-finished",
        "The same number of jobs, beside a million that have finished",
        ("rate", *COSTS),
        drain_finished,
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
        (Target("rate", 1.5, beside=("bulk", PEER)), Target("rate", 1.5, beside=("bulk", "awa-pg"))),
    ),
    Workload(
        "caller-1",
        "One caller, one job after the other",
        ENQUEUE,
        caller_1,
        (Target("rate", 1, beside=("caller-1", PEER)),),
    ),
    *enqueue_of_many(PEER, "procrastinate"),
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
        (
            Target("p50_ms", 1, at_least=False, beside=("pickup", PEER)),
            Target("p50_ms", 2.0, at_least=False),
            Target("p99_ms", 10.0, at_least=False),
        ),
    ),
    *SHAPES,
    Workload("trips", "A drain through a proxy that counts, one worker process", ("trips",), trips, once=True),
    Workload(
        "idle",
        "An idle worker with one queue, over ten seconds",
        ("cpu_percent", "memory_mb"),
        idle,
        (Target("cpu_percent", 1.0, at_least=False),),
        once=True,
    ),
    Workload(
        "idle-50",
        "An idle worker with fifty queues",
        ("cpu_percent", "memory_mb"),
        idle_50,
        (Target("cpu_percent", 1.0, at_least=False),),
        once=True,
    ),
    Workload(
        "import",
        "`import` of the library",
        ("import_ms", "modules"),
        import_time,
        (Target("import_ms", 150, at_least=False),),
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
* **drain-million, -scheduled, -finished**: the rows of the million are written by SQL, once. From those that are ready
  each round takes its jobs from the front; beside the others its jobs are enqueued anew.
* **drain-snapshot**: a transaction of another session is open from before the enqueue to the end, so that no row
  version can be cleared away.
* **bulk, callers**: from the call to its return, which is after the commit.
* **pickup**: CLOCK_MONOTONIC, which all processes share; 20 jobs a second with ±40 % jitter.
* **steady**: every job is sent at its instant, whether or not those before it are committed (blocking libraries: by 16
  threads), until the time is over; the pickup times are those of jobs that ran up to five seconds later.
* **naps**: `asyncio.sleep`, or `time.sleep` in a thread, with exactly so many slots for everybody.
* **memory**: proportional set size of the worker and its children.
* **trips**: requests that a client waits for (Query and Sync messages), counted by a proxy between worker and server.
* **processor time**: read from the kernel's clocks of the worker (or the producer), and of all processes of the server
  together, over the span that is measured.
* **commits**: transactions that the server counted in this database, read-only ones too, and those of start and stop.
* **WAL bytes**: how far the server's log advanced over the span that is measured.
* **others**: processor time of the machine that neither our processes nor the server took, as a share of all cores.
"""
