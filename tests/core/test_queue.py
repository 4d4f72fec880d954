"""The gate of a queue, and the arithmetic of its cool-down (semantics, area 5)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from treadle.core.job import Job, QueueChange, State
from treadle.core.queue import (
    COOL_CAP,
    COOL_CLEAR_AFTER,
    FOR_EVER,
    MAX_EXPONENT,
    Queue,
    QueueStats,
    aged,
    as_claimed,
    cool,
    edit,
    gate,
    is_recovered,
    is_warmed,
    kept,
    timeout_of,
)

NOW = 1_000.0


def a_queue(**fields: Any) -> Queue:
    return Queue(name="mail", **fields)


def test_a_queue_without_settings_is_open_and_whole() -> None:
    queue = a_queue()
    assert (queue.paused, queue.max_workers, queue.cool_until, queue.version) == (False, None, None, 0)
    stats = QueueStats(queue=queue)
    assert (stats.ready, stats.oldest_ready_seconds, stats.capped_at) == (0, None, 10_000)


@pytest.mark.parametrize(
    ("fields", "closed_until"),
    [
        ({}, None),
        ({"paused": True}, math.inf),
        ({"paused": True, "paused_until": NOW + 1}, NOW + 1),
        ({"paused": True, "paused_until": NOW}, None),
        ({"paused": True, "paused_until": NOW - 1}, None),
        ({"paused": True, "paused_until": 0.0}, None),
        ({"paused_until": NOW + 1}, None),
        ({"cool_until": NOW + 2}, NOW + 2),
        ({"cool_until": NOW}, None),
        ({"cool_until": NOW - 2}, None),
        ({"cool_until": NOW + 2, "paused": True}, math.inf),
        ({"cool_until": NOW + 2, "paused": True, "paused_until": NOW + 1}, NOW + 2),
        ({"cool_until": NOW + 2, "paused": True, "paused_until": NOW + 3}, NOW + 3),
        ({"cool_until": NOW - 2, "paused": True, "paused_until": NOW + 3}, NOW + 3),
    ],
)
def test_the_gate(fields: dict[str, Any], closed_until: float | None) -> None:
    assert gate(a_queue(**fields), NOW) == closed_until


@pytest.mark.parametrize(
    ("exponent", "hint", "wait", "next_exponent"),
    [
        (0, None, 5.0, 1),
        (1, None, 10.0, 2),
        (4, None, 80.0, 5),
        (8, None, 1280.0, 9),
        (9, None, COOL_CAP, 10),
        (29, None, COOL_CAP, 30),
        (MAX_EXPONENT, None, COOL_CAP, MAX_EXPONENT),
        (0, 3.0, 5.0, 1),
        (0, 30.0, 30.0, 1),
        (0, 7_200.0, 7_200.0, 1),
        (3, 30.0, 40.0, 4),
        (0, 0.0, 5.0, 1),
    ],
)
def test_a_throttle_outside_a_window(exponent: int, hint: float | None, wait: float, next_exponent: int) -> None:
    for cool_until in (None, NOW - 100, NOW):
        queue = a_queue(cool_until=cool_until, cool_exponent=exponent)
        assert cool(queue, hint, NOW) == (NOW + wait, next_exponent)


@pytest.mark.parametrize(("hint", "until"), [(None, 50.0), (0.0, 50.0), (20.0, 50.0), (50.0, 50.0), (90.0, 90.0)])
def test_a_throttle_inside_a_window_never_raises_the_exponent(hint: float | None, until: float) -> None:
    assert cool(a_queue(cool_until=NOW + 50, cool_exponent=3), hint, NOW) == (NOW + until, 3)


def test_a_window_that_is_about_to_end_is_not_lengthened_for_nothing() -> None:
    assert cool(a_queue(cool_until=NOW + 0.5, cool_exponent=3), None, NOW) == (NOW + 0.5, 3)


def test_an_exponent_that_is_far_too_large_does_no_harm() -> None:
    assert cool(a_queue(cool_exponent=10**6), None, NOW) == (NOW + COOL_CAP, MAX_EXPONENT)


@given(
    st.none() | st.floats(0, 1e6),
    st.lists(st.tuples(st.none() | st.floats(0, 1e5), st.floats(0, 1e4)), max_size=40),
)
def test_a_cool_down_only_ever_grows_within_its_window(first: float | None, throttles: Any) -> None:
    queue, now = a_queue(cool_until=first), 0.0
    for hint, pause in throttles:
        inside = queue.cool_until is not None and queue.cool_until > now
        until, exponent = cool(queue, hint, now)
        assert until >= now + (hint or 0.0)
        assert 0 <= exponent <= MAX_EXPONENT
        if inside:
            assert until >= (queue.cool_until or 0.0)
            assert exponent == queue.cool_exponent
        else:
            assert exponent == min(queue.cool_exponent + 1, MAX_EXPONENT)
        queue, now = replace(queue, cool_until=until, cool_exponent=exponent), now + pause


@pytest.mark.parametrize(
    ("exponent", "cool_until", "recovered"),
    [
        (0, None, False),
        (0, NOW - 500, False),
        (1, NOW - COOL_CLEAR_AFTER, True),
        (1, NOW - COOL_CLEAR_AFTER + 0.001, False),
        (1, NOW + 5, False),
        (3, None, True),
    ],
)
def test_a_success_long_after_the_window_proves_recovery(
    exponent: int, cool_until: float | None, recovered: bool
) -> None:
    assert is_recovered(a_queue(cool_exponent=exponent, cool_until=cool_until), NOW) is recovered


def test_the_first_seconds_of_the_epoch_are_like_any_other() -> None:
    assert gate(a_queue(), 0.5) is None
    assert is_recovered(a_queue(cool_exponent=1), COOL_CLEAR_AFTER)


def test_the_built_in_numbers() -> None:
    assert (COOL_CAP, COOL_CLEAR_AFTER, MAX_EXPONENT) == (1800.0, 120.0, 30)


@pytest.mark.parametrize(
    ("priority", "waited", "aging", "found"),
    [
        (0, 1_000.0, None, 0),
        (0, 59.9, 60.0, 0),
        (0, 60.0, 60.0, 1),
        (-5, 125.0, 60.0, -3),
        (99, 600.0, 60.0, 100),
        (0, 1e12, 0.001, 100),
        (3, -50.0, 10.0, 3),
    ],
)
def test_aging(priority: int, waited: float, aging: float | None, found: int) -> None:
    assert aged(priority, NOW, aging, NOW + waited) == found


@given(st.integers(-100, 100), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0.1, 1e5))
def test_of_one_priority_nothing_overtakes_by_aging(priority: int, one: float, other: float, aging: float) -> None:
    """Storages rely on it: what is stored in the order of run_at is in the order of claiming too."""
    earlier, later = sorted([one, other])
    assert aged(priority, earlier, aging, 1e6) >= aged(priority, later, aging, 1e6)
    assert priority <= aged(priority, one, aging, 1e6) <= 100


@pytest.mark.parametrize(
    ("timeout", "pinned", "live", "found"),
    [
        (60.0, False, None, 60.0),
        (60.0, False, 5.0, 5.0),
        (60.0, True, 5.0, 60.0),
        (None, False, 5.0, 5.0),
        (60.0, False, 0.0, 0.0),
    ],
)
def test_a_live_timeout_replaces_what_the_caller_did_not_choose(
    timeout: float | None, pinned: bool, live: float | None, found: float | None
) -> None:
    assert timeout_of(timeout, pinned, live) == found


@pytest.mark.parametrize(
    ("timeout", "deadline", "found"),
    [
        (60.0, 160.0, 60.0),
        (60.0, 160.0004, 60.0),
        (60.0, 105.0, 5.0),
        (None, 105.0, 5.0),
        (60.0, None, 0.0),
        (0.0, None, 0.0),
        (None, None, None),
    ],
)
def test_a_running_job_tells_the_timeout_of_its_claim(
    timeout: float | None, deadline: float | None, found: float | None
) -> None:
    job = Job(id="1", task="t", queue="q", state=State.RUNNING, timeout=timeout, started_at=100.0, deadline=deadline)
    assert as_claimed(job).timeout == found


def test_an_edit_changes_what_it_names_and_counts() -> None:
    row = edit(a_queue(version=3, rate=2.0), QueueChange(name="mail", max_workers=5), NOW)
    assert (row.version, row.max_workers, row.rate) == (4, 5, 2.0)
    assert edit(row, QueueChange(name="mail", rate=None), NOW).rate is None


def test_a_pause_inherits_nothing_and_a_resume_forgets() -> None:
    change = QueueChange(name="mail", paused=True, paused_by="ann", pause_reason="why", paused_until=NOW + 1)
    paused = edit(a_queue(), change, NOW)
    assert (paused.paused_at, paused.paused_by, paused.paused_until) == (NOW, "ann", NOW + 1)
    again = edit(paused, QueueChange(name="mail", paused=True), NOW + 5)
    assert (again.paused_at, again.paused_by, again.pause_reason, again.paused_until) == (NOW + 5, None, None, None)
    open_again = edit(paused, QueueChange(name="mail", paused=False), NOW)
    assert (open_again.paused, open_again.paused_at, open_again.paused_by) == (False, None, None)


def test_ending_a_cool_down_clears_its_exponent() -> None:
    cooling = a_queue(cool_until=NOW + 5, cool_exponent=3)
    assert edit(cooling, QueueChange(name="mail", cool_until=None), NOW).cool_exponent == 0
    assert edit(cooling, QueueChange(name="mail", cool_until=NOW + 9), NOW).cool_exponent == 3


def test_how_long_ended_jobs_are_kept() -> None:
    assert kept(None, State.SUCCEEDED) == 7 * 86_400
    queue = a_queue(keep_succeeded=0.0, keep_failed=FOR_EVER)
    assert (kept(queue, State.SUCCEEDED), kept(queue, State.FAILED)) == (0.0, None)
    assert kept(queue, State.CANCELLED) == 7 * 86_400


@pytest.mark.parametrize(
    ("cool_until", "wish", "warms"),
    [
        (200.0, None, True),
        (100.0, None, False),  # it was over by itself
        (None, None, False),
        (200.0, UNSET, False),
        (200.0, 300.0, False),
    ],
)
def test_only_an_edit_that_ends_a_cool_down_warms_a_queue(
    cool_until: float | None, wish: float | UnsetType | None, warms: bool
) -> None:
    queue = Queue(name="mail", cool_until=cool_until)
    assert is_warmed(queue, QueueChange(name="mail", cool_until=wish), 100.0) is warms
