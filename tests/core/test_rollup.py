"""Roll-ups: folding over pods and time, choosing what to read, and what a chart shows."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.core import rollup, series
from treadle.core.reading import Reading, fold_readings
from treadle.core.rollup import DAY, HOUR, MINUTE, Rollup

NOON = 1_700_049_600.0  # a whole hour, and a whole half day


def a_row(at: float = NOON, *, queue: str = "mail", task: str = "send", pod: str = "p", took: float = 1.0) -> Rollup:
    row = Rollup(resolution=MINUTE, at=at, queue=queue, task=task, pod=pod, outcomes={"succeeded": 1})
    row.wait.add(took / 2)
    row.run.add(took)
    row.total.add(took * 2)
    return row


def test_rows_do_not_share_what_they_count() -> None:
    a_row()
    assert Rollup(resolution=60, at=0.0, queue="q", task="t").run.count == 0


def test_an_hour_is_all_its_minutes_of_all_pods() -> None:
    rows = [a_row(NOON + 60 * n, pod=pod, took=n + 1) for n in range(60) for pod in ("a", "b")]
    (hour,) = rollup.fold([*rows, a_row(NOON + 7, took=0.0)], HOUR)
    assert (hour.key, hour.outcomes) == ((HOUR, NOON, "mail", "send", ""), {"succeeded": 121})
    assert (hour.run.count, hour.run.max) == (121, 60.0)
    assert rows[0].run.count == 1


def test_queues_tasks_and_hours_stay_apart() -> None:
    rows = [a_row(), a_row(queue="bills"), a_row(task="print"), a_row(NOON + HOUR)]
    assert [row.key[1:4] for row in rollup.fold(rows, HOUR)] == [
        (NOON, "bills", "send"),
        (NOON, "mail", "print"),
        (NOON, "mail", "send"),
        (NOON + HOUR, "mail", "send"),
    ]


@given(st.lists(st.tuples(st.integers(0, 3 * DAY), st.sampled_from("ab"), st.floats(0.001, 1000)), max_size=60))
def test_days_of_hours_are_days_of_minutes(told: list[tuple[int, str, float]]) -> None:
    rows = [a_row(rollup.floor(NOON + at, MINUTE), pod=pod, took=took) for at, pod, took in told]
    by_hours = rollup.fold(rollup.fold(rows, HOUR), DAY)
    at_once = rollup.fold(rows, DAY)
    assert [(row.key, row.outcomes, row.run.counts) for row in by_hours] == [
        (row.key, row.outcomes, row.run.counts) for row in at_once
    ]


@pytest.mark.parametrize(
    ("age", "step", "expected"),
    [
        (HOUR, 60, MINUTE),
        (HOUR, HOUR, HOUR),
        (DAY, 300, MINUTE),
        (7 * DAY, 6 * HOUR, HOUR),
        (7 * DAY, 300, HOUR),  # the minutes are gone
        (90 * DAY, 6 * HOUR, DAY),
        (2000 * DAY, DAY, DAY),
    ],
)
def test_the_coarsest_rows_that_fit_are_read(age: float, step: float, expected: int) -> None:
    assert rollup.resolution_for(age, step) == expected


@pytest.mark.parametrize(
    ("span", "step"), [(HOUR, 60), (6 * HOUR, 300), (DAY, 600), (7 * DAY, 2 * HOUR * 3), (3650 * DAY, 7 * DAY)]
)
def test_a_step_is_round(span: float, step: float) -> None:
    assert rollup.step_for(span, None) == step


def test_a_step_that_is_asked_for_is_whole_minutes_and_not_too_small() -> None:
    assert rollup.step_for(DAY, 300.0) == 300.0
    for bad in (30.0, 90.0, 0.0):
        with pytest.raises(ValueError, match="whole minutes"):
            rollup.step_for(DAY, bad)
    with pytest.raises(ValueError, match=r"10,080 points, and a chart has at most 2,000"):
        rollup.step_for(7 * DAY, 60.0)


def test_a_chart_has_every_point_the_empty_ones_too() -> None:
    chart = series.series([a_row(NOON + 60), a_row(NOON + 60, pod="b", took=3.0)], NOON, NOON + 180, 60.0)
    assert [point.finished for point in chart.points] == [0, 2, 0, 0]
    assert chart.points[0].at == datetime.fromtimestamp(NOON, UTC)
    assert chart.points[0].run == series.Spread(0, None, None, None, None, None)
    run = chart.points[1].run
    assert (run.count, run.mean, run.max) == (2, 2.0, 3.0)
    assert (run.p50, run.p99) == (pytest.approx(1.0, rel=0.05), pytest.approx(3.0, rel=0.05))
    assert chart.whole.outcomes == {"succeeded": 2}


def test_a_row_from_a_clock_ahead_of_ours_is_shown() -> None:
    chart = series.series([a_row(NOON + 600)], NOON, NOON + 60, 60.0)
    assert len(chart.points) == 11
    assert chart.points[-1].finished == 1


def test_a_chart_without_rows_is_empty_and_not_an_error() -> None:
    assert [point.finished for point in series.series([], NOON, NOON, 60.0).points] == [0]


def test_a_chart_as_json() -> None:
    told = series.as_json(series.series([a_row()], NOON, NOON, 60.0))
    assert told["step"] == 60.0
    assert told["points"][0]["at"] == "2023-11-15T12:00:00.000Z"
    assert told["points"][0]["wait"]["mean"] == 0.5
    assert told["whole"]["outcomes"] == {"succeeded": 1}


def test_each_pair_of_queue_and_task_as_a_whole() -> None:
    pairs = series.by_pair([a_row(), a_row(NOON + 60), a_row(task="print")], NOON, NOON + 60, 60.0)
    assert [(each.queue, each.task, each.series.whole.finished) for each in pairs] == [
        ("mail", "print", 1),
        ("mail", "send", 2),
    ]
    assert [point.finished for point in pairs[0].series.points] == [1, 0]
    assert series.as_json(pairs[1])["series"]["whole"]["outcomes"] == {"succeeded": 2}


def test_only_what_ended_for_good_shrinks_a_backlog() -> None:
    row = a_row()
    row.outcomes |= {"retried": 5, "failed": 1}
    assert series.finished_by_queue([row, a_row(queue="bills")]) == {"mail": 2, "bills": 1}


def test_readings_are_averaged_and_the_worst_is_kept() -> None:
    def reading(at: float, **fields: object) -> Reading:
        return Reading(resolution=MINUTE, at=at, pod="p", label="web", slots=10, **fields)  # type: ignore[arg-type]

    (hour,) = fold_readings(
        [
            reading(NOON, cpu=0.2, rss=5, lag=0.1, used=2, threads=3, disk_free=9, read_seconds=0.1, wal_bytes=4),
            reading(NOON + 60, cpu=0.4, rss=3, lag=0.5, used=4, threads=2, disk_free=7, storage_bytes=8, connections=2),
        ],
        HOUR,
    )
    assert hour == Reading(
        resolution=HOUR, at=NOON, pod="p", label="web", cpu=pytest.approx(0.3), rss=5, lag=0.5, threads=3, slots=10,
        used=3.0, disk_free=7, read_seconds=0.1, write_seconds=None, storage_bytes=8, wal_bytes=4, connections=2,
    )  # fmt: skip
    assert hour.key == (HOUR, NOON, "p")
    view = series.reading_view(hour)
    assert (view.label, view.rss, view.at.timestamp()) == ("web", 5, NOON)
    assert series.as_json(view)["connections"] == 2


def test_every_name_of_what_is_kept_has_an_age() -> None:
    assert set(rollup.RESOLUTION_OF) | {"events"} == set(rollup.KEEP)


def test_a_damaged_row_is_left_out_and_its_neighbours_are_read() -> None:
    whole = msgspec.json.encode(a_row())
    decode = msgspec.json.Decoder(Rollup).decode
    assert rollup.readable(decode, [whole, b"{", b'{"at":"x"}', None, whole]) == [a_row(), a_row()]


def test_a_chart_reads_folds_as_far_as_they_are_sure_and_finer_rows_for_the_rest() -> None:
    noon = 1_000 * float(rollup.DAY) + 12 * rollup.HOUR
    now = noon + 600  # the hour before noon may still be folded anew
    edge = noon - rollup.HOUR
    assert rollup.parts(rollup.MINUTE, noon - 300, now) == [(rollup.MINUTE, noon - 300, None)]
    since = noon - 10 * rollup.HOUR
    assert rollup.parts(rollup.HOUR, since, now) == [(rollup.HOUR, since, edge), (rollup.MINUTE, edge, None)]
    day = 1_000 * float(rollup.DAY)
    assert rollup.parts(rollup.DAY, day - rollup.DAY, now) == [
        (rollup.DAY, day - rollup.DAY, day),
        (rollup.HOUR, day, edge),
        (rollup.MINUTE, edge, None),
    ]


def test_a_chart_that_ends_earlier_needs_no_finer_rows() -> None:
    noon = 1_000 * float(rollup.DAY) + 12 * rollup.HOUR
    since, until = noon - 10 * rollup.HOUR, noon - 5 * rollup.HOUR
    assert rollup.parts(rollup.HOUR, since, noon, until) == [(rollup.HOUR, since, until)]
    assert rollup.parts(rollup.HOUR, noon, noon + 60, noon + 60) == [(rollup.MINUTE, noon, noon + 60)]
