"""Failures: failed jobs by their cause, the largest group first, each with what can be done about all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Meta, Struct
from starlette.responses import Response

from ..routing import Call, Routes
from .frame import render

routes = Routes()


class Of(Struct):
    queue: Annotated[str, Meta(max_length=128)] | None = None
    task: Annotated[str, Meta(max_length=128)] | None = None


@routes.page("GET", "/failures", action="see", query=Of)
async def failures(call: Call[Of, None]) -> Response:
    """Failed jobs, grouped by cause."""
    asked = call.query
    found = await call.web.counts.get(
        ("failures", asked.queue or "", asked.task or "", "50"),
        lambda: call.app.jobs.failures(queue=asked.queue, task=asked.task, limit=50),
    )
    queues = await call.web.counts.get(("queues",), call.app.queues.list)
    groups = [replace(each, message=call.web.redact.text(each.message)) for each in found.groups]
    command = "treadle jobs failures" + "".join(
        f" --{name} {value}" for name, value in (("queue", asked.queue), ("task", asked.task)) if value
    )
    return await render(
        call,
        "failures.html",
        title="Failures",
        page="failures",
        topics="jobs",
        groups=groups,
        total=sum(each.count for each in groups),
        most=max((each.count for each in groups), default=1),
        looked_at=found.looked_at,
        capped=found.capped,
        queue=asked.queue,
        task=asked.task,
        queues=[each.name for each in queues if each.failed],
        command=command,
    )
