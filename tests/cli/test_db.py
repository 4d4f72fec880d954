from __future__ import annotations

import sqlite3
from pathlib import Path

from .conftest import Store, Treadle


def test_migrate_makes_the_database_and_status_sees_it(treadle: Treadle, folder: Path) -> None:
    made = treadle("db", "migrate", "--json")
    assert made.code == 0
    assert made.object["current"] == made.object["newest"] > 0
    assert (folder / "treadle.db").exists()
    status = treadle("db", "status")
    assert status.code == 0
    assert status.lines[0].startswith("sqlite:///treadle.db  schema ")
    assert treadle("db", "migrate").code == 0


def test_a_backup_is_a_whole_database(treadle: Treadle, store: Store, folder: Path) -> None:
    id = store.enqueue()
    ran = treadle("db", "backup", "copy.db", "--json")
    assert ran.object == {"path": "copy.db", "bytes": (folder / "copy.db").stat().st_size}
    assert treadle("jobs", "show", id, "--url", "sqlite:///copy.db").code == 0


def test_a_backup_overwrites_nothing(treadle: Treadle, store: Store, folder: Path) -> None:
    store.enqueue()
    (folder / "copy.db").write_text("precious")
    ran = treadle("db", "backup", "copy.db")
    assert ran.code == 2
    assert (folder / "copy.db").read_text() == "precious"
    assert treadle("db", "backup", "nowhere/copy.db").code == 2


def test_a_file_that_is_no_database_of_ours_is_left_alone(treadle: Treadle, folder: Path) -> None:
    (folder / "treadle.db").write_text("a letter to my aunt, and rather a long one at that" * 40)
    before = (folder / "treadle.db").read_bytes()
    for line in (["db", "status"], ["db", "migrate"], ["jobs", "find"], ["enqueue", "shop.welcome"]):
        ran = treadle(*line)
        assert ran.code == 5, line
        assert len(ran.err.splitlines()) == 1
    assert (folder / "treadle.db").read_bytes() == before


def test_a_schema_from_the_future_is_78(treadle: Treadle, store: Store, folder: Path) -> None:
    store.enqueue()
    with sqlite3.connect(folder / "treadle.db") as db:
        db.execute("insert into treadle_schema values (999, 'future', '', 0, 999)")
    db.close()
    for line in (["jobs", "find"], ["enqueue", "shop.welcome"], ["db", "status"], ["db", "migrate"]):
        ran = treadle(*line)
        assert ran.code == 78, line
        assert len(ran.err.splitlines()) == 1
    ran = treadle("doctor", "--check")
    assert ran.code == 4
    assert "upgrade Treadle" in ran.lines[-1]


def test_memory_has_nothing_to_back_up(treadle: Treadle) -> None:
    ran = treadle("db", "backup", "copy.db", "--url", "memory://")
    assert ran.code == 78
    assert len(ran.err.splitlines()) == 1
