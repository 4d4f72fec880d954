"""A queue's live retry override: over the task's rule, under the caller's choice (semantics, areas 0.5 and 4)."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core import lifecycle
from treadle.core.backoff import Retry, decide, override
from treadle.core.job import NO_TIMEOUT, ErrorEntry, Job, RetryOverride, State
from treadle.core.outcome import Raised, Succeeded, TimedOut
from treadle.core.queue import Queue

MIDDLE = 0.5
ERROR = ErrorEntry(attempt=1, kind="error", type="ValueError", message="it broke")


def a_job(**fields: Any) -> Job:
    running: dict[str, Any] = {"id": "job", "task": "work", "queue": "mail", "state": State.RUNNING, "token": "token"}
    return Job(**{**running, "attempt": 1, "max_attempts": 10, **fields})


def test_without_an_override_the_rule_is_the_tasks() -> None:
    retry = Retry(base=3.0)
    assert override(retry, None) is retry
    assert override(retry, RetryOverride()) == retry


@pytest.mark.parametrize(
    ("live", "delays"),
    [
        (RetryOverride(base=30.0), [30, 60, 120]),
        (RetryOverride(cap=8.0), [5, 8, 8]),
        (RetryOverride(curve="fixed"), [5, 5, 5]),
        (RetryOverride(curve="linear", base=7.0, cap=20.0), [7, 14, 20]),
    ],
)
def test_the_curve_is_the_queues(live: RetryOverride, delays: list[float]) -> None:
    retry = override(Retry(), live)
    assert [decide(retry, attempt, None, MIDDLE).delay for attempt in (1, 2, 3)] == delays


def test_which_exceptions_are_retried_stays_the_tasks_affair() -> None:
    retry = override(Retry(give_up_on=KeyError, retry_on=(ValueError,)), RetryOverride(base=30.0))
    assert decide(retry, 1, KeyError(), MIDDLE).delay is None
    assert decide(retry, 1, TypeError(), MIDDLE).delay is None
    assert decide(retry, 1, ValueError(), MIDDLE).delay == 30.0


def test_a_tasks_own_function_gives_way_to_a_curve_but_not_to_attempts() -> None:
    own = Retry.custom(lambda attempt, error: 77.0, give_up_on=KeyError)
    assert decide(override(own, RetryOverride(max_attempts=3)), 1, None, MIDDLE).delay == 77.0
    for live, rest in (
        (RetryOverride(base=30.0), 30.0),
        (RetryOverride(cap=2.0), 2.0),
        (RetryOverride(curve="fixed"), 5.0),
    ):
        changed = override(own, live)
        assert decide(changed, 1, None, MIDDLE).delay == rest
        assert decide(changed, 1, KeyError(), MIDDLE).delay is None


def test_a_task_that_is_tried_once_does_not_burn_its_new_attempts_in_moments() -> None:
    assert decide(override(Retry.none(), RetryOverride(max_attempts=5)), 1, None, MIDDLE).delay == 5.0
    assert override(Retry.none(), RetryOverride(max_attempts=1)).base == 0.0


@pytest.mark.parametrize(
    ("fields", "live", "state", "delay"),
    [
        ({"attempt": 2}, RetryOverride(max_attempts=2), State.FAILED, None),
        ({"attempt": 2, "pinned": True}, RetryOverride(max_attempts=2), State.SCHEDULED, 10.0),
        ({"attempt": 2, "max_attempts": None}, RetryOverride(max_attempts=2), State.FAILED, None),
        ({"attempt": 10}, RetryOverride(max_attempts=20, base=1.0, curve="linear"), State.SCHEDULED, 10.0),
        ({"attempt": 1}, RetryOverride(base=60.0), State.SCHEDULED, 60.0),
        ({"attempt": 1, "pinned": True}, RetryOverride(base=60.0), State.SCHEDULED, 60.0),
        ({"attempt": 1}, None, State.SCHEDULED, 5.0),
    ],
)
def test_a_failed_attempt_under_an_override(
    fields: dict[str, Any], live: RetryOverride | None, state: State, delay: float | None
) -> None:
    for outcome in (Raised(ERROR), TimedOut(ERROR)):
        change = lifecycle.finish(a_job(**fields), outcome, Retry(), MIDDLE, live)
        assert (change.to, change.delay) == (state, delay)


def test_a_success_is_a_success() -> None:
    live = RetryOverride(max_attempts=1)
    assert lifecycle.finish(a_job(), Succeeded("1"), Retry(), MIDDLE, live).to is State.SUCCEEDED


def test_the_rescuer_goes_by_it_too() -> None:
    live = RetryOverride(max_attempts=2, base=60.0)
    assert lifecycle.expire(a_job(), MIDDLE, live).delay == 60.0
    assert lifecycle.expire(a_job(attempt=2), MIDDLE, live).to is State.FAILED
    assert lifecycle.rescue(a_job(), "pod", live).to is State.READY
    assert lifecycle.rescue(a_job(attempt=2), "pod", live).to is State.FAILED
    assert lifecycle.rescue(a_job(attempt=2, pinned=True), "pod", live).to is State.READY


def test_what_the_task_is_told_of_its_attempts() -> None:
    assert lifecycle.most_attempts(a_job(), Retry(max_attempts=3)) == 10
    assert lifecycle.most_attempts(a_job(max_attempts=None), Retry(max_attempts=3)) == 3
    assert lifecycle.most_attempts(a_job(), Retry(), RetryOverride(max_attempts=4)) == 4
    assert lifecycle.most_attempts(a_job(pinned=True), Retry(), RetryOverride(max_attempts=4)) == 10


# Jobs that were enqueued without their task's code -------------------------------------------------------------------

ONCE = Retry(max_attempts=1)


@pytest.mark.parametrize(
    ("fields", "live", "attempts", "timeout", "deadline"),
    [
        ({}, None, 1, 60.0, 160.0),
        ({"max_attempts": 7}, None, None, 60.0, 160.0),
        ({"timeout": 5.0}, None, 1, None, None),
        ({"timeout": NO_TIMEOUT}, None, 1, None, None),
        ({}, Queue(name="mail"), 1, 60.0, 160.0),
        # The queue's timeout outranks the task's; its attempts do at every finish, whatever the row says.
        ({}, Queue(name="mail", timeout=9.0, retry=RetryOverride(max_attempts=4)), 1, 9.0, 109.0),
        ({}, Queue(name="mail", timeout=NO_TIMEOUT), 1, NO_TIMEOUT, None),
        # A row that is pinned is not looked at again.
        ({"pinned": True, "timeout": 5.0}, Queue(name="mail", retry=RetryOverride(max_attempts=4)), 4, None, None),
        ({"pinned": True, "timeout": 5.0}, None, 1, None, None),
    ],
)
def test_a_job_that_was_enqueued_by_name_gets_what_its_task_says(
    fields: dict[str, Any], live: Queue | None, attempts: int | None, timeout: float | None, deadline: float | None
) -> None:
    job = a_job(**{"max_attempts": None, "started_at": 100.0, **fields})
    change = lifecycle.resolve(job, ONCE, 60.0, live)
    assert change is not None
    assert (change.why, change.to, change.token) == ("resolved", State.RUNNING, "token")
    assert (change.max_attempts, change.timeout, change.deadline) == (attempts, timeout, deadline)
    whole = lifecycle.resolved(job, change)
    assert whole.max_attempts == (attempts if attempts is not None else job.max_attempts)
    assert whole.timeout == (timeout if timeout is not None else job.timeout)
    assert whole.deadline == (deadline if timeout is not None else job.deadline)
    assert lifecycle.resolve(whole, ONCE, 60.0, live) is None


def test_a_row_that_has_all_is_left_alone() -> None:
    assert lifecycle.resolve(a_job(timeout=5.0), ONCE, 60.0) is None
    assert lifecycle.resolve(a_job(timeout=NO_TIMEOUT), ONCE, 60.0) is None


@pytest.mark.parametrize(
    ("deadline", "heard", "kind"),
    [
        (160.0, 160.0, "timeout"),
        (160.0, 159.0, "worker_lost"),
        (160.0, None, "worker_lost"),
        (None, 500.0, "worker_lost"),
    ],
)
def test_a_run_whose_deadline_had_passed_when_its_pod_was_lost(
    deadline: float | None, heard: float | None, kind: str
) -> None:
    """A task that blocked the pod's loop beyond its timeout was told as if the pod had vanished by itself."""
    change = lifecycle.rescue(a_job(deadline=deadline), "pod", None, heard)
    assert change.error is not None
    assert (change.error.kind, change.crashes, change.to) == (kind, 1, State.READY)
    last = lifecycle.rescue(a_job(deadline=deadline, attempt=10), "pod", None, heard)
    assert last.error is not None
    assert (last.error.kind, last.to) == (kind, State.FAILED)
    third = lifecycle.rescue(a_job(deadline=deadline, crashes=2), "pod", None, heard)
    assert third.error is not None
    assert (third.error.kind, third.to) == ("poison", State.FAILED)
