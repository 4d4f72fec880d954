"""Anybody may write to the file: a damaged limit or lock harms nobody else, and is mended by its next use."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from treadle.core.limit import Take
from treadle.storages.sqlite import SQLiteStorage

pytestmark = pytest.mark.anyio


async def test_damaged_rows_harm_nobody_else(tmp_path: Path) -> None:
    storage = SQLiteStorage(tmp_path / "treadle.db")
    await storage.open()
    await storage.save_limit("sound", 5, 1.0)
    await storage.seize("sound", "ann", 60.0)
    db = sqlite3.connect(tmp_path / "treadle.db")
    bad = [
        ("a", "x", 5, 1.0, 5.0, 0.0, "[]"),
        ("b", 1, "many", 1.0, 5.0, 0.0, "[]"),
        ("c", 1, 5, 0.0, 5.0, 0.0, "[]"),
        ("d", 1, 5, 1.0, "all", 0.0, "[]"),
        ("e", 1, 5, 1.0, 5.0, 0.0, "{"),
        ("f", 1, 5, 1.0, 5.0, 1e999, "[]"),
    ]
    db.executemany("insert into treadle_limit values (?, ?, ?, ?, ?, ?, ?)", bad)
    locks = [("a", "x", "y", 1e300, "b"), ("b", "x", 1, "long", storage._clock.boot())]
    db.executemany("insert into treadle_lock values (?, ?, ?, ?, ?)", locks)
    db.commit()
    db.close()
    assert {limit.scope for limit in await storage.limits()} >= {"sound"}
    taken = await storage.take([Take(scope=name, want=1) for name in ("a", "b", "c", "d", "e", "f", "sound")])
    assert [each.got for each in taken] == [1, 0, 0, 0, 1, 0, 1]
    for name in "abcdef":
        assert await storage.save_limit(name, 2, 1.0) is not None
    assert len(await storage.limits()) == 7
    assert [lock.name for lock in await storage.locks()] == ["sound"]
    for name in "ab":
        assert (await storage.seize(name, "bob", 60.0)).owner == "bob"
    await storage.close()
