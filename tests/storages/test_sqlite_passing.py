"""Which errors of SQLite may pass by themselves: a worker that starts just then tries again for a while."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from treadle import StorageUnavailable
from treadle.storages.sqlite.connect import explained


def test_a_full_disk_may_be_given_room(tmp_path: Path) -> None:
    """Found by a soak: a worker that was started while the disk was full gave up at once."""
    path = str(tmp_path / "jobs.db")
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("create table t (x)")
        db.execute("pragma max_page_count = 4")
        with pytest.raises(sqlite3.OperationalError) as full:
            db.execute("insert into t values (zeroblob(100000))")
    shown = explained(full.value, path)
    assert isinstance(shown, StorageUnavailable)
    assert shown.passing


def test_a_file_that_is_no_database_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_text("not a database at all, " * 100)
    with contextlib.closing(sqlite3.connect(path)) as db, pytest.raises(sqlite3.DatabaseError) as foreign:
        db.execute("select * from t")
    shown = explained(foreign.value, str(path))
    assert isinstance(shown, StorageUnavailable)
    assert not shown.passing
