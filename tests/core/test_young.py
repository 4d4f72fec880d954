"""The first ten minutes: when charts are of seconds, and of which rows they are made."""

from __future__ import annotations

import pytest

from treadle.core import rollup, series, young
from treadle.core.rollup import DAY, FINE, HOUR, MINUTE, Rollup

NOON = 1_700_049_600.0


def step(at: float, pod: str = "p", task: str = "send", resolution: int = FINE, runs: int = 1) -> Rollup:
    return Rollup(resolution=resolution, at=at, queue="mail", task=task, pod=pod, outcomes={"succeeded": runs})


@pytest.mark.parametrize(
    ("began", "now", "is_young"),
    [
        (None, NOON, False),  # nothing has run: there is nothing to draw
        (NOON, NOON, True),
        (NOON, NOON + 599.9, True),
        (NOON, NOON + 600, False),
        (NOON - 3 * DAY, NOON, False),
        (NOON + 60, NOON, True),  # a clock that was set back
    ],
)
def test_history_is_young_for_ten_minutes(began: float | None, now: float, is_young: bool) -> None:
    assert young.is_young(began, now) is is_young


def test_steps_are_counted_to_the_end_of_a_minute() -> None:
    assert young.fine_until(None, NOON + 59.0) == NOON + 600
    assert young.fine_until(NOON, NOON + 300.0) == NOON + 600
    assert young.fine_until(NOON, NOON + HOUR) < NOON + HOUR  # long over


@pytest.mark.parametrize(
    ("began", "led", "now", "finely"),
    [
        (None, NOON, NOON + 10, True),
        (None, NOON, NOON + 600, False),
        (NOON + 900, NOON, NOON + 910, True),
        (NOON - HOUR, NOON, NOON + 10, False),
    ],
)
def test_depths_are_noted_finely_while_it_is_young(began: float | None, led: float, now: float, finely: bool) -> None:
    assert young.is_sounded_finely(began, led, now) is finely


def test_older_history_is_looked_for_where_no_running_hour_or_day_is_taken_for_it() -> None:
    assert young.older(NOON) == ((HOUR, NOON - 2 * HOUR), (DAY, NOON - 2 * DAY))


@pytest.mark.parametrize(
    ("steps", "minutes", "covered"),
    [
        ([], [], True),
        ([step(NOON + 5), step(NOON + 55)], [step(NOON, resolution=MINUTE)], True),
        ([], [step(NOON, resolution=MINUTE)], False),
        ([step(NOON + 5)], [step(NOON, resolution=MINUTE), step(NOON + 60, resolution=MINUTE)], False),
        ([step(NOON + 5)], [step(NOON, "older version", resolution=MINUTE)], False),
        ([step(NOON + 5)], [step(NOON, task="print", resolution=MINUTE)], False),
        ([step(NOON), step(NOON, task="print")], [step(NOON, resolution=MINUTE)], True),
    ],
)
def test_a_chart_of_seconds_has_all_runs_or_is_none(steps: list[Rollup], minutes: list[Rollup], covered: bool) -> None:
    assert young.covers(steps, minutes) is covered


def test_a_large_fleet_does_without() -> None:
    minutes = [step(NOON, f"pod-{n}", resolution=MINUTE) for n in range(young.MOST_MINUTES + 1)]
    steps = [step(NOON, f"pod-{n}") for n in range(young.MOST_MINUTES + 1)]
    assert not young.covers(steps, minutes)
    assert young.covers(steps, minutes[1:])


@pytest.mark.parametrize(
    ("first", "now", "expected"),
    [
        (None, NOON + 3, NOON - 60),
        (NOON, NOON + 3, NOON - 60),
        (NOON, NOON + 62, NOON),
        (NOON, NOON + 300, NOON),
    ],
)
def test_a_chart_begins_with_the_first_run_or_a_minute_ago(first: float | None, now: float, expected: float) -> None:
    assert young.begins([] if first is None else [step(first), step(first + 5)], now) == expected


def test_seconds_and_minutes_of_the_same_runs_make_the_same_whole() -> None:
    steps = [step(NOON + 5 * n, runs=n + 1) for n in range(24)]
    fine = series.series(steps, young.begins(steps, NOON + 119), NOON + 119, float(FINE))
    coarse = series.series(rollup.fold(steps, MINUTE), NOON, NOON + 119, float(MINUTE))
    assert (len(fine.points), len(coarse.points)) == (24, 2)
    assert fine.whole.outcomes == coarse.whole.outcomes == {"succeeded": 300}
    assert [point.finished for point in coarse.points] == [
        sum(point.finished for point in fine.points[:12]),
        sum(point.finished for point in fine.points[12:]),
    ]
