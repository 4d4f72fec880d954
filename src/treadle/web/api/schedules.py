"""Schedules over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ...core.schedule import MOST_CATCH_UP
from ...core.schedule_view import FireView, ScheduleView
from ..plain import plain
from ..problem import Problem
from ..routing import Call, Routes
from .acts import Priority
from .shapes import DurationText, Name, PageQuery, Reason, Version, name_of, paged

routes = Routes()

Misfire = Literal["coalesce", "skip", "catch_up"]
Overlap = Literal["allow", "skip"]
CatchUp = Annotated[int, Meta(ge=1, le=MOST_CATCH_UP)]


class Schedules(Struct, kw_only=True):
    items: list[ScheduleView]
    next: str | None


class ScheduleQuery(PageQuery, forbid_unknown_fields=True, kw_only=True):
    removed: Annotated[bool, Meta(description="Also those that were removed.")] = False


class FiresQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    n: Annotated[int, Meta(ge=1, le=200)] = 10


class Fires(Struct, kw_only=True):
    """When it fires next, as if it were not paused, and its last fires, newest first."""

    next: list[datetime]
    last: list[FireView]


class NewSchedule(Struct, forbid_unknown_fields=True, kw_only=True):
    name: Name
    expression: Annotated[str, Meta(max_length=200, description="A cron line, or `every 10m`.")]
    task: Name
    args: dict[str, Any] = {}
    tz: Annotated[str, Meta(max_length=100)] = "UTC"
    queue: Name | None = None
    priority: Priority | None = None
    misfire: Misfire = "coalesce"
    catch_up: CatchUp = MOST_CATCH_UP
    overlap: Overlap = "allow"
    jitter: DurationText = 0
    paused: bool = False
    first: Literal["now"] | None = None


class EditSchedule(Struct, forbid_unknown_fields=True, kw_only=True):
    """What is left out stays."""

    expression: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    tz: Annotated[str, Meta(max_length=100)] | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    args: dict[str, Any] | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    misfire: Misfire | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    jitter: DurationText | UnsetType = UNSET
    version: Version | None = None


class Pause(Struct, forbid_unknown_fields=True, kw_only=True):
    reason: Reason | None = None
    version: Version | None = None


class Edit(Struct, forbid_unknown_fields=True, kw_only=True):
    version: Version | None = None


class Fired(Struct, kw_only=True):
    outcome: str
    id: str


def shown(call: Call[Any, Any], schedule: ScheduleView) -> dict[str, Any]:
    """The schedule as this user may see it."""
    seen: dict[str, Any] = plain(schedule)
    seen["args"] = call.web.redact.payload(seen["args"], call.access)
    return seen


def _name(call: Call[Any, Any]) -> str:
    return name_of("schedule", call.path["name"])


@routes.api("GET", "/schedules", action="see", query=ScheduleQuery, answer=Schedules)
async def schedules(call: Call[ScheduleQuery, None]) -> Any:
    """All schedules by name."""
    found = await call.app.schedules.list(removed=call.query.removed)
    page, following = paged(found, lambda each: each.name, call.query)
    return {"items": [shown(call, each) for each in page], "next": following}


@routes.api("GET", "/schedules/{name}", action="see", answer=ScheduleView)
async def schedule(call: Call[None, None]) -> Any:
    """One schedule."""
    return shown(call, await call.app.schedules.get(_name(call)))


@routes.api("GET", "/schedules/{name}/fires", action="see", query=FiresQuery, answer=Fires)
async def fires(call: Call[FiresQuery, None]) -> Any:
    """The next fires of a schedule, and its last ones."""
    name = _name(call)
    try:
        coming = await call.app.schedules.next(name, call.query.n)
    except ValueError:  # its expression cannot be read: `last_error` says so
        coming = ()
    return {"next": coming, "last": await call.app.schedules.fires(name, call.query.n)}


@routes.api(
    "POST", "/schedules", action="set_schedule", body=NewSchedule, answer=ScheduleView, status=201, problems=(409,)
)
async def add(call: Call[None, NewSchedule]) -> Any:
    """Make a schedule at run time."""
    given = {name: getattr(call.body, name) for name in call.body.__struct_fields__}
    name, expression, task, args = (given.pop(each) for each in ("name", "expression", "task", "args"))
    try:
        made = await call.app.schedules.add(name, expression, task, args, by=call.by, **given)
    except TypeError as error:  # arguments that do not fit the task
        raise Problem("validation", str(error)) from None
    return shown(call, made)


@routes.api(
    "PATCH", "/schedules/{name}", action="set_schedule", body=EditSchedule, answer=ScheduleView, problems=(409,)
)
async def edit(call: Call[None, EditSchedule]) -> Any:
    """Change a schedule. What is changed here stays so through every deploy."""
    names = [name for name in call.body.__struct_fields__ if name != "version"]
    given = {name: value for name in names if (value := getattr(call.body, name)) is not UNSET}
    try:
        edited = await call.app.schedules.edit(_name(call), by=call.by, version=call.body.version, **given)
    except TypeError as error:
        raise Problem("validation", str(error)) from None
    return shown(call, edited)


@routes.api("DELETE", "/schedules/{name}", action="set_schedule", body=Edit, answer=ScheduleView, problems=(409,))
async def remove(call: Call[None, Edit]) -> Any:
    """Fire it no more, through every deploy; `reset` brings back what code declares."""
    return shown(call, await call.app.schedules.remove(_name(call), by=call.by, version=call.body.version))


@routes.api("POST", "/schedules/{name}/reset", action="set_schedule", body=Edit, answer=ScheduleView, problems=(409,))
async def reset(call: Call[None, Edit]) -> Any:
    """Make it again what its code declares."""
    return shown(call, await call.app.schedules.reset(_name(call), by=call.by, version=call.body.version))


@routes.api("POST", "/schedules/{name}/pause", action="pause", body=Pause, answer=ScheduleView, problems=(409,))
async def pause(call: Call[None, Pause]) -> Any:
    """Fire nothing until it is resumed; by hand it still can be."""
    body = call.body
    paused = await call.app.schedules.pause(_name(call), reason=body.reason, by=call.by, version=body.version)
    return shown(call, paused)


@routes.api("POST", "/schedules/{name}/resume", action="resume", body=Edit, answer=ScheduleView, problems=(409,))
async def resume(call: Call[None, Edit]) -> Any:
    """Fire again from now on. What would have fired meanwhile was not missed."""
    return shown(call, await call.app.schedules.resume(_name(call), by=call.by, version=call.body.version))


@routes.api("POST", "/schedules/{name}/fire", action="fire", answer=Fired, problems=(409,))
async def fire(call: Call[None, None]) -> Any:
    """Enqueue its job at once, whether it is paused or not; its clock goes on as before."""
    name = _name(call)
    handle = await call.app.schedules.fire(name, by=call.by)
    return {"outcome": handle.outcome, "id": handle.id}
