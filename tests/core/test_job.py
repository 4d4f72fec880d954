"""The nouns: states, jobs and their small values; and the outcomes and errors that belong to them."""

from __future__ import annotations

import inspect
from datetime import timedelta

import msgspec
import pytest

from treadle.core import errors, job, outcome
from treadle.core.errors import FilterError, JobFailed, PayloadError, PayloadTooLarge, ResultNotKept, TreadleError
from treadle.core.job import (
    CLAIMABLE,
    LIVE,
    TERMINAL,
    Change,
    Cooling,
    ErrorEntry,
    Job,
    NewJob,
    QueueChange,
    State,
    UniqueClaim,
)
from treadle.core.outcome import Cancel, Fail, RetryAfter, Signal, Snooze, Throttle

ERROR = ErrorEntry(attempt=1, kind="error")


def test_there_are_seven_states_and_each_is_live_or_ended() -> None:
    assert [state.value for state in State] == [
        "waiting",
        "scheduled",
        "ready",
        "running",
        "succeeded",
        "failed",
        "cancelled",
    ]
    assert set(State) == LIVE | TERMINAL
    assert not LIVE & TERMINAL
    assert {State.SCHEDULED, State.READY} == CLAIMABLE
    assert {State.SUCCEEDED, State.FAILED, State.CANCELLED} == TERMINAL


def test_a_jobs_error_is_its_last() -> None:
    fresh = Job(id="a", task="t", queue="q", state=State.READY)
    assert fresh.error is None
    last = msgspec.structs.replace(ERROR, attempt=2)
    assert msgspec.structs.replace(fresh, errors=(ERROR, last)).error is last


@pytest.mark.parametrize(
    "value",
    [
        Job(id="a", task="t", queue="q", state=State.READY),
        NewJob(id="a", task="t", queue="q"),
        UniqueClaim("key"),
        Cooling("q"),
        Change(id="a", why="removed", expect=TERMINAL),
        QueueChange(name="q"),
        ERROR,
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_do_not_change(value: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        setattr(value, value.__struct_fields__[0], "other")


def test_the_built_in_numbers() -> None:
    numbers = (job.DEFAULT_MAX_ATTEMPTS, job.DEFAULT_TIMEOUT, job.NO_TIMEOUT, job.POISON_CRASHES, job.ERRORS_KEPT)
    assert numbers == (10, 3600.0, 0.0, 3, 32)
    assert job.PAYLOAD_FORMAT == 1


# Signals ------------------------------------------------------------------------------------------------------------


def test_a_signal_is_an_exception_but_no_error() -> None:
    for signal in (RetryAfter(1), Snooze(1), Throttle(), Fail(), Cancel()):
        assert isinstance(signal, Signal)
        assert not isinstance(signal, TreadleError)


def test_retry_after_takes_any_duration_and_says_so() -> None:
    assert RetryAfter("1m30s").delay == 90.0
    assert str(RetryAfter(timedelta(seconds=5))) == "retry after 5 s"
    assert str(RetryAfter(5, "busy")) == "busy"
    with pytest.raises(ValueError, match=r"^RetryAfter "):
        RetryAfter("soon")


def test_a_snooze_lasts_a_second_at_least() -> None:
    assert Snooze(0).delay == outcome.SHORTEST_SNOOZE == 1.0
    assert Snooze("10m").delay == 600.0
    assert str(Snooze(90)) == "snoozed for 90 s"
    with pytest.raises(ValueError, match=r"^Snooze "):
        Snooze(-1)


def test_a_throttle_may_have_a_hint() -> None:
    assert Throttle().delay is None
    assert str(Throttle()) == "throttled"
    assert Throttle("30s").delay == 30.0
    assert str(Throttle(30)) == "throttled for 30 s"
    with pytest.raises(ValueError, match=r"^Throttle "):
        Throttle("")


def test_fail_and_cancel_carry_a_message() -> None:
    assert str(Fail("gone")) == "gone"
    assert str(Cancel("not wanted")) == "not wanted"
    assert str(Fail()) == str(Cancel()) == ""


# Errors -------------------------------------------------------------------------------------------------------------


def test_every_error_is_a_treadle_error() -> None:
    classes = [each for _, each in inspect.getmembers(errors, inspect.isclass) if each.__module__ == errors.__name__]
    assert len(classes) > 10
    assert all(issubclass(each, TreadleError) for each in classes)
    assert all(each.__doc__ for each in classes)


def test_a_payload_error_names_the_place() -> None:
    error = PayloadError("NaN cannot be stored", "user.tags[3]")
    assert (str(error), error.path) == ("user.tags[3]: NaN cannot be stored", "user.tags[3]")
    assert (str(PayloadTooLarge("2 MiB")), PayloadTooLarge("2 MiB").path) == ("2 MiB", "")


def test_a_filter_error_names_the_column() -> None:
    error = FilterError('unknown key "quue"', 14)
    assert (str(error), error.column) == ('column 14: unknown key "quue"', 14)


def test_a_failed_job_says_how() -> None:
    unkept = ResultNotKept("job a succeeded; its result was not kept: too large", "too large")
    assert (str(unkept).endswith(unkept.reason), unkept.reason) == (True, "too large")
    error = JobFailed("job a failed", "timeout", "too slow")
    assert (str(error), error.kind, error.error) == ("job a failed", "timeout", "too slow")


def test_a_timeout_is_a_kind_of_unavailability() -> None:
    assert issubclass(errors.StorageTimeout, errors.StorageUnavailable)
