"""Changing many jobs at once: look first, ask, and never by a sticky default in production."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.cli import confirm, members

from .conftest import Store, Treadle


@pytest.fixture
def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirm, "is_attended", lambda: True)


def test_a_filter_is_told_from_ids() -> None:
    assert members.is_filter(("state:failed",))
    assert members.is_filter(("card declined",))
    assert members.is_filter(("",))
    assert not members.is_filter(("019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11", "42"))


def test_a_dry_run_counts_and_changes_nothing(treadle: Treadle, store: Store) -> None:
    ready, ended = store.enqueue(queue="slow"), store.succeeded()
    ran = treadle("jobs", "cancel", "queue:slow,mail", "--dry-run")
    assert ran.code == 0
    assert ran.lines[:2] == ["cancel would change 1 job of 2: 1 ready, 1 succeeded", "1 too late"]
    assert {line.strip() for line in ran.lines[2:]} == {ready, ended}
    assert store.state(ready) == "ready"
    by_ids = treadle("jobs", "revive", ready, ended, "--dry-run", "--json").object
    assert by_ids["states"] == {"ready": 1, "succeeded": 1}
    assert (by_ids["action"], by_ids["matched"], by_ids["fit"]) == ("revive", 2, 1)


def test_without_a_terminal_a_filter_needs_yes(treadle: Treadle, store: Store) -> None:
    id = store.enqueue()
    ran = treadle("jobs", "cancel", "state:ready")
    assert ran.code == 2
    assert "add --yes" in ran.err
    assert store.state(id) == "ready"
    assert treadle("jobs", "cancel", "state:ready", "--yes").lines == [f"{id}  cancelled"]


def test_deleting_asks_also_for_ids(treadle: Treadle, store: Store) -> None:
    assert treadle("jobs", "delete", store.succeeded()).code == 2


@pytest.mark.usefixtures("at_a_terminal")
def test_on_a_terminal_it_asks_and_names_the_place(treadle: Treadle, store: Store, folder: Path) -> None:
    (folder / "treadle.toml").write_text('env = "staging"\ncolor = "#b5651d"')
    id = store.enqueue()
    no = treadle("jobs", "cancel", "state:ready", answer="n\n")
    assert no.code == 1
    assert "cancel 1 job: 1 ready in staging (sqlite:///treadle.db)?" in no.err
    assert store.state(id) == "ready"
    assert treadle("jobs", "cancel", "state:ready", answer="y\n").lines == [f"{id}  cancelled"]


@pytest.mark.usefixtures("at_a_terminal")
def test_nothing_to_do_is_not_asked_about(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("jobs", "cancel", "state:failed")
    assert (ran.code, ran.err) == (0, "no job matches\n")


def test_in_production_yes_also_needs_the_environments_name(treadle: Treadle, store: Store, folder: Path) -> None:
    (folder / "treadle.toml").write_text('env = "live"\nproduction = true')
    id = store.enqueue()
    for line in (["cancel", "state:ready"], ["cancel", id], ["reschedule", id, "--now"]):
        ran = treadle("jobs", *line, "--yes")
        assert ran.code == 2
        assert "--yes also needs --env live" in ran.err
    assert treadle("jobs", "cancel", id, "--yes", "--env", "staging").code == 2
    assert store.state(id) == "ready"
    assert treadle("jobs", "cancel", id, "--yes", "--env", "live").code == 0


def test_production_without_a_name_is_refused(treadle: Treadle, store: Store, folder: Path) -> None:
    (folder / "treadle.toml").write_text("production = true")
    assert treadle("jobs", "cancel", store.enqueue(), "--yes").code == 78


def test_a_filter_reaches_beyond_one_page(treadle: Treadle, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "PAGE", 2)
    ids = {store.enqueue() for _ in range(5)}
    ran = treadle("jobs", "cancel", "state:ready", "--yes")
    assert {line.split()[0] for line in ran.lines} == ids
