"""Hooks watch. They are told after the commit, best effort: a hook that fails is logged and counted, and the job never
hears of it. What must happen with a job's finish is a follow-up (`ctx.follow`), not a hook.

`enqueued` is told where somebody called an enqueue. A follow-up and a job that a schedule fires have no such caller:
they are written with a finish or a fire, by whichever pod that was, and `started` is the first that is told of them.
`released` is told of a run that a stopping pod gives back, and, where somebody answers, of a job that waited for it.

A plain function is called at once, on the loop that wrote: it must be quick. A coroutine function runs beside it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET

from .core import names
from .core.errors import ConfigError
from .core.job import Change, Job

if TYPE_CHECKING:
    from .core.view import JobView

HookName = Literal[
    "enqueued",
    "started",
    "succeeded",
    "retried",
    "snoozed",
    "throttled",
    "failed",
    "cancelled",
    "waiting",
    "released",
    "rescued",
]
NAMES: Final[tuple[HookName, ...]] = get_args(HookName)
Hook = Callable[["JobView"], Any]
HookT = TypeVar("HookT", bound=Hook)

log = logging.getLogger("treadle.hooks")


class Watching:
    """`@app.on("failed")`, or `@app.on_failed`: a function of one JobView hears of every such job, after the commit."""

    hooks: Hooks

    def on(self, name: HookName) -> Callable[[HookT], HookT]:
        """Hear of one kind of event, by its name: `@app.on("failed")`."""
        return lambda hook: self._watch(name, hook)

    def on_enqueued(self, hook: HookT) -> HookT:
        """Hear of jobs that were enqueued by this process."""
        return self._watch("enqueued", hook)

    def on_started(self, hook: HookT) -> HookT:
        """Hear of runs that begin here."""
        return self._watch("started", hook)

    def on_succeeded(self, hook: HookT) -> HookT:
        """Hear of jobs that have succeeded."""
        return self._watch("succeeded", hook)

    def on_retried(self, hook: HookT) -> HookT:
        """Hear of attempts that failed, where another follows."""
        return self._watch("retried", hook)

    def on_failed(self, hook: HookT) -> HookT:
        """Hear of jobs that have failed for good."""
        return self._watch("failed", hook)

    def on_cancelled(self, hook: HookT) -> HookT:
        """Hear of jobs that were cancelled."""
        return self._watch("cancelled", hook)

    def on_waiting(self, hook: HookT) -> HookT:
        """Hear of jobs that wait for an answer from outside."""
        return self._watch("waiting", hook)

    def on_released(self, hook: HookT) -> HookT:
        """Hear of runs that were given back, uncharged."""
        return self._watch("released", hook)

    def on_rescued(self, hook: HookT) -> HookT:
        """Hear of jobs whose worker was lost."""
        return self._watch("rescued", hook)

    def on_snoozed(self, hook: HookT) -> HookT:
        """Hear of runs that asked to come back later."""
        return self._watch("snoozed", hook)

    def on_throttled(self, hook: HookT) -> HookT:
        """Hear of runs that cooled their queue."""
        return self._watch("throttled", hook)

    def _watch(self, name: HookName, hook: HookT) -> HookT:
        self.hooks.add(name, hook)
        return hook


class Hooks:
    """Who wants to hear of what. `hooks.succeeded` is the list of those who want to hear of successes."""

    def __init__(self) -> None:
        self.enqueued: list[Hook] = []
        self.started: list[Hook] = []
        self.succeeded: list[Hook] = []
        self.retried: list[Hook] = []
        self.snoozed: list[Hook] = []
        self.throttled: list[Hook] = []
        self.failed: list[Hook] = []
        self.cancelled: list[Hook] = []
        self.waiting: list[Hook] = []
        self.released: list[Hook] = []
        self.rescued: list[Hook] = []
        self.errors: Counter[str] = Counter()  # by the hook's name
        self._by_name: dict[str, list[Hook]] = {name: getattr(self, name) for name in NAMES}
        self._told = {**self._by_name, "waits": self.waiting}  # by a Change's reason, where there is a hook for it
        # The loop holds its tasks weakly: without this a hook could be collected while it waits.
        self._under_way: set[asyncio.Task[None]] = set()

    def add(self, name: str, hook: Hook) -> None:
        if name not in self._by_name:
            near = names.suggest(name, NAMES)
            remedy = f"did you mean {near!r}?" if near else f"there are {', '.join(NAMES)}"
            raise ConfigError(f"there is no hook {name!r}; {remedy}")
        if not callable(hook):
            raise ConfigError(f"a hook must be a function of one job, not {hook!r}")
        self._by_name[name].append(hook)

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens to anything."""
        return any(self._by_name.values())

    def tell(self, name: str, job: Job, change: Change | None = None) -> None:
        """Tell of a job, as it is after `change`. Whatever nobody listens to (or is no hook at all) costs a look-up."""
        hooks = self._told.get(name)
        if not hooks:
            return
        from .core.view import job_view

        try:
            view = job_view(job if change is None else after(job, change))
        except Exception:
            self._count(name, job.id)
            return
        for hook in hooks:
            try:
                waits = hook(view)
                if inspect.iscoroutine(waits):
                    self._start(name, waits, job.id)
            except BaseException:  # not even a SystemExit in somebody's hook may end the pod
                self._count(name, job.id)

    async def drain(self, timeout: float | None = None) -> None:
        """Wait for the hooks that are under way on this loop, and after `timeout` seconds cancel them."""
        here = asyncio.get_running_loop()
        if own := [task for task in list(self._under_way) if task.get_loop() is here]:
            _, late = await asyncio.wait(own, timeout=timeout)
            for task in late:
                log.warning("%s does not end and is cancelled", task.get_name())
                task.cancel()

    def _start(self, name: str, waits: Any, job_id: str) -> None:
        try:
            task = asyncio.get_running_loop().create_task(self._run(name, waits, job_id), name=f"treadle hook {name}")
        except RuntimeError:
            waits.close()
            raise
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _run(self, name: str, waits: Any, job_id: str) -> None:
        try:
            await waits
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self._count(name, job_id)

    def _count(self, name: str, job_id: str) -> None:
        self.errors[name] += 1
        log.exception("hook %s failed for job %s", name, job_id)


def after(job: Job, change: Change) -> Job:
    """The job as the Change leaves it, as far as it says so itself: instants are the storage's affair."""
    return msgspec.structs.replace(
        job,
        state=change.to or job.state,
        attempt=job.attempt if change.attempt is None else change.attempt,
        crashes=job.crashes if change.crashes is None else change.crashes,
        result=job.result if change.result is UNSET else change.result,
        warning=job.warning if change.warning is UNSET else change.warning,
        meta=job.meta if change.meta is UNSET else change.meta,
        errors=job.errors if change.error is None else (*job.errors, change.error),
        error_count=job.error_count + (change.error is not None),
    )
