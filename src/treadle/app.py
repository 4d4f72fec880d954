"""App: tasks, a storage, and everything that can be asked of both. The one place that knows the adapters.

Opening
-------
`async with app:` opens the storage and closes it again; whoever enqueues before that opens it by the way. A storage
opened by the way stays open until `close`, or until the interpreter ends: nothing of it can be lost then, because an
enqueue returns after its commit. Opening and closing may be asked for from several loops and threads at once: one
caller does it, the others wait for that one.

Sync
----
`enqueue_sync` and every other `_sync` run on a loop of the app's own, in a daemon thread that is started when it is
first needed: never on the caller's loop, which it would stop.

Fork
----
A child shares no thread and no connection with its parent. It forgets both, unclosed (to close what the parent uses
would harm the parent), and opens anew when it enqueues.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
import sys
import weakref
from collections.abc import AsyncGenerator, Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Never, TypeVar, Unpack, cast, overload
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, UnsetType

from . import config as settings
from .client.client import Client, Router
from .client.opening import Keep, Through, Unreachable
from .config import Limits, Timing
from .context.context import Call, Door, Handle, Options, amend, plain_result
from .core import catalog, demand, names, payload
from .core import limit as limiting
from .core import settings as checked_settings
from .core.backoff import Retry
from .core.demand import Portion
from .core.deploy import check_version
from .core.duration import Duration
from .core.errors import ConfigError, StorageUnavailable
from .core.job import Job
from .core.logline import LEVELS, Level
from .core.partition import Partitions
from .core.pod import Descriptor
from .core.settings import QueueSettings
from .core.unique import Unique
from .hooks import Hooks, Watching
from .ports import Executor, ReadOnlyChoice, Storage
from .tasks.schedules import plan_of
from .tasks.task import HERE, Registry, Task

if TYPE_CHECKING:
    from .core.schedule import Declared
    from .core.warnings import ClusterWarning
    from .operate.answers import Answers
    from .operate.audit import Audit
    from .operate.catalog import Catalog
    from .operate.history import History
    from .operate.jobs import Jobs
    from .operate.limits import RateLimits
    from .operate.locks import Lock, Locks
    from .operate.operations import Operations
    from .operate.pods import Pods
    from .operate.queues import Queues
    from .operate.schedules import Schedules
    from .runtime.pod import Pod
    from .web.access import Authenticate
    from .web.dashboard import Dashboard

R = TypeVar("R")
T = TypeVar("T")

Synchronous = Literal["full", "normal"]
QueueList = Iterable[str] | Mapping[str, int] | str
Lifespan = Callable[["App"], AbstractAsyncContextManager[Any]]

log = logging.getLogger("treadle.app")

SCHEMES: Final = ("sqlite", "memory", "postgresql")
LOCKED_FOR: Final = 60.0  # a lock whose owner names no time
# What the other parts of Treadle (worker, command line, dashboard, test kit) ask of an app, and its users do not: no
# completion shows it. A leading underscore would say the same, and forbid it to those parts as well.
_NOT_SHOWN: Final = frozenset(
    {
        "adopt",
        "all",
        "allow_read_only",
        "as_child",
        "by_name",
        "check_time",
        "checks_arguments",
        "client",
        "config",
        "declare",
        "declared_schedules",
        "default_retry",
        "door",
        "heed",
        "hooks",
        "layers",
        "lend",
        "lived",
        "make_pod",
        "origin",
        "queues_of_tasks",
        "retry_of",
        "seeds",
        "stack_of",
        "state",
        "storage",
        "take_back",
        "take_over",
        "through",
        "timetable",
        "timing",
        "worker_version",
    }
)


class App(Registry, Watching):
    """A registry of tasks together with the storage where their jobs are kept.

    >>> shop = App("memory://")
    >>> @shop.task(name="welcome", queue="mail", retry=5)
    ... def welcome(name: str) -> str:
    ...     return f"Welcome, {name}!"
    >>> welcome.enqueue_sync("Ada").outcome
    'inserted'
    >>> shop.close_sync()
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        router: Router | None = None,
        storage: Storage | None = None,
        synchronous: Synchronous | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
        queues: QueueList | None = None,
        worker_version: str | None = None,
        lifespan: Lifespan | None = None,
        read_only: ReadOnlyChoice = False,
        retry: Retry | int | None = None,
        check_arguments: bool = True,
        **unknown: Never,
    ) -> None:
        """`url` is taken from TREADLE_URL or treadle.toml if it is not given; so is all else that is None.

        `router` chooses the queue of tasks that name none: a table of name prefixes, or a function of the name.
        `queues` are those that `worker()` serves by default. `worker_version` is the version of your own code: pods say
        it, and Failures shows what is new since the last one; `treadle worker` prefers that of the settings.
        What `lifespan(app)` yields is `ctx.state` in a pod.
        `read_only` opens the storage for nothing but reading, as far as it can: for a dashboard that only shows. "auto"
        does so where nothing can be written: on a standby, in a file without permission. Not for a worker.
        `retry` is a Retry, or a number of attempts, for tasks that say none: also those of registries that it includes.
        `check_arguments=False` lets arguments pass that do not fit the annotations of a task's parameters.
        """
        super().__init__(retry=retry)
        if unknown:
            from .core.hints import unknown_option

            raise TypeError(
                unknown_option("App", min(unknown), ("url", *(App.__init__.__kwdefaults__ or ())), at="App")
            )
        self._check_arguments = check_arguments
        if url is not None and storage is not None:
            raise ConfigError("App: give a url or a storage, not both")
        self.config = config = settings.load()
        self.name = None if name is None else _label("App name", name)
        self.worker_version = _version(worker_version) or config.worker_version
        self.url = "memory://" if storage is not None else config.url if url is None else url
        self._brings_storage = storage is not None  # then the URL says nothing of it
        self.timing = timing or config.timing
        self._limits = limits or config.limits
        self.hooks = Hooks()
        self._declared = queues
        self._queues: dict[str, dict[str, Any]] = {}  # declared by `queue`: name → settings that its row starts with
        self._about: dict[str, Descriptor] = {}
        self._told = config.queues  # what treadle.toml says of them
        self._lifespan = lifespan
        self.origin: str | None = None  # module:attribute, as somebody named it
        sync = synchronous or cast("Synchronous", config.synchronous)
        self._maker = functools.partial(_maker, self.url, sync, self.timing.call, config)
        make = self._maker(read_only) if storage is None else lambda: storage
        self._keeper = Keep(make, is_ours=storage is None)
        # Dropped without a word, an app still lets go of its threads. The Keep knows nothing of the app.
        weakref.finalize(self, Keep.let_go, self._keeper).atexit = False
        _apps.add(self)
        self.client = Client(self._keeper, router=router, hooks=self.hooks, deadline=self.timing.call)
        if self.default_retry is not None:
            self.client.attempts = self.default_retry.max_attempts
        for command, table in config.commands.items():
            self._declare_command(command, table)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _NOT_SHOWN]

    def __repr__(self) -> str:
        return f"<App {self.name or ''} {settings.masked(self.url)}>"

    # What can be asked of the storage. Most processes only enqueue: what they do not ask, they do not load -----------

    @cached_property
    def jobs(self) -> Jobs:
        """Jobs: look for them, explain, cancel, revive, reschedule, move, and their logs."""
        from .operate.jobs import Jobs

        return Jobs(self.client)

    @cached_property
    def answers(self) -> Answers:
        """What somebody outside says to a job that waits."""
        from .operate.answers import Answers

        return Answers(self.client)

    @cached_property
    def queues(self) -> Queues:
        """Queues: what is in them, and their live settings."""
        from .operate.queues import Queues

        return Queues(self.client)

    @cached_property
    def pods(self) -> Pods:
        """Workers: who lives, and what an operator wants of them."""
        from .operate.pods import Pods

        return Pods(self.client, self.timing, self.find)

    @cached_property
    def history(self) -> History:
        """What ended how, how long it took, and the timeline of a job."""
        from .operate.history import History

        return History(self.client)

    @cached_property
    def schedules(self) -> Schedules:
        """Schedules: those of the code, and those made at run time."""
        from .operate.schedules import Schedules

        return Schedules(self.client, self.by_name.get)

    @cached_property
    def limits(self) -> RateLimits:
        """Rate limits of the whole cluster."""
        from .operate.limits import RateLimits

        return RateLimits(self.client)

    @cached_property
    def locks(self) -> Locks:
        """Who holds which lock."""
        from .operate.locks import Locks

        return Locks(self.client)

    @cached_property
    def operations(self) -> Operations:
        """One act upon all jobs that a filter describes."""
        from .operate.operations import Operations

        return Operations(self.client)

    @cached_property
    def audit(self) -> Audit:
        """What operators have done."""
        from .operate.audit import Audit

        return Audit(self.client)

    @cached_property
    def catalog(self) -> Catalog:
        """What workers say of the tasks that they know."""
        from .operate.catalog import Catalog

        return Catalog(self.client)

    # Open and close --------------------------------------------------------------------------------------------------

    @property
    def storage(self) -> Storage:
        return self._keeper.storage

    @property
    def is_open(self) -> bool:
        """Whether the storage is open."""
        return self._keeper.current is not None

    async def open(self) -> None:
        """Open the storage, and make it ready: tables that are missing are made."""
        await self._keeper.open()

    def open_sync(self) -> None:
        """Before a first `enqueue_sync` within a transaction: a storage cannot be made ready inside somebody else's."""
        if not self.is_open:
            self._keeper.run_sync(self._keeper.open())

    def allow_read_only(self) -> None:
        """As if it had been made with `read_only="auto"`, as long as it is not open: for who has somebody's app in
        hand, and shows what it holds."""
        self._keeper.make_by(self._maker("auto"))

    async def close(self) -> None:
        """Close the storage. The next use opens it again."""
        await self._keeper.close()

    def close_sync(self) -> None:
        self._keeper.close_sync()

    @staticmethod
    def all() -> list[App]:
        """Every app of this process."""
        return list(_apps)

    def lend(self, storage: Storage) -> None:
        """Keep jobs in another storage until `take_back`: that of a test."""
        self._keeper.lend(storage)

    def take_back(self) -> None:
        self._keeper.take_back()

    def through(self, wrap: Callable[[Storage], Storage], *, declares: bool = False) -> App:
        """This app with its storage seen through a wrapper: one that only reads, for a dashboard. It opens and closes
        with this one; to run a worker, use this one. `declares`: see `Client.through`."""
        other = copy.copy(self)
        own, keeper = self.client, Through(self._keeper, wrap)
        other._keeper = cast("Keep", keeper)  # as far as is needed: `storage`, `current` and `open`
        other.client = own.through(keeper, declares=declares)
        for name, face in list(vars(other).items()):  # jobs, queues … : all so far that ask through the client
            if getattr(face, "_client", None) is own:
                seen = copy.copy(face)
                vars(seen)["_client"] = other.client
                setattr(other, name, seen)
        return other

    def dashboard(
        self,
        *,
        access: Authenticate | Literal["open"] | None = None,
        redact: Iterable[str] = (),
        read_only: bool = False,
        env: str | None = None,
        color: str | None = None,
        hosts: Iterable[str] | Literal["any"] = (),
    ) -> Dashboard:
        """The dashboard as an ASGI app, to be mounted: `api.mount("/jobs", app.dashboard(access=who))`. What the
        options mean is said at `treadle.web.Dashboard`."""
        from .web.dashboard import Dashboard

        return Dashboard(self, access=access, redact=redact, read_only=read_only, env=env, color=color, hosts=hosts)

    async def __aenter__(self) -> App:
        await self._keeper.enter()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._keeper.leave()

    # Tasks and hooks -------------------------------------------------------------------------------------------------

    def include(self, registry: Registry) -> None:
        if isinstance(registry, App):
            raise ConfigError("an app includes registries, not apps: declare shared tasks on a Registry")
        super().include(registry)

    @overload
    def queue(
        self,
        name: Partitions,
        *,
        description: str = "",
        owner: str = "",
        docs: str = "",
        tags: Iterable[str] = (),
        **given: Unpack[QueueSettings],
    ) -> Partitions: ...
    @overload
    def queue(
        self,
        name: str,
        *,
        description: str = "",
        owner: str = "",
        docs: str = "",
        tags: Iterable[str] = (),
        **given: Unpack[QueueSettings],
    ) -> str: ...
    def queue(
        self,
        name: str | Partitions,
        *,
        description: str = "",
        owner: str = "",
        docs: str = "",
        tags: Iterable[str] = (),
        **given: Unpack[QueueSettings],
    ) -> str | Partitions:
        """Declare a queue: `mail = app.queue("mail", rate="100/m", owner="ops")`.

        The first worker that serves it gives these settings to its row. Afterwards they are an operator's
        (`app.queues.set`), and what stands here changes nothing. Answers with the name, for `@app.task(queue=mail)`.
        """
        members = [*name] if isinstance(name, Partitions) else [name]
        try:
            said = catalog.checked(description=description, owner=owner, docs=docs, tags=tags)
            wanted = checked_settings.read(given)
            for each in members:
                if names.check_name("queue", each) in self._queues:
                    raise ValueError("it is declared twice")
        except ValueError as error:
            raise ConfigError(f"queue {members[0]}: {error}") from None
        for each in members:
            self._queues[each] = wanted
            self._about[catalog.key("queue", each)] = said
        return name

    def _declare_command(self, name: str, table: object) -> None:
        """A command that treadle.toml declares."""
        from .tasks.external import tables

        stub, argv, options = tables.read(name, table)
        self.command(*argv, **options)(stub)

    def heed(self, queues: Iterable[settings.DeclaredQueue]) -> None:
        """What a worker's own settings say of its queues counts, rather than what this process would read itself."""
        self._told = tuple(queues)

    def door(self, task: str) -> Door:
        return self.client

    def _doors(self) -> list[Door]:
        return [self.client]

    # Limits and locks ------------------------------------------------------------------------------------------------

    def limit(self, name: str, rate: float | str, *, burst: int | None = None) -> None:
        """Declare a rate limit of the whole cluster: `app.limit("slack", "100/m")`. At most `burst` come at once (None:
        what a second gives, at least 1). Its row is made with these numbers; later edits by operators win."""
        limiting.check_scope(name)
        declared = limiting.check_rate(rate, burst)
        if self.client.broker.declared.setdefault(name, declared) != declared:
            raise ConfigError(f"limit {name} is declared twice, with different numbers")

    def lock(self, name: str, *, ttl: Duration = LOCKED_FOR, wait: Duration = 0.0, owner: str | None = None) -> Lock:
        """A named lock of the whole cluster: `async with app.lock("import", ttl="5m") as lock:`, or `with`.

        LockHeld if somebody else has it for longer than `wait`. A run may enter again what it holds. Another holder
        with the same `owner` (such as a job's id) takes the lock over: a second attempt what the first one held.
        """
        from .operate.locks import Lock

        return Lock(self.client, name, ttl=ttl, wait=wait, owner=owner)

    # Enqueue ---------------------------------------------------------------------------------------------------------

    @overload
    async def enqueue(self, task: Call[R], /) -> Handle[R]: ...
    @overload
    async def enqueue(
        self,
        task: str,
        args: Mapping[str, object] | None = None,
        /,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        queue: str | Partitions | None = None,
        ordering_key: str | None = None,
        priority: int | None = None,
        unique: str | Unique | bool | None = None,
        tags: Iterable[str] | None = None,
        reason: str | None = None,
        within: object = None,
        timeout: Duration | UnsetType | None = UNSET,
        max_attempts: int | None = None,
        meta: Mapping[str, object] | None = None,
        id: str | None = None,
    ) -> Handle[Any]: ...
    async def enqueue(
        self, task: Call[Any] | str, args: Mapping[str, object] | None = None, /, **options: Any
    ) -> Handle[Any]:
        """Ask for a job: by `task.bind(…)`, or by the task's name and its arguments by theirs. The code of a task that
        is named may be elsewhere; if it is here, its signature and options hold."""
        return await self.client.enqueue(self._call(task, args, options))

    @overload
    def enqueue_sync(self, task: Call[R], /) -> Handle[R]: ...
    @overload
    def enqueue_sync(
        self,
        task: str,
        args: Mapping[str, object] | None = None,
        /,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        queue: str | Partitions | None = None,
        ordering_key: str | None = None,
        priority: int | None = None,
        unique: str | Unique | bool | None = None,
        tags: Iterable[str] | None = None,
        reason: str | None = None,
        within: object = None,
        timeout: Duration | UnsetType | None = UNSET,
        max_attempts: int | None = None,
        meta: Mapping[str, object] | None = None,
        id: str | None = None,
    ) -> Handle[Any]: ...
    def enqueue_sync(
        self, task: Call[Any] | str, args: Mapping[str, object] | None = None, /, **options: Any
    ) -> Handle[Any]:
        return self.client.enqueue_sync(self._call(task, args, options))

    async def enqueue_many(
        self, calls: Iterable[Call[R]], *, within: object = None, atomic: bool = False
    ) -> list[Handle[R]]:
        """Ask for many jobs; one Handle each, in order: `await app.enqueue_many(welcome.bind(n) for n in ids)`.

        One transaction, all or none, for up to 16 MiB of arguments, `within` a transaction, and with `atomic`. A larger
        bulk is written in pieces while `calls` is read; a failure midway raises `BulkIncomplete` with the handles that
        are in.
        """
        return await self.client.enqueue_many(calls, within=within, atomic=atomic)

    def enqueue_many_sync(
        self, calls: Iterable[Call[R]], *, within: object = None, atomic: bool = False
    ) -> list[Handle[R]]:
        return self.client.enqueue_many_sync(calls, within=within, atomic=atomic)

    def handle(self, id: str) -> Handle[Any]:
        """A handle for a job, made of its id: `await app.handle(id).result(timeout="10s")`. If the code of its task is
        here, the result is of the type that the task returns; `task.handle(id)` is typed with it."""
        return Handle(id, None, self.client, chosen_by=self._result_decoder)

    def _result_decoder(self, job: Job) -> Callable[[str | None], Any]:
        task = self.find(job.task)
        return plain_result if task is None else task.decode_result

    def named(self, task: str, args: Mapping[str, object] | None = None, /, **options: Any) -> Call[Any]:
        """A request for a job by the name of its task, for `enqueue_many`; options as for `enqueue`."""
        return self._by_name(task, args or {}, options)

    def _call(self, task: Call[Any] | str, args: Mapping[str, object] | None, options: dict[str, Any]) -> Call[Any]:
        if isinstance(task, str):
            return self._by_name(task, args or {}, options)
        if args is not None or options:
            raise TypeError("a bound call has its arguments and options: task.using(…).bind(…)")
        if not isinstance(cast("object", task), Call):
            raise TypeError(f"enqueue takes task.bind(…) or a task's name, not a {type(task).__name__}")
        return task

    def _by_name(self, name: str, args: Mapping[str, object], options: dict[str, Any]) -> Call[Any]:
        known = self.find(name)
        if known is not None:
            return known.using(**options).bind_named(args)
        # Its code is elsewhere: no signature to check, and the pod that has it decides about attempts and timeout.
        task = names.check_name("task", name)
        return Call(task, payload.encode_arguments(args), amend(Options(), **options))

    # Schedules -------------------------------------------------------------------------------------------------------

    def declared_schedules(self) -> dict[str, Declared]:
        """What `@app.cron` and `@app.every` declare, with the queues that this app chooses."""
        from .core.schedule import Declared

        return {
            name: Declared(plan=plan_of(entry, self.client.prepare(entry.call)), at_once=entry.at_once)
            for name, entry in self.timetable.items()
        }

    # Work ------------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def worker(
        self,
        queues: QueueList | None = None,
        *,
        slots: int | Mapping[str, int] | None = None,
        label: str | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
        leads: bool = True,
        pod_slots: int | None = None,
        portions: Mapping[str, Portion] | None = None,
        rates: Mapping[str, float | str] | None = None,
        children: bool = True,
        only_services: bool = False,
        log_jobs: bool | None = None,
        worker_version: str | None = None,
    ) -> AsyncGenerator[Pod]:
        """Run a pod on the current loop: `async with app.worker(queues=["mail"], slots={"mail": 20}):`.

        Without `queues` it serves those of the app, else those of the settings, else every queue of the app's tasks.
        `pod_slots` bounds all its queues together; `portions` says how they share it, `{"mail": Portion(least=2)}`.
        `rates` are of this pod alone (`{"mail": "5/s"}`), so that two pods give twice as much; a rate of the whole
        cluster is a setting of the queue. Without `children` tasks with `executor="process"` run here too. Leaving it
        stops gracefully: what does not end in time is given back. An operator may stop it before. With `only_services`
        it serves no queue and claims nothing: it leads, and fires schedules, rescues and prunes. With `log_jobs` every
        start and success is logged at info (logger `treadle.jobs`), not at debug; failures are logged in any case.
        `worker_version` is the version of your own code; without it, that of the app, else of the settings.
        """
        if only_services and (queues is not None or slots is not None):
            raise ConfigError("only_services serves no queue: leave out queues and slots")
        limits = limits or self._limits
        if pod_slots is not None:
            limits = dataclasses.replace(limits, pod_slots=pod_slots)
        served = {} if only_services else self._served(queues, slots, limits)
        own = None if label is None else _label("label", label)
        async with self, self.state() as state:
            pod = self.make_pod(
                queues=served,
                portions=portions,
                label=None if own is None else lambda pod_id: own,
                timing=timing,
                limits=limits,
                leads=leads,
                state=state,
                rates=_rates(rates or {}, served),
                children=children,
                log_jobs=log_jobs,
                worker_version=_version(worker_version),
            )
            if "worker" in self.config.disable:
                log.warning("the worker is switched off (disable): nothing runs here")
                yield pod
                return
            await pod.start()
            try:
                yield pod
            finally:
                await pod.stop()

    @asynccontextmanager
    async def state(self) -> AsyncGenerator[Any]:
        """The app's lifespan, entered once per pod; yields what becomes `ctx.state`."""
        if self.client.broker.declared:
            try:
                await self.client.broker.seed()
            except StorageUnavailable as error:
                log.warning("the declared limits are not written yet: %s", error)  # the first that takes will do it
        async with self.lived() as state:
            yield state

    @asynccontextmanager
    async def as_child(self) -> AsyncGenerator[Any]:
        """In a child process of a pod: the lifespan, once per child. A storage that no two processes share is the
        pod's own, and cannot be had here."""
        if not self.storage.capabilities.shared:
            self.lend(cast("Storage", Unreachable()))
        async with self.lived() as state:
            yield state

    @asynccontextmanager
    async def lived(self) -> AsyncGenerator[Any]:
        if self._lifespan is None:
            yield None
        else:
            async with self._lifespan(self) as state:
                yield state

    async def warnings(self) -> Sequence[ClusterWarning]:
        """What is wrong in the cluster and will not mend itself: queues with work that no live pod serves, tasks that
        no live pod of their queue has known for five minutes."""
        from .operate.pods import find_warnings

        return await find_warnings(self.client)

    def warnings_sync(self) -> Sequence[ClusterWarning]:
        return self.client.run_sync(self.warnings())

    def make_pod(
        self,
        *,
        queues: Mapping[str, int],
        portions: Mapping[str, Portion] | None = None,
        label: Callable[[str], str] | None = None,
        timing: Timing | None = None,
        limits: Limits | None = None,
        leads: bool = True,
        state: Any = None,
        rates: Mapping[str, tuple[int, float]] | None = None,
        stuck: Callable[[float], None] | None = None,
        starts_anew: bool = False,
        children: bool = True,
        log_jobs: bool | None = None,
        worker_version: str | None = None,
    ) -> Pod:
        """A pod on this app's storage, not yet started. The app must stay open as long as it runs. Without `children`
        nothing runs in child processes: what would do so runs here."""
        from . import __version__
        from .executors import origin
        from .executors.async_ import AsyncExecutor
        from .executors.batch import batches_of
        from .executors.build import executors_of
        from .executors.inline import InlineExecutor
        from .executors.process import ProcessExecutor
        from .executors.thread import ThreadExecutor
        from .runtime.pod import Pod

        if origin.is_importing:
            raise ConfigError(
                "this is a child process of a worker, which imports the module that was started: what starts a worker "
                'there belongs under `if __name__ == "__main__":`'
            )
        limits = limits or self._limits
        pool = functools.partial(
            ProcessExecutor,
            origin=origin.Finder(self, self.origin),
            calls=limits.child_calls,
            memory=limits.child_memory,
            grace=(timing or self.timing).cancel_grace,
        )
        version = worker_version or self.worker_version
        named = msgspec.structs.replace(
            self.config, worker_prefix=self.name or self.config.worker_prefix, worker_version=version
        )
        slots = sum(queues.values()) if limits.pod_slots is None else min(sum(queues.values()), limits.pod_slots)
        threads = demand.threads(slots, given=limits.threads, most=limits.max_threads, spare=limits.abandoned)
        here: dict[str, Executor] = {"async": AsyncExecutor(), "thread": ThreadExecutor(threads)}
        return Pod(
            storage=self.storage,
            registry=self,
            executors={
                **here,
                "process": pool(tasks=lambda: self._run_by({"process"}), size=limits.children)
                if children
                else InlineExecutor(threads),
                **executors_of(self, grace=(timing or self.timing).cancel_grace * 0.8),
                **batches_of(self, here, queues, pod_slots=limits.pod_slots, queue_of=self.client.queue_of),
            },
            isolation=pool(tasks=lambda: self._run_by(HERE), size=limits.suspects, warm=False) if children else None,
            queues=queues,
            door=self.client,
            hooks=self.hooks,
            timing=timing or self.timing,
            limits=limits,
            label=label or functools.partial(settings.worker_label, named),
            version=__version__,
            worker_version=version or "",
            leads=leads and not self.config.no_lead and "services" not in self.config.disable,
            state=state,
            portions=self._portions(queues, limits, portions),
            declared=self.seeds(queues),
            about=self._descriptors(queues),
            schedules=None if "cron" in self.config.disable else self.declared_schedules,
            rates=self._pod_rates(queues) | dict(rates or {}),
            stuck=stuck,
            keep_logs=None if self.config.job_logs == "off" else LEVELS[cast("Level", self.config.job_logs)],
            produced=self.client.produced,
            limited=self.client.broker.limited,
            starts_anew=starts_anew,
            log_jobs=self.config.log_jobs if log_jobs is None else log_jobs,
            storage_name=self._storage_name(),
            queues_of={name: tuple(self._queues_of(task)) for name, task in self.tasks.items()},
        )

    def _storage_name(self) -> str:
        """Where the jobs are, as people may read it: no password, and the whole path of a file."""
        if self._brings_storage:
            return type(self.storage).__name__
        scheme, _, rest = self.url.partition("://")
        return f"sqlite:///{_sqlite_path(rest)}" if scheme == "sqlite" else settings.masked(self.url)

    def _run_by(self, executors: Container[str]) -> list[Task[..., Any]]:
        return [task for task in self.tasks.values() if task.executor in executors]

    def _portions(
        self, served: Iterable[str], limits: Limits, given: Mapping[str, Portion] | None
    ) -> dict[str, Portion]:
        told = {each.name: Portion(each.min, each.weight) for each in self._told}
        found = {name: told[name] for name in served if name in told} | dict(given or {})
        for name, each in found.items():
            if each.least < 0 or each.weight < 1:
                raise ConfigError(f"queue {name}: its least number of places is 0 or more, and its weight 1 or more")
        kept = sum(each.least for each in found.values())
        if limits.pod_slots is not None and kept > limits.pod_slots:
            raise ConfigError(f"the queues' minimum places are {kept} together, and pod_slots is {limits.pod_slots}")
        return found

    def _pod_rates(self, served: Iterable[str]) -> dict[str, tuple[int, float]]:
        """The rates of each pod alone, as the file gives them."""
        told = {each.name: each.pod_rate for each in self._told if each.name in served}
        return {name: limiting.check_rate(rate, None) for name, rate in told.items() if rate is not None}

    def seeds(self, served: Iterable[str]) -> dict[str, dict[str, Any]]:
        """What the rows of these queues start with: the file's word before that of the code."""
        told = {each.name: each.seed() for each in self._told}
        found = {name: self._queues.get(name, {}) | told.get(name, {}) for name in served}
        for name, seed in found.items():
            try:
                checked_settings.check_pairs(seed)
            except ValueError as error:
                raise ConfigError(f"queue {name}: {error} (one stands in the code, one in the file)") from None
        return {name: seed for name, seed in found.items() if seed}

    def _descriptors(self, served: Iterable[str]) -> dict[str, Descriptor]:
        tasks = {
            catalog.key("task", task.name): msgspec.structs.replace(
                task.about, queue=self.client.queue_of(task), executor=task.executor
            )
            for task in self.tasks.values()
        }
        queues = (catalog.key("queue", name) for name in served)
        return tasks | {key: self._about[key] for key in queues if key in self._about}

    def _served(
        self, queues: QueueList | None, slots: int | Mapping[str, int] | None, limits: Limits
    ) -> dict[str, int]:
        if queues is None:
            queues = self._declared
        if queues is None and self.config.queues:
            found = {each.name: each.slots for each in self.config.queues}
        elif queues is None:
            found = dict.fromkeys(self.queues_of_tasks())
        else:
            found = _queue_list(queues)
        if not found:
            raise ConfigError('a worker needs queues to serve, for example app.worker(queues=["default"])')
        each = slots if isinstance(slots, Mapping) else dict.fromkeys(found, slots)
        if unknown := sorted(each.keys() - found.keys()):
            raise ConfigError(f"slots are given for {unknown[0]}, a queue that this worker does not serve")
        served = {name: own or each.get(name) or limits.slots for name, own in found.items()}
        for name, count in served.items():
            if count < 1:
                raise ConfigError(f"queue {name} must have 1 slot or more, not {count}")
        return served

    def queues_of_tasks(self) -> list[str]:
        """The names of all queues that its tasks use."""
        return sorted({name for task in self.tasks.values() for name in self._queues_of(task)})

    def _queues_of(self, task: Task[..., Any]) -> Iterable[str]:
        return task.options.partitions or (self.client.queue_of(task),)


def _rates(rates: Mapping[str, float | str], served: Mapping[str, int]) -> dict[str, tuple[int, float]]:
    if unknown := sorted(rates.keys() - served.keys()):
        raise ConfigError(f"a rate is given for {unknown[0]}, a queue that this worker does not serve")
    try:
        return {name: limiting.check_rate(rate, None) for name, rate in rates.items()}
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _version(value: str | None) -> str | None:
    """An empty one counts as none, as in the environment: `App(worker_version=os.environ.get("COMMIT", ""))`."""
    if value is None or value == "":
        return None
    try:
        return check_version(value)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _label(what: str, value: str) -> str:
    try:
        return settings.label(value)
    except ValueError as error:
        raise ConfigError(f"{what} {error}") from None


def _queue_list(queues: QueueList) -> dict[str, int | None]:
    try:
        if isinstance(queues, str):
            return names.parse_queues(queues)
        if isinstance(queues, Mapping):
            sized = cast("Mapping[str, int]", queues)
            return {names.check_name("queue", name): slots for name, slots in sized.items()}
        return dict.fromkeys(names.check_name("queue", name) for name in queues)
    except ValueError as error:
        raise ConfigError(str(error)) from None


# ---------------------------------------------------------------------------------------------------------------------
# The storage: made of a URL, kept open, and asked from threads that have no loop


def _maker(
    url: str, synchronous: Synchronous, call_deadline: float, config: settings.Config, read_only: ReadOnlyChoice
) -> Callable[[], Storage]:
    """How to make the storage of a URL. What is wrong with the URL is said now; nothing is opened or imported yet."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise ConfigError(f"{settings.masked(url)!r} is not a storage URL; for example {settings.DEFAULT_URL}")
    if scheme == "memory":
        return _memory
    if scheme == "sqlite":
        path = _sqlite_path(rest)
        return lambda: _sqlite(path, synchronous, call_deadline, read_only, config.ballast)
    if scheme in ("postgresql", "postgres"):
        try:
            parts = urlsplit(url)
            for host in parts.netloc.rpartition("@")[2].split(","):  # a primary and its standbys
                _ = urlsplit(f"//{host}").port
        except ValueError:
            raise ConfigError("the PostgreSQL URL cannot be read; for example postgresql://user@host:5432/db") from None
        return lambda: _postgres(url, call_deadline, config, read_only)
    near = names.suggest(scheme, SCHEMES)
    remedy = f"did you mean {near}://?" if near else "use sqlite:///path, postgresql://… or memory://"
    raise ConfigError(f"there is no storage for {scheme}://; {remedy}")


def _sqlite_path(rest: str) -> str:
    path = rest.removeprefix("/")
    if path == rest:
        raise ConfigError(
            f"a SQLite URL has three slashes, or four before an absolute path: sqlite:///{rest or 'treadle.db'}"
        )
    if not path or path.startswith(":memory:"):
        raise ConfigError("a SQLite URL names a file: sqlite:///treadle.db; for nothing but memory use memory://")
    if "?" in path:
        raise ConfigError("a SQLite URL takes no options after ?; settings are in treadle.toml or TREADLE_*")
    return str(Path(path).absolute())


def _memory() -> Storage:
    from .storages.memory.storage import MemoryStorage

    return MemoryStorage()


def _postgres(url: str, call_deadline: float, config: settings.Config, read_only: ReadOnlyChoice) -> Storage:
    from .storages.postgres import PostgresStorage

    return PostgresStorage(
        url,
        schema=config.schema,
        listen_url=config.listen_url,
        call_deadline=call_deadline,
        auto_migrate=config.auto_migrate and read_only is not True,
        read_only=read_only,
    )


def _sqlite(
    path: str, synchronous: Synchronous, call_deadline: float, read_only: ReadOnlyChoice, ballast: bool
) -> Storage:
    if sys.platform == "win32":
        raise ConfigError("the SQLite storage needs the file locks of Linux or macOS; on Windows use WSL")
    from .storages.sqlite import SQLiteStorage

    return SQLiteStorage(
        path, synchronous=synchronous, call_deadline=call_deadline, read_only=read_only, ballast=ballast
    )


_apps: weakref.WeakSet[App] = weakref.WeakSet()
