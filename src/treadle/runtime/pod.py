"""Pod: one worker, put together: Turner, Heart, Services, executors, and the order in which they start and stop.

Start
-----
1. register: from here on the pod has a lease, and its row tells the others what it serves;
2. Heart: the lease is kept before there is anything to lose;
3. executors, listeners, services;
4. one manifest line, then turns, after a little jitter so that a fleet does not start in step.

Stop
----
1. stop claiming: others take what is due;
2. tell the tasks (`ctx.stopping`), and let the runs drain. Beats, finishes and services go on: a leader that drains
   for 25 s without them would stall the cluster;
3. shortly before the end (or at once, when hurried) cancel what still runs;
4. give back, uncharged, what does not end: it is written last, so that a thread which returns in time is believed;
5. flush the Turner; give up the lead; stop the Heart; remove the pod's row. The row goes last: until then whatever
   could not be written has an owner that the others can find dead.

Lost
----
If a beat hears that the pod was declared lost, its jobs belong to others already. Every run is cancelled, nothing
that they say is written, and the pod registers anew under a fresh id, so that no old claim can be mistaken for new.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..config import Limits, Timing
from ..context import Door
from ..core.job import POISON_CRASHES, Change, Job
from ..core.pod import PodCard
from ..hooks import Hooks
from ..ports import Beaten, Executor, RunReport, Storage, Wake
from ..tasks import Registry
from .crew import Crew
from .heart import Heart
from .roster import Roster
from .service import Round, Service
from .services.leader import Leader
from .services.rescuer import Rescuer
from .turner import Turner

log = logging.getLogger("treadle.pod")

DEAF_POLL: Final = 0.2

SUSPECT_PAUSE: Final = 1.0


class Pod:
    """One worker. `start` it, `stop` it; between the two it runs jobs."""

    def __init__(
        self,
        *,
        storage: Storage,
        registry: Registry,
        executors: Mapping[str, Executor],
        queues: Mapping[str, int],
        door: Door | None = None,
        hooks: Hooks | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
        label: Callable[[str], str] | None = None,
        version: str = "",
        leads: bool = True,
        services: bool = True,
        state: Any = None,
        chance: random.Random | None = None,
        stuck: Callable[[float], None] | None = None,
    ) -> None:
        self.id = ""
        self.label = ""
        self.timing = timing or Timing()
        self.limits = limits or Limits()
        self.stopped = asyncio.Event()
        self.clean = True  # everything that ended was written before the pod signed off
        self._storage = storage
        self._registry = registry
        self._executors = executors
        self._queues = dict(queues)
        self._hooks = hooks or Hooks()
        self._make_label: Callable[[str], str] = label or str
        self._version = version
        self._leads = leads
        self._has_services = services
        self._chance = chance or random.Random(secrets.randbits(64))  # noqa: S311 - jitter and token salts; seeded well
        self._stuck: Callable[[float], None] = stuck or _ignore
        self._door = door
        self._state = state
        self._loop = asyncio.get_running_loop()
        self._background: list[asyncio.Task[None]] = []
        self._unlisten: Callable[[], None] = lambda: None
        self._hurry = asyncio.Event()
        self._stopping = False
        self._rejoining: asyncio.Task[None] | None = None

    # Start -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._build()
        registered = await self._register()
        try:
            self.heart.start(self.id, registered)
            for executor in self._executors.values():
                await executor.start()
            self._unlisten = self._storage.listen(self._on_wake)
        except BaseException:
            await self._sign_off()  # or a pod that runs nothing would be kept alive by its Heart
            raise
        self._background = [asyncio.create_task(each.run(), name=each.service.name) for each in self._rounds]
        log.info("%s", self.manifest())
        self._background.append(asyncio.create_task(self._watch_heart(), name="heart watch"))
        self._background.append(asyncio.create_task(self._turn(), name="turner"))

    def manifest(self) -> str:
        """What this pod is and serves, in one line."""
        queues = ", ".join(f"{name}:{slots}" for name, slots in self._queues.items())
        tasks = len(self._registry.tasks)
        return (
            f"pod {self.label} · treadle {self._version} · queues {queues} · "
            f"{tasks} task{'' if tasks == 1 else 's'} · pid {os.getpid()}"
        )

    def _build(self) -> None:
        """A start after a stop begins with nothing left over."""
        tasks = self._registry.tasks.values()
        by_executor = {
            name: frozenset(each for task in tasks if task.executor == name for each in (task.name, *task.aliases))
            for name in self._executors
        }
        self._known = tuple(sorted(frozenset[str]().union(*by_executor.values())))
        self.roster = Roster(self._queues, self._executors, by_executor)
        self.turner = Turner(
            storage=self._storage,
            roster=self.roster,
            start=self._start_jobs,
            accepted=self._tell_hooks,
            may_claim=self._may_claim,
            batch=self.limits.batch,
            poll=self._poll,
            chance=self._chance,
        )
        self.crew = Crew(
            roster=self.roster,
            turner=self.turner,
            executors=self._executors,
            find=self._registry.find,
            door=self._door,
            cancel_grace=self.timing.cancel_grace,
            state=self._state,
            stopping=lambda: self._stopping,
            label=lambda: self.label,
        )
        self.heart = Heart(
            storage=self._storage,
            timing=self.timing,
            chance=self._chance,
            reports=lambda: self.roster.reports(self.label),
            heard=self._on_beat,
            loop_limit=self._loop_limit,
            stuck=self._stuck,
        )
        self.leader = Leader(self._storage, lambda: self.id, ttl=self.timing.leader_ttl, every=self.timing.leader_every)
        self._rounds = self._services()
        self._stopping = False
        self._hurry.clear()
        self.stopped.clear()

    def _poll(self) -> float:
        """Where nobody wakes us, polling is all there is, and a second would be long."""
        return self.timing.poll if self._storage.signals_work else min(self.timing.poll, DEAF_POLL)

    def _may_claim(self) -> bool:
        return self.heart.may_claim()

    def _services(self) -> list[Round]:
        if not self._has_services:
            return []
        # Where death can be proven every pod looks for dead neighbours; elsewhere one pod scans for all.
        proves = self._storage.capabilities.proves_death
        every, jitter = (self.timing.neighbours, 0.1) if proves else (self.timing.scan, 0.5)
        self.rescuer = Rescuer(
            self._storage,
            self.timing,
            self._chance,
            every=every,
            jitter=jitter,
            rescued=self._on_rescue,
            beat_age=lambda: self.heart.silence,
        )
        duties: list[tuple[Service, Callable[[], bool]]] = [
            (self.rescuer, lambda: proves or self.leader.leads),
        ]
        if self._leads:
            duties.append((self.leader, lambda: not self._stopping))
        return [Round(service, self._chance, wanted) for service, wanted in duties]

    async def _register(self) -> float:
        """Answers with when it was asked for: the lease counts from then at the latest."""
        self.id = secrets.token_hex(8)
        self.label = self._make_label(self.id)
        card = PodCard(
            id=self.id,
            label=self.label,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            queues=self._queues,
            tasks=self._known,
            lease=self.timing.lease,
        )
        asked = time.monotonic()
        await self._storage.register(card)
        self.turner.pod = self.id
        return asked

    async def _turn(self) -> None:
        # A dead neighbour's jobs are looked for at the start, not only a scan later.
        if self._has_services and self._storage.capabilities.proves_death:
            try:
                await self.rescuer.run_once()
            except Exception as error:
                log.warning("first look for dead neighbours: %s", error)
        await asyncio.sleep(self.timing.start_jitter * self._chance.random())
        await self.turner.run()

    async def _watch_heart(self) -> None:
        """Heart and loop watch each other: a pod without a beat would be fenced for ever, and nobody would know."""
        while True:
            await asyncio.sleep(self.timing.beat)
            if not self.heart.alive:
                log.critical("the heart of pod %s has stopped beating; it is started again", self.label)
                try:
                    self.heart.start(self.id)
                except RuntimeError as error:  # no thread to be had: the pod fences itself, and this is tried again
                    log.critical("the heart of pod %s cannot be started: %s", self.label, error)

    # While it runs ---------------------------------------------------------------------------------------------------

    def _start_jobs(self, jobs: Sequence[Job]) -> None:
        if self._stopping:
            # The claim was under way when the stop came.
            for job in jobs:
                self.turner.give_back(job)
            return
        jobs = self._apart(jobs)
        for job in jobs:
            self.crew.start(job)
        if self._hooks.started:
            for job in jobs:
                self._hooks.tell("started", job)

    def _apart(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Without those that one more crash would fail, unless there is one only, here and now.

        Whatever runs beside a poison job goes down with it, is rescued with it, and would be claimed with it again,
        three times over. Apart, the next crash names the culprit: the others are given back before it starts.
        """
        suspects = [job for job in jobs if _is_suspect(job)]
        if not suspects or (len(suspects) == 1 and not any(_is_suspect(run.job) for run in self.roster.runs())):
            return jobs
        for job in suspects:
            self.turner.give_back(job, SUSPECT_PAUSE * (0.5 + self._chance.random()))
        return [job for job in jobs if not _is_suspect(job)]

    def _tell_hooks(self, change: Change, job: Job) -> None:
        self._hooks.tell(change.why, job, change)

    def _on_rescue(self, change: Change, job: Job) -> None:
        self._hooks.tell("rescued", job, change)
        if job.pod == self.id:
            # Our own run, ended by our own Rescuer: no need to wait for a beat to hear of it.
            self.crew.stop_run(job.id, job.token or "", "lost")
        self.turner.wake()

    def _on_wake(self, wake: Wake) -> None:
        """From any thread. A hint costs one turn; the loop is entered only if one of our queues is concerned."""
        if wake.cancels:
            self.heart.beat_soon()
        says_nothing = not (wake.queues or wake.ended or wake.cancels)
        if says_nothing or not wake.queues.isdisjoint(self._queues):
            self._call_soon(self.turner.wake)

    def _call_soon(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            pass  # the loop has closed: nobody is left to be woken

    def _on_beat(self, beaten: Beaten, sent: Sequence[RunReport]) -> None:
        """What a beat heard, on the pod's loop."""
        if beaten.lost:
            if self._stopping:
                self._stop_lost_runs()
            elif self._rejoining is None:
                self._rejoining = asyncio.create_task(self._rejoin())
            return
        self.turner.storage_is_back()
        self.roster.live_pods = beaten.live_pods
        self.roster.settings = {queue.name: queue for queue in beaten.queues}
        held = {(each.id, each.token) for each in beaten.held}
        for each in beaten.held:
            if each.cancel_wanted:
                self.crew.stop_run(each.id, each.token, "cancel")
            if not self.turner.knows(each.id, each.token):
                self.turner.take_up(each.token)
        for run in sent:
            if (run.id, run.token) not in held:
                self.crew.stop_run(run.id, run.token, "lost")

    async def _rejoin(self) -> None:
        log.warning("pod %s was declared lost: its runs are stopped, and it registers anew", self.label)
        self._stop_lost_runs()
        self.turner.forget()
        while True:
            try:
                registered = await self._register()
                break
            except Exception as error:
                log.warning("cannot register: %s", error)
                await asyncio.sleep(self.timing.poll)
        self.heart.serve(self.id, registered)
        self._rejoining = None
        self.turner.wake()

    def _stop_lost_runs(self) -> None:
        for run in self.roster.runs():
            self.crew.stop_run(run.job.id, run.job.token or "", "lost")

    def _loop_limit(self) -> float:
        """How long a blocked loop is borne: no run's deadline may be outlived by more than the grace."""
        without = self.timing.loop_limit
        limits = (without if run.timeout is None else run.timeout for run in self.roster.runs())
        return max(limits, default=without) + self.timing.overdue

    # Stop ------------------------------------------------------------------------------------------------------------

    def hurry(self) -> None:
        """Do not wait for the runs to end by themselves."""
        self._hurry.set()

    async def stop(self, grace: float | None = None) -> None:
        """Stop gracefully within `grace` seconds. Afterwards `clean` says whether everything was written."""
        if self._stopping:
            await self.stopped.wait()
            return
        self._stopping = True
        try:
            await self._stop(self.timing.grace if grace is None else grace)
        finally:
            # Cut short, too: a pod that has ended must not look alive, or nobody could rescue what it held.
            self.heart.stop()
            for task in self._background:
                task.cancel()
            self._stop_lost_runs()
            self.stopped.set()

    async def _stop(self, grace: float) -> None:
        ending = self._loop.time() + grace
        last_call = min(self.timing.cancel_grace, grace / 3)
        self.turner.stop_claiming()
        await self._drain(ending - last_call)
        # Hurried, or with nothing left to run, the last call comes sooner.
        runs_end = min(ending, self._loop.time() + last_call)
        if self._hurry.is_set():
            ending = runs_end
        self.crew.stop_all("shutdown", runs_end)
        await self._drain(runs_end - last_call / 2, hurried=True)
        self.crew.give_back_all()
        self.clean = await self._flush(max(ending, self._loop.time() + 1.0))
        await self._sign_off()

    async def _drain(self, until: float, *, hurried: bool = False) -> None:
        """Wait until no run is under way, or until it is time, or (unless hurried already) until somebody hurries."""
        while len(self.roster) and self._loop.time() < until:
            if not hurried and self._hurry.is_set():
                return
            self.crew.ended.clear()
            waits = [asyncio.create_task(self.crew.ended.wait())]
            if not hurried:
                waits.append(asyncio.create_task(self._hurry.wait()))
            await asyncio.wait(waits, timeout=max(0.0, until - self._loop.time()), return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()

    async def _flush(self, until: float) -> bool:
        try:
            async with asyncio.timeout_at(until):
                await self.turner.flush()
        except TimeoutError:
            log.error("%d ended jobs could not be written; they will be rescued", self.turner.unwritten)
            return False
        return True

    async def _sign_off(self) -> None:
        self._unlisten()
        self._unlisten = lambda: None
        ending = [*self._background] if self._rejoining is None else [*self._background, self._rejoining]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._rejoining = None
        self.crew.close()
        for executor in self._executors.values():
            await executor.close()
        self.heart.stop()
        try:
            async with asyncio.timeout(self.timing.call):
                await self.leader.step_down()
                await self._storage.sign_off(self.id)
        except Exception as error:
            log.warning("pod %s could not sign off; its lease will end: %s", self.label, error)
            self.clean = False
        try:
            async with asyncio.timeout(self.timing.call):
                await self.heart.ended()
        except TimeoutError:
            log.warning("the heart of pod %s still waits for an answer, and is left behind", self.label)
        await self._hooks.drain(self.timing.cancel_grace)
        log.info("pod %s has stopped", self.label)


def _is_suspect(job: Job) -> bool:
    return job.crashes >= POISON_CRASHES - 1


def _ignore(lag: float) -> None:
    """An embedded pod never ends its host: the Heart has logged it and given up the lease."""
