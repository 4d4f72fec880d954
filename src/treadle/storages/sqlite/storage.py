"""SQLiteStorage: the verbs. What each one does is in the file that is named for it; here it is only sent on its way."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Final, TypeVar

from ...core.blocker import Blocker
from ...core.errors import ReadOnly, StorageUnavailable
from ...core.filter import Filter
from ...core.job import Change, Job, NewJob, QueueChange, State
from ...core.pod import Pod, PodCard, PodStats
from ...core.queue import QueueStats
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
    ReadOnlyChoice,
    RunReport,
    SchemaStatus,
    Wake,
    Want,
)
from ..shared.clock import SystemClock
from ..shared.depths import Depths
from ..shared.lent import AtOnce
from . import (
    apply,
    backup,
    blockers,
    borrow,
    claim,
    cluster,
    connect,
    facts,
    failures,
    files,
    find,
    insert,
    migrations,
    opening,
    tally,
    threads,
    transact,
)
from .answers import SQLiteAnswers
from .catalog import Catalog
from .connect import Synchronous
from .copy import Copying
from .deploys import Deploys
from .history import SQLiteHistory
from .limits import SQLiteLimits
from .locks import PodLocks
from .mutes import SQLiteMutes
from .news import News
from .opening import Opened
from .operating import Operating
from .pods import PodVerbs
from .progress import SQLiteProgress
from .schedules import SQLiteSchedules
from .wakes import Wakes
from .writer import Operation, Writer

T = TypeVar("T")


class SQLiteStorage(
    Copying, SQLiteLimits, SQLiteMutes, PodVerbs, Catalog, Deploys, SQLiteHistory, Operating, SQLiteSchedules,
    SQLiteProgress, SQLiteAnswers,
):  # fmt: skip
    """Jobs in one SQLite file. Safe for several threads, event loops and processes of one host at once.

    `synchronous="normal"` is faster for single enqueues, and may lose the last commits when the power fails.
    `ballast=False` keeps no file in reserve for a full disk, where finishes then wait for room as all else does.
    """

    # Statements run beside the interpreter: while one batch is written, the jobs of another can run.
    capabilities = Capabilities(
        durable=True, shared=True, proves_death=True, borrows=("sqlite3.Connection",), overlap=100, waits=True
    )

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock | None = None,
        synchronous: Synchronous = "full",
        call_deadline: float = 10.0,
        read_only: ReadOnlyChoice = False,
        ballast: bool = True,
    ) -> None:
        connect.check_library()
        if synchronous not in ("full", "normal"):
            raise ValueError(f'synchronous must be "full" or "normal", not {synchronous!r}')
        self.path: Final = files.real_path(path)
        self.read_only: Final[ReadOnlyChoice] = read_only
        self._clock: Clock = clock or SystemClock()
        self._synchronous: Synchronous = synchronous
        self._deadline = call_deadline
        self._pods = PodLocks(self.path)
        self._signals = Wakes(self.path, self._pods.directory)
        self._ballast = files.Ballast(self.path)
        self._has_ballast = ballast
        self._life = threading.Lock()
        self._opened: Opened | None = None
        self._depths: Depths[tally.Head] = Depths()
        self._causes = failures.Causes()

    # Life ------------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        await threads.run(self._open)

    def _open(self) -> None:
        with self._life:
            if self._opened is not None:
                return
            if self.read_only is True or (self.read_only == "auto" and not files.may_write(self.path)):
                self._opened = opening.to_read(self.path, self._signals)
            else:
                self._opened = opening.to_write(
                    self.path, self._clock, self._synchronous, self._deadline, self._ballast, self._signals
                )

    async def close(self) -> None:
        await threads.run(self._close)

    def _close(self) -> None:
        with self._life:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.close(self._deadline + 1.0)
                self._pods.close()

    async def detach(self) -> None:
        pass  # nothing of ours belongs to a loop

    async def migrate(self) -> SchemaStatus:
        # Opening does it; a storage opened for reading only never does.
        if self._opened is not None:
            return await self.schema()
        await self.open()
        try:
            return await self.schema()
        finally:
            await self.close()

    async def schema(self) -> SchemaStatus:
        if self._opened is None:
            return await threads.run(lambda: opening.look(self.path))
        return await self._read(migrations.status)

    async def plan(self) -> list[str]:
        return migrations.plan((await self.schema()).current)

    def sql(self, current: int = 0) -> str:
        return migrations.script(current)

    def roles(self, prefix: str = "treadle") -> None:
        return None  # who may read and write the file is the file system's affair

    # The hot path ----------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return await self._writer().run_bulk(self._insert, jobs, self._deadline, grows=True)

    def insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return self._writer().run_bulk_sync(self._insert, jobs, self._deadline, grows=True)

    def _insert(self, db: sqlite3.Connection, news: News, jobs: Sequence[NewJob]) -> list[Inserted]:
        news.queues.update([new.queue for new in jobs])
        return insert.insert(db, jobs, self._clock.now())

    async def claim(self, pod: str, token: str, wants: Sequence[Want]) -> Claimed:
        def operation(db: sqlite3.Connection, _: News) -> Claimed:
            if not cluster.is_live(db, pod, self._clock):
                return Claimed(())
            return claim.claim(db, pod, token, wants, self._clock.now())

        return await self._write(operation, grows=True, relaxed=True)

    async def recover(self, pod: str, token: str) -> Sequence[Job]:
        return await self._read(lambda db: claim.recover(db, pod, token, self._clock.now()))

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        return await self._writer().run_bulk(self._apply, changes, self._deadline)

    def _apply(self, db: sqlite3.Connection, news: News, changes: Sequence[Change | QueueChange]) -> list[Applied]:
        return apply.apply(db, changes, self._clock, news)

    # The cluster -----------------------------------------------------------------------------------------------------

    async def register(self, card: PodCard) -> None:
        # The lock first: a pod whose row is there without it could not be told from one that died.
        known = await self.pods()
        await threads.run(lambda: self._pods.take(card.id))
        await threads.run(lambda: self._pods.sweep([card.id, *(pod.card.id for pod in known)]))
        if self._has_ballast:
            self._ballast.take()
        await self._write(lambda db, news: cluster.register(db, card, self._clock, news))

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
        return await self._write(
            lambda db, _: cluster.beat(db, pod, lease, runs, self._clock, renew=renew, stats=stats, stacks=stacks),
            urgent=True,
            relaxed=True,
        )

    async def sign_off(self, pod: str) -> None:
        await self._write(lambda db, news: cluster.sign_off(db, pod, self._clock, news))
        self._pods.drop(pod)

    async def lead(self, pod: str, ttl: float) -> int | None:
        return await self._write(lambda db, _: cluster.lead(db, pod, ttl, self._clock), relaxed=True)

    async def step_down(self, pod: str) -> None:
        await self._write(lambda db, _: cluster.step_down(db, pod))

    async def abandoned(self, limit: int, overdue: float) -> Sequence[Abandoned]:
        def look(db: sqlite3.Connection) -> tuple[list[str], bool, list[Abandoned]]:
            dead = [pod for pod in cluster.candidates(db, self._clock) if self._pods.is_dead(pod)]
            forgettable = cluster.is_anything_to_forget(db, self._clock)
            return dead, forgettable, [] if dead else cluster.abandoned(db, limit, overdue, self._clock)

        dead, forgettable, found = await self._read(look)
        if forgettable:
            await self._write(lambda db, _: cluster.forget(db, self._clock))
        if dead:
            await self._write(lambda db, _: cluster.declare_lost(db, dead))
            await threads.run(lambda: self._pods.bury(dead))
            found = await self._read(lambda db: cluster.abandoned(db, limit, overdue, self._clock))
        return found

    # Wakes ---------------------------------------------------------------------------------------------------------

    @property
    def signals_work(self) -> bool:
        return True  # by bells, or by the counter that every commit moves

    async def wake(self, queues: Iterable[str]) -> None:
        self._check()
        names = frozenset(queues)
        self._signals.wake(Wake(queues=names))
        self._signals.ring_now(names)

    def listen(self, on_wake: Callable[[Wake], None]) -> Callable[[], None]:
        return self._signals.listen(on_wake)

    # Reads -----------------------------------------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> Sequence[Job]:
        return await self._read(lambda db: find.get(db, ids, self._clock))

    async def find(self, query: Query) -> Page:
        return await self._read(lambda db: find.find(db, query, self._clock))

    async def time(self) -> float:
        return self._clock.now()

    async def count(self, filter: Filter, cap: int = 10_000) -> Mapping[State, int]:
        return await self._read(lambda db: tally.count(db, filter, cap, self._clock))

    async def queues(self) -> Sequence[QueueStats]:
        return await self._read(lambda db: tally.queues(db, self._clock, self._depths))

    async def pods(self) -> Sequence[Pod]:
        return await self._read(lambda db: cluster.pods(db, self._clock))

    # Upkeep ----------------------------------------------------------------------------------------------------------

    async def facts(self) -> Sequence[Fact]:
        return await self._read(lambda db: facts.facts(db, self.path, self._synchronous))

    async def backup(self, path: str) -> None:
        self._check()
        await threads.run(lambda: backup.backup(self.path, path))

    def borrow(self, connection: object) -> Borrowed:
        self._check()
        return borrow.borrow(connection, self.path, self._clock)

    def borrow_async(self, connection: object) -> BorrowedAsync:
        return AtOnce(self.borrow(connection))

    def transact(self, connection: object) -> AbstractContextManager[sqlite3.Connection]:
        self._check()
        return transact.transact(connection, self.path, self._deadline)

    @asynccontextmanager
    async def transact_async(self, connection: object) -> AsyncGenerator[sqlite3.Connection]:
        self._check()
        async with transact.transact_async(connection, self.path, self._deadline) as own:
            yield own

    # On their way ----------------------------------------------------------------------------------------------------

    def _check(self) -> Opened:
        if self._opened is None:
            raise StorageUnavailable(f"the storage on {self.path} is not open")
        if self._opened.writer is not None:
            self._opened.writer.check()
        return self._opened

    def _writer(self) -> Writer:
        writer = self._check().writer
        if writer is None:
            raise ReadOnly(f"{self.path} is opened for reading only")
        return writer

    async def blockers(self) -> Sequence[Blocker]:
        # Neither the writer nor a reader is asked: both may be what stands still.
        return await threads.run(lambda: blockers.blockers(self.path))

    async def is_writable(self) -> bool:
        return self._check().writer is not None

    async def _write(
        self, operation: Operation[T], *, urgent: bool = False, grows: bool = False, relaxed: bool = False
    ) -> T:
        return await self._writer().run(operation, self._deadline, urgent=urgent, grows=grows, relaxed=relaxed)

    async def _read(self, read: Callable[[sqlite3.Connection], T]) -> T:
        return await self._check().readers.run(read, self._deadline)
