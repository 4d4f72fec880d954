"""Queues: how much is in them, how fast they go, and their live settings."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from ...core import names, rollup, settings
from ...core.attention import Show, queues_that
from ...core.command_line import argument, command, option
from ...core.duration import seconds
from ...core.listing import MOST
from ...core.view import QueueView
from ..problem import Problem
from ..routing import Call, Routes
from . import charts, depths
from .asking import Field, Question, ask, confirm
from .frame import done, render
from .listed import Asked, listed, rank
from .pace import Lately, lately, paced

routes = Routes()


class Shown(Asked):
    """`show`: those alone that have such a trouble."""

    show: Show | None = None


@routes.page("GET", "/queues", action="see", query=Shown)
async def queues(call: Call[Shown, None]) -> Response:
    """All queues, or those that an item of attention is about; of very many, those first that are stopped or have most
    to do."""
    found, pods, recent = await asyncio.gather(
        call.web.counts.get(("queues",), call.app.queues.list),
        call.app.pods.list(),
        lately(call.web),
    )
    now, show = datetime.now(UTC), call.query.show
    chosen = found if show is None else queues_that(show, found, now)
    shown = listed(call, chosen, lambda each: each.name, rank)
    return await render(
        call,
        "queues.html",
        title="Queues",
        page="queues",
        topics="jobs queues pods",
        list=shown,
        show=show,
        total=len(found),
        queues=paced(shown.rows, pods, recent, now),
    )


@routes.page("GET", "/queues/{name}", action="see")
async def queue(call: Call[None, None]) -> Response:
    """One queue with all its settings."""
    name = call.path["name"]
    found, pods, series, recent, depth = await asyncio.gather(
        _one(call, name),
        call.app.pods.list(),
        call.app.history.series(queue=name, since="1h", fine=True),
        lately(call.web),
        call.app.history.depth(queue=name, since="1h"),
    )
    fine = charts.is_fine(series)
    if fine:
        depth = await depths.beside(call.app, series, name)
        recent = Lately(recent.pairs, depth)
    (it,) = paced([found], pods, recent, datetime.now(UTC))
    told = [(each, _value(found, each.name), getattr(found, each.name) is not None) for each in settings.SETTINGS]
    return await render(
        call,
        "queue.html",
        title=f"Queue {name}",
        page="queues",
        topics="jobs queues pods metrics",
        points=charts.points_of(rollup.MINUTE, queue=name, fine=True),
        fine=fine,
        charts=True,
        it=it,
        queue=found,
        settings=told,
        serving=[pod for pod in pods if pod.live and name in pod.queues][:MOST],
        throughput=charts.throughput(series),
        latency=charts.latency(series),
        depth=depths.of_one(depth, found),
    )


def _value(queue: QueueView, name: str) -> str:
    value = getattr(queue, name)
    return value if isinstance(value, str) else settings.words(name, value)


async def _one(call: Call[Any, Any], name: str) -> QueueView:
    found = {each.name: each for each in await call.app.queues.list()}
    if name not in found:
        near = names.suggest(name, found)
        raise Problem("not_found", f"there is no queue {name}" + (f'; did you mean "{near}"?' if near else ""))
    return found[name]


# What can be done -----------------------------------------------------------------------------------------------------


class Pause(Struct):
    reason: str | None = None
    until: str | None = None


@routes.page("GET", "/queues/{name}/pause", action="pause")
async def ask_pause(call: Call[None, None]) -> Response:
    """Ask why, and for how long."""
    name = call.path["name"]
    await _one(call, name)
    return await ask(
        call,
        Question(
            title=f"Pause queue {name}?",
            words="Nothing more is claimed from it. What runs goes on, and jobs can still be enqueued.",
            action=f"/queues/{name}/pause",
            button="Pause",
            fields=[
                Field(name="reason", label="Reason", placeholder="provider down", hint="Why; everybody sees it."),
                Field(
                    name="until",
                    label="Resume by itself after",
                    placeholder="2h",
                    hint="Empty: until it is resumed by hand.",
                ),
            ],
            command=command("treadle queues pause", name, option("reason"), option("until")),
            back="/queues",
        ),
        page="queues",
    )


@routes.page("POST", "/queues/{name}/pause", action="pause", form=Pause)
async def pause(call: Call[None, Pause]) -> Response:
    """Claim nothing more from it."""
    name = call.path["name"]
    await _one(call, name)
    until = None
    if call.body.until:
        until = datetime.now(UTC) + timedelta(seconds=seconds(call.body.until, "until"))
    await call.app.queues.pause(name, reason=call.body.reason, until=until, by=call.by)
    return done(call, f"Queue {name} is paused", "/queues")


@routes.page("GET", "/queues/{name}/resume", action="resume")
async def ask_resume(call: Call[None, None]) -> Response:
    """Ask before it is resumed."""
    name = call.path["name"]
    found = await _one(call, name)
    return await confirm(
        call,
        f"Resume queue {name}?",
        f"Its jobs are claimed again; {found.ready:,} are ready now.",
        action=f"/queues/{name}/resume",
        button="Resume",
        command=command("treadle queues resume", name),
        back=f"/queues/{name}",
        page="queues",
    )


@routes.page("POST", "/queues/{name}/resume", action="resume")
async def resume(call: Call[None, None]) -> Response:
    """Claim from it again."""
    name = call.path["name"]
    await _one(call, name)
    await call.app.queues.resume(name, by=call.by)
    return done(call, f"Queue {name} is claimed from again", "/queues")


@routes.page("GET", "/queues/{name}/warm", action="resume")
async def ask_warm(call: Call[None, None]) -> Response:
    """Ask before its cool-down ends."""
    name = call.path["name"]
    await _one(call, name)
    return await confirm(
        call,
        f"End the cool-down of queue {name}?",
        "Its jobs are claimed again at once, though what they ask for may still refuse them.",
        action=f"/queues/{name}/warm",
        button="End cool-down",
        command=command("treadle queues set --warm", name),
        back=f"/queues/{name}",
        page="queues",
    )


@routes.page("POST", "/queues/{name}/warm", action="resume")
async def warm(call: Call[None, None]) -> Response:
    """End its cool-down."""
    name = call.path["name"]
    await _one(call, name)
    await call.app.queues.warm(name, by=call.by)
    return done(call, f"The cool-down of queue {name} is over", "/queues")


class Scale(Struct):
    max_workers: str | None = None
    version: int | None = None


@routes.page("GET", "/queues/{name}/scale", action="set_queue")
async def ask_scale(call: Call[None, None]) -> Response:
    """Ask how many may run at once."""
    name = call.path["name"]
    found = await _one(call, name)
    return await ask(
        call,
        Question(
            title=f"Scale queue {name}",
            words=f"{found.running} of its jobs run now, in {found.slots} slots of {found.pods} live pods.",
            action=f"/queues/{name}/scale",
            button="Scale",
            fields=[
                Field(
                    name="max_workers",
                    label="At most so many at once, in the whole cluster",
                    kind="number",
                    value="" if found.max_workers is None else found.max_workers,
                    hint="Empty: no limit but the pods' slots. 0 claims nothing. Lowering it never cancels a run.",
                )
            ],
            hidden={"version": found.version},
            command=command("treadle queues scale", name, argument("max_workers", empty="none")),
            back="/queues",
        ),
        page="queues",
    )


@routes.page("POST", "/queues/{name}/scale", action="set_queue", form=Scale)
async def scale(call: Call[None, Scale]) -> Response:
    """So many at once, in the whole cluster."""
    name = call.path["name"]
    await _one(call, name)
    wanted = settings.read({"max_workers": call.body.max_workers})["max_workers"]
    await call.app.queues.scale(name, wanted, by=call.by, version=call.body.version)
    said = "no limit of its own" if wanted is None else f"at most {wanted} at once"
    return done(call, f"Queue {name}: {said}", "/queues")


class Settings(Struct):
    version: int | None = None
    max_workers: str | None = None
    rate: str | None = None
    burst: str | None = None
    aging: str | None = None
    timeout: str | None = None
    max_attempts: str | None = None
    backoff: str | None = None
    backoff_base: str | None = None
    backoff_cap: str | None = None
    cool_base: str | None = None
    cool_cap: str | None = None
    keep_succeeded: str | None = None
    keep_failed: str | None = None
    keep_cancelled: str | None = None


@routes.page("GET", "/queues/{name}/settings", action="set_queue")
async def ask_settings(call: Call[None, None]) -> Response:
    """A form with every live setting."""
    name = call.path["name"]
    found = await _one(call, name)
    fields = [
        Field(
            name=each.name,
            label=each.name.replace("_", " "),
            value=_written(found, each.name),
            placeholder=each.built_in,
            hint=f"{each.says}; for example {each.example}".replace("`", ""),
        )
        for each in settings.SETTINGS
    ]
    return await ask(
        call,
        Question(
            title=f"Settings of queue {name}",
            words="Every setting holds in all workers at once, with no restart. What is empty has its built-in value.",
            action=f"/queues/{name}/settings",
            button="Save",
            fields=fields,
            hidden={"version": found.version},
            command=command(
                "treadle queues set",
                name,
                *(option(each.name, unless=each.value, empty="default") for each in fields),
                some=True,
            ),
            back=f"/queues/{name}",
        ),
        page="queues",
    )


def _written(queue: QueueView, name: str) -> str:
    """As somebody would write it; empty for the built-in."""
    value = getattr(queue, name)
    return "" if value is None else _value(queue, name)


@routes.page("POST", "/queues/{name}/settings", action="set_queue", form=Settings)
async def set_(call: Call[None, Settings]) -> Response:
    """Live settings: those that differ from what the form showed."""
    name = call.path["name"]
    found = await _one(call, name)
    given: dict[str, Any] = {}
    for each in settings.SETTINGS:
        text = getattr(call.body, each.name) or ""
        if text != _written(found, each.name):
            given[each.name] = text or "default"
    if not given:
        return done(call, "Nothing was changed", f"/queues/{name}")
    await call.app.queues.set(name, by=call.by, version=call.body.version, **given)
    said = ", ".join(f"{key} {value}" for key, value in given.items())
    return done(call, f"Queue {name}: {said}", f"/queues/{name}")


@routes.page("GET", "/queues/{name}/purge", action="cancel")
async def ask_purge(call: Call[None, None]) -> Response:
    """A purge is an operation: it is previewed as one."""
    name = call.path["name"]
    await _one(call, name)
    return call.redirect("/operations/new", act="cancel", filter=f"queue:{name} state:waiting,scheduled,ready")
