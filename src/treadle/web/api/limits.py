"""Rate limits and named locks over HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ...core import limit as limiting
from ...operate.limits import LimitView
from ...operate.locks import LockView
from ..problem import Problem
from ..routing import Call, Routes
from .shapes import PageQuery, Version, listed, name_of

routes = Routes()


class Limits(Struct, kw_only=True):
    items: list[LimitView]
    next: str | None


class Locks(Struct, kw_only=True):
    items: list[LockView]
    next: str | None


class SetLimit(Struct, forbid_unknown_fields=True, kw_only=True):
    rate: Annotated[float | str, Meta(description='A second, or text such as "100/m".')]
    burst: Annotated[int, Meta(ge=1, le=limiting.MOST_TOKENS)] | None = None
    version: Version | None = None


class Removed(Struct):
    removed: bool


class Freed(Struct):
    freed: bool


@routes.api("GET", "/limits", action="see", query=PageQuery, answer=Limits)
async def limits(call: Call[PageQuery, None]) -> Any:
    """All rate limits, the queues' own among them."""
    return listed(await call.app.limits.list(), lambda each: each.name, call.query)


@routes.api("GET", "/limits/{scope}", action="see", answer=LimitView)
async def limit(call: Call[None, None]) -> Any:
    """One rate limit as it stands now."""
    return await call.app.limits.get(call.path["scope"])


@routes.api("PUT", "/limits/{scope}", action="set_limit", body=SetLimit, answer=LimitView, problems=(409,))
async def set_(call: Call[None, SetLimit]) -> Any:
    """Make a rate limit, or change it. It holds from the next take on."""
    body = call.body
    return await call.app.limits.set(call.path["scope"], body.rate, burst=body.burst, by=call.by, version=body.version)


@routes.api("DELETE", "/limits/{scope}", action="set_limit", answer=Removed)
async def remove(call: Call[None, None]) -> Any:
    """Forget a rate limit. One that code declares comes back with its declared rate."""
    return {"removed": await call.app.limits.remove(call.path["scope"], by=call.by)}


@routes.api("POST", "/limits/{scope}/drain", action="set_limit", answer=LimitView)
async def drain(call: Call[None, None]) -> Any:
    """Empty a limit: the far side refuses. It refills by its rate."""
    scope = call.path["scope"]
    found = await call.app.limits.get(scope)
    if found.queue is not None:
        raise Problem("conflict", f"{scope} is a queue's own rate: pause the queue, or set its rate")
    await call.app.limits.drain(scope, by=call.by)
    return await call.app.limits.get(scope)


@routes.api("GET", "/locks", action="see", query=PageQuery, answer=Locks)
async def locks(call: Call[PageQuery, None]) -> Any:
    """The named locks that are held."""
    return listed(await call.app.locks.list(), lambda each: each.name, call.query)


@routes.api("DELETE", "/locks/{name}", action="free_lock", answer=Freed)
async def free(call: Call[None, None]) -> Any:
    """Take a lock away from whoever holds it. Its holder is not told: its next renewal fails."""
    return {"freed": await call.app.locks.free(name_of("lock", call.path["name"]), by=call.by)}
