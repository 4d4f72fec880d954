"""Borrowing: Treadle's verbs inside a transaction that the caller began on its own connection, and will end.

What is written is there if and only if the caller commits. An enqueue makes no savepoint: many of them in one
transaction would overflow the server's cache of subtransactions, so one that fails (and it is checked before) fails the
caller's transaction, as any statement would. Listeners are woken after the commit where the library says when that is;
elsewhere polling finds the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ...core.errors import StorageTimeout
from ...core.job import Change, Job, NewJob
from ...ports import Applied, Inserted
from . import apply, drivers, find, insert, migrations
from .cluster import Time
from .drivers import Refused
from .news import News
from .sql import Schema
from .talk import Talk

T = TypeVar("T")
KINDS: Final = drivers.KINDS


class Lender:
    """What the borrowed verbs need of the storage."""

    def __init__(
        self,
        schema: Schema,
        time: Callable[[], Time],
        tell: Callable[[News], None],
        new_lanes: Callable[[Iterable[NewJob]], set[tuple[str, int]]],
    ) -> None:
        self.schema = schema
        self.time = time
        self.tell = tell
        self.new_lanes = new_lanes
        self.identity: str | None = None  # when the schema was made: another database has another

    def insert(self, jobs: Sequence[NewJob]) -> Talk[list[Inserted]]:
        yield from self._check()
        new = self.new_lanes(jobs)
        if new and not insert.is_keyed(jobs):
            yield from insert.ensure(new)
        return (yield from insert.insert(jobs, self.time()[0]))

    def apply(self, changes: Sequence[Change], news: News) -> Talk[list[Applied]]:
        yield from self._check()
        answers = yield from apply.apply_slowly(changes, self.time(), news, within=True)
        told = [answer for answer in answers if answer is not None]
        if len(told) < len(answers):
            raise StorageTimeout("another open transaction holds a row that a Change needs")
        return told

    def get(self, ids: Sequence[str]) -> Talk[list[Job]]:
        yield from self._check()
        return (yield from find.get(ids, self.time()[0]))

    def _check(self) -> Talk[None]:
        """Is it this very database, and does it have our tables?"""
        exists = yield "select to_regclass($1::text) is not null", (f'"{self.schema.name}".schema_version',)
        if not exists[0][0]:
            raise Refused(
                f"the connection's database has no Treadle tables in schema {self.schema.name}: "
                "only a connection to the database of the jobs can share a transaction"
            )
        if self.identity is not None and (yield from migrations.identity()) != self.identity:
            raise Refused(
                f"the connection's database has a schema {self.schema.name}, but not the one that the jobs are in: "
                "only a connection to the same database can share a transaction"
            )


class BorrowedConnection:
    """See `ports.Borrowed`. For sync connections."""

    def __init__(self, connection: object, lender: Lender) -> None:
        self._connection, self._on_commit = drivers.unwrap(connection)
        self._lender = lender

    def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        answers = self._carry(self._lender.insert(jobs))
        news = News()
        news.due.update([new.queue for new in jobs])
        self._tell(news)
        return answers

    def apply(self, changes: Sequence[Change]) -> Sequence[Applied]:
        news = News()
        answers = self._carry(self._lender.apply(changes, news))
        self._tell(news)
        return answers

    def get(self, ids: Sequence[str]) -> Sequence[Job]:
        return self._carry(self._lender.get(ids))

    def _carry(self, talk: Talk[T]) -> T:
        return drivers.carry(self._connection, talk, self._lender.schema)

    def _tell(self, news: News) -> None:
        if self._on_commit is not None:
            self._on_commit(lambda: self._lender.tell(news))


class BorrowedAsync:
    """The same for async connections: every verb is awaited."""

    def __init__(self, connection: object, lender: Lender) -> None:
        if not drivers.kind_of(connection):
            raise drivers.refuse(connection, "a connection to PostgreSQL")
        self._given = connection
        self._lender = lender

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        news = News()
        news.due.update([new.queue for new in jobs])
        return await self._carry(self._lender.insert(jobs), news)

    async def apply(self, changes: Sequence[Change]) -> Sequence[Applied]:
        news = News()
        return await self._carry(self._lender.apply(changes, news), news)

    async def get(self, ids: Sequence[str]) -> Sequence[Job]:
        return await self._carry(self._lender.get(ids), None)

    async def _carry(self, talk: Talk[T], news: News | None) -> T:
        connection: Any
        connection, on_commit = await drivers.unwrap_async(self._given)
        answer = await drivers.carry_async(connection, talk, self._lender.schema)
        if news is not None and on_commit is not None:
            on_commit(lambda: self._lender.tell(news))
        return answer
