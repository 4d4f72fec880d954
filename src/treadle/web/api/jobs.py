"""Jobs over HTTP: find them, look at one, and see why it is not running."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from ...core.counted import Counted
from ...core.logline import LogView
from ...core.series import EventView
from ...core.view import ErrorView, ExplanationView, JobView
from ..counts import CAP
from ..plain import plain
from ..routing import Call, Routes
from .shapes import PAGE, Cursor, FilterText, Limit, job_id

routes = Routes()

MOST_LINES: Final = 1000


class JobQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    filter: FilterText = ""
    limit: Limit = PAGE
    cursor: Cursor | None = None
    order: Annotated[Literal["newest", "due"], Meta(description="`due`: what is next comes first.")] = "newest"
    total: Annotated[bool, Meta(description="Also count them, up to 10,000 in each state.")] = True


class Total(Struct):
    value: int
    capped: bool


class JobPage(Struct, kw_only=True):
    """Jobs with their last error only. `newest_only`: terms that no index serves were looked for in so many of the
    newest jobs, not in all."""

    items: list[JobView]
    next: str | None
    total: Total | None
    newest_only: int | None


class Events(Struct):
    items: list[EventView]


class Attempts(Struct):
    items: list[ErrorView]


class LogQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    after: Annotated[int, Meta(ge=0, le=2**53, description="Only lines with higher numbers.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MOST_LINES)] = 200


class Logs(Struct):
    items: list[LogView]


@routes.api("GET", "/jobs", action="see", query=JobQuery, answer=JobPage, problems=(403,))
async def find(call: Call[JobQuery, None]) -> Any:
    """List jobs that match a filter, newest first."""
    query = call.query
    text = call.web.redact.allowed_filter(query.filter, call.access)
    page = await call.app.jobs.find(text, limit=query.limit, cursor=query.cursor, next_first=query.order == "due")
    return {
        "items": [call.web.redact.job(plain(job), call.access) for job in page.jobs],
        "next": page.next,
        "total": total(await call.web.counts.jobs(text)) if query.total else None,
        "newest_only": page.newest_only,
    }


def total(counts: Counted[str]) -> dict[str, Any]:
    """All states together; `capped` if one of them has, or may have, more than was counted."""
    return {"value": sum(counts.values()), "capped": is_capped(counts)}


def is_capped(counts: Counted[str]) -> bool:
    return bool(counts.at_least) or any(each >= CAP for each in counts.values())


@routes.api("GET", "/jobs/{id}", action="see", answer=JobView)
async def get(call: Call[None, None]) -> Any:
    """Show one job with its whole error history."""
    return await shown(call, job_id(call.path["id"]))


async def shown(call: Call[Any, Any], id: str) -> dict[str, Any]:
    """The job as this user may see it."""
    return call.web.redact.job(plain(await call.app.jobs.get(id)), call.access)


@routes.api("GET", "/jobs/{id}/timeline", action="see", answer=Events)
async def timeline(call: Call[None, None]) -> Any:
    """What happened to a job, oldest first."""
    lines = [plain(line) for line in await call.app.history.timeline(job_id(call.path["id"]))]
    return {"items": [{**line, "detail": call.web.redact.text(line["detail"])} for line in lines]}


@routes.api("GET", "/jobs/{id}/attempts", action="see", answer=Attempts)
async def attempts(call: Call[None, None]) -> Any:
    """The failed attempts of a job, oldest first, with their tracebacks."""
    return {"items": (await shown(call, job_id(call.path["id"])))["errors"]}


@routes.api("GET", "/jobs/{id}/explain", action="see", answer=ExplanationView)
async def explain(call: Call[None, None]) -> Any:
    """Why a job is not running, or where it is: the causes in words, the one to act on first."""
    found = plain(await call.app.jobs.explain(job_id(call.path["id"])))
    return call.web.redact.value(found)


@routes.api("GET", "/jobs/{id}/logs", action="payload", query=LogQuery, answer=Logs)
async def logs(call: Call[LogQuery, None]) -> Any:
    """What a job's runs have logged, oldest first: the last lines after `after`."""
    id = job_id(call.path["id"])
    await call.app.jobs.get(id)
    query = call.query
    lines = await call.app.jobs.logs(id, after=query.after, limit=query.limit)
    return {"items": [call.web.redact.value(plain(line)) for line in lines]}
