"""Plans and definitions: what a sync from code and an operator make of a schedule."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from treadle.core import schedule as scheduling
from treadle.core.job import NewJob, UniqueClaim
from treadle.core.schedule import Declared, Edit, Plan, Schedule

NOW = 1_780_000_000.125
LATER = NOW + 1000.0


def a_plan(**fields: Any) -> Plan:
    return Plan(**{"expression": "0 9 * * *", "task": "work", "queue": "default", **fields})


def declared(**fields: Any) -> Declared:
    return Declared(plan=a_plan(**fields))


def merged(existing: Schedule | None, **fields: Any) -> Schedule:
    edit = scheduling.merge(existing, "nightly", declared(**fields), LATER)
    assert edit is not None
    return edit.schedule


def from_code(**fields: Any) -> Schedule:
    edit = scheduling.merge(None, "nightly", declared(**fields), NOW)
    assert edit is not None
    return edit.schedule


# Plans ---------------------------------------------------------------------------------------------------------------


def test_a_plan_asks_for_jobs_like_the_one_it_was_made_of() -> None:
    rule = UniqueClaim("key")
    job = NewJob(
        id="x",
        task="work",
        queue="mail",
        args='{"a":1}',
        priority=3,
        max_attempts=4,
        timeout=5.0,
        pinned=True,
        tags=("t",),
        unique=rule,
    )
    plan = scheduling.plan_of(job, " 0  9 * * * ", zone="Europe/Berlin", jitter=30.0)
    assert (plan.task, plan.queue, plan.args, plan.priority) == ("work", "mail", '{"a":1}', 3)
    assert (plan.max_attempts, plan.timeout, plan.pinned, plan.tags, plan.unique) == (4, 5.0, True, ("t",), rule)
    assert (plan.expression, plan.zone, plan.jitter, plan.misfire) == ("0 9 * * *", "Europe/Berlin", 30.0, "coalesce")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"expression": "* * * *"}, "4 fields"),
        ({"expression": "0 0 30 2 *"}, "no day 30"),
        ({"zone": "Mars/Phobos"}, "no time zone"),
        ({"task": "no task"}, "task name"),
        ({"queue": ""}, "queue name"),
        ({"priority": 101}, "priority"),
        ({"misfire": "panic"}, "misfire must be one of coalesce, skip, catch_up"),
        ({"overlap": "wait"}, "overlap must be one of allow, skip"),
        ({"catch_up": 0}, "catch_up must be from 1 to 1000"),
        ({"catch_up": 1001}, "catch_up"),
        ({"catch_up": True}, "catch_up"),
        ({"jitter": -1.0}, "jitter"),
        ({"jitter": 1e9}, "jitter"),
        ({"jitter": float("nan")}, "jitter"),
        ({"paused": "yes"}, "paused"),
        ({"args": "[1]"}, "args must be an object"),
        ({"args": "{"}, "args: "),
    ],
)
def test_a_plan_that_is_none_is_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        scheduling.check(a_plan(**fields))


def test_words_name_the_zone_where_it_matters() -> None:
    assert scheduling.describe(a_plan()) == "At 09:00 every day"
    assert scheduling.describe(a_plan(zone="Asia/Tokyo")) == "At 09:00 every day, Asia/Tokyo"
    assert scheduling.describe(a_plan(expression="every 5m", zone="Asia/Tokyo")) == "Every 5m"


def test_the_next_fires() -> None:
    times = scheduling.next_fires(a_plan(expression="every 60s"), NOW, NOW + 30, 3)
    assert times == [NOW + 60, NOW + 120, NOW + 180]


# From code -----------------------------------------------------------------------------------------------------------


def test_a_new_schedule_starts_now() -> None:
    edit = scheduling.merge(None, "nightly", declared(), NOW)
    assert edit is not None
    schedule = edit.schedule
    assert (edit.expected, edit.cursor, schedule.version) == (0, NOW, 1)
    assert (schedule.progress.cursor, schedule.anchor, schedule.created_at) == (NOW, NOW, NOW)
    assert (schedule.declared, schedule.declared_at, schedule.edited) == (schedule.plan, NOW, ())
    assert not schedule.removed


def test_an_interval_that_fires_at_once_has_its_cursor_before_its_anchor() -> None:
    every = Declared(plan=a_plan(expression="every 10s"), at_once=True)
    edit = scheduling.merge(None, "often", every, NOW)
    assert edit is not None and edit.cursor is not None
    assert edit.schedule.anchor - 1 < edit.cursor < edit.schedule.anchor
    line = scheduling.merge(None, "line", Declared(plan=a_plan(), at_once=True), NOW)
    assert line is not None and line.cursor == NOW


def test_an_interval_does_not_fire_when_it_is_registered_or_edited() -> None:
    for now in (NOW, NOW + 0.0004999, NOW + 0.0005001, NOW + 0.0009999):
        new = scheduling.add("often", a_plan(expression="every 10s"), now)
        edited = scheduling.edit(new.schedule, {"expression": "every 20s"}, now)
        for edit, seconds in ((new, 10), (edited, 20)):
            assert edit.cursor is not None and edit.schedule.anchor <= edit.cursor
            (first,) = scheduling.next_fires(edit.schedule.plan, edit.schedule.anchor, edit.cursor, 1)
            assert first - now == pytest.approx(seconds, abs=0.002)


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="schedule name"):
        scheduling.merge(None, "no name", declared(), NOW)


def test_the_same_declaration_again_writes_nothing() -> None:
    assert scheduling.merge(from_code(), "nightly", declared(), LATER) is None


def test_new_code_changes_what_nobody_has_edited() -> None:
    old = from_code()
    edit = scheduling.merge(old, "nightly", declared(priority=5, args='{"n":1}'), LATER)
    assert edit is not None
    assert (edit.expected, edit.cursor, edit.schedule.version) == (1, None, 2)
    assert (edit.schedule.plan.priority, edit.schedule.plan.args) == (5, '{"n":1}')
    assert (edit.schedule.declared, edit.schedule.declared_at) == (edit.schedule.plan, LATER)
    assert edit.schedule.anchor == NOW


def test_another_expression_or_zone_starts_anew() -> None:
    old = from_code(expression="every 10m")
    edit = scheduling.merge(old, "nightly", declared(expression="every 5m"), LATER)
    assert edit is not None
    assert (edit.cursor, edit.schedule.anchor) == (LATER, LATER)
    moved = scheduling.merge(from_code(), "nightly", declared(zone="Asia/Tokyo"), LATER)
    assert moved is not None
    assert (moved.cursor, moved.schedule.anchor) == (LATER, NOW)


def test_code_can_pause_and_resume() -> None:
    paused = merged(from_code(), paused=True)
    assert (paused.plan.paused, paused.paused_at) == (True, LATER)
    edit = scheduling.merge(paused, "nightly", declared(), LATER + 1)
    assert edit is not None
    assert (edit.schedule.plan.paused, edit.schedule.paused_at, edit.cursor) == (False, None, LATER + 1)
    assert from_code(paused=True).paused_at == NOW


def test_an_operators_edit_survives_a_deploy() -> None:
    edited = scheduling.edit(from_code(), {"expression": "0 10 * * *"}, NOW, by="ada").schedule
    assert (edited.edited, edited.edited_by, edited.edited_at) == (("expression",), "ada", NOW)
    deployed = merged(edited, expression="0 11 * * *", priority=7)
    assert (deployed.plan.expression, deployed.plan.priority) == ("0 10 * * *", 7)
    assert deployed.declared is not None
    assert deployed.declared.expression == "0 11 * * *"
    back = scheduling.reset(deployed, LATER)
    assert (back.schedule.plan, back.schedule.edited, back.schedule.edited_by) == (deployed.declared, (), None)
    assert back.cursor == LATER


def test_a_removed_schedule_is_not_brought_back_by_a_deploy() -> None:
    removed = scheduling.remove(from_code(), NOW, by="ada")
    assert (removed.expected, removed.cursor) == (1, None)
    assert (removed.schedule.removed, removed.schedule.removed_by, removed.schedule.removed_at) == (True, "ada", NOW)
    assert scheduling.merge(removed.schedule, "nightly", declared(), LATER) is None
    deployed = merged(removed.schedule, priority=9)
    assert deployed.removed
    back = scheduling.reset(deployed, LATER)
    assert not back.schedule.removed
    assert (back.cursor, back.schedule.plan.priority) == (LATER, 9)


def test_what_an_operator_made_belongs_to_the_operator() -> None:
    made = scheduling.add("nightly", a_plan(), NOW, by="ada")
    assert (made.expected, made.cursor, made.schedule.edited_by) == (0, NOW, "ada")
    assert made.schedule.declared is None
    with pytest.raises(ValueError, match="declared by no code"):
        scheduling.reset(made.schedule, LATER)
    deployed = merged(made.schedule, priority=9)
    assert (deployed.plan, deployed.declared) == (a_plan(), a_plan(priority=9))
    assert scheduling.reset(deployed, LATER).schedule.plan.priority == 9


def test_a_removed_one_that_no_code_declared_is_code_s_to_take() -> None:
    made = scheduling.add("nightly", a_plan(), NOW).schedule
    removed = scheduling.remove(made, NOW).schedule
    taken = merged(removed, priority=9)
    assert (taken.removed, taken.plan.priority, taken.version) == (False, 9, 3)
    assert (taken.edited, taken.progress.cursor) == ((), LATER)


def test_a_removed_one_can_be_added_anew() -> None:
    removed = scheduling.remove(from_code(), NOW).schedule
    anew = scheduling.add("nightly", a_plan(priority=2), LATER, over=removed)
    assert (anew.expected, anew.cursor, anew.schedule.removed) == (2, LATER, False)
    assert anew.schedule.declared == a_plan()
    assert scheduling.merge(anew.schedule, "nightly", declared(), LATER) is None
    with pytest.raises(ValueError, match="fields"):
        scheduling.add("bad", a_plan(expression="*"), NOW)


def test_a_schedule_is_put_whether_it_is_there_or_not() -> None:
    made = scheduling.put(None, "nightly", a_plan(), NOW, by="ada")
    assert made is not None
    assert (made.expected, made.schedule.edited_by, made.cursor) == (0, "ada", NOW)
    assert scheduling.put(made.schedule, "nightly", a_plan(), LATER) is None
    changed = scheduling.put(made.schedule, "nightly", a_plan(task="other", priority=3), LATER, by="bo")
    assert changed is not None
    assert (changed.expected, changed.cursor, changed.schedule.edited_by) == (1, None, "bo")
    assert (changed.schedule.plan.task, changed.schedule.plan.priority) == ("other", 3)
    moved = scheduling.put(made.schedule, "nightly", a_plan(expression="0 4 * * *"), LATER)
    assert moved is not None
    assert moved.cursor == LATER
    removed = scheduling.remove(made.schedule, NOW).schedule
    anew = scheduling.put(removed, "nightly", a_plan(), LATER)
    assert anew is not None
    assert (anew.schedule.removed, anew.schedule.version) == (False, 3)
    with pytest.raises(ValueError, match="fields"):
        scheduling.put(made.schedule, "nightly", a_plan(expression="*"), LATER)


def test_a_put_schedule_stays_so_whatever_code_declares() -> None:
    put = scheduling.put(from_code(), "nightly", a_plan(priority=7), LATER)
    assert put is not None
    assert merged(put.schedule, priority=1, queue="q").plan == a_plan(priority=7)


# By operators --------------------------------------------------------------------------------------------------------


def test_pause_and_resume() -> None:
    paused = scheduling.pause(from_code(), NOW, by="ada", reason="provider down")
    assert paused.cursor is None
    schedule = paused.schedule
    assert (schedule.plan.paused, schedule.paused_by, schedule.paused_at) == (True, "ada", NOW)
    assert (schedule.pause_reason, schedule.edited) == ("provider down", ("paused",))
    deployed = merged(schedule, priority=1)
    assert (deployed.plan.paused, deployed.pause_reason) == (True, "provider down")
    resumed = scheduling.resume(deployed, LATER, by="bob")
    assert (resumed.cursor, resumed.schedule.plan.paused, resumed.schedule.pause_reason) == (LATER, False, None)
    # One that was never paused starts from now all the same: that is what resume says.
    assert scheduling.resume(from_code(), LATER).cursor == LATER


def test_an_edit_is_checked() -> None:
    with pytest.raises(ValueError, match="no day 31"):
        scheduling.edit(from_code(), {"expression": "0 0 31 4 *"}, NOW)


def test_an_edit_of_anything_but_the_time_leaves_the_clock() -> None:
    edit = scheduling.edit(from_code(), {"queue": "mail", "misfire": "skip"}, LATER)
    assert (edit.cursor, edit.schedule.anchor, edit.schedule.edited) == (None, NOW, ("queue", "misfire"))


# As text -------------------------------------------------------------------------------------------------------------


def test_a_schedule_is_read_as_it_was_written() -> None:
    schedule = scheduling.pause(from_code(unique=UniqueClaim("k", 1.5), tags=("ü",)), NOW, reason="x").schedule
    schedule = replace(schedule, progress=replace(schedule.progress, fired=3, live=("a",), cursor=0.1 + 0.2))
    texts = scheduling.definition_text(schedule), scheduling.progress_text(schedule.progress)
    assert scheduling.of_text(schedule.name, schedule.version, *texts) == schedule


@pytest.mark.parametrize(
    ("definition", "progress"),
    [("", "{}"), ('{"name":1}', "{}"), ("GOOD", "[]"), ("GOOD", '{"cursor":1e300}'), ("GOOD", '{"last_fire":-1e300}')],
)
def test_a_damaged_row_stays_visible_and_fires_nothing(definition: str, progress: str) -> None:
    text = definition.replace("GOOD", scheduling.definition_text(from_code()))
    found = scheduling.of_text("nightly", 7, text, progress)
    assert (found.name, found.version, found.plan.expression) == ("nightly", 7, "")
    assert "cannot be read" in str(found.progress.last_error)
    assert isinstance(scheduling.remove(found, NOW), Edit)
