"""Streams: hints for pages, and one job's progress."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl

from msgspec import Meta, Struct

from ...core.errors import JobNotFound, StorageUnavailable
from ..plain import plain
from ..points import Asked
from ..problem import Problem
from ..routing import Call, Routes, decode_query
from ..stream import KEPT_ALIVE, TOPICS, EventStream, message
from .shapes import Name, job_id

routes = Routes()

LOOK: Final = 0.5
ENDED: Final = ("succeeded", "failed", "cancelled")
FOLLOWED: Final = ("id", "state", "attempt", "progress", "result", "warning")  # the fields of a job that are told


MOST_CHARTS: Final = 8

Step = Annotated[
    int,
    Meta(
        ge=60,
        le=7 * 86_400,
        multiple_of=60,
        description="With `metrics`: tell the last points of a chart with this step, in seconds.",
    ),
]


Fine = Annotated[bool, Meta(description="With `step`: points of 5 s instead, while history is young.")]


class StreamQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    topics: Annotated[str, Meta(max_length=200, description=f"With commas: {', '.join(TOPICS)}.")] = "jobs"
    step: Step | None = None
    queue: Name | None = None
    task: Name | None = None
    fine: Fine = False
    chart: Annotated[
        list[str],
        Meta(
            max_length=MOST_CHARTS,
            description="A further chart, as `step`, `queue`, `task` and `fine` of its own: `step=60&queue=mail`, "
            "encoded. Its points come under this text in `charts`.",
        ),
    ] = []


class ChartQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    """What one `chart` says."""

    step: Step
    queue: Name | None = None
    task: Name | None = None
    fine: Fine = False


@routes.api(
    "GET", "/stream", action="see", query=StreamQuery, is_stream=True, media="text/event-stream", problems=(429, 503)
)
async def stream(call: Call[StreamQuery, None]) -> Any:
    """Hints: which topics have changed. The event's name is the topic, and its data is empty; `metrics` has numbers of
    now, and with `step` the last points of a chart (of a `queue`, of a `task`), as `/series` has them. One stream may
    tell of up to eight more charts, each named by a `chart`."""
    wanted = [each.strip() for each in call.query.topics.split(",") if each.strip()]
    unknown = [each for each in wanted if each not in TOPICS]
    if unknown or not wanted:
        raise Problem("validation", f"topics are {', '.join(TOPICS)}", fields={"field": "topics"})
    hub, query = call.web.hub, call.query
    chart = None if query.step is None else Asked(query.step, query.queue, query.task, query.fine)
    return _opened(call, hub.listen(wanted, chart, {each: _chart(each) for each in query.chart}))


def _chart(text: str) -> Asked:
    try:
        found: ChartQuery = decode_query(ChartQuery, parse_qsl(text, max_num_fields=4), strict=True)
    except (Problem, ValueError) as error:
        said = "a chart is step, and perhaps queue and task, as in a query: step=60&queue=mail"
        raise Problem("validation", said, fields={"field": "chart"}) from error
    return Asked(found.step, found.queue, found.task, found.fine)


@routes.api("GET", "/jobs/{id}/stream", action="see", is_stream=True, media="text/event-stream", problems=(429, 503))
async def job_stream(call: Call[None, None]) -> Any:
    """A job's state, attempt, progress, result and warning, as they change (`job`), and its log (`log`) for whoever may
    see payloads; ends with `end` when the job does."""
    id = job_id(call.path["id"])
    await call.app.jobs.get(id)
    return _opened(call, _follow(call, id))


def _opened(call: Call[Any, Any], source: AsyncIterator[bytes]) -> EventStream:
    """In a place of its own, for as long as the caller has the rights that it has now."""
    leave = call.web.hub.enter(call.web.caller(call.request, call.access))
    return EventStream(source, leave, lambda: call.web.is_still(call.request, call.access))


async def _follow(call: Call[Any, Any], id: str) -> AsyncIterator[bytes]:
    hub = call.web.hub
    loop = asyncio.get_running_loop()
    told: Any = None
    last_line, quiet_since = 0, loop.time()
    while not hub.closing.is_set():
        try:
            job = call.web.redact.job(plain(await call.app.jobs.get(id)), call.access)
            lines = await _lines(call, id, last_line) if call.access.may("payload") else []
        except JobNotFound:
            break
        except StorageUnavailable:
            job, lines = None, []  # it comes back
        now = None if job is None else {name: job[name] for name in FOLLOWED}
        if now is not None and now != told:
            told, quiet_since = now, loop.time()
            yield message("job", now)
        for line in lines:
            last_line, quiet_since = line["n"], loop.time()
            yield message("log", line)
        if told is not None and told["state"] in ENDED and not lines:
            break
        if loop.time() - quiet_since > KEPT_ALIVE:
            quiet_since = loop.time()
            yield b": still here\n\n"
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await hub.closing.wait()
    yield message("end", {})


async def _lines(call: Call[Any, Any], id: str, after: int) -> list[dict[str, Any]]:
    found = await call.app.jobs.logs(id, after=after, limit=200)
    return [call.web.redact.value(plain(line)) for line in found]
