from __future__ import annotations

import sqlite3
from pathlib import Path

from treadle.storages.sqlite import migrations

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


def test_plan_and_sql_make_nothing(treadle: Treadle, folder: Path) -> None:
    plan = treadle("db", "plan")
    assert plan.code == 0
    assert plan.lines[0].startswith("0001_start: ")
    text = treadle("db", "sql").out
    assert text == treadle("db", "sql", "--all").out
    assert not (folder / "treadle.db").exists()
    with sqlite3.connect(folder / "treadle.db") as db:
        db.executescript(text)
    db.close()
    assert treadle("db", "status").code == 0
    assert treadle("db", "plan", "--json").object["plan"] == []
    nothing = treadle("db", "sql")
    assert (nothing.code, nothing.out) == (0, "")
    assert "nothing to do" in nothing.err


def test_to_look_at_an_old_file_does_not_migrate_it(treadle: Treadle, folder: Path) -> None:
    with sqlite3.connect(folder / "treadle.db") as db:
        migrations.apply(db, migrations.known()[0], 0.0)
    db.close()
    newest = migrations.known()[-1].version
    for _ in range(2):
        status = treadle("db", "status", "--json")
        assert (status.code, status.object["current"], status.object["newest"]) == (78, 1, newest)
        assert len(treadle("db", "plan").lines) == newest - 1
    assert treadle("db", "migrate").code == 0
    assert treadle("db", "status").code == 0


def test_a_storage_without_roles_says_so(treadle: Treadle) -> None:
    for url in ("sqlite:///treadle.db", "memory://"):
        ran = treadle("db", "roles", "--url", url)
        assert (ran.code, len(ran.err.splitlines())) == (78, 1)
        assert "has no roles" in ran.err
