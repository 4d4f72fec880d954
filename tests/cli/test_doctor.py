from __future__ import annotations

from pathlib import Path

import pytest

from treadle.config import SETTINGS

from .conftest import Ran, Store, Treadle


def codes(ran: Ran, level: str) -> set[str]:
    return {check["code"] for check in ran.object["checks"] if check["level"] == level}


def test_a_served_queue_is_healthy(treadle: Treadle, store: Store) -> None:
    store.running()
    ran = treadle("doctor", "--json")
    assert ran.code == 0
    assert ran.object["healthy"] is True
    assert codes(ran, "error") == set()
    assert {"TREADLE-D001", "TREADLE-D002", "TREADLE-D003", "TREADLE-D004", "TREADLE-D010"} <= codes(ran, "ok")


def test_work_that_nobody_serves_is_4_with_its_remedy(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    ran = treadle("doctor")
    assert ran.code == 4
    assert "✗ queue mail has 1 job ready, and no live pod serves it  [TREADLE-D013]" in ran.lines
    assert "    treadle worker -q mail" in ran.lines
    assert codes(treadle("doctor", "--json"), "error") == {"TREADLE-D013"}


def test_a_task_that_no_pod_knows_is_4(treadle: Treadle, store: Store) -> None:
    store.running(queue="mail")
    store.enqueue("shop.forgotten", queue="mail")
    assert codes(treadle("doctor", "--json"), "error") == {"TREADLE-D020"}


def test_check_prints_only_what_is_not_in_order(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    ran = treadle("doctor", "--check")
    assert ran.code == 4
    assert not any(line.startswith("✓") for line in ran.lines)
    assert "settings" not in ran.out


def test_a_missing_database_is_4_and_stays_missing(treadle: Treadle, folder: Path) -> None:
    ran = treadle("doctor", "--json")
    assert ran.code == 4
    assert codes(ran, "error") == {"TREADLE-D002"}
    assert list(folder.iterdir()) == []


def test_where_each_setting_came_from(
    treadle: Treadle, store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.running()
    (folder / "treadle.toml").write_text("slots = 7")
    monkeypatch.setenv("TREADLE_GRACE", "1m")
    ran = treadle("doctor", "--url", store.url)
    assert f"  slots = 7  ({folder}/treadle.toml:1)" in ran.lines
    assert "  grace = 1m  (TREADLE_GRACE)" in ran.lines
    assert f"  url = {store.url}  (--url)" in ran.lines
    listed = treadle("doctor", "--json").object["settings"]
    assert [each["name"] for each in listed] == [setting.name for setting in SETTINGS]


def test_no_password_is_shown(treadle: Treadle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CALL", "0.4s")  # nobody is there
    ran = treadle("doctor", "--url", "postgresql://ann:s3cret@db/shop")
    assert "s3cret" not in ran.out + ran.err
