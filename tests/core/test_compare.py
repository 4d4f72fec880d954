from __future__ import annotations

import pytest

from treadle.core import compare
from treadle.core.compare import Window, windows
from treadle.core.histogram import Histogram
from treadle.core.rollup import DAY, HOUR, MINUTE, Rollup

NOON = 1_700_049_600.0
HERE, THERE = Window(NOON - HOUR, NOON), Window(NOON - 2 * HOUR, NOON - HOUR)


def ran(at: float, task: str = "send", runs: int = 100, bad: int = 0, wait: float = 0.1, run: float = 1.0) -> Rollup:
    waits, times = Histogram(), Histogram()
    waits.add_all([wait] * runs)
    times.add_all([run] * runs)
    outcomes = {"succeeded": runs - bad} | ({"failed": bad} if bad else {})
    return Rollup(resolution=MINUTE, at=at, queue="mail", task=task, outcomes=outcomes, wait=waits, run=times)


def one(now: Rollup | None, before: Rollup | None) -> compare.PairChange:
    (found,) = compare.compare([now] if now else [], HERE, [before] if before else [], THERE).items
    return found


def test_both_ranges_are_whole_steps_and_equally_long() -> None:
    here, there = windows(900, "before", NOON + 42)
    assert here == (NOON - 900, NOON)
    assert there == (NOON - 1800, NOON - 900)
    here, there = windows(DAY, "week", NOON + 1000)
    assert here == (NOON - DAY, NOON)
    assert there == (NOON - 8 * DAY, NOON - 7 * DAY)
    assert windows(HOUR, "yesterday", NOON)[1] == (NOON - DAY - HOUR, NOON - DAY)


def test_what_is_not_kept_cannot_be_compared_with() -> None:
    with pytest.raises(ValueError, match="minutes are kept for 3 days"):
        windows(HOUR, "week", NOON)
    with pytest.raises(ValueError, match="hours are kept for 30 days"):
        windows(20 * DAY, "before", NOON)


def test_a_range_is_not_compared_with_a_part_of_itself() -> None:
    with pytest.raises(ValueError, match="yesterday lies within the range"):
        windows(7 * DAY, "yesterday", NOON)


def test_slower_and_worse_and_more() -> None:
    found = one(ran(NOON - 60, runs=200, bad=20, wait=0.1, run=2.0), ran(NOON - HOUR - 60, bad=1))
    assert (found.runs.before, found.runs.by, found.runs.word) == (100, 1.0, "more")
    assert (found.bad.before, found.bad.word) == (0.01, "worse")
    assert found.bad.by == pytest.approx(0.09)
    assert found.run_p95.by == pytest.approx(1.0, abs=0.15)
    assert found.run_p50.word == "slower"
    assert found.wait_p50.word == found.wait_p95.word == "same"


def test_faster_and_better_and_fewer() -> None:
    found = one(ran(NOON - 60, runs=10, run=0.5), ran(NOON - HOUR - 60, bad=10))
    assert (found.runs.word, found.bad.word, found.run_p50.word) == ("fewer", "better", "faster")


def test_what_differs_by_less_than_is_measured_is_the_same() -> None:
    found = one(ran(NOON - 60, runs=1004, bad=10, run=1.1), ran(NOON - HOUR - 60, runs=1000, bad=11))
    assert {found.runs.word, found.bad.word, found.run_p95.word} == {"same"}


def test_a_task_that_is_new_and_one_that_is_gone() -> None:
    new, gone = one(ran(NOON - 60), None), one(None, ran(NOON - HOUR - 60))
    assert (new.runs.before, new.runs.by, new.runs.word) == (0, None, "new")
    assert (new.run_p95.before, new.run_p95.by, new.run_p95.word) == (None, None, "")
    assert (new.bad.by, new.bad.word) == (None, "")
    assert (gone.runs.by, gone.runs.word, gone.now.finished) == (-1.0, "gone", 0)


def test_from_nothing_to_nothing_is_the_same() -> None:
    found = one(ran(NOON - 60, wait=0.0), ran(NOON - HOUR - 60, wait=0.0))
    assert found.wait_p50.word == "same"


def test_as_json() -> None:
    told = compare.as_json(compare.compare([ran(NOON - 60)], HERE, [ran(NOON - HOUR - 60)], THERE))
    assert told["since"] == "2023-11-15T11:00:00.000Z"
    assert told["before_until"] == "2023-11-15T11:00:00.000Z"
    (pair,) = told["items"]
    assert pair["task"] == "send"
    assert pair["runs"] == {"before": 100.0, "by": 0.0, "word": "same"}
    assert pair["now"]["outcomes"] == {"succeeded": 100}
    new = compare.pair_as_json(one(ran(NOON - 60), None))
    assert new["bad"] == {"before": None, "by": None, "word": ""}
