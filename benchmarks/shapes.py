"""Workloads of other shapes, the same on every storage: many callers, a steady stream, naps, payloads, failures,
memory, and the time that a worker takes to start."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

from .harness import Bench, Figures, Target, Workload
from .peers import Peer
from .processes import Failed, cpu_seconds, memory
from .tally import Tallies
from .workloads import callers

LATE = 5.0  # so long after the last enqueue of a steady stream, what has not run is not waited for
NAPS = 200  # for every slot
Run = Callable[[Bench, Peer], Figures]


def filled_drain(
    bench: Bench,
    peer: Peer,
    jobs: int,
    *,
    task: str = "noop",
    size: int = 0,
    workers: int = 1,
    slots: int | None = None,
) -> Figures:
    """Enqueue, then drain."""
    with bench.place(peer) as place:
        with bench.producer(peer, place) as producer:
            answer = producer.do("bulk", jobs=jobs, task=task, size=size)
        bench.prepare(peer, place)
        found = bench.drain(peer, place, jobs, workers, slots)
        return found | {"enqueue_rate": answer["jobs"] / answer["seconds"]}


def drain_four(bench: Bench, peer: Peer) -> Figures:
    return filled_drain(bench, peer, int(bench.sizes.drain * 4 * peer.share), workers=4)


def callers_16(bench: Bench, peer: Peer) -> Figures:
    return callers(bench, peer, 16)


def callers_64(bench: Bench, peer: Peer) -> Figures:
    return callers(bench, peer, 64)


def steady(rate: float) -> Run:
    def run(bench: Bench, peer: Peer) -> Figures:
        jobs = int(rate * bench.sizes.steady_seconds)
        with bench.place(peer) as place, bench.worker(peer, place) as pid, bench.producer(peer, place) as producer:
            bench.ping(peer, place, producer)
            tallies, meter = Tallies(place / "tally"), bench.meter(peer, place)
            began, cpu, before = time.monotonic(), cpu_seconds(pid), tallies.count
            meter.begin()
            sent = int(producer.do("steady", jobs=jobs, rate=rate)["jobs"])
            until = time.monotonic() + LATE
            while tallies.count < before + sent and time.monotonic() < until:
                time.sleep(0.002)
            seconds, ran = time.monotonic() - began, tallies.count - before
            if not ran:
                raise Failed("no job ran")
            times = sorted(tallies.times(1))
            return {
                "rate": ran / seconds,
                "p50_ms": statistics.median(times) * 1e3,
                "p99_ms": times[math.ceil(0.99 * len(times)) - 1] * 1e3,
                "worker_ms_1000": (cpu_seconds(pid) - cpu) / ran * 1e6,
                **({"server_ms_1000": spent["server_us"]} if (spent := meter.span(ran)) else {}),
            }

    return run


def naps(slots: int) -> Run:
    def run(bench: Bench, peer: Peer) -> Figures:
        jobs = max(slots, min(slots * NAPS, int(bench.sizes.drain * max(peer.share, 0.1))))
        return filled_drain(bench, peer, jobs, task="nap", slots=slots)

    return run


def payload(size: int) -> Run:
    def run(bench: Bench, peer: Peer) -> Figures:
        jobs = min(int(bench.sizes.drain * peer.share), bench.sizes.payload_bytes // size)
        return filled_drain(bench, peer, jobs, task="carry", size=size)

    return run


def failures(bench: Bench, peer: Peer) -> Figures:
    return filled_drain(bench, peer, int(bench.sizes.drain * peer.share / 2), task="fail")


def memory_use(bench: Bench, peer: Peer) -> Figures:
    """A worker that has run one job, and the same worker after a drain."""
    jobs = int(bench.sizes.drain * peer.share)
    with bench.place(peer) as place, bench.worker(peer, place) as pid, bench.producer(peer, place) as producer:
        bench.ping(peer, place, producer)
        time.sleep(bench.sizes.settle_seconds)
        rest = memory(pid)
        producer.do("bulk", jobs=jobs)
        tallies = Tallies(place / "tally")
        bench.wait(lambda: tallies.count > jobs, f"{jobs} jobs")
        time.sleep(bench.sizes.settle_seconds)
        return {"rest_mb": rest / 1024**2, "after_mb": memory(pid) / 1024**2}


def start_up(bench: Bench, peer: Peer) -> Figures:
    """From the start of the worker's process to the first line of a job that waits for it."""
    with bench.place(peer) as place:
        with bench.producer(peer, place) as producer:
            producer.do("bulk", jobs=1)
        tallies, began = Tallies(place / "tally"), time.monotonic()
        with bench.worker(peer, place):
            bench.wait(lambda: tallies.count > 0, "the first job")
            return {"start_ms": (tallies.first - began) * 1e3}


COSTS = ("worker_us", "server_us", "commits", "wal_bytes")
STREAM = ("p50_ms", "p99_ms", "rate", "worker_ms_1000", "server_ms_1000")


def enqueue_of_many(*beside: str) -> tuple[Workload, ...]:
    """16 and 64 callers; with 64 we are to be five times these peers."""
    costs = ("rate", "producer_us", "server_us", "commits", "wal_bytes")
    five = tuple(Target("rate", 5, beside=("callers-64", peer)) for peer in beside)
    title = "{} callers at once, each enqueues one job after the other"
    return (
        Workload("callers-16", title.format(16), costs, callers_16),
        Workload("callers-64", title.format(64), costs, callers_64, five),
    )


SHAPES: tuple[Workload, ...] = (
    Workload("steady-500", "A steady stream of 500 jobs/s to one worker", STREAM, steady(500)),
    Workload(
        "steady-5000",
        "A steady stream of 5,000 jobs/s to one worker; who cannot keep up has a lower rate and waits",
        STREAM,
        steady(5000),
        (Target("p99_ms", 20, at_least=False), Target("rate", 4_500), Target("worker_ms_1000", 60, at_least=False)),
    ),
    Workload("naps-10", "Jobs that sleep for 10 ms, 10 slots: at most 1,000/s", ("rate", *COSTS), naps(10)),
    Workload("naps-100", "The same, 100 slots: at most 10,000/s", ("rate", *COSTS), naps(100)),
    Workload("naps-1000", "The same, 1,000 slots: at most 100,000/s", ("rate", *COSTS), naps(1000)),
    Workload("payload-100", "Jobs with 100 bytes of arguments", ("rate", "enqueue_rate", *COSTS), payload(100)),
    Workload("payload-10k", "Jobs with 10 kB of arguments", ("rate", "enqueue_rate", *COSTS), payload(10_000)),
    Workload("payload-100k", "Jobs with 100 kB of arguments", ("rate", "enqueue_rate", *COSTS), payload(100_000)),
    Workload("failures", "Every second job raises, and is not tried again", ("rate", *COSTS), failures),
    Workload(
        "memory",
        "A worker's memory after one job, and after a drain, with its child processes",
        ("rest_mb", "after_mb"),
        memory_use,
        (Target("after_mb", 60, at_least=False),),
        once=True,
    ),
    Workload("start-up", "From the start of a worker's process to its first job's first line", ("start_ms",), start_up),
)

ON_FILES = (
    Workload("drain-four", "Four times the jobs, four worker processes on one file", ("rate", *COSTS), drain_four),
    *enqueue_of_many(),
    *SHAPES,
)
