"""The stages on which two verbs meet: one on memory, to know what the answer may be, and one on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]
import msgspec

from tests import postgres_server
from treadle.storages.memory.storage import MemoryStorage
from treadle.storages.postgres import PostgresStorage
from treadle.testing.clock import BEGINNING, FakeClock

from . import gate as gates
from .gate import Gate, GatedTarget, Ran
from .verbs import ANSWER, LEFT, RIGHT, SITUATIONS, VERBS, plain

# What two serial runs may differ in by right: places in the order of insertion are not given back.
_NUMBERS: Final = ("seq", "n")


class Result(msgspec.Struct, frozen=True):
    """What the two callers were told, and what is there afterwards."""

    answers: list[Any]
    rows: Any


async def in_turn(storages: Sequence[Any], pair: tuple[str, str], order: Sequence[int]) -> list[Any]:
    answers: list[Any] = [None, None]
    for side in order:
        answers[side] = plain(await VERBS[pair[side]](storages[side], side))
    return answers


# Memory --------------------------------------------------------------------------------------------------------------


async def on_memory(pair: tuple[str, str], situation: str, order: Sequence[int]) -> Result:
    """One verb after the other, in the reference storage. With one side in the order, that one alone."""
    clock = FakeClock()
    storage = MemoryStorage(clock)
    await SITUATIONS[situation](storage, clock)
    answers = await in_turn((storage, storage), pair, order)
    rows = [(await storage.dump(kind)).records for kind in ("queue", "job", "held")]
    schedules = msgspec.to_builtins((await storage.schedules())[1])
    pods = [(pod.card.id, pod.lost, pod.leader, pod.lease_left) for pod in await storage.pods()]
    _, given = await storage.answer_of(ANSWER)
    return Result(answers, [rows, schedules, pods, msgspec.to_builtins(given)])


async def meet(pair: tuple[str, str], situation: str) -> bool:
    """Whether the order of the two makes a difference there."""
    one = await on_memory(pair, situation, (LEFT, RIGHT))
    return one != await on_memory(pair, situation, (RIGHT, LEFT))


# PostgreSQL ----------------------------------------------------------------------------------------------------------


class Stage:
    """Two gated storages on one schema, whose rows are put back to a situation before each case."""

    def __init__(self) -> None:
        self.url = postgres_server.shared_url()
        self.schema = postgres_server.a_schema()
        self.clock = FakeClock()
        self.gates = (Gate(), Gate())
        self.storages = [PostgresStorage(self.url, schema=self.schema, clock=self.clock) for _ in self.gates]
        for storage, gate in zip(self.storages, self.gates, strict=True):
            storage._target = GatedTarget(self.url, gate)
        self._resets: dict[str, tuple[str, float]] = {}
        self._tables: list[str] = []

    async def open(self) -> None:
        for storage in self.storages:
            await storage.open()
        self._watch: Any = await asyncpg.connect(self.url)
        found = await self._watch.fetch(
            "select tablename from pg_tables where schemaname = $1 and tablename <> 'schema_version'", self.schema
        )
        self._tables = sorted(row[0] for row in found)
        self._empty = await self._kept("empty")
        for name, situation in SITUATIONS.items():
            await self._put_back(self._empty, 0.0)
            await situation(self.storages[0], self.clock)
            self._resets[name] = (await self._kept(name), self.clock.now() - BEGINNING)
        for name in SITUATIONS:  # each storage has seen what a worker has: lanes, connections, plans
            for side in (LEFT, RIGHT):
                await self.put_back(name)
                await VERBS["claim"](self.storages[side], side)

    async def close(self) -> None:
        for storage in self.storages:
            await storage.close()
        await self._watch.execute(f'drop schema "{self.schema}" cascade; drop schema "{self.schema}_kept" cascade')
        await self._watch.close()

    async def _kept(self, name: str) -> str:
        """Keep all rows as they are; the script that brings them back."""
        await self._watch.execute(f'create schema if not exists "{self.schema}_kept"')
        script: list[str] = []
        for table in self._tables:
            kept = f'"{self.schema}_kept"."{name}_{table}"'
            own = f'"{self.schema}"."{table}"'
            await self._watch.execute(f"create table {kept} as table {own}")
            some = await self._watch.fetchval(f"select exists (select from {kept})")
            script.append(f"delete from {own}")
            if some:
                script.append(f"insert into {own} overriding system value table {kept}")
        return "; ".join(script)

    async def put_back(self, situation: str) -> None:
        await self._put_back(*self._resets[situation])

    async def _put_back(self, script: str, passed: float) -> None:
        await self._watch.execute(script)
        self.clock._now, self.clock._steady = BEGINNING + passed, 1_000.0 + passed

    async def rows(self) -> Any:
        """All rows of all tables."""
        gone = " ".join(f"- '{number}'" for number in _NUMBERS)
        parts = [
            f'select \'{table}\', to_jsonb(x) {gone} from "{self.schema}"."{table}" as x' for table in self._tables
        ]
        found = await self._watch.fetch(" union all ".join(parts))
        return sorted(((table, json.loads(row)) for table, row in found), key=str)

    async def in_turn(self, pair: tuple[str, str], situation: str, order: Sequence[int]) -> Result:
        """One after the other, each to its end."""
        await self.put_back(situation)
        answers = await in_turn(self.storages, pair, order)
        return Result(answers, await self.rows())

    async def interleaved(self, pair: tuple[str, str], situation: str, order: Sequence[int]) -> tuple[Ran, Result]:
        """Both at once, statement by statement in the given order."""
        await self.put_back(situation)
        verbs = [VERBS[name](self.storages[side], side) for side, name in enumerate(pair)]
        ran = await gates.run(self.gates, verbs, order, self._is_blocked)
        return ran, Result([plain(answer) for answer in ran.answers], await self.rows())

    async def _is_blocked(self, pid: int) -> bool:
        """Whether it waits for the other side. What holds up anybody for a moment (a vacuum that truncates a table, a
        commit with NOTIFY of another test) ends by itself, and the other side can do nothing about it."""
        sides = [gate.pid for gate in self.gates]
        return bool(await self._watch.fetchval("select pg_blocking_pids($1) && $2::int[]", pid, sides))


class Staged:
    """A stage with a loop of its own, for tests that are plain functions."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.stage = Stage()
        self.runner.run(self.stage.open())

    def close(self) -> None:
        self.runner.run(self.stage.close())
        self.runner.close()
