"""The reference storage: what every verb means, in plain Python, with nothing in the way.

Everything happens under one lock and nothing waits: each verb is one indivisible step, as a transaction is elsewhere.
Rows are the frozen Jobs of the core; a write replaces the row. It is for tests, trials and reading: nothing survives
the process. When another storage and this one disagree, this one is right, or the conformance suite lacks a case.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct

from ...core import audit as auditing
from ...core import filter as filters
from ...core import keep_last, unique
from ...core import queue as queueing
from ...core.audit import AuditLine
from ...core.catalog import Entry
from ...core.filter import Filter
from ...core.job import (
    CLAIMABLE,
    ENDS_RUN,
    ERRORS_KEPT,
    LIVE,
    TERMINAL,
    WRITTEN,
    Change,
    ErrorEntry,
    Job,
    NewJob,
    QueueChange,
    State,
    UniqueClaim,
)
from ...core.operation import Operation
from ...core.pod import Held, Pod, PodCard, PodStats
from ...core.queue import Queue, QueueStats
from ...core.view import row_of
from ...ports import (
    Abandoned,
    Applied,
    Beaten,
    Borrowed,
    BorrowedAsync,
    Capabilities,
    Claimed,
    Clock,
    Fact,
    Inserted,
    Page,
    Query,
    RunReport,
    SchemaStatus,
    Wake,
    Want,
)
from ..shared.clock import SystemClock
from ..shared.lent import AtOnce
from .answers import MemoryAnswers
from .catalog import MemoryCatalog
from .copy import MemoryCopy
from .deploys import MemoryDeploys
from .history import Kept, MemoryHistory
from .limits import MemoryLimits
from .mutes import MemoryMutes
from .operations import MemoryOperations, keep_line
from .pods import MemoryPods, PodRow
from .progress import MemoryProgress, Said
from .schedules import MemorySchedules

replace: Final = msgspec.structs.replace


class _Row(Struct):
    """A job, its place in the order of insertion, and the token of its last accepted finish."""

    job: Job
    seq: int
    finished_token: str | None = None


class _Leader(Struct, frozen=True):
    pod: str = ""
    term: int = 0
    until: float = 0.0  # steady
    boot: str = ""


class MemoryStorage(
    MemoryPods,
    MemoryOperations,
    MemoryLimits,
    MemoryMutes,
    MemoryCatalog,
    MemoryDeploys,
    MemoryHistory,
    MemoryCopy,
    MemorySchedules,
    MemoryProgress,
    MemoryAnswers,
):
    capabilities = Capabilities(durable=False, shared=False, waits=True)

    def __init__(self, clock: Clock | None = None) -> None:
        MemoryLimits.__init__(self)
        MemoryMutes.__init__(self)
        MemoryDeploys.__init__(self)
        MemorySchedules.__init__(self)
        MemoryAnswers.__init__(self)
        self._clock: Clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._rows: dict[str, _Row] = {}
        self._live: dict[str, _Row] = {}  # those of them that had not ended when `_live_rows` last looked
        self._keys: dict[str, str] = {}  # unique key → id of the live job that holds it
        self._held: dict[str, tuple[str, float]] = {}  # key held by a success → (its id, until when)
        self._queues: dict[str, Queue] = {}
        self._pods: dict[str, PodRow] = {}
        self._leader = _Leader()
        self._history = Kept()
        self._said = Said()
        self._catalog: dict[tuple[str, str], Entry] = {}
        self._operations: dict[str, Operation] = {}
        self._audit: dict[str, AuditLine] = {}
        self._seq = itertools.count(1)
        self._listeners: dict[int, Callable[[Wake], None]] = {}
        self._listener_ids = itertools.count()

    # Life ------------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def detach(self) -> None:
        pass

    async def migrate(self) -> SchemaStatus:
        return await self.schema()

    async def schema(self) -> SchemaStatus:
        return SchemaStatus(current=1, newest=1)

    async def plan(self) -> Sequence[str]:
        return ()

    def sql(self, current: int = 0) -> str:
        return ""

    def roles(self, prefix: str = "treadle") -> None:
        return None

    # The hot path ----------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return self.insert_sync(jobs)

    def insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        with self._lock:
            now = self._clock.now()
            answers = [self._insert(new, now) for new in jobs]
        self._tell(Wake(queues=frozenset(new.queue for new in jobs)))
        return answers

    def _insert(self, new: NewJob, now: float) -> Inserted:
        if new.id in self._rows:
            return Inserted(new.id, "inserted")
        key = None
        if new.unique is not None:
            key = unique.full_key(new.unique.key, new.unique.period, now)
            holder = self._holder(key, now)
            if holder is not None:
                return self._settle(holder, new, new.unique, now)
            self._keys[key] = new.id
        job = Job(
            id=new.id,
            task=new.task,
            queue=new.queue,
            state=State.READY,
            args=new.args,
            format=new.format,
            priority=new.priority,
            run_at=_due(new, now),
            created_at=now if new.asked_at is None else new.asked_at,
            max_attempts=new.max_attempts,
            timeout=new.timeout,
            pinned=new.pinned,
            tags=new.tags,
            meta=new.meta,
            reason=new.reason,
            unique_key=key,
        )
        self._add_row(_Row(job, next(self._seq)))
        if new.unique is not None and new.unique.include_succeeded and new.unique.period is not None:
            assert key is not None
            self._held[key] = (new.id, unique.period_end(new.unique.period, now))
        self._queues.setdefault(new.queue, Queue(name=new.queue))
        return Inserted(new.id, "inserted")

    def _add_row(self, row: _Row) -> None:
        self._rows[row.job.id] = self._live[row.job.id] = row

    def _live_rows(self) -> list[_Row]:
        """The rows of jobs that have not ended: a claim must not cost more with every job that has."""
        over = [id for id, row in self._live.items() if row.job.state in TERMINAL or self._rows.get(id) is not row]
        for id in over:
            del self._live[id]
        return list(self._live.values())

    def _holder(self, key: str, now: float) -> str | None:
        if (live := self._keys.get(key)) is not None:
            return live
        succeeded, until = self._held.get(key, ("", 0.0))
        row = self._rows.get(succeeded)
        if until > now and row is not None and row.job.state is State.SUCCEEDED:
            return succeeded
        return None

    def _settle(self, holder: str, new: NewJob, rule: UniqueClaim, now: float) -> Inserted:
        row = self._rows[holder]
        if rule.on_conflict == "keep_last" and self._is_under_way(row.job):
            row.job = replace(row.job, kept=keep_last.keep(new, row.job.unique_key or "", now, row.job.kept))
            return Inserted(keep_last.id_of(row.job.kept) or new.id, "kept")
        if rule.on_conflict == "skip" or row.job.state not in CLAIMABLE:
            return Inserted(holder, "duplicate")
        row.job = replace(
            row.job,
            args=new.args,
            format=new.format,
            run_at=unique.due(new, now, row.job.created_at),
            priority=new.priority,
            tags=new.tags,
            meta=new.meta,
            reason=new.reason,
            attempt=0,
            crashes=0,
        )
        self._forget_reports(holder)
        return Inserted(holder, "replaced")

    def _is_under_way(self, job: Job) -> bool:
        # One that was kept behind stays there while its holder goes to and fro between an answer and the next run.
        return job.state in (State.RUNNING, State.WAITING) or (job.state in LIVE and job.kept is not None)

    async def claim(self, pod: str, token: str, wants: Sequence[Want]) -> Claimed:
        with self._lock:
            if not self._is_live(pod):
                return Claimed(())
            now = self._clock.now()
            jobs: list[Job] = []
            dues: list[float] = []
            more = False
            for want in wants:
                queue = self._queues.get(want.queue, Queue(name=want.queue))
                closed_until = queueing.gate(queue, now)
                if closed_until is not None:
                    dues.append(closed_until)
                    continue
                taken = self._take(want, queue, now)
                jobs += [self._charge(row, pod, token, queue, now) for row in taken]
                more = more or len(taken) >= want.limit
                dues += self._upcoming(want, now)
        due = min(dues, default=float("inf"))
        return Claimed(jobs, None if due == float("inf") else max(0.0, due - now), more)

    def _take(self, want: Want, queue: Queue, now: float) -> list[_Row]:
        def order(row: _Row) -> tuple[int, float, int]:
            return -queueing.aged(row.job.priority, row.job.run_at, queue.aging, now), row.job.run_at, row.seq

        left = [lane.limit for lane in want.lanes]
        taken: list[_Row] = []
        for row in sorted(self._due_rows(want.queue, now), key=order):
            if len(taken) >= want.limit:
                break
            lane = next((n for n, lane in enumerate(want.lanes) if row.job.task in lane.tasks and left[n] > 0), None)
            if lane is not None:
                left[lane] -= 1
                taken.append(row)
        return taken

    def _due_rows(self, queue: str, now: float) -> list[_Row]:
        return [
            row
            for row in self._live_rows()
            if row.job.queue == queue and row.job.state in CLAIMABLE and row.job.run_at <= now
        ]

    def _upcoming(self, want: Want, now: float) -> list[float]:
        tasks = frozenset[str]().union(*(lane.tasks for lane in want.lanes))
        return [
            row.job.run_at
            for row in self._live_rows()
            if row.job.queue == want.queue
            and row.job.state in CLAIMABLE
            and row.job.run_at > now
            and row.job.task in tasks
        ]

    def _charge(self, row: _Row, pod: str, token: str, queue: Queue, now: float) -> Job:
        timeout = queueing.timeout_of(row.job.timeout, row.job.pinned, queue.timeout)
        row.job = replace(
            row.job,
            state=State.RUNNING,
            pod=pod,
            slot=None,
            token=token,
            started_at=now,
            deadline=now + timeout if timeout else None,
            attempt=row.job.attempt + 1,
        )
        # The row keeps what the caller chose: the setting may be gone at the next attempt.
        return replace(row.job, timeout=timeout, errors=row.job.errors[-1:], kept=None)

    async def recover(self, pod: str, token: str) -> Sequence[Job]:
        with self._lock:
            return [
                queueing.as_claimed(replace(row.job, errors=row.job.errors[-1:]))
                for row in sorted(self._rows.values(), key=_claim_order)
                if row.job.state is State.RUNNING and row.job.pod == pod and row.job.token == token
            ]

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        with self._lock:
            now = self._clock.now()
            woken: set[str] = set()
            ended: set[str] = set()
            cancels = settings = False
            answers: list[Applied] = []
            for change in changes:
                if isinstance(change, QueueChange):
                    answers.append(self._edit(change, now))
                    woken.add(change.name)
                    settings = settings or answers[-1].accepted
                    continue
                answer = self._apply(change, now)
                answers.append(answer)
                if answer.accepted and not answer.repeated:
                    if change.event is not None:
                        self._keep_event(change.event, now)
                    keep_line(self._audit, change.line, now)
                    if change.to in TERMINAL:
                        ended.add(change.id)
                    elif {change.to, answer.state} & CLAIMABLE or change.why in ("moved", "reprioritised"):
                        woken.add(self._rows[change.id].job.queue)
                    cancels = cancels or change.why == "cancel_asked"
                    woken.update(new.queue for new in change.follow_ups)
        self._tell(Wake(queues=frozenset(woken), ended=frozenset(ended), cancels=cancels, settings=settings))
        return answers

    def _apply(self, change: Change, now: float) -> Applied:
        row = self._rows.get(change.id)
        if row is None:
            return Applied(False)
        job = self._seen(row, now)
        if _is_finish(change) and row.finished_token == change.token:
            return Applied(True, repeated=True, state=job.state)
        if not _expected(job, change):
            return Applied(False, state=job.state)
        if change.unless_cancel_wanted and job.cancel_wanted:
            return Applied(False, state=job.state, cancel_wanted=True)
        if (change.takes is not None or change.why in ENDS_RUN) and change.takes != job.kept:
            return Applied(False, state=job.state, kept=job.kept)
        if change.if_lapsed and self._is_live(job.pod or ""):
            return Applied(False, state=job.state)
        if change.remove:
            del self._rows[change.id]
            self._forget_events(change.id)
            self._forget_said(change.id)
            self._forget_answers(change.id)
            return Applied(True)
        if change.answer is not None:
            return self._apply_met(row, job, change, now)
        return self._write(row, job, change, now)

    def _write(self, row: _Row, job: Job, change: Change, now: float) -> Applied:
        key = job.unique_key
        if key is not None and change.to in LIVE and self._keys.get(key, job.id) != job.id:
            return Applied(False, state=job.state, error="a live job holds its unique key")
        if any(new.id in self._rows for new in change.follow_ups):
            return Applied(False, state=job.state, error="a follow-up's id is taken")
        row.job = self._changed(job, change, now)
        if change.to in LIVE:
            self._live[job.id] = row  # a revived job had ended
        if key is not None:
            if change.to in TERMINAL:
                self._keys.pop(key, None)
            else:
                self._keys[key] = job.id
        if _is_finish(change):
            row.finished_token = change.token
        if change.why == "revived" and job.state is State.SUCCEEDED:
            self._forget_reports(job.id)
        if change.if_lapsed and (lost := self._pods.get(job.pod or "")) is not None:
            lost.lost = True
        self._queues.setdefault(row.job.queue, Queue(name=row.job.queue))
        for new in change.follow_ups:
            self._insert(new, now)
        return Applied(True, state=self._seen(row, now).state)

    def _changed(self, job: Job, change: Change, now: float) -> Job:
        fields: dict[str, Any] = {"state": State.READY if job.state in CLAIMABLE else job.state}
        for name in WRITTEN:
            if (value := getattr(change, name)) is not None:
                fields[name] = value
        if change.result is not UNSET:
            fields["result"] = change.result
        if change.warning is not UNSET:
            fields["warning"] = change.warning
        if change.meta is not UNSET:
            fields["meta"] = change.meta
        if change.takes is not None:
            fields["kept"] = None
        if change.error is not None:
            fields["errors"] = _remember(job.errors, replace(change.error, ended_at=now))
            fields["error_count"] = job.error_count + 1
        if change.to is not None and change.to is not State.RUNNING:
            fields["state"] = State.READY if change.to in CLAIMABLE else change.to
            fields |= {"deadline": None, "cancel_wanted": False}
        if change.to in CLAIMABLE:
            fields |= {"pod": None, "slot": None, "finished_at": None}
            fields["run_at"] = max(now, change.run_at) if change.run_at is not None else now + (change.delay or 0.0)
        if change.to in TERMINAL:
            fields["finished_at"] = now
        if change.cooling is not None:
            fields["run_at"] = self._cool(change.cooling.queue, change.cooling.hint, now)
        return replace(job, **fields)

    def _cool(self, name: str, hint: float | None, now: float) -> float:
        queue = self._queues.get(name, Queue(name=name))
        until, exponent = queueing.cool(queue, hint, now)
        self._queues[name] = replace(queue, cool_until=until, cool_exponent=exponent, version=queue.version + 1)
        return until

    def _edit(self, change: QueueChange, now: float) -> Applied:
        queue = self._queues.get(change.name, Queue(name=change.name))
        if change.version is not None and change.version != queue.version:
            if change.audit in self._audit:
                return Applied(True, repeated=True)
            return Applied(False, error=f"queue {change.name} has changed meanwhile (version {queue.version})")
        if queueing.is_warmed(queue, change, now):
            for row in self._rows.values():
                job = row.job
                is_thrown_back = job.queue == change.name and job.state is State.READY and job.throttles > 0
                if is_thrown_back and now < job.run_at <= (queue.cool_until or now):
                    row.job = replace(job, run_at=now)
        self._queues[change.name] = queueing.edit(queue, change, now)
        keep_line(self._audit, auditing.of_queue(change), now)
        return Applied(True)

    # The cluster -----------------------------------------------------------------------------------------------------

    async def register(self, card: PodCard) -> None:
        with self._lock:
            now = self._clock.now()
            lease_until = self._clock.steady() + card.lease
            self._pods[card.id] = PodRow(card, now, now, lease_until, self._clock.boot())
            for name in card.queues:
                self._queues.setdefault(name, Queue(name=name))
            self._see(card)
            self._see_version(card)
        self._tell(Wake(settings=True))

    async def beat(
        self,
        pod: str,
        lease: float,
        runs: Sequence[RunReport],
        *,
        renew: bool = True,
        stats: PodStats | None = None,
        stacks: str | None = None,
    ) -> Beaten:
        with self._lock:
            now = self._clock.now()
            row = self._pods.get(pod)
            if row is None or row.lost or row.boot != self._clock.boot():
                return Beaten(now=now, lost=True)
            if renew:
                row.lease_until = self._clock.steady() + lease
                row.beat_at = now
                row.stats = stats or row.stats
                if stacks is not None:
                    row.stacks, row.stacks_at = stacks, now
            for run in runs:
                known = self._rows.get(run.id)
                if known is not None and known.job.state is State.RUNNING and known.job.token == run.token:
                    known.job = replace(known.job, slot=run.slot)
            held = tuple(
                Held(each.job.id, each.job.token or "", each.job.cancel_wanted)
                for each in self._rows.values()
                if each.job.state is State.RUNNING and each.job.pod == pod
            )
            live_pods = sum(self._is_live(each) for each in self._pods)
            return Beaten(
                now=now,
                held=held,
                queues=tuple(self._queues.values()),
                live_pods=live_pods,
                serving=self._serving(),
                shares=dict(row.shares),
                wish=row.wish,
                stacks_asked=row.stacks_asked,
            )

    async def sign_off(self, pod: str) -> None:
        with self._lock:
            gone = self._pods.pop(pod, None)
            if gone is not None:
                self._see_again(gone.card)
            await self.step_down(pod)
        self._tell(Wake(settings=True))

    async def lead(self, pod: str, ttl: float) -> int | None:
        with self._lock:
            holder, term = self._leader.pod, self._leader.term
            if not self._is_live(pod) or (holder != pod and self._leads(holder)):
                return None
            if holder != pod:
                term += 1
            self._leader = _Leader(pod, term, self._clock.steady() + ttl, self._clock.boot())
            return term

    def _leads(self, pod: str) -> bool:
        leader = self._leader
        return leader.pod == pod and leader.boot == self._clock.boot() and leader.until > self._clock.steady()

    async def step_down(self, pod: str) -> None:
        with self._lock:
            if self._leader.pod == pod:
                self._leader = _Leader(term=self._leader.term)

    async def abandoned(self, limit: int, overdue: float) -> Sequence[Abandoned]:
        with self._lock:
            now = self._clock.now()
            found: list[Abandoned] = []
            for row in self._rows.values():
                job = row.job
                if job.state is not State.RUNNING or len(found) >= limit:
                    continue
                pod = self._pods.get(job.pod or "")
                label, beat_at = (str(job.pod), None) if pod is None else (pod.card.label, pod.beat_at)
                if not self._is_live(job.pod or ""):
                    why: Literal["gone", "lease"] = "gone" if self._is_gone(job.pod or "") else "lease"
                    found.append(Abandoned(job, why, label, beat_at))
                elif job.deadline is not None and job.deadline + overdue < now:
                    found.append(Abandoned(job, "deadline", label, beat_at))
            return found

    def _is_gone(self, pod: str) -> bool:
        row = self._pods.get(pod)
        return row is None or row.lost or row.boot != self._clock.boot()

    def _is_live(self, pod: str) -> bool:
        return not self._is_gone(pod) and self._pods[pod].lease_until > self._clock.steady()

    # Wakes ---------------------------------------------------------------------------------------------------------

    @property
    def signals_work(self) -> bool:
        return True

    async def wake(self, queues: Iterable[str]) -> None:
        self._tell(Wake(queues=frozenset(queues)))

    def listen(self, on_wake: Callable[[Wake], None]) -> Callable[[], None]:
        number = next(self._listener_ids)
        self._listeners[number] = on_wake

        def stop() -> None:
            self._listeners.pop(number, None)

        return stop

    def _tell(self, wake: Wake) -> None:
        for on_wake in list(self._listeners.values()):
            on_wake(wake)

    # Reads -----------------------------------------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> Sequence[Job]:
        with self._lock:
            now = self._clock.now()
            kept = {} if all(id in self._rows for id in ids) else self._kept_requests()
            found = [self._seen(self._rows[id], now) if id in self._rows else kept.get(id) for id in ids]
            return [job for job in found if job is not None]

    def _kept_requests(self) -> dict[str, Job]:
        """What is kept behind its holder, by the id that it will have."""
        holders = [row.job for row in self._rows.values()]
        kept = [keep_last.job_of(job.kept, job.id) for job in holders if job.kept is not None]
        return {job.id: job for job in kept if job is not None}

    async def find(self, query: Query) -> Page:
        # The cursor is the last row's place in the order, not its number: rows come and go between two pages.
        place = _next_first if query.next_first else _newest_first
        after = _placed(query.cursor) if query.cursor else None
        with self._lock:
            now = self._clock.now()
            rows = [row for row in sorted(self._rows.values(), key=place) if after is None or place(row) > after]
            matching = [row for row in rows if self._matches(query.filter, row, now)]
            page = matching[: query.limit]
            more = len(matching) > query.limit
            jobs = [self._brief(row, now) for row in page]
            return Page(jobs=jobs, next=":".join(map(repr, place(page[-1]))) if more else None)

    async def time(self) -> float:
        return self._clock.now()

    async def count(self, filter: Filter, cap: int = 10_000) -> Mapping[State, int]:
        with self._lock:
            now = self._clock.now()
            counts: dict[State, int] = {}
            for row in self._rows.values():
                if self._matches(filter, row, now):
                    state = self._seen(row, now).state
                    counts[state] = min(cap, counts.get(state, 0) + 1)
            return counts

    async def queues(self) -> Sequence[QueueStats]:
        with self._lock:
            now = self._clock.now()
            return [self._stats(queue, now) for _, queue in sorted(self._queues.items())]

    def _stats(self, queue: Queue, now: float) -> QueueStats:
        jobs = [self._seen(row, now) for row in self._rows.values() if row.job.queue == queue.name]
        counts = {state.value: sum(job.state is state for job in jobs) for state in State}
        oldest = min((job.run_at for job in jobs if job.state is State.READY), default=None)
        age = None if oldest is None else max(0.0, now - oldest)
        return QueueStats(queue=queue, oldest_ready_seconds=age, **counts)

    async def pods(self) -> Sequence[Pod]:
        with self._lock:
            steady = self._clock.steady()
            return [
                Pod(
                    card=row.card,
                    started_at=row.started_at,
                    beat_at=row.beat_at,
                    lease_left=row.lease_until - steady if row.boot == self._clock.boot() else 0.0,
                    running=sum(r.job.state is State.RUNNING and r.job.pod == id for r in self._rows.values()),
                    leader=self._leads(id),
                    lost=row.lost,
                    **row.seen(),
                )
                for id, row in self._pods.items()
            ]

    def _seen(self, row: _Row, now: float) -> Job:
        """The job as a reader sees it: what is not yet due is scheduled."""
        job = row.job
        return replace(job, state=State.SCHEDULED) if job.state is State.READY and job.run_at > now else job

    def _brief(self, row: _Row, now: float) -> Job:
        return replace(self._seen(row, now), errors=row.job.errors[-1:])

    def _matches(self, filter: Filter, row: _Row, now: float) -> bool:
        stuck = row.job.state is State.RUNNING and not self._is_live(row.job.pod or "")
        return filters.matches(filter, row_of(self._seen(row, now), stuck=stuck), now)

    def _a_row(self, job: Job, seq: int, finished_token: str | None) -> _Row:
        return _Row(job, seq, finished_token)

    # Upkeep ----------------------------------------------------------------------------------------------------------

    async def facts(self) -> Sequence[Fact]:
        return [Fact("memory", "warn", "jobs live in this process only", "use sqlite:///… to keep them")]

    async def backup(self, path: str) -> None:
        raise ValueError("memory:// has nothing to back up: it is lost at exit")

    def borrow(self, connection: object) -> Borrowed:
        raise TypeError("memory:// takes part in no transaction: enqueue without within=")

    def borrow_async(self, connection: object) -> BorrowedAsync:
        return AtOnce(self.borrow(connection))

    def transact(self, connection: object) -> AbstractContextManager[Any]:
        raise TypeError("memory:// takes part in no transaction: finish by returning")

    def transact_async(self, connection: object) -> AbstractAsyncContextManager[Any]:
        raise TypeError("memory:// takes part in no transaction: finish by returning")


def _due(new: NewJob, now: float) -> float:
    return max(now, new.run_at) if new.run_at is not None else now + new.delay


def _claim_order(row: _Row) -> tuple[int, float, int]:
    return (-row.job.priority, row.job.run_at, row.seq)


def _newest_first(row: _Row) -> tuple[float, int]:
    return (0.0, -row.seq)


def _next_first(row: _Row) -> tuple[float, int]:
    return (row.job.run_at, row.seq)


def _placed(cursor: str) -> tuple[float, int]:
    instant, seq = cursor.split(":")
    return (float(instant), int(seq))


def _is_finish(change: Change) -> bool:
    """Written by the claim's owner to end its run: repeatable by its token, as nobody else's Change is."""
    return change.token is not None and change.to is not State.RUNNING and not change.foreign


def _expected(job: Job, change: Change) -> bool:
    if change.token is not None and job.token != change.token:
        return False
    return job.state in change.expect or (job.state in CLAIMABLE and bool(change.expect & CLAIMABLE))


def _remember(errors: tuple[ErrorEntry, ...], entry: ErrorEntry) -> tuple[ErrorEntry, ...]:
    return (*errors, entry)[-ERRORS_KEPT:]
