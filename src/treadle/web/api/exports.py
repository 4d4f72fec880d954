"""Exports: jobs, failures and timings as CSV, as this user may see them. Secrets are masked as they are on the pages,
and no text is a formula in a spreadsheet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Final
from weakref import WeakKeyDictionary

from msgspec import Meta, Struct

from ...core import sheet
from ...core.share import Shares
from ...operate.jobs import JobPage
from ..plain import plain
from ..problem import Problem
from ..routing import Call, Routes
from ..sheets import MEDIA, Sheet, at_once
from .failures import FailureQuery
from .failures import failures as failures_of
from .series import CompareQuery, SeriesQuery, compared_of, pairs_of
from .shapes import FilterText

routes = Routes()

MOST: Final = 100_000
PAGE: Final = 500
SLOWEST: Final = 5.0  # what one page may take
AT_ONCE: Final = 4

_open: WeakKeyDictionary[object, Shares] = WeakKeyDictionary()  # dashboard → who has files being sent


class ExportQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    filter: FilterText = ""
    limit: Annotated[int, Meta(ge=1, le=MOST, description="A last line says so if there are more.")] = MOST


@routes.api("GET", "/jobs.csv", action="see", query=ExportQuery, media=MEDIA, problems=(403, 429))
async def jobs(call: Call[ExportQuery, None]) -> Any:
    """Jobs that match a filter as CSV, newest first; arguments, results and metadata only for whoever may see them."""
    query = call.query
    text = call.web.redact.allowed_filter(query.filter, call.access)
    leave = _enter(call)
    try:
        first = await _page(call, text, query.limit, None)
    except BaseException:
        leave()
        raise
    columns = (*sheet.JOB, *(sheet.PAYLOAD if call.access.may("payload") else ()))
    return Sheet("jobs", columns, _jobs(call, text, first), leave, lambda: call.web.is_still(call.request, call.access))


def _enter(call: Call[Any, Any]) -> Callable[[], None]:
    """A place for one file, of which a caller has two at most; what is answered gives it back."""
    places, caller = _open.setdefault(call.web, Shares(AT_ONCE)), call.web.caller(call.request, call.access)
    if places.take(caller) != "granted":
        said = f"{places.taken} exports are under way, {places.held(caller)} of them yours"
        raise Problem("rate_limited", f"{said}: wait until one of them has ended")
    return lambda: places.give_back(caller)


async def _page(call: Call[ExportQuery, None], text: str, left: int, cursor: str | None) -> JobPage:
    return await call.app.jobs.find(text, limit=min(PAGE, left), cursor=cursor)


async def _jobs(call: Call[ExportQuery, None], text: str, page: JobPage) -> AsyncIterator[Sequence[Any]]:
    may, left = call.access.may("payload"), call.query.limit
    while True:
        for job in page.jobs:
            yield sheet.job(call.web.redact.job(plain(job), call.access), payload=may)
        left -= len(page.jobs)
        if page.next is None or left <= 0:
            break
        async with asyncio.timeout(SLOWEST):
            page = await _page(call, text, left, page.next)
    if page.next is not None:
        yield [f"# there are more: only the newest {call.query.limit:,} are here; narrow the filter for the others"]
    elif page.newest_only is not None:
        yield [
            f"# only the newest {page.newest_only:,} rows were looked at: add state:, queue: or task: to see further"
        ]


@routes.api("GET", "/failures.csv", action="see", query=FailureQuery, media=MEDIA)
async def failures(call: Call[FailureQuery, None]) -> Any:
    """Causes of failed attempts as CSV, the largest group first."""
    found = await failures_of(call)
    rows: list[list[Any]] = [[group[name] for name in sheet.FAILURE] for group in found["items"]]
    if found["capped"]:
        rows.append([f"# only {found['looked_at']:,} jobs were looked at: the newest failures and the next retries"])
    return Sheet("failures", sheet.FAILURE, at_once(rows))


@routes.api("GET", "/series/tasks.csv", action="see", query=SeriesQuery, media=MEDIA)
async def timings(call: Call[SeriesQuery, None]) -> Any:
    """How often each queue and task ran, failed, waited and took, as CSV. Times are in seconds."""
    return Sheet("performance", sheet.TIMING, at_once([sheet.timing(pair) for pair in await pairs_of(call)]))


@routes.api("GET", "/series/compare.csv", action="see", query=CompareQuery, media=MEDIA)
async def compared(call: Call[CompareQuery, None]) -> Any:
    """The same against another range: before, by which share it changed, and the word for it."""
    found = await compared_of(call)
    return Sheet("comparison", sheet.COMPARED, at_once(sheet.compared(found)))
