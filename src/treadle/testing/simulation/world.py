"""World: hosts with pods and clients on them, a nemesis, and a seed that decides all of it.

A seed first draws which faults are on and how strongly (a swarm: faults that are always all on hide one another). Then
clients ask, pods work, and the nemesis crashes, pauses, cuts off and stops hosts, until a fixed time. Then everything
is healed, fresh pods start, and every job must reach its end. The checker reads the history.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...app import App
from ...config import Limits, Timing
from ...core.errors import StorageTimeout, StorageUnavailable, TreadleError
from ...core.job import LIVE, Job
from ...storages.memory.storage import MemoryStorage
from ..checker import Broken, Checker
from ..history import History
from .escapes import SimClock, sealed
from .loop import HOST, Deadlock, Escape, Host, Livelock, SimLoop
from .seam import Seam

FAULTY: Final = 90.0  # virtual seconds of trouble
TIMING: Final = Timing(start_jitter=0.5, grace=8.0)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of one seed."""

    seed: int
    broken: tuple[Broken, ...]
    digest: str
    steps: int
    virtual_seconds: float
    counts: Counter[str] = field(default_factory=Counter[str])

    @property
    def passed(self) -> bool:
        return not self.broken


MakeStorage = Callable[[SimClock], MemoryStorage]


class World:
    """One seed. Derive your own: declare tasks, ask for jobs, say what must hold in the end.

    `make_storage` lets an ablation switch a safeguard off.
    """

    queues: Sequence[str] = ("default",)
    clients = 2
    pods = (1, 3)  # to begin with: at least, at most
    naps: Sequence[float] = (0.1, 2.5)  # how long a host may sleep, in leases; most end about when the lease does
    nemeses: Sequence[str] = ("crash", "pause", "cut", "stop", "outage")
    patience = 900.0  # virtual seconds for everything to end, once it is healed
    odds = 0.5  # that a seed has one of them; other faults are a little rarer
    effects = False  # whether tasks tell the history what they did, so that the checker can ask for it

    def declare(self, app: App) -> None:
        """The tasks. They may wait by asyncio.sleep and draw from `self.chance`; the real world is out of reach."""
        raise NotImplementedError

    async def prepare(self) -> None:
        """Before the first pod starts."""

    async def client(self) -> None:
        """What each client does, under faults. `ask` enqueues and writes down what came of it."""
        raise NotImplementedError

    async def healed(self) -> None:
        """After everything was healed, before the last jobs must end."""

    def check(self, rows: Sequence[Job]) -> Iterable[Broken | str]:
        """What else must hold in the end; a line for each that does not."""
        return ()

    def __init__(self, seed: int, make_storage: MakeStorage | None = None, *, faults: bool = True) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.history = History()
        self.loop = SimLoop(str(seed))  # type: ignore[abstract]  # what it lacks, a simulation must not use
        self.clock = SimClock(self.loop)
        self.storage = (make_storage or MemoryStorage)(self.clock)
        self.seam = Seam(self.storage, self.loop, self.history, self._true_now, str(seed), TIMING.call)
        self.chance = random.Random(f"{seed}/user")  # noqa: S311
        self.nemesis = random.Random(f"{seed}/faults")  # noqa: S311
        self._faults = faults
        self._numbers = 0
        self._hosts: list[Host] = []
        self.asked: list[str] = []  # ids of jobs that were surely enqueued
        self._pods: dict[Host, Any] = {}
        self._all_pods: list[tuple[Host, Any]] = []
        self._troubled = 0.0  # until when beats of all may be late; a host has such a time of its own
        self._needless: list[Broken] = []
        self.seam.on_rescue = self._on_rescue

    def _true_now(self) -> float:
        return self.loop.now

    def _on_rescue(self, pod: str) -> None:
        """A pod that lives, is neither stopped nor cut off, and whose network is in order must not lose a job: not
        while it drains either."""
        owner = next((host for host, each in self._all_pods if each.id == pod), None)
        weather = self.seam.weather
        calm = not (weather.lost_request or weather.lost_answer or weather.refused or weather.slow or weather.outage)
        well = self.loop.now > max(self._troubled, owner.troubled_until) if owner is not None else False
        if owner is not None and owner.alive and calm and well:
            self._needless.append(Broken(5, f"a job was rescued from {owner.name}, which was well"))

    # Hosts -----------------------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        self._numbers += 1
        host = Host(f"{name}-{self._numbers}", self._numbers)
        host.skew = self.nemesis.choice([0.0, 0.0, -300.0, 40.0, 7200.0]) if self._faults else 0.0
        self._hosts.append(host)
        return host

    def on(self, host: Host, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start work on a host. If the host crashes, it never ends."""
        context = contextvars.copy_context()
        context.run(HOST.set, host)
        return self.loop.create_task(work, context=context)

    async def boot(self) -> Host:
        """A new machine with one pod."""
        host = self.host("pod")
        slots = {queue: self.chance.randint(1, 4) for queue in self.queues}

        async def live() -> None:
            pod = self.app.make_pod(
                queues=slots,
                label=lambda id: f"{host.name}/{id[:4]}",
                timing=TIMING,
                limits=Limits(),
                children=False,
            )
            self._pods[host] = pod
            self._all_pods.append((host, pod))
            while True:
                try:
                    await pod.start()
                    return
                except (StorageUnavailable, StorageTimeout):
                    await asyncio.sleep(1.0)

        self.on(host, live())
        return host

    def serving(self) -> list[Host]:
        """The hosts whose pod has not been told to stop."""
        return [host for host in self._pods if host.alive]

    async def stop(self, host: Host) -> None:
        """A deploy: SIGTERM, and the process ends when it has drained."""
        self.counts["graceful_stop"] += 1
        pod = self._pods.pop(host, None)
        if pod is None:
            return

        async def leave() -> None:
            try:
                await pod.stop()
            finally:
                self.loop.crash(host)

        self.on(host, leave())

    # For clients -----------------------------------------------------------------------------------------------------

    async def ask(self, *calls: Any) -> list[str]:
        """Enqueue, and write down whether it is known to have happened. The ids; none if nobody knows."""
        ids = [call.options.id for call in calls]
        try:
            handles = await self.app.enqueue_many(calls)
        except (StorageUnavailable, StorageTimeout):
            self.counts["unknown_enqueue"] += 1
            if all(ids):
                self.history.add("asked", self.loop.now, ids=tuple(ids), how="unknown")
            return []
        known = [handle.id for handle in handles]
        self.asked += known
        self.history.add("asked", self.loop.now, ids=tuple(known), how="ok")
        return known

    async def insist(self, act: Callable[[], Awaitable[Any]]) -> None:
        """Until it is done: what an operator would do."""
        while True:
            try:
                await act()
                return
            except TreadleError:
                await asyncio.sleep(1.0)
                if not self.serving():  # what it waits for may need a pod, and a poison job took the last one
                    await self.boot()

    # The nemesis -----------------------------------------------------------------------------------------------------

    async def torment(self) -> None:
        draw = self.nemesis
        kinds = [kind for kind in self.nemeses if draw.random() < self.odds]
        weather = self.seam.weather
        for name, strength in (
            ("lost_request", 0.1),
            ("lost_answer", 0.15),
            ("refused", 0.1),
            ("slow", 0.3),
            ("lost_wake", 0.5),
        ):
            if draw.random() < self.odds - 0.2:
                setattr(weather, name, max(getattr(weather, name), strength * draw.random()))
                self.counts["slow_calls"] += name == "slow"
        while self.loop.now < FAULTY:
            await asyncio.sleep(draw.expovariate(1 / 8))
            pods = self.serving()
            if not kinds or not pods:
                await self.boot()
                continue
            kind, host = draw.choice(kinds), draw.choice(pods)
            await getattr(self, f"_{kind}")(host)

    async def _crash(self, host: Host) -> None:
        self.counts["crash"] += 1
        self._pods.pop(host, None)
        self.loop.crash(host)
        if self.nemesis.random() < 0.8:
            await self.boot()

    async def _pause(self, host: Host) -> None:
        self.counts["pause"] += 1
        host.troubled_until = self.loop.now + 5 * TIMING.lease
        # Most end about when the lease does: there the races are.
        leases = self.nemesis.choice([*self.naps, self.nemesis.uniform(0.6, 1.3), self.nemesis.uniform(0.6, 1.3)])
        self.loop.pause(host, TIMING.lease * leases)

    async def _cut(self, host: Host) -> None:
        self.counts["cut_off"] += 1
        host.troubled_until = self.loop.now + 5 * TIMING.lease
        host.cut_off = True

        def mend() -> None:
            host.cut_off = False

        self.loop.call_later(TIMING.lease * self.nemesis.choice([0.2, 0.8, 1.5]), mend)

    async def _stop(self, host: Host) -> None:
        await self.stop(host)
        await self.boot()

    async def _outage(self, host: Host) -> None:
        self.counts["outages"] += 1
        self._troubled = self.loop.now + 3 * TIMING.lease
        self.seam.weather.outage = True

        def mend() -> None:
            self.seam.weather.outage = False

        self.loop.call_later(self.nemesis.choice([1.0, 8.0, 45.0]), mend)

    # The whole -------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        await self.prepare()
        for _ in range(self.nemesis.randint(*self.pods)):
            await self.boot()
        clients = [self.on(self.host("client"), self.client()) for _ in range(self.clients)]
        if self._faults:
            await self.torment()
        await asyncio.gather(*clients)
        self.seam.weather.heal()
        for host in self._hosts:
            host.cut_off = False
        self._troubled = self.loop.now + 2 * TIMING.lease
        await self.boot()
        await self.healed()
        until = self.loop.now + self.patience
        while self.loop.now < until and self._alive_jobs():
            await asyncio.sleep(5.0)
            if not self.serving():  # a poison job took the last one
                await self.boot()

    def _alive_jobs(self) -> bool:
        return any(job.state in LIVE for job in self.rows())

    def rows(self) -> list[Job]:
        return [row.job for row in self.storage._rows.values()]

    def run(self) -> Report:
        broken: list[Broken] = []
        with sealed(self.loop, str(self.seed)):
            try:
                self.app = App(storage=self.seam, timing=TIMING)  # type: ignore[arg-type]
                self.declare(self.app)
                self.loop.run_until_complete(self.live())
            except (Deadlock, Livelock, Escape) as error:
                broken.append(Broken(12, f"{type(error).__name__}: {error}"))
            rows = self.rows()
        broken += [Broken(0, f"{each.get('message')}: {each.get('exception')!r}") for each in self.loop.failures]
        broken += self._needless
        broken += Checker(self.history.events, rows, effects=self.effects).broken
        broken += [each if isinstance(each, Broken) else Broken(0, each) for each in self.check(rows)]
        self.counts.update(self.seam.counts)
        return Report(self.seed, tuple(broken), self.loop.digest, self.loop.steps, self.loop.now, self.counts)


def simulate(world: type[World], seeds: int = 50, start: int = 0) -> None:
    """Run so many seeds of your world in this process; AssertionError names the first that broke something."""
    for seed in range(start, start + seeds):
        report = world(seed).run()
        if not report.passed:
            told = "\n".join(f"  {each.number}: {each.text}" for each in report.broken[:10])
            raise AssertionError(
                f"seed {seed} of {world.__name__}:\n{told}\nagain: simulate({world.__name__}, 1, {seed})"
            )
