"""One line for every act."""

from __future__ import annotations

from typing import Any

import pytest

from treadle.core.audit import AuditLine, of_queue
from treadle.core.job import QueueChange


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"paused": True, "paused_by": "ann", "pause_reason": "down", "paused_until": 9.0},
            {"act": "queues.pause", "by": "ann", "reason": "down", "detail": "paused_until 9.0"},
        ),
        ({"paused": False}, {"act": "queues.resume"}),
        (
            {"version": 3, "max_workers": 5, "keep_failed": None},
            {"act": "queues.set", "detail": "max_workers 5, keep_failed None"},
        ),
    ],
)
def test_an_edit_of_a_queue_is_told_by_what_it_changes(fields: dict[str, Any], line: dict[str, Any]) -> None:
    assert of_queue("a", QueueChange(name="mail", **fields)) == AuditLine(id="a", subject="mail", **line)
