"""Operations, audit lines and failures as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs
from msgspec.structs import replace

from treadle.core import records
from treadle.core.audit import AuditLine
from treadle.core.counted import Counted
from treadle.core.deploy import Deploy
from treadle.core.failure import FailureGroup
from treadle.core.filter import matches, parse
from treadle.core.job import ErrorEntry, Job, State
from treadle.core.operation import new, written
from treadle.core.view import row_of

AT = 1_800_000_000.0
MOMENT = datetime(2027, 1, 15, 8, tzinfo=UTC)


def a_job(id: str, state: State = State.FAILED, queue: str = "mail") -> Job:
    return Job(id=id, task="send", queue=queue, state=state)


def test_an_operation_has_moments_for_its_instants() -> None:
    found = records.operation_view(written(new("op", "revive", "state:failed", run_at=AT), None, AT))
    assert (found.id, found.act, found.filter, found.state, found.run_at) == (
        "op",
        "revive",
        "state:failed",
        "running",
        MOMENT,
    )
    assert (found.cutoff, found.created_at, found.updated_at, found.finished_at) == (MOMENT, MOMENT, MOMENT, None)
    assert not found.is_over
    over = records.operation_view(
        written(new("op", "cancel", "id:x"), written(new("op", "cancel", "id:x"), None, AT), AT)
    )
    assert over.run_at is None


def test_an_ended_operation_says_when() -> None:
    begun = written(new("op", "cancel", "id:x"), None, AT)
    over = records.operation_view(written(replace(begun, state="stopped"), begun, AT))
    assert (over.is_over, over.finished_at) == (True, MOMENT)


def test_a_preview_counts_and_says_what_becomes_of_the_rest() -> None:
    jobs = [a_job("a"), a_job("b", queue="bulk"), a_job("c"), a_job("d", State.RUNNING)]
    found = records.preview(new("op", "revive", "task:send"), jobs, capped=True)
    assert (found.act, found.filter, found.matched, found.capped, found.changes) == (
        "revive",
        "task:send",
        4,
        True,
        3,
    )
    assert found.others == "refused: they have not ended"
    assert (found.states, found.queues, found.tasks) == (
        {"running": 1, "failed": 3},
        {"mail": 3, "bulk": 1},
        {"send": 4},
    )
    assert found.samples == ("a", "b", "c", "d")


def test_a_group_of_failures_has_the_filter_that_finds_it() -> None:
    error = ErrorEntry(attempt=1, kind="error", type='Odd"Error', place="app:send it")
    job = Job(id="a", task="send", queue="mail", state=State.FAILED, errors=(error,))
    cause = 'send:Odd"Error:app:send it'
    group = FailureGroup(
        cause=cause, task="send", type='Odd"Error', place="app:send it", failed=2, first_at=AT, last_at=AT, sample="a",
        message="no",
    )  # fmt: skip
    found = records.failure_view(group)
    assert (found.cause, found.count, found.first_at, found.last_at, found.sample) == (cause, 2, MOMENT, MOMENT, "a")
    assert (found.failed, found.retrying, found.mark, found.back_at) == (2, 0, None, None)
    assert matches(parse(found.filter), row_of(job, stuck=False), AT)
    back = records.failure_view(structs.replace(group, back_at=AT, retrying=3), None, "regressed")
    assert (back.count, back.retrying, back.mark, back.back_at) == (5, 3, "regressed", MOMENT)


def test_a_deploy_has_moments_for_its_instants() -> None:
    found = records.deploy_view(Deploy(version="2026.11.3", first_at=AT, seen_at=AT + 60))
    assert (found.version, found.first_at, found.seen_at) == ("2026.11.3", MOMENT, MOMENT + timedelta(minutes=1))


def test_a_line_of_the_audit() -> None:
    found = records.audit_view(AuditLine(id="a", act="queues.pause", subject="mail", by="ann", at=AT))
    assert (found.id, found.at, found.by, found.act, found.subject) == ("a", MOMENT, "ann", "queues.pause", "mail")
    assert (found.reason, found.detail, found.operation) == (None, "", None)


@pytest.mark.parametrize(
    ("numbers", "matched", "changes", "capped"),
    [
        ({}, 2, 2, True),  # it took too long
        ({State.FAILED: 1}, 2, 2, True),  # they went meanwhile
        ({State.FAILED: 66_100}, 66_100, 66_100, False),
        (Counted({State.FAILED: 60_000, State.READY: 6_100}), 66_100, 60_000, False),
        (Counted({State.FAILED: 66_100}, [State.FAILED]), 66_100, 66_100, True),
    ],
)
def test_a_preview_of_very_many_has_their_number(
    numbers: dict[State, int], matched: int, changes: int, capped: bool
) -> None:
    seen = records.Preview(
        act="revive", filter="", matched=2, capped=True, changes=2, others="", states={"failed": 2},
        queues={"mail": 2}, tasks={"send": 2}, samples=(),
    )  # fmt: skip
    found = records.counted(seen, numbers)
    assert (found.matched, found.changes, found.capped, found.queues) == (matched, changes, capped, {"mail": 2})
