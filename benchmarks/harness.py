"""Harness: runs cells (one workload for one peer) in interleaved rounds, and keeps what each one found.

A round takes every cell once; the next round takes them in the opposite order. So what drifts (the machine's clock,
its disk, its other users) hits every peer alike, and the median of a few rounds means something. Every measurement has
fresh processes and, unless it says otherwise, a fresh database in a fresh folder of the same disk.
"""

from __future__ import annotations

import contextlib
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from . import machine, peers, processes
from .peers import Peer
from .processes import Failed, Producer, cpu_seconds
from .tally import Tallies
from .wal import WalWatch

LOOK_EVERY = 0.002
NOISY = 0.10  # of the machine, taken by others: beyond it a measurement is marked

Figures = dict[str, float]


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    drain: int = 40_000
    bulk: int = 50_000
    callers_seconds: float = 2.0
    paced: int = 100
    rate: float = 20.0
    idle_seconds: float = 10.0
    settle_seconds: float = 2.0
    backlog: int = 1_000_000
    imports: int = 5
    slots: int = 500
    steady_seconds: float = 10.0
    payload_bytes: int = 100_000_000  # of all jobs of a workload with payloads


QUICK = Sizes(
    drain=10_000,
    bulk=10_000,
    callers_seconds=0.5,
    paced=40,
    idle_seconds=2.0,
    settle_seconds=1.0,
    backlog=100_000,
    imports=1,
    steady_seconds=2.0,
    payload_bytes=10_000_000,
)


@dataclass(frozen=True)
class Target:
    """What a figure of ours must reach; `beside` names the (workload, peer) whose figure it is divided by."""

    figure: str
    bound: float
    at_least: bool = True
    beside: tuple[str, str] | None = None


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    figures: tuple[str, ...]  # those that matter, first the one that is compared
    run: Callable[[Bench, Peer], Figures]
    targets: tuple[Target, ...] = ()
    once: bool = False  # it is long and does not scatter: one round is enough
    run_by: str | None = None  # another peer than the one that is asked: its row has that one's title


@dataclass(frozen=True)
class Sample:
    workload: str
    peer: str
    round: int
    figures: Figures
    load: dict[str, float]
    seconds: float
    error: str = ""


@dataclass
class Bench:
    """What a workload measures with."""

    sizes: Sizes
    folder: Path
    patience: float = 0.0  # seconds that may be spent, in all, on waiting for quiet and on measuring again
    samples: list[Sample] = field(default_factory=list)
    discarded: int = 0
    _backlogs: dict[str, Path] = field(default_factory=dict)

    # Rounds ----------------------------------------------------------------------------------------------------------

    def run(
        self, workloads: Sequence[Workload], names: Sequence[str], rounds: int, after_round: Callable[[], None]
    ) -> None:
        cells = [
            (workload, peer) for workload in workloads for peer in map(peers.find, names) if workload.name in peer.does
        ]
        for number in range(rounds):
            for workload, peer in cells if number % 2 == 0 else reversed(cells):
                if number == 0 or not workload.once:
                    self._measure_quietly(workload, peer, number)
            after_round()

    def _measure_quietly(self, workload: Workload, peer: Peer, number: int) -> None:
        """Measure, and while there is patience measure again what others disturbed, whatever it came to."""
        while True:
            began = time.monotonic()
            machine.wait_for_quiet(NOISY, self.patience)
            sample = self._measure(workload, peer, number)
            disturbed = sample.load["foreign"] > NOISY
            self.patience -= time.monotonic() - began - (0.0 if disturbed else sample.seconds)
            if not disturbed or self.patience <= 0:
                self.samples.append(sample)
                return
            self.discarded += 1

    def _measure(self, workload: Workload, peer: Peer, number: int) -> Sample:
        spin = machine.spin()
        before = machine.load()
        figures, error = Figures(), ""
        try:
            figures = workload.run(self, peer)
        except (Failed, OSError, subprocess.TimeoutExpired) as failed:  # OSError: a process or a file that is gone
            error = f"{type(failed).__name__}: {failed}"
        after = machine.load()
        load = machine.foreign(before, after) | {"spin_ms": (spin + machine.spin()) / 2}
        sample = Sample(workload.name, peer.name, number, figures, load, after.at - before.at, error)
        told = f"FAILED: {error}" if error else "  ".join(f"{name} {value:,.6g}" for name, value in figures.items())
        print(
            f"  {number + 1}  {workload.name:<15} {peer.name:<15} {told}  "
            f"[{sample.seconds:.1f} s, others {sample.load['foreign']:.0%}]",
            file=sys.stderr,
            flush=True,
        )
        return sample

    # Places ----------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def place(self, peer: Peer) -> Iterator[Path]:
        """A fresh folder with a fresh database."""
        place = self._folder(peer)
        try:
            self.in_child(peer, place, "create")
            yield place
        finally:
            shutil.rmtree(place)

    def backlog_place(self, peer: Peer) -> Path:
        """The folder of a database with a backlog. It is made once and kept for all rounds."""
        if peer.name not in self._backlogs:
            place = self._folder(peer)
            self.in_child(peer, place, "create")
            self.in_child(peer, place, "backlog", self.sizes.backlog, self.sizes.backlog)
            self._backlogs[peer.name] = place
        place = self._backlogs[peer.name]
        shutil.rmtree(place / "tally", ignore_errors=True)
        return place

    def in_child(self, peer: Peer, place: Path, method: str, *arguments: int) -> None:
        code = (
            f"from pathlib import Path; from benchmarks import peers; "
            f"peers.find({peer.name!r}).{method}(Path({str(place)!r}), *{arguments!r})"
        )
        processes.run_python(code, peer.environ(place), peer.python)

    def _folder(self, peer: Peer) -> Path:
        place = self.folder / f"{peer.name}-{time.monotonic_ns()}"
        place.mkdir()
        return place

    # Steps of a measurement ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def producer(self, peer: Peer, place: Path) -> Iterator[Producer]:
        with processes.producer(peer.name, peer.environ(place), place, peer.python) as producer:
            yield producer

    @contextlib.contextmanager
    def worker(
        self, peer: Peer, place: Path, queues: dict[str, int] | None = None, slots: int | None = None
    ) -> Iterator[int]:
        """With the settings that are best for no-op jobs, or with exactly so many slots."""
        command = peer.worker(queues or {"default": self.sizes.slots}) if slots is None else peer.slotted(slots)
        with processes.worker(command, peer.environ(place), place, peer.stop) as pid:
            yield pid

    def prepare(self, peer: Peer, place: Path) -> None:
        """Between an enqueue and a drain."""

    def meter(self, peer: Peer, place: Path) -> Meter:
        """What the storage's server spends, if there is one."""
        return NoMeter()

    def enqueue(self, peer: Peer, place: Path, action: str, **arguments: float) -> Figures:
        """One action of a producer, with its costs per job."""
        with self.producer(peer, place) as producer:
            producer.do("callers", callers=1, seconds=0.01)  # it is up, and the database is open
            watch = _watch(peer, place)
            cpu = cpu_seconds(producer.pid)
            producer.start(action, **arguments)
            while (answer := producer.answer(LOOK_EVERY)) is None:
                watch.look()
            watch.look()
            jobs = answer["jobs"]
            return {
                "rate": jobs / answer["seconds"],
                "producer_us": (cpu_seconds(producer.pid) - cpu) / jobs * 1e6,
                **_per_job(watch, jobs),
            }

    def drain(self, peer: Peer, place: Path, jobs: int, workers: int = 1, slots: int | None = None) -> Figures:
        """From the first line of the first job until the database says that all are done. With several workers, from
        when each of them has run one: the start of a process costs as much as ten thousand jobs."""
        tallies = Tallies(place / "tally")
        with contextlib.ExitStack() as stack:
            pids = [stack.enter_context(self.worker(peer, place, slots=slots)) for _ in range(workers)]
            self.wait(lambda: tallies.count > 0, "the first job")
            began, before = self.begun(tallies, jobs, workers)
            watch, cpu, done = _watch(peer, place), sum(map(cpu_seconds, pids)), tallies.count
            self.wait(lambda: (watch.look(), tallies.count >= jobs)[1], f"{jobs} jobs")
            self.wait(lambda: (watch.look(), peer.unfinished(place) == 0)[1], "the last finish", share=0.9)
            seconds = time.monotonic() - began
            if tallies.count != jobs:
                raise Failed(f"{tallies.count} runs of {jobs} jobs")
            counted = jobs - done
            return {
                "rate": (jobs - before) / seconds,
                "worker_us": (sum(map(cpu_seconds, pids)) - cpu) / counted * 1e6,
                **_per_job(watch, counted),
                **({"smaller_share": tallies.counts[workers - 1] / jobs} if workers > 1 else {}),
            }

    def begun(self, tallies: Tallies, jobs: int, workers: int) -> tuple[float, int]:
        """From when on a drain is timed, and how many jobs had run by then."""
        if workers > 1:
            self.wait(lambda: len(list(filter(None, tallies.counts))) >= workers or tallies.count > jobs / 2, "all")
            if tallies.count <= jobs / 2:  # otherwise one of them came too late to be waited for
                return time.monotonic(), tallies.count
        return tallies.first, 0

    def ping(self, peer: Peer, place: Path, producer: Producer) -> None:
        """One job there and back: the worker is up."""
        tallies = Tallies(place / "tally")
        producer.do("paced", jobs=1, rate=1000.0)
        self.wait(lambda: tallies.count > 0, "the worker's first job")

    def wait(self, is_so: Callable[[], bool], what: str, share: float = 0.2) -> None:
        """Looks often, but where looking is dear to a server, no more than so much of the time."""
        until = time.monotonic() + processes.LIMIT
        while not _timed(is_so, took := [0.0]):
            if time.monotonic() > until:
                raise Failed(f"waited {processes.LIMIT:.0f} s for {what}")
            time.sleep(max(LOOK_EVERY, took[0] * (1 / share - 1)))


def _timed(is_so: Callable[[], bool], took: list[float]) -> bool:
    began = time.monotonic()
    answer = is_so()
    took[0] = time.monotonic() - began
    return answer


class Meter(Protocol):
    """Counts what a server spends."""

    def begin(self) -> None:
        """From here on."""
        ...

    def span(self, jobs: float) -> Figures:
        """Per job, until now."""
        ...

    def whole(self, jobs: float) -> Figures:
        """What is known only when the sessions have ended."""
        ...


class NoMeter:
    def begin(self) -> None:
        pass

    def span(self, jobs: float) -> Figures:
        return {}

    def whole(self, jobs: float) -> Figures:
        return {}


class _NoWatch:
    """For a database that keeps no such log."""

    commits = size = 0

    def look(self) -> None:
        pass


def _watch(peer: Peer, place: Path) -> WalWatch | _NoWatch:
    database = peer.database(place)
    return _NoWatch() if database is None else WalWatch(database)


def _per_job(watch: WalWatch | _NoWatch, jobs: float) -> Figures:
    if isinstance(watch, _NoWatch):
        return {}
    return {"commits": watch.commits / jobs, "wal_bytes": watch.size / jobs}


# ---------------------------------------------------------------------------------------------------------------------
# What the rounds say together


@dataclass(frozen=True)
class Result:
    """One figure of one cell over all rounds."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def spread(self) -> float:
        """Half the distance between the best and the worst round, as a part of the median."""
        return (self.high - self.low) / 2 / self.median if self.median else 0.0


@dataclass(frozen=True)
class Results:
    samples: Sequence[Sample]
    discarded: int = 0

    def cell(self, workload: str, peer: str) -> list[Sample]:
        return [s for s in self.samples if (s.workload, s.peer) == (workload, peer)]

    def good(self, workload: str, peer: str) -> list[Sample]:
        return [s for s in self.cell(workload, peer) if not s.error]

    def figure(self, workload: str, peer: str, name: str) -> Result | None:
        return _result([s.figures[name] for s in self.good(workload, peer) if name in s.figures])

    def ratio(self, target: Target, workload: str, peer: str) -> Result | None:
        """Our figure over another's, round by round: what slowed both cancels out."""
        assert target.beside is not None
        others = {s.round: s.figures[target.figure] for s in self.good(*target.beside)}
        own = {s.round: s.figures[target.figure] for s in self.good(workload, peer)}
        return _result([own[number] / others[number] for number in own if others.get(number)])

    def reached(self, target: Target, workload: str, peer: str) -> tuple[Result, bool] | None:
        found = self.ratio(target, workload, peer) if target.beside else self.figure(workload, peer, target.figure)
        if found is None:
            return None
        return found, found.median >= target.bound if target.at_least else found.median <= target.bound

    def load(self, name: str) -> Result | None:
        return _result([s.load[name] for s in self.samples if name in s.load])

    def as_json(self) -> list[dict[str, object]]:
        return [asdict(sample) for sample in self.samples]


def _result(values: Sequence[float]) -> Result | None:
    return Result(statistics.median(values), min(values), max(values), len(values)) if values else None
