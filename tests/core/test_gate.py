"""A queue is open only where its jobs can be claimed; and which of its numbers may be too low."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from treadle.core.gate import closed
from treadle.core.queue import Queue, QueueStats
from treadle.core.view import QueueView, is_at_least, queue_view

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def a_queue(*, pods: int = 1, **fields: Any) -> QueueView:
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


@pytest.mark.parametrize(
    ("state", "number", "told"),
    [("ready", 10_001, False), ("running", 10_000, False), ("scheduled", 99_999, False), ("failed", 9_999, False),
     ("failed", 10_000, True), ("succeeded", 10_000, True), ("cancelled", 10_000, True), ("waiting", 10_000, True)],
)  # fmt: skip
def test_what_is_to_be_done_is_counted_to_the_last_job(state: str, number: int, told: bool) -> None:
    assert is_at_least(dataclasses.replace(a_queue(), **{state: number}), state) is told  # type: ignore[arg-type]
