"""The writer: one thread, one connection, and every write of this process goes through them.

The rules
---------
* A caller hands over an operation (a function of the connection) and a deadline. It is told the operation's answer
  after the commit, or why there is none. An operation whose deadline passed before it began is not run.
* Whatever is queued when the thread looks becomes one *group*: one BEGIN IMMEDIATE, all operations, one COMMIT, one
  fsync. While a group commits, the next one fills up. There is no timer: an operation that finds the writer idle is
  served at once, and a hundred that come together share one fsync.
* Beats have a lane of their own and go first: a full queue must not look like a dead pod.

Who waits for whom
------------------
Two locks stand before a write, and they are taken in this order:

1. our flock on `<database>-treadle/lock`, among Treadle's own writers, for fairness (`locks.WriteLock`);
2. SQLite's write lock, which BEGIN IMMEDIATE takes, and which anybody may hold: a user's transaction, a shell.

Neither is ever waited for inside the kernel or inside SQLite (`busy_timeout` is 0). If the flock is not to be had, or
if it is but SQLite's lock is not, the flock is let go, and both are tried again after a short, jittered pause, until
the callers' deadlines pass. Otherwise one open transaction in one process would make every process queue up behind a
lock whose holder itself waits. Callers that arrive meanwhile join the group.

Other processes on the same file
--------------------------------
After a commit the flock is released, and if another process was refused recently, this one lets it go first
(`give_way`); else the process that has just written would always be the first to lock again. Checkpoints are made here
too, while the flock is held and no transaction is open, and nowhere else: SQLite before 3.51.3 can corrupt a file when
a checkpoint and a commit of two connections meet. Answers are given before a checkpoint, not after it.

When an operation fails
-----------------------
The group is rolled back and its operations are tried again one by one, each in a transaction of its own: only the bad
one fails. Nothing is ever run after an error without knowing whether the transaction still stands, because SQLite
itself rolls back the whole of it on some errors (SQLITE_FULL is one), and the next statement would commit by itself.

* No room on the disk: the ballast is thrown overboard. While the disk stays full, operations that make the file grow
  (insert, claim) are refused, so that the room there is serves to record finishes.
* A failed fsync, a damaged file, a file that was deleted or replaced: the writer refuses everything from then on.
  After a failed fsync the kernel may have dropped the pages and call the next one good; what was answered before stays
  true, and nothing that is uncertain is ever called written.
* A lost answer (a deadline met while COMMIT was under way): every operation may be sent again, by the port's contract.

What it does not do: it knows nothing of jobs, decides nothing, and never reads for its own sake.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar

from ...core.errors import StorageTimeout, StorageUnavailable
from . import connect
from .calls import Call, Wait, deliver
from .checkpoints import Checkpoints
from .files import BALLAST, Ballast, Identity
from .locks import WriteLock
from .news import News

T = TypeVar("T")
Item = TypeVar("Item")
Operation = Callable[[sqlite3.Connection, News], T]
BulkOperation = Callable[[sqlite3.Connection, News, Sequence[Item]], list[T]]

on_step: Callable[[str], None] | None = None
"""Called at the steps of a group, for tests that kill the process there."""

_FULL_SYNC: Final = 2
_MOST_CALLS: Final = 512
_TICK: Final = 60.0
_IDLE: Final = 1.0
_SHORTEST_PAUSE: Final = 0.0002
_LONGEST_PAUSE: Final = 0.02
_FULL_CHECK: Final = 1.0
_log: Final = logging.getLogger("treadle.sqlite")


class Told(Protocol):
    """Who hears of what was committed."""

    def tell(self, news: News) -> None:
        """At once, inside this process."""
        ...

    def ring(self, news: News | None) -> float | None:
        """In other processes. The answer is in how many seconds to call again, because some were told too recently."""
        ...


class Writer:
    def __init__(
        self, path: str, db: sqlite3.Connection, lock: WriteLock, identity: Identity, ballast: Ballast, told: Told
    ) -> None:
        self._path = path
        self._db = db
        self._lock = lock
        self._identity = identity
        self._ballast = ballast
        self._told = told
        self._checkpoints = Checkpoints(path, db)
        self._durable = db.execute("pragma synchronous").fetchone()[0] >= _FULL_SYNC
        self._syncs = self._durable
        self._pid = os.getpid()
        self._guard = threading.Lock()
        self._mutex = threading.Condition(self._guard)
        self._urgent: deque[Call[Any]] = deque()
        self._queue: deque[Call[Any]] = deque()
        self._closing = False
        self._broken: str | None = None  # why nothing is written any more
        self._full_until_checked: float | None = None  # the disk is full; look again at this instant
        self._ring_again: float | None = None
        self._ticked = time.monotonic()
        self.commits = 0
        self._thread = threading.Thread(target=self._work, name="treadle-sqlite-writer", daemon=True)
        self._thread.start()

    # Callers' side ---------------------------------------------------------------------------------------------------

    async def run(
        self,
        operation: Operation[T],
        patience: float,
        *,
        urgent: bool = False,
        grows: bool = False,
        relaxed: bool = False,
    ) -> T:
        """The operation's answer, after its commit; StorageTimeout after `patience` seconds."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        call = Call(operation, time.monotonic() + patience, future, loop, grows=grows, relaxed=relaxed)
        return await self._answer(call, future, loop, patience, urgent)

    async def run_bulk(
        self, operation: BulkOperation[Item, T], items: Sequence[Item], patience: float, *, grows: bool = False
    ) -> list[T]:
        """An answer for each item. Items of several callers may reach the operation together, in their order."""
        if not items:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[T]] = loop.create_future()
        call = Call(operation, time.monotonic() + patience, future, loop, items=items, grows=grows)
        return await self._answer(call, future, loop, patience, urgent=False)

    async def _answer(
        self, call: Call[T], future: asyncio.Future[T], loop: asyncio.AbstractEventLoop, patience: float, urgent: bool
    ) -> T:
        self._submit(call, urgent)
        # The writer keeps the deadline itself, and says more; this is for a thread that hangs in the disk.
        timer = loop.call_later(patience + 0.1, self._give_up, call)
        try:
            return await future
        finally:
            timer.cancel()

    def run_bulk_sync(
        self, operation: BulkOperation[Item, T], items: Sequence[Item], patience: float, *, grows: bool = False
    ) -> list[T]:
        """The same for a thread without an event loop."""
        if not items:
            return []
        answer: Wait[list[T]] = Wait()
        self._submit(Call(operation, time.monotonic() + patience, answer, None, items=items, grows=grows), urgent=False)
        try:
            return answer.result(patience + 0.1)
        except TimeoutError:
            raise StorageTimeout(self._hanging()) from None

    def stop(self, patience: float) -> bool:
        """End the thread; what is queued is answered first. False if it hangs in the disk and must be left alone."""
        if os.getpid() == self._pid:
            with self._mutex:
                self._closing = True
                self._mutex.notify()
            self._thread.join(patience)
        return not self._thread.is_alive()

    def check(self) -> None:
        """Refuse a use that cannot go well: after a fork, after the end, or of a file that is no longer there."""
        if os.getpid() != self._pid:
            raise StorageUnavailable(
                f"this storage was opened by process {self._pid} and is used in process {os.getpid()}: SQLite does "
                "not survive fork(); open a storage of its own in the child"
            )
        if self._broken is not None:
            raise StorageUnavailable(self._broken)

    def _submit(self, call: Call[Any], urgent: bool) -> None:
        self.check()
        with self._guard:  # not `_mutex`, which is entered by code in Python: see `calls.Wait`
            if self._closing:
                raise StorageUnavailable(f"the storage on {self._path} is closed")
            (self._urgent if urgent else self._queue).append(call)
            self._mutex.notify()

    def _give_up(self, call: Call[Any]) -> None:
        call.error = StorageTimeout(self._hanging())
        call.settle()

    def _hanging(self) -> str:
        return f"the writer of {self._path} did not answer in time; whether the call was carried out is unknown"

    # The thread's side -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            group = self._next_group()
            if group is None:
                return
            try:
                if group:
                    self._serve(group)
                else:
                    self._rest()
                if time.monotonic() - self._ticked >= _TICK:
                    self._tick()
            except Exception:
                _log.exception("the writer of %s goes on after an error of its own", self._path)

    def _next_group(self) -> list[Call[Any]] | None:
        """None at the end, when there can be no other."""
        with self._mutex:
            if not (self._urgent or self._queue or self._closing):
                self._mutex.wait(self._patience())
            group = self._joined([])
            return None if self._closing and not group else group

    def _joined(self, group: list[Call[Any]]) -> list[Call[Any]]:
        """The group, with as many as it has room for of those who came since: the urgent ones before all others."""
        room = _MOST_CALLS - len(group)
        urgent: list[Call[Any]] = []
        others: list[Call[Any]] = []
        for waiting, taken in ((self._urgent, urgent), (self._queue, others)):
            while waiting and len(urgent) + len(others) < room:
                taken.append(waiting.popleft())
        return [*urgent, *group, *others]

    def _patience(self) -> float:
        until_ring = _TICK if self._ring_again is None else self._ring_again - time.monotonic()
        return max(0.0, min(_TICK, until_ring, _IDLE if self._checkpoints.pending else _TICK))

    def _serve(self, group: list[Call[Any]]) -> None:
        group = self._begin(group)
        if not group:
            return
        try:
            step("group.begun")
            self._perform(group)
            step("group.before_commit")
            self._db.execute("commit")
        except BaseException as error:
            self._roll_back()
            self._lock.release()
            self._failed(group, error)
            return
        step("group.after_commit")
        self._committed(group)

    def _perform(self, group: list[Call[Any]]) -> None:
        for operation, alike in itertools.groupby(group, key=_operation):
            calls = list(alike)
            if calls[0].items is None:
                for call in calls:
                    call.answer = operation(self._db, call.news)
                continue
            # One statement for many callers: beside a busy event loop, each costs a struggle for the interpreter.
            items = [item for call in calls for item in call.items or ()]
            answers: Iterator[Any] = iter(operation(self._db, calls[0].news, items))
            for call in calls:
                call.answer = list(itertools.islice(answers, len(call.items or ())))

    def _begin(self, group: list[Call[Any]]) -> list[Call[Any]]:
        """Both locks, for as many of the group as have the patience; those who have not are told."""
        step("group.before_begin")
        pause = _SHORTEST_PAUSE
        in_the_way: str | None = None
        while True:
            try:
                self._identity.check()
            except StorageUnavailable as error:
                self._break(error, group)
            group = self._ready(group, in_the_way)
            if not group:
                return group
            if not self._lock.try_take():
                in_the_way = f"process {self._lock.holder()} holds {self._lock.path}"
            else:
                try:
                    self._be_durable(not all(call.relaxed for call in group))
                    self._db.execute("begin immediate")
                    return group
                except sqlite3.OperationalError as error:
                    self._lock.release()
                    if not connect.is_busy(error):
                        self._failed(group, error)
                        return []
                    in_the_way = (
                        "another connection is writing; a write transaction of this process may still be open: "
                        "pass within=connection, or commit it"
                    )
            time.sleep(random.uniform(pause / 2, pause))  # noqa: S311
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            self._expire(group, in_the_way)
            with self._mutex:
                group = self._joined(group)

    def _be_durable(self, wanted: bool) -> None:
        """Whether the next commit waits for the disk. One of nothing but claims and beats need not: what power loss
        takes of them is taken from pods that are gone with it, and the next commit that waits brings them along."""
        if self._durable and wanted != self._syncs:
            self._db.execute(f"pragma synchronous = {'full' if wanted else 'normal'}")
            self._syncs = wanted

    def _ready(self, group: list[Call[Any]], in_the_way: str | None = None) -> list[Call[Any]]:
        """Those that are still wanted and may be run now; the others are told why not."""
        now = time.monotonic()
        if self._full_until_checked is not None and now >= self._full_until_checked:
            self._full_until_checked = None if self._ballast.free() > 2 * BALLAST else now + _FULL_CHECK
        ready: list[Call[Any]] = []
        refused: list[Call[Any]] = []
        for call in group:
            if call.future.done():
                continue  # cancelled, or given up
            if self._broken is not None:
                call.error = StorageUnavailable(self._broken)
            elif call.deadline <= now:
                call.error = self._too_late(in_the_way)
            elif call.grows and self._full_until_checked is not None:
                call.error = StorageUnavailable(f"the disk of {self._path} is full: only finishes are recorded")
            (ready if call.error is None else refused).append(call)
        deliver(refused)
        return ready

    def _too_late(self, in_the_way: str | None) -> StorageTimeout:
        # Whether a call is found late before or after the pause is chance: whoever waited is told what it waited for.
        if in_the_way is None:
            return StorageTimeout(f"other writes to {self._path} took until after the deadline")
        return StorageTimeout(f"no turn to write to {self._path} before the deadline: {in_the_way}")

    def _expire(self, group: list[Call[Any]], in_the_way: str) -> None:
        now = time.monotonic()
        late = [call for call in group if call.deadline <= now]
        for call in late:
            call.error = self._too_late(in_the_way)
        if late:
            deliver(late)
            group[:] = [call for call in group if call.error is None]

    def _committed(self, group: list[Call[Any]]) -> None:
        self.commits += 1
        news = group[0].news
        for call in group[1:]:
            news.add(call.news)
        if self._checkpoints.is_due():
            deliver(group)
            self._checkpoint()
        else:
            self._lock.release()
            deliver(group)
        self._told.tell(news)
        self._ring(news)
        self._lock.give_way()

    def _checkpoint(self, *, idle: bool = False) -> None:
        """With the file lock held; lets go of it."""
        try:
            self._checkpoints.run(idle=idle)
        except sqlite3.Error as error:
            self._break(connect.explained(error, self._path), [])
        finally:
            self._lock.release()

    def _failed(self, group: list[Call[Any]], error: BaseException) -> None:
        if connect.is_fatal(error):
            self._break(connect.explained(error, self._path), group)
            return
        room_made = connect.is_full(error) and self._make_room()
        if len(group) > 1 or room_made:
            for call in group:
                call.news.clear()
                self._serve([call])
            return
        group[0].error = connect.explained(error, self._path)
        deliver(group)

    def _make_room(self) -> bool:
        """The disk is full: throw the ballast overboard, and keep what room that makes for finishes."""
        if self._ballast.free() > 2 * BALLAST or not self._ballast.drop():
            return False  # a limit inside the database; or nothing to be gained
        self._full_until_checked = time.monotonic() + _FULL_CHECK
        _log.error("the disk of %s is full: the ballast is dropped, and only finishes are recorded", self._path)
        return True

    def _break(self, error: BaseException, group: list[Call[Any]]) -> None:
        if self._broken is None:
            self._broken = str(error)
            _log.critical("%s", error)
        for call in group:
            call.error = StorageUnavailable(self._broken)
        deliver(group)

    def _roll_back(self) -> None:
        # If it is no longer in a transaction, SQLite has rolled back by itself.
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("rollback")
        if self._db.in_transaction:
            self._break(StorageUnavailable(f"a transaction on {self._path} can neither be committed nor undone"), [])

    def _ring(self, news: News | None) -> None:
        rest = self._told.ring(news)
        self._ring_again = None if rest is None else time.monotonic() + rest

    def _rest(self) -> None:
        """Upkeep while nobody waits."""
        if self._ring_again is not None and time.monotonic() >= self._ring_again:
            self._ring(None)
        if self._checkpoints.pending and self._lock.try_take():
            self._checkpoint(idle=True)

    def _tick(self) -> None:
        """Once a minute, busy or not."""
        self._ticked = time.monotonic()
        try:
            self._identity.check()
        except StorageUnavailable as error:
            self._break(error, [])
        else:
            self._lock.renew()
            self._ballast.keep()


def _operation(call: Call[Any]) -> Callable[..., Any]:
    return call.operation


def step(name: str) -> None:
    """Where a test may stop the process."""
    if on_step is not None:
        on_step(name)
