"""What is kept of an exception: bounded, masked, and never a second exception."""

from __future__ import annotations

import json

import pytest

from treadle.core.job import Job, State
from treadle.core.outcome import Fail
from treadle.trace import MESSAGE_LIMIT, TEXT_LIMIT, entry_of, mask

JOB = Job(id="j", task="t", queue="q", state=State.RUNNING, attempt=2, pod="p", started_at=1.0)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


def test_the_entry_names_type_words_place_and_attempt() -> None:
    entry = entry_of(raised(ValueError("no luck")), JOB)
    assert (entry.type, entry.message, entry.attempt, entry.pod) == ("ValueError", "no luck", 2, "p")
    assert entry.place == "tests.runtime.test_trace:raised"
    assert "raise error" in entry.trace


def test_an_exception_whose_own_text_raises_is_named_by_its_type() -> None:
    entry = entry_of(raised(Mute()), JOB)
    assert "Mute" in entry.type
    assert "RuntimeError" in entry.message


def test_a_text_of_ten_megabytes_is_cut() -> None:
    entry = entry_of(raised(ValueError("x" * 10_000_000)), JOB)
    assert len(entry.message.encode()) <= MESSAGE_LIMIT
    assert len(entry.trace.encode()) <= TEXT_LIMIT


def test_what_no_storage_can_hold_is_escaped() -> None:
    entry = entry_of(raised(ValueError("a\x00b\ud800c")), JOB)
    assert "\x00" not in entry.message
    entry.message.encode()  # no lone surrogate is left


def test_causes_are_told_and_local_variables_are_not() -> None:
    def fails() -> None:
        hidden = "local-value"
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError(len(hidden)) from error

    try:
        fails()
    except ValueError as error:
        entry = entry_of(error, JOB)
    assert "KeyError: 'first'" in entry.trace
    assert "local-value" not in entry.trace.replace('hidden = "local-value"', "")


def test_our_own_signals_have_the_name_that_users_import() -> None:
    assert entry_of(raised(Fail("gone")), JOB).type == "Fail"


def test_an_error_without_a_trace_has_no_place() -> None:
    assert entry_of(ValueError("never raised"), JOB).place == ""


def test_an_error_inside_a_library_is_placed_at_our_call() -> None:
    with pytest.raises(ValueError) as caught:
        json.loads("{")
    assert entry_of(caught.value, JOB).place.startswith("tests.runtime.test_trace:")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=hunter2 and more", "hunter2"),
        ("{'api_key': 'abc123', 'n': 1}", "abc123"),
        ('{"access_token": "abc123"}', "abc123"),
        ("Authorization: Bearer abc123", "abc123"),
        ("connecting to postgresql://ann:hunter2@host/db failed", "hunter2"),
        ("dsn=hunter2", "hunter2"),
        ("password={'password': 'hunter2'}", "hunter2"),
        ("cloning https://ghp_0123456789abcdef0123@example.com/x", "ghp_0123456789abcdef0123"),
    ],
)
def test_what_looks_secret_is_masked(text: str, secret: str) -> None:
    assert secret not in mask(text)


def test_what_is_no_secret_stays() -> None:
    assert mask("user 42 of https://example.com/path: n=1") == "user 42 of https://example.com/path: n=1"
