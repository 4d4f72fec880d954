from __future__ import annotations

import dataclasses
import getpass
from pathlib import Path

from treadle.core.schedule_view import ScheduleView

from .conftest import Store, Treadle


def add(store: Store, name: str = "nightly", expression: str = "0 3 * * *", **options: object) -> None:
    store.run(lambda app: app.schedules.add(name, expression, "shop.welcome", {"user_id": 1}, **options))


def test_an_empty_list_says_what_to_do(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("schedules", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "treadle schedules add" in ran.err


def test_list_and_show(treadle: Treadle, store: Store) -> None:
    add(store, tz="Europe/Berlin")
    add(store, "often", "every 10m")
    head, nightly, often = treadle("schedules", "list").lines
    assert head.split()[:4] == ["schedule", "next", "expression", "zone"]
    assert nightly.startswith("nightly") and "Europe/Berlin" in nightly and "shop.welcome" in nightly
    assert often.startswith("often")
    first, _ = treadle("schedules", "list", "--json").objects
    assert list(first) == [field.name for field in dataclasses.fields(ScheduleView)]
    shown = treadle("schedules", "show", "nightly").out
    assert "At 03:00 every day, Europe/Berlin" in shown
    whole = treadle("schedules", "show", "nightly", "--json").object
    assert len(whole["next"]) == 10
    assert whole["next"][0] == whole["next_fire"]
    assert whole["args"] == {"user_id": 1}


def test_an_unknown_schedule_is_3_with_a_suggestion(treadle: Treadle, store: Store) -> None:
    add(store)
    for line in (["show"], ["pause"], ["resume"], ["remove"], ["reset"], ["fire"], ["set", "--priority", "3"]):
        ran = treadle("schedules", *line, "nigthly")
        assert ran.code == 3, line
        assert 'did you mean "nightly"?' in ran.err


def test_put_twice_is_one_schedule(treadle: Treadle, store: Store) -> None:
    for expression, version in (("every 10m", 1), ("every 10m", 1), ("every 20m", 2)):
        ran = treadle("schedules", "put", "poll", expression, "other.task", "source=eu", "--overlap", "skip", "--json")
        assert (ran.code, ran.object["version"], ran.object["expression"]) == (0, version, expression)


def test_add_by_name_and_with_the_app(treadle: Treadle, store: Store, shop: str) -> None:
    ran = treadle("schedules", "add", "poll", "every 10m", "other.task", "source=eu", "--overlap", "skip")
    assert ran.code == 0, ran.err
    assert ran.lines[0].startswith("poll  Every 10m  next ")
    poll = treadle("schedules", "show", "poll", "--json").object
    assert (poll["queue"], poll["args"], poll["overlap"]) == ("default", {"source": "eu"}, "skip")
    assert poll["edited_by"] == getpass.getuser()
    ran = treadle("schedules", "add", "hello", "0 9 * * MON-FRI", "shop.welcome", "user_id=3", "-A", shop, "--json")
    assert (ran.object["queue"], ran.object["args"]) == ("mail", {"user_id": 3})
    ran = treadle("schedules", "add", "hello", "@hourly", "shop.welcome", "user_id=3", "-A", shop)
    assert (ran.code, "already" in ran.err) == (1, True)


def test_what_is_wrong_is_a_usage_error(treadle: Treadle, store: Store, shop: str) -> None:
    add(store)
    for line, problem in (
        (["add", "x", "* * *", "t"], "3 fields"),
        (["add", "x", "0 0 30 2 *", "t"], "no day 30"),
        (["add", "x", "@hourly", "t", "--tz", "Europe/Berln"], "did you mean Europe/Berlin"),
        (["add", "x", "@hourly", "shop.welcome", "-A", shop], "user_id"),
        (["add", "no name", "@hourly", "t"], "schedule name"),
        (["set", "nightly"], "give something to change"),
        (["set", "nightly", "--expression", "61 * * * *"], "the minute cannot be '61'"),
        (["set", "nightly", "--args", "[1]"], "object"),
        (["reset", "nightly"], "declared by no code"),
    ):
        ran = treadle("schedules", *line)
        assert (ran.code, problem in ran.err) == (2, True), (line, ran.err)


def test_set_pause_resume_remove(treadle: Treadle, store: Store) -> None:
    add(store)
    ran = treadle(
        "schedules", "set", "nightly", "--expression", "0 4 * * *", "--priority", "5", "--args", '{"user_id":2}'
    )
    assert ran.lines[0].startswith("nightly  At 04:00 every day  next ")
    ran = treadle("schedules", "set", "nightly", "--priority", "6", "--version", "1")
    assert (ran.code, "changed meanwhile (version 2)" in ran.err) == (1, True)
    assert treadle("schedules", "pause", "nightly", "--reason", "wrong numbers").lines == ["nightly  paused"]
    assert treadle("schedules", "list").lines[1].endswith(f"paused by {getpass.getuser()}: wrong numbers")
    assert "next" in treadle("schedules", "resume", "nightly").out
    assert treadle("schedules", "remove", "nightly").lines == ["nightly  removed"]
    assert treadle("schedules", "list", "--json").lines == []
    assert "removed" in treadle("schedules", "list", "--removed").lines[1]
    assert treadle("schedules", "pause", "nightly").code == 1


def test_fire_prints_the_job(treadle: Treadle, store: Store) -> None:
    add(store)
    job = treadle("schedules", "fire", "nightly").lines[0]
    assert store.state(job) == "ready"
    assert treadle("schedules", "fire", "nightly", "--json").object["schedule"] == "nightly"
    shown = treadle("schedules", "show", "nightly").out
    assert f"{job}  by hand" in shown


def test_in_production_it_asks(treadle: Treadle, store: Store, folder: Path) -> None:
    add(store)
    (folder / "treadle.toml").write_text('env = "prod"\nproduction = true\n')
    assert treadle("schedules", "pause", "nightly", "--yes").code != 0
    assert treadle("schedules", "pause", "nightly", "--yes", "--env", "prod").code == 0
    assert treadle("schedules", "fire", "nightly", "--yes").code != 0


def test_a_reason_that_is_too_long_is_a_usage_error(treadle: Treadle, store: Store) -> None:
    store.enqueue(queue="mail")
    treadle("schedules", "add", "nightly", "0 3 * * *", "shop.tidy")
    for line in (["schedules", "pause", "nightly"], ["queues", "pause", "mail"], ["jobs", "cancel", "state:ready"]):
        ran = treadle(*line, "--reason", "x" * 5_000)
        assert ran.code == 2
        assert "reason is too long" in ran.err


def test_at_once_is_for_intervals(treadle: Treadle, store: Store) -> None:
    store.enqueue()
    ran = treadle("schedules", "add", "nightly", "0 3 * * *", "shop.tidy", "--now")
    assert ran.code == 2
    assert "is for intervals" in ran.err
