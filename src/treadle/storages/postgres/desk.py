"""Desk: what one event loop has of a storage. Desks: all of them, and how they are closed from any loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from ...core.errors import StorageUnavailable
from ...core.job import Change, NewJob
from ...ports import Applied, Inserted
from . import apply, bulk, insert
from .connect import Target
from .lines import Aside, Batcher, Line
from .news import News
from .sql import Schema
from .talk import Talk
from .wakes import AT_MOST_EVERY, say

T = TypeVar("T")

# Longer than a leader's rounds are apart, or it would connect anew for each.
KEEP_ASIDE: Final = 10.0


class Desk:
    """The lines of one loop. Everything here is used on that loop only."""

    def __init__(
        self,
        target: Target,
        schema: Schema,
        deadline: float,
        readers: int,
        now: Callable[[], float | None],
        tell: Callable[[News], None],
        how_to_tell: Callable[[str], Literal["itself", "soon", "bell"]],
    ) -> None:
        self._now = now
        self._tell = tell
        self._how_to_tell = how_to_tell
        self._channel = schema.channel
        self._owed: dict[str, float] = {}  # queue → when others must be told of jobs in it
        self._timer: asyncio.TimerHandle | None = None
        self.write: Final = Line(target, schema, deadline)
        self.claim: Final = Line(target, schema, deadline)
        self._aside: Final = [Line(target, schema, deadline, keep=KEEP_ASIDE) for _ in range(1 + readers)]
        freed = asyncio.Event()
        # For what may have to wait for somebody's lock. The last line is not for it: readers need not wait.
        self.slow: Final = Aside(self._aside[:-1], freed)
        self._reading: Final = Aside(self._aside, freed)
        self.inserts: Final[Batcher[NewJob, Inserted]] = Batcher(self._insert, deadline)
        self.applies: Final[Batcher[Change, Applied | None]] = Batcher(self._apply, deadline, name=_id_of)

    def read(self) -> Aside:
        """For what reads."""
        return self._reading

    async def _insert(self, jobs: list[NewJob]) -> list[Inserted]:
        now = self._now()
        how = self._how_to_tell(jobs[0].queue) if len(jobs) == 1 else "bell"
        if how == "itself":
            answers = await self.write.run(lambda: insert.insert_told(jobs[0], now))
            self._owed.pop(jobs[0].queue, None)  # only now: one that failed has told nobody
            return answers
        answers = await self.write.run(lambda: bulk.insert_many(jobs, now))
        if how == "soon":
            self._owe(jobs[0].queue)
            return answers
        news = News()
        news.due.update([new.queue for new in jobs])
        self._tell(news)
        return answers

    def _owe(self, queue: str) -> None:
        """The next lone job tells of this one too; if none comes, somebody must."""
        loop = asyncio.get_running_loop()
        self._owed.setdefault(queue, loop.time() + AT_MOST_EVERY)
        if self._timer is None:
            self._timer = loop.call_later(AT_MOST_EVERY, self._pay)

    def _pay(self) -> None:
        loop = asyncio.get_running_loop()
        news = News()
        news.due.update(queue for queue, at in self._owed.items() if at <= loop.time())
        self._owed = {queue: at for queue, at in self._owed.items() if queue not in news.due}
        self._timer = loop.call_at(min(self._owed.values()), self._pay) if self._owed else None
        if news.due:
            self._tell(news)

    async def _apply(self, changes: list[Change]) -> list[Applied | None]:
        now = self._now()
        told: list[News] = []

        def make() -> Talk[dict[str, Applied]]:
            told[:] = [News()]
            return apply.apply_quick(changes, now, told[0])

        answers = await self.write.run(make)
        self._tell(told[0])
        return [answers.get(change.id) for change in changes]

    def _lines(self) -> list[Line]:
        return [self.write, self.claim, *self._aside]

    async def close(self) -> None:
        await self.inserts.idle()
        await self.applies.idle()
        if self._timer is not None:
            self._timer.cancel()
        if self._owed:
            with contextlib.suppress(Exception):  # pods ask by themselves too
                await self.write.run(lambda: say(self._channel, [*self._owed]), repeat=False)
        for line in self._lines():
            await line.close()

    def abandon(self) -> None:
        for line in self._lines():
            line.abandon()


def _id_of(change: Change) -> str:
    return change.id


class Desks:
    """One desk per loop."""

    def __init__(self, make: Callable[[], Desk]) -> None:
        self._make = make
        self._mutex = threading.Lock()
        self._desks: dict[asyncio.AbstractEventLoop, Desk] = {}
        self._open = False

    def open(self) -> None:
        self._open = True

    def mine(self) -> Desk:
        """The calling loop's."""
        loop = asyncio.get_running_loop()
        found = self._desks.get(loop)
        if found is None:
            with self._mutex:
                if not self._open:
                    raise StorageUnavailable("the storage is not open")
                self._bury()
                found = self._desks[loop] = self._make()
        return found

    def _bury(self) -> None:
        """Loops that ended without a word leave their sockets behind."""
        for loop in [loop for loop in self._desks if loop.is_closed()]:
            self._desks.pop(loop).abandon()

    async def detach(self) -> None:
        desk = self._desks.pop(asyncio.get_running_loop(), None)
        if desk is not None:
            await desk.close()

    async def close(self, patience: float) -> None:
        with self._mutex:
            self._open = False
            desks, self._desks = self._desks, {}
        here = asyncio.get_running_loop()
        for loop, desk in desks.items():
            if loop is here:
                await desk.close()
            elif loop.is_running():
                await _on(loop, desk, patience)
            else:
                desk.abandon()


async def _on(loop: asyncio.AbstractEventLoop, desk: Desk, patience: float) -> None:
    """Close a desk on its own loop, which may end or hang meanwhile."""
    closing: Any = desk.close()
    try:
        future = asyncio.run_coroutine_threadsafe(closing, loop)
    except RuntimeError:
        closing.close()
        desk.abandon()
        return
    with contextlib.suppress(Exception):
        async with asyncio.timeout(patience):
            await asyncio.wrap_future(future)
            return
    desk.abandon()
