"""Acknowledging an item of attention: it is folded until it changes."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import Response

from ...core.acknowledgement import LONGEST_KEY, LONGEST_NOTE
from ..routing import Call, Routes
from .asking import Field, Question, ask
from .frame import done

routes = Routes()


class Which(Struct):
    key: Annotated[str, Meta(max_length=LONGEST_KEY)]


class Noted(Struct):
    key: Annotated[str, Meta(max_length=LONGEST_KEY)]
    note: Annotated[str, Meta(max_length=LONGEST_NOTE)] = ""


@routes.page("GET", "/attention/acknowledge", action="mute", query=Which)
async def ask_acknowledge(call: Call[Which, None]) -> Response:
    """Ask for a note."""
    item = await call.web.attending.item(call.query.key)
    return await ask(
        call,
        Question(
            title="Acknowledge this?",
            words=f"“{item.text}” is folded until it changes: until it is worse, has another cause, or begins again.",
            action="/attention/acknowledge",
            button="Acknowledge",
            fields=[Field(name="note", label="Note", placeholder="I am on it", hint="Everybody sees it.")],
            hidden={"key": item.key},
            note=HERE if call.web.is_read_only else "",
            back="/",
        ),
        page="overview",
    )


HERE = "This dashboard is read-only: it remembers in its own process, and forgets when that ends."


@routes.page("POST", "/attention/acknowledge", action="mute", form=Noted, in_memory=True)
async def acknowledge(call: Call[None, Noted]) -> Response:
    """Somebody knows of it: fold it."""
    await call.web.attending.acknowledge(call.body.key, note=call.body.note, by=call.by)
    return done(call, "Acknowledged: it is folded until it changes" + _here(call), "/")


@routes.page("POST", "/attention/unacknowledge", action="mute", form=Which, in_memory=True)
async def unacknowledge(call: Call[None, Which]) -> Response:
    """Show it first again."""
    was = await call.web.attending.unacknowledge(call.body.key, by=call.by)
    return done(call, "It is shown first again" if was else "It was not acknowledged any more", "/")


def _here(call: Call[Any, Any]) -> str:
    return f". {HERE}" if call.web.is_read_only else ""
