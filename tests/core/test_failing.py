"""Which tasks and queues fail more than usual: the rules as tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from treadle.core import failing, rollup
from treadle.core.failing import Failing, Runs, Watched, find, limit
from treadle.core.series import PairSeries, Point, Series, Spread

NOW = datetime(2026, 11, 18, 3, tzinfo=UTC)
NOTHING = Spread(0, None, None, None, None, None)
PAY = ("mail", "pay")


def judged(**given: Any) -> Failing | None:
    found = find(Watched(**{name: {PAY: each} for name, each in given.items()}))
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        # Five minutes with twenty runs or more.
        ({"short": Runs(285, 285)}, failing.SHORT),
        ({"short": Runs(2, 20)}, failing.SHORT),
        ({"short": Runs(1, 20)}, None),  # 5 % are no more than 5 %
        ({"short": Runs(19, 19)}, None),  # too few to judge five minutes by
        # An hour with five runs or more, half of them bad.
        ({"short": Runs(2, 2), "long": Runs(5, 5)}, failing.LONG),
        ({"long": Runs(3, 6)}, failing.LONG),
        ({"long": Runs(2, 6)}, None),
        ({"long": Runs(4, 4)}, None),
        # What is usual.
        ({"short": Runs(25, 100), "usual": 0.2}, None),
        ({"short": Runs(31, 100), "usual": 0.2}, failing.SHORT),
        ({"short": Runs(7, 100), "usual": 0.01}, failing.SHORT),
        ({"short": Runs(100, 100), "usual": 1.0}, failing.SHORT),  # never silent for having lasted
        ({"short": Runs(70, 100), "usual": 0.5}, None),
        # Muted causes.
        ({"short": Runs(50, 100), "muted": 1.0}, None),
        ({"short": Runs(50, 100), "muted": 0.5}, failing.SHORT),
        ({"short": Runs(50, 60), "muted": 0.96}, None),  # twelve runs are left to judge by
        ({}, None),
    ],
)
def test_a_task_is_told_if_it_fails_more_than_usual(given: dict[str, Any], told: float | None) -> None:
    found = judged(**given)
    assert (None if found is None else found.over) == told


def test_a_task_that_fails_is_told_whatever_other_queues_and_tasks_do() -> None:
    """857 failing runs were silent beside 100,000 good ones, as long as all were judged together."""
    others = {("media", f"task{n}"): Runs(0, 50_000) for n in range(2)} | {("mail", "other"): Runs(0, 50_000)}
    (found,) = find(Watched(short={**others, PAY: Runs(285, 285)}))
    assert found.pair == PAY
    assert found.runs == Runs(285, 285)


def test_a_queue_is_told_if_several_tasks_fail_a_little() -> None:
    few = {("mail", f"task{n}"): Runs(4, 10) for n in range(4)}
    (found,) = find(Watched(short=few))
    assert (found.pair, found.runs) == (("mail", ""), Runs(16, 40))
    assert find(Watched(short=few, usual={("mail", ""): 0.4})) == ()


def test_a_queue_is_not_told_for_a_task_that_was_judged_by_itself() -> None:
    found = find(Watched(short={PAY: Runs(30, 30), ("mail", "a"): Runs(0, 30), ("mail", "b"): Runs(0, 30)}))
    assert [each.pair for each in found] == [PAY]
    busy = {PAY: Runs(30, 100), ("mail", "a"): Runs(0, 10)}
    assert find(Watched(short=busy, usual={PAY: 0.3})) == ()
    assert find(Watched(short=busy, muted={PAY: 1.0})) == ()
    assert find(Watched(long={PAY: Runs(4, 4), ("mail", "a"): Runs(0, 4)}))[0].pair == ("mail", "")


def test_those_with_the_most_bad_runs_come_first() -> None:
    given = {("q", "a"): Runs(30, 30), ("q", "b"): Runs(40, 40), ("p", "b"): Runs(30, 30)}
    assert [each.pair for each in find(Watched(short=given))] == [("q", "b"), ("p", "b"), ("q", "a")]


def test_what_came_of_muted_causes_is_said() -> None:
    found = judged(short=Runs(50, 100), muted=0.5)
    assert found is not None
    assert (found.runs, found.muted) == (Runs(25, 75), 25)


@pytest.mark.parametrize(("usual", "above"), [(0.0, 0.05), (0.04, 0.09), (0.2, 0.3), (0.5, 0.75), (0.9, 0.75)])
def test_the_limit_grows_with_what_is_usual_up_to_a_half(usual: float, above: float) -> None:
    assert limit(usual) == pytest.approx(above)


def series(*outcomes: dict[str, int], step: float = 300.0) -> Series:
    first = NOW - timedelta(seconds=step * (len(outcomes) - 1))
    points = tuple(
        Point(at=first + timedelta(seconds=n * step), outcomes=each, wait=NOTHING, run=NOTHING, total=NOTHING)
        for n, each in enumerate(outcomes)
    )
    return Series(step=step, points=points, whole=points[0])


def test_runs_that_end_badly_are_failed_retried_and_rescued() -> None:
    every = {"succeeded": 1, "failed": 2, "retried": 4, "rescued": 8, "snoozed": 16, "cancelled": 32, "released": 64}
    assert failing.runs_of(every) == Runs(14, 127)
    assert set(rollup.BAD) < set(every)
    assert Runs().share == 0.0


def test_the_usual_share_is_the_median_of_the_steps_that_had_runs() -> None:
    quiet: list[dict[str, int]] = [{}, {}]
    day = [{"failed": 1, "succeeded": 4}] * 11 + [{"failed": 5}] * 2
    assert failing.usual(series(*quiet, *day, {"failed": 100})) == pytest.approx(0.2)
    assert failing.usual(series(*day[:11], {"failed": 9})) == 0.0  # no hour's worth


def test_what_happened_lately_is_summed_pair_by_pair() -> None:
    since = NOW.timestamp() - 300.0
    pair = PairSeries("mail", "pay", series({"failed": 1}, {"failed": 2}, {"retried": 4}, {"succeeded": 8}, step=150.0))
    assert failing.lately([pair], since) == {PAY: Runs(6, 14)}


def test_since_when_a_task_fails_is_in_its_history() -> None:
    good, bad = {"succeeded": 9}, {"retried": 9}
    assert failing.since([], None, 0.0) is failing.since([series(good)], None, 0.0) is None
    own = series(*[good] * 12, bad, {}, bad, step=60.0)
    began = own.points[12].at.timestamp()
    assert failing.since([own], None, 0.0) == (began, False)
    assert failing.since([own, series(*[good] * 15, step=60.0)], None, 0.8) is None  # as usual, with the other task
    whole = series(bad, bad, step=60.0)
    assert failing.since([whole], None, 0.0) == (whole.points[0].at.timestamp(), True)
    day = series(*[good] * 3, bad, bad)
    longer = Series(
        step=300.0, whole=day.whole,
        points=tuple(replace(each, at=each.at - timedelta(days=1)) for each in day.points),
    )  # fmt: skip
    assert failing.since([whole], longer, 0.0) == (longer.points[3].at.timestamp(), False)
    assert failing.since([whole], series(good), 0.0) == (whole.points[0].at.timestamp(), True)
    later = Series(
        step=300.0, whole=day.whole, points=tuple(replace(each, at=each.at + timedelta(days=1)) for each in day.points)
    )
    assert failing.since([whole], later, 0.0) == (whole.points[0].at.timestamp(), True)
