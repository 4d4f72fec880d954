"""Queues over HTTP: what is in them, and their live settings."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ...core.view import QueueView
from ..problem import Problem
from ..routing import Call, Routes
from .acts import instant
from .shapes import DurationText, Instant, PageQuery, Reason, Version, listed, name_of

routes = Routes()

Kept = Annotated[float | str, Meta(description='Seconds, text such as "30d", or "forever".')]


class Queues(Struct, kw_only=True):
    items: list[QueueView]
    next: str | None


class Settings(Struct, forbid_unknown_fields=True, kw_only=True):
    """Live settings; null goes back to the built-in, and what is left out stays."""

    max_workers: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType | None = UNSET
    rate: Annotated[float | str, Meta(description='A second, or text such as "100/m".')] | UnsetType | None = UNSET
    burst: int | UnsetType | None = UNSET
    aging: DurationText | bool | UnsetType | None = UNSET
    timeout: DurationText | UnsetType | None = UNSET
    max_attempts: int | UnsetType | None = UNSET
    backoff: str | UnsetType | None = UNSET
    backoff_base: DurationText | UnsetType | None = UNSET
    backoff_cap: DurationText | UnsetType | None = UNSET
    cool_base: DurationText | UnsetType | None = UNSET
    cool_cap: DurationText | UnsetType | None = UNSET
    keep_succeeded: Kept | UnsetType | None = UNSET
    keep_failed: Kept | UnsetType | None = UNSET
    keep_cancelled: Kept | UnsetType | None = UNSET
    version: Version | None = None


class Pause(Struct, forbid_unknown_fields=True, kw_only=True):
    reason: Reason | None = None
    until: Instant | None = None
    version: Version | None = None


class Edit(Struct, forbid_unknown_fields=True, kw_only=True):
    version: Version | None = None


class Cool(Struct, forbid_unknown_fields=True, kw_only=True):
    duration: DurationText
    version: Version | None = None


class Prune(Struct, forbid_unknown_fields=True, kw_only=True):
    queue: str


class Pruned(Struct):
    removed: int


@routes.api("GET", "/queues", action="see", query=PageQuery, answer=Queues)
async def queues(call: Call[PageQuery, None]) -> Any:
    """All queues: settings, what is in them, which pods serve them."""
    found = await call.web.counts.get(("queues",), call.app.queues.list)
    return listed(found, lambda each: each.name, call.query)


@routes.api("GET", "/queues/{name}", action="see", answer=QueueView)
async def queue(call: Call[None, None]) -> Any:
    """One queue. One that nobody has used yet is there all the same, empty."""
    return await call.app.queues.get(name_of("queue", call.path["name"]))


@routes.api("PATCH", "/queues/{name}", action="set_queue", body=Settings, answer=QueueView, problems=(409,))
async def set_(call: Call[None, Settings]) -> Any:
    """Change live settings. All workers follow, without a restart."""
    names = [name for name in call.body.__struct_fields__ if name != "version"]
    given = {name: value for name in names if (value := getattr(call.body, name)) is not UNSET}
    if not given:
        raise Problem("validation", "nothing to change: give at least one setting")
    name = name_of("queue", call.path["name"])
    return await call.app.queues.set(name, by=call.by, version=call.body.version, **given)


@routes.api("POST", "/queues/{name}/pause", action="pause", body=Pause, answer=QueueView, problems=(409,))
async def pause(call: Call[None, Pause]) -> Any:
    """Claim nothing more from it. What runs goes on, and what is enqueued waits."""
    body = call.body
    return await call.app.queues.pause(
        name_of("queue", call.path["name"]),
        reason=body.reason,
        until=instant(body.until),
        by=call.by,
        version=body.version,
    )


@routes.api("POST", "/queues/{name}/resume", action="resume", body=Edit, answer=QueueView, problems=(409,))
async def resume(call: Call[None, Edit]) -> Any:
    """Claim from it again."""
    return await call.app.queues.resume(name_of("queue", call.path["name"]), by=call.by, version=call.body.version)


@routes.api("POST", "/queues/{name}/warm", action="resume", body=Edit, answer=QueueView, problems=(409,))
async def warm(call: Call[None, Edit]) -> Any:
    """End its cool-down at once."""
    return await call.app.queues.warm(name_of("queue", call.path["name"]), by=call.by, version=call.body.version)


@routes.api("POST", "/queues/{name}/cool", action="pause", body=Cool, answer=QueueView, problems=(409,))
async def cool(call: Call[None, Cool]) -> Any:
    """Claim nothing from it for so long."""
    name = name_of("queue", call.path["name"])
    return await call.app.queues.cool(name, call.body.duration, by=call.by, version=call.body.version)


@routes.api("POST", "/prune", action="prune", body=Prune, answer=Pruned)
async def prune(call: Call[None, Prune]) -> Any:
    """Remove a queue's ended jobs that are over their age, now."""
    removed = await call.app.queues.prune(call.body.queue)
    await call.app.audit.note("queues.prune", call.body.queue, by=call.by, detail=f"{removed} removed")
    return {"removed": removed}
