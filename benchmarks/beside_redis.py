"""The Redis suite: libraries on Redis, beside us on PostgreSQL, which promises more for what has been enqueued."""

from __future__ import annotations

from .harness import Target, Workload
from .postgres import drain, drain_two
from .shapes import SHAPES, drain_four, enqueue_of_many
from .workloads import bulk, caller_1, idle, import_time, pickup_across

OURS = "treadle-postgres"
PEERS = ("treadle-postgres", "celery", "dramatiq", "arq", "rq", "saq-redis", "huey-redis")
ON_REDIS = PEERS[1:]
COSTS = ("worker_us", "server_us", "trips", "commits", "wal_bytes")
ENQUEUE = ("rate", "producer_us", "server_us", "trips", "commits", "wal_bytes")


def _first(workload: str) -> tuple[Target, ...]:
    return tuple(Target("rate", 1, beside=(workload, peer)) for peer in ON_REDIS)


WORKLOADS = (
    Workload("drain", "No-op jobs enqueued beforehand, one worker", ("rate", *COSTS), drain, _first("drain")),
    Workload("drain-two", "The same, two workers and twice the jobs", ("rate", *COSTS, "smaller_share"), drain_two),
    Workload("drain-four", "The same, four workers and four times the jobs", ("rate", *COSTS), drain_four),
    Workload("bulk", "50,000 jobs at once (fewer for slower peers)", ENQUEUE, bulk, _first("bulk")),
    Workload("caller-1", "One caller, one job after the other", ENQUEUE, caller_1),
    *enqueue_of_many(),
    Workload(
        "pickup",
        "From just before the enqueue to the task's first line, 20 jobs/s, worker in another process",
        ("p50_ms", "p99_ms", "max_ms"),
        pickup_across,
    ),
    *SHAPES,
    Workload("idle", "An idle worker with one queue, over ten seconds", ("cpu_percent", "memory_mb"), idle, once=True),
    Workload("import", "`import` of the library", ("import_ms", "modules"), import_time),
)

HOW = """\
One Redis server and one PostgreSQL server of the harness' own, on the same machine as everything else. **They do not
promise the same.** PostgreSQL has fsync and synchronous_commit on: an enqueue that has returned is on the disk. Redis
runs at its own defaults, snapshots and no append-only file: an enqueue that has returned is in memory, and what came
after the last snapshot (up to a minute, or five, or an hour) is lost when the server or the machine dies. That is less
than a sync for every commit. We have no storage on Redis: the first row is Treadle on PostgreSQL.

Every measurement has fresh processes and an emptied server; each peer runs in a virtual environment of its own, with
the versions and settings above, by its own worker command where it has one. The rounds are interleaved: each takes
every workload for every peer once, the next one in the opposite order, and the table has the median, with the lowest
and the highest round.

* **drain**: from the first line of the first job until the server says that no job is left. Huey, and Celery at its
  defaults, take a job off the list when it starts: a worker that dies loses it.
* **one worker** is one process, but for Celery: a parent, and a child for each core, which is its default.
* **bulk, callers**: from the call to its return. Callers of blocking libraries are threads.
* **pickup**: CLOCK_MONOTONIC, which all processes share; 20 jobs a second with ±40 % jitter.
* **steady**: every job is sent at its instant, whether or not those before it have returned (blocking libraries: by 16
  threads), until the time is over; the pickup times are those of jobs that ran up to five seconds later.
* **naps**: `asyncio.sleep`, or `time.sleep` in a thread, with exactly so many slots for everybody.
* **memory**: proportional set size of the worker and its children.
* **round trips**: how often Redis has read from a client (total_reads_processed): requests sent together count once.
* **processor time**: read from the kernel's clocks of the worker (or the producer), and of the server.
* **others**: processor time of the machine that neither our processes nor the servers took, as a share of all cores.
"""
