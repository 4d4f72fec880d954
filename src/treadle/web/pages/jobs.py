"""Jobs: find them, tick some or take all that match, and act on them."""

from __future__ import annotations

import asyncio
import shlex
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import Response

from ...core import filter as filters
from ...core.errors import FilterError
from ...core.filter import Filter
from ...core.view import JobView
from ..counts import CAP
from ..routing import Call, Routes
from . import seeing, words
from .frame import render

routes = Routes()

PAGE = 50
SORTED = 2_000  # so many scheduled jobs are shown by their time; of more the newest come first
TABS = ("waiting", "scheduled", "ready", "running", "succeeded", "failed", "cancelled")
ASKED = ("retrying", "stuck")


class Asked(Struct):
    filter: Annotated[str, Meta(max_length=filters.LONGEST)] = ""
    cursor: str | None = None


class Tab(Struct):
    """One state, or question about jobs, with the same other terms."""

    word: str
    filter: str
    count: str
    chosen: bool


class Row(Struct):
    """A job, and the instant that matters in its state."""

    job: JobView
    state: str
    when: datetime | None
    took: float | None
    line: str


@routes.page("GET", "/jobs", action="see", query=Asked)
async def jobs(call: Call[Asked, None]) -> Response:
    """The jobs that match, newest first; what is scheduled by its time, unless there is very much of it."""
    text = " ".join(call.query.filter.split())
    try:
        which = filters.parse(text)
    except FilterError as error:
        return await render(
            call,
            "jobs.html",
            status=400,
            title="Jobs",
            page="jobs",
            filter=text,
            wrong=str(error),
            tabs=[],
            rows=[],
            next=None,
            newest_only=None,
            total="–",
            matching=None,
            first=True,
            acts=(),
            ways=(),
        )
    call.web.redact.check_filter(text, call.access)
    rest = Filter(tuple(term for term in which.terms if not _is_tab(term)))
    ask = call.web.counts.jobs
    counts, stuck = await asyncio.gather(ask(str(rest)), ask(_with(rest, "is:stuck")))
    # Retrying jobs are looked for among the scheduled ones: of very many of these, nobody shall wait for that.
    few = counts["scheduled"] < CAP
    retrying = sum((await ask(_with(rest, "is:retrying"))).values()) if few else None
    is_later = _chosen(which) in ("scheduled", "retrying") and counts["scheduled"] <= SORTED
    page, matching = await asyncio.gather(
        call.app.jobs.find(text, limit=PAGE, cursor=call.query.cursor, next_first=is_later), ask(str(which))
    )
    tabs = _tabs(which, rest, counts, [retrying, sum(stuck.values())])
    total = sum(matching.values())
    capped = any(number >= CAP for number in matching.values())
    return await render(
        call,
        "jobs.html",
        title="Jobs",
        page="jobs",
        topics="jobs",
        filter=text,
        wrong=None,
        tabs=tabs,
        rows=[_row(seeing.job(call, each)) for each in page.jobs],
        next=page.next,
        newest_only=page.newest_only,
        total=words.number(total, CAP) if not capped else f"{CAP // 1000}k+",
        matching=total,
        first=call.query.cursor is None,
        acts=_acts(which),
        ways=_ways(call, text),
    )


def _ways(call: Call[Any, Any], text: str) -> list[str]:
    """The same question on the command line, over HTTP and in Python."""
    origin = f"{call.request.url.scheme}://{call.request.url.netloc}"
    return [
        "treadle jobs find" + (f" {shlex.quote(text)}" if text else ""),
        f"curl '{origin}{call.url('/api/v1/jobs', filter=text)}'",
        f"app.jobs.find({text!r})",
    ]


def _is_tab(term: filters.Term) -> bool:
    if term.negated or len(term.values) != 1:
        return False
    return term.key == "state" or (term.key == "is" and term.values[0].text in ASKED)


def _chosen(which: Filter) -> str | None:
    found = [term.values[0].text for term in which.terms if _is_tab(term)]
    return found[0] if len(found) == 1 else None


def _with(rest: Filter, term: str) -> str:
    return f"{term} {rest}".strip()


def _tabs(which: Filter, rest: Filter, counts: dict[str, int], asked: list[int | None]) -> list[Tab]:
    chosen = _chosen(which)
    capped = any(number >= CAP for number in counts.values())
    all_of_them = f"{CAP // 1000}k+" if capped else words.number(sum(counts.values()))
    found = [Tab("all", str(rest), all_of_them, chosen is None)]
    for state in TABS:
        found.append(Tab(state, _with(rest, f"state:{state}"), words.number(counts[state], CAP), chosen == state))
    for name, number in zip(ASKED, asked, strict=True):
        found.append(Tab(name, _with(rest, f"is:{name}"), words.number(number, CAP), chosen == name))
    return found


def _acts(which: Filter) -> tuple[str, ...]:
    """What can be done to jobs of the chosen state; everything where no state is chosen."""
    match _chosen(which):
        case "succeeded" | "failed" | "cancelled":
            return ("revive", "delete")
        case "running" | "stuck":
            return ("cancel",)
        case "waiting":
            return ("cancel", "priority", "move")
        case "scheduled" | "retrying" | "ready":
            return ("cancel", "reschedule", "priority", "move")
        case _:
            return ("revive", "cancel", "reschedule", "priority", "move", "delete")


def _row(job: JobView) -> Row:
    state = "retrying" if job.state == "scheduled" and job.attempt > 0 else job.state
    when: datetime | None
    match job.state:
        case "scheduled" | "ready" | "waiting":
            when = job.run_at
        case "running":
            when = job.started_at
        case _:
            when = job.finished_at
    took = None
    if job.started_at is not None and job.finished_at is not None and job.finished_at >= job.started_at:
        took = (job.finished_at - job.started_at).total_seconds()
    hidden = job.args == {"hidden": True}
    return Row(job, state, when or job.created_at, took, "" if hidden else words.one_line(job.args))
