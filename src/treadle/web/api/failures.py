"""Failures: causes of failed attempts (task, exception and raising place), with the jobs that failed for good and those
that wait for their retry."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from ...core.mute import LONGEST_CAUSE
from ...core.records import DeployView, FailureView
from ..plain import plain
from ..problem import Problem
from ..routing import Call, Routes
from .acts import instant
from .shapes import PAGE, Instant, Name, Reason

routes = Routes()


class FailureQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    queue: Name | None = None
    task: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = PAGE


class Failures(Struct, kw_only=True):
    """The largest groups first, of the newest failures and the next retries. `capped`: there are more than
    `looked_at`."""

    items: list[FailureView]
    looked_at: int
    capped: bool
    new_since: Annotated[
        datetime, Meta(description="From when on a cause is new: the last deploy's first sight, or 24 hours ago.")
    ]
    deploy: Annotated[DeployView | None, Meta(description="The last deploy, if it is at most 7 days ago.")]


class Unmute(Struct, forbid_unknown_fields=True, kw_only=True):
    cause: Annotated[str, Meta(max_length=LONGEST_CAUSE, description="As a group of failures has it.")]


class Mute(Unmute, forbid_unknown_fields=True, kw_only=True):
    until: Instant | None = None
    reason: Reason | None = None


class Muted(Struct):
    cause: str
    muted: bool


@routes.api("GET", "/failures", action="see", query=FailureQuery, answer=Failures)
async def failures(call: Call[FailureQuery, None]) -> Any:
    """Causes of failed attempts: jobs that failed for good, and jobs that wait for their retry. Each group has the
    filter that finds all of it."""
    query = call.query
    key = ("failures", query.queue or "", query.task or "", str(query.limit))
    found = await call.web.counts.get(
        key, lambda: call.app.jobs.failures(queue=query.queue, task=query.task, limit=query.limit)
    )
    groups = [_seen(call, plain(each)) for each in found.groups]
    return {
        "items": groups,
        "looked_at": found.looked_at,
        "capped": found.capped,
        "new_since": plain(found.new_since),
        "deploy": plain(found.deploy),
    }


@routes.api("GET", "/failures/{cause}", action="see", answer=FailureView)
async def failure(call: Call[None, None]) -> Any:
    """One group."""
    found = await call.web.counts.get(("failures", "", "", "1000"), lambda: call.app.jobs.failures(limit=1000))
    for each in found.groups:
        if each.cause == call.path["cause"]:
            return _seen(call, plain(each))
    raise Problem("not_found", "no job that failed or waits for a retry has this cause")


@routes.api("POST", "/failures/mute", action="mute", body=Mute, answer=Muted)
async def mute(call: Call[None, Mute]) -> Any:
    """People know of this cause: it is folded, and left out of what is shown first. No job is changed."""
    body = call.body
    await call.app.jobs.mute(body.cause, instant(body.until), by=call.by, reason=body.reason)
    call.web.counts.forget()
    return {"cause": body.cause, "muted": True}


@routes.api("POST", "/failures/unmute", action="mute", body=Unmute, answer=Muted)
async def unmute(call: Call[None, Unmute]) -> Any:
    """Show it first again."""
    if not await call.app.jobs.unmute(call.body.cause, by=call.by):
        raise Problem("not_found", "this cause is not muted")
    call.web.counts.forget()
    return {"cause": call.body.cause, "muted": False}


def _seen(call: Call[Any, Any], group: dict[str, Any]) -> dict[str, Any]:
    return {**group, "message": call.web.redact.text(group["message"])}
