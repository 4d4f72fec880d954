"""Jobs: find them, tick some or take all that match, and act on them."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Awaitable
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import Response

from ...core import filter as filters
from ...core import filter_words
from ...core.counted import Counted
from ...core.errors import FilterError
from ...core.filter import Filter
from ...core.view import JobView
from ...operate.jobs import JobPage
from ..complete import names_of
from ..counts import CAP
from ..routing import Call, Routes
from . import seeing, words
from .frame import render

routes = Routes()

PAGE = 50
QUICK = 0.25
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
    allowed = filters.parse(call.web.redact.allowed_filter(text, call.access))
    rest = _without_tabs(which)
    seen = await _look(call, allowed, _without_tabs(allowed))
    page, matching = seen.page, seen.matching
    tabs = _tabs(which, rest, seen.counts, [seen.retrying, seen.stuck])
    total = sum(matching.values())
    said = words.total(matching.values(), CAP, more=bool(matching.at_least))
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
        total=said,
        matching=total,
        first=call.query.cursor is None,
        acts=_acts(which),
        ways=_ways(call, text),
        in_words=filter_words.words(which),
        meant=None if page.jobs else await _meant(call, which),
    )


async def _meant(call: Call[Asked, None], which: Filter) -> str | None:
    """Where nothing matches: the nearest spelling of the names in it."""
    keys = {term.key for term in which.terms} & {"queue", "task", "tag", "schedule"}
    near = filter_words.nearest(which, {key: await names_of(call.web, key) for key in keys})
    return None if near is None else str(near)


class Seen(Struct):
    """A page of jobs, and the counts of its tabs."""

    page: JobPage
    counts: Counted[str]
    stuck: Counted[str]
    retrying: Counted[str] | None  # None: it would take too long
    matching: Counted[str]


async def _look(call: Call[Asked, None], which: Filter, rest: Filter) -> Seen:
    """Counts and page side by side: where no index helps, each of them may take a second."""
    ask, chosen, begun = call.web.counts.jobs, _chosen(which), time.monotonic()

    def find(next_first: bool) -> Awaitable[JobPage]:
        return call.app.jobs.find(str(which), limit=PAGE, cursor=call.query.cursor, next_first=next_first)

    if chosen in ("scheduled", "retrying"):
        counts, stuck = await asyncio.gather(ask(str(rest)), ask(_with(rest, "is:stuck")))
        page = await find(next_first=counts["scheduled"] <= SORTED)
    else:
        counts, stuck, page = await asyncio.gather(ask(str(rest)), ask(_with(rest, "is:stuck")), find(False))
    # Retrying jobs may be looked for among the scheduled ones: of very many of these, and where all has taken long
    # already, nobody shall wait for that.
    is_quick = time.monotonic() - begun < QUICK
    retrying = None
    if chosen == "retrying" or (counts["scheduled"] < CAP and is_quick):
        retrying = await ask(_with(rest, "is:retrying"))
    if str(which) == str(rest):
        matching = counts
    elif chosen in TABS:
        matching = Counted({chosen: counts[chosen]}, counts.at_least & {chosen})
    elif chosen is not None:
        matching = stuck if retrying is None or chosen == "stuck" else retrying
    else:
        matching = await ask(str(which))
    return Seen(page, counts, stuck, retrying, matching)


def _ways(call: Call[Any, Any], text: str) -> list[str]:
    """The same question on the command line, over HTTP and in Python."""
    origin = f"{call.request.url.scheme}://{call.request.url.netloc}"
    return [
        "treadle jobs find" + (f" {shlex.quote(text)}" if text else ""),
        f"curl '{origin}{call.url('/api/v1/jobs', filter=text)}'",
        f"app.jobs.find({text!r})",
    ]


def _without_tabs(which: Filter) -> Filter:
    return Filter(tuple(term for term in which.terms if not _is_tab(term)))


def _is_tab(term: filters.Term) -> bool:
    if term.negated or len(term.values) != 1:
        return False
    return term.key == "state" or (term.key == "is" and term.values[0].text in ASKED)


def _chosen(which: Filter) -> str | None:
    found = [term.values[0].text for term in which.terms if _is_tab(term)]
    return found[0] if len(found) == 1 else None


def _with(rest: Filter, term: str) -> str:
    return f"{term} {rest}".strip()


def _tabs(which: Filter, rest: Filter, counts: Counted[str], asked: list[Counted[str] | None]) -> list[Tab]:
    chosen = _chosen(which)
    all_of_them = words.total(counts.values(), CAP, more=bool(counts.at_least))
    found = [Tab("all", str(rest), all_of_them, chosen is None)]
    for state in TABS:
        said = words.number(counts[state], CAP, more=state in counts.at_least)
        found.append(Tab(state, _with(rest, f"state:{state}"), said, chosen == state))
    for name, number in zip(ASKED, asked, strict=True):
        said = "–" if number is None else words.total(number.values(), CAP, more=bool(number.at_least))
        found.append(Tab(name, _with(rest, f"is:{name}"), said, chosen == name))
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
