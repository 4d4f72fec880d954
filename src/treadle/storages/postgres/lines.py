"""Lines: the connections of one event loop, and how calls share them.

Connections belong to event loops, and a storage is used from several: the pod's, the Heart's, that of `enqueue_sync`.
Each loop has lines of its own, opened when first used, and each line is one connection:

* `write`: enqueues and finishes, many callers to a statement (see `Batcher`), and the word of who leads;
* `claim`: claims alone, beside the writes, because their commits do not wait for the disk;
* aside:   everything else: what may have to wait for somebody's lock (unique keys, operators' Changes), and what reads.
  One line as a rule, and three at most (see `Aside`); what waits for locks leaves the last one to the readers. They are
  closed when nobody has needed them for a while.

So a pod has two for its jobs, the Heart's loop has one that nobody else can be in the way of, and the thread of the
listener has one: four, however many slots. One that is busy or leads has a fifth, and seven is the most.

When something goes wrong
-------------------------
Every call is bounded as a whole: waiting for the line, connecting, the statements, the commit. A connection that met
its deadline, was cancelled in the middle or lost its protocol is closed, never used again. A call whose connection was
lost is sent again by itself for half of its time, because every verb but the claim may be repeated; the claim's caller
asks `recover`. Reconnects wait a little longer each time, and never two lines equally long.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from ...core.errors import ReadOnly, StorageTimeout, StorageUnavailable
from . import connect
from .connect import Again, Connection, Held, Lost, StandsBy, Target
from .sql import Schema
from .talk import COPY, BadValue, Taken, Talk, only_reading

T = TypeVar("T")
Item = TypeVar("Item")
Answer = TypeVar("Answer")

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0
A_MOMENT: Final = 0.25
MOST_TRIES: Final = 6
ANSWERED: Final = ("select", "explain")


async def carry(connection: Connection, talk: Talk[T], schema: Schema) -> T:
    """Hold a talk over a connection of our own."""
    try:
        text, parameters = next(talk)
        while True:
            try:
                if text is COPY:
                    table, columns, pieces = parameters
                    await connection.copy_to_table(
                        table, schema_name=schema.name, columns=columns, source=pieces, format="binary"
                    )
                    rows: list[Any] = []
                elif parameters or text.lstrip().startswith(ANSWERED):
                    rows = await connection.fetch(schema(text), *parameters)
                else:
                    await connection.execute(schema(text))
                    rows = []
            except Exception as error:
                told = connect.explained(error)
                if isinstance(told, (BadValue, Taken)):
                    text, parameters = talk.throw(told)
                    continue
                raise told from error
            text, parameters = talk.send(rows)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    finally:
        talk.close()


class Line:
    """One connection, one call at a time. With `keep`, it is closed when it was not used for so long."""

    def __init__(self, target: Target, schema: Schema, deadline: float, keep: float | None = None) -> None:
        self._target = target
        self._schema = schema
        self._deadline = deadline
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._pause = 0.0
        self._closed = False
        self.callers = 0  # how many use it or wait for it
        self._keep = keep
        self._used = 0.0
        self._look: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    async def run(self, make: Callable[[], Talk[T]], *, repeat: bool = True) -> T:
        """Hold a talk, within the deadline. `make` begins it anew if it must be repeated."""
        begun = time.monotonic()
        trouble: list[Lost] = []
        self.callers += 1
        try:
            async with asyncio.timeout(self._deadline), self._lock:
                return await self._run(make, begun + self._deadline / 2 if repeat else begun, trouble)
        except TimeoutError:
            if trouble and not trouble[-1].passing:
                raise trouble[-1] from None  # the last that was heard: it will not pass, however slow the next try was
            reason = f" ({trouble[-1]})" if trouble else ""
            raise StorageTimeout(f"PostgreSQL did not answer within {self._deadline:g} s{reason}") from None
        except Taken as error:
            raise Held(str(error)) from None
        finally:
            self.callers -= 1
            if self._keep is not None:
                self._used = time.monotonic()
                self._look = self._look or asyncio.get_running_loop().call_later(self._keep, self._rest_if_idle)

    @property
    def busy(self) -> bool:
        return self._lock.locked()

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def _rest_if_idle(self) -> None:
        """Close the connection if nobody has used it meanwhile; the next call opens another."""
        self._look = None
        if self._keep is None or self._connection is None or self._closed:
            return
        loop = asyncio.get_running_loop()
        left = self._keep if self._lock.locked() else self._used + self._keep - time.monotonic()
        if left > 0:
            self._look = loop.call_later(left, self._rest_if_idle)
            return
        connection, self._connection = self._connection, None
        self._closing = loop.create_task(connect.close(connection))

    async def _run(self, make: Callable[[], Talk[T]], until: float, trouble: list[Lost]) -> T:
        tries = 0
        while True:
            try:
                connection = await self._connected()
                bare = self._target.read_only is not True or not self._target.pooled
                answer = await carry(connection, make() if bare else only_reading(make()), self._schema)
                self._pause = 0.0
                return answer
            except StandsBy as error:
                self._drop()
                if self._target.read_only:
                    raise ReadOnly("this storage can only be read: it is opened so, or a standby") from error
                trouble.append(error)
                if time.monotonic() >= until:
                    raise
            except Lost as error:
                self._drop()
                trouble.append(error)
                if time.monotonic() >= until:
                    raise
            except Again as error:
                tries += 1
                await self._roll_back()
                if tries >= MOST_TRIES:
                    raise StorageUnavailable(f"gave up after {tries} tries: {error}") from error
            except (BadValue, Taken, StorageUnavailable) as error:
                if isinstance(error, StorageTimeout):
                    self._drop()
                else:
                    await self._roll_back()
                raise
            except BaseException:
                self._drop()
                raise
            await self._rest()

    async def _connected(self) -> Connection:
        if self._closed:
            raise StorageUnavailable("the storage was closed")
        if self._connection is None or self._connection.is_closed():
            self._connection = None
            self._connection = await self._target.connect(self._deadline)
        return self._connection

    async def _roll_back(self) -> None:
        if self._connection is not None and self._connection.is_in_transaction():
            try:
                await self._connection.execute("rollback")
            except Exception:
                self._drop()

    async def _rest(self) -> None:
        self._pause = min(LONGEST_PAUSE, self._pause * 2 or FIRST_PAUSE)
        await asyncio.sleep(self._pause * random.random())  # noqa: S311

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    async def close(self) -> None:
        """On its own loop: answer the call under way first."""
        self._closed = True
        if self._look is not None:
            self._look.cancel()
        if self._closing is not None:
            await asyncio.wait([self._closing])
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                await connect.close(connection)

    def abandon(self) -> None:
        """From anywhere, when its loop has ended."""
        self._closed = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connect.drop(connection)


class Aside:
    """A few lines for calls of which there are seldom two at once: a call takes one that is open and free, and opens
    another only if those are busy for longer than a moment. `freed` is shared by all who share the lines."""

    def __init__(self, lines: Sequence[Line], freed: asyncio.Event) -> None:
        self._lines = lines
        self._freed = freed

    async def run(self, make: Callable[[], Talk[T]], *, repeat: bool = True) -> T:
        line = await self._free()
        try:
            return await line.run(make, repeat=repeat)
        finally:
            self._freed.set()

    async def _free(self) -> Line:
        until = time.monotonic() + A_MOMENT
        while any(line.is_open or line.busy for line in self._lines):
            found = next((line for line in self._lines if line.is_open and not line.busy), None)
            if found is not None:
                return found
            left = until - time.monotonic()
            if left <= 0:
                break
            self._freed.clear()
            try:
                async with asyncio.timeout(left):
                    await self._freed.wait()
            except TimeoutError:
                break
        return min(self._lines, key=lambda line: line.callers)


class _Waiting(Generic[Item, Answer]):
    __slots__ = ("future", "items")

    def __init__(self, items: Sequence[Item], future: asyncio.Future[list[Answer]]) -> None:
        self.items = items
        self.future = future


class Batcher(Generic[Item, Answer]):
    """Lets concurrent callers share a statement and its commit, without a timer: who finds the line idle is sent at
    once, and who comes while a batch is under way rides with the next. One bad caller does not spoil it for the
    others: a batch that is refused is sent again caller by caller."""

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[list[Answer]]],
        deadline: float,
        most: int = 1_000,
        name: Callable[[Item], object] | None = None,
    ) -> None:
        self._send = send
        self._deadline = deadline
        self._most = most
        self._name = name  # items of one name never share a batch
        self._waiting: deque[_Waiting[Item, Answer]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._busy = False

    async def submit(self, items: Sequence[Item]) -> list[Answer]:
        if not self._busy:
            return await self._lead(items)
        loop = asyncio.get_running_loop()
        waiting: _Waiting[Item, Answer] = _Waiting(items, loop.create_future())
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(self._deadline):
                return await waiting.future
        except TimeoutError:
            raise StorageTimeout(f"PostgreSQL did not answer within {self._deadline:g} s") from None

    async def idle(self) -> None:
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _lead(self, items: Sequence[Item]) -> list[Answer]:
        """Send for oneself, without the price of a task; whoever has come meanwhile is served by one."""
        self._busy = True
        try:
            return await self._send(list(items))
        finally:
            if self._waiting:
                self._worker = asyncio.get_running_loop().create_task(self._work())
            else:
                self._busy = False

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._serve(self._group())
        finally:
            self._worker = None
            self._busy = False

    def _group(self) -> list[_Waiting[Item, Answer]]:
        group: list[_Waiting[Item, Answer]] = []
        size = 0
        names: set[object] = set()
        while self._waiting:
            following = self._waiting[0]
            if following.future.done():  # its caller has given up
                self._waiting.popleft()
                continue
            if group and size + len(following.items) > self._most:
                break
            if self._name is not None:
                own = {self._name(item) for item in following.items}
                if group and not names.isdisjoint(own):
                    break
                names |= own
            group.append(self._waiting.popleft())
            size += len(following.items)
        return group

    async def _serve(self, group: list[_Waiting[Item, Answer]]) -> None:
        if not group:
            return
        try:
            if len(group) == 1:
                answers = await self._send(list(group[0].items))
            else:
                answers = await self._send([item for waiting in group for item in waiting.items])
        except (BadValue, Held) as error:
            if len(group) == 1:
                _fail(group, error)
                return
            for waiting in group:
                await self._serve([waiting])
        except asyncio.CancelledError:
            _fail(group, StorageUnavailable("the event loop was ended in the middle of the call"))
            raise
        except Exception as error:
            _fail(group, error)
        else:
            at = 0
            for waiting in group:
                if not waiting.future.done():
                    waiting.future.set_result(answers[at : at + len(waiting.items)])
                at += len(waiting.items)


def _fail(group: list[_Waiting[Any, Any]], error: BaseException) -> None:
    for waiting in group:
        if not waiting.future.done():
            waiting.future.set_exception(error)
