"""When a queue will be empty, as a table: each row was once wrong on a page, or could be."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from treadle.core.drain import UNSERVED, Drain, Flow, began, drain, flow, per_minute, seconds, seconds_to_scale_by
from treadle.core.queue import Queue, QueueStats
from treadle.core.series import PairSeries, Point, Series, Spread
from treadle.core.view import QueueView, queue_view

NOW = datetime(2026, 11, 18, 3, 0, 30, tzinfo=UTC)
NOTHING = Spread(0, None, None, None, None, None)


def queue(**given: Any) -> QueueView:
    return replace(queue_view(QueueStats(queue=Queue(name="mail")), []), **{"pods": 1, "ready": 600, **given})


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("given", "moves", "told"),
    [
        ({"ready": 0}, Flow(1.0), Drain("empty")),
        ({}, Flow(2.0), Drain("in", seconds=300.0)),
        ({}, Flow(2.0, growth=-2.0), Drain("in", seconds=300.0)),
        ({}, Flow(2.0, growth=-1.0), Drain("in", seconds=600.0)),  # one comes for two that end
        ({}, Flow(2.0, growth=-3.0), Drain("in", seconds=300.0)),  # cancelled or moved: nothing comes of it
        ({}, Flow(2.0, growth=0.5), Drain("grows", per_minute=30.0)),
        ({}, Flow(2.0, growth=0.001), Drain("steady")),
        ({}, Flow(0.0), Drain("unknown", reason="nothing has ended in the last minutes")),
        # What holds it up.
        ({"paused": True}, Flow(2.0), Drain("never", reason="paused")),
        ({"paused": True, "paused_until": ago(-100)}, Flow(2.0), Drain("in", seconds=400.0)),
        ({"paused_until": ago(-100)}, Flow(2.0), Drain("in", seconds=300.0)),  # it is not paused
        ({"cool_until": ago(-50)}, Flow(2.0), Drain("in", seconds=350.0)),
        ({"cool_until": ago(-50)}, Flow(2.0, growth=-1.0), Drain("in", seconds=700.0)),  # fifty more come meanwhile
        ({"cool_until": ago(50)}, Flow(2.0), Drain("in", seconds=300.0)),
        ({"pods": 0}, Flow(2.0), Drain("never", reason="no worker serves it")),
        ({"max_workers": 0}, Flow(2.0), Drain("never", reason="max_workers is 0")),
        ({"rate": 0.0}, Flow(2.0), Drain("never", reason="its rate is 0")),
        # A rate: 2,753 jobs at one a minute take 46 hours, whatever ended before it was set.
        ({"ready": 2753, "rate": 1 / 60}, Flow(20.0), Drain("in", seconds=2753 * 60.0)),
        ({"ready": 2753, "rate": 1 / 3600}, Flow(0.0), Drain("in", seconds=2753 * 3600.0)),
        ({"rate": 10.0}, Flow(0.0), Drain("unknown", reason="nothing has ended in the last minutes")),
        ({"rate": 10.0}, Flow(2.0), Drain("in", seconds=300.0)),
        ({"ready": 600, "capped_at": 600}, Flow(2.0), Drain("in", seconds=300.0)),
    ],
)
def test_when_a_queue_will_be_empty(given: dict[str, Any], moves: Flow, told: Drain) -> None:
    found = drain(queue(**given), moves, NOW)
    assert (found.kind, found.reason) == (told.kind, told.reason)
    assert found.seconds == pytest.approx(told.seconds)
    assert found.per_minute == pytest.approx(told.per_minute)


def minutes(*ended: int, task: str = "pay") -> PairSeries:
    """The last of them began half a minute ago."""
    first = ago(30 + 60 * (len(ended) - 1))
    points = tuple(
        Point(
            at=first + timedelta(minutes=n),
            outcomes={"succeeded": each, "retried": 1000},
            wait=NOTHING,
            run=NOTHING,
            total=NOTHING,
        )
        for n, each in enumerate(ended)
    )
    return PairSeries("mail", task, Series(step=60.0, points=points, whole=points[0]))


def test_the_pace_is_that_of_the_time_that_was_really_watched() -> None:
    assert flow([minutes(60, 60, 60, 60, 60, 60, 60, 60, 30)], [], 0, NOW).out == pytest.approx(1.0)
    # It was idle until a minute and a half ago: it is as fast as that.
    assert flow([minutes(0, 0, 0, 0, 0, 60, 30)], [], 0, NOW).out == pytest.approx(1.0)
    assert flow([minutes(0, 60, 30), minutes(0, 60, 30, task="b")], [], 0, NOW).out == pytest.approx(2.0)
    assert flow([minutes(0, 0)], [], 0, NOW) == Flow()
    assert flow([], [], 0, NOW) == Flow()
    just = replace(
        minutes(10), series=replace(minutes(10).series, points=(replace(minutes(10).series.points[0], at=NOW),))
    )
    assert flow([just], [], 0, NOW).out == pytest.approx(1.0)


def test_a_minute_in_which_all_began_was_watched_from_then_on() -> None:
    first = minutes(0, 40)
    assert flow([first], [], 0, NOW).out == pytest.approx(40 / 30)
    assert flow([first], [], 0, NOW, ago(20)).out == pytest.approx(2.0)
    assert flow([first], [], 0, NOW, ago(2)).out == pytest.approx(4.0)  # ten seconds at least
    assert flow([first], [], 0, NOW, ago(500)).out == pytest.approx(40 / 30)
    # What was noted for the minute as a whole was noted later than its beginning.
    assert flow([first], [(ago(30), 300)], 100, NOW, ago(20)).growth is None
    assert flow([first], [(ago(15), 300)], 150, NOW, ago(20)).growth == pytest.approx(-10.0)


def test_what_is_ready_grows_by_what_was_noted_of_it() -> None:
    busy = minutes(60, 60, 60, 60, 60, 30)
    assert flow([busy], [(ago(600), 0), (ago(300), 100), (ago(60), 300)], 400, NOW).growth == pytest.approx(1.0)
    assert flow([busy], [(ago(300), None), (ago(60), 300)], 300, NOW).growth == pytest.approx(0.0)
    assert flow([busy], [(ago(2), 300)], 300, NOW).growth is None
    assert flow([], [(ago(100), 300)], 200, NOW).growth == pytest.approx(-1.0)
    # What lay there before anything ran says nothing of how it runs.
    assert flow([minutes(60, 30)], [(ago(200), 0), (ago(60), 300)], 240, NOW).growth == pytest.approx(-1.0)


def test_per_minute_divides_by_the_time_that_the_minutes_cover() -> None:
    """208 a minute were shown as 259: four steps of five minutes, of which one had just begun, were a quarter hour."""
    assert per_minute([minutes(*[208] * 8, 104)], NOW) == pytest.approx(208.0)
    assert per_minute([minutes(208, 104)], NOW) == pytest.approx(208.0)
    assert per_minute([], NOW) == 0.0


@pytest.mark.parametrize(
    ("ran", "starts", "began_ago"),
    [
        ([], [ago(20)], None),
        ([minutes(0, 0, 60, 60, 30)], [], 150.0),
        ([minutes(60, 30)], [ago(3600)], 90.0),
        ([minutes(60, 30)], [ago(75), ago(60), ago(10)], 75.0),  # the first pod started within its first minute
        ([minutes(60, 30)], [ago(10)], 90.0),  # who ran the first is not known any more
        ([minutes(60, 30), minutes(60, 60, 30, task="b")], [ago(140)], 140.0),
    ],
)
def test_since_when_anything_was_watched(
    ran: list[PairSeries], starts: list[datetime], began_ago: float | None
) -> None:
    idle = replace(
        minutes(0).series, points=tuple(replace(point, outcomes={}) for point in minutes(*[0] * 30).series.points)
    )
    quiet = [PairSeries("mail", "quiet", idle)]
    some = [
        replace(
            pair,
            series=replace(
                pair.series,
                points=tuple(
                    point if point.outcomes["succeeded"] else replace(point, outcomes={})
                    for point in pair.series.points
                ),
            ),
        )
        for pair in ran
    ]
    assert began([*quiet, *some], starts) == (None if began_ago is None else ago(began_ago))


def test_per_minute_of_a_first_minute_is_that_of_its_seconds() -> None:
    """Twenty seconds after the start of all, 40 jobs are 120 a minute, not eight."""
    assert per_minute([minutes(0, 0, 0, 0, 0, 0, 40)], NOW, ago(20)) == pytest.approx(120.0)
    assert per_minute([minutes(*[208] * 8, 104)], NOW, ago(3600)) == pytest.approx(208.0)
    assert per_minute([minutes(0, 40)], NOW, ago(20), of=("failed",)) == 0.0


@pytest.mark.parametrize(
    ("found", "measured", "scaled"),
    [
        (Drain("empty"), 0.0, 0.0),
        (Drain("in", seconds=252.0), 252.0, 252.0),
        (Drain("in", seconds=165_180.0), 165_180.0, 86_400.0),
        (Drain("grows", per_minute=40.0), float("inf"), 86_400.0),
        (Drain("steady"), float("inf"), 86_400.0),
        (Drain("unknown"), float("inf"), 86_400.0),
        (Drain("never", reason=UNSERVED), float("inf"), 86_400.0),
        (Drain("never", reason="paused"), float("inf"), 0.0),  # more workers would not help
        (Drain("never", reason="max_workers is 0"), float("inf"), 0.0),
    ],
)
def test_a_drain_as_one_number(found: Drain, measured: float, scaled: float) -> None:
    assert seconds(found) == measured
    assert seconds_to_scale_by(found, 86_400.0) == scaled
