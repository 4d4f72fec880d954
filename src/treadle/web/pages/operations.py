"""Operations: acts upon many jobs. Look first (a dry run), confirm, then watch; and the audit of everything."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from starlette.responses import Response

from ...core import filter as filters
from ...core import ids
from ...core.command_line import Command, Part, command, option
from ...core.records import Preview
from ...operate.operations import Options
from ..problem import Problem
from ..routing import Call, Routes
from .asking import Field
from .frame import commanded, done, render
from .listed import queue_names

routes = Routes()

TYPED_ABOVE = 1_000
GROWTH = 1.1
ActName = Literal["revive", "cancel", "reschedule", "priority", "move", "delete"]
WORDS: dict[str, str] = {
    "revive": "They get another life, with all their attempts.",
    "cancel": "What has not started is cancelled; what runs is asked to stop.",
    "reschedule": "What has not started gets another time.",
    "priority": "What has not started gets another priority.",
    "move": "What has not started goes to another queue.",
    "delete": "What has ended is forgotten for good; what has not is cancelled instead.",
}
PAGE = 50


class Wish(Struct):
    """From a list: ids that are ticked, or all that match (`all`; `*` is every job); or a filter."""

    act: ActName
    filter: Annotated[str, Meta(max_length=filters.LONGEST)] = ""
    id: list[str] = field(default_factory=list[str])
    all: Annotated[str, Meta(max_length=filters.LONGEST)] | None = None


class Confirmed(Struct):
    act: ActName
    filter: Annotated[str, Meta(max_length=filters.LONGEST)] = ""
    everything: bool = False
    matched: int = 0
    capped: bool = False
    typed: str | None = None
    queue: str | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    delay: str | None = None
    at: datetime | None = None
    reason: Annotated[str, Meta(max_length=1024)] | None = None


@routes.page("GET", "/operations/new", action="see", query=Wish)
async def preview(call: Call[Wish, None]) -> Response:
    """A dry run: how many, of which states, queues and tasks, and what will be refused."""
    wish = call.query
    call.need(wish.act)
    text, everything = _which(wish)
    return await _show(call, Confirmed(act=wish.act, filter=text, everything=everything))


def _which(wish: Wish) -> tuple[str, bool]:
    if wish.all is not None:
        return ("", True) if wish.all == "*" else (wish.all, False)
    if wish.id:
        known = [each for each in wish.id if ids.is_id(each)][: filters.MOST_VALUES]
        if not known:
            raise Problem("validation", "no job is ticked")
        return f"id:{','.join(known)}", False
    return wish.filter, not wish.filter


async def _show(call: Call[Any, Any], asked: Confirmed, wrong: str = "") -> Response:
    text = call.web.redact.allowed_filter(asked.filter, call.access)
    # What an act needs to be told is asked for in the form: the dry run is of the jobs, whatever it will be.
    stand_in: Options = {"everything": asked.everything}
    if asked.act == "move":
        stand_in["queue"] = asked.queue or "default"
    if asked.act == "priority":
        stand_in["priority"] = asked.priority or 0
    found = await call.app.operations.preview(asked.act, text, **stand_in)
    fields = await _fields(call, asked)
    return await render(
        call,
        "preview.html",
        title=f"{asked.act.capitalize()} jobs",
        page="jobs",
        asked=asked,
        preview=found,
        about=WORDS[asked.act],
        must_type=found.changes > TYPED_ABOVE or found.capped,
        fields=fields,
        wrong=wrong,
        command=commanded(_command(asked, found), fields),
        filter="",
    )


async def _fields(call: Call[Any, Any], asked: Confirmed) -> list[Field]:
    found: list[Field] = []
    if asked.act == "move":
        names = await queue_names(call)
        found.append(Field(name="queue", label="To queue", value=asked.queue or "", list=names, needed=True))
    if asked.act == "priority":
        value = "" if asked.priority is None else asked.priority
        found.append(
            Field(
                name="priority",
                label="Priority",
                kind="number",
                value=value,
                needed=True,
                hint="From -100 to 100; higher goes first.",
            )
        )
    if asked.act == "reschedule":
        found.append(
            Field(name="delay", label="In", value=asked.delay or "", placeholder="2h", hint="From now. Empty: at once.")
        )
    found.append(Field(name="reason", label="Reason", value=asked.reason or "", hint="Why; kept in the audit."))
    return found


_OWN: dict[str, Part] = {
    "move": option("queue", "--to", needed=True),
    "priority": option("priority", "--to", needed=True),
    "reschedule": option("delay", empty="--now"),
}


def _command(asked: Confirmed, found: Preview) -> Command:
    """On the command line, too, it says first how many there are, and asks."""
    own = [_OWN[asked.act]] if asked.act in _OWN else []
    if asked.everything:
        return command(f"treadle jobs {asked.act} --all", *own, option("reason"))
    return command(f"treadle jobs {asked.act}", found.filter, *own, option("reason"))


@routes.page("POST", "/operations/new", action="see", form=Confirmed)
async def start(call: Call[None, Confirmed]) -> Response:
    """Start it, if what matches is still what was shown."""
    asked = call.body
    call.need(asked.act)
    text = call.web.redact.allowed_filter(asked.filter, call.access)
    options: Options = {"everything": asked.everything, "by": call.by, "reason": asked.reason}
    if asked.act == "move":
        options["queue"] = asked.queue
    if asked.act == "priority":
        options["priority"] = asked.priority
    if asked.act == "reschedule":
        options["delay"], options["at"] = asked.delay, asked.at
    seen = await call.app.operations.preview(asked.act, text, **options)
    if not seen.matched:
        raise Problem("conflict", "no job matches any more: nothing was done")
    if (seen.matched > asked.matched * GROWTH) or (seen.capped and not asked.capped):
        many = f"{seen.matched:,}{'+' if seen.capped else ''}"
        raise Problem(
            "conflict", f"{many} jobs match now, and {asked.matched:,} were shown: look again before you confirm"
        )
    if (seen.changes > TYPED_ABOVE or seen.capped) and (asked.typed or "").replace(",", "").strip() != str(
        asked.matched
    ):
        raise Problem("validation", f"type the number {asked.matched} to confirm", fields={"field": "typed"})
    begun = await call.app.operations.start(asked.act, text, **options)
    await call.web.attend(begun.id)
    return done(call, f"{asked.act}: it is under way", f"/operations/{begun.id}", go=True)


class Audit(Struct):
    before: str | None = None


@routes.page("GET", "/operations", action="see", query=Audit)
async def operations(call: Call[Audit, None]) -> Response:
    """What is under way, and who did what."""
    redact = call.web.redact
    found, lines = await asyncio.gather(
        call.app.operations.list(limit=20), call.app.audit.list(PAGE, before=call.query.before)
    )
    return await render(
        call,
        "operations.html",
        title="Operations",
        page="operations",
        topics="operations",
        found=[redact.operation(each, call.access) for each in found] if call.query.before is None else [],
        lines=[redact.audit_line(line, call.access) for line in lines],
        next=lines[-1].id if len(lines) == PAGE else None,
        first=call.query.before is None,
    )


def _id(call: Call[Any, Any]) -> str:
    if not ids.is_id(call.path["id"]):
        raise Problem("not_found", "there is no such operation")
    return call.path["id"]


@routes.page("GET", "/operations/{id}", action="see")
async def operation(call: Call[None, None]) -> Response:
    """One operation, as far as it has come."""
    found = await call.app.operations.get(_id(call))
    total: int | None = None
    if not found.is_over:
        counted = await call.web.counts.jobs(found.filter)
        total = max(sum(counted.values()), found.matched) if found.act in ("priority", "move", "reschedule") else None
    took = ((found.finished_at or found.updated_at) - found.created_at).total_seconds()
    return await render(
        call,
        "operation.html",
        title=f"Operation: {found.act}",
        page="operations",
        topics="operations jobs",
        it=call.web.redact.operation(found, call.access),
        total=total,
        rate=found.matched / took if took > 0 else None,
        took=took,
    )


@routes.page("POST", "/operations/{id}/stop", action="operate")
async def stop(call: Call[None, None]) -> Response:
    """Stop before the next chunk."""
    id = _id(call)
    await call.app.operations.stop(id, by=call.by)
    return done(call, "It stops before its next chunk", f"/operations/{id}")


@routes.page("POST", "/operations/{id}/resume", action="operate")
async def resume(call: Call[None, None]) -> Response:
    """Go on where it ended."""
    id = _id(call)
    found = await call.app.operations.get(id)
    call.need(found.act)  # type: ignore[arg-type]
    await call.app.operations.resume(id, by=call.by)
    await call.web.attend(id)
    return done(call, "It goes on", f"/operations/{id}")
