"""A queue is open only where its jobs can be claimed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from treadle.core.gate import closed
from treadle.core.queue import Queue, QueueStats
from treadle.core.view import QueueView, queue_view

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def a_queue(*, pods: int = 1, **fields: Any) -> QueueView:
    import dataclasses

    made = queue_view(QueueStats(queue=Queue(name="mail", **fields)), [])
    return dataclasses.replace(made, pods=pods)


LATER, BEFORE = (NOW + timedelta(seconds=9)).timestamp(), (NOW - timedelta(seconds=9)).timestamp()


@pytest.mark.parametrize(
    ("queue", "told"),
    [
        (a_queue(), ()),
        (a_queue(max_workers=1), ()),
        (a_queue(cool_until=BEFORE), ()),
        (a_queue(pods=0), ("not served",)),
        (a_queue(max_workers=0), ("max_workers 0",)),
        (a_queue(paused=True), ("paused",)),
        (a_queue(cool_until=LATER), ("cooling",)),
        (a_queue(paused=True, cool_until=LATER), ("paused",)),
        (a_queue(pods=0, paused=True, max_workers=0), ("paused", "max_workers 0", "not served")),
    ],
)
def test_what_keeps_a_queue_closed(queue: QueueView, told: tuple[str, ...]) -> None:
    assert closed(queue, NOW) == told
