"""SQLite has one writer at a time, so what can interleave are whole transactions. Every pair of verbs, one after the
other in both orders by two writers on one file, is told what memory would tell; and from two processes at once, what
either order would have given."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.storages.test_postgres_agrees import rounded
from treadle.storages.sqlite import SQLiteStorage
from treadle.testing.clock import BEGINNING, FakeClock

from .stage import Result, in_turn, meet, on_memory
from .verbs import LEFT, PAIRS, RIGHT, SITUATIONS, VERBS, has_won, must_have_one_winner

ALL = os.environ.get("INTERLEAVINGS") == "all"
# Who goes first is chance; a little waiting before one side makes both orders likely. Seconds, for left and right.
HEAD_STARTS = [(0.0, 0.0), (0.0, 0.0005), (0.0005, 0.0)] * (10 if ALL else 1)
_ROOT = Path(__file__).parent.parent.parent


class Stage:
    """Two writers on one file, whose rows are put back to a situation before each case; and two processes, if asked."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "jobs.db"
        self.clock = FakeClock()
        self.storages = [SQLiteStorage(self.path, clock=self.clock, synchronous="normal") for _ in (LEFT, RIGHT)]
        self.runner = asyncio.Runner()
        for storage in self.storages:
            self.runner.run(storage.open())
        self._db = sqlite3.connect(self.path, isolation_level=None, timeout=10)
        # As the storage's own connections: checkpoints are made by its writer alone.
        self._db.execute("pragma wal_autocheckpoint=0")
        self._tables = [
            name
            for (name,) in self._db.execute(
                "select name from sqlite_master where type = 'table' and name like 'treadle_%' "
                "and name <> 'treadle_schema' order by name"
            )
        ]
        self._kept: dict[str, tuple[dict[str, list[Any]], float]] = {"": (self._rows(), 0.0)}
        for name, situation in SITUATIONS.items():
            self.put_back("")
            self.runner.run(situation(self.storages[LEFT], self.clock))
            self._kept[name] = (self._rows(), self.clock.now() - BEGINNING)
        self.children: list[subprocess.Popen[str]] = []

    def close(self) -> None:
        for child in self.children:
            child.communicate()
        for storage in self.storages:
            self.runner.run(storage.close())
        self._db.close()
        self.runner.close()

    def _rows(self) -> dict[str, list[Any]]:
        return {table: self._db.execute(f"select * from {table}").fetchall() for table in self._tables}

    def put_back(self, situation: str) -> None:
        kept, passed = self._kept[situation]
        self._db.execute("begin immediate")
        for table, rows in kept.items():
            self._db.execute(f"delete from {table}")
            if rows:
                places = ", ".join("?" * len(rows[0]))
                self._db.executemany(f"insert into {table} values ({places})", rows)
        self._db.execute("commit")
        self.clock._now, self.clock._steady = BEGINNING + passed, 1_000.0 + passed

    def rows(self) -> Any:
        """All rows of all tables, without their places in the order of insertion."""
        found: list[tuple[str, dict[str, Any]]] = []
        for table in self._tables:
            cursor = self._db.execute(f"select * from {table}")
            names = [column[0] for column in cursor.description]
            found += [(table, {name: each for name, each in zip(names, row, strict=True) if name != "seq"})
                      for row in cursor]  # fmt: skip
        return sorted(found, key=str)

    def in_turn(self, pair: tuple[str, str], situation: str, order: Sequence[int]) -> Result:
        self.put_back(situation)
        answers = self.runner.run(in_turn(self.storages, pair, order))
        return Result(json.loads(json.dumps(answers)), self.rows())

    def start(self) -> None:
        for side in (LEFT, RIGHT):
            command = [sys.executable, "-m", "tests.interleavings.child", str(self.path), str(side)]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            self.children.append(child)

    def at_once(self, pair: tuple[str, str], situation: str, head_start: tuple[float, float]) -> Result:
        self.put_back(situation)
        for child, verb, wait in zip(self.children, pair, head_start, strict=True):
            assert child.stdin is not None
            child.stdin.write(json.dumps([verb, self.clock.now(), self.clock.steady(), wait]) + "\n")
            child.stdin.flush()
        answers = [json.loads(child.stdout.readline()) for child in self.children if child.stdout is not None]
        return Result(answers, self.rows())


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = Stage(tmp_path_factory.mktemp("interleavings"))
    yield stage
    stage.close()


@pytest.fixture(scope="module")
def processes(stage: Stage) -> Stage:
    stage.start()
    return stage


@pytest.mark.parametrize("first", VERBS)
def test_two_writers_in_both_orders_answer_as_memory_does(first: str, stage: Stage, record_property: Any) -> None:
    tried = 0
    for pair in [pair for pair in PAIRS if pair[0] == first]:
        for situation in SITUATIONS:
            if not (ALL or stage.runner.run(meet(pair, situation))):
                continue
            for order in ((LEFT, RIGHT), (RIGHT, LEFT)):
                told = stage.in_turn(pair, situation, order).answers
                expected = stage.runner.run(on_memory(pair, situation, order)).answers
                assert rounded(told) == rounded(expected), (pair, situation, order)
                tried += 1
    record_property("serial orders on SQLite", tried)


@pytest.mark.parametrize("first", VERBS)
def test_two_processes_at_once_are_as_one_after_the_other(first: str, processes: Stage, record_property: Any) -> None:
    tried = 0
    for pair in [pair for pair in PAIRS if pair[0] == first]:
        for situation in SITUATIONS:
            if not (ALL or processes.runner.run(meet(pair, situation))):
                continue
            allowed = [processes.in_turn(pair, situation, order) for order in ((LEFT, RIGHT), (RIGHT, LEFT))]
            for head_start in HEAD_STARTS:
                result = processes.at_once(pair, situation, head_start)
                assert result in allowed, (pair, situation)
                if must_have_one_winner(pair, situation):
                    assert sum(map(has_won, pair, result.answers)) == 1, (pair, situation)
                tried += 1
    record_property("meetings of processes on SQLite", tried)
