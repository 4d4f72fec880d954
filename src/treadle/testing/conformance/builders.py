"""What the cases are made of, so that they read as English: `a_job(priority=5)`, `a_pod()`, `want("mail", limit=3)`."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Collection, Sequence
from typing import Any, Final, TypeVar

from ...core.backoff import Retry
from ...core.job import Change, ErrorEntry, Job, NewJob, UniqueClaim
from ...core.lifecycle import finish
from ...core.outcome import Outcome, Raised
from ...core.pod import PodCard
from ...ports import Lane, Want

LEASE: Final = 30.0
# The smallest step of time that a storage must tell apart.
TICK: Final = 0.001

Found = TypeVar("Found")

_numbers: Final = itertools.count(1)


def an_id() -> str:
    """In the order of making, as the client's are."""
    return str(uuid.UUID(int=0x019A_0000_0000_7000_8000_0000_0000_0000 + next(_numbers)))


def a_token() -> str:
    return uuid.uuid4().hex


def a_job(**fields: Any) -> NewJob:
    request: dict[str, Any] = {"id": an_id(), "task": "work", "queue": "default"}
    return NewJob(**{**request, **fields})


def a_unique_job(key: str = "key", **fields: Any) -> NewJob:
    rule = {name: fields.pop(name) for name in ("period", "include_succeeded", "on_conflict", "cap") if name in fields}
    return a_job(unique=UniqueClaim(key, **rule), **fields)


def a_pod(**fields: Any) -> PodCard:
    card: dict[str, Any] = {
        "id": an_id(),
        "label": "pod-on-test",
        "host": "test",
        "pid": 1,
        "version": "0",
        "queues": {"default": 10},
        "tasks": ("work",),
        "lease": LEASE,
    }
    return PodCard(**{**card, **fields})


def want(queue: str = "default", limit: int = 1_000, tasks: Collection[str] = ("work",)) -> Want:
    return Want(queue, limit, (lane(*tasks, limit=limit),))


def want_lanes(*lanes: Lane, queue: str = "default", limit: int = 1_000) -> Want:
    return Want(queue, limit, lanes)


def lane(*tasks: str, limit: int = 1_000) -> Lane:
    return Lane(frozenset(tasks), limit)


def an_error(message: str = "it broke", **fields: Any) -> ErrorEntry:
    entry: dict[str, Any] = {"attempt": 1, "kind": "error", "type": "ValueError", "message": message}
    return ErrorEntry(**{**entry, **fields})


def failing(after: float | None = 10.0, *, final: bool = False, **fields: Any) -> Raised:
    """An attempt that failed; the next one comes after exactly so long."""
    return Raised(an_error(**fields), after=after, final=final)


def finished(job: Job, outcome: Outcome) -> Change:
    """What the core makes of a run that ended so."""
    return finish(job, outcome, Retry(), 0.5)


def only(found: Sequence[Found]) -> Found:
    """The one that was found, if it was one."""
    assert len(found) == 1
    return found[0]


def near(one: float | None, other: float) -> bool:
    """The same instant, as far as a storage must tell them apart."""
    return one is not None and abs(one - other) < TICK
