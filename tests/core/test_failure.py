"""Failures with one cause are one group."""

from __future__ import annotations

import pytest

from treadle.core.failure import group, parts_of
from treadle.core.job import ErrorEntry, ErrorKind, Job, State, cause_of


def a_failure(
    id: str, at: float | None, *, task: str = "send", kind: ErrorKind = "error", type: str = "KeyError"
) -> Job:
    error = ErrorEntry(attempt=1, kind=kind, type=type, place="app:send" if type else "", message=f"said {id}")
    return Job(id=id, task=task, queue="mail", state=State.FAILED, finished_at=at, errors=(error,), error_count=1)


@pytest.mark.parametrize(
    ("type", "kind", "cause"),
    [
        ("KeyError", "error", "send:KeyError:app"),
        ("", "poison", "send:poison:app"),
        ("", "timeout", "send:timeout:app"),
    ],
)
def test_a_cause_is_task_exception_and_place(type: str, kind: ErrorKind, cause: str) -> None:
    error = ErrorEntry(attempt=1, kind=kind, type=type, place="app")
    assert cause_of("send", error) == cause
    assert parts_of(cause, "send") == (type or kind, "app")


def test_a_task_may_have_a_colon_in_its_name() -> None:
    assert parts_of("shop:send:KeyError:shop.mail:send", "shop:send") == ("KeyError", "shop.mail:send")


def test_the_largest_group_comes_first_with_its_last_failure() -> None:
    jobs = [a_failure("a", 1.0), a_failure("c", 9.0), a_failure("b", 5.0), a_failure("d", 7.0, type="", kind="poison")]
    most, least = group(jobs, 10)
    assert (most.cause, most.task, most.type, most.place) == ("send:KeyError:app:send", "send", "KeyError", "app:send")
    assert (most.count, most.first_at, most.last_at, most.sample, most.message) == (3, 1.0, 9.0, "c", "said c")
    assert (least.cause, least.type, least.count) == ("send:poison:", "poison", 1)
    assert group(jobs, 1) == (most,)


def test_a_row_without_an_end_is_counted_all_the_same() -> None:
    assert group([a_failure("a", None)], 1)[0].last_at == 0.0
