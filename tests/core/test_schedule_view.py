"""Schedules as people read them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from treadle.core import schedule as scheduling
from treadle.core.firing import FireRecord
from treadle.core.schedule import Declared, Plan, Progress, Schedule
from treadle.core.schedule_view import fire_view, schedule_view
from treadle.core.view import as_json

NOW = 1_780_002_000.0


def a_schedule(**fields: Any) -> Schedule:
    plan = Plan(**{"expression": "0 9 * * *", "task": "work", "queue": "default", **fields})
    edit = scheduling.merge(None, "nightly", Declared(plan=plan), NOW)
    assert edit is not None
    return edit.schedule


def test_a_schedule() -> None:
    schedule = replace(a_schedule(zone="Europe/Berlin", args='{"n":1}'), progress=Progress(cursor=NOW, last_fire=NOW))
    view = schedule_view(schedule, NOW, live=True)
    assert (view.words, view.args, view.declared, view.undeclared) == (
        "At 09:00 every day, Europe/Berlin",
        {"n": 1},
        True,
        False,
    )
    assert view.next_fire == datetime(2026, 5, 29, 7, tzinfo=UTC)
    assert view.last_fire == datetime.fromtimestamp(NOW, UTC)
    shown = as_json(view)
    assert (shown["next_fire"], shown["paused_at"], shown["version"]) == ("2026-05-29T07:00:00.000Z", None, 1)


def test_one_whose_code_is_gone_and_one_that_an_operator_made() -> None:
    assert schedule_view(a_schedule(), NOW, live=False).undeclared
    made = scheduling.add("mine", a_schedule().plan, NOW, by="ada").schedule
    view = schedule_view(made, NOW, live=False)
    assert (view.declared, view.undeclared, view.edited, view.edited_by) == (False, False, (), "ada")


def test_paused_and_removed_ones_fire_no_more() -> None:
    assert schedule_view(scheduling.pause(a_schedule(), NOW).schedule, NOW, live=True).next_fire is None
    assert schedule_view(scheduling.remove(a_schedule(), NOW).schedule, NOW, live=True).next_fire is None


def test_the_next_fire_is_never_in_the_past_nor_one_that_was_settled() -> None:
    behind = replace(a_schedule(), progress=Progress(cursor=NOW - 1e6))
    found = schedule_view(behind, NOW, live=True).next_fire
    assert found is not None and found.timestamp() > NOW
    ahead = replace(a_schedule(), progress=Progress(cursor=NOW + 1e6))
    found = schedule_view(ahead, NOW, live=True).next_fire
    assert found is not None and found.timestamp() > NOW + 1e6


def test_one_that_cannot_be_read_says_why() -> None:
    broken = scheduling.of_text("nightly", 1, "?", "?")
    view = schedule_view(replace(broken, plan=replace(broken.plan, args="?")), NOW, live=False)
    assert (view.words, view.next_fire, view.args) == ("", None, {"undecodable": "?"})
    assert "cannot be read" in str(view.last_error)
    zoneless = a_schedule()
    zoneless = replace(zoneless, plan=replace(zoneless.plan, zone="Gone/Zone"))
    assert "Gone/Zone" in str(schedule_view(zoneless, NOW, live=True).last_error)


def test_a_line_whose_calendar_has_ended() -> None:
    schedule = replace(a_schedule(expression="0 0 29 2 *"), progress=Progress(cursor=NOW))
    view = schedule_view(schedule, NOW, live=True)
    assert view.next_fire == datetime(2028, 2, 29, tzinfo=UTC)


def test_a_fire() -> None:
    view = fire_view(FireRecord(fire_at=NOW, at=NOW + 1, outcome="fired", job="id", manual=True))
    assert as_json(view) == {
        "fire_at": "2026-05-28T21:00:00.000Z",
        "at": "2026-05-28T21:00:01.000Z",
        "outcome": "fired",
        "job": "id",
        "manual": True,
    }
