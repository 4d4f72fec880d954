"""The system itself: facts, checks, what this user and this storage can do, completion."""

from __future__ import annotations

import platform
import time
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ... import __version__
from ...config import SETTINGS, masked, shown
from ...core.acknowledgement import LONGEST_KEY, LONGEST_NOTE
from ...core.attention import Item
from ...core.fact import bounded
from ...core.warnings import ClusterWarning
from ...operate import doctor as checks
from ...ports import Fact
from .. import palette as palettes
from ..complete import complete as completed
from ..plain import plain
from ..problem import Problem
from ..routing import Call, Routes
from .shapes import LARGEST

routes = Routes()


class SettingView(Struct, kw_only=True):
    name: str
    value: str
    source: str


class System(Struct, kw_only=True):
    """Facts about this process and its storage. No password is among them."""

    version: str
    python: str
    storage: str
    env: str | None
    color: str | None
    read_only: bool
    schema: dict[str, Any]
    vitals: dict[str, Any]
    signals: bool
    uptime: float
    streams: int
    settings: list[SettingView]


class Doctor(Struct, kw_only=True):
    healthy: bool
    checks: list[Fact]


class Warnings(Struct, kw_only=True):
    """The first 200 of `total`."""

    items: list[ClusterWarning]
    total: int


class Attention(Struct):
    """What nobody has acknowledged comes first; the others say who has, in `acknowledged`."""

    items: list[Item]


class Unacknowledge(Struct, forbid_unknown_fields=True, kw_only=True):
    key: Annotated[str, Meta(max_length=LONGEST_KEY, description="As the item has it.")]


class Acknowledge(Unacknowledge, forbid_unknown_fields=True, kw_only=True):
    note: Annotated[str, Meta(max_length=LONGEST_NOTE)] = ""


class Known(Struct, kw_only=True):
    """`kept_here`: the dashboard is read-only, and only this process of it remembers."""

    key: str
    acknowledged: bool
    kept_here: bool


class Capabilities(Struct, kw_only=True):
    """What this user and this storage can do."""

    user: str
    role: str
    actions: list[str]
    read_only: bool
    storage: dict[str, Any]


class CompleteQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    text: Annotated[str, Meta(max_length=2000)] = ""
    at: Annotated[int, Meta(ge=0, le=2000, description="Where the cursor is; left out: at the end.")] | None = None


class Completion(Struct, kw_only=True):
    text: str
    kind: Literal["key", "value"]
    about: str


class Completions(Struct, kw_only=True):
    """What may stand in the place of the characters from `start` to `end`."""

    start: int
    end: int
    items: list[Completion]


class PaletteQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    text: Annotated[str, Meta(max_length=200, description="Words of a verb and of its subject: `pause mail`.")] = ""


class PaletteItem(Struct, kw_only=True):
    """`url` is the page that asks (`asks`), or the page of the subject."""

    title: str
    kind: str
    url: str
    asks: bool


class PaletteItems(Struct, kw_only=True):
    items: list[PaletteItem]


@routes.api("GET", "/system", action="see", answer=System)
async def system(call: Call[None, None]) -> Any:
    """Storage, schema, size, settings (masked)."""
    web, app = call.web, call.app
    config = web.whole.config
    vitals = await app.client.ask(lambda storage: storage.vitals())
    status = await app.client.ask(lambda storage: storage.schema())
    return {
        "version": __version__,
        "python": platform.python_version(),
        "storage": masked(web.whole.url),
        "env": web.env,
        "color": web.color,
        "read_only": web.is_read_only,
        "schema": status,
        "vitals": vitals,
        "signals": app.storage.signals_work,
        "uptime": time.monotonic() - web.started,
        "streams": web.hub.count,
        "settings": [
            {"name": each.name, "value": shown(each.name, config.value(each.name)), "source": config.sources[each.name]}
            for each in SETTINGS
        ],
    }


@routes.api("GET", "/doctor", action="see", answer=Doctor)
async def doctor(call: Call[None, None]) -> Any:
    """Check the whole, and say what helps."""
    status = await call.app.client.ask(lambda storage: storage.schema())
    found = await call.web.counts.get(("doctor",), lambda: checks.examine(call.app.client))
    facts = bounded([checks.python(), checks.schema(status), *found])
    return {"healthy": all(fact.level != "error" for fact in facts), "checks": facts}


@routes.api("GET", "/warnings", action="see", answer=Warnings)
async def warnings(call: Call[None, None]) -> Any:
    """What is wrong in the cluster and will not mend itself."""
    found = await call.web.counts.get(("warnings",), call.app.warnings)
    return {"items": found[:LARGEST], "total": len(found)}


@routes.api("GET", "/attention", action="see", answer=Attention)
async def attention(call: Call[None, None]) -> Any:
    """What to look at first, the worst before the rest: since when, where, and the command that helps."""
    attending = call.web.attending
    return {"items": attending.judge(await attending.gather())}


@routes.api("POST", "/attention/acknowledge", action="mute", body=Acknowledge, answer=Known, in_memory=True)
async def acknowledge(call: Call[None, Acknowledge]) -> Any:
    """Somebody knows of an item: it is folded until it changes. A read-only dashboard remembers it in its process."""
    body = call.body
    await call.web.attending.acknowledge(body.key, note=body.note, by=call.by)
    return {"key": body.key, "acknowledged": True, "kept_here": call.web.is_read_only}


@routes.api("POST", "/attention/unacknowledge", action="mute", body=Unacknowledge, answer=Known, in_memory=True)
async def unacknowledge(call: Call[None, Unacknowledge]) -> Any:
    """Show an item first again."""
    if not await call.web.attending.unacknowledge(call.body.key, by=call.by):
        raise Problem("not_found", "this is not acknowledged")
    return {"key": call.body.key, "acknowledged": False, "kept_here": False}


@routes.api("GET", "/capabilities", action="see", answer=Capabilities)
async def capabilities(call: Call[None, None]) -> Any:
    """What this user may do, and what this storage can."""
    return {
        "user": call.access.user,
        "role": call.access.role,
        "actions": sorted(each for each in call.access.actions if call.may(each)),
        "read_only": call.web.is_read_only,
        "storage": plain(call.app.storage.capabilities),
    }


@routes.api("GET", "/complete", action="see", query=CompleteQuery, answer=Completions)
async def complete(call: Call[CompleteQuery, None]) -> Any:
    """Complete a filter: its keys, then their values."""
    text = call.query.text
    at = len(text) if call.query.at is None else min(call.query.at, len(text))
    return await completed(call.web, text, at, payload=call.access.may("payload"))


@routes.api("GET", "/palette", action="see", query=PaletteQuery, answer=PaletteItems)
async def palette(call: Call[PaletteQuery, None]) -> Any:
    """What typed words may mean: verbs with their subjects that this user may do and that make sense now, the likeliest
    first. Nothing is done: each leads to the page that asks."""
    found = await palettes.found(call, call.query.text)
    return {
        "items": [
            {"title": each.title, "kind": each.kind, "url": call.url(each.path, **each.query), "asks": each.asks}
            for each in found
        ]
    }
