"""Pods: the worker processes, how they fare, and what can be asked of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from ...core.command_line import command
from ...core.view import PodView
from ..routing import Call, Routes
from .asking import Question, ask, confirm
from .frame import done, render
from .listed import Asked, listed

routes = Routes()


class Shown(Struct):
    pod: PodView
    up: float
    cpu: float | None  # a share of one core, since it started
    places: int
    used: int
    asked: str  # what an operator wants of it, while it has not happened


def _shown(pod: PodView, now: datetime) -> Shown:
    up = max(0.0, (now - pod.started_at).total_seconds())
    places = sum(min(slots, pod.shares.get(name, slots)) for name, slots in pod.queues.items())
    if pod.slots is not None:
        places = min(places, pod.slots)
    is_so = {"serve": "live", "quiet": "quiet", "stop": "stopping"}.get(pod.wish) == pod.state
    return Shown(
        pod=pod,
        up=up,
        cpu=pod.cpu_seconds / up if up >= 1 and pod.rss_bytes else None,
        places=places,
        used=sum(pod.runs.values()) if pod.live else pod.running,
        asked="" if is_so or not pod.live else pod.wish,
    )


@routes.page("GET", "/pods", action="see", query=Asked)
async def pods(call: Call[Asked, None]) -> Response:
    """All pods, the lost ones among them until upkeep forgets them."""
    now = datetime.now(UTC)
    found = sorted(await call.app.pods.list(), key=lambda pod: (not pod.live, pod.label))
    shown = listed(call, found, lambda pod: f"{pod.label} {pod.host} {pod.id} {pod.worker_version}")
    return await render(
        call,
        "pods.html",
        title="Pods",
        page="pods",
        topics="pods jobs",
        list=shown,
        pods=[_shown(pod, now) for pod in shown.rows],
        live=sum(pod.live for pod in found),
    )


@routes.page("GET", "/pods/{id}", action="see")
async def pod(call: Call[None, None]) -> Response:
    """One pod with all that it says of itself."""
    found = await call.app.pods.get(call.path["id"])
    readings = await call.app.history.pods(pod=found.id, since="1h")
    running = await call.app.jobs.find(f'state:running pod:"{found.id}"', limit=50)
    return await render(
        call,
        "pod.html",
        title=f"Pod {found.label}",
        page="pods",
        topics="pods jobs",
        it=_shown(found, datetime.now(UTC)),
        pod=found,
        running=running.jobs,
        cpu=[each.cpu for each in readings],
        rss=[float(each.rss) for each in readings],
        lag=[each.lag for each in readings],
        stacks=None,
    )


async def _order(call: Call[Any, Any], wish: str, said: str) -> Response:
    found = await getattr(call.app.pods, wish)(call.path["id"], by=call.by)
    return done(call, f"Pod {found.label} {said}; it hears of it with its next beat", "/pods")


@routes.page("GET", "/pods/{id}/quiet", action="quiet")
async def ask_quiet(call: Call[None, None]) -> Response:
    """Ask before it is made quiet."""
    found = await call.app.pods.get(call.path["id"])
    return await confirm(
        call,
        f"Quiet pod {found.label}?",
        "It claims nothing more. What runs in it goes on, and it can be asked to serve again.",
        action=f"/pods/{found.id}/quiet",
        button="Quiet",
        command=command("treadle pods quiet", found.label),
        back="/pods",
        page="pods",
    )


@routes.page("POST", "/pods/{id}/quiet", action="quiet")
async def quiet(call: Call[None, None]) -> Response:
    """Claim nothing more."""
    return await _order(call, "quiet", "is asked to be quiet")


@routes.page("GET", "/pods/{id}/serve", action="quiet")
async def ask_serve(call: Call[None, None]) -> Response:
    """Ask before it serves again."""
    found = await call.app.pods.get(call.path["id"])
    return await confirm(
        call,
        f"Let pod {found.label} serve again?",
        "It claims jobs of its queues again.",
        action=f"/pods/{found.id}/serve",
        button="Serve",
        command=command("treadle pods resume", found.label),
        back="/pods",
        page="pods",
    )


@routes.page("POST", "/pods/{id}/serve", action="quiet")
async def serve(call: Call[None, None]) -> Response:
    """Claim again."""
    return await _order(call, "serve", "is asked to serve")


@routes.page("GET", "/pods/{id}/stop", action="stop")
async def ask_stop(call: Call[None, None]) -> Response:
    """Ask before a stop."""
    found = await call.app.pods.get(call.path["id"])
    return await ask(
        call,
        Question(
            title=f"Stop pod {found.label}?",
            words="It ends as by SIGTERM: its runs have their grace, what does not end in time is given back, and the "
            "process exits with code 0. There is no way back.",
            action=f"/pods/{found.id}/stop",
            button="Stop the pod",
            danger=True,
            command=command("treadle pods stop", found.label),
            back="/pods",
        ),
        page="pods",
    )


@routes.page("POST", "/pods/{id}/stop", action="stop")
async def stop(call: Call[None, None]) -> Response:
    """End as by SIGTERM."""
    return await _order(call, "stop", "is asked to stop")


@routes.page("POST", "/pods/{id}/stacks", action="stacks")
async def stacks(call: Call[None, None]) -> Response:
    """Where every thread and asyncio task of it stands just now."""
    text = await call.app.pods.stacks(call.path["id"], timeout=5.0, by=call.by)
    found = await call.app.pods.get(call.path["id"])
    return await render(
        call,
        "stacks.html",
        title=f"Stacks of pod {found.label}",
        page="pods",
        pod=found,
        stacks=call.web.redact.text(text),
    )
