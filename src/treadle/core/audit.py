"""Audit: one line for every act of an operator. Lines are only ever added, and forgotten after 90 days.

A line is written in the transaction of its act, so that neither is there without the other. Its id names the act: one
that is sent again after a lost answer is known by it.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, Struct

from .event import clean
from .job import Change, Job, QueueChange

_TOLD: Final = frozenset({"name", "version", "by", "audit", "told", "paused", "paused_by", "pause_reason"})
_OUTCOMES: Final = {"removed": "removed", "cancelled": "cancelled", "unkept": "cancelled", "cancel_asked": "asked"}


class AuditLine(Struct, frozen=True, kw_only=True):
    """Who did what, to what, when, and what came of it. Its writer makes the `id`, so that it can be repeated."""

    id: str
    act: str  # "jobs.revive", "queues.pause"
    subject: str = ""  # a filter, a queue's name, ids
    by: str | None = None
    reason: str | None = None
    detail: str = ""
    operation: str | None = None
    at: float = 0.0  # written by the storage's clock


def of_queue(change: QueueChange) -> AuditLine | None:
    """What the audit says of an edit of a queue; None if it is no operator's."""
    if change.audit is None:
        return None
    from . import audit_words  # made when it is needed: its tables would cost every import of treadle

    given = {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not UNSET}
    said = audit_words.said({name: value for name, value in given.items() if name not in _TOLD})
    act = "set" if "paused" not in given else "pause" if given["paused"] else "resume"
    return AuditLine(
        id=change.audit,
        act=f"queues.{act}",
        subject=change.name,
        by=change.by,
        reason=given.get("pause_reason"),
        detail=" ".join(part for part in (", ".join(said), f"({change.told})" if change.told else "") if part),
    )


def of_job(job: Job, change: Change, act: str, *, id: str, by: str | None, reason: str | None) -> AuditLine | None:
    """What the audit says of an act upon one job; None if no operator is named: what programs do to their own jobs is
    not told."""
    if by is None:
        return None
    detail = _OUTCOMES.get(change.why, f"{job.state} → {change.to}" if change.to not in (None, job.state) else "")
    return AuditLine(id=id, act=f"jobs.{act}", subject=job.id, by=clean(by), reason=reason, detail=detail)
