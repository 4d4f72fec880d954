"""Failures with one cause are one group."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from treadle.core.deploy import LONGEST_VERSION, Deploy, check_version, in_order
from treadle.core.failure import (
    DAY,
    SILENCE,
    FailureGroup,
    Failures,
    by_turns,
    group,
    last_deploy,
    mark,
    new_since,
    parts_of,
    sighting,
)
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


def found(*jobs: Job, limit: int = 10) -> list[FailureGroup]:
    return [each for each, _ in group(map(sighting, jobs), limit)]


def test_the_largest_group_comes_first_with_its_last_failure() -> None:
    jobs = [a_failure("a", 1.0), a_failure("c", 9.0), a_failure("b", 5.0), a_failure("d", 7.0, type="", kind="poison")]
    most, least = found(*jobs)
    assert (most.cause, most.task, most.type, most.place) == ("send:KeyError:app:send", "send", "KeyError", "app:send")
    assert (most.count, most.failed, most.retrying, most.first_at, most.last_at) == (3, 3, 0, 1.0, 9.0)
    assert [sample for _, sample in group(map(sighting, jobs), 10)] == ["c", "d"]
    assert (least.cause, least.type, least.count) == ("send:poison:", "poison", 1)
    assert found(*jobs, limit=1) == [most]


def test_a_row_without_an_end_is_counted_all_the_same() -> None:
    assert found(a_failure("a", None))[0].last_at == 0.0


def a_retry(id: str, *errors: tuple[str, float | None]) -> Job:
    entries = tuple(
        ErrorEntry(attempt=n, kind="error", type=type, place="app:send", ended_at=at)
        for n, (type, at) in enumerate(errors, 1)
    )
    return Job(id=id, task="send", queue="mail", state=State.SCHEDULED, attempt=1, errors=entries)


def test_retries_are_counted_apart_and_fail_since_their_first_attempt_with_this_cause() -> None:
    both, other = found(
        a_failure("a", 50.0),
        a_retry("b", ("KeyError", 10.0), ("OSError", 20.0), ("KeyError", 60.0)),
        a_retry("c", ("OSError", 5.0), ("KeyError", 30.0)),
        a_retry("d", ("KeyError", None), ("OSError", None)),
    )
    assert (both.failed, both.retrying, both.count, both.first_at, both.last_at) == (1, 2, 3, 10.0, 60.0)
    assert (other.type, other.failed, other.retrying, other.first_at, other.last_at) == ("OSError", 0, 1, 0.0, 0.0)


def test_each_piece_has_its_turn() -> None:
    assert by_turns(["aaaa", "b", "cc"], 6) == ["a", "b", "c", "a", "c", "a"]
    assert by_turns(["ab"], 9) == ["a", "b"]
    assert by_turns([], 9) == []


@pytest.mark.parametrize(
    ("ends", "back"),
    [
        ([0.0], None),
        ([0.0, SILENCE - 1, 2 * SILENCE - 2], None),
        ([0.0, SILENCE], SILENCE),
        ([0.0, SILENCE, SILENCE + 60, SILENCE + 120], SILENCE),
        ([0.0, SILENCE, 3 * SILENCE], 3 * SILENCE),  # the last of two silences
        ([0.0, SILENCE, 2 * SILENCE - 1], SILENCE),
    ],
)
def test_a_cause_is_back_after_more_than_a_day_without_it(ends: list[float], back: float | None) -> None:
    (only,) = found(*(a_failure(str(n), at) for n, at in enumerate(ends)))
    assert only.back_at == back


def test_a_job_that_was_tried_again_all_the_time_was_never_silent() -> None:
    (only,) = found(a_failure("a", 0.0), a_retry("b", ("KeyError", 60.0), ("KeyError", 3 * SILENCE)))
    assert only.back_at is None


NOW = 100 * DAY
OLD = Deploy(version="1", first_at=NOW - 8 * DAY, seen_at=NOW)
NEW = Deploy(version="2", first_at=NOW - 2 * DAY, seen_at=NOW)


@pytest.mark.parametrize(
    ("deploys", "last"),
    [
        ([], None),
        ([OLD], None),
        ([OLD, NEW], NEW),
        ([NEW, OLD], NEW),
        # The clock was put back: its time will come.
        ([OLD, NEW, Deploy(version="3", first_at=NOW + 1, seen_at=NOW)], NEW),
        # Back to the version before, which registered last: what came up with the newer one is still new since.
        (
            [structs.replace(NEW, seen_at=NOW - DAY), structs.replace(OLD, seen_at=NOW)],
            structs.replace(NEW, seen_at=NOW - DAY),
        ),
    ],
)
def test_the_last_deploy_counts_for_a_week(deploys: list[Deploy], last: Deploy | None) -> None:
    assert last_deploy(deploys, NOW) == last


@pytest.mark.parametrize(
    ("first", "back", "deploy", "wanted"),
    [
        # Without a deploy: the last 24 hours.
        (NOW - 60, None, None, "new"),
        (NOW - DAY + 1, None, None, "new"),
        (NOW - DAY - 1, None, None, None),
        (NOW - 9 * DAY, NOW - 60, None, "regressed"),
        (NOW - 9 * DAY, NOW - DAY - 1, None, None),
        # Since the last deploy.
        (NOW - 2 * DAY, None, NEW, "new"),
        (NOW - 2 * DAY - 1, None, NEW, None),
        (NOW - 9 * DAY, NOW - 2 * DAY, NEW, "regressed"),
        (NOW - 9 * DAY, NOW - 3 * DAY, NEW, None),
        # It came back today, before a deploy of this minute.
        (NOW - 9 * DAY, NOW - 3600, Deploy(version="3", first_at=NOW - 60, seen_at=NOW), "regressed"),
    ],
)
def test_what_is_new_and_what_regressed(
    first: float, back: float | None, deploy: Deploy | None, wanted: str | None
) -> None:
    each = a_group(first_at=first, back_at=back)
    assert mark(Failures(groups=(each,), looked_at=1), each, deploy, NOW) == wanted


def test_new_means_since_the_last_deploy_or_in_the_last_24_hours() -> None:
    assert (new_since(NEW, NOW), new_since(None, NOW)) == (NEW.first_at, NOW - DAY)


def test_nothing_is_called_new_where_older_failures_were_not_looked_at() -> None:
    retries, ended = a_group(retrying=1), a_group(failed=1)
    some = Failures(groups=(), looked_at=1, capped=True, known_since=NOW - 3600)
    assert mark(some, ended, None, NOW) is None
    assert mark(structs.replace(some, known_since=NOW - 2 * DAY), ended, None, NOW) == "new"
    part = Failures(groups=(), looked_at=1, capped=True, all_retries=False)
    assert (mark(part, retries, None, NOW), mark(part, ended, None, NOW)) == (None, "new")


def a_group(**fields: Any) -> FailureGroup:
    told = {"cause": "a:b:c", "task": "a", "type": "b", "place": "c", "first_at": NOW - 60, "last_at": NOW}
    return FailureGroup(**{**told, "sample": "x", "message": "", **fields})


@pytest.mark.parametrize("text", ["", "2026.11.3", "main@a1b2c3d", "v1 (blue)", "é" * LONGEST_VERSION])
def test_a_version_is_one_short_line(text: str) -> None:
    assert check_version(text) == text


@pytest.mark.parametrize("text", ["x" * (LONGEST_VERSION + 1), "a\nb", " a", "a\x00", "a\u202eb"])
def test_anything_else_is_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="worker_version must be one line of at most 64 characters"):
        check_version(text)


def test_deploys_are_told_the_newest_first() -> None:
    rows = [("b", 1.0, 9.0), ("c", 2.0, 2.0), ("a", 1.0, 1.0)]
    assert [each.version for each in in_order(rows)] == ["c", "a", "b"]
    assert in_order(rows)[-1] == Deploy(version="b", first_at=1.0, seen_at=9.0)


@pytest.mark.parametrize(
    "row",
    [
        ("", 1.0, 1.0), (7, 1.0, 1.0), (b"v1", 1.0, 1.0), ("x" * (LONGEST_VERSION + 1), 1.0, 1.0),
        ("a\x1b[2J", 1.0, 1.0), ("v1", None, 1.0), ("v1", "soon", 1.0), ("v1", 1.0, float("nan")),
        ("v1", float("inf"), 1.0), ("v1", 1.0, -1e300),
    ],
)  # fmt: skip
def test_a_row_that_no_worker_has_written_is_no_deploy(row: tuple[Any, Any, Any]) -> None:
    assert in_order([row, ("v2", 1.0, 1.0)]) == [Deploy(version="v2", first_at=1.0, seen_at=1.0)]
