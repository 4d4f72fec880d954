"""Workloads: what is measured, and what it should come to."""

from __future__ import annotations

import json
import math
import statistics
import time

from . import processes
from .harness import Bench, Figures, Target, Workload
from .peers import Peer
from .processes import Failed, cpu_seconds, memory
from .tally import Tallies

WARM = 5  # pickups that are not counted


def drain(bench: Bench, peer: Peer, workers: int = 1) -> Figures:
    jobs = int(bench.sizes.drain * workers * peer.share)
    with bench.place(peer) as place:
        with bench.producer(peer, place) as producer:
            producer.do("bulk", jobs=jobs)
        return bench.drain(peer, place, jobs, workers)


def drain_two(bench: Bench, peer: Peer) -> Figures:
    return drain(bench, peer, workers=2)


def drain_backlog(bench: Bench, peer: Peer) -> Figures:
    place = bench.backlog_place(peer)
    with bench.producer(peer, place) as producer:
        producer.do("bulk", jobs=bench.sizes.drain)
    return bench.drain(peer, place, bench.sizes.drain)


def bulk(bench: Bench, peer: Peer) -> Figures:
    """The middle one of three: half a second each is too short to trust one."""
    runs = []
    for _ in range(3):
        with bench.place(peer) as place:
            runs.append(bench.enqueue(peer, place, "bulk", jobs=int(bench.sizes.bulk * peer.share)))
    return sorted(runs, key=lambda figures: figures["rate"])[1]


def callers(bench: Bench, peer: Peer, count: int) -> Figures:
    with bench.place(peer) as place:
        return bench.enqueue(peer, place, "callers", callers=count, seconds=bench.sizes.callers_seconds)


def callers_100(bench: Bench, peer: Peer) -> Figures:
    return callers(bench, peer, 100)


def caller_1(bench: Bench, peer: Peer) -> Figures:
    return callers(bench, peer, 1)


def caller_1_sync(bench: Bench, peer: Peer) -> Figures:
    with bench.place(peer) as place:
        return bench.enqueue(peer, place, "blocking", seconds=bench.sizes.callers_seconds)


def pickup_same(bench: Bench, peer: Peer) -> Figures:
    with bench.place(peer) as place, bench.producer(peer, place) as producer:
        sizes = bench.sizes
        producer.do("beside_worker", jobs=WARM + sizes.paced, rate=sizes.rate, slots=sizes.slots)
        return _pickup(Tallies(place / "tally"), WARM + sizes.paced)


def pickup_across(bench: Bench, peer: Peer) -> Figures:
    with bench.place(peer) as place, bench.worker(peer, place), bench.producer(peer, place) as producer:
        bench.ping(peer, place, producer)
        sent = WARM + bench.sizes.paced
        producer.do("paced", jobs=sent, rate=bench.sizes.rate)
        tallies = Tallies(place / "tally")
        bench.wait(lambda: tallies.count > sent, "the last pickup")
        return _pickup(tallies, 1 + sent)


def _pickup(tallies: Tallies, sent: int) -> Figures:
    if tallies.count != sent:
        raise Failed(f"{tallies.count} of {sent} jobs ran")
    times = sorted(tallies.times(WARM))
    return {
        "p50_ms": statistics.median(times) * 1e3,
        "p99_ms": times[math.ceil(0.99 * len(times)) - 1] * 1e3,
        "max_ms": times[-1] * 1e3,
    }


def idle(bench: Bench, peer: Peer, queues: int = 1) -> Figures:
    served = {"default": bench.sizes.slots} | {f"q{number}": 10 for number in range(1, queues)}
    with bench.place(peer) as place, bench.worker(peer, place, served) as pid:
        with bench.producer(peer, place) as producer:
            bench.ping(peer, place, producer)
        time.sleep(bench.sizes.settle_seconds)
        began, cpu = time.monotonic(), cpu_seconds(pid)
        time.sleep(bench.sizes.idle_seconds)
        return {
            "cpu_percent": (cpu_seconds(pid) - cpu) / (time.monotonic() - began) * 100,
            "memory_mb": memory(pid) / 1024**2,
        }


def idle_50(bench: Bench, peer: Peer) -> Figures:
    return idle(bench, peer, queues=50)


def import_time(bench: Bench, peer: Peer) -> Figures:
    code = f"""if True:
        import json, sys, time
        before, began = len(sys.modules), time.perf_counter()
        import {peer.module}
        print(json.dumps([(time.perf_counter() - began) * 1e3, len(sys.modules) - before]))"""
    answers = [json.loads(processes.run_python(code, {}, peer.python)) for _ in range(bench.sizes.imports)]
    return {"import_ms": statistics.median(answer[0] for answer in answers), "modules": answers[0][1]}


HUEY = "huey-sqlite"

WORKLOADS = (
    Workload(
        "drain",
        "No-op jobs enqueued beforehand, one worker process",
        ("rate", "worker_us", "commits", "wal_bytes"),
        drain,
        (Target("rate", 15_000), Target("rate", 8, beside=("drain", HUEY))),
    ),
    Workload(
        "drain-backlog",
        "The same, with a million scheduled and a million finished jobs in the file",
        ("rate", "worker_us", "commits", "wal_bytes"),
        drain_backlog,
        (Target("rate", 0.8, beside=("drain", "treadle-sqlite")),),
    ),
    Workload(
        "drain-two",
        "Twice the jobs, two worker processes on one file",
        ("rate", "worker_us", "commits", "wal_bytes", "smaller_share"),
        drain_two,
    ),
    Workload(
        "bulk",
        "One `enqueue_many` of 50,000 jobs",
        ("rate", "producer_us", "commits", "wal_bytes"),
        bulk,
        (Target("rate", 80_000),),
    ),
    Workload(
        "callers-100",
        "100 callers at once, each enqueues one job after the other",
        ("rate", "producer_us", "commits", "wal_bytes"),
        callers_100,
        (Target("rate", 15_000),),
    ),
    Workload(
        "caller-1",
        "One caller, one job after the other",
        ("rate", "producer_us", "commits", "wal_bytes"),
        caller_1,
    ),
    Workload(
        "caller-1-sync",
        "The same without an event loop (`enqueue_sync`)",
        ("rate", "producer_us", "commits", "wal_bytes"),
        caller_1_sync,
    ),
    Workload(
        "pickup-same",
        "From just before `enqueue` to the task's first line, 20 jobs/s, worker in the same process",
        ("p50_ms", "p99_ms", "max_ms"),
        pickup_same,
        (Target("p50_ms", 1.0, at_least=False),),
    ),
    Workload(
        "pickup-across",
        "The same, worker in another process",
        ("p50_ms", "p99_ms", "max_ms"),
        pickup_across,
        (Target("p50_ms", 5.0, at_least=False),),
    ),
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
    Workload("import", "`import` of the library", ("import_ms", "modules"), import_time),
)
