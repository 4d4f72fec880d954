"""A campaign: clients, workers and a nemesis on one ground; then healing, draining, and the checker."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import quantiles
from typing import Any

import msgspec
from msgspec import Struct

from tests.journeys.stage import QUICK
from treadle.core.job import Job, State
from treadle.testing.checker import Broken, Checker
from treadle.testing.history import Event, read

from . import audit, ground
from .actors import BACKLOG, Clients, Fleet
from .nemesis import Nemesis
from .soak_app import child_of, write_to

WORKERS = 4
CLIENTS = 2
DRAIN = 180.0
CLAIMABLE = "from the kill until claimable"
CLAIMED = "from the kill until claimed again"
OF_WORKERS = ("kill", "poison job", "poisoned", "graceful restart")  # faults that leave the storage alone


class Report(Struct, kw_only=True):
    """The numbers of one campaign."""

    storage: str
    seed: str
    seconds: float
    enqueued: dict[str, int]
    states: dict[str, int]
    claims: int
    rescues: int
    kills: int
    ended: dict[str, int]
    faults: dict[str, int]
    left_out: dict[str, str]
    recoveries: dict[str, list[float | None]]  # kind → how many, p50, p99, worst
    drained_in: float | None
    samples: int
    told: int
    fenced: int
    broken: list[Broken]
    surprises: list[str]
    folder: str | None = None

    @property
    def passed(self) -> bool:
        return not (self.broken or self.surprises)

    def text(self) -> str:
        def listed(counts: dict[str, int]) -> str:
            return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))

        lines = [
            f"{self.storage}, seed {self.seed}, {self.seconds:.0f} s: {'passed' if self.passed else 'FAILED'}",
            f"  jobs        {listed(self.states)}; enqueues {listed(self.enqueued)}",
            f"  claims      {self.claims}, of which {self.rescues} were rescued",
            f"  workers     {self.kills} killed -9; {listed(self.ended)}",
            f"  faults      {listed(self.faults)}",
        ]
        lines += [f"  left out    {name}: {why}" for name, why in self.left_out.items()]
        for kind, (count, p50, p99, worst) in self.recoveries.items():
            if p50 is not None:
                times = f"p50 {p50:.2f} s, p99 {p99:.2f} s, worst {worst:.2f} s, of {count:.0f} jobs"
                lines.append(f"  recovery    {kind}: {times}")
        drained = "never" if self.drained_in is None else f"{self.drained_in:.1f} s after healing"
        seen = f"{self.told} answers heard, {self.fenced} fenced effects"
        lines.append(f"  drained     {drained}; {self.samples} snapshots, {seen}")
        lines += [f"  BROKEN {each.number}: {each.text}" for each in self.broken[:20]]
        lines += [f"  SURPRISE: {each}" for each in self.surprises[:10]]
        if self.folder:
            lines.append(f"  kept in {self.folder}")
        return "\n".join(lines)


def run(storage: str, seconds: float, seed: str, *, workers: int = WORKERS) -> Report:
    return carry_out(storage, seconds, seed, workers=workers)[0]


def carry_out(
    storage: str, seconds: float, seed: str, *, workers: int = WORKERS
) -> tuple[Report, list[Event], list[Job]]:
    """Answers with the history and what is stored in the end, too. The folder of a campaign that failed is kept."""
    make: Any = {"sqlite": ground.on_sqlite, "postgres": ground.on_postgres}[storage]
    folder = Path(tempfile.mkdtemp(prefix=f"treadle-soak-{storage}-"))
    history = folder / "history"
    history.touch()
    write_to(str(history))
    with make() as where:
        campaign = Campaign(where, folder, seed, workers)
        report = campaign.run(seconds)
    if report.passed:
        shutil.rmtree(folder)
    else:
        report.folder = str(folder)
        encode = msgspec.json.Encoder().encode
        (folder / "merged").write_bytes(b"".join(encode(event) + b"\n" for event in campaign.events))
    return report, campaign.events, campaign.jobs


class Campaign:
    def __init__(self, where: ground.Ground, folder: Path, seed: str, workers: int) -> None:
        self._ground = where
        self._folder = folder
        self._seed = seed
        self._fleet = Fleet(where, folder, workers)
        self._broken: list[Broken] = []
        self._samples = 0
        self._next_sample = 0.0
        self.events: list[Event] = []
        self.jobs: list[Job] = []

    def run(self, seconds: float) -> Report:
        begun = time.monotonic()
        clients = Clients(self._ground, self._seed, CLIENTS)
        self._clients = clients
        nemesis = Nemesis(self._ground, self._fleet, clients, self._seed)
        nemesis.on_tick = self._sample
        try:
            self._fleet.fill()
            nemesis.rest(2.0)
            nemesis.torment(seconds)
            clients.stop()
            nemesis.heal()
            drained_in = self._drain(nemesis)
            self._fleet.stop()
        finally:
            clients.stop()
            with contextlib.suppress(Exception):
                nemesis.heal()
            self._fleet.remove()
        return self._report(nemesis, clients, time.monotonic() - begun, drained_in)

    def _sample(self) -> None:
        """Conservation, in one snapshot; and clients must not run ahead of the workers."""
        if time.monotonic() < self._next_sample:
            return
        begun = time.monotonic()
        inserted, there = self._ground.sample()
        self._samples += 1
        if inserted != there:
            self._broken.append(Broken(13, f"{inserted} jobs were inserted, and {there} are there"))
        self._clients.crowded = self._ground.live() > BACKLOG
        self._next_sample = time.monotonic() + max(0.5, 20 * (time.monotonic() - begun))  # a witness, not a load

    def _drain(self, nemesis: Nemesis) -> float | None:
        begun = time.monotonic()
        while time.monotonic() - begun < DRAIN:
            nemesis.rest(0.2)
            if not self._ground.live():
                return time.monotonic() - begun
        return None

    def _report(self, nemesis: Nemesis, clients: Clients, seconds: float, drained_in: float | None) -> Report:
        jobs = self.jobs = self._ground.jobs()
        others = read((self._folder / "history").read_bytes())
        fenced = self._ground.fenced()
        others += [Event(kind="fenced", at=0.0, id=id, token=token) for id, token in fenced.items()]
        rows = audit.moves(self._ground.rows())
        # A task that kills its worker says when; of others it is known to the next look.
        exactly = {int(event.pod): event.at for event in others if event.how == "poisoned"}
        deaths = [(pid, exactly.get(pid, at)) for pid, at in self._fleet.deaths]
        events = self.events = audit.events(rows, others, deaths, lease=QUICK["lease"], offset=self._ground.offset)
        self._broken += Checker(events, jobs).broken
        self._broken += [*ghosts(jobs, others), *follow_ups(jobs), *unfenced(jobs, fenced)]
        if (wrong := self._ground.verify()) is not None:
            self._broken.append(Broken(0, wrong))
        surprises = [*self._fleet.surprises, *(f"a client: {error!r}" for error in clients.errors)]
        poisoned = [event for event in others if event.how == "poisoned"]
        fired = nemesis.fired if poisoned else nemesis.fired - Counter({"poison job": nemesis.fired["poison job"]})
        surprises += [f"the fault {kind!r} never fired" for kind in nemesis.kinds if not fired[kind]]
        all_times = audit.recoveries(events)
        elsewhere = [event.at for event in others if event.kind == "fault" and event.how not in OF_WORKERS]
        calm = audit.recoveries(events, apart_from=elsewhere)
        return Report(
            storage=self._ground.name,
            seed=self._seed,
            seconds=seconds,
            enqueued=dict(clients.counts),
            states=dict(Counter(job.state.value for job in jobs)),
            claims=sum(event.kind == "claimed" for event in events),
            rescues=sum(event.rescue for event in events),
            kills=nemesis.kills + len(poisoned),
            ended=dict(self._fleet.counts),
            faults=dict(nemesis.fired),
            left_out=self._ground.left_out,
            recoveries={
                CLAIMABLE: figures([each.claimable for each in all_times]),
                CLAIMED: figures([each.claimed for each in all_times]),
                f"{CLAIMABLE}, no other fault near": figures([each.claimable for each in calm]),
                f"{CLAIMED}, no other fault near": figures([each.claimed for each in calm]),
            },
            drained_in=drained_in,
            samples=self._samples,
            told=sum(event.kind == "told" for event in others),
            fenced=len(fenced),
            broken=self._broken,
            surprises=surprises,
        )


def figures(times: Sequence[float]) -> list[float | None]:
    """How many, p50, p99 and the worst."""
    if len(times) < 2:
        return [len(times), *[*times, None][:1] * 3]
    cuts = quantiles(times, n=100, method="inclusive")
    return [len(times), cuts[49], cuts[98], max(times)]


def ghosts(jobs: Sequence[Job], asked: Sequence[Event]) -> list[Broken]:
    """Every stored job was asked for, or follows one that was."""
    known = {id for event in asked if event.kind == "asked" for id in event.ids}
    known |= {child_of(id) for id in known}
    return [Broken(2, f"job {job.id} is there, and nobody asked for it") for job in jobs if job.id not in known]


def follow_ups(jobs: Sequence[Job]) -> list[Broken]:
    """What follows a job is there if and only if the job has succeeded: they are written together."""
    there = {job.id for job in jobs}
    parents = [job for job in jobs if job.task == "work" and msgspec.json.decode(job.args).get("kind") == "follow"]
    return [
        Broken(
            8, f"job {job.id} is {job.state}, and what follows it is {'' if child_of(job.id) in there else 'not '}there"
        )
        for job in parents
        if (child_of(job.id) in there) != (job.state is State.SUCCEEDED)
    ]


def unfenced(jobs: Sequence[Job], written: dict[str, str]) -> list[Broken]:
    succeeded = [job for job in jobs if job.task == "fenced" and job.state is State.SUCCEEDED]
    return [Broken(7, f"job {job.id} has succeeded without its effect") for job in succeeded if job.id not in written]
