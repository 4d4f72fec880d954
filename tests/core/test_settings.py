"""What a queue's live settings may be, how they are read and written, and how a row keeps them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from treadle.core import settings
from treadle.core.job import NO_TIMEOUT, RetryOverride
from treadle.core.queue import FOR_EVER, Queue, edit

ROW: dict[str, Any] = {
    "max_workers": 3,
    "rate": 1.5,
    "burst": 4,
    "aging": 60.0,
    "timeout": 90.0,
    "retry": RetryOverride(max_attempts=2, base=3.0, cap=50.0, curve="fixed"),
    "cool_base": 2.0,
    "cool_cap": 300.0,
    "keep_succeeded": 0.0,
    "keep_failed": FOR_EVER,
    "keep_cancelled": 60.0,
}


def test_the_keywords_are_the_table() -> None:
    assert list(settings.QueueSettings.__annotations__) == [each.name for each in settings.SETTINGS]


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("max_workers", 0, 0),
        ("max_workers", "12", 12),
        ("rate", "90/m", 1.5),
        ("rate", "90 / m", 1.5),
        ("rate", "100/10s", 10.0),
        ("rate", "3600/h", 1.0),
        ("rate", "86400/d", 1.0),
        ("rate", "2.5", 2.5),
        ("rate", 2, 2.0),
        ("burst", 20, 20),
        ("aging", "90s", 90.0),
        ("aging", True, 60.0),
        ("aging", "on", 60.0),
        ("aging", "off", None),
        ("aging", False, None),
        ("timeout", timedelta(minutes=1), 60.0),
        ("timeout", "off", NO_TIMEOUT),
        ("max_attempts", 5, 5),
        ("backoff", "linear", "linear"),
        ("backoff_base", "30s", 30.0),
        ("backoff_base", "0", 0.0),
        ("backoff_base", 0, 0.0),
        ("backoff_cap", "24h", 86_400.0),
        ("cool_base", 1, 1.0),
        ("cool_cap", "1h", 3600.0),
        ("keep_succeeded", "7d", 604_800.0),
        ("keep_failed", "forever", FOR_EVER),
        ("keep_cancelled", 0, 0.0),
        ("keep_cancelled", None, None),
        ("rate", " Default ", None),
    ],
)
def test_a_setting_is_read(name: str, given: object, kept: object) -> None:
    assert settings.read({name: given}) == {name: kept}


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("max_workers", -1, "max_workers must be a whole number from 0"),
        ("max_workers", True, "max_workers must be a whole number"),
        ("max_workers", "few", "'few'"),
        ("burst", 0, "burst must be a whole number from 1"),
        ("rate", -1, "rate must be above zero"),
        ("rate", 0, "to stop a queue, pause it"),
        ("rate", "0/s", "rate must be above zero"),
        ("rate", "5/0s", "rate must be above zero"),
        ("rate", "fast", "not 'fast'"),
        ("rate", True, "rate must be above zero"),
        ("rate", float("nan"), "rate must be above zero"),
        ("rate", [], "not a value of type list"),
        ("aging", 0, "aging must be longer than zero"),
        ("aging", "-1s", "aging must not be negative"),
        ("timeout", 0, "timeout must be longer than zero"),
        ("max_attempts", 0, "max_attempts must be a whole number from 1 to 1,000"),
        ("backoff", "custom", "backoff must be one of exponential, fixed, linear"),
        ("backoff", 3, "backoff must be one of"),
        ("backoff_base", "500ms", "backoff_base must be from 1s to 24h, or 0 for at once, not 500ms"),
        ("backoff_cap", 0, "backoff_cap must be from 1s to 24h, not 0s"),
        ("backoff_cap", "25h", "backoff_cap must be from 1s to 24h"),
        ("cool_base", 0, "cool_base must be from 1s to 24h"),
        ("cool_cap", "2d", "cool_cap must be from 1s to 24h"),
        ("keep_failed", "none", 'say "forever"'),
        ("keep_failed", -1, "keep_failed must not be negative"),
        ("rat", 1, "no setting 'rat'; did you mean rate?"),
        ("xyzzy", 1, "no setting 'xyzzy'"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, given: object, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)) as error:
        settings.read({name: given})
    assert "\n" not in str(error.value)


def test_what_is_not_named_is_left_out() -> None:
    assert settings.read({"rate": UNSET, "burst": None}) == {"burst": None}


@pytest.mark.parametrize("kind", ["backoff", "cool"])
def test_a_base_above_its_cap_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind}_base must not be longer than {kind}_cap"):
        settings.read({f"{kind}_base": "2m", f"{kind}_cap": "1m"})


@pytest.mark.parametrize(
    ("rate", "told"), [(1.5, "90/m"), (2.0, "2/s"), (1 / 3600, "1/h"), (1 / 86_400, "1/d"), (0.123456789, "0.123457/s")]
)
def test_a_rate_in_words(rate: float, told: str) -> None:
    assert settings.rate_words(rate) == told


@given(st.integers(1, 1_000_000), st.sampled_from("smhd"))
def test_a_rate_in_words_is_read_again(count: int, unit: str) -> None:
    rate = settings.rate(f"{count}/{unit}")
    assert settings.rate(settings.rate_words(rate)) == pytest.approx(rate, rel=1e-5)


def test_the_parts_of_the_retry_override_are_one_value() -> None:
    assert settings.is_partial({"backoff_base": 3.0})
    assert not settings.is_partial({"rate": 3.0})
    now = RetryOverride(max_attempts=4, cap=60.0)
    change = settings.change("mail", {"backoff_base": 5.0, "backoff": "fixed", "rate": 1.0}, 7, now)
    assert (change.version, change.rate, change.burst) == (7, 1.0, UNSET)
    assert change.retry == RetryOverride(max_attempts=4, cap=60.0, base=5.0, curve="fixed")
    assert settings.change("mail", {"backoff_cap": None, "max_attempts": None}, None, now).retry is None
    assert settings.change("mail", {"max_attempts": 3}, None, None).retry == RetryOverride(max_attempts=3)
    assert settings.change("mail", {"rate": 1.0}, None, now).retry is UNSET
    with pytest.raises(ValueError, match="must not be longer"):
        settings.change("mail", {"backoff_base": 61.0}, None, now)


def test_a_row_in_words() -> None:
    queue = Queue(name="mail", **ROW)
    values = settings.values(queue)
    assert list(values) == [each.name for each in settings.SETTINGS]
    assert {name: settings.words(name, value) for name, value in values.items()} == {
        "max_workers": "3",
        "rate": "90/m",
        "burst": "4",
        "aging": "1m",
        "timeout": "1m30s",
        "max_attempts": "2",
        "backoff": "fixed",
        "backoff_base": "3s",
        "backoff_cap": "50s",
        "cool_base": "2s",
        "cool_cap": "5m",
        "keep_succeeded": "0s",
        "keep_failed": "forever",
        "keep_cancelled": "1m",
    }
    assert settings.words("timeout", NO_TIMEOUT) == "off"
    assert settings.words("keep_failed", None) == "30d"
    assert set(settings.values(Queue(name="mail")).values()) == {None}


def test_what_people_are_shown_can_be_written_again() -> None:
    queue = Queue(name="mail", **ROW)
    said = {name: settings.words(name, value) for name, value in settings.values(queue).items()}
    change = settings.change("mail", settings.read(said), None, None)
    again = edit(Queue(name="mail"), change, 0.0)
    assert {name: getattr(again, name) for name in ROW} == ROW


def test_a_row_keeps_its_settings_as_text() -> None:
    queue = Queue(name="mail", **ROW)
    text = settings.text_of(queue)
    assert text is not None
    assert {"max_workers": 3, **settings.of_text(text)} == ROW
    assert settings.text_of(Queue(name="mail", max_workers=3)) is None
    assert settings.of_text('{"timeout":0.0}') == {"timeout": NO_TIMEOUT}
    assert settings.of_text('{"from_the_future":1,"rate":2}') == {"rate": 2.0}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"rate"',
        '{"aging":0}',
        '{"aging":-1}',
        '{"rate":"x"}',
        '{"rate":-1}',
        '{"timeout":1e999}',
        '{"retry":{"max_attempts":0}}',
        '{"retry":{"curve":"custom"}}',
        '{"cool_base":0}',
        "[" * 10_000,
    ],
)
def test_a_damaged_text_means_the_built_in(text: str) -> None:
    assert settings.of_text(text) == {}


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    Queue(name="mail", **settings.of_text(text))
