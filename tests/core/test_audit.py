"""One line for every act."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from treadle.core import lifecycle
from treadle.core.audit import AuditLine, of_job, of_queue
from treadle.core.job import Change, Job, QueueChange, State


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"paused": True, "by": "ann", "paused_by": "ann", "pause_reason": "down", "paused_until": 9.0},
            {"act": "queues.pause", "by": "ann", "reason": "down", "detail": "until 1970-01-01 00:00:09 UTC"},
        ),
        ({"paused": False, "by": "ben"}, {"act": "queues.resume", "by": "ben"}),
        (
            {"version": 3, "max_workers": 5, "keep_failed": None},
            {"act": "queues.set", "detail": "max_workers 5, keep_failed –"},
        ),
        ({"rate": 2.0, "told": "admin, request 7"}, {"act": "queues.set", "detail": "rate 2/s (admin, request 7)"}),
    ],
)
def test_an_edit_of_a_queue_is_told_by_what_it_changes(fields: dict[str, Any], line: dict[str, Any]) -> None:
    assert of_queue(QueueChange(name="mail", audit="a", **fields)) == AuditLine(id="a", subject="mail", **line)


def test_an_edit_that_is_no_operators_is_not_told() -> None:
    assert of_queue(QueueChange(name="mail", cool_until=None)) is None


A_JOB = Job(id="j", task="t", args="{}", queue="mail", state=State.FAILED, run_at=0.0, created_at=0.0)


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        (lifecycle.revive(A_JOB), "failed → ready"),
        (lifecycle.remove(A_JOB), "removed"),
        (lifecycle.cancel(replace(A_JOB, state=State.READY)), "cancelled"),
        (lifecycle.cancel(replace(A_JOB, state=State.RUNNING)), "asked"),
        (lifecycle.move(replace(A_JOB, state=State.READY), "bulk"), ""),
    ],
)
def test_an_act_upon_a_job_tells_who_and_what_came_of_it(change: Change, detail: str) -> None:
    line = of_job(A_JOB, change, "act", id="a", by="ann\udc80", reason="r")
    assert line == AuditLine(id="a", act="jobs.act", subject="j", by="ann\\udc80", reason="r", detail=detail)
    assert of_job(A_JOB, change, "act", id="a", by=None, reason="r") is None
