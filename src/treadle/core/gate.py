"""Gate: whether jobs of a queue are taken up now, in the words of pages and the command line."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, TypeAlias

from .view import QueueView

Gate: TypeAlias = Literal["paused", "cooling", "max_workers 0", "not served"]
OPEN: Final = "open"


def closed(queue: QueueView, now: datetime) -> tuple[Gate, ...]:
    """All that keeps its jobs from being claimed; empty where the queue is open. A queue that no live pod serves is
    never open."""
    found: list[Gate] = []
    if queue.paused:
        found.append("paused")
    elif queue.cool_until is not None and queue.cool_until > now:  # the row keeps a cool-down that is over
        found.append("cooling")
    if queue.max_workers == 0:
        found.append("max_workers 0")
    if not queue.pods:
        found.append("not served")
    return tuple(found)
