from __future__ import annotations

from treadle.core import depth
from treadle.core.depth import DepthSeries, depth_series, sounding
from treadle.core.queue import Queue, QueueStats
from treadle.core.reading import FLEET, Depth, Reading, fold_readings
from treadle.core.rollup import HOUR, MINUTE

NOON = 1_700_049_600.0


def stats(name: str, ready: int = 0, scheduled: int = 0, running: int = 0) -> QueueStats:
    return QueueStats(queue=Queue(name=name), ready=ready, scheduled=scheduled, running=running)


def noted(at: float, *found: QueueStats) -> Reading:
    return sounding(found, at)


def ready(found: DepthSeries, queue: str | None = None) -> list[int | None]:
    points = found.points if queue is None else {each.queue: each.points for each in found.queues}[queue]
    return [point.ready for point in points]


def test_a_minute_has_the_sum_and_what_is_not_empty() -> None:
    reading = noted(NOON + 42, stats("mail", 3, 2, 1), stats("bills", 0, 0, 5), stats("idle"))
    assert reading.key == (MINUTE, NOON, FLEET)
    assert reading.depths == {"": Depth(3, 2, 6), "mail": Depth(3, 2, 1), "bills": Depth(0, 0, 5)}
    assert noted(NOON).depths == {"": Depth(0, 0, 0)}


def test_of_very_many_queues_the_deepest_are_noted_apart_and_all_in_the_sum() -> None:
    many = [stats(f"q{n:04}", n + 1) for n in range(depth.MOST_QUEUES + 50)]
    reading = noted(NOON, *many)
    assert len(reading.depths) == depth.MOST_QUEUES + 1
    assert reading.depths[""].ready == sum(each.ready for each in many)
    assert "q0000" not in reading.depths
    found = depth_series([reading], NOON, NOON, 60.0, "q0000")
    assert ready(found) == [None]  # not known is not empty


def test_a_chart_has_all_steps_and_no_false_zero() -> None:
    rows = [noted(NOON, stats("mail", 3), stats("bills", 1)), noted(NOON + 120, stats("bills", 4))]
    found = depth_series(rows, NOON, NOON + 180, 60.0)
    assert ready(found) == [4, None, 4, None]
    assert ready(found, "mail") == [3, None, 0, None]  # the leader looked, and it was empty
    assert [each.queue for each in found.queues] == ["bills", "mail"]
    assert found.points[0].at.timestamp() == NOON


def test_a_coarser_step_shows_the_most_that_lay_there() -> None:
    rows = [noted(NOON, stats("mail", 3, 9)), noted(NOON + 60, stats("mail", 5, 2)), noted(NOON + 300)]
    found = depth_series(rows, NOON, NOON + 300, 300.0)
    assert ready(found) == [5, 0]
    assert found.points[0].scheduled == 9


def test_of_one_queue_only() -> None:
    rows = [noted(NOON, stats("mail", 3), stats("bills", 1))]
    found = depth_series(rows, NOON, NOON, 60.0, "mail")
    assert ready(found) == [3]
    assert [each.queue for each in found.queues] == ["mail"]


def test_an_hour_keeps_the_deepest_of_its_minutes() -> None:
    (hour,) = fold_readings([noted(NOON, stats("mail", 3)), noted(NOON + 60, stats("mail", 1, 7))], HOUR)
    assert hour.pod == FLEET
    assert hour.depths == {"": Depth(3, 7, 0), "mail": Depth(3, 7, 0)}


def test_what_a_pod_measured_of_itself_says_nothing_about_depth() -> None:
    found = depth_series([Reading(resolution=MINUTE, at=NOON, pod="p")], NOON, NOON, 60.0)
    assert ready(found) == [None]


def test_as_json() -> None:
    told = depth.as_json(depth_series([noted(NOON, stats("mail", 3, 1, 2))], NOON, NOON, 60.0))
    point = {"at": "2023-11-15T12:00:00.000Z", "ready": 3, "scheduled": 1, "running": 2}
    assert told == {"step": 60.0, "points": [point], "queues": [{"queue": "mail", "points": [point]}]}
