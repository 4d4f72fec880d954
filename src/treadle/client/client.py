"""Client: makes jobs of Calls and sends them, waits for their end, cancels them.

Ids are made here, before anything is sent. So an insert whose answer was lost can be repeated, and is: after 100 ms,
300 ms and 1 s, as long as all tries together stay within the deadline of one call (setting `call`, 10 s): a storage
that kept a call for so long is not asked again. What is refused (a payload, a name, an option) is refused before
anything is written.

The storage is asked through a Keeper, which opens it when it is first needed. A storage serves any number of event
loops, so every call runs on its caller's own loop. The `_sync` twins have a loop elsewhere, that of the Portal, or none
at all, where the storage can be waited for without (`_insert_sync`).
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from ..context.context import Call, CancelAnswer, EnqueueOutcome, Handle, Options, current_job
from ..core import bulk, ids, lifecycle, names, unique
from ..core import limit as limiting
from ..core.audit import AuditLine, of_job
from ..core.duration import Duration, seconds, words
from ..core.errors import (
    BulkIncomplete,
    ConfigError,
    Conflict,
    JobNotFound,
    ResultTimeout,
    StorageDenied,
    StorageTimeout,
    StorageUnavailable,
)
from ..core.event import Event, clean, of_change
from ..core.job import DEFAULT_MAX_ATTEMPTS, TERMINAL, Change, Job, NewJob, State, UniqueClaim
from ..core.rollup import MOST_PAIRS, OTHER
from ..core.unique import Unique
from ..hooks import Hooks
from ..ports import Applied, Inserted, Storage, Wake
from ..tasks.task import Task
from .answers import FIRST_POLL, Replying, rest
from .finish_within import StorageDesk
from .rate_tokens import Broker

if TYPE_CHECKING:
    from ..core.outcome_log import Flood
    from ..core.view import ExplanationView, JobView

R = TypeVar("R")
T = TypeVar("T")

Router = Mapping[str, str] | Callable[[str], str | None]

DEFAULT_QUEUE: Final = "default"
PAUSES: Final = (0.1, 0.3, 1.0)
# Each round of a race with the job's own life ends with a newer state; nobody loses so often.
MOST_ROUNDS: Final = 10
_DRAWN_AHEAD: Final = 256
EXPLAINED_WITHIN: Final = 1.0
FIRST_LOOK: Final = 2.0  # after so long, a run that waits for its own queue looks whether that is full
LONGEST_LOOK: Final = 60.0


class Keeper(Protocol):
    """Keeps the storage: open since its first use, or since `async with app`."""

    @property
    def current(self) -> Storage | None:
        """The storage, if it is open."""
        ...

    async def open(self) -> Storage: ...

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on a loop of our own, in a thread of our own, and wait."""
        ...


class Ids:
    """Fresh job ids, each greater than the last, from any thread."""

    def __init__(self) -> None:
        self._last = 0
        self.start_anew()

    def start_anew(self) -> None:
        """Also in the child of a fork: the thread that held the lock may not be there, and the randomness that was
        drawn ahead is the parent's too."""
        self._lock = threading.Lock()
        self._drawn: Iterator[tuple[int, int]] = iter(())

    def __call__(self) -> str:
        with self._lock:
            drawn = next(self._drawn, None)
            if drawn is None:
                # One system call for many ids: it costs as much as all the rest of an id.
                self._drawn = struct.iter_unpack("<QH", os.urandom(_DRAWN_AHEAD * 10))
                drawn = next(self._drawn)
            entropy = drawn[0] | drawn[1] << 64
            self._last = value = ids.uuid7(time.time_ns() // 1_000_000, self._last, entropy)
        return ids.text(value)

    def many(self, count: int) -> list[str]:
        """As so many calls; for a bulk, a third of the price."""
        drawn = struct.iter_unpack("<QH", os.urandom(count * 10))
        made: list[int] = []
        with self._lock:
            value, now = self._last, time.time_ns() // 1_000_000
            for low, high in drawn:
                value = ids.uuid7(now, value, low | high << 64)
                made.append(value)
            self._last = value
        return ids.texts(made)


log = logging.getLogger("treadle.client")

new_id: Final = Ids()  # one for the process: the order of ids is the order of enqueues in it
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=new_id.start_anew)


class Client(Replying):
    """Implements `context.Door`."""

    def __init__(
        self,
        keeper: Keeper,
        *,
        router: Router | None = None,
        hooks: Hooks | None = None,
        deadline: float = 10.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`deadline`: seconds for all tries of a call together, with the pauses between them."""
        self._keeper = keeper
        self._route = _routing(router)
        self._hooks = hooks or Hooks()
        self._deadline = deadline
        self._sleep = sleep
        self._tried_again: Flood | None = None
        self._waiters = _Waiters()
        self.broker = Broker(self.ask)
        self.attempts = DEFAULT_MAX_ATTEMPTS  # of a task that says nothing of retries
        self.stamps: list[Callable[[NewJob], NewJob]] = []  # what integrations add to a job before it is sent
        self.desk = StorageDesk(self._opened, self.run_sync)
        # (outcome, queue, task) → how many: `inserted`, `duplicate`, `replaced` or `kept`; not those of callers' own
        # transactions, which may yet be rolled back.
        self.produced: Counter[tuple[str, str, str]] = Counter()

    @property
    def is_open(self) -> bool:
        return self._keeper.current is not None

    def through(self, keeper: Keeper, *, declares: bool) -> Client:
        """The same client, which asks another keeper for the storage; `declares`: it makes the rows of limits that the
        code declares when it needs them."""
        other = copy.copy(self)
        other._keeper = keeper
        other._waiters = _Waiters()
        other.broker = Broker(other.ask)
        if declares:
            other.broker.declared = self.broker.declared
        return other

    def queue_of(self, task: Task[..., Any]) -> str:
        """Where the jobs of a task go, unless the call says otherwise."""
        return task.queue or self._route(task.name)

    # Enqueue ---------------------------------------------------------------------------------------------------------

    def prepare(self, call: Call[Any], drawn: str | None = None) -> NewJob:
        """The job that a Call asks for, with an id of its own."""
        options = call.options
        queue = options.queue or self._route(call.task)
        job = NewJob(
            id=options.id or drawn or new_id(),
            task=call.task,
            queue=queue,
            args=call.args,
            priority=options.priority,
            delay=_delay(options),
            run_at=options.run_at,
            max_attempts=self.attempts if options.max_attempts is None and options.by_default else options.max_attempts,
            timeout=options.timeout,
            pinned=options.pinned,
            tags=options.tags,
            meta=options.meta,
            reason=options.reason,
            unique=None if options.unique is None else _unique_claim(options.unique, call, queue),
        )
        for stamp in self.stamps:
            job = stamp(job)
        return job

    async def enqueue(self, call: Call[R]) -> Handle[R]:
        """Insert one job, and answer after the commit; with `within`, before the caller's (which no hook hears of)."""
        job = self.prepare(call)
        if call.options.within is not None:
            storage = await self._storage_within()
            (inserted,) = await storage.borrow_async(call.options.within).insert((job,))
        else:
            (inserted,) = await self._insert((job,))
        return Handle(inserted.id, inserted.outcome, self, call.decode_result)

    async def insert(self, job: NewJob) -> tuple[str, EnqueueOutcome]:
        """Insert a job that was prepared elsewhere, in a child process; answers with what a Handle is made of."""
        (inserted,) = await self._insert((job,))
        return inserted.id, inserted.outcome

    async def enqueue_many(
        self, calls: Iterable[Call[R]], *, within: object = None, atomic: bool = False
    ) -> list[Handle[R]]:
        """Insert jobs, one Handle each, in order: in one transaction, or in several if they are too large for one."""
        handles: list[Handle[R]] = []
        try:
            for own, requests in _transactions(calls, within, atomic):
                jobs = list(self._prepared(requests))
                if own is None:
                    inserted = await self._insert(jobs)
                else:
                    inserted = await (await self._storage_within()).borrow_async(own).insert(jobs)
                handles += self._handles(inserted, requests)
        except Exception as error:
            if not handles:
                raise
            raise _incomplete(handles, error) from error
        return handles

    def enqueue_sync(self, call: Call[R]) -> Handle[R]:
        job, within = self.prepare(call), call.options.within
        if within is not None:
            (inserted,) = self._storage_within_sync().borrow(within).insert((job,))
        else:
            (inserted,) = self._insert_sync((job,))
        return Handle(inserted.id, inserted.outcome, self, call.decode_result)

    def enqueue_many_sync(
        self, calls: Iterable[Call[R]], *, within: object = None, atomic: bool = False
    ) -> list[Handle[R]]:
        handles: list[Handle[R]] = []
        try:
            for own, requests in _transactions(calls, within, atomic):
                jobs = list(self._prepared(requests))
                if own is None:
                    inserted = self._insert_sync(jobs)
                else:
                    inserted = self._storage_within_sync().borrow(own).insert(jobs)
                handles += self._handles(inserted, requests)
        except Exception as error:
            if not handles:
                raise
            raise _incomplete(handles, error) from error
        return handles

    def _prepared(self, calls: Sequence[Call[Any]]) -> Iterator[NewJob]:
        """What each call asks for. Most differ from the one before in nothing but id and arguments, and a copy of that
        costs a fifth of a new one."""
        like: Call[Any] | None = None
        model: NewJob | None = None
        for call, id in zip(calls, new_id.many(len(calls)), strict=True):
            if model is not None and like is not None and call.options is like.options and call.task == like.task:
                yield replace(model, id=id, args=call.args)
                continue
            job = self.prepare(call, id)
            if not self.stamps and job.unique is None and call.options.id is None:
                like, model = call, job
            yield job

    def _handles(self, inserted: Sequence[Inserted], calls: Sequence[Call[R]]) -> list[Handle[R]]:
        return [
            Handle(each.id, each.outcome, self, call.decode_result) for each, call in zip(inserted, calls, strict=True)
        ]

    async def _insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        inserted = await self.ask(lambda storage: storage.insert(jobs))
        self._count_all(jobs, inserted)
        if self._hooks.enqueued:
            for job, each in zip(jobs, inserted, strict=True):
                if each.outcome == "inserted":
                    self._hooks.tell("enqueued", _as_job(job))
        return inserted

    def _insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """In this thread, where the storage can be waited for without an event loop. Hooks may need one."""
        storage = self._keeper.current
        if storage is None or not storage.capabilities.waits or self._hooks.enqueued or _is_on_loop():
            return self.run_sync(self._insert(jobs))
        begun = time.monotonic()
        try:
            inserted = storage.insert_sync(jobs)
        except StorageUnavailable as error:
            left = self._deadline - (time.monotonic() - begun)
            inserted = self.run_sync(self._ask_again(lambda it: it.insert(jobs), PAUSES, left, error))
        self._count_all(jobs, inserted)
        return inserted

    def _count_all(self, jobs: Sequence[NewJob], inserted: Sequence[Inserted]) -> None:
        self._count([(each.outcome, job.queue, job.task) for job, each in zip(jobs, inserted, strict=True)])

    def _count(self, made: list[tuple[str, str, str]]) -> None:
        if len(self.produced) >= MOST_PAIRS:  # names may come from outside: neither memory nor labels grow with them
            made = [each if each in self.produced else (each[0], OTHER, OTHER) for each in made]
        self.produced.update(made)

    async def _storage_within(self) -> Storage:
        try:
            return self._keeper.current or await self._keeper.open()
        except StorageTimeout as error:
            # Making it ready may need the very lock that the caller's transaction holds.
            raise StorageUnavailable(
                f"{error}; the app was not open, and cannot be opened while your own transaction holds the database: "
                "open it before the transaction begins (async with app, or app.open_sync())"
            ) from error

    async def _ready(self) -> Storage:
        return self._keeper.current or await self._keeper.open()

    def _opened(self) -> Storage:
        storage = self._keeper.current
        if storage is None:
            raise StorageUnavailable("the app is closed")
        return storage

    def _storage_within_sync(self) -> Storage:
        return self._keeper.current or self.run_sync(self._storage_within())

    # Limits ----------------------------------------------------------------------------------------------------------

    async def take_tokens(self, scope: str, n: int, wait: float) -> float | None:
        """Take n tokens of a rate limit. None if they are had; otherwise in how many seconds they could be there."""
        return await self.broker.take(limiting.check_scope(scope), limiting.check_amount(n), wait)

    async def drain_limit(self, scope: str) -> None:
        await self.broker.drain(limiting.check_scope(scope))

    # Afterwards ------------------------------------------------------------------------------------------------------

    async def ask(self, verb: Callable[[Storage], Awaitable[T]], pauses: Sequence[float] = PAUSES) -> T:
        """One verb of the storage, repeated while the storage is away: any of them may be sent again."""
        now = asyncio.get_running_loop().time
        begun = now()
        try:
            return await verb(self._keeper.current or await self._keeper.open())
        except StorageDenied:
            raise
        except StorageUnavailable as error:
            first = error
        return await self._ask_again(verb, pauses, self._deadline - (now() - begun), first)

    async def _ask_again(
        self, verb: Callable[[Storage], Awaitable[T]], pauses: Sequence[float], left: float, error: StorageUnavailable
    ) -> T:
        """The first try failed, and `left` seconds remain for all others. Each storage call has a deadline of its own:
        four of them in a row would keep the caller for four deadlines."""
        now = asyncio.get_running_loop().time
        until = now() + left
        self._say_again(error)
        for pause in pauses:
            if now() + pause >= until:
                break
            await self._sleep(pause)
            limit = asyncio.timeout_at(until)
            try:
                async with limit:
                    return await verb(self._keeper.current or await self._keeper.open())
            except StorageUnavailable as again:
                error = again
            except TimeoutError:
                if not limit.expired():
                    raise
                said = f"no answer within {words(self._deadline)} and several tries; the outcome is unknown"
                raise StorageTimeout(f"{said} (before: {error})") from error
        raise error

    def _say_again(self, error: StorageUnavailable) -> None:
        """Ten such lines a minute are enough: in an outage every caller tries again."""
        from ..core.outcome_log import Flood, admit, is_over

        now, before = time.monotonic(), self._tried_again or Flood(float("-inf"))
        self._tried_again, is_told = admit(Flood(now) if is_over(before, now) else before)
        if is_told:
            more = f" ({before.left_out} more like this before)" if before.left_out else ""
            log.warning("the storage cannot be used just now; the call is tried again: %s%s", error, more)

    def run_sync(self, work: Coroutine[Any, Any, T]) -> T:
        return self._keeper.run_sync(work)

    async def get(self, job_id: str) -> Job:
        found = await self.ask(lambda storage: storage.get((job_id,)))
        if not found:
            raise JobNotFound(f"there is no job {job_id}")
        return found[0]

    async def status(self, job_id: str) -> JobView:
        (view,) = await self.views((await self.get(job_id),))
        return view

    async def views(self, jobs: Sequence[Job]) -> list[JobView]:
        """The jobs as they are shown, with the progress of those that can have any."""
        from ..core import progress
        from ..core.view import job_view

        begun = [job.id for job in jobs if job.started_at is not None and job.state is not State.SUCCEEDED]
        found = await self.ask(lambda storage: storage.progress(begun)) if begun else ()
        said = progress.by_id(found)
        return [job_view(job, said.get(job.id)) for job in jobs]

    async def explain(self, job_id: str) -> ExplanationView:
        from ..core.explain import explain
        from ..core.view import explanation_view
        from .explain import gather

        return explanation_view(explain(await self.ask(lambda storage: gather(storage, job_id))))

    async def wait_for_end(self, job_id: str, timeout: Duration | None, waiter: Job | None = None) -> Job:
        """The job, once it has ended. A wake in this process ends the wait; what other processes do, polling finds.
        `waiter` is the running job that waits for it, where the caller's context does not tell."""
        limit = None if timeout is None else seconds(timeout, "timeout")
        job = await self.get(job_id)
        if job.state in TERMINAL:
            return job
        waiter = waiter or current_job.get()
        storage = self._keeper.current or await self._keeper.open()
        with self._waiters.waiting(storage, job_id) as ended:
            try:
                async with asyncio.timeout(limit), self._warning_of_own_queue(job, waiter):
                    return await self._poll(job_id, ended)
            except TimeoutError:
                why = await self._why(job_id, waiter)
                text = f"job {job_id} did not end within {words(limit or 0.0)}; it goes on"
                raise ResultTimeout(f"{text}. {why}" if why else text) from None

    async def _why(self, job_id: str, waiter: Job | None) -> str:
        """Why a job has not ended, in a line; empty if that cannot be read within a second."""
        from ..core.explain import in_a_line
        from .explain import gather

        try:
            async with asyncio.timeout(EXPLAINED_WITHIN):
                return in_a_line(replace(await gather(await self._ready(), job_id), waiter=waiter))
        except Exception as error:
            log.debug("job %s: why it has not ended cannot be read: %r", job_id, error)
            return ""

    @asynccontextmanager
    async def _warning_of_own_queue(self, job: Job, waiter: Job | None) -> AsyncGenerator[None]:
        """While a run waits for a job of its own queue, look whether it holds the slot that the job needs."""
        if waiter is None or waiter.queue != job.queue:
            yield
            return
        watch = asyncio.create_task(self._warn_of_own_queue(job.id, waiter))
        try:
            yield
        finally:
            watch.cancel()

    async def _warn_of_own_queue(self, job_id: str, waiter: Job) -> None:
        from ..core.explain import explain, waits_in_own_queue
        from .explain import gather

        pause = FIRST_LOOK
        while True:
            await asyncio.sleep(pause)
            pause = min(LONGEST_LOOK, pause * 2)
            try:
                evidence = replace(await gather(await self._ready(), job_id), waiter=waiter)
            except Exception as error:
                log.debug("job %s: what it waits behind cannot be read: %r", job_id, error)
                continue
            if text := waits_in_own_queue(explain(evidence)):
                log.warning("job %s: %s", waiter.id, text)
                return

    async def _poll(self, job_id: str, ended: asyncio.Event) -> Job:
        pause = FIRST_POLL
        while (job := await self.get(job_id)).state not in TERMINAL:
            pause = await rest(ended, pause)
        return job

    async def cancel(
        self, job_id: str, *, within: object = None, by: str | None = None, reason: str | None = None
    ) -> CancelAnswer:
        """Cancel what has not started, ask what runs. With `within`, it holds if the caller commits."""
        if within is not None:
            return await _cancel_borrowed_async(await self._storage_within(), job_id, within, by, reason)
        try:
            _, change, _ = await self.change(job_id, lifecycle.cancel, "cancel", by=by, reason=reason)
        except JobNotFound:
            return "not found"
        return _cancel_answer(change)

    def cancel_sync(
        self, job_id: str, *, within: object = None, by: str | None = None, reason: str | None = None
    ) -> CancelAnswer:
        if within is not None:
            return _cancel_borrowed(self._storage_within_sync(), job_id, within, by, reason)
        return self.run_sync(self.cancel(job_id, by=by, reason=reason))

    async def change(
        self,
        job_id: str,
        decide: Callable[[Job], Change | None],
        act: str,
        *,
        by: str | None = None,
        reason: str | None = None,
    ) -> tuple[Job, Change | None, Applied | None]:
        """Read a job, ask the core, write its Change; when somebody was faster, look again.

        The Change carries its lines for the timeline and the audit: they are written with it or not at all, so that a
        crash leaves no act without a name, and no name without its act. Answers with the job as it was, and what was
        written; (job, None, None) if there is nothing to do.
        """
        for _ in range(MOST_ROUNDS):
            job = await self.get(job_id)
            change = _signed(job, decide(job), act, by, reason)
            if change is None:
                return job, None, None
            applied = await self._apply(change)
            if applied.accepted:
                return job, change, applied
            if applied.error is not None:
                raise Conflict(f"job {job_id}: {applied.error}")
        raise Conflict(f"job {job_id} changes faster than it can be changed; try again")

    async def note(self, act: str, subject: str, by: str | None, detail: str = "") -> None:
        """A line in the audit about an act whose write cannot carry one; none if no operator is named."""
        if by is not None:
            line = AuditLine(id=new_id(), act=act, subject=subject, by=clean(by), detail=detail)
            await self.ask(lambda storage: storage.note((line,)))

    async def _write_down(self, line: Event) -> None:
        line = line if line.id else msgspec.structs.replace(line, id=new_id())
        try:
            await (self._keeper.current or await self._keeper.open()).record((line,))
        except Exception as error:
            log.warning("job %s: %s is not in its timeline: %s", line.job, line.what, error)

    async def _apply(self, change: Change) -> Applied:
        sent = 0

        def send(storage: Storage) -> Awaitable[Sequence[Applied]]:
            nonlocal sent
            sent += 1
            return storage.apply((change,))

        (applied,) = await self.ask(send)
        # Sent again after a lost answer, it may be refused because the first one was carried out.
        if not applied.accepted and sent > 1 and applied.state is (None if change.remove else change.to):
            return Applied(True, repeated=True, state=applied.state)
        return applied


class _Waiters:
    """Those in this process who wait for the end of a job, or for an answer, woken by one listener for all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._unlisten: Callable[[], None] = lambda: None

    @contextmanager
    def waiting(self, storage: Storage, id: str) -> Generator[asyncio.Event]:
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if not self._events:
                self._unlisten = storage.listen(self._on_wake)
            self._events.setdefault(id, []).append(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._events[id].remove(entry)
                if not self._events[id]:
                    del self._events[id]
                if not self._events:
                    self._unlisten()

    def _on_wake(self, wake: Wake) -> None:
        # From any thread, and without the lock: whoever holds that may be waiting for the storage's own.
        for job_id in wake.ended:
            for loop, event in tuple(self._events.get(job_id, ())):
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:
                    pass  # its loop has closed: nobody waits there any more


def _routing(router: Router | None) -> Callable[[str], str]:
    if router is None:
        return lambda task: DEFAULT_QUEUE
    if callable(router):
        choose = router
        return lambda task: names.check_name("queue", choose(task) or DEFAULT_QUEUE)
    try:
        table = {prefix: names.check_name("queue", queue) for prefix, queue in router.items()}
    except (AttributeError, ValueError) as error:
        raise ConfigError(f"router must be a function, or a table of prefixes and queues: {error}") from None
    longest_first = sorted(table, key=len, reverse=True)
    return lambda task: next((table[each] for each in longest_first if task.startswith(each)), DEFAULT_QUEUE)


def _transactions(calls: Iterable[Call[R]], within: object, atomic: bool) -> Iterator[tuple[object, Sequence[Call[R]]]]:
    """The calls of a bulk that are inserted together, each time with the caller's transaction, if there is one."""
    reading = iter(calls)
    taken, are_all = (list(reading), True) if atomic or within is not None else bulk.take(reading, _arguments)
    within = _within(taken, within)
    if within is not None and not are_all:
        taken += reading
        within, are_all = _within(taken, within), True
    if not are_all:
        for piece in bulk.cut(chain(taken, reading), _arguments):
            if _within(piece, None) is not None:
                raise ValueError("enqueue_many: a call with within= comes too late, earlier jobs are in without it")
            yield None, piece
    elif taken:
        yield within, taken


def _arguments(call: Call[Any]) -> str:
    if not isinstance(cast("object", call), Call):
        raise TypeError(f"enqueue_many takes task.bind(…), not a {type(call).__name__}")
    return call.args


def _within(calls: Iterable[Call[Any]], within: object) -> object:
    """The transaction that the calls name; all that name one must name the same."""
    for call in calls:
        if not isinstance(cast("object", call), Call):
            raise TypeError(f"enqueue_many takes task.bind(…), not a {type(call).__name__}")
        if within is None:
            within = call.options.within
        elif call.options.within not in (None, within):
            raise ValueError("enqueue_many is one transaction: all calls must have the same within=")
    return within


def _incomplete(handles: list[Handle[R]], error: Exception) -> BulkIncomplete:
    said = f"{len(handles)} jobs are in, the others are not"
    if isinstance(error, StorageUnavailable):
        said = f"{len(handles)} jobs are in; whether the next ones are is unknown"
    return BulkIncomplete(f"{said}: {type(error).__name__}: {error}", handles)


def _unique_claim(rule: Unique, call: Call[Any], queue: str) -> UniqueClaim:
    period = None if rule.period is None else seconds(rule.period)
    key = unique.base_key(rule, call.task, queue, call.args)
    cap = None if rule.cap is None else seconds(rule.cap)
    return UniqueClaim(key, period, rule.include_succeeded, rule.on_conflict, cap)


def _delay(options: Options) -> float:
    if options.unique is None or options.unique.debounce is None:
        return options.delay
    if options.delay or options.run_at is not None:
        raise ValueError("a debounced job runs when it has been quiet for so long: leave out delay and at")
    return seconds(options.unique.debounce)


def _cancel_answer(change: Change | None) -> CancelAnswer:
    if change is None:
        return "too late"
    return "asked" if change.to is State.RUNNING else "cancelled"


def _signed(job: Job, change: Change | None, act: str, by: str | None, reason: str | None) -> Change | None:
    """The Change with its line for the job's timeline, where the row forgets what was done to it, and for the audit."""
    if change is None:
        return None
    return replace(
        change,
        event=of_change(job, change, id=new_id(), by=by),
        line=of_job(job, change, act, id=new_id(), by=by, reason=reason),
    )


async def _cancel_borrowed_async(
    storage: Storage, job_id: str, within: object, by: str | None, reason: str | None
) -> CancelAnswer:
    borrowed = storage.borrow_async(within)
    for _ in range(MOST_ROUNDS):
        found = await borrowed.get((job_id,))
        if not found:
            return "not found"
        change = _signed(found[0], lifecycle.cancel(found[0]), "cancel", by, reason)
        if change is None or (await borrowed.apply((change,)))[0].accepted:
            return _cancel_answer(change)
    raise Conflict(f"job {job_id} changes faster than it can be cancelled; try again")


def _cancel_borrowed(storage: Storage, job_id: str, within: object, by: str | None, reason: str | None) -> CancelAnswer:
    borrowed = storage.borrow(within)
    for _ in range(MOST_ROUNDS):
        found = borrowed.get((job_id,))
        if not found:
            return "not found"
        change = _signed(found[0], lifecycle.cancel(found[0]), "cancel", by, reason)
        if change is None or borrowed.apply((change,))[0].accepted:
            return _cancel_answer(change)
    raise Conflict(f"job {job_id} changes faster than it can be cancelled; try again")


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _as_job(new: NewJob) -> Job:
    """For hooks: the job as it was asked for. Its instants are ours, and so only near the storage's."""
    now = time.time()
    run_at = now + new.delay if new.run_at is None else new.run_at
    return Job(
        id=new.id,
        task=new.task,
        queue=new.queue,
        state=State.SCHEDULED if run_at > now else State.READY,
        args=new.args,
        priority=new.priority,
        run_at=run_at,
        created_at=now,
        max_attempts=new.max_attempts,
        timeout=new.timeout,
        pinned=new.pinned,
        tags=new.tags,
        meta=new.meta,
        reason=new.reason,
        unique_key=None if new.unique is None else new.unique.key,
    )
