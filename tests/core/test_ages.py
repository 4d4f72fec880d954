"""Waiting times with those that still wait, as a table: each row was once wrong on a page, or could be."""

from __future__ import annotations

import pytest

from treadle.core import ages
from treadle.core.ages import LOOKED_AT, Aged
from treadle.core.histogram import Histogram
from treadle.core.rollup import MINUTE, Rollup
from treadle.core.series import by_pair, series
from treadle.core.warnings import DueTask

NOON = 1_700_049_600.0


def waited(*seconds: float, queue: str = "mail", task: str = "send") -> list[Aged]:
    return [(queue, task, each) for each in seconds]


def claimed(times: int, wait: float) -> Rollup:
    row = Rollup(resolution=MINUTE, at=NOON + 60, queue="mail", task="send", outcomes={"succeeded": times})
    row.wait.add_times(wait, times)
    return row


@pytest.mark.parametrize(
    ("oldest", "due", "ready", "queue", "count", "p50", "p95"),
    [
        ([], [], {}, None, 0, None, None),
        (waited(300.0), [], {}, None, 1, 300.0, 300.0),
        (waited(300.0), [DueTask("mail", "send", 900, 300.0)], {"mail": 900}, None, 1, 300.0, 300.0),  # all were read
        (waited(300.0) + waited(10.0, queue="media"), [], {}, "media", 1, 10.0, 10.0),
        # More than were read: they are younger, however many there are.
        (waited(*[300.0] * LOOKED_AT), [DueTask("mail", "send", 100, 300.0)], {}, None, LOOKED_AT, 300.0, 300.0),
        (waited(*[300.0] * LOOKED_AT), [DueTask("mail", "send", 1_000, 300.0)], {}, None, 1_000, 187.0, 300.0),
        (waited(*[300.0] * LOOKED_AT), [], {"mail": 100_000}, None, 100_000, 150.0, 285.0),
        # One job that priority starves among very many young ones: they are young all the same.
        (
            waited(18_000.0, *[1.0] * (LOOKED_AT - 1)),
            [DueTask("mail", "send", 1_000, 18_000.0)],
            {"mail": 10_000},
            None,
            10_000,
            0.5,
            1.0,
        ),
        # A task of which none was read is younger than all that were.
        (
            waited(*[300.0] * LOOKED_AT, queue="media"),
            [DueTask("mail", "send", 1, 20.0), DueTask("mail", "bulk", 1, 900.0)],
            {},
            "mail",
            2,
            20.0,
            300.0,
        ),
    ],
)
def test_ages_of_jobs_that_still_wait(
    oldest: list[Aged],
    due: list[DueTask],
    ready: dict[str, int],
    queue: str | None,
    count: int,
    p50: float | None,
    p95: float | None,
) -> None:
    found = ages.of(ages.ages(oldest, due, ready), queue)
    assert found.count == count
    assert found.quantile(0.5) == (None if p50 is None else pytest.approx(p50, rel=0.1))
    assert found.quantile(0.95) == (None if p95 is None else pytest.approx(p95, rel=0.1))


def test_ages_are_told_apart_by_queue_and_task() -> None:
    found = ages.ages(waited(1.0) + waited(2.0, task="bulk") + waited(4.0, queue="media"), (), {})
    assert ages.of(found).count == 3
    assert ages.of(found, "mail").max == 2.0
    assert ages.of(found, task="send").max == 4.0
    assert ages.of(found, "mail", "send").max == 1.0


def test_a_job_that_nobody_claims_counts_in_the_waits_of_now() -> None:
    """p95 said 229 ms while jobs had waited for five minutes."""
    rows = [claimed(100, 0.229)]
    assert series(rows, NOON, NOON + 120, 60.0).whole.wait.p95 == pytest.approx(0.229, rel=0.05)
    still = ages.of(ages.ages(waited(*[300.0] * 10), (), {}))
    chart = series(rows, NOON, NOON + 120, 60.0, still)
    assert (chart.whole.wait.count, chart.whole.wait.max) == (110, 300.0)
    assert chart.whole.wait.p50 == pytest.approx(0.229, rel=0.05)
    assert chart.whole.wait.p95 == pytest.approx(300.0, rel=0.05)
    assert [point.wait.count for point in chart.points] == [0, 100, 10]  # of the past nothing else is known
    assert rows[0].wait.count == 100 and still.count == 10


def test_a_task_that_never_ran_has_its_waits_too() -> None:
    times = ages.ages(waited(300.0, task="bulk") + waited(20.0), (), {})
    bulk, send = by_pair([claimed(1, 0.1)], NOON, NOON + 120, 60.0, times)
    assert (bulk.task, bulk.series.whole.finished, bulk.series.whole.wait.max) == ("bulk", 0, 300.0)
    assert (send.series.whole.finished, send.series.whole.wait.count, send.series.whole.wait.max) == (1, 2, 20.0)


def test_a_duration_many_times_is_each_by_itself() -> None:
    one, other = Histogram(), Histogram()
    one.add_times(0.3, 5)
    one.add_times(0.0, 2)
    for value in (0.3, 0.3, 0.3, 0.3, 0.3, 0.0, 0.0):
        other.add(value)
    assert one.counts == other.counts and one.max == other.max
    assert one.sum == pytest.approx(other.sum)
