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
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from ..config import Limits, Timing
from ..context.context import Door
from ..core import boot, demand, lifecycle, settings
from ..core.backoff import Retry
from ..core.demand import Portion
from ..core.health import Signs
from ..core.job import NO_TIMEOUT, Change, Job, State
from ..core.pod import Descriptor, PodCard, PodStats
from ..core.schedule import Declared
from ..hooks import Hooks
from ..ports import Beaten, Executor, Gathers, RunReport, Storage, Wake
from ..tasks.follow_ups import FollowUps
from ..tasks.task import Registry
from . import vitals
from .crew import Crew
from .heart import Heart
from .meter import Meter
from .orders import Orders
from .outcome_log import OutcomeLog
from .rates import Rates
from .recovery import Recovery
from .reporter import Reporter
from .roster import Roster
from .service import Round, Service
from .services.balancer import Balancer
from .services.cron import Cron
from .services.leader import Leader
from .services.operator import Operator
from .services.pruner import Pruner
from .services.recorder import Recorder
from .services.rescuer import Rescuer
from .services.roller import Roller
from .services.sounder import Sounder
from .services.surveyor import Surveyor
from .services.watcher import Watcher
from .suspects import Frees, Isolation, Suspects
from .timed import Timed
from .turner import Turner

log = logging.getLogger("treadle.pod")

DEAF_POLL: Final = 0.2
LAST_RECORD: Final = 1.0


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
        worker_version: str = "",
        leads: bool = True,
        services: bool = True,
        state: Any = None,
        declared: Mapping[str, Mapping[str, Any]] | None = None,
        about: Mapping[str, Descriptor] | None = None,
        portions: Mapping[str, Portion] | None = None,
        rates: Mapping[str, tuple[int, float]] | None = None,
        chance: random.Random | None = None,
        stuck: Callable[[float], None] | None = None,
        produced: Counter[tuple[str, str, str]] | None = None,
        limited: Counter[str] | None = None,
        schedules: Callable[[], Mapping[str, Declared]] | None = None,
        keep_logs: int | None = logging.INFO,
        isolation: Isolation | None = None,
        starts_anew: bool = False,
        log_jobs: bool = False,
        storage_name: str = "",
        queues_of: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """`log_jobs`: every start and success is in the log too. `storage_name` and `queues_of` (each task's queues)
        are for the boot line and its warnings."""
        self.id = ""
        self.label = ""
        self.timing = timing or Timing()
        self.limits = limits or Limits()
        self.stopped = asyncio.Event()
        self.ordered_off = asyncio.Event()  # an operator has asked it to stop, or it must, and it does
        self.clean = True  # everything that ended was written before the pod signed off
        self.broken = False  # one of its loops has ended by a bug, or it is worn, and so it stops
        self.timed = Timed(storage)
        self._storage = self.timed.storage
        self._registry = registry
        self._executors = executors
        self._queues = dict(queues)
        self._hooks = hooks or Hooks()
        self._make_label: Callable[[str], str] = label or str
        self.version = version
        self.worker_version = worker_version  # of the user's code
        self.produced = Counter[tuple[str, str, str]]() if produced is None else produced  # what was enqueued here
        self.limited = Counter[str]() if limited is None else limited  # who had to wait for tokens of which limit
        self._leads = leads
        self._has_services = services
        self._chance = chance or random.Random(secrets.randbits(64))  # noqa: S311 - jitter and token salts; seeded well
        self._stuck: Callable[[float], None] = stuck or _ignore
        self._door = door
        self._state = state
        self._declared = dict(declared or {})  # queue → the settings that its row starts with
        self._about = dict(about or {})
        self._schedules = schedules  # what its code declares; None: this pod fires none
        self._keep_logs = keep_logs  # from which level on lines are kept with their jobs; None: none
        self._portions = dict(portions or {})
        self._rates = dict(rates or {})  # of this pod alone: queue → (how many at once, how many a second)
        self._isolation = isolation  # runs what has lost a worker before
        self._starts_anew = starts_anew  # whoever runs it starts it again when it ends
        self._log_jobs = log_jobs
        self._storage_name = storage_name
        self._queues_of = queues_of
        self._clearing: set[asyncio.Task[None]] = set()
        self.loop = self._loop = asyncio.get_running_loop()
        self._background: list[asyncio.Task[None]] = []
        self._unlisten: Callable[[], None] = lambda: None
        self._hurry = asyncio.Event()
        self._stopping = False
        self._started = False
        self._ahead = 0.0  # of the storage's clock, before this process' own
        self._rejoining: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    # Start -----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        self._build()
        registered = await self._register()
        try:
            self.heart.start(self.id, registered)
            for executor in self._all_executors():
                await executor.start()
            self._unlisten = self._storage.listen(self._on_wake)
        except BaseException:
            await self._sign_off()  # or a pod that runs nothing would be kept alive by its Heart
            raise
        self._background = [asyncio.create_task(each.run(), name=each.service.name) for each in self.rounds]
        self._say_hello()
        self._background.append(asyncio.create_task(self._watch_heart(), name="heart watch"))
        self._background.append(asyncio.create_task(self._turn(), name="turner"))
        for task in self._background:
            task.add_done_callback(self._on_loop_end)
        self._started = True

    def manifest(self) -> str:
        """What this pod is and serves, in one line."""
        return boot.line(
            label=self.label,
            version=self.version,
            storage=self._storage_name,
            queues=self._queues,
            threads=self.threads,
            tasks=sorted(self._registry.tasks),
            pid=os.getpid(),
        )

    def _say_hello(self) -> None:
        log.info("%s", self.manifest())
        if self._queues_of is not None:
            for warning in boot.warnings(self._queues, self._queues_of):
                log.warning("%s", warning)

    def signs(self) -> Signs:
        """How this pod is, as far as can be seen without waiting for anybody. From any thread."""
        if not self._started:
            return Signs(started=False)
        alive = {task.get_name(): not task.done() for task in self._background}
        return Signs(
            stopping=self._stopping,
            loop_alive=not self.heart.is_stuck and not self._loop.is_closed(),
            heart_alive=self.heart.alive,
            turner_alive=alive.pop("turner", False),
            services_alive=all(alive.values()),
            beat_age=self.heart.beat_age,
            storage_age=self.timed.age,
            lease=self.timing.lease,
            beat=self.timing.beat,
        )

    @property
    def threads(self) -> int:
        """How many plain functions run at once."""
        size: int = getattr(self._executors.get("thread"), "size", 0)
        return size if self.limits.threads is not None else min(size, self.roster.slots)

    @property
    def busy_threads(self) -> int:
        """Threads with a plain function, those included whose run was given up."""
        busy: int = getattr(self._executors.get("thread"), "busy", 0)
        return busy

    @property
    def children(self) -> int:
        """Child processes that run its calls. From any thread."""
        return sum(getattr(executor, "children", 0) for executor in self._all_executors())

    @property
    def hook_errors(self) -> Counter[str]:
        return self._hooks.errors

    @property
    def rescues(self) -> Counter[str]:
        return self.rescuer.counts if self._has_services else Counter()

    def _build(self) -> None:
        """A start after a stop begins with nothing left over."""
        tasks = self._registry.tasks.values()
        by_executor = {
            name: frozenset(each for task in tasks if task.executor == name for each in (task.name, *task.aliases))
            for name in self._executors
        }
        self._known = tuple(sorted(frozenset[str]().union(*by_executor.values())))
        self._started = False
        self.meter = Meter()
        self.roster = Roster(
            self._queues, self._executors, by_executor, pod_slots=self.limits.pod_slots, portions=self._portions
        )
        stacks = {task.name: self._registry.stack_of(task) for task in tasks}
        self.follow_ups = FollowUps(self._registry.find, self._door)
        self.turner = Turner(
            storage=self._storage,
            roster=self.roster,
            start=self._start_jobs,
            is_heard=self._is_heard,
            accepted=self._tell_hooks,
            may_claim=self._may_claim,
            batch=self.limits.batch,
            poll=self._poll,
            chance=self._chance,
            meter=self.meter,
            rates=Rates(self._storage, lambda: self.roster.settings, self._rates),
            declared=self.follow_ups,
            resolve=self._resolve,
        )
        self.recovery = Recovery(self._storage, lambda: self.roster.settings)
        self.outcome_log = OutcomeLog(each=self._log_jobs, most=self._most_attempts, now=self._storage_time)
        self.reporter = Reporter(
            self._storage, least=self._keep_logs, now=self._storage_time, in_hand=self.roster.in_hand
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
            notebook=self.reporter,
            isolation=self._isolation,
            most_abandoned=self.limits.abandoned,
            worn=self._on_wear,
            stacks={name: stack for name, stack in stacks.items() if stack},
            retries={task.name: self._registry.retry_of(task) for task in tasks if not task.has_retry}
            if self._registry.default_retry is not None
            else {},
            declared=self.follow_ups,
        )
        for executor in self._all_executors():
            if isinstance(executor, Frees):
                executor.freed = self.turner.wake
        self.suspects = Suspects(
            self._isolation,
            self.roster,
            find=self._registry.find,
            give_back=self.turner.give_back,
            chance=self._chance,
        )
        self.heart = Heart(
            storage=self._storage,
            timing=self.timing,
            chance=self._chance,
            reports=lambda: self.roster.reports(self.label),
            heard=self._on_beat,
            loop_limit=self._loop_limit,
            stuck=self._stuck,
            stats=self._stats,
            on_loop=self._on_loop,
        )
        self.orders = Orders(label=lambda: self.label, wake=self.turner.wake, stop=self._stop_by_itself)
        self.leader = Leader(self._storage, lambda: self.id, ttl=self.timing.leader_ttl, every=self.timing.leader_every)
        self.recorder = Recorder(
            self._storage,
            self.meter,
            self.timed,
            label=lambda: self.label,
            slots=lambda: (sum(self._queues.values()), len(self.roster)),
            lag=lambda: self.heart.lag,
        )
        self.surveyor = Surveyor(self._storage)
        self.rounds = self._services()
        self._stopping = self.broken = False
        self._hurry.clear()
        self.stopped.clear()
        self.ordered_off.clear()

    def _storage_time(self) -> float:
        """What the storage's clock says, as far as this pod knows. From any thread."""
        return time.monotonic() + self._ahead if self._ahead else time.time()

    @property
    def gathering(self) -> list[Gathers]:
        """Those of its executors that hold calls back, to begin many at once."""
        return [executor for executor in self._all_executors() if isinstance(executor, Gathers)]

    def _all_executors(self) -> list[Executor]:
        return [*self._executors.values(), *([] if self._isolation is None else [self._isolation])]

    def _poll(self) -> float:
        """Where nobody wakes us, polling is all there is, and a second would be long."""
        return self.timing.poll if self._storage.signals_work else min(self.timing.poll, DEAF_POLL)

    def _may_claim(self) -> bool:
        return self.heart.may_claim() and not self.orders.quiet

    def _stats(self) -> PodStats:
        """From the Heart's thread."""
        lag, slow_task = self.heart.worst_lag()
        return PodStats(
            running=self.roster.counts(),
            quiet=self._stopping or not self._may_claim(),
            cpu_seconds=vitals.cpu_seconds(),
            rss_bytes=vitals.rss_bytes(),
            loop_lag=lag,
            slow_task=slow_task,
            clock_skew=round(self.heart.skew, 3),
            threads=threading.active_count(),
            stuck_threads=self.crew.stuck,
            abandoned=self.crew.abandoned,
            children=self.children,
            troubles={name: why for name, each in self._executors.items() if (why := getattr(each, "trouble", None))},
        )

    def _on_loop(self) -> str:
        """From the Heart's thread: whose turn it is on the loop, if it is a user's task."""
        current = asyncio.current_task(self._loop)
        return next((run.task.name for run in self.roster.runs() if run.work is current), "")

    def _services(self) -> list[Round]:
        # Every pod writes its own history, and looks around for those who scrape it.
        own: list[tuple[Service, Callable[[], bool]]] = [
            (self.recorder, lambda: True),
            (self.surveyor, lambda: self.surveyor.is_wanted),
        ]
        if not self._has_services:
            return [Round(service, self._chance, wanted) for service, wanted in own]
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
            ended=self._on_wait_over,
            beat_age=lambda: self.heart.silence,
            override=self.roster.override,
            retry_of=self._retry_of,
            may_act=lambda: proves or self.leader.leads,
            declared=self.follow_ups.added,
        )
        balancer = Balancer(
            self._storage,
            lambda: self.leader.leads,
            every=self.timing.balance,
            settings=lambda: self.roster.settings,
        )
        watcher = Watcher(self._storage)
        self.pruner = Pruner(self._storage, every=self.timing.prune)
        roller = Roller(self._storage, lambda: self.leader.leads, every=self.timing.roll_up)
        self.operator = Operator(self._storage)
        duties: list[tuple[Service, Callable[[], bool]]] = [
            *own,
            (self.rescuer, lambda: proves or self.leader.leads),
            (balancer, lambda: self.leader.leads),
            (watcher, lambda: self.leader.leads),
            (roller, lambda: self.leader.leads),
            (Sounder(self._storage, lambda: self.leader.leads), lambda: self.leader.leads),
            (self.pruner, lambda: self.leader.leads),
            (self.operator, lambda: self.leader.leads),
        ]
        if self._schedules is not None:
            self.cron = Cron(
                self._storage, self._schedules, term=lambda: self.leader.term, fired=self.outcome_log.fired
            )
            duties.append((self.cron, lambda: self.leader.leads))
        if self._leads:
            # A leader that drains goes on leading, or the cluster would be without its services meanwhile.
            duties.append((self.leader, lambda: not self._stopping or self.leader.leads))
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
            version=self.version,
            worker_version=self.worker_version,
            queues=self._queues,
            tasks=self._known,
            lease=self.timing.lease,
            about=self._about,
            slots=self.limits.pod_slots,
            can_lead=self._leads and self._has_services,
            schedules=tuple(sorted(self._registry.timetable)),
        )
        asked = time.monotonic()
        await self._storage.register(card)
        await self._first_settings()
        self.turner.pod = self.id
        self.reporter.serve(self.id)
        self.meter.pod = self.meter.pod or self.id
        return asked

    async def _first_settings(self) -> None:
        """Give new queues what their code declares, and learn what holds, before anything is claimed."""
        try:
            # Version 0: nobody has edited it yet. Afterwards an operator's word counts, whatever the code says.
            seeds = [settings.change(name, declared, 0, None) for name, declared in self._declared.items()]
            if seeds:
                await self._storage.apply(seeds)
            beaten = await self._storage.beat(self.id, self.timing.lease, ())
        except Exception as error:
            log.warning("the settings of the queues are not known yet: %s", error)
            return
        if not beaten.lost:
            self._note_settings(beaten)

    def _note_settings(self, beaten: Beaten) -> None:
        self._ahead = beaten.now - time.monotonic()
        found = {queue.name: queue for queue in beaten.queues}
        roster = self.roster
        if (found, beaten.serving) != (roster.settings, roster.serving):
            self._balance_soon()
        changed = (found, beaten.serving, beaten.shares) != (roster.settings, roster.serving, roster.shares)
        roster.settings, roster.serving, roster.shares = found, beaten.serving, beaten.shares
        self.recovery.heard(beaten.now)
        if changed:
            self.turner.wake()  # there may be more room than before

    async def _turn(self) -> None:
        # A dead neighbour's jobs are looked for at the start, not only a scan later.
        if self._has_services and self._storage.capabilities.proves_death:
            try:
                await self.rescuer.run_once()
            except Exception as error:
                log.warning("first look for dead neighbours: %s", error)
        await asyncio.sleep(demand.first_pause(self.roster.serving, self.timing.start_jitter, self._chance.random()))
        await self.turner.run()

    async def waits_for_tokens(self) -> bool:
        """Whether there is work that only a rate holds back."""
        starved = self.turner.rates.starved
        return bool(starved) and any(each.ready and each.queue.name in starved for each in await self._storage.queues())

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

    def _on_loop_end(self, task: asyncio.Task[None]) -> None:
        """None of them ends by itself. One that does has a bug, and a pod that goes on without it would do harm in
        silence: it stops, in order, and whoever started it may start it again."""
        if self._stopping or task.cancelled():
            return
        log.critical(
            "%s of pod %s has ended by a bug: the pod stops", task.get_name(), self.label, exc_info=task.exception()
        )
        self.broken = True
        self._stop_by_itself()

    def _on_wear(self, why: str) -> None:
        """Too many runs ignore their cancel. Whoever has its own process leaves it, and is started again; a host that
        embeds the pod is not ours to end."""
        if not self._starts_anew:
            log.critical("pod %s: %s; only a new process gets back what they hold", self.label, why)
            return
        log.critical("pod %s: %s: it stops, to be started anew", self.label, why)
        self.broken = True
        self._stop_by_itself()

    # While it runs ---------------------------------------------------------------------------------------------------

    def _start_jobs(self, jobs: Sequence[Job]) -> None:
        if self._stopping:
            # The claim was under way when the stop came.
            for job in jobs:
                self.turner.give_back(job)
            return
        jobs, alone = self.suspects.apart(jobs)
        for job in jobs:
            if alone and job.id in alone:
                self.crew.start(job, alone=True)
            else:
                self.crew.start(job)
        if self._hooks.started:
            for job in jobs:
                run = self.roster.in_hand.get((job.id, job.token or ""))
                self._hooks.tell("started", job if run is None else run.named())
        if self.outcome_log.tells_each:
            for job in jobs:
                self.outcome_log.started(job)

    def _resolve(self, job: Job) -> Change | None:
        """What the row of a claimed job lacks, if it was enqueued without its task's code. None: nothing."""
        task = self._registry.find(job.task)
        if task is None:
            return None  # it is given back
        retry = self._registry.retry_of(task)
        return lifecycle.resolve(job, retry, task.timeout or NO_TIMEOUT, self.roster.settings.get(job.queue))

    def _is_heard(self) -> bool:
        """Whether successes are told one by one: all other ends are told in any case."""
        if self._hooks.is_heard or self.reporter.is_used or self.recovery.is_awaited:
            return True
        return self.outcome_log.tells_each

    def _tell_hooks(self, change: Change, job: Job) -> None:
        self._hooks.tell(change.why, job, change)
        self.outcome_log.ended(change, job)
        if self.reporter.is_used:
            self.reporter.ended(change, job)
        if self.recovery.is_awaited and change.to is State.SUCCEEDED and self.recovery.is_due(job.queue):
            clearing = asyncio.create_task(self.recovery.clear(job.queue))
            self._clearing.add(clearing)
            clearing.add_done_callback(self._clearing.discard)

    def _on_rescue(self, change: Change, job: Job) -> None:
        self._hooks.tell("rescued", job, change)
        self.outcome_log.ended(change, job)
        self.meter.rescued(change, job, time.monotonic() + self._ahead)
        if job.pod == self.id:
            # Our own run, ended by our own Rescuer: no need to wait for a beat to hear of it.
            self.crew.stop_run(job.id, job.token or "", "lost")
        self.turner.wake()

    def _retry_of(self, task: str) -> Retry | None:
        known = self._registry.find(task)
        return None if known is None else self._registry.retry_of(known)

    def _most_attempts(self, job: Job) -> int:
        retry = self._retry_of(job.task) or Retry()
        return lifecycle.most_attempts(job, retry, self.roster.override(job.queue))

    def _on_wait_over(self, change: Change, job: Job) -> None:
        self._hooks.tell(change.why, job, change)
        self.outcome_log.ended(change, job)
        self.meter.rescued(change, job, time.monotonic() + self._ahead)

    def _on_wake(self, wake: Wake) -> None:
        """From any thread. A hint costs one turn; the loop is entered only if one of our queues is concerned."""
        if wake.cancels or wake.settings:
            self.heart.beat_soon()
        says_nothing = not (wake.queues or wake.ended or wake.cancels or wake.settings)
        if says_nothing or not wake.queues.isdisjoint(self._queues):
            self._call_soon(lambda: self.turner.wake("signal"))

    def _balance_soon(self) -> None:
        """A total may be another, or pods have come or gone, and the shares with them: a leader need not wait for its
        round."""
        for each in self.rounds:
            if each.service.name == Balancer.name:
                each.nudge()

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
        self._note_settings(beaten)
        self.orders.hear(beaten.wish)
        held = {(each.id, each.token) for each in beaten.held}
        for each in beaten.held:
            if each.cancel_wanted:
                self.crew.stop_run(each.id, each.token, "cancel")
            if not self.turner.knows(each.id, each.token):
                self.turner.take_up(each.token)
        for run in sent:
            if (run.id, run.token) not in held:
                self.crew.lose(run.id, run.token)

    async def _rejoin(self) -> None:
        log.warning("pod %s was declared lost: its runs are stopped, and it registers anew", self.label)
        self._stop_lost_runs()
        self.turner.forget()
        while True:
            try:
                registered = await self._register()
                if self.orders.wish == "quiet":  # the wish was the old row's, and went with it
                    await self._storage.order_pod(self.id, "quiet", by="itself, registered anew")
                break
            except Exception as error:
                log.warning("cannot register: %s", error)
                await asyncio.sleep(self.timing.poll)
        self.heart.serve(self.id, registered)
        log.warning("pod %s is registered anew", self.label)
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

    def _stop_by_itself(self) -> None:
        self.ordered_off.set()
        self._ending = self._loop.create_task(self.stop(), name="stop by itself")

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
            self.reporter.close()  # or `logging` would show its records to a pod that is gone, for good
            self.outcome_log.close()
            for task in self._background:
                task.cancel()
            self._stop_lost_runs()
            self.stopped.set()

    async def _stop(self, grace: float) -> None:
        ending = self._loop.time() + grace
        last_call = min(self.timing.cancel_grace, grace / 3)
        self.turner.stop_claiming()
        for executor in self.gathering:
            executor.let_go()
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

    async def _last_record(self) -> None:
        try:
            async with asyncio.timeout(LAST_RECORD):
                await self.reporter.send()
                await self.recorder.flush()
        except Exception as error:
            log.info("the last seconds of history are lost: %s", error)

    async def _sign_off(self) -> None:
        self._unlisten()
        self._unlisten = lambda: None
        ending = [*self._background] if self._rejoining is None else [*self._background, self._rejoining]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._rejoining = None
        await self._last_record()
        self.reporter.close()
        self.crew.close()
        for executor in self._all_executors():
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


def _ignore(lag: float) -> None:
    """An embedded pod never ends its host: the Heart has logged it and given up the lease."""
