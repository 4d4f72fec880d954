"""The delay curve and the rules around it (semantics, area 4)."""

from __future__ import annotations

import dataclasses
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.core.backoff import Decision, Retry, decide, delay, table
from treadle.core.job import ErrorEntry
from treadle.core.outcome import Elsewhere

MIDDLE = 0.5  # no jitter


def test_the_default_curve_doubles_from_five_seconds_in_ten_attempts() -> None:
    assert table(Retry()) == [(n, 5.0 * 2 ** (n - 1)) for n in range(1, 10)]
    assert sum(rest for _, rest in table(Retry())) == 2555.0  # about 43 minutes


def test_the_delay_is_capped_before_it_is_jittered() -> None:
    retry = Retry(base=10, cap=60, jitter=0.5)
    assert delay(retry, 3, MIDDLE) == 40
    assert delay(retry, 4, MIDDLE) == 60
    assert delay(retry, 4, 0.0) == 30
    assert delay(retry, 4, 0.75) == 75


@pytest.mark.parametrize("attempt", [-3, 0, 1])
def test_before_the_first_attempt_the_delay_is_that_after_the_first(attempt: int) -> None:
    assert delay(Retry(), attempt, MIDDLE) == 5.0


@pytest.mark.parametrize(
    "retry", [Retry(), Retry(factor=1.0, base=3600), Retry(factor=1e308), Retry(factor=1.001), Retry.linear("1s")]
)
@pytest.mark.parametrize("attempt", [10**4, 10**12, 10**400], ids=["ten thousand", "a trillion", "beyond floats"])
def test_huge_attempts_stay_at_the_cap(retry: Retry, attempt: int) -> None:
    assert delay(retry, attempt, MIDDLE) == 3600.0


def test_a_base_of_zero_stays_zero() -> None:
    assert delay(Retry(base=0), 10**6, 0.9) == 0


def test_a_fixed_delay_never_changes_and_knows_no_cap() -> None:
    retry = Retry.fixed("2h", max_attempts=4)
    assert table(retry) == [(1, 7200.0), (2, 7200.0), (3, 7200.0)]
    assert delay(retry, 10**400, MIDDLE) == 7200.0
    assert delay(retry, 1, 0.0) == 5400.0
    assert delay(Retry.fixed(60, jitter=0), 1, 0.0) == 60.0
    assert delay(Retry.fixed(0), 5, 0.9) == 0.0


def test_a_linear_delay_grows_by_its_step() -> None:
    retry = Retry.linear(timedelta(seconds=10), 5, cap=35, jitter=0)
    assert table(retry) == [(1, 10.0), (2, 20.0), (3, 30.0), (4, 35.0)]


def test_an_exponential_delay_takes_its_numbers_first() -> None:
    assert Retry.exponential("1s", 3.0, "1m", 4) == Retry(max_attempts=4, base=1.0, factor=3.0, cap=60.0)
    assert table(Retry.exponential("1s", 3.0, "1m", 4)) == [(1, 1.0), (2, 3.0), (3, 9.0)]
    assert Retry.exponential() == Retry()


def test_no_retry_is_one_attempt() -> None:
    assert Retry.none().max_attempts == 1
    assert table(Retry.none()) == []


def test_durations_are_kept_as_seconds_also_when_a_queue_overrides_them() -> None:
    retry = Retry(base="1m", cap=timedelta(hours=2))
    assert (retry.base, retry.cap) == (60.0, 7200.0)
    assert dataclasses.replace(retry, base="2m").base == 120.0


@settings(deadline=None, max_examples=200)
@given(
    st.floats(0, 1e6),
    st.floats(1, 100),
    st.floats(0, 1e6),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 10**6),
    st.floats(0, 1, exclude_max=True),
)
def test_a_delay_is_finite_and_within_the_jitter_of_the_cap(
    base: float, factor: float, cap: float, jitter: float, attempt: int, chance: float
) -> None:
    retry = Retry(base=base, factor=factor, cap=cap, jitter=jitter)
    assert 0 <= delay(retry, attempt, chance) <= cap * (1 + jitter)
    assert delay(retry, attempt, MIDDLE) <= delay(retry, attempt + 1, MIDDLE)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1001}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"base": -1}, "retry base must not be negative"),
        ({"base": "soon"}, "retry base"),
        ({"cap": math.nan}, "retry cap"),
        ({"factor": 0.5}, "factor"),
        ({"factor": math.inf}, "factor"),
        ({"factor": math.nan}, "factor"),
        ({"factor": "2"}, "factor"),
        ({"factor": True}, "factor"),
        ({"jitter": 1.0}, "jitter"),
        ({"jitter": -0.1}, "jitter"),
        ({"jitter": math.nan}, "jitter"),
        ({"jitter": None}, "jitter"),
        ({"retry_on": "ValueError"}, "retry_on"),
        ({"retry_on": [ValueError]}, "retry_on"),
        ({"retry_on": (ValueError, int)}, "retry_on"),
        ({"give_up_on": int}, "give_up_on"),
        ({"give_up_on": None}, "give_up_on"),
        ({"curve": "cubic"}, "curve"),
        ({"curve": "custom"}, "need each other"),
        ({"function": lambda attempt, exception: 1}, "need each other"),
        ({"curve": "custom", "function": 5}, "plain function"),
    ],
)
def test_a_wrong_setting_is_refused_where_it_is_written(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Retry(**wrong)


def test_a_custom_function_must_not_be_async() -> None:
    async def later(attempt: int, exception: BaseException | None) -> float:
        return 1.0

    with pytest.raises(ValueError, match="plain function"):
        Retry.custom(later)  # type: ignore[arg-type]


def test_every_exception_is_retried_by_default() -> None:
    for exception in (ValueError(), SystemExit(), KeyboardInterrupt(), None):
        assert decide(Retry(), 1, exception, MIDDLE) == Decision(5.0)


def test_with_retry_on_everything_else_fails_at_once() -> None:
    retry = Retry(retry_on=(OSError, KeyError))
    assert decide(retry, 1, ConnectionError(), MIDDLE) == Decision(5.0)
    assert decide(retry, 1, ValueError(), MIDDLE) == Decision(None)
    assert decide(Retry(retry_on=()), 1, ValueError(), MIDDLE) == Decision(None)
    assert decide(Retry(retry_on=OSError), 1, ConnectionError(), MIDDLE) == Decision(5.0)


def test_give_up_on_wins_over_retry_on() -> None:
    retry = Retry(retry_on=OSError, give_up_on=ConnectionError)
    assert decide(retry, 1, ConnectionResetError(), MIDDLE) == Decision(None)
    assert decide(retry, 1, FileNotFoundError(), MIDDLE) == Decision(5.0)


def test_what_was_raised_in_another_process_is_known_by_the_names_of_its_classes() -> None:
    types = ("shop.Refused", "builtins.ConnectionError", "builtins.OSError", "builtins.Exception")
    error = Elsewhere(ErrorEntry(attempt=1, kind="error", type="shop.Refused"), types)
    assert decide(Retry(give_up_on=OSError), 1, error, MIDDLE) == Decision(None)
    assert decide(
        Retry(give_up_on=(KeyError, type("Refused", (Exception,), {"__module__": "shop"}))), 1, error, MIDDLE
    ) == (Decision(None))
    assert decide(Retry(give_up_on=KeyError), 1, error, MIDDLE) == Decision(5.0)
    assert decide(Retry(retry_on=KeyError), 1, error, MIDDLE) == Decision(None)
    assert decide(Retry(retry_on=Exception), 1, error, MIDDLE) == Decision(5.0)


def test_a_run_without_an_exception_is_no_matter_of_the_lists() -> None:
    retry = Retry(retry_on=OSError, give_up_on=BaseException)
    assert decide(retry, 1, None, MIDDLE) == Decision(5.0)


def test_a_custom_function_gives_the_exact_delay() -> None:
    retry = Retry.custom(lambda attempt, exception: f"{attempt}m", max_attempts=3)
    assert decide(retry, 2, ValueError(), 0.0) == Decision(120.0)
    assert table(retry) == [(1, 60.0), (2, 120.0)]


def test_a_custom_function_sees_the_exception_and_may_give_up() -> None:
    retry = Retry.custom(lambda attempt, exception: None if isinstance(exception, KeyError) else 7)
    assert decide(retry, 1, KeyError(), MIDDLE) == Decision(None)
    assert decide(retry, 1, ValueError(), MIDDLE) == Decision(7.0)
    assert table(Retry.custom(lambda attempt, exception: None if attempt > 2 else 1)) == [(1, 1.0), (2, 1.0)]


def test_the_lists_come_before_a_custom_function() -> None:
    retry = Retry.custom(lambda attempt, exception: 1, give_up_on=KeyError, retry_on=LookupError)
    assert decide(retry, 1, KeyError(), MIDDLE) == Decision(None)
    assert decide(retry, 1, ValueError(), MIDDLE) == Decision(None)
    assert decide(retry, 1, IndexError(), MIDDLE) == Decision(1.0)


@pytest.mark.parametrize("raised", [ZeroDivisionError("secret"), SystemExit(1), KeyboardInterrupt()])
def test_a_custom_function_that_raises_falls_back_to_the_default_curve_with_a_warning(raised: BaseException) -> None:
    def broken(attempt: int, exception: BaseException | None) -> float:
        raise raised

    decision = decide(Retry.custom(broken), 3, ValueError(), MIDDLE)
    assert decision.delay == 20.0
    assert decision.warning is not None
    assert type(raised).__name__ in decision.warning
    assert "secret" not in decision.warning


@pytest.mark.parametrize("rubbish", [-1, math.nan, math.inf, True, "soon", [], object()])
def test_a_custom_function_that_answers_with_rubbish_falls_back_too(rubbish: Any) -> None:
    decision = decide(Retry.custom(lambda attempt, exception: rubbish), 1, None, MIDDLE)
    assert decision.delay == 5.0
    assert decision.warning is not None
    assert type(rubbish).__name__ in decision.warning
    assert "ValueError" in decision.warning


def test_a_retry_is_a_value() -> None:
    assert Retry() == Retry(base="5s")
    assert hash(Retry()) == hash(Retry(base="5s"))
    with pytest.raises(dataclasses.FrozenInstanceError):
        Retry().base = 1.0  # type: ignore[misc]
