"""PostgresStorage: the verbs. What each one does is in the file that is named for it; here it is only sent on its way,
on the line that it belongs to."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, TypeVar

from ...core.blocker import Blocker
from ...core.errors import StorageDenied, StorageTimeout, StorageUnavailable
from ...core.filter import Filter
from ...core.job import Change, Job, NewJob, QueueChange, State
from ...core.pod import Pod, PodCard, PodStats
from ...core.queue import QueueStats
from ...ports import (
    Abandoned,
    Applied,
    Beaten,
    Borrowed,
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
from . import (
    apply,
    blockers,
    borrow,
    claim,
    cluster,
    counts,
    facts,
    failures,
    find,
    insert,
    migrations,
    roles,
    sql,
    tally,
    transact,
)
from . import damaged as ending
from .answers import PostgresAnswers
from .borrow import BorrowedAsync, BorrowedConnection, Lender
from .catalog import Catalog
from .claim import Lanes, Question
from .cluster import Time
from .connect import Held, Target
from .copy import Copying
from .deploys import Deploys
from .desk import Desk, Desks
from .history import PostgresHistory
from .limits import PostgresLimits
from .lines import Line
from .mutes import PostgresMutes
from .news import News
from .operating import Operating
from .pods import PostgresPods
from .progress import PostgresProgress
from .roles import Sight
from .schedules import PostgresSchedules
from .sql import Schema
from .talk import BadValue, Talk
from .wakes import Wakes

T = TypeVar("T")

MIGRATION_DEADLINE: Final = 600.0
THOROUGH_EVERY: Final = 600.0
LANES_EVERY: Final = 60.0
SUSPECT_FOR: Final = 60.0
REFUSED_EVERY: Final = 60.0
MOST_TRIES: Final = 20  # of a claim that meets damaged rows: each ends up to 500 of them


class PostgresStorage(
    PostgresLimits,
    PostgresMutes,
    Catalog,
    Deploys,
    PostgresHistory,
    Copying,
    PostgresPods,
    PostgresSchedules,
    Operating,
    PostgresProgress,
    PostgresAnswers,
):
    """Jobs in one schema of a PostgreSQL database (14 or newer). Safe for any number of threads, event loops, processes
    and hosts at once.

    A pod needs four connections, however many slots it has: one to write, one to claim, the Heart's own, and one to
    wake and be woken; a fifth while it is busy or leads, and seven at most.
    `listen_url` is a direct way for the one to wake where `url` leads through a transaction pooler. `clock` is for
    tests: without it, the server's clock decides.
    """

    # Two turns of a hundred cost hardly more than one of two hundred, and drain a quarter more.
    capabilities = Capabilities(durable=True, shared=True, borrows=borrow.KINDS, overlap=100)

    def __init__(
        self,
        url: str,
        *,
        schema: str = "treadle",
        listen_url: str | None = None,
        clock: Clock | None = None,
        call_deadline: float = 10.0,
        readers: int = 2,
        auto_migrate: bool = False,
        read_only: ReadOnlyChoice = False,
    ) -> None:
        self.schema_name: Final = schema
        self._schema = Schema(schema)
        self._clock = clock
        self._deadline = call_deadline
        self._auto_migrate = auto_migrate
        # By this name the server's list of sessions shows it.
        self._target = Target(url, f"treadle {schema}", read_only=read_only)
        self._desks = Desks(self._desk(readers))
        self._signals = Wakes(Target(listen_url or url, f"treadle wake {schema}"), self._schema)
        self._lanes = Lanes()
        self._tally: Final = tally.Tally()
        self._causes = failures.Causes()
        self._ensured: set[tuple[str, int]] = set()
        self._refused: dict[str, float] = {}  # queues that could not be claimed from → when that was last logged
        self._suspects: dict[str, float] = {}  # tokens of claims that were not answered → when
        self._lender = Lender(self._schema, self._time, self._tell, self._new_lanes)
        self._thorough_at = -THOROUGH_EVERY
        self._lanes_at = -LANES_EVERY
        self._life = threading.Lock()
        self._opened = False
        self._sight: Sight = "all"  # until it is looked up

    def _desk(self, readers: int) -> Callable[[], Desk]:
        return lambda: Desk(
            self._target, self._schema, self._deadline, readers, self._now, self._tell, self._signals.how_to_tell
        )

    # Life ------------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        with self._life:
            if self._opened:
                return
            self._opened = True
        self._desks.open()
        try:
            await self._read(migrations.check_server)
            writable = self._target.read_only is False or await self._read(migrations.is_writable)
            if self._auto_migrate and writable and (await self._read(lambda: migrations.look(self._schema))).pending:
                await self.migrate()
            if await self._read(lambda: migrations.check(self._schema)):
                if not writable:
                    raise StorageUnavailable(f"there is no schema {self.schema_name} yet, and nothing can be written")
                await self.migrate()
            self._lender.identity = await self._read(migrations.identity)
            await self._look_up_rights()
        except BaseException:
            await self.close()
            raise
        self._signals.start()

    async def _look_up_rights(self) -> bool:
        """Find out what this login may read, and write statements accordingly. Whether it may write anything."""
        self._sight, may_write = await self._run(lambda: roles.look(self._schema))
        self._schema.read_by(roles.rewriting(self._sight))
        return may_write

    async def close(self) -> None:
        with self._life:
            self._opened = False
        await self._desks.close(self._deadline + 1.0)
        await asyncio.to_thread(self._signals.close)

    async def detach(self) -> None:
        await self._desks.detach()

    async def migrate(self) -> SchemaStatus:
        await self.schema()  # whether it can be reached, and is ours, is told before anything is tried for long
        line = Line(self._target, self._schema, MIGRATION_DEADLINE)
        until = time.monotonic() + MIGRATION_DEADLINE
        try:
            for migration in migrations.known():
                while True:
                    try:
                        await line.run(lambda step=migration: migrations.apply(self._schema, step))  # type: ignore[misc]
                        break
                    except Held as error:  # somebody uses the tables, or migrates too
                        if time.monotonic() > until:
                            raise StorageTimeout(f"migration {migration.name}: {error}") from error
                        await asyncio.sleep(random.uniform(0.1, 1.0))  # noqa: S311
        finally:
            await line.close()
        return await self.schema()

    async def schema(self) -> SchemaStatus:
        if self._opened:
            return await self._read(lambda: migrations.status(self._schema))
        line = Line(self._target, self._schema, self._deadline)
        try:
            await line.run(migrations.check_server)
            return await line.run(lambda: migrations.look(self._schema))
        finally:
            await line.close()

    async def plan(self) -> list[str]:
        return migrations.plan((await self.schema()).current)

    def sql(self, current: int = 0) -> str:
        return migrations.script(self._schema, current)

    def roles(self, prefix: str = "treadle") -> str:
        return self._schema.put_in(sql.roles(Schema(prefix).name))

    # The hot path ----------------------------------------------------------------------------------------------------

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        desk = self._desks.mine()
        if not jobs:
            return []
        if not insert.is_keyed(jobs):
            await self._ensure(desk, self._new_lanes(jobs))
            return await desk.inserts.submit(jobs)
        now = self._now()
        answers = await desk.slow.run(lambda: insert.insert(jobs, now))
        news = News()
        news.due.update([new.queue for new in jobs])
        self._tell(news)
        return answers

    def insert_sync(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        raise NotImplementedError("asyncpg needs an event loop")

    async def _ensure(self, desk: Desk, new: set[tuple[str, int]]) -> None:
        """A queue exists as soon as somebody enqueues to it. Once per process and lane, beside the insert: nobody waits
        for a transaction that happens to be the first to use a queue."""
        if not new:
            return

        try:
            if await desk.slow.run(lambda: insert.ensure(new)):
                self._ensured |= new
        except BadValue:
            pass  # the insert itself will be refused for the same reason

    def _new_lanes(self, jobs: Iterable[NewJob]) -> set[tuple[str, int]]:
        return {(new.queue, new.priority) for new in jobs} - self._ensured

    async def claim(self, pod: str, token: str, wants: Sequence[Want]) -> Claimed:
        desk = self._desks.mine()
        moment = now, steady, boot = self._time()
        wants = [want for want in wants if want.limit > 0 and any(lane.limit > 0 for lane in want.lanes)]
        if not wants:
            return Claimed(())
        names = [want.queue for want in wants]
        tried = 0
        try:
            while True:
                question = Question(wants, self._lanes, sweep=self._lanes.is_sweep_due(time.monotonic()))
                try:
                    found, damaged, tail = await desk.claim.run(
                        lambda asked=question: claim.claim(asked, pod, token, (now, steady, boot)),  # type: ignore[misc]
                        repeat=False,
                    )
                except BadValue:
                    # A row is damaged, and the statement fails as a whole.
                    tried += 1
                    if tried <= MOST_TRIES and await self._end_damaged(
                        lambda news: ending.end_due(names, moment, news)
                    ):
                        continue
                    if len(wants) == 1:
                        raise
                    return await self._claim_apart(pod, token, wants)
                if damaged:
                    await self._end_claimed(damaged, token)
                if tail is None:
                    return Claimed(())
                if tail.lanes is not None:  # somebody has used a new priority
                    self._lanes.note(tail.lanes, names)
                    continue
                if question.sweep:
                    self._lanes.swept(tail.scan, time.monotonic(), len(found), question.lanes)
                self._lanes.claimed(question.keys(found) if self._lanes.slow else (), tail.now)
                return claim.claimed([job for _, job in found], wants, tail.due, len(damaged))
        except BaseException:
            self._suspects[token] = time.monotonic()
            raise

    async def _claim_apart(self, pod: str, token: str, wants: Sequence[Want]) -> Claimed:
        """Claim queue by queue: a row that can neither be claimed nor ended, because a trigger or constraint of
        somebody's own refuses it, holds up its own queue and no other."""
        answers: list[Claimed] = []
        refused: list[tuple[str, BadValue]] = []
        for want in wants:
            try:
                answers.append(await self.claim(pod, token, [want]))
            except BadValue as error:
                refused.append((want.queue, error))
        if not answers:
            raise refused[0][1]
        for queue, why in refused:
            if time.monotonic() - self._refused.get(queue, -REFUSED_EVERY) >= REFUSED_EVERY:
                self._refused[queue] = time.monotonic()
                ending.log.error("queue %s cannot be claimed from: %s", queue, why)
        due = [answer.next_due for answer in answers if answer.next_due is not None]
        jobs = [job for answer in answers for job in answer.jobs]
        return Claimed(jobs, min(due, default=None), any(answer.more for answer in answers))

    async def recover(self, pod: str, token: str) -> Sequence[Job]:
        moment = self._time()
        jobs, damaged = await self._read(lambda: claim.recover(pod, token, moment[0]))
        if damaged:
            await self._end_claimed(damaged, token)
        return jobs

    async def _end_claimed(self, ids: Sequence[str], token: str) -> None:
        moment = self._time()
        await self._end_damaged(lambda news: ending.end_claimed(ids, token, moment, news))

    async def _end_damaged(self, make: Callable[[News], Talk[int]]) -> int:
        """End jobs whose rows are damaged, beside the claim; how many there were."""
        told: list[News] = []

        def begin() -> Talk[int]:
            told[:] = [News()]
            return make(told[0])

        number = await self._desks.mine().slow.run(begin)
        self._tell(told[0])
        return number

    async def apply(self, changes: Sequence[Change | QueueChange]) -> Sequence[Applied]:
        desk = self._desks.mine()
        answers: list[Applied | None] = [None] * len(changes)
        quick, rest = apply.split(changes)
        if quick:
            if following := [new for n in quick for new in _follow_ups(changes[n])]:
                await self._ensure(desk, self._new_lanes(following))
            accepted = await self._apply_quick(desk, [changes[n] for n in quick])  # type: ignore[misc]
            if not rest and None not in accepted:
                return accepted  # type: ignore[return-value]
            for n, answer in zip(quick, accepted, strict=True):
                answers[n] = answer
            left = [n for n in quick if answers[n] is None]
            rest = sorted([*rest, *left]) if left else rest
        if rest:
            slow = await self._apply_slowly(desk, [changes[n] for n in rest])
            for n, answer in zip(rest, slow, strict=True):
                answers[n] = answer
        told = [answer for answer in answers if answer is not None]
        if len(told) < len(answers):
            raise StorageTimeout("another open transaction holds a row that a Change needs; the others are written")
        return told

    async def _apply_quick(self, desk: Desk, changes: Sequence[Change]) -> Sequence[Applied | None]:
        try:
            return await desk.applies.submit(changes)
        except (BadValue, Held):
            return [None] * len(changes)  # one of them is bad, or not to be had: each is looked at by itself

    async def _apply_slowly(self, desk: Desk, changes: Sequence[Change | QueueChange]) -> Sequence[Applied | None]:
        moment = self._time()
        told: list[News] = []

        def make() -> Talk[list[Applied | None]]:
            told[:] = [News()]
            return apply.apply_slowly(changes, moment, told[0])

        answers = await desk.slow.run(make)
        self._tell(told[0])
        return answers

    # The cluster -----------------------------------------------------------------------------------------------------

    async def register(self, card: PodCard) -> None:
        moment = self._time()
        await self._desks.mine().slow.run(lambda: cluster.register(card, moment))
        self._tell_settings()

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
        moment = self._time()
        suspects = self._still_suspect()
        # On the Heart's loop nobody else writes, and this line is never closed for want of use.
        line = self._desks.mine().write

        def make() -> Talk[Beaten]:
            return cluster.beat(pod, lease, runs, moment, renew=renew, suspects=suspects, stats=stats, stacks=stacks)

        try:
            return await line.run(make)
        except BadValue:
            if not await line.run(lambda: cluster.mend(pod, runs)):
                raise
            return await line.run(make)

    def _still_suspect(self) -> list[str]:
        """Claims that were not answered may still be carried out: for a minute, the beat looks for them everywhere."""
        since = time.monotonic() - SUSPECT_FOR
        self._suspects = {token: at for token, at in self._suspects.items() if at > since}
        return list(self._suspects)

    async def sign_off(self, pod: str) -> None:
        now = self._now()
        await self._desks.mine().slow.run(lambda: cluster.sign_off(pod, now))
        self._tell_settings()

    async def lead(self, pod: str, ttl: float) -> int | None:
        moment = self._time()
        # Not aside, where every pod would need a connection for nothing else.
        return await self._desks.mine().write.run(lambda: cluster.lead(pod, ttl, moment))

    async def step_down(self, pod: str) -> None:
        await self._desks.mine().slow.run(lambda: cluster.step_down(pod))

    async def abandoned(self, limit: int, overdue: float) -> Sequence[Abandoned]:
        moment = self._time()
        steady = time.monotonic()
        thorough = steady - self._thorough_at >= THOROUGH_EVERY
        lanes = steady - self._lanes_at >= LANES_EVERY
        found = await self._read(lambda: cluster.abandoned(limit, overdue, moment, thorough=thorough, lanes=lanes))
        self._thorough_at = steady if thorough else self._thorough_at
        self._lanes_at = steady if lanes else self._lanes_at
        return found

    # Wakes ---------------------------------------------------------------------------------------------------------

    @property
    def signals_work(self) -> bool:
        """Whether this process hears of what others write. If not, polling is all there is."""
        return self._signals.working

    async def wake(self, queues: Iterable[str]) -> None:
        names = frozenset(queues)
        self._signals.wake(Wake(queues=names))
        self._signals.ring_any(names)

    def listen(self, on_wake: Callable[[Wake], None]) -> Callable[[], None]:
        return self._signals.listen(on_wake)

    def _tell(self, news: News) -> None:
        self._signals.tell(news)

    # Reads -----------------------------------------------------------------------------------------------------------

    async def get(self, ids: Sequence[str]) -> Sequence[Job]:
        now = self._now()
        return await self._read(lambda: find.get(ids, now))

    async def find(self, query: Query) -> Page:
        finding = find.Finding(query, self._time())
        while finding.page is None:
            await self._read(finding.step)
        return finding.page

    async def time(self) -> float:
        moment = self._time()
        return await self._read(lambda: find.the_time(moment))

    async def count(self, filter: Filter, cap: int = 10_000) -> Mapping[State, int]:
        moment = self._time()
        return await self._read(lambda: counts.count(filter, cap, moment, self._tally))

    async def queues(self) -> Sequence[QueueStats]:
        now = self._now()
        return await self._read(lambda: tally.queues(now, self._tally))

    async def pods(self) -> Sequence[Pod]:
        moment = self._time()
        return await self._read(lambda: cluster.pods(moment))

    # Upkeep ----------------------------------------------------------------------------------------------------------

    async def facts(self) -> Sequence[Fact]:
        return await self._read(
            lambda: facts.facts(self._schema, self._target.pooled is True, self.signals_work, self._sight)
        )

    async def blockers(self) -> Sequence[Blocker]:
        line = Line(self._target, self._schema, blockers.DEADLINE)
        try:
            return await line.run(lambda: blockers.blockers(self.schema_name), repeat=False)
        except (StorageUnavailable, BadValue):
            return ()
        finally:
            await line.close()

    async def is_writable(self) -> bool:
        return await self._read(migrations.is_writable) and await self._look_up_rights()

    async def backup(self, path: str) -> None:
        raise ValueError(f"a PostgreSQL storage is backed up by its own tools: pg_dump --schema={self.schema_name}")

    def borrow(self, connection: object) -> Borrowed:
        return BorrowedConnection(connection, self._lender)

    def borrow_async(self, connection: object) -> BorrowedAsync:
        """As `borrow`, for connections of async libraries: every verb is awaited."""
        return BorrowedAsync(connection, self._lender)

    def transact(self, connection: object) -> AbstractContextManager[Any]:
        return transact.transact(connection)

    def transact_async(self, connection: object) -> AbstractAsyncContextManager[Any]:
        return transact.transact_async(connection, self._target, self._deadline)

    # On their way ----------------------------------------------------------------------------------------------------

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock.now()

    def _time(self) -> Time:
        if self._clock is None:
            return None, None, ""
        return self._clock.now(), self._clock.steady(), self._clock.boot()

    async def _read(self, make: Callable[[], Talk[T]]) -> T:
        try:
            return await self._run(make)
        except StorageDenied:
            before = self._sight
            await self._look_up_rights()
            if self._sight == before:
                raise
            return await self._run(make)

    async def _run(self, make: Callable[[], Talk[T]]) -> T:
        return await self._desks.mine().read().run(make)

    async def _slowly(self, make: Callable[[], Talk[T]]) -> T:
        return await self._desks.mine().slow.run(make)


def _follow_ups(change: Change | QueueChange) -> Sequence[NewJob]:
    return change.follow_ups if isinstance(change, Change) else ()
