"""Acts upon many jobs, and the audit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ...core.records import AuditView, OperationView, Preview
from ...operate.operations import Options
from ..access import Action
from ..plain import plain
from ..problem import Problem
from ..routing import Call, Routes
from .acts import Priority, instant
from .shapes import PAGE, Cursor, DurationText, FilterText, Instant, Limit, Name, Reason

routes = Routes()

ACTIONS: dict[str, Action] = {
    "revive": "revive", "cancel": "cancel", "reschedule": "reschedule", "priority": "priority", "move": "move",
    "delete": "delete",
}  # fmt: skip


class NewOperation(Struct, forbid_unknown_fields=True, kw_only=True):
    """What to do with all jobs that match. `everything` in the place of a filter means all jobs there are."""

    act: Literal["revive", "cancel", "reschedule", "priority", "move", "delete"]
    filter: FilterText = ""
    everything: bool = False
    queue: Name | None = None
    priority: Priority | None = None
    delay: DurationText | None = None
    at: Instant | None = None
    reason: Reason | None = None
    expected: (
        Annotated[int, Meta(ge=0, description="Refused with 409 if more than 10 % more jobs match than that.")] | None
    ) = None


class Operations(Struct):
    items: list[OperationView]


class ListQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = PAGE


class AuditQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    limit: Limit = PAGE
    cursor: Cursor | None = None


class AuditPage(Struct, kw_only=True):
    items: list[AuditView]
    next: str | None


def options_of(call: Call[Any, NewOperation]) -> Options:
    body = call.body
    return {
        "everything": body.everything,
        "delay": body.delay,
        "at": instant(body.at),
        "priority": body.priority,
        "queue": body.queue,
        "by": call.by,
        "reason": body.reason,
    }


@routes.api("POST", "/operations/preview", action="see", body=NewOperation, answer=Preview, only_reads=True)
async def preview(call: Call[None, NewOperation]) -> Any:
    """What an act would do: how many, of which states, queues and tasks, ten samples. Nothing is written."""
    text = call.web.redact.allowed_filter(call.body.filter, call.access)
    return await call.app.operations.preview(call.body.act, text, **options_of(call))


@routes.api("POST", "/operations", action="see", body=NewOperation, answer=OperationView, status=202, problems=(409,))
async def start(call: Call[None, NewOperation]) -> Any:
    """Ask for an act upon all jobs that match; needs the right to that act. The leading worker works it off; where
    there is none, this process does."""
    body = call.body
    call.need(ACTIONS[body.act])
    text, options = call.web.redact.allowed_filter(body.filter, call.access), options_of(call)
    if body.expected is not None:
        seen = await call.app.operations.preview(body.act, text, **options)
        if seen.matched > body.expected * 1.1 or (seen.capped and body.expected < seen.matched):
            raise Problem(
                "conflict",
                f"{seen.matched:,}{'+' if seen.capped else ''} jobs match now, and {body.expected:,} were expected",
                fields={"matched": seen.matched, "capped": seen.capped},
            )
    begun = await call.app.operations.start(body.act, text, **options)
    await call.web.attend(begun.id)
    return _seen(call, begun)


@routes.api("GET", "/operations", action="see", query=ListQuery, answer=Operations)
async def operations(call: Call[ListQuery, None]) -> Any:
    """Operations: those under way first, then the newest."""
    return {"items": [plain(_seen(call, each)) for each in await call.app.operations.list(call.query.limit)]}


@routes.api("GET", "/operations/{id}", action="see", answer=OperationView)
async def operation(call: Call[None, None]) -> Any:
    """One operation, as far as it has come."""
    return _seen(call, await call.app.operations.get(_id(call)))


@routes.api("POST", "/operations/{id}/stop", action="operate", answer=OperationView, problems=(409,))
async def stop(call: Call[None, None]) -> Any:
    """Stop an operation before its next chunk."""
    return _seen(call, await call.app.operations.stop(_id(call), by=call.by))


@routes.api("POST", "/operations/{id}/resume", action="operate", answer=OperationView, problems=(409,))
async def resume(call: Call[None, None]) -> Any:
    """Go on with an operation that was stopped or has failed; needs the right to its act."""
    found = await call.app.operations.get(_id(call))
    call.need(ACTIONS[found.act])
    resumed = await call.app.operations.resume(found.id, by=call.by)
    await call.web.attend(resumed.id)
    return _seen(call, resumed)


@routes.api("GET", "/audit", action="see", query=AuditQuery, answer=AuditPage)
async def audit(call: Call[AuditQuery, None]) -> Any:
    """Who did what, to what, when, and what came of it; newest first."""
    query = call.query
    lines = await call.app.audit.list(query.limit, before=query.cursor)
    shown = [plain(call.web.redact.audit_line(line, call.access)) for line in lines]
    return {"items": shown, "next": lines[-1].id if len(lines) == query.limit else None}


def _seen(call: Call[Any, Any], found: OperationView) -> OperationView:
    """As this user may see it: the filter may ask by what only others see."""
    return call.web.redact.operation(found, call.access)


def _id(call: Call[Any, Any]) -> str:
    from .shapes import job_id

    try:
        return job_id(call.path["id"])
    except Problem:
        raise Problem("not_found", "there is no such operation") from None
