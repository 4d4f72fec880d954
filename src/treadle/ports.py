"""The three ports: Storage, Executor, Clock. Their docstrings are contracts, and the conformance suite
(`treadle.testing.conformance`) says the same in code.

A storage is dumb. It keeps rows, compares what a Change expects with what is there, and tells each caller whether its
own wish was carried out. It decides nothing about jobs: what a Change holds was decided in `core.lifecycle`.

What holds for every verb
-------------------------
* **Bulk.** One call, many members. A bad member is refused alone; its neighbours are written.
* **Repeatable.** After "committed, but the answer was lost" the same call may be sent again: ids are made by the
  client, tokens by the pod, both before sending.
* **Bounded.** Every call ends within the storage's call deadline, with an answer or with `StorageTimeout` (outcome
  unknown) or `StorageUnavailable`.
* **Clock.** What is due and what has expired is decided by the storage's own clock, never by the caller's.
* **Any loop.** A storage may be used from several event loops in several threads at once: the Heart beats on its own.
  A loop that ends while the storage stays open says so by `detach`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import UNSET, Struct, UnsetType

from .core.fact import Fact as Fact
from .core.failure import LOOKED_AT

if TYPE_CHECKING:  # everybody loads the ports: what a storage keeps is loaded by whoever makes one of it
    from .core import answer as answering
    from .core.answer import Answer, Given, NewAnswer, Settled
    from .core.audit import AuditLine
    from .core.balance import Share
    from .core.blocker import Blocker
    from .core.catalog import Entry
    from .core.deploy import Deploy
    from .core.event import Event
    from .core.failure import Failures
    from .core.filter import Filter
    from .core.firing import Fire, Fired, FireRecord
    from .core.job import Change, Job, NewJob, QueueChange, State
    from .core.limit import Bucket, Take, Taken
    from .core.lock import Lock
    from .core.logline import LogLine
    from .core.mute import Mute
    from .core.operation import Operation
    from .core.pod import Held, Pod, PodCard, PodStats, Wish
    from .core.progress import Checkpoint, Report, Reported
    from .core.queue import Queue, QueueStats
    from .core.reading import Reading
    from .core.record import Record
    from .core.rollup import Rollup, What
    from .core.schedule import Schedule
    from .core.warnings import DueTask

# ---------------------------------------------------------------------------------------------------------------------
# Values that cross the storage port


class Inserted(Struct, frozen=True, gc=False):
    """What became of one NewJob. `id` names the job that now stands for the request: its own, or the holder's."""

    id: str
    outcome: Literal["inserted", "duplicate", "replaced", "kept"]


class Lane(Struct, frozen=True):
    """Tasks of one queue that share a kind of place (an executor), and how many of those places are free."""

    tasks: frozenset[str]
    limit: int


class Want(Struct, frozen=True):
    """What a pod has room for in one queue: at most `limit` in all, at most a lane's limit from each lane."""

    queue: str
    limit: int
    lanes: tuple[Lane, ...]


class Claimed(Struct, frozen=True):
    """Jobs that are now this pod's, in the order in which they should start.

    `next_due` is the number of seconds until something more may become claimable in the wanted queues (a scheduled
    job, the end of a cool-down), as far as is known; None if nothing is in sight. `more` says that the claim took
    everything it was allowed to take, so that asking again at once is worth while once there is room.
    """

    jobs: Sequence[Job]
    next_due: float | None = None
    more: bool = False


class Applied(Struct, frozen=True, gc=False):
    """What became of one Change.

    `accepted`: it is written. A finish that was accepted before and is sent again (same id, same token) is accepted
    again, and `repeated` says that nothing new happened. Otherwise `state` tells what is true now (None: no such
    row), `cancel_wanted` that this is why it was refused, `kept` the same of a request that is kept behind the job (the
    one that is there now; None: there is none any more), and `error` names what was wrong with it, if anything was.
    """

    accepted: bool
    repeated: bool = False
    state: State | None = None
    cancel_wanted: bool = False
    error: str | None = None
    kept: str | UnsetType | None = UNSET


class RunReport(Struct, frozen=True, gc=False):
    """A run that a pod has in hand, as it says so in its beat."""

    id: str
    token: str
    slot: str


class Beaten(Struct, frozen=True, kw_only=True):
    """The answer to a beat. If `lost`, the lease was not renewed and never will be: register anew."""

    now: float
    lost: bool = False
    held: tuple[Held, ...] = ()
    queues: tuple[Queue, ...] = ()
    live_pods: int = 1
    serving: dict[str, int] = {}  # queue → live pods that serve it, those that are quiet left out
    shares: dict[str, int] = {}  # queue → this pod's share of its max_workers, where the Balancer has given one
    wish: Wish = "serve"
    stacks_asked: float | None = None  # when an operator last asked for a dump of this pod's stacks


class Abandoned(Struct, frozen=True):
    """A running job that its pod will not end.

    `gone`: the pod has signed off, was declared lost, or is proven dead. `lease`: its lease has lapsed, and it may yet
    speak. `deadline`: the pod lives, but the run's deadline passed too long ago. `answer`: it waits, and nobody has
    answered in time (no storage says that here: see `waits_over`).
    """

    job: Job
    why: Literal["gone", "lease", "deadline", "answer"]
    label: str  # the pod's, for people
    beat_at: float | None = None  # when the pod was last heard of, where that is known


class Answered(Struct, frozen=True, kw_only=True):
    """What became of a word from outside, or of a beat.

    `won`: it counts. `same`: it was said before, and counts. `conflict`: somebody has said something else. `stale`: the
    attempt that it was meant for is over. `early`: a wait that is not over yet. `unknown`: there is no such token.
    """

    outcome: answering.Outcome
    job: str | None = None
    until: float | None = None  # with a beat that counts: how long it will be waited for now
    released: bool = False  # the job waited for it, and runs again

    @staticmethod
    def of(settled: Settled, row: Answer | None) -> Answered:
        written = settled.answer
        return Answered(
            outcome=settled.outcome,
            job=None if row is None else row.job,
            until=written.expires_at if written is not None and written.kind is None else None,
            released=settled.releases,
        )


class WaitOver(Struct, frozen=True):
    """A job that waits for an answer that has not come in time."""

    job: Job
    answer: Answer


class Query(Struct, frozen=True, kw_only=True):
    """Which jobs to read. Newest first, unless `next_first` (by run_at, for what is scheduled)."""

    filter: Filter
    limit: int = 50
    cursor: str | None = None
    next_first: bool = False


class Page(Struct, frozen=True, kw_only=True):
    """One page of jobs, each with its last error only. `newest_only` is set when terms that no index serves were
    answered from that many of the newest rows instead of from all; `resume` is then the cursor by which the look goes
    on behind them, for whoever must see all."""

    jobs: Sequence[Job]
    next: str | None = None
    newest_only: int | None = None
    resume: str | None = None


class Pruned(Struct, frozen=True):
    """What one call of `prune` has done. `mark` asks for what comes after it; None: all of the state was seen."""

    removed: int
    mark: str | None = None


class SchemaStatus(Struct, frozen=True, kw_only=True):
    current: int  # 0: nothing there yet
    newest: int  # what this code brings
    pending: tuple[str, ...] = ()


class Dumped(Struct, frozen=True):
    """A page of rows. `next` asks for the one after it; None: that was the last. `damaged` names rows that no code of
    ours can have written: they are left out."""

    records: Sequence[Record]
    next: str | None = None
    damaged: Sequence[str] = ()


class Loaded(Struct, frozen=True):
    """What became of one record: `same` and `differs` say that its row was there before, and was left alone."""

    outcome: Literal["written", "same", "differs", "refused"]
    error: str = ""  # which columns differ, or why it was refused


# How a storage is opened: for reading alone, or for writing, or ("auto") for reading where nothing can be written. Only
# who shows things may have the third: whoever decides by what it reads must not read a standby.
ReadOnlyChoice: TypeAlias = bool | Literal["auto"]


class Vitals(Struct, frozen=True, kw_only=True):
    """How large a storage is and how it is used, as far as it can tell; None: it cannot."""

    bytes: int | None = None
    wal_bytes: int | None = None
    connections: int | None = None
    disk_free: int | None = None


class Wake(Struct, frozen=True):
    """A hint that something changed. It may be late, doubled or lost; polling is the truth."""

    queues: frozenset[str] = frozenset()  # empty: any
    # Ids of jobs that ended and of answers that were given, where somebody in this process waits for one.
    ended: frozenset[str] = frozenset()
    cancels: bool = False
    # A queue's settings, a share or a wish for a pod changed, or a pod came or left: beat soon to hear of it.
    settings: bool = False


class Capabilities(Struct, frozen=True, kw_only=True):
    """What may differ between storages. Nothing else may."""

    durable: bool  # survives the end of the process
    shared: bool  # several processes can use it at once
    # It can tell that a pod is dead, not only that its lease has lapsed: then every pod looks for dead neighbours.
    proves_death: bool = False
    borrows: tuple[str, ...] = ()  # kinds of connection that `borrow` takes
    # It works beside the pod, and on several calls at once: where so many runs wait to be written, a pod sends a second
    # turn beside the first. None: one at a time is as fast.
    overlap: int | None = None
    waits: bool = False  # `insert_sync` is there: a thread that runs no event loop can wait by itself


# ---------------------------------------------------------------------------------------------------------------------
# Ports


class Clock(Protocol):
    """Where a storage takes the time from."""

    def now(self) -> float:
        """Wall time in seconds since the epoch. May step."""
        ...

    def steady(self) -> float:
        """Seconds that never go back and count a suspended machine's sleep; leases live by it."""
        ...

    def boot(self) -> str:
        """Names the run of the machine that `steady` counts in. Another name: every older lease is over."""
        ...


class Borrowed(Protocol):
    """Verbs inside a transaction that the caller began and will end: what they write is there if and only if the
    caller commits. They run in the caller's thread, on the caller's connection."""

    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]: ...
    def apply(self, changes: Sequence[Change]) -> Sequence[Applied]: ...
    def get(self, ids: Sequence[str]) -> Sequence[Job]: ...


class BorrowedAsync(Protocol):
    """The same where the caller can wait: connections of async libraries."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]: ...
    async def apply(self, changes: Sequence[Change]) -> Sequence[Applied]: ...
    async def get(self, ids: Sequence[str]) -> Sequence[Job]: ...


class Storage(Protocol):
    """A place where jobs are kept. See the head of this file for what holds for every verb."""

    capabilities: Capabilities

    # Life ------------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Make ready for use; may be called again after `close`. A schema that this code cannot use is refused with
        `SchemaTooOld` or `SchemaTooNew`; anything that is not a Treadle storage is refused and left untouched."""
        ...

    async def close(self) -> None:
        """End every thread and connection. Calls under way are answered first."""
        ...

    async def detach(self) -> None:
        """The calling event loop will not use the storage again: let go of what belongs to that loop."""
        ...

    async def migrate(self) -> SchemaStatus:
        """Bring the schema to the newest version. Two at once: one works, one waits. Killed half-way: the next run
        completes it."""
        ...

    async def schema(self) -> SchemaStatus:
        """Which schema there is. This, `plan` and `migrate` also work where `open` was not called, or has refused the
        schema as too old; only `migrate` writes."""
        ...

    async def plan(self) -> Sequence[str]:
        """What `migrate` would do, a line for each migration."""
        ...

    def sql(self, current: int = 0) -> str:
        """The statements of all migrations after `current`, for a person to read or to run; empty if there are none.
        Needs no connection."""
        ...

    def roles(self, prefix: str = "treadle") -> str | None:
        """The statements that make the roles PREFIX_owner, _migrator, _worker, _enqueuer and _viewer and give each what
        it needs; None if there is no such thing here."""
        ...

    # The hot path ----------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Write jobs, all in one transaction, and answer for each, in order, after the commit.

        A known id is a repeat: nothing is written, and the answer is that of the first time, even if the job has
        ended meanwhile. A unique key that a live job holds (or a success, inside its period) is settled by the
        request's rule: `skip` answers `duplicate` with the holder's id; `replace` overwrites a holder that has not
        started, in place, and answers `replaced`; `keep_last` does so too, and is kept inside the row of one that is
        under way, in place of what was kept there, as `kept` with the id of the first (`core.keeping`). Of many callers
        with one key at once exactly one is `inserted`.
        Wakes listeners of the queues, after the commit.
        """
        ...

    def insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """The same, waited for in the calling thread, which runs no event loop. Only with `capabilities.waits`: an
        event loop in between costs as much again as the insert."""
        ...

    async def claim(self, pod: str, token: str, wants: Sequence[Want]) -> Claimed:
        """Take due jobs for a live pod, by order of (priority descending, run_at, insertion) inside each queue.

        In the transaction of the claim each job gets state `running`, the pod, the token, `started_at`, a deadline
        (its timeout from now) and one more attempt. Paused and cooling queues give nothing; tasks that no lane names
        are passed over, uncharged. Two claims at once never take the same job. A pod that is not registered, was
        declared lost, or whose lease has lapsed gets nothing. `token` must be fresh; after a lost answer,
        `recover` it before claiming anew.
        """
        ...

    async def recover(self, pod: str, token: str) -> Sequence[Job]:
        """The running jobs that a claim with this token took: what its lost answer would have said."""
        ...

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        """Write Changes, each wholly or not at all, and say of each whether it was accepted.

        A Change is accepted only if its job still has one of the states and the token that it expects; otherwise it
        is stale, and nothing that it carries happens. A Change carries its follow-up jobs and its queue's cool-down;
        all of it commits, or none. A bad Change is refused alone. After a lost answer the call may be repeated: a
        finish accepted once stays accepted, and is not told twice. Ending a job frees its unique key in the same
        write; going back to a live state takes it again, and is refused if another live job holds it. A Change that
        ends the run of a job behind which a request is kept is refused, and says so, unless it takes that very one. One
        that `waits` is carried out as the job's release if the answer is there already, and refused with an error if
        there is no such answer of this claim; its job's deadline is the end of the wait.
        """
        ...

    # The cluster -----------------------------------------------------------------------------------------------------

    async def register(self, card: PodCard) -> None:
        """Make a pod known, with a lease from now. Queues that it serves get their rows, and so does its version
        (`PodCard.worker_version`; an empty one is none). Wakes the others (`settings`): they have a smaller part in its
        queues."""
        ...

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
        """Renew the pod's lease and hear what concerns it. Names the runs in hand, so that operators see their slots;
        answers with the claims it is believed to hold, cancels wanted among them, with the queues' settings, its shares
        and what an operator wants of it. A pod that was declared lost, or is unknown, is told so and nothing is
        renewed. A lapsed lease that nobody acted on is renewed: expiry alone takes nothing away.

        `stats` and `stacks` are kept for people to see; None leaves what was said before. With `renew=False` it only
        asks, and nothing is written."""
        ...

    async def sign_off(self, pod: str) -> None:
        """Remove the pod's row, after its jobs were given back. What it still held is claimable by rescue at once.
        Wakes the others (`settings`)."""
        ...

    async def lead(self, pod: str, ttl: float) -> int | None:
        """Take or renew the leadership for `ttl` seconds; the term if this pod leads now, else None. The term rises
        with every change of holder. Leadership saves work; it never makes anything safe."""
        ...

    async def step_down(self, pod: str) -> None: ...

    async def order_pod(self, pod: str, wish: Wish | None, *, stacks: bool = False, by: str | None = None) -> bool:
        """What an operator wants of a pod: heard with its next beat, which a wake (`settings`) asks for. None leaves
        the last wish as it is; `stacks` asks for a dump. False: there is no such live pod."""
        ...

    async def save_shares(self, shares: Sequence[Share]) -> None:
        """Write what the Balancer has decided, and wake the pods to hear of it. A share of None is removed, and one of
        a pod that is not registered is not written. A pod that signs off takes its shares with it."""
        ...

    async def abandoned(self, limit: int, overdue: float) -> Sequence[Abandoned]:
        """Running jobs that need a rescue: those of pods without a live lease (or proven dead, where the storage can
        prove it), and those whose deadline passed more than `overdue` seconds ago. At most `limit`.

        Proving a pod dead declares it lost. A rescue Change (`if_lapsed`) is checked again when it is written, and
        declares the pod lost in the same transaction: of a beat and a rescue exactly one wins.
        """
        ...

    # Answers from outside --------------------------------------------------------------------------------------------

    async def open_answer(self, new: NewAnswer) -> bool:
        """Make an answer that may be given from now on (`core.answer.opened`). False: the job does not run under that
        claim. Sent again, it is left as it is. Of a job's older answers the newest `core.answer.KEPT` stay; they go
        when their job goes."""
        ...

    async def answer(self, id: str, given: Given, *, line: AuditLine | None = None) -> Answered:
        """Say something, in one transaction: hold the job's row and the answer's, in this order, ask
        `core.answer.settle`, write the answer, and, if that releases its job, what `core.lifecycle.answered` makes of
        it. Of any number of callers at once exactly one has won. Sent again, it is the same. Wakes whoever waits, and
        listeners of the job's queue, after the commit. The line is written into the audit with an answer that won."""
        ...

    async def beat_answer(self, id: str) -> Answered:
        """Keep a wait alive (`core.answer.keep_alive`). Of a beat and the end of the wait exactly one wins."""
        ...

    async def answer_of(self, id: str) -> tuple[float, Answer | None]:
        """The storage's clock, and the answer with this id."""
        ...

    async def awaited(self, job_id: str) -> Answer | None:
        """The answer that a waiting job waits for now; None if the job does not wait, or is not there."""
        ...

    async def waits_over(self, limit: int) -> Sequence[WaitOver]:
        """Waiting jobs whose answer has not come in time, the longest over first, at most `limit`. Must be cheap
        however many wait. What is written about one (`core.lifecycle.expired`) is refused if it was answered or kept
        alive meanwhile."""
        ...

    # Schedules -------------------------------------------------------------------------------------------------------

    async def schedules(self) -> tuple[float, Sequence[Schedule]]:
        """The storage's clock, and all schedules by name, the removed among them. The clock is read first: a cursor may
        be later than it."""
        ...

    async def save_schedule(
        self, schedule: Schedule, expected_version: int, *, cursor: float | None = None, line: AuditLine | None = None
    ) -> bool:
        """Write a definition over the version before it; with 0 there must be none yet. False: another version is
        there. It leaves the progress, which a fire may be writing at the same time; only a cursor that is given moves.
        Sent again, it finds its own work and answers as the first time. A `line` goes into the audit with it, in the
        same commit; so it is with the other verbs that take one."""
        ...

    async def fire(self, wish: Fire) -> Fired:
        """Fire a schedule, in one transaction: hold the row, ask `core.firing.settle`, insert the jobs, record each
        fire time (unique), write the progress. All of it, or nothing. Sent again, it changes nothing and answers as
        the first time. Wakes listeners of the queues, after the commit."""
        ...

    async def fires(self, name: str, limit: int = 100) -> Sequence[FireRecord]:
        """The newest fires of a schedule, newest first, as far as they are kept."""
        ...

    # Limits and locks ------------------------------------------------------------------------------------------------

    async def take(self, wishes: Sequence[Take]) -> Sequence[Taken]:
        """Take tokens from the buckets of these scopes, each scope once, and answer for each, in order.

        What a bucket gives is decided in `core.limit`: the storage loads the row, locked, asks, and saves. The bucket
        of a queue's rate (`core.limit.OF_A_QUEUE` and its name) has its settings from the queue's row at every take,
        and is made when it is first needed; a queue without a rate gives all that is wanted. Any other scope that is
        not there is answered so. Sent again, it takes again: what the lost answer gave is forfeited.
        """
        ...

    async def limits(self) -> Sequence[Bucket]:
        """All buckets as they stand now, by name."""
        ...

    async def save_limit(
        self, scope: str, capacity: int, refill: float, expected: int | None = None, *, line: AuditLine | None = None
    ) -> Bucket | None:
        """Make or change a limit; with `expected`, only if that is its version (0: only if it is not there). The
        bucket as it is now, or None if another version is there. With a `line` that the audit has, it was written
        before: that is so for the next two verbs, too."""
        ...

    async def drain_limit(self, scope: str) -> bool:
        """Empty a bucket. Whether there is one."""
        ...

    async def remove_limit(self, scope: str, *, line: AuditLine | None = None) -> bool:
        """Whether it was there."""
        ...

    async def seize(self, name: str, owner: str, ttl: float, *, fence: int | None = None) -> Lock:
        """Take a named lock for `ttl` seconds, and answer with it as it is now, whoever has it.

        Without `fence` the caller is a new holder: the lock is taken if it is free, over, or of the same `owner`
        (another attempt of a job takes over what the first one had), with a fence that was never given before,
        whatever was freed or swept meanwhile. With `fence` that holding is renewed, if it is still the last one;
        otherwise nothing is taken. Sent again after a lost answer, a new holder gets another fence."""
        ...

    async def free(
        self, name: str, owner: str | None, *, fence: int | None = None, line: AuditLine | None = None
    ) -> bool:
        """Let go of a lock that `owner` has (None: whoever has it), with `fence` only of that holding. Whether it was
        so."""
        ...

    async def locks(self) -> Sequence[Lock]:
        """The locks that are held, by name."""
        ...

    async def sweep_locks(self) -> int:
        """Forget the locks that are over; how many."""
        ...

    # Signals ---------------------------------------------------------------------------------------------------------

    @property
    def signals_work(self) -> bool:
        """Whether this process hears of what others write; behind a transaction pooler it may not. If not, polling is
        all there is, and a pod polls faster."""
        ...

    async def wake(self, queues: Iterable[str]) -> None:
        """Hint to every listener, in all processes, that these queues have work."""
        ...

    def listen(self, on_wake: Callable[[Wake], None]) -> Callable[[], None]:
        """Call `on_wake`, from any thread and without ever blocking in it, when something may have changed. Returns
        the function that ends it."""
        ...

    # Reads, never on the hot path ------------------------------------------------------------------------------------

    async def time(self) -> float:
        """The storage's clock, for whoever tells people how long something will take."""
        ...

    async def get(self, ids: Sequence[str]) -> Sequence[Job]:
        """The jobs with these ids, with their whole error history; unknown ids are left out. A request that is kept
        behind a job is answered as `core.keeping.job_of` shows it."""
        ...

    async def find(self, query: Query) -> Page: ...

    async def count(self, filter: Filter, cap: int = 10_000) -> Mapping[State, int]:
        """How many jobs match, by state, each count no higher than `cap`. A storage that has not looked at every row
        that could match answers with a `Counted`, which says of which states there may be more."""
        ...

    async def queues(self) -> Sequence[QueueStats]: ...

    async def catalog(self) -> Sequence[Entry]:
        """What pods have said of their tasks and queues (`PodCard.about`), those of pods long gone among it: of each
        the last word, and when a pod that says so last registered or signed off. By kind and name."""
        ...

    async def deploys(self) -> Sequence[Deploy]:
        """The versions of the user's code (`PodCard.worker_version`) that pods have registered with: when the first pod
        with each did, and when the last one did. At most `core.deploy.KEPT`, those that registered last; the one that
        was first seen last comes first, as `core.deploy.in_order` has them."""
        ...

    async def pods(self) -> Sequence[Pod]:
        """All registered pods, the lapsed and the lost among them, until upkeep removes their rows."""
        ...

    async def due_tasks(self) -> Sequence[DueTask]:
        """Which tasks have jobs that could start now, by queue: to find those that nobody knows. Must be cheap however
        many jobs there are: counts stop at a thousand or before, and a storage that has no order by task may look only
        at those that come first in each queue and priority, a thousand at most. What nobody claims ends up there."""
        ...

    # Moving to another storage ---------------------------------------------------------------------------------------

    def kinds(self) -> Sequence[str]:
        """What `dump` and `load` know, in the order in which it must be loaded: queues, jobs, then every other table.

        How a table joins: by its name alone. A table that a migration makes is a kind, named as in the migration
        without the prefix (`treadle_`, or the schema), with its columns as they are; it needs a primary key (or
        not-null columns that do for one), and the same name and columns in every storage. One whose rows mean
        nothing elsewhere (pods and their leases, what is worked out from other rows) is named in `APART` of
        each storage's `copy` instead. Rows that hang on a job's row, as its errors do, travel inside the job's
        record. A storage that is not durable may know fewer kinds.
        """
        ...

    async def dump(self, kind: str, cursor: str | None = None, limit: int = 500) -> Dumped:
        """A page of at most `limit` rows, as records (see `core.record`), in whatever order is cheap to go on from; a
        job's `seq` says where it stands. Changes nothing."""
        ...

    async def load(self, kind: str, records: Sequence[Record]) -> Sequence[Loaded]:
        """Write rows as they are, ids, counts, instants and places included, and answer for each, in order. A row that
        is there already is compared, never overwritten, unless it is a queue that nobody has set; so the call may be
        repeated. A job whose place is taken goes to the end. A bad record is refused alone. Nobody is woken."""
        ...

    async def failures(
        self, *, queue: str | None = None, task: str | None = None, limit: int = 50, most: int = LOOKED_AT
    ) -> Failures:
        """Jobs that failed and jobs that wait for their retry, grouped by the cause of their last error: the largest
        groups, at most `limit`. Of the newest `most` failures, and of `most` retries: of each queue and task the next
        ones in turn, so that none hides the others. First and last seen: a failure when it ended, a retry at its last
        error, and since its first one (of those that are kept) if that had the same cause."""
        ...

    async def mutes(self) -> Sequence[Mute]:
        """The causes of failures that are muted now, in their order."""
        ...

    async def mute(self, mute: Mute, *, line: AuditLine | None = None) -> None:
        """Mute a cause, in the place of an earlier mute of it; `at` is the storage's clock. With a `line` that the
        audit has, it was written before: so it is with the next verb."""
        ...

    async def unmute(self, cause: str, *, line: AuditLine | None = None) -> bool:
        """End it; whether it was muted."""
        ...

    # Operations and the audit ----------------------------------------------------------------------------------------

    async def save_operation(self, operation: Operation, expected: int | None) -> Operation | None:
        """Write an Operation's row and what the audit says of it (`operation.written`, `operation.line`), in one
        commit; the row as it is now. None if it has another version than `expected`. Without `expected` it is new:
        sent again, it is left as it is and answered as it is."""
        ...

    async def operation(self, id: str) -> Operation | None: ...

    async def operations(self, limit: int = 50) -> Sequence[Operation]:
        """The newest first, and those that are under way before all others."""
        ...

    async def advance(
        self, operation: Operation, changes: Sequence[Change], then: Callable[[Sequence[Applied]], Operation]
    ) -> Operation | None:
        """Apply a chunk's Changes, as `apply` does, and write the row that `then` makes of the answers, in one commit.
        None, and nothing happens, if the row has another version than the one that was handed in. `then` must be
        pure: it may be called again."""
        ...

    async def note(self, lines: Sequence[AuditLine]) -> None:
        """Add lines to the audit, by the storage's clock. A known id is a repeat."""
        ...

    async def audit(self, limit: int = 100, before: str | None = None) -> Sequence[AuditLine]:
        """The newest lines first; with `before`, those older than the line with this id."""
        ...

    # History: charts and timelines. No job depends on it, and none of it is worth an fsync ---------------------------

    async def roll_up(self, rows: Sequence[Rollup | Reading]) -> None:
        """Write rows, each in the place of the one with the same key: sent again, they change nothing."""
        ...

    async def rollups(
        self,
        resolution: int,
        since: float,
        until: float | None = None,
        *,
        queue: str | None = None,
        task: str | None = None,
        limit: int | None = None,
    ) -> Sequence[Rollup]:
        """The rows of one resolution with since ≤ at < until, oldest first; with `limit` the first so many."""
        ...

    async def readings(
        self, resolution: int, since: float, until: float | None = None, *, pod: str | None = None
    ) -> Sequence[Reading]:
        """The same of what pods have measured of themselves."""
        ...

    async def record(self, events: Sequence[Event]) -> None:
        """Add lines to timelines; one without a time gets that of the storage's clock. A known id is a repeat, and
        lines about a job that is not there are dropped. They go when their job goes."""
        ...

    async def timeline(self, job_id: str) -> Sequence[Event]:
        """The lines that were recorded about a job, oldest first; of very many, the newest thousand."""
        ...

    async def forget_history(self, what: What, age: float, limit: int = 1000) -> int:
        """Remove at most `limit` rows that are older than `age` seconds, the oldest first. Answers with how many."""
        ...

    async def vitals(self) -> Vitals: ...

    async def blockers(self) -> Sequence[Blocker]:
        """Who else holds a lock that calls wait for now, as far as this login may see. Asked after a call was not
        answered in time; answers within two seconds or so whatever is locked, needs no `open`, raises nothing: where it
        cannot be told, the answer is empty."""
        ...

    async def is_writable(self) -> bool:
        """Whether anything can be written now. Not if it was opened for reading; nor, if it was opened so that it finds
        out by itself, where it can only be read: on a standby, in a file without permission to write."""
        ...

    # What runs say of themselves. A job that says nothing touches none of it ------------------------------------------

    async def report(self, reports: Sequence[Report]) -> Sequence[bool]:
        """Write what runs report, and say of each whether it was taken; a job may be there several times, and the last
        word counts. Fenced by the token: a checkpoint is taken while the job runs under it, progress (and `over`) also
        after the run's own finish, until the next claim. Progress is not worth an fsync, a checkpoint is durable when
        this returns. Kept until the job is removed, has succeeded and is `over`, or is revived after a success."""
        ...

    async def progress(self, job_ids: Sequence[str]) -> Sequence[Reported]:
        """The last progress of those of these jobs that have any and have not succeeded, in any order."""
        ...

    async def checkpoint(self, job_id: str) -> Checkpoint | None:
        """The last checkpoint of a job, unless it has succeeded."""
        ...

    async def record_logs(self, lines: Sequence[LogLine]) -> None:
        """Add lines to jobs' logs; of an attempt the last 1000 lines and 64 KiB are kept (`core.logline.kept`). A known
        number is a repeat, and lines about a job that is not there are dropped. They go when their job goes. Not worth
        an fsync."""
        ...

    async def logs(self, job_id: str, after: int = 0, limit: int = 1000) -> Sequence[LogLine]:
        """The last `limit` lines of a job with numbers above `after`, oldest first."""
        ...

    # Upkeep ----------------------------------------------------------------------------------------------------------

    async def prune(
        self, state: State, *, queue: str | None = None, mark: str | None = None, limit: int = 1000
    ) -> Pruned:
        """Remove ended jobs of one state that their queue's retention lets go (`core.retention.rules`), with all that
        hangs on them; of one queue only, if it is named. Looks at `limit` of them at most, the oldest first, in a
        short transaction that no claim waits for. A success that still holds its unique key stays."""
        ...

    async def sweep(self) -> Mapping[str, int]:
        """Forget what nobody needs any more: ended operations and lines of the audit after 90 days, unique keys whose
        time is over. Answers with how many of which. Other tables' upkeep joins here."""
        ...

    async def facts(self) -> Sequence[Fact]:
        """What `doctor` should know about this storage."""
        ...

    async def backup(self, path: str) -> None:
        """A consistent copy, made while everything runs."""
        ...

    def borrow(self, connection: object) -> Borrowed:
        """Work inside the caller's own transaction on this storage's database. A connection that is not on the same
        database, or not in a transaction, or of a kind that is not supported, is refused with what to do."""
        ...

    def borrow_async(self, connection: object) -> BorrowedAsync:
        """As `borrow`, from a coroutine. A sync connection that would block the loop on a network is refused."""
        ...

    def transact(self, connection: object) -> AbstractContextManager[Any]:
        """A transaction on the caller's connection, which must not be in one that has written already; with None, on a
        connection of our own, which is closed afterwards. Yields the connection; commits at the end, and rolls back
        if the body raises."""
        ...

    def transact_async(self, connection: object) -> AbstractAsyncContextManager[Any]:
        """The same from a coroutine."""
        ...


class Call(Struct, frozen=True):
    """One attempt, ready to be run: the function and its decoded arguments (the context among them, if it asks)."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    job: Job | None = None  # what an executor that runs it elsewhere sends there; its args are JSON
    context: Any = None  # the run's Context: made for every task that takes one, and for every executor that `asks`


class Executor(Protocol):
    """Runs calls. It never sees a storage and knows nothing of retries: it answers with the function's value, or
    raises what the function raised: a Signal, `core.outcome.Elsewhere` for what was raised in another process, or
    `core.outcome.ChildLost` if that process is gone."""

    name: str
    # Whether cancelling the task that awaits `run` stops the call. If not, the call can only be asked, by the flags in
    # its context, and `run` goes on waiting for it.
    cancels: bool
    # Whether every call needs its Context, whatever the function takes: to send progress, logs and cancels to and fro.
    asks: bool

    def places(self) -> int | None:
        """How many more calls could start now; None: as many as there are slots."""
        ...

    async def start(self) -> None: ...

    def run(self, call: Call) -> Coroutine[Any, Any, Any]:
        """Run one call to its end. (An `async def` is one.)"""
        ...

    async def close(self) -> None:
        """Let go of what idles. A call that does not return is left behind; it never holds up the exit."""
        ...


@runtime_checkable
class Gathers(Protocol):
    """An executor that holds calls back for a while, to begin many at once."""

    def begin(self) -> None:
        """Begin what is held back, without waiting for more."""
        ...

    def let_go(self) -> None:
        """The pod stops: what was not begun is given back (`core.outcome.Release`)."""
        ...
