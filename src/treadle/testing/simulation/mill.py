"""Mill: the workload of our own campaigns: jobs that end in every way there is, and what operators do to them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from ...app import App
from ...client.client import new_id
from ...context.context import Call, Context
from ...core.backoff import Retry
from ...core.errors import Conflict, JobNotFound, StorageTimeout, StorageUnavailable
from ...core.job import Job, QueueChange
from ...core.outcome import Cancel, Fail, RetryAfter, Snooze, Throttle
from ...core.unique import Unique
from ..checker import Broken
from .loop import HOST
from .world import TIMING, World

QUEUES: Final = ("default", "mail")
RATED: Final = "mail"
RATE: Final = 2.0
BURST: Final = 3
KINDS: Final = (
    "ok", "ok", "ok", "flaky", "later", "snooze", "throttle", "fail", "cancel", "long", "hang", "stubborn", "follow",
)  # fmt: skip


class Mill(World):
    queues = QUEUES
    effects = True
    kinds: Sequence[str] = KINDS
    untimed = 0.4  # how many jobs have no timeout

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.runs: Counter[str] = Counter()

    async def prepare(self) -> None:
        # Throttles that follow each other would cool a queue for half an hour.
        await self.storage.apply([QueueChange(name=name, cool_base=2.0, cool_cap=20.0) for name in QUEUES])
        await self.storage.apply([QueueChange(name=RATED, rate=RATE, burst=BURST)])

    def declare(self, app: App) -> None:
        world = self

        @app.task(name="work", timeout="40s", retry=Retry(base="1s", cap="10s"))
        async def work(ctx: Context[Any], kind: str, n: int) -> str:
            world.runs[ctx.job_id] += 1
            run = world.runs[ctx.job_id]
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

        @app.every("7s", name="tick")
        @app.task(name="tick", retry=Retry(base="1s", cap="10s"))
        async def tick(ctx: Context[Any]) -> None:
            world.history.add("effect", world.loop.now, id=ctx.job_id, token=ctx.token)

    async def client(self) -> None:
        """Asks for some jobs, and does to them what clients and operators do."""
        for _ in range(self.chance.randint(8, 25)):
            await asyncio.sleep(self.chance.random() * 6)
            await self.chance.choice([self._enqueue] * 6 + [self._many, self._cancel, self._revive, self._queue_edit])()

    def _call(self, id: str) -> Any:
        kind = self.chance.choice(self.kinds)
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
        if kind != "hang" and self.chance.random() < self.untimed:
            options["timeout"] = None
        most = 15 if kind == "long" and "timeout" in options else 3
        return self.work.using(**options).bind(kind, self.chance.randint(1, most))

    async def _enqueue(self) -> None:
        await self.ask(self._call(new_id()))

    async def _many(self) -> None:
        await self.ask(*(self._call(id) for id in new_id.many(self.chance.randint(2, 6))))

    async def _tried(self, work: Awaitable[Any]) -> None:
        try:
            await work
        except (Conflict, JobNotFound, StorageUnavailable, StorageTimeout):
            pass

    async def _cancel(self) -> None:
        if self.asked:
            await self._tried(self.app.jobs.cancel(self.chance.choice(self.asked)))

    async def _revive(self) -> None:
        if self.asked:
            await self._tried(self.app.jobs.revive(self.chance.choice(self.asked)))

    async def _queue_edit(self) -> None:
        queue = self.chance.choice(QUEUES)
        await self._tried(self.app.queues.pause(queue))
        await asyncio.sleep(self.chance.random() * 5)
        await self.insist(lambda: self.app.queues.resume(queue))

    async def healed(self) -> None:
        """When all is well, one pod leaves with work in hand and another comes: nothing is charged, nothing rescued."""
        await self.insist(lambda: self.app.schedules.remove("tick"))
        await asyncio.sleep(2 * TIMING.lease + 1)
        calls = [self.work.using(timeout=None, queue=queue).bind("long", self.chance.randint(4, 9)) for queue in QUEUES]
        await self.ask(*calls)
        await asyncio.sleep(3.0)
        # The newest: the others keep what they hold, and must not lose it or forget it either.
        for host in self.serving()[-1:]:
            await self.boot()
            await self.stop(host)

    def check(self, rows: Sequence[Job]) -> Iterable[Broken]:
        """Claims of the queue that has a rate: in no window more than its burst and what the window gives. Where calls
        are slow, a claim may be carried out after its tokens have ended (docs/limits.md): such seeds do not count."""
        if self.counts["slow_calls"]:
            return []
        at = self.seam.claims_of(RATED)
        for first, begun in enumerate(at):
            for last in range(first, len(at)):
                if last - first + 1 > BURST + RATE * (at[last] - begun) + 0.001:
                    claims, window = last - first + 1, at[last] - begun
                    return [Broken(15, f"{claims} claims of {RATED} in {window:.2f} s, at a rate of {RATE:g}/s")]
        return []


class Bustle(Mill):
    """The same few things are asked for again and again while they run: of each the newest request is kept."""

    untimed = 0.0  # a request overwrites another's arguments, and not its timeout: one without would hang for ever

    def _call(self, id: str) -> Any:
        call: Call[Any] = super()._call(id)
        rule = Unique(key=f"key-{self.chance.randint(1, 3)}", on_conflict="keep_last")
        return Call[Any](call.task, call.args, replace(call.options, unique=rule))

    async def _cancel(self) -> None:
        """What is kept and cancelled is gone, as if it had never been asked for: only jobs are cancelled here."""
        if self.asked:
            id = self.chance.choice(self.asked)
            if (job := self.seam.known(id)) is not None and job.behind is None:
                await self._tried(self.app.jobs.cancel(id))

    def check(self, rows: Sequence[Job]) -> Iterable[Broken]:
        self.counts["kept"] += sum(outcome == "kept" for outcome, _, _ in self.app.client.produced.elements())
        left = [Broken(1, f"something is still kept behind job {job.id}") for job in rows if job.kept is not None]
        return [*super().check(rows), *left]


class Torpor(Mill):
    """Long runs on hosts that fall asleep and lose their network: what is rare in the Mill is common here."""

    kinds: Sequence[str] = ("long",)
    untimed = 1.0
    clients = 1
    patience = 3_600.0
    nemeses: Sequence[str] = ("pause", "cut")
    odds = 0.9


class Mire(Torpor):
    """Every second call takes seconds, and hosts sleep until about when their lease ends: here the races are won."""

    nemeses = ("pause",)
    odds = 1.0
    clients = 3
    pods = (3, 5)
    naps = ()

    async def torment(self) -> None:
        self.seam.weather.slow = 0.5
        await super().torment()
