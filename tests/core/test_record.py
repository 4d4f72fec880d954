"""Records: when two of them are the same row, and what a copy makes of a running job."""

from __future__ import annotations

import math
from typing import Any

import pytest

from treadle.core.record import differing, is_same, restarted, returned, state_at


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (True, 1, True),
        (1_700_000_000.123456, 1_700_000_000.1234562, True),
        (1_700_000_000.0, 1_700_000_000.001, False),
        (math.inf, math.inf, True),
        (math.inf, 1.0, False),
        (None, [], True),
        ((), None, True),
        (None, 0, False),
        ("", None, False),
        (0, False, True),
        ("a", "b", False),
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ("[1, 2]", "[2, 1]", False),
        ("{not json", "{not json either", False),
        ("{}", "text", False),
        (["x", 1.0], ("x", 1), True),
        (["x"], ["x", "y"], False),
        ([{"at": 1.0, "pod": None}], [{"at": 1.0000001}], True),
        ({"at": 1.0}, {"at": 2.0}, False),
        ({"a": 1}, "text", False),
    ],
)
def test_values_that_mean_the_same(one: Any, other: Any, same: bool) -> None:
    assert is_same(one, other) is same
    assert is_same(other, one) is same


def test_a_column_that_one_side_lacks_says_nothing() -> None:
    one = {"id": "a", "seq": 1, "queue": "mail", "cause": "x", "priority": 3}
    assert differing(one, {"id": "a", "seq": 9, "queue": "mail", "priority": 3}) == []
    assert differing(one, {"id": "a", "queue": "post", "priority": 4}) == ["priority", "queue"]


def a_running_job(**fields: Any) -> dict[str, Any]:
    job: dict[str, Any] = {
        "id": "a", "state": "running", "attempt": 2, "pod": "p", "slot": "s", "token": "t", "deadline": 9.0,
        "started_at": 5.0, "run_at": 4.0, "cancel_wanted": False,
    }  # fmt: skip
    return {**job, **fields}


def test_a_job_that_does_not_run_is_left_as_it_is() -> None:
    job = {"id": "a", "state": "succeeded", "attempt": 1}
    assert returned(job) is job


def test_a_running_job_goes_back_as_its_claim_found_it() -> None:
    job = returned(a_running_job())
    assert (job["state"], job["attempt"], job["run_at"]) == ("ready", 1, 4.0)
    assert [job[name] for name in ("pod", "slot", "token", "deadline")] == [None] * 4
    assert "finished_at" not in job
    assert returned(a_running_job(attempt=0))["attempt"] == 0


def test_a_running_job_that_was_to_be_cancelled_is_cancelled() -> None:
    job = returned(a_running_job(cancel_wanted=True))
    assert (job["state"], job["cancel_wanted"], job["finished_at"]) == ("cancelled", False, 5.0)


def test_what_is_not_due_is_scheduled() -> None:
    assert state_at({"state": "ready", "run_at": 11.0}, 10.0) == "scheduled"
    assert state_at({"state": "ready", "run_at": 10.0}, 10.0) == "ready"
    assert state_at({"state": "failed", "run_at": 11.0}, 10.0) == "failed"


def test_an_operation_begins_anew_in_another_storage() -> None:
    row = {"id": "a", "body": '{"id":"a","cursor":"17","by":"ü"}'}
    assert restarted(row) == {"id": "a", "body": '{"id": "a", "cursor": null, "by": "ü"}'}


@pytest.mark.parametrize("body", [None, "{", "[]", "{}"])
def test_an_operation_that_cannot_be_read_is_left_as_it_is(body: Any) -> None:
    assert restarted({"body": body}) == {"body": body}
