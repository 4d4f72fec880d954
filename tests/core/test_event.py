"""Timelines: what is written, and what is read off the row."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from treadle.core import event, lifecycle
from treadle.core.backoff import Retry
from treadle.core.event import Event
from treadle.core.job import Change, ErrorEntry, Job, State
from treadle.core.outcome import Interrupted, Outcome, Raised, Snoozed, Succeeded, Throttled
from treadle.core.series import event_view


def a_job(**fields: Any) -> Job:
    return Job(**({"id": "j", "task": "t", "queue": "q", "state": State.RUNNING, "created_at": 100.0} | fields))


def running(**fields: Any) -> Job:
    return a_job(**({"pod": "p1", "token": "k", "started_at": 110.0, "attempt": 1} | fields))


def ended(job: Job, outcome: Outcome) -> Change:
    return lifecycle.finish(job, outcome, Retry(), 0.5)


def told(job: Job, *stored: Event) -> list[tuple[float | None, str, int, str | None]]:
    return [(line.at, line.what, line.attempt, line.pod) for line in event.timeline(job, stored)]


@pytest.mark.parametrize(
    ("outcome", "what", "detail"),
    [
        (Snoozed(30.0), "snoozed", "for 30s"),
        (Throttled(5.0), "throttled", "for 5s"),
        (Interrupted(), "released", ""),
    ],
)
def test_what_the_row_forgets_is_written(outcome: Outcome, what: str, detail: str) -> None:
    job = running()
    line = event.of_change(job, ended(job, outcome), id="e", at=120.0)
    assert line == Event(
        id="e", job="j", what=what, at=120.0, attempt=1, pod="p1", started_at=110.0, detail=detail  # type: ignore[arg-type]
    )  # fmt: skip


def test_what_the_row_remembers_is_not_written() -> None:
    job = running()
    error = ErrorEntry(attempt=1, kind="error")
    for change in (ended(job, Succeeded()), ended(job, Raised(error)), lifecycle.rescue(job, "p1")):
        assert event.of_change(job, change, id="e") is None


def test_what_people_do_is_written_with_their_name() -> None:
    job = running()
    asked = lifecycle.cancel(job)
    assert asked is not None
    line = event.of_change(job, asked, id="e", by="ann", detail="too slow")
    assert line is not None
    assert (line.what, line.by, line.detail, line.at) == ("cancel_asked", "ann", "too slow", None)
    failed = a_job(state=State.FAILED)
    revived = lifecycle.revive(failed, queue="other")
    assert revived is not None
    line = event.of_change(failed, revived, id="e")
    assert line is not None
    assert (line.what, line.by, line.pod, line.started_at) == ("revived", None, None, None)


def test_a_cancel_before_the_start_is_written_only_for_the_name() -> None:
    job = a_job(state=State.READY)
    change = lifecycle.cancel(job)
    assert change is not None
    assert event.of_change(job, change, id="e") is None
    line = event.of_change(job, change, id="e", by="ann")
    assert line is not None
    after = a_job(
        state=State.CANCELLED, errors=(ErrorEntry(attempt=0, kind="cancelled", message="before", ended_at=130.0),)
    )
    assert told(after) == [(100.0, "enqueued", 0, None), (130.0, "cancelled", 0, None)]
    lines = event.timeline(after, [msgspec.structs.replace(line, at=130.0)])
    assert [(each.what, each.by) for each in lines] == [("enqueued", None), ("cancelled", "ann")]


def test_another_queue_and_another_priority_are_told() -> None:
    job = a_job(state=State.READY)
    told = []
    for change in (lifecycle.move(job, "slow"), lifecycle.set_priority(job, 5)):
        assert change is not None
        line = event.of_change(job, change, id="e", detail="operation 7")
        assert line is not None
        told.append((line.what, line.detail))
    assert told == [
        ("moved", "from q to slow, operation 7"),
        ("reprioritised", "priority 5, operation 7"),
    ]


def test_every_name_has_its_place_in_the_order() -> None:
    assert set(event._ORDER) == set(get_args(event.EventName))
    assert set(event.WRITTEN.values()) <= set(event._ORDER)


def test_words_are_bounded_and_storable() -> None:
    assert event.clean("a\x00b\ud800") == "a\\x00b\\ud800"
    assert len(event.clean("x" * 10_000)) == event.LONGEST_DETAIL


def test_the_life_of_a_job_that_went_well() -> None:
    job = running(state=State.SUCCEEDED, finished_at=115.0, run_at=100.0, reason="import")
    lines = event.timeline(job, [])
    assert told(job) == [(100.0, "enqueued", 0, None), (110.0, "claimed", 1, "p1"), (115.0, "succeeded", 1, "p1")]
    assert lines[0].detail == "import"


def test_the_life_of_a_job_that_waits_for_its_time() -> None:
    job = a_job(state=State.SCHEDULED, run_at=160.0)
    (line,) = event.timeline(job, [])
    assert (line.what, line.detail) == ("enqueued", "due 1m later")


def test_a_life_with_everything_in_it() -> None:
    errors = (
        ErrorEntry(
            attempt=1, kind="error", type="ValueError", message="no\nluck", pod="p1", started_at=110.0, ended_at=111.0
        ),
        ErrorEntry(attempt=2, kind="worker_lost", message="gone", pod="p1", started_at=120.0, ended_at=150.0),
        ErrorEntry(attempt=3, kind="timeout", message="late", pod="p2", started_at=160.0, ended_at=170.0),
        ErrorEntry(attempt=4, kind="error", pod="p2", started_at=190.0, ended_at=195.0),
    )  # fmt: skip
    snoozed = Event(id="e", job="j", what="snoozed", at=182.0, attempt=4, pod="p2", started_at=180.0)
    revived = Event(id="f", job="j", what="revived", at=200.0, by="ann")
    failed = running(state=State.FAILED, attempt=4, started_at=190.0, finished_at=195.0, errors=errors)
    life = [
        (100.0, "enqueued", 0, None),
        (110.0, "claimed", 1, "p1"),
        (111.0, "retried", 1, "p1"),
        (120.0, "claimed", 2, "p1"),
        (150.0, "rescued", 2, "p1"),
        (160.0, "claimed", 3, "p2"),
        (170.0, "timed_out", 3, "p2"),
        (180.0, "claimed", 4, "p2"),
        (182.0, "snoozed", 4, "p2"),
        (190.0, "claimed", 4, "p2"),
    ]
    assert told(failed, snoozed) == [*life, (195.0, "failed", 4, "p2")]
    assert event.timeline(failed, [snoozed])[2].detail == "ValueError: no"
    assert event.timeline(failed, [snoozed])[-1].detail == "error"
    again = running(state=State.RUNNING, attempt=1, started_at=210.0, pod="p3", errors=errors)
    assert told(again, snoozed, revived) == [
        *life,
        (195.0, "retried", 4, "p2"),
        (200.0, "revived", 0, None),
        (210.0, "claimed", 1, "p3"),
    ]


def test_a_line_as_people_see_it() -> None:
    view = event_view(Event(id="e", job="j", what="snoozed", at=0.0, attempt=2, detail="for 3 s"))
    assert view.at is not None
    assert (view.what, view.attempt, view.at.timestamp()) == ("snoozed", 2, 0.0)
    assert event_view(Event(id="e", job="j", what="snoozed")).at is None
