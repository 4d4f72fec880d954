"""Schedules: what is fired when, how the last fires went, and how operators change it."""

from __future__ import annotations

import asyncio
import shlex
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import Response

from ...core import names
from ...core.schedule_view import FireView, ScheduleView
from ..problem import Problem
from ..redact import HIDDEN
from ..routing import Call, Routes
from . import words
from .asking import Field, Question, ask
from .enqueue import arguments
from .frame import done, render
from .listed import Asked, listed

routes = Routes()

STRIP = 30
LAST = 20
MISFIRES = ("coalesce", "skip", "catch_up")
OVERLAPS = ("allow", "skip")


class Shown(Struct):
    """A schedule with its last fires, oldest first."""

    schedule: ScheduleView
    fires: tuple[FireView, ...]
    queue_paused: bool


@routes.page("GET", "/schedules", action="see", query=Asked)
async def schedules(call: Call[Asked, None]) -> Response:
    """All schedules, by what fires next."""
    found, queues = await asyncio.gather(
        call.app.schedules.list(), call.web.counts.get(("queues",), call.app.queues.list)
    )
    paused = {each.name for each in queues if each.paused}
    ordered = sorted(found, key=lambda each: (each.next_fire is None, each.next_fire or each.created_at, each.name))
    shown = listed(call, ordered, lambda each: each.name)
    fires = await asyncio.gather(*(call.app.schedules.fires(each.name, STRIP) for each in shown.rows[:100]))
    last = {each.name: tuple(reversed(list(some))) for each, some in zip(shown.rows, fires, strict=False)}
    return await render(
        call,
        "schedules.html",
        title="Schedules",
        page="schedules",
        topics="schedules jobs queues",
        list=shown,
        schedules=[Shown(each, last.get(each.name, ()), each.queue in paused) for each in shown.rows],
    )


def _name(call: Call[Any, Any]) -> str:
    try:
        return names.check_name("schedule", call.path["name"])
    except ValueError:
        raise Problem("not_found", "there is no such schedule") from None


@routes.page("GET", "/schedules/{name}", action="see")
async def schedule(call: Call[None, None]) -> Response:
    """One schedule: when it fires next, and how it went."""
    name = _name(call)
    found = await call.app.schedules.get(name)
    fires = await call.app.schedules.fires(name, STRIP)
    # By their ids: no index knows which schedule a job came from.
    made = [fire.job for fire in fires if fire.job][:LAST]
    jobs = (await call.app.jobs.find(f"id:{','.join(made)}", limit=LAST)).jobs if made else ()
    try:
        coming = await call.app.schedules.next(name, 10)
    except ValueError:  # its zone is missing here, or a newer version wrote it
        coming = []
    return await render(
        call,
        "schedule.html",
        title=f"Schedule {name}",
        page="schedules",
        topics="schedules jobs",
        schedule=found,
        args=call.web.redact.payload(found.args, call.access),
        hidden=HIDDEN,
        fires=fires,
        coming=coming,
        jobs=jobs,
    )


# What can be done -----------------------------------------------------------------------------------------------------


@routes.page("POST", "/schedules/{name}/fire", action="fire")
async def fire(call: Call[None, None]) -> Response:
    """Enqueue its job at once; its clock goes on as before."""
    name = _name(call)
    handle = await call.app.schedules.fire(name, by=call.by)
    if handle.outcome != "inserted":
        return done(call, f"Schedule {name}: its last job is still alive, and unique", f"/jobs/{handle.id}")
    return done(call, f"Schedule {name} has fired", f"/jobs/{handle.id}")


class Pause(Struct):
    reason: Annotated[str, Meta(max_length=1024)] | None = None


@routes.page("GET", "/schedules/{name}/pause", action="pause")
async def ask_pause(call: Call[None, None]) -> Response:
    """Ask why."""
    name = _name(call)
    await call.app.schedules.get(name)
    return await ask(
        call,
        Question(
            title=f"Pause schedule {name}?",
            words="It fires nothing until somebody resumes it. What would have fired meanwhile is not made up for.",
            action=f"/schedules/{name}/pause",
            button="Pause",
            fields=[Field(name="reason", label="Reason", placeholder="wrong numbers", hint="Why; everybody sees it.")],
            command=f"treadle schedules pause {name} --reason 'wrong numbers'",
            back="/schedules",
        ),
        page="schedules",
    )


@routes.page("POST", "/schedules/{name}/pause", action="pause", form=Pause)
async def pause(call: Call[None, Pause]) -> Response:
    """Fire nothing until it is resumed."""
    name = _name(call)
    await call.app.schedules.pause(name, reason=call.body.reason, by=call.by)
    return done(call, f"Schedule {name} is paused", "/schedules")


@routes.page("POST", "/schedules/{name}/resume", action="resume")
async def resume(call: Call[None, None]) -> Response:
    """Fire again from now on."""
    name = _name(call)
    await call.app.schedules.resume(name, by=call.by)
    return done(call, f"Schedule {name} fires again", "/schedules")


@routes.page("GET", "/schedules/{name}/remove", action="set_schedule")
async def ask_remove(call: Call[None, None]) -> Response:
    """Ask before it is removed."""
    name = _name(call)
    await call.app.schedules.get(name)
    return await ask(
        call,
        Question(
            title=f"Remove schedule {name}?",
            words="It fires no more. The next deploy does not bring it back; a reset does.",
            action=f"/schedules/{name}/remove",
            button="Remove",
            danger=True,
            command=f"treadle schedules remove {name}",
            back=f"/schedules/{name}",
        ),
        page="schedules",
    )


@routes.page("POST", "/schedules/{name}/remove", action="set_schedule")
async def remove(call: Call[None, None]) -> Response:
    """Fire it no more."""
    name = _name(call)
    await call.app.schedules.remove(name, by=call.by)
    return done(call, f"Schedule {name} is removed", "/schedules", go=True)


@routes.page("POST", "/schedules/{name}/reset", action="set_schedule")
async def reset(call: Call[None, None]) -> Response:
    """As its code declares it."""
    name = _name(call)
    await call.app.schedules.reset(name, by=call.by)
    return done(call, f"Schedule {name} is as its code declares it", f"/schedules/{name}")


class New(Struct):
    name: Annotated[str, Meta(max_length=128)]
    expression: Annotated[str, Meta(max_length=200)]
    task: Annotated[str, Meta(max_length=128)]
    args: str = "{}"
    tz: str = "UTC"
    queue: str | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    misfire: Literal["coalesce", "skip", "catch_up"] = "coalesce"
    overlap: Literal["allow", "skip"] = "allow"
    jitter: str = "0"


@routes.page("GET", "/schedules-new", action="set_schedule")
async def ask_add(call: Call[None, None]) -> Response:
    """A form for a new schedule."""
    tasks = [each.name for each in await call.app.catalog.tasks()]
    return await ask(
        call,
        Question(
            title="Add a schedule",
            action="/schedules-new",
            button="Add",
            fields=[
                Field(name="name", label="Name", placeholder="nightly-report", needed=True),
                Field(
                    name="expression",
                    label="When",
                    placeholder="0 9 * * MON-FRI",
                    hint="A cron line, @hourly and its kin, or: every 10m.",
                    needed=True,
                ),
                Field(name="task", label="Task", list=tasks, needed=True),
                Field(name="args", label="Arguments", kind="json", value="{}", rows=3, hint="A JSON object."),
                Field(name="tz", label="Zone", value="UTC", hint="An IANA name: Europe/Berlin."),
                Field(name="queue", label="Queue", placeholder="the task's own"),
                Field(name="misfire", label="What was missed", kind="select", options=MISFIRES, value="coalesce"),
                Field(name="overlap", label="While the last job runs", kind="select", options=OVERLAPS, value="allow"),
                Field(name="jitter", label="Spread over", value="0", hint="Up to so long after its time: 5m."),
            ],
            command="treadle schedules add nightly-report '0 9 * * MON-FRI' shop.report --tz Europe/Berlin",
            back="/schedules",
        ),
        page="schedules",
    )


@routes.page("POST", "/schedules-new", action="set_schedule", form=New)
async def add(call: Call[None, New]) -> Response:
    """A new schedule. Whoever makes one runs code: it needs the right to enqueue, too."""
    call.need("enqueue")
    body = call.body
    await call.app.schedules.add(
        body.name,
        body.expression,
        body.task,
        arguments(body.args),
        tz=body.tz,
        queue=body.queue,
        priority=body.priority,
        misfire=body.misfire,
        overlap=body.overlap,
        jitter=body.jitter,
        by=call.by,
    )
    return done(call, f"Schedule {body.name} is added", f"/schedules/{body.name}", go=True)


class Edit(Struct):
    version: int | None = None
    expression: Annotated[str, Meta(max_length=200)] | None = None
    tz: str | None = None
    queue: str | None = None
    args: str | None = None
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    misfire: Literal["coalesce", "skip", "catch_up"] | None = None
    overlap: Literal["allow", "skip"] | None = None
    jitter: str | None = None


@routes.page("GET", "/schedules/{name}/edit", action="set_schedule")
async def ask_edit(call: Call[None, None]) -> Response:
    """A form with what can be changed."""
    name = _name(call)
    found = await call.app.schedules.get(name)
    args = call.web.redact.payload(found.args, call.access)
    return await ask(
        call,
        Question(
            title=f"Edit schedule {name}",
            words="An edit survives the next deploy. With another time it starts anew: nothing from before fires.",
            note="Its arguments hold masked values; they stay as they are unless you type them all anew."
            if args != found.args
            else "",
            action=f"/schedules/{name}/edit",
            button="Save",
            hidden={"version": found.version},
            fields=[
                Field(
                    name="expression",
                    label="When",
                    value=found.expression,
                    hint="A cron line, @hourly and its kin, or: every 10m.",
                ),
                Field(name="tz", label="Zone", value=found.zone),
                Field(name="queue", label="Queue", value=found.queue),
                Field(name="args", label="Arguments", kind="json", value=words.pretty(args), rows=4),
                Field(name="priority", label="Priority", kind="number", value=found.priority),
                Field(name="misfire", label="What was missed", kind="select", options=MISFIRES, value=found.misfire),
                Field(
                    name="overlap",
                    label="While the last job runs",
                    kind="select",
                    options=OVERLAPS,
                    value=found.overlap,
                ),
                Field(name="jitter", label="Spread over (seconds, or 5m)", value=f"{found.jitter:g}"),
            ],
            command=f"treadle schedules set {name} --expression {shlex.quote(found.expression)}",
            back=f"/schedules/{name}",
        ),
        page="schedules",
    )


@routes.page("POST", "/schedules/{name}/edit", action="set_schedule", form=Edit)
async def edit(call: Call[None, Edit]) -> Response:
    """Change what differs from what the form showed."""
    name = _name(call)
    body = call.body
    found = await call.app.schedules.get(name)
    given: dict[str, Any] = {}
    for field, now in (
        ("expression", found.expression),
        ("tz", found.zone),
        ("queue", found.queue),
        ("priority", found.priority),
        ("misfire", found.misfire),
        ("overlap", found.overlap),
    ):
        value = getattr(body, field)
        if value is not None and value != now:
            given[field] = value
    if body.jitter is not None and body.jitter != f"{found.jitter:g}":
        given["jitter"] = body.jitter
    shown = words.pretty(call.web.redact.payload(found.args, call.access))
    if body.args is not None and body.args.replace("\r\n", "\n") != shown:
        call.need("enqueue")
        given["args"] = arguments(body.args)
    if not given:
        return done(call, "Nothing was changed", f"/schedules/{name}")
    await call.app.schedules.edit(name, by=call.by, version=body.version, **given)
    return done(call, f"Schedule {name}: {', '.join(given)} changed", f"/schedules/{name}")
