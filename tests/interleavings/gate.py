"""Two storages whose statements stop at a gate, and a search through all orders in which they can pass it.

Between two statements of one side the other may do anything. What takes no part in that (savepoints, settings of the
transaction, the clock) passes with the statement that follows. A statement that is a transaction by itself is cut in
two, because the server too has an instant between carrying it out and committing it: another session then waits for its
locks, or passes over them.

A side whose statement waits for the other's lock is found by `pg_blocking_pids`, and the other goes on. If both wait,
that is a deadlock. A lock of anybody else (a vacuum, another test) is waited for.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from treadle.storages.postgres.connect import Target

A_MOMENT: Final = 0.004
PATIENCE: Final = 20.0
_ASIDE: Final = re.compile(
    r"(begin|rollback.*|savepoint .*|release savepoint .*|select set_config.*|"
    r"select date_part\('epoch', coalesce\(to_timestamp\(\$1::float8\), \w+\(\)\)\))\s*",
    re.IGNORECASE | re.DOTALL,
)


class Deadlock(AssertionError):
    """Both sides wait for each other, or the server has ended one of them for it."""


class Gate:
    """Where one side's statements stop. `closed` only while a case runs."""

    def __init__(self) -> None:
        self.closed = False
        self.task: asyncio.Task[Any] | None = None
        self.pid = 0
        self.passed: list[str] = []
        self.errors: list[str] = []
        self._before: str | None = None  # the statement that stops here
        self._open = asyncio.Event()
        self._moved = asyncio.Event()

    async def stop(self, pid: int, text: str) -> None:
        if not self.closed:
            return
        self.pid = pid
        self._before = text
        self._moved.set()
        await self._open.wait()
        self._open.clear()
        self.passed.append(" ".join(text.split())[:60])

    def start(self, verb: Awaitable[Any]) -> None:
        self.closed = True
        self.passed, self.errors = [], []
        self._before = None
        self._open.clear()
        self._moved.clear()
        self.task = asyncio.ensure_future(verb)
        self.task.add_done_callback(lambda _: self._moved.set())

    @property
    def over(self) -> bool:
        return self.task is not None and self.task.done()

    @property
    def stands(self) -> bool:
        """At the gate, to be let through."""
        return self._before is not None and not self.over

    def let_through(self) -> None:
        self._before = None
        self._moved.clear()
        self._open.set()

    async def settle(self, is_blocked: Callable[[int], Awaitable[bool]]) -> bool:
        """Wait until this side stands, is over, or waits for a lock; True: it waits."""
        async with asyncio.timeout(PATIENCE):
            while not (self.stands or self.over):
                try:
                    async with asyncio.timeout(A_MOMENT):
                        await self._moved.wait()
                except TimeoutError:
                    if not (self.stands or self.over) and await is_blocked(self.pid):
                        return True
        return False


class GatedConnection:
    """asyncpg's connection, with a gate before what matters to others."""

    def __init__(self, connection: Any, gate: Gate) -> None:
        self._connection = connection
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        return await self._pass(query, lambda: self._connection.fetch(query, *args))

    async def execute(self, query: str) -> str:
        return await self._pass(query, lambda: self._connection.execute(query))

    async def copy_to_table(self, table_name: str, **options: Any) -> str:
        return await self._pass(f"copy {table_name}", lambda: self._connection.copy_to_table(table_name, **options))

    async def _pass(self, text: str, send: Callable[[], Awaitable[Any]]) -> Any:
        if not self._gate.closed or _ASIDE.fullmatch(text):
            return await send()
        pid = self._connection.get_server_pid()
        await self._gate.stop(pid, text)
        alone = not self._connection.is_in_transaction()
        try:
            if alone:
                await self._connection.execute("begin")
            answer = await send()
        except Exception as error:
            self._gate.errors.append(str(getattr(error, "sqlstate", type(error).__name__)))
            if alone:
                await self._connection.execute("rollback")
            raise
        if alone:
            await self._gate.stop(pid, "commit of it")
            await self._connection.execute("commit")
        return answer


class GatedTarget(Target):
    """Connects through a gate."""

    def __init__(self, url: str, gate: Gate) -> None:
        super().__init__(url, "treadle interleavings")
        self._gate = gate

    async def connect(self, deadline: float) -> Any:
        return GatedConnection(await super().connect(deadline), self._gate)


class Ran:
    """One order that was tried: who went at each step where both could, and what came of it."""

    def __init__(self) -> None:
        self.choices: list[int] = []
        self.enabled: list[tuple[int, ...]] = []
        self.answers: list[Any] = []
        self.told: list[str] = []
        self.waits = 0


async def run(
    gates: Sequence[Gate], verbs: Sequence[Awaitable[Any]], prefix: Sequence[int], is_blocked: Callable[[int], Any]
) -> Ran:
    """Let two verbs go, by the given choices first and then by going on with the side that went last."""
    ran = Ran()
    waiting = [False, False]
    last = prefix[0] if prefix else 0
    for gate, verb in zip(gates, verbs, strict=True):
        gate.start(verb)
    try:
        while True:
            for side, gate in enumerate(gates):
                was = waiting[side]
                waiting[side] = await gate.settle(is_blocked)
                ran.waits += waiting[side] and not was
            able = tuple(side for side, gate in enumerate(gates) if gate.stands and not waiting[side])
            if not able:
                if all(gate.over for gate in gates):
                    break
                raise Deadlock(f"both sides wait: {ran.told}")
            step = len(ran.choices)
            side = prefix[step] if step < len(prefix) else (last if last in able else able[0])
            ran.choices.append(side)
            ran.enabled.append(able)
            gates[side].let_through()
            last = side
            waiting[side] = await gates[side].settle(is_blocked)
            ran.waits += waiting[side]
            ran.told.append(f"{'LR'[side]}: {gates[side].passed[-1]}")
    finally:
        for gate in gates:
            gate.closed = False
            if gate.task is not None and not gate.task.done():
                gate.let_through()
        ran.answers = list(await asyncio.gather(*(gate.task for gate in gates if gate.task), return_exceptions=True))
    if any("40P01" in gate.errors for gate in gates):
        raise Deadlock(f"the server has ended one side: {ran.told}")
    return ran


def following(ran: Ran, since: int, most_switches: int | None) -> Iterator[list[int]]:
    """The orders to try after this one: each of its choices from `since` on made otherwise. `most_switches` bounds how
    often a side that could go on is made to wait; None: no bound."""
    for step in range(since, len(ran.choices)):
        for other in ran.enabled[step]:
            if other == ran.choices[step]:
                continue
            order = [*ran.choices[:step], other]
            if most_switches is None or _switches(order, ran.enabled) <= most_switches:
                yield order


def _switches(order: Sequence[int], enabled: Sequence[tuple[int, ...]]) -> int:
    pairs = zip(order, order[1:], enabled[1:], strict=False)
    return sum(one != other and one in able for one, other, able in pairs)
