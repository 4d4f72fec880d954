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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

from .core.filter import Filter
from .core.job import Change, Job, NewJob, QueueChange, State
from .core.pod import Held, Pod, PodCard, Wish
from .core.queue import Queue, QueueStats

# ---------------------------------------------------------------------------------------------------------------------
# Values that cross the storage port


class Inserted(Struct, frozen=True, gc=False):
    """What became of one NewJob. `id` names the job that now stands for the request: its own, or the holder's."""

    id: str
    outcome: Literal["inserted", "duplicate", "replaced"]


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
    row), `cancel_wanted` that this is why it was refused, and `error` names what was wrong with it, if anything was.
    """

    accepted: bool
    repeated: bool = False
    state: State | None = None
    cancel_wanted: bool = False
    error: str | None = None


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
    speak. `deadline`: the pod lives, but the run's deadline passed too long ago.
    """

    job: Job
    why: Literal["gone", "lease", "deadline"]
    label: str  # the pod's, for people


class Query(Struct, frozen=True, kw_only=True):
    """Which jobs to read. Newest first, unless `next_first` (by run_at, for what is scheduled)."""

    filter: Filter
    limit: int = 50
    cursor: str | None = None
    next_first: bool = False


class Page(Struct, frozen=True, kw_only=True):
    """One page of jobs, each with its last error only. `newest_only` is set when terms that no index serves were
    answered from that many of the newest rows instead of from all."""

    jobs: Sequence[Job]
    next: str | None = None
    newest_only: int | None = None


class Fact(Struct, frozen=True):
    """One line of `doctor`, as far as a storage can tell it."""

    code: str
    level: Literal["ok", "warn", "error"]
    text: str
    remedy: str = ""


class SchemaStatus(Struct, frozen=True, kw_only=True):
    current: int  # 0: nothing there yet
    newest: int  # what this code brings
    pending: tuple[str, ...] = ()


class Wake(Struct, frozen=True):
    """A hint that something changed. It may be late, doubled or lost; polling is the truth."""

    queues: frozenset[str] = frozenset()  # empty: any
    ended: frozenset[str] = frozenset()  # ids of jobs that ended, where somebody in this process waits for one
    cancels: bool = False
    settings: bool = False  # a queue's settings, a share or a wish for a pod changed: beat soon to hear of it


class Capabilities(Struct, frozen=True, kw_only=True):
    """What may differ between storages. Nothing else may."""

    durable: bool  # survives the end of the process
    shared: bool  # several processes can use it at once
    # It can tell that a pod is dead, not only that its lease has lapsed: then every pod looks for dead neighbours.
    proves_death: bool = False
    borrows: tuple[str, ...] = ()  # kinds of connection that `borrow` takes


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

    async def schema(self) -> SchemaStatus: ...

    # The hot path ----------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Write jobs, all in one transaction, and answer for each, in order, after the commit.

        A known id is a repeat: nothing is written, and the answer is that of the first time, even if the job has
        ended meanwhile. A unique key that a live job holds (or a success, inside its period) is settled by the
        request's rule: `skip` answers `duplicate` with the holder's id; `replace` overwrites a holder that has not
        started, in place, and answers `replaced`. Of many callers with one key at once exactly one is `inserted`.
        Wakes listeners of the queues, after the commit.
        """
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
        write; going back to a live state takes it again, and is refused if another live job holds it.
        """
        ...

    # The cluster -----------------------------------------------------------------------------------------------------

    async def register(self, card: PodCard) -> None:
        """Make a pod known, with a lease from now. Queues that it serves get their rows."""
        ...

    async def beat(self, pod: str, lease: float, runs: Sequence[RunReport], *, renew: bool = True) -> Beaten:
        """Renew the pod's lease and hear what concerns it. Names the runs in hand, so that operators see their slots;
        answers with the claims it is believed to hold, cancels wanted among them. A pod that was declared lost, or
        is unknown, is told so and nothing is renewed. A lapsed lease that nobody acted on is renewed: expiry alone
        takes nothing away. With `renew=False` it only asks."""
        ...

    async def sign_off(self, pod: str) -> None:
        """Remove the pod's row, after its jobs were given back. What it still held is claimable by rescue at once."""
        ...

    async def lead(self, pod: str, ttl: float) -> int | None:
        """Take or renew the leadership for `ttl` seconds; the term if this pod leads now, else None. The term rises
        with every change of holder. Leadership saves work; it never makes anything safe."""
        ...

    async def step_down(self, pod: str) -> None: ...

    async def abandoned(self, limit: int, overdue: float) -> Sequence[Abandoned]:
        """Running jobs that need a rescue: those of pods without a live lease (or proven dead, where the storage can
        prove it), and those whose deadline passed more than `overdue` seconds ago. At most `limit`.

        Proving a pod dead declares it lost. A rescue Change (`if_lapsed`) is checked again when it is written, and
        declares the pod lost in the same transaction: of a beat and a rescue exactly one wins.
        """
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

    async def get(self, ids: Sequence[str]) -> Sequence[Job]:
        """The jobs with these ids, with their whole error history; unknown ids are left out."""
        ...

    async def find(self, query: Query) -> Page: ...

    async def count(self, filter: Filter, cap: int = 10_000) -> Mapping[State, int]:
        """How many jobs match, by state, each count no higher than `cap`."""
        ...

    async def queues(self) -> Sequence[QueueStats]: ...

    async def pods(self) -> Sequence[Pod]:
        """All registered pods, the lapsed and the lost among them, until upkeep removes their rows."""
        ...

    # Upkeep ----------------------------------------------------------------------------------------------------------

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


class Call(Struct, frozen=True):
    """One attempt, ready to be run: the function and its decoded arguments (the context among them, if it asks)."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


class Executor(Protocol):
    """Runs calls. It never sees a storage and knows nothing of retries: it answers with the function's value, or
    raises what the function raised."""

    name: str
    # Whether cancelling the task that awaits `run` stops the call. If not, the call can only be asked, by the flags in
    # its context, and `run` goes on waiting for it.
    cancels: bool

    def places(self) -> int | None:
        """How many more calls could start now; None: as many as there are slots."""
        ...

    async def start(self) -> None: ...

    async def run(self, call: Call) -> Any:
        """Run one call to its end."""
        ...

    async def close(self) -> None:
        """Let go of what idles. A call that does not return is left behind; it never holds up the exit."""
        ...
