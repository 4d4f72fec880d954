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
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from ...app import App
from ...client import new_id
from ...config import Limits, Timing
from ...context import Context
from ...core.backoff import Retry
from ...core.errors import Conflict, JobNotFound, StorageTimeout, StorageUnavailable, TreadleError
from ...core.job import LIVE, Job, QueueChange
from ...core.outcome import Cancel, Fail, RetryAfter, Snooze, Throttle
from ...storages.memory import MemoryStorage
from ..checker import Broken, Checker
from ..history import History
from .escapes import SimClock, sealed
from .loop import HOST, Deadlock, Escape, Host, Livelock, SimLoop
from .seam import Seam

FAULTY: Final = 90.0  # virtual seconds of trouble
HEALED: Final = 900.0  # and so many for everything to end
TIMING: Final = Timing(start_jitter=0.5, grace=8.0)
QUEUES: Final = ("default", "mail")


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
    """One seed. `make_storage` and `pod_class` let ablations switch a safeguard off."""

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
        self._runs: Counter[str] = Counter()
        self._ids: list[str] = []
        self._pods: dict[Host, Any] = {}
        self._all_pods: list[tuple[Host, Any]] = []
        self._troubled = 0.0  # when something last kept beats from being answered in time
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
        if owner is not None and owner.alive and calm and self.loop.now - self._troubled > 2 * TIMING.lease:
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
        slots = {queue: self.chance.randint(1, 4) for queue in QUEUES}

        async def live() -> None:
            pod = self.app.make_pod(
                queues=slots, label=lambda id: f"{host.name}/{id[:4]}", timing=TIMING, limits=Limits()
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

    # The user's part -------------------------------------------------------------------------------------------------

    def declare(self) -> None:
        self.app = App(storage=self.seam, timing=TIMING)  # type: ignore[arg-type]
        world = self

        @self.app.task(name="work", timeout="40s", retry=Retry(base="1s", cap="10s"))
        async def work(ctx: Context[Any], kind: str, n: int) -> str:
            world._runs[ctx.job_id] += 1
            run = world._runs[ctx.job_id]
            await asyncio.sleep(world.chance.choice([0.0, 0.01, 0.5, 3.0]))
            match kind:
                case "flaky" if run <= n:
                    raise ValueError("not yet")
                case "later" if run <= n:
                    raise RetryAfter("2s")
                case "snooze" if run <= n:
                    raise Snooze("3s")
                case "throttle" if run <= n:
                    raise Throttle("4s")
                case "fail":
                    raise Fail("for good")
                case "cancel":
                    raise Cancel("not needed")
                case "long":
                    await asyncio.sleep(10.0 * n)
                case "hang" if run == 1:
                    await asyncio.sleep(1e6)
                case "poison":
                    world.counts["poisoned"] += 1
                    world.loop.crash(HOST.get())
                    await asyncio.sleep(1e6)
                case "stubborn" if run <= 1:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        await asyncio.sleep(8)
                        raise
                case "follow":
                    ctx.follow(work.bind("ok", 0))
                case _:
                    pass
            world.history.add("effect", world.loop.now, id=ctx.job_id, token=ctx.token)
            return "done"

        self.work = work

    async def client(self) -> None:
        """Asks for some jobs, and does to them what clients and operators do."""
        for _ in range(self.chance.randint(8, 25)):
            await asyncio.sleep(self.chance.random() * 6)
            await self.chance.choice([self._enqueue] * 6 + [self._many, self._cancel, self._revive, self._queue_edit])()

    def _call(self, id: str) -> Any:
        kinds = (
            "ok",
            "ok",
            "ok",
            "flaky",
            "later",
            "snooze",
            "throttle",
            "fail",
            "cancel",
            "long",
            "hang",
            "stubborn",
            "follow",
        )
        kind = self.chance.choice(kinds)
        if self.chance.random() < 0.04:
            kind = "poison"
        options: dict[str, Any] = {
            "id": id,
            "queue": self.chance.choice(QUEUES),
            "priority": self.chance.randint(-1, 1),
        }
        if self.chance.random() < 0.3:
            options["delay"] = self.chance.random() * 20
        if self.chance.random() < 0.3:
            options["unique"] = f"key-{self.chance.randint(1, 3)}"
        if self.chance.random() < 0.3:
            options["max_attempts"] = self.chance.randint(1, 4)
        if kind != "hang" and self.chance.random() < 0.4:
            options["timeout"] = None
        most = 9 if kind == "long" and "timeout" in options else 3
        return self.work.using(**options).bind(kind, self.chance.randint(1, most))

    async def _enqueue(self) -> None:
        await self._asked(1)

    async def _many(self) -> None:
        await self._asked(self.chance.randint(2, 6))

    async def _asked(self, count: int) -> None:
        ids = new_id.many(count)
        calls = [self._call(id) for id in ids]
        try:
            handles = await self.app.enqueue_many(calls)
        except (StorageUnavailable, StorageTimeout):
            self.counts["unknown_enqueue"] += 1
            self.history.add("asked", self.loop.now, ids=tuple(ids), how="unknown")
            return
        self._ids += [handle.id for handle in handles]
        self.history.add("asked", self.loop.now, ids=tuple(handle.id for handle in handles), how="ok")

    async def _tried(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except (Conflict, JobNotFound, StorageUnavailable, StorageTimeout):
            pass

    async def _cancel(self) -> None:
        if self._ids:
            await self._tried(self.app.jobs.cancel(self.chance.choice(self._ids)))

    async def _revive(self) -> None:
        if self._ids:
            await self._tried(self.app.jobs.revive(self.chance.choice(self._ids)))

    async def _queue_edit(self) -> None:
        queue = self.chance.choice(QUEUES)
        await self._tried(self.app.queues.pause(queue))
        await asyncio.sleep(self.chance.random() * 5)
        while True:
            try:
                await self.app.queues.resume(queue)
                return
            except TreadleError:
                await asyncio.sleep(1.0)

    # The nemesis -----------------------------------------------------------------------------------------------------

    async def torment(self) -> None:
        draw = self.nemesis
        kinds = [kind for kind in ("crash", "pause", "cut", "stop", "outage") if draw.random() < 0.5]
        weather = self.seam.weather
        for name, strength in (
            ("lost_request", 0.1),
            ("lost_answer", 0.15),
            ("refused", 0.1),
            ("slow", 0.3),
            ("lost_wake", 0.5),
        ):
            if draw.random() < 0.4:
                setattr(weather, name, strength * draw.random())
        while self.loop.now < FAULTY:
            await asyncio.sleep(draw.expovariate(1 / 8))
            pods = [host for host in self._pods if host.alive]
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
        self._troubled = self.loop.now + 3 * TIMING.lease
        # Most end about when the lease does: there the races are.
        leases = self.nemesis.choice([0.1, 2.5, self.nemesis.uniform(0.6, 1.3), self.nemesis.uniform(0.6, 1.3)])
        self.loop.pause(host, TIMING.lease * leases)

    async def _cut(self, host: Host) -> None:
        self.counts["cut_off"] += 1
        self._troubled = self.loop.now + 3 * TIMING.lease
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
        # Throttles that follow each other would cool a queue for half an hour.
        await self.storage.apply([QueueChange(name=name, cool_base=2.0, cool_cap=20.0) for name in QUEUES])
        for _ in range(self.nemesis.randint(1, 3)):
            await self.boot()
        clients = [self.on(self.host("client"), self.client()) for _ in range(2)]
        if self._faults:
            await self.torment()
        await asyncio.wait(clients)
        self.seam.weather.heal()
        for host in self._hosts:
            host.cut_off = False
        self._troubled = self.loop.now
        await self.boot()
        until = self.loop.now + HEALED
        while self.loop.now < until and self._alive_jobs():
            await asyncio.sleep(5.0)
            if not any(host.alive for host in self._pods):  # a poison job took the last one
                await self.boot()

    def _alive_jobs(self) -> bool:
        return any(job.state in LIVE for job in self.rows())

    def rows(self) -> list[Job]:
        return [row.job for row in self.storage._rows.values()]

    def run(self) -> Report:
        broken: list[Broken] = []
        with sealed(self.loop, str(self.seed)):
            try:
                self.declare()
                self.loop.run_until_complete(self.live())
            except (Deadlock, Livelock, Escape) as error:
                broken.append(Broken(12, f"{type(error).__name__}: {error}"))
            rows = self.rows()
        broken += [Broken(0, f"{each.get('message')}: {each.get('exception')!r}") for each in self.loop.failures]
        broken += self._needless
        broken += Checker(self.history.events, rows).broken
        self.counts.update(self.seam.counts)
        return Report(self.seed, tuple(broken), self.loop.digest, self.loop.steps, self.loop.now, self.counts)
