"""Failures: why attempts fail. Jobs that failed for good and jobs that are tried again, by their cause, the largest
group first, each with what can be done about all of it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from ...core.command_line import command, option
from ...core.command_line import render as command_line
from ...core.mute import check_cause
from ...core.series import PairSeries
from ...core.view import QueueView
from ..routing import Call, Routes
from . import charts
from .asking import Field, Question, ask
from .frame import done, render

routes = Routes()

OFFERED = 20  # queues to choose from


class Of(Struct):
    queue: Annotated[str, Meta(max_length=128)] | None = None
    task: Annotated[str, Meta(max_length=128)] | None = None


@routes.page("GET", "/failures", action="see", query=Of)
async def failures(call: Call[Of, None]) -> Response:
    """Causes of failed attempts, with the jobs that failed for good and those that retry."""
    asked = call.query
    found = await call.web.counts.get(
        ("failures", asked.queue or "", asked.task or "", "50"),
        lambda: call.app.jobs.failures(queue=asked.queue, task=asked.task, limit=50),
    )
    pairs = await call.web.counts.get(
        ("failed", "24h"), lambda: call.app.history.tasks(since="24h", step="1h", waiting=False)
    )
    queues = await call.web.counts.get(("queues",), call.app.queues.list)
    groups = [replace(each, message=call.web.redact.text(each.message)) for each in found.groups]
    same = command_line(
        command("treadle jobs failures", option("queue"), option("task")),
        {"queue": asked.queue or "", "task": asked.task or ""},
    )
    return await render(
        call,
        "failures.html",
        title="Failures",
        page="failures",
        topics="jobs",
        groups=[(each, _over_a_day(pairs, each.task)) for each in groups if not each.muted],
        muted=[(each, _over_a_day(pairs, each.task)) for each in groups if each.muted],
        failed=sum(each.failed for each in groups),
        retrying=sum(each.retrying for each in groups),
        fresh=sum(each.mark == "new" for each in groups),
        deploy=found.deploy,
        most=max((each.count for each in groups), default=1),
        looked_at=found.looked_at,
        capped=found.capped,
        queue=asked.queue,
        task=asked.task,
        queues=_offered(queues, asked.queue),
        command=same.text,
    )


def _offered(queues: Sequence[QueueView], chosen: str | None) -> list[str]:
    """The queues with most failures, and the one that is chosen."""
    most = heapq.nsmallest(
        OFFERED, (each for each in queues if each.failed), key=lambda each: (-each.failed, each.name)
    )
    return sorted({each.name for each in most} | ({chosen} if chosen else set()))


class Cause(Struct):
    cause: str


class Mute(Struct):
    cause: str
    until: str | None = None
    reason: str | None = None


@routes.page("GET", "/failures/mute", action="mute", query=Cause)
async def ask_mute(call: Call[Cause, None]) -> Response:
    """Ask for how long, and why."""
    cause = check_cause(call.query.cause)
    return await ask(
        call,
        Question(
            title="Mute this cause?",
            words=f"{cause} is folded, and left out of the overview. No job is changed, and none is revived.",
            action="/failures/mute",
            button="Mute",
            fields=[
                Field(
                    name="until",
                    label="Unmute by itself after",
                    placeholder="2h",
                    hint="Empty: until it is unmuted by hand.",
                ),
                Field(name="reason", label="Reason", placeholder="the bank knows", hint="Why; the audit keeps it."),
            ],
            hidden={"cause": cause},
            command=command("treadle jobs mute", cause, option("until"), option("reason")),
            back="/failures",
        ),
        page="failures",
    )


@routes.page("POST", "/failures/mute", action="mute", form=Mute)
async def mute(call: Call[None, Mute]) -> Response:
    """People know of it: fold it."""
    body = call.body
    await call.app.jobs.mute(body.cause, body.until or None, by=call.by, reason=body.reason)
    return done(call, "Muted: it is folded, and left out of the overview", "/failures")


@routes.page("POST", "/failures/unmute", action="mute", form=Cause)
async def unmute(call: Call[None, Cause]) -> Response:
    """Show it first again."""
    was_muted = await call.app.jobs.unmute(call.body.cause, by=call.by)
    return done(call, "Unmuted" if was_muted else "It was not muted any more", "/failures")


def _over_a_day(pairs: Sequence[PairSeries], task: str) -> list[int]:
    """How many runs of the task failed, hour by hour."""
    own = [pair.series.points for pair in pairs if pair.task == task]
    return [sum(charts.outcome(point, *charts.BAD) for point in points) for points in zip(*own, strict=False)]
