"""Limits: rates of the whole cluster, and the named locks that are held."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from ...core.command_line import argument, command, option
from ...core.errors import Conflict
from ..problem import Problem
from ..routing import Call, Routes
from .asking import Field, Question, ask
from .frame import done, render
from .listed import Asked, listed

routes = Routes()


@routes.page("GET", "/limits", action="see", query=Asked)
async def limits(call: Call[Asked, None]) -> Response:
    """All rate limits, and locks."""
    found, locks = await asyncio.gather(call.app.limits.list(), call.app.locks.list())
    queues = {each.name: each for each in await call.web.counts.get(("queues",), call.app.queues.list)}
    shown = listed(call, found, lambda each: each.name, lambda each: (-each.leased, each.name))
    held = listed(call, locks, lambda each: each.name)
    return await render(
        call,
        "limits.html",
        title="Limits",
        page="limits",
        topics="limits jobs",
        list=shown,
        limits=[(each, queues.get(each.queue) if each.queue else None) for each in shown.rows],
        held=held,
        locks=held.rows,
    )


class Set(Struct):
    name: Annotated[str, Meta(max_length=128)]
    rate: str
    burst: Annotated[int, Meta(ge=1)] | None = None
    version: int | None = None


class Which(Struct):
    name: Annotated[str, Meta(max_length=128)] | None = None


@routes.page("GET", "/limits/set", action="set_limit", query=Which)
async def ask_set(call: Call[Which, None]) -> Response:
    """A form for a limit, a new one or one that is there."""
    found = None if call.query.name is None else await call.app.limits.get(call.query.name)
    name = "" if found is None else found.name
    return await ask(
        call,
        Question(
            title="Add a limit" if found is None else f"Limit {name}",
            words="It holds from the next take on, in the whole cluster. Code does not change it back.",
            action="/limits/set",
            button="Save",
            fields=[
                *([Field(name="name", label="Name", placeholder="slack", needed=True)] if found is None else []),
                Field(
                    name="rate",
                    label="Rate",
                    value="" if found is None else found.rate,
                    placeholder="100/m",
                    needed=True,
                ),
                Field(
                    name="burst",
                    label="At once",
                    kind="number",
                    value="" if found is None else found.burst,
                    hint="Empty: what a second gives, at least 1.",
                ),
            ],
            hidden={} if found is None else {"name": name, "version": found.version},
            command=command(
                "treadle limits set",
                name or argument("name", needed=True),
                argument("rate", needed=True),
                option("burst"),
            ),
            back="/limits",
        ),
        page="limits",
    )


@routes.page("POST", "/limits/set", action="set_limit", form=Set)
async def set_(call: Call[None, Set]) -> Response:
    """Make a limit, or change it."""
    body = call.body
    found = await call.app.limits.set(body.name, body.rate, burst=body.burst, by=call.by, version=body.version)
    return done(call, f"Limit {found.name}: {found.rate}, {found.burst} at once", "/limits")


class Named(Struct):
    name: Annotated[str, Meta(max_length=128)]


@routes.page("POST", "/limits/drain", action="set_limit", form=Named)
async def drain(call: Call[None, Named]) -> Response:
    """Empty it: the far side refuses."""
    found = await call.app.limits.get(call.body.name)
    if found.queue is not None:
        raise Conflict(f"{found.name} is a queue's own rate: pause the queue, or set its rate")
    await call.app.limits.drain(found.name, by=call.by)
    return done(call, f"Limit {found.name} is empty; it refills by its rate", "/limits")


@routes.page("GET", "/limits/remove", action="set_limit", query=Named)
async def ask_remove(call: Call[Named, None]) -> Response:
    """Ask before it is forgotten."""
    found = await call.app.limits.get(call.query.name)
    return await ask(
        call,
        Question(
            title=f"Remove limit {found.name}?",
            words="Tasks that still ask for it fail. One that code declares comes back with its declared rate.",
            action="/limits/remove",
            button="Remove",
            danger=True,
            hidden={"name": found.name},
            command=command("treadle limits remove", found.name),
            back="/limits",
        ),
        page="limits",
    )


@routes.page("POST", "/limits/remove", action="set_limit", form=Named)
async def remove(call: Call[None, Named]) -> Response:
    """Forget it."""
    if not await call.app.limits.remove(call.body.name, by=call.by):
        raise Problem("not_found", f"there is no limit {call.body.name}")
    return done(call, f"Limit {call.body.name} is removed", "/limits")


@routes.page("GET", "/locks/free", action="free_lock", query=Named)
async def ask_free(call: Call[Named, None]) -> Response:
    """Ask before a lock is taken away."""
    return await ask(
        call,
        Question(
            title=f"Free lock {call.query.name}?",
            words="It is taken away from its holder, who is not told: only if the holder is surely gone.",
            action="/locks/free",
            button="Free it",
            danger=True,
            hidden={"name": call.query.name},
            command=command("treadle locks free", call.query.name),
            back="/limits",
        ),
        page="limits",
    )


@routes.page("POST", "/locks/free", action="free_lock", form=Named)
async def free(call: Call[None, Named]) -> Response:
    """Take it away from whoever holds it."""
    if not await call.app.locks.free(call.body.name, by=call.by):
        raise Conflict(f"no lock {call.body.name} is held")
    return done(call, f"Lock {call.body.name} is free", "/limits")
