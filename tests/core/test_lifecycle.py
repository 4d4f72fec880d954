"""What becomes of a job: tables of every decision, and properties that hold for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from treadle.core import lifecycle
from treadle.core.backoff import Retry
from treadle.core.job import CLAIMABLE, NEVER, TERMINAL, Change, Cooling, ErrorEntry, Job, NewJob, State
from treadle.core.lifecycle import TRANSITIONS, IllegalTransition, finish
from treadle.core.outcome import (
    Crashed,
    Elsewhere,
    Interrupted,
    Outcome,
    Raised,
    Snoozed,
    Stopped,
    Succeeded,
    Throttled,
    TimedOut,
    Undecodable,
    Waits,
)

RUNNING = frozenset({State.RUNNING})
MIDDLE = 0.5  # no jitter
ERROR = ErrorEntry(attempt=1, kind="error", type="ValueError", message="it broke")
TIMEOUT = ErrorEntry(attempt=1, kind="timeout", message="too slow")
GARBLED = ErrorEntry(attempt=1, kind="undecodable", message="not JSON")
STOPPED = ErrorEntry(attempt=1, kind="cancelled", message="not wanted")
FOLLOW_UP = NewJob(id="next", task="work", queue="default")


def a_job(**fields: Any) -> Job:
    """A job in its first attempt, of three."""
    running: dict[str, Any] = {
        "id": "job",
        "task": "work",
        "queue": "mail",
        "state": State.RUNNING,
        "attempt": 1,
        "max_attempts": 3,
        "token": "token",
        "pod": "pod",
        "started_at": 100.0,
    }
    return Job(**{**running, **fields})


def finished(outcome: Outcome, retry: Retry | None = None, **fields: Any) -> Change:
    return finish(a_job(**fields), outcome, retry or Retry(), MIDDLE)


def a_change(**fields: Any) -> Change:
    """A Change as the owner of a run writes it."""
    return Change(**{"id": "job", "expect": RUNNING, "token": "token", **fields})


def again(why: str, to: State, delay: float, **fields: Any) -> Change:
    return a_change(why=why, to=to, delay=delay, unless_cancel_wanted=True, **fields)


def failed(error: ErrorEntry) -> Change:
    return a_change(why="failed", to=State.FAILED, error=error, cancel_wanted=False, unless_cancel_wanted=True)


def cancelled(error: ErrorEntry) -> Change:
    return a_change(why="cancelled", to=State.CANCELLED, error=replace(error, kind="cancelled"), cancel_wanted=False)


SUCCESS = a_change(why="succeeded", to=State.SUCCEEDED, result=None, warning=None)
WHILE_IT_RAN = ErrorEntry(attempt=1, kind="cancelled", message="cancelled while it ran", pod="pod", started_at=100.0)

# Outcome → what is written while attempts remain, when none remain, and (either way) when a cancel is wanted.
TABLE: list[tuple[str, Outcome, Change, Change, Change]] = [
    ("returned", Succeeded(), SUCCESS, SUCCESS, SUCCESS),
    (
        "returned something",
        Succeeded('"x"', "careful", (FOLLOW_UP,)),
        replace(SUCCESS, result='"x"', warning="careful", follow_ups=(FOLLOW_UP,)),
        replace(SUCCESS, result='"x"', warning="careful", follow_ups=(FOLLOW_UP,)),
        replace(SUCCESS, result='"x"', warning="careful", follow_ups=(FOLLOW_UP,)),
    ),
    (
        "raised",
        Raised(ERROR),
        again("retried", State.SCHEDULED, 5.0, error=ERROR),
        failed(ERROR),
        cancelled(ERROR),
    ),
    (
        "asked for another time",
        Raised(ERROR, after=7.0),
        again("retried", State.SCHEDULED, 7.0, error=ERROR),
        failed(ERROR),
        cancelled(ERROR),
    ),
    (
        "asked for another time at once",
        Raised(ERROR, after=0.0),
        again("retried", State.READY, 0.0, error=ERROR),
        failed(ERROR),
        cancelled(ERROR),
    ),
    ("failed for good", Raised(ERROR, final=True), failed(ERROR), failed(ERROR), cancelled(ERROR)),
    (
        "timed out",
        TimedOut(TIMEOUT),
        again("retried", State.SCHEDULED, 5.0, error=TIMEOUT),
        failed(TIMEOUT),
        cancelled(TIMEOUT),
    ),
    ("undecodable", Undecodable(GARBLED), failed(GARBLED), failed(GARBLED), cancelled(GARBLED)),
    ("stopped", Stopped(STOPPED), cancelled(STOPPED), cancelled(STOPPED), cancelled(STOPPED)),
    (
        "snoozed",
        Snoozed(60.0),
        again("snoozed", State.SCHEDULED, 60.0, attempt=0, snoozes=5),
        again("snoozed", State.SCHEDULED, 60.0, attempt=0, snoozes=5),
        cancelled(WHILE_IT_RAN),
    ),
    (
        "snoozed for no time",
        Snoozed(0.0),
        again("snoozed", State.SCHEDULED, 1.0, attempt=0, snoozes=5),
        again("snoozed", State.SCHEDULED, 1.0, attempt=0, snoozes=5),
        cancelled(WHILE_IT_RAN),
    ),
    (
        "throttled",
        Throttled(),
        again("throttled", State.SCHEDULED, 1.0, attempt=0, throttles=7, cooling=Cooling("mail", None)),
        again("throttled", State.SCHEDULED, 1.0, attempt=0, throttles=7, cooling=Cooling("mail", None)),
        cancelled(WHILE_IT_RAN),
    ),
    (
        "throttled with a hint",
        Throttled(30.0),
        again("throttled", State.SCHEDULED, 30.0, attempt=0, throttles=7, cooling=Cooling("mail", 30.0)),
        again("throttled", State.SCHEDULED, 30.0, attempt=0, throttles=7, cooling=Cooling("mail", 30.0)),
        cancelled(WHILE_IT_RAN),
    ),
    (
        "interrupted",
        Interrupted(),
        again("released", State.READY, 0.0, attempt=0),
        again("released", State.READY, 0.0, attempt=0),
        cancelled(WHILE_IT_RAN),
    ),
    (
        "interrupted for a while",
        Interrupted(60.0),
        again("released", State.SCHEDULED, 60.0, attempt=0),
        again("released", State.SCHEDULED, 60.0, attempt=0),
        cancelled(WHILE_IT_RAN),
    ),
]
NAMES = [row[0] for row in TABLE]


@pytest.mark.parametrize(("outcome", "expected"), [(row[1], row[2]) for row in TABLE], ids=NAMES)
def test_with_attempts_left(outcome: Outcome, expected: Change) -> None:
    assert finished(outcome, snoozes=4, throttles=6) == expected


@pytest.mark.parametrize(("outcome", "expected"), [(row[1], row[3]) for row in TABLE], ids=NAMES)
def test_with_no_attempts_left(outcome: Outcome, expected: Change) -> None:
    assert finished(outcome, max_attempts=1, snoozes=4, throttles=6) == expected


@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize(("outcome", "expected"), [(row[1], row[4]) for row in TABLE], ids=NAMES)
def test_with_a_cancel_wanted(outcome: Outcome, expected: Change, most: int) -> None:
    assert finished(outcome, max_attempts=most, cancel_wanted=True) == expected


def test_the_last_attempt_is_the_one_that_reaches_the_maximum() -> None:
    states = [finished(Raised(ERROR), attempt=attempt).to for attempt in (1, 2, 3, 4)]
    assert states == [State.SCHEDULED, State.SCHEDULED, State.FAILED, State.FAILED]


def test_a_job_that_knows_no_maximum_asks_its_task() -> None:
    retry = Retry(max_attempts=2)
    assert finished(Raised(ERROR), retry, max_attempts=None).to is State.SCHEDULED
    assert finished(Raised(ERROR), retry, max_attempts=None, attempt=2).to is State.FAILED
    assert finished(Raised(ERROR), retry, max_attempts=3, attempt=2).to is State.SCHEDULED


def test_the_delay_grows_with_the_attempt() -> None:
    assert [finished(Raised(ERROR), attempt=n, max_attempts=9).delay for n in (1, 2, 3)] == [5.0, 10.0, 20.0]


def test_chance_moves_the_delay_of_a_retry() -> None:
    assert finish(a_job(), Raised(ERROR), Retry(), 0.0).delay == 3.75


def test_the_retry_rule_may_give_up_on_an_exception() -> None:
    outcome = Raised(ERROR, exception=KeyError("x"))
    assert finished(outcome, Retry(give_up_on=KeyError)) == failed(ERROR)
    assert finished(outcome, Retry(give_up_on=OSError)).to is State.SCHEDULED


def test_the_retry_rule_sees_attempt_and_exception() -> None:
    seen: list[object] = []

    def rule(attempt: int, exception: BaseException | None) -> float:
        seen.append((attempt, exception))
        return 3.0

    exception = KeyError("x")
    assert finished(Raised(ERROR, exception=exception), Retry.custom(rule), attempt=2).delay == 3.0
    assert finished(TimedOut(TIMEOUT), Retry.custom(rule)).delay == 3.0
    assert seen == [(2, exception), (1, None)]


def test_a_broken_retry_rule_leaves_a_warning_on_the_job() -> None:
    def rule(attempt: int, exception: BaseException | None) -> float:
        raise RuntimeError

    change = finished(Raised(ERROR), Retry.custom(rule))
    assert (change.to, change.delay) == (State.SCHEDULED, 5.0)
    assert isinstance(change.warning, str)
    assert "RuntimeError" in change.warning


def test_a_retry_leaves_an_older_warning_alone() -> None:
    assert finished(Raised(ERROR)).warning is UNSET


# Rescue and expiry --------------------------------------------------------------------------------------------------

LOST = ErrorEntry(
    attempt=1,
    kind="worker_lost",
    message="pod web-1 is gone; it was running attempt 1",
    pod="pod",
    started_at=100.0,
)
RESCUED: dict[str, Any] = {"if_lapsed": True, "foreign": True}


def test_a_rescued_job_is_ready_charged_and_has_one_more_crash() -> None:
    assert lifecycle.rescue(a_job(), "web-1") == again("rescued", State.READY, 0.0, error=LOST, crashes=1, **RESCUED)


def test_the_third_crash_is_poison() -> None:
    changes = [lifecycle.rescue(a_job(crashes=crashes), "web-1") for crashes in (0, 1, 2, 3)]
    assert [change.to for change in changes] == [State.READY, State.READY, State.FAILED, State.FAILED]
    assert [change.crashes for change in changes] == [1, 2, 3, 4]
    poison = ErrorEntry(
        attempt=1,
        kind="poison",
        message="lost 3 pods, the last one web-1: not tried again",
        pod="pod",
        started_at=100.0,
    )
    assert changes[2] == replace(failed(poison), crashes=3, **RESCUED)


def test_a_rescue_at_the_last_attempt_fails_the_job() -> None:
    lost = replace(LOST, attempt=3, message="pod web-1 is gone; it was running attempt 3")
    assert lifecycle.rescue(a_job(attempt=3), "web-1") == replace(failed(lost), crashes=1, **RESCUED)
    assert lifecycle.rescue(a_job(attempt=2), "web-1").to is State.READY


def test_a_rescue_knows_no_task_and_takes_the_default_maximum() -> None:
    assert lifecycle.rescue(a_job(attempt=9, max_attempts=None), "web-1").to is State.READY
    assert lifecycle.rescue(a_job(attempt=10, max_attempts=None), "web-1").to is State.FAILED


def test_a_rescue_obeys_a_cancel_before_all_else() -> None:
    for fields in ({}, {"crashes": 5}, {"attempt": 3}):
        change = lifecycle.rescue(a_job(cancel_wanted=True, **fields), "web-1")
        assert (change.to, change.why) == (State.CANCELLED, "cancelled")
        assert (change.crashes, change.if_lapsed, change.foreign) == (fields.get("crashes", 0) + 1, True, True)
        assert change.error is not None
        assert change.error.kind == "worker_lost"


def test_an_expired_run_takes_the_normal_path_of_a_timeout() -> None:
    error = ErrorEntry(
        attempt=1,
        kind="timeout",
        message="ran past its deadline, and its pod did not end it",
        pod="pod",
        started_at=100.0,
    )
    assert lifecycle.expire(a_job(), MIDDLE) == again("retried", State.SCHEDULED, 5.0, error=error, foreign=True)
    assert lifecycle.expire(a_job(max_attempts=1), MIDDLE) == replace(failed(error), foreign=True)
    assert lifecycle.expire(a_job(cancel_wanted=True), MIDDLE) == replace(cancelled(error), foreign=True)
    assert lifecycle.expire(a_job(), 0.0).delay == 3.75
    assert lifecycle.expire(a_job(max_attempts=None, attempt=9), MIDDLE).to is State.SCHEDULED
    assert lifecycle.expire(a_job(max_attempts=None, attempt=10), MIDDLE).to is State.FAILED


def test_a_claim_given_back_is_due_now_and_uncharged() -> None:
    assert lifecycle.release(a_job()) == finished(Interrupted())
    assert lifecycle.release(a_job(attempt=3)) == again("released", State.READY, 0.0, attempt=2)
    assert lifecycle.release(a_job(cancel_wanted=True)) == cancelled(WHILE_IT_RAN)


# Operators ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.WAITING, State.SCHEDULED, State.READY])
def test_what_has_not_started_is_cancelled_at_once(state: State) -> None:
    assert lifecycle.cancel(a_job(state=state, attempt=2)) == Change(
        id="job",
        why="cancelled",
        expect=frozenset({State.WAITING, State.SCHEDULED, State.READY}),
        to=State.CANCELLED,
        error=ErrorEntry(attempt=2, kind="cancelled", message="cancelled before it ran"),
    )


def test_a_running_job_is_asked() -> None:
    assert lifecycle.cancel(a_job()) == a_change(why="cancel_asked", to=State.RUNNING, cancel_wanted=True)


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_what_has_ended_is_not_cancelled(state: State) -> None:
    assert lifecycle.cancel(a_job(state=state)) is None


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_what_has_ended_can_be_revived_or_removed(state: State) -> None:
    job = a_job(state=state)
    expect = frozenset({state})
    revived = Change(
        id="job",
        why="revived",
        expect=expect,
        to=State.READY,
        delay=0.0,
        attempt=0,
        crashes=0,
        snoozes=0,
        throttles=0,
        cancel_wanted=False,
        result=None,
        warning=None,
    )
    assert lifecycle.revive(job) == revived
    later = replace(revived, to=State.SCHEDULED)
    assert lifecycle.revive(job, delay=5.0) == replace(later, delay=5.0)
    assert lifecycle.revive(job, delay=0.5) == replace(later, delay=0.5)
    assert lifecycle.revive(job, run_at=9.0) == replace(later, delay=None, run_at=9.0)
    assert lifecycle.revive(job, run_at=9.0, delay=5.0) == replace(later, delay=None, run_at=9.0)
    assert lifecycle.revive(job, priority=7, queue="other") == replace(revived, priority=7, queue="other")
    assert lifecycle.remove(job) == Change(id="job", why="removed", expect=expect, remove=True)


@pytest.mark.parametrize("state", [state for state in State if state not in TERMINAL])
def test_what_lives_is_neither_revived_nor_removed(state: State) -> None:
    assert lifecycle.revive(a_job(state=state)) is None
    assert lifecycle.remove(a_job(state=state)) is None


@pytest.mark.parametrize("state", sorted(CLAIMABLE))
def test_what_has_not_started_can_be_given_another_time(state: State) -> None:
    job = a_job(state=state)
    now = Change(id="job", why="rescheduled", expect=CLAIMABLE, to=State.READY, delay=0.0)
    assert lifecycle.reschedule(job) == now
    assert lifecycle.reschedule(job, delay=5.0) == replace(now, to=State.SCHEDULED, delay=5.0)
    assert lifecycle.reschedule(job, delay=0.5) == replace(now, to=State.SCHEDULED, delay=0.5)
    at = replace(now, to=State.SCHEDULED, delay=None, run_at=9.0)
    assert lifecycle.reschedule(job, run_at=9.0) == at
    assert lifecycle.reschedule(job, run_at=9.0, delay=5.0) == at


@pytest.mark.parametrize("state", [state for state in State if state not in CLAIMABLE])
def test_nothing_else_can_be_given_another_time(state: State) -> None:
    assert lifecycle.reschedule(a_job(state=state)) is None


# Obeying a cancel ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [row[1] for row in TABLE if row[0][:8] != "returned"], ids=str)
def test_a_refused_change_becomes_what_it_would_have_been_had_the_pod_known(outcome: Outcome) -> None:
    obeyed = lifecycle.obey_cancel(finished(outcome))
    known = finished(outcome, cancel_wanted=True)
    assert obeyed.error is not None
    assert known.error is not None
    where = {"pod": known.error.pod, "started_at": known.error.started_at}  # a Change alone does not know these
    assert replace(obeyed, error=replace(obeyed.error, **where)) == known


def test_an_obedient_rescue_is_still_a_rescue() -> None:
    change = lifecycle.obey_cancel(lifecycle.rescue(a_job(), "web-1"))
    assert change == replace(cancelled(LOST), crashes=1, **RESCUED)


def test_an_obedient_expiry_is_still_somebody_elses() -> None:
    change = lifecycle.obey_cancel(lifecycle.expire(a_job(), MIDDLE))
    assert (change.to, change.foreign, change.if_lapsed, change.crashes) == (State.CANCELLED, True, False, None)


# Properties ---------------------------------------------------------------------------------------------------------

errors = st.builds(
    ErrorEntry, attempt=st.integers(1, 99), kind=st.sampled_from(["error", "timeout", "undecodable"]), message=st.text()
)
stops = st.builds(ErrorEntry, attempt=st.integers(1, 99), kind=st.just("cancelled"), message=st.text())
delays = st.floats(0, 1e9)
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Succeeded, st.none() | st.text(), st.none() | st.text()),
    st.builds(
        Raised,
        errors,
        st.none() | st.sampled_from([ValueError("x"), KeyError("y")]),
        st.none() | delays,
        st.booleans(),
    ),
    st.builds(TimedOut, errors),
    st.builds(Undecodable, errors),
    st.builds(Snoozed, delays),
    st.builds(Throttled, st.none() | delays),
    st.builds(Stopped, stops),
    st.builds(Interrupted, delays),
)
jobs = st.builds(
    a_job,
    attempt=st.integers(1, 1000),
    max_attempts=st.none() | st.integers(1, 1000),
    crashes=st.integers(0, 5),
    snoozes=st.integers(0, 5),
    throttles=st.integers(0, 5),
    cancel_wanted=st.booleans(),
)
retries = st.sampled_from([Retry(), Retry.none(), Retry.fixed(0), Retry(give_up_on=ValueError), Retry.linear("1m")])
chances = st.floats(0, 1, exclude_max=True)


def is_in_the_table(change: Change) -> bool:
    return change.to is not None and all(change.why in TRANSITIONS[state, change.to] for state in change.expect)


@given(jobs, outcomes, retries, chances)
def test_every_outcome_has_one_answer_and_the_table_has_it(
    job: Job, outcome: Outcome, retry: Retry, chance: float
) -> None:
    change = finish(job, outcome, retry, chance)
    assert is_in_the_table(change)
    assert (change.id, change.token, change.expect) == (job.id, job.token, RUNNING)
    assert not change.foreign
    assert not change.if_lapsed
    assert not change.remove


@given(jobs, outcomes, retries, chances)
def test_a_success_is_never_anything_else_and_nothing_else_is_a_success(
    job: Job, outcome: Outcome, retry: Retry, chance: float
) -> None:
    change = finish(job, outcome, retry, chance)
    assert (change.to is State.SUCCEEDED) == isinstance(outcome, Succeeded)
    if change.to is State.SUCCEEDED:
        assert not change.unless_cancel_wanted


@given(jobs, outcomes, retries, chances)
def test_whatever_a_cancel_could_still_stop_says_so(job: Job, outcome: Outcome, retry: Retry, chance: float) -> None:
    change = finish(job, outcome, retry, chance)
    assert change.unless_cancel_wanted == (change.to not in (State.SUCCEEDED, State.CANCELLED))


@given(jobs, outcomes, retries, chances)
def test_with_a_cancel_wanted_only_a_success_is_no_cancel(
    job: Job, outcome: Outcome, retry: Retry, chance: float
) -> None:
    change = finish(replace(job, cancel_wanted=True), outcome, retry, chance)
    assert change.to is (State.SUCCEEDED if isinstance(outcome, Succeeded) else State.CANCELLED)
    assert change.error is None or change.error.kind == "cancelled"


@given(jobs, outcomes, retries, chances)
def test_the_charge_is_kept_or_returned_once_and_never_negative(
    job: Job, outcome: Outcome, retry: Retry, chance: float
) -> None:
    change = finish(job, outcome, retry, chance)
    returned = change.why in ("snoozed", "throttled", "released")
    assert change.attempt == (job.attempt - 1 if returned else None)
    assert change.attempt is None or change.attempt >= 0


@given(jobs, outcomes, retries, chances)
def test_attempts_are_bounded(job: Job, outcome: Outcome, retry: Retry, chance: float) -> None:
    change = finish(job, outcome, retry, chance)
    most = job.max_attempts or retry.max_attempts
    assert change.why != "retried" or job.attempt < most


@given(jobs, outcomes, retries, chances)
def test_who_comes_back_says_when_and_who_ends_does_not(
    job: Job, outcome: Outcome, retry: Retry, chance: float
) -> None:
    change = finish(job, outcome, retry, chance)
    if change.to in TERMINAL:
        assert change.delay is None
    else:
        assert change.delay is not None
        assert (change.to is State.READY) == (change.delay == 0)


@given(jobs, outcomes, retries, chances)
def test_only_a_throttle_cools_its_queue(job: Job, outcome: Outcome, retry: Retry, chance: float) -> None:
    change = finish(job, outcome, retry, chance)
    assert (change.cooling is not None) == (change.why == "throttled")
    assert change.cooling is None or change.cooling.queue == job.queue


@given(jobs, outcomes, retries, chances)
def test_obeying_a_cancel_always_ends_the_same_claim(job: Job, outcome: Outcome, retry: Retry, chance: float) -> None:
    change = finish(job, outcome, retry, chance)
    obeyed = lifecycle.obey_cancel(change)
    assert is_in_the_table(obeyed)
    assert (obeyed.id, obeyed.token, obeyed.expect) == (change.id, change.token, change.expect)
    assert not obeyed.unless_cancel_wanted
    assert obeyed.follow_ups == ()
    assert obeyed.cooling is None


@given(jobs, chances)
def test_a_rescue_and_an_expiry_are_foreign_and_in_the_table(job: Job, chance: float) -> None:
    rescued, expired = lifecycle.rescue(job, "web-1"), lifecycle.expire(job, chance)
    for change in (rescued, expired):
        assert is_in_the_table(change)
        assert change.foreign
        assert (change.token, change.expect) == (job.token, RUNNING)
        assert change.unless_cancel_wanted == (change.to is not State.CANCELLED)
        assert change.attempt is None
    assert (rescued.if_lapsed, expired.if_lapsed) == (True, False)
    assert (rescued.crashes, expired.crashes) == (job.crashes + 1, None)


@given(jobs, st.sampled_from(list(State)), delays)
def test_what_operators_do_is_in_the_table(job: Job, state: State, delay: float) -> None:
    job = replace(job, state=state)
    for change in (
        lifecycle.cancel(job),
        lifecycle.revive(job, delay=delay),
        lifecycle.reschedule(job, delay=delay),
    ):
        if change is not None:
            # Cancelling what waits and rescheduling what is ready expect every state that the job may slip into.
            assert state in change.expect
            assert is_in_the_table(change)


@pytest.mark.parametrize("state", list(State))
def test_only_what_has_not_started_can_be_moved_or_given_another_priority(state: State) -> None:
    job = a_job(state=state)
    moved, raised = lifecycle.move(job, "bulk"), lifecycle.set_priority(job, 7)
    if state not in {State.WAITING, *CLAIMABLE}:
        assert (moved, raised) == (None, None)
        return
    assert moved is not None
    assert raised is not None
    expect = frozenset({State.WAITING, *CLAIMABLE})
    assert moved == Change(id="job", why="moved", expect=expect, queue="bulk")  # no claim is meant, no state changes
    assert raised == Change(id="job", why="reprioritised", expect=expect, priority=7)
    for change in (moved, raised):
        assert all(change.why in TRANSITIONS[each, each] for each in change.expect)


# The table ----------------------------------------------------------------------------------------------------------


def test_a_change_that_the_table_does_not_have_cannot_be_built() -> None:
    with pytest.raises(IllegalTransition, match="succeeded may not become failed because it is failed"):
        lifecycle._change("job", "failed", frozenset({State.SUCCEEDED}), State.FAILED)
    with pytest.raises(IllegalTransition, match="running may not become failed because it is retried"):
        lifecycle._change("job", "retried", RUNNING, State.FAILED)
    with pytest.raises(IllegalTransition, match="ready may not become"):
        lifecycle._change("job", "failed", RUNNING | {State.READY}, State.FAILED)


def test_the_table_is_the_picture_of_the_design() -> None:
    waits, scheduled, ready, running = State.WAITING, State.SCHEDULED, State.READY, State.RUNNING
    succeeded, failed, cancelled = State.SUCCEEDED, State.FAILED, State.CANCELLED
    assert {pair: set(reasons) for pair, reasons in TRANSITIONS.items()} == {
        (scheduled, ready): {"due", "rescheduled"},
        (scheduled, running): {"claim"},
        (ready, running): {"claim"},
        (ready, scheduled): {"rescheduled"},
        (ready, ready): {"rescheduled", "moved", "reprioritised"},
        (scheduled, scheduled): {"rescheduled", "moved", "reprioritised"},
        (waits, waits): {"moved", "reprioritised"},
        (running, succeeded): {"succeeded"},
        (running, failed): {"failed"},
        (running, cancelled): {"cancelled"},
        (running, scheduled): {"retried", "snoozed", "throttled", "released", "answered"},
        (running, ready): {"retried", "rescued", "released", "answered"},
        (running, running): {"cancel_asked", "resolved"},
        (running, waits): {"waits"},
        (waits, ready): {"answered", "retried"},
        (waits, scheduled): {"answered", "retried"},
        (waits, failed): {"failed"},
        (waits, cancelled): {"cancelled"},
        (scheduled, cancelled): {"cancelled"},
        (ready, cancelled): {"cancelled"},
        (succeeded, ready): {"revived"},
        (failed, ready): {"revived"},
        (cancelled, ready): {"revived"},
        (succeeded, scheduled): {"revived"},
        (failed, scheduled): {"revived"},
        (cancelled, scheduled): {"revived"},
    }


def test_what_has_ended_lives_again_only_by_a_revive() -> None:
    for (source, _), reasons in TRANSITIONS.items():
        assert source not in TERMINAL or reasons == ("revived",)


def test_the_picture_has_every_arrow() -> None:
    lines = lifecycle.diagram().splitlines()
    assert lines[:3] == ["stateDiagram-v2", "    [*] --> ready", "    [*] --> scheduled"]
    assert lines[-3:] == ["    succeeded --> [*]", "    failed --> [*]", "    cancelled --> [*]"]
    arrows = lines[3:-3]
    assert len(arrows) == len(TRANSITIONS)
    for (source, target), reasons in TRANSITIONS.items():
        assert f"    {source} --> {target}: {' · '.join(reasons)}" in arrows


def test_every_arrow_has_a_label() -> None:
    assert all(edge.label for edge in lifecycle.edges())
    assert len(lifecycle.edges()) == len(TRANSITIONS)


CHILD = ErrorEntry(attempt=1, kind="worker_lost", message="killed by SIGSEGV")


def test_a_crash_of_its_own_process_is_charged_counted_and_tried_again() -> None:
    change = finished(Crashed(CHILD))
    assert (change.why, change.to, change.crashes, change.attempt) == ("retried", State.SCHEDULED, 1, None)
    assert change.error == CHILD
    assert not change.foreign and not change.if_lapsed


def test_the_third_crash_of_a_process_is_poison() -> None:
    change = finished(Crashed(CHILD), crashes=2)
    assert (change.why, change.to, change.crashes) == ("failed", State.FAILED, 3)
    assert change.error is not None
    assert change.error.kind == "poison"
    assert "SIGSEGV" in change.error.message


def test_a_run_that_waits_keeps_its_charge_until_the_answer_is_there() -> None:
    expected = a_change(why="waits", to=State.WAITING, run_at=NEVER, answer="a", unless_cancel_wanted=True)
    assert finished(Waits("a")) == expected


def test_a_run_that_would_wait_obeys_a_cancel_instead() -> None:
    change = finished(Waits("a"), cancel_wanted=True)
    assert (change.why, change.to, change.answer) == ("cancelled", State.CANCELLED, None)


def test_what_was_raised_elsewhere_is_told_by_its_entry() -> None:
    assert str(Elsewhere(ERROR, ("builtins.ValueError",))) == "ValueError: it broke"


@pytest.mark.parametrize("outcome", [Snoozed(60.0), Throttled(), Interrupted()], ids=str)
def test_an_attempt_that_was_never_charged_is_not_given_back(outcome: Any) -> None:
    """Attempts count from zero: a storage may refuse a row that says otherwise."""
    assert finish(a_job(attempt=0), outcome, Retry(), 0.5).attempt == 0
