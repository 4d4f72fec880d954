"""Schedules: what is fired when, how the last fires went, and how operators change it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.responses import Response

from ...core import cron, names
from ...core.command_line import argument, command, option
from ...core.schedule_preview import COUNT, SchedulePreview, fire_times
from ...core.schedule_preview import preview as schedule_preview
from ...core.schedule_view import FireView, ScheduleView
from ..problem import Problem
from ..redact import HIDDEN
from ..routing import Call, Routes
from . import words
from .asking import Field, Question, ask, confirm
from .enqueue import arguments
from .frame import done, render
from .listed import Asked, listed

routes = Routes()

STRIP = 30
LAST = 20
MISFIRES = ("coalesce", "skip", "catch_up")
OVERLAPS = ("allow", "skip")
OVERLAP = "While the last job runs"


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
        times = [each.timestamp() for each in await call.app.schedules.next(name, 10)]
        coming = fire_times(times, found.zone, datetime.now(UTC).timestamp())
    except ValueError:  # its zone is missing here, or a newer version wrote it
        coming = ()
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


@routes.page("GET", "/schedules/{name}/fire", action="fire")
async def ask_fire(call: Call[None, None]) -> Response:
    """Ask before it is fired by hand."""
    name = _name(call)
    found = await call.app.schedules.get(name)
    return await confirm(
        call,
        f"Fire schedule {name} now?",
        f"A job of {found.task} is enqueued at once. Its clock goes on as before.",
        action=f"/schedules/{name}/fire",
        button="Fire now",
        command=command("treadle schedules fire", name),
        back=f"/schedules/{name}",
        page="schedules",
    )


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
            words="It fires nothing until it is resumed. What would have fired meanwhile is not made up for.",
            action=f"/schedules/{name}/pause",
            button="Pause",
            fields=[Field(name="reason", label="Reason", placeholder="wrong numbers", hint="Why; everybody sees it.")],
            command=command("treadle schedules pause", name, option("reason")),
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


@routes.page("GET", "/schedules/{name}/resume", action="resume")
async def ask_resume(call: Call[None, None]) -> Response:
    """Ask before it is resumed."""
    name = _name(call)
    await call.app.schedules.get(name)
    return await confirm(
        call,
        f"Resume schedule {name}?",
        "It fires again from now on. What would have fired meanwhile is not made up for.",
        action=f"/schedules/{name}/resume",
        button="Resume",
        command=command("treadle schedules resume", name),
        back=f"/schedules/{name}",
        page="schedules",
    )


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
            command=command("treadle schedules remove", name),
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


class Draft(Struct):
    """A form as far as it is filled in: to look at, and not to save."""

    name: str = ""
    expression: str = ""
    task: str = ""
    args: str = "{}"
    tz: str = "UTC"
    queue: str = ""
    misfire: str = "coalesce"
    overlap: str = "allow"
    jitter: str = "0"


@routes.page("GET", "/schedules-new", action="set_schedule")
async def ask_add(call: Call[None, None]) -> Response:
    """A form for a new schedule."""
    return await _ask_add(call, Draft())


@routes.page("POST", "/schedules-new/preview", action="set_schedule", form=Draft, only_reads=True)
async def preview_add(call: Call[None, Draft]) -> Response:
    """The form with its next fires, where no script shows them. Sent as a form: arguments have no place in an
    address."""
    return await _ask_add(call, call.body)


async def _ask_add(call: Call[Any, Any], draft: Draft) -> Response:
    tasks = [each.name for each in await call.app.catalog.tasks()]
    return await ask(
        call,
        Question(
            title="Add a schedule",
            action="/schedules-new",
            button="Add",
            fields=[
                Field(name="name", label="Name", value=draft.name, placeholder="nightly-report", needed=True),
                Field(
                    name="expression",
                    label="When",
                    value=draft.expression,
                    placeholder="0 9 * * MON-FRI",
                    hint="A cron line, @hourly and its kin, or: every 10m.",
                    needed=True,
                ),
                Field(name="task", label="Task", value=draft.task, list=tasks, needed=True),
                Field(name="args", label="Arguments", kind="json", value=draft.args, rows=3, hint="A JSON object."),
                Field(name="tz", label="Zone", value=draft.tz, hint="An IANA name: Europe/Berlin."),
                Field(name="queue", label="Queue", value=draft.queue, placeholder="the task's own"),
                Field(name="misfire", label="What was missed", kind="select", options=MISFIRES, value=draft.misfire),
                Field(name="overlap", label=OVERLAP, kind="select", options=OVERLAPS, value=draft.overlap),
                Field(name="jitter", label="Spread over", value=draft.jitter, hint="Up to so long after its time: 5m."),
            ],
            command=command(
                "treadle schedules add",
                argument("name", needed=True),
                argument("expression", needed=True),
                argument("task", needed=True),
                argument("args", unless="{}"),
                option("tz", unless="UTC"),
                option("queue"),
                option("misfire", unless="coalesce"),
                option("overlap", unless="allow"),
                option("jitter", unless="0"),
            ),
            back="/schedules",
            preview=call.url("/schedules-preview"),
            preview_action="/schedules-new/preview",
        ),
        page="schedules",
        fires=await _preview(call, draft.expression, draft.tz) if draft.expression else None,
    )


class Wrong(Struct):
    """Why there are no fires to show."""

    error: str


class Asking(Struct):
    """What is typed into the form; `name`: of the schedule that is edited."""

    expression: Annotated[str, Meta(max_length=400)] = ""
    tz: Annotated[str, Meta(max_length=200)] = "UTC"
    name: Annotated[str, Meta(max_length=128)] = ""


@routes.page("GET", "/schedules-preview", action="set_schedule", query=Asking)
async def preview(call: Call[Asking, None]) -> Response:
    """When an expression fires next: asked for while somebody types it."""
    asked = call.query
    found = await call.app.schedules.get(names.check_name("schedule", asked.name)) if asked.name else None
    return await render(
        call,
        "fires.html",
        title="Next fires",
        page="schedules",
        fires=await _preview(call, asked.expression, asked.tz, found) if asked.expression else None,
        is_paused=found is not None and found.paused,
    )


async def _preview(
    call: Call[Any, Any], expression: str, zone: str, found: ScheduleView | None = None
) -> SchedulePreview | Wrong:
    """By the storage's clock, as schedules are fired."""
    now = await call.app.client.ask(lambda storage: storage.time())
    try:
        times = None
        if found is not None and " ".join(expression.split()) == found.expression:
            is_interval = isinstance(cron.parse(expression), cron.Interval)
            if is_interval or zone == found.zone:
                times = [each.timestamp() for each in await call.app.schedules.next(found.name, COUNT)]
        return schedule_preview(expression, zone, now, times)
    except ValueError as error:
        return Wrong(str(error))


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


class EditDraft(Struct):
    """A form of changes as far as it is filled in; what is empty stays as it is."""

    expression: str | None = None
    tz: str | None = None
    queue: str | None = None
    args: str | None = None
    priority: str | None = None
    misfire: str | None = None
    overlap: str | None = None
    jitter: str | None = None


@routes.page("GET", "/schedules/{name}/edit", action="set_schedule")
async def ask_edit(call: Call[None, None]) -> Response:
    """A form with what can be changed."""
    return await _ask_edit(call, EditDraft())


@routes.page("POST", "/schedules/{name}/edit/preview", action="set_schedule", form=EditDraft, only_reads=True)
async def preview_edit(call: Call[None, EditDraft]) -> Response:
    """The form with its next fires, where no script shows them."""
    return await _ask_edit(call, call.body)


async def _ask_edit(call: Call[Any, Any], draft: EditDraft) -> Response:
    name = _name(call)
    found = await call.app.schedules.get(name)
    args = call.web.redact.payload(found.args, call.access)
    now = {
        "expression": found.expression,
        "tz": found.zone,
        "queue": found.queue,
        "args": words.pretty(args),
        "priority": str(found.priority),
        "misfire": found.misfire,
        "overlap": found.overlap,
        "jitter": f"{found.jitter:g}",
    }
    typed = {key: getattr(draft, key) for key in now}
    shown = {key: value if (given := typed[key]) is None else given for key, value in now.items()}
    hint = "A cron line, @hourly and its kin, or: every 10m."
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
                Field(name="expression", label="When", value=shown["expression"], hint=hint),
                Field(name="tz", label="Zone", value=shown["tz"]),
                Field(name="queue", label="Queue", value=shown["queue"]),
                Field(name="args", label="Arguments", kind="json", value=shown["args"], rows=4),
                Field(name="priority", label="Priority", kind="number", value=shown["priority"]),
                Field(name="misfire", label="What was missed", kind="select", options=MISFIRES, value=shown["misfire"]),
                Field(name="overlap", label=OVERLAP, kind="select", options=OVERLAPS, value=shown["overlap"]),
                Field(name="jitter", label="Spread over (seconds, or 5m)", value=shown["jitter"]),
            ],
            command=command(
                "treadle schedules set", name, *(option(each, unless=was) for each, was in now.items()), some=True
            ),
            back=f"/schedules/{name}",
            preview=call.url("/schedules-preview", name=name),
            preview_action=f"/schedules/{name}/edit/preview",
        ),
        page="schedules",
        fires=await _preview(call, shown["expression"], shown["tz"], found),
        is_paused=found.paused,
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
