"""Retention: how long ended jobs are kept, queue by queue, and which of them may go.

The age counts from the end of a job, by the storage's clock. Failures are kept longest: they are what somebody still
has to look at. Nothing here deletes; a storage asks for the rules of one state and removes what they let go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from .job import State
from .queue import DAY, Queue, kept

CHUNK: Final = 1000
# Finished operations and lines of the audit: long enough to answer for a quarter.
RECORDS_KEPT: Final = 90 * DAY
# In this order: successes are the most.
STATES: Final = (State.SUCCEEDED, State.CANCELLED, State.FAILED)


class Rules(Struct, frozen=True):
    """For one end state: jobs of a queue that ended at this instant or before may go. None: none of them."""

    until: dict[str, float | None]
    otherwise: float | None  # for a queue without a row

    def of(self, queue: str) -> float | None:
        return self.until.get(queue, self.otherwise)

    def latest(self) -> float | None:
        """No job that ended after this instant may go, whatever its queue; None: none at all."""
        return max((each for each in (*self.until.values(), self.otherwise) if each is not None), default=None)

    def lets_go(self, queue: str, finished_at: float) -> bool:
        until = self.of(queue)
        return until is not None and finished_at <= until


def rules(queues: Iterable[Queue], state: State, now: float, only: str | None = None) -> Rules:
    """The rules of one end state, from the queues' live settings; with `only`, other queues keep everything."""
    until = {queue.name: _until(queue, state, now) for queue in queues}
    if only is None:
        return Rules(until, _until(None, state, now))
    return Rules({only: until.get(only, _until(None, state, now))}, None)


def _until(queue: Queue | None, state: State, now: float) -> float | None:
    keep = kept(queue, state)
    return None if keep is None else now - keep
