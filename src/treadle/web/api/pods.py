"""Pods over HTTP: the workers, and what can be asked of them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from ...core.records import DeployView
from ...core.view import PodView
from ..plain import plain
from ..routing import Call, Routes
from .shapes import PageQuery, listed

routes = Routes()


class Pods(Struct, kw_only=True):
    items: list[PodView]
    next: str | None


class Deploys(Struct, kw_only=True):
    items: list[DeployView]


class Stacks(Struct, forbid_unknown_fields=True, kw_only=True):
    timeout: Annotated[float, Meta(ge=0, le=15, description="Seconds to wait for its answer.")] = 5.0


class Stacked(Struct):
    id: str
    label: str
    stacks: str


@routes.api("GET", "/pods", action="see", query=PageQuery, answer=Pods)
async def pods(call: Call[PageQuery, None]) -> Any:
    """All pods, the lapsed and the lost among them."""
    return listed(await call.app.pods.list(), lambda each: each.id, call.query)


@routes.api("GET", "/deploys", action="see", answer=Deploys)
async def deploys(call: Call[None, None]) -> Any:
    """Versions of the user's code (`worker_version`) that workers have registered with, at most 100: the one that was
    first seen last before the others."""
    return {"items": [plain(each) for each in await call.app.pods.deploys()]}


@routes.api("GET", "/pods/{id}", action="see", answer=PodView)
async def pod(call: Call[None, None]) -> Any:
    """One pod, by its id, the beginning of it, or its label."""
    return await call.app.pods.get(call.path["id"])


@routes.api("POST", "/pods/{id}/quiet", action="quiet", answer=PodView)
async def quiet(call: Call[None, None]) -> Any:
    """Let a pod claim nothing more; it hears of it with its next beat."""
    return await _order(call, "quiet")


@routes.api("POST", "/pods/{id}/serve", action="quiet", answer=PodView)
async def serve(call: Call[None, None]) -> Any:
    """Let a quiet pod claim again."""
    return await _order(call, "serve")


@routes.api("POST", "/pods/{id}/stop", action="stop", answer=PodView)
async def stop(call: Call[None, None]) -> Any:
    """End a pod as SIGTERM would."""
    return await _order(call, "stop")


@routes.api("POST", "/pods/{id}/stacks", action="stacks", body=Stacks, answer=Stacked, problems=(503,))
async def stacks(call: Call[None, Stacks]) -> Any:
    """Ask a pod where all its threads and asyncio tasks stand just now."""
    text = await call.app.pods.stacks(call.path["id"], timeout=call.body.timeout, by=call.by)
    found = await call.app.pods.get(call.path["id"])
    return {"id": found.id, "label": found.label, "stacks": call.web.redact.text(text)}


async def _order(call: Call[Any, Any], wish: str) -> PodView:
    found: PodView = await getattr(call.app.pods, wish)(call.path["id"], by=call.by)
    return found
