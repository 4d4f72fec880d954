"""Counts: how many jobs there are, by one thing or another. Capped, and at most two seconds old."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from ...core.view import is_at_least
from ..routing import Call, Routes
from .jobs import is_capped
from .shapes import FilterText

routes = Routes()

LOOKED_AT: Final = 10_000
MOST_NAMES: Final = 1_000
_PAGE: Final = 1000


class CountQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    by: Annotated[Literal["state", "queue", "task", "cause", "pod"], Meta(description="What to count by.")] = "state"
    filter: FilterText = ""


class Counts(Struct, kw_only=True):
    """`capped`: a number as high as the cap means "or more", and where no index served, any of them may; by task, cause
    and pod, that only the newest 10,000 jobs were looked at; by anything, that only the 1,000 largest are here."""

    by: str
    counts: dict[str, int]
    capped: bool


@routes.api("GET", "/counts", action="see", query=CountQuery, answer=Counts, problems=(403,))
async def counts(call: Call[CountQuery, None]) -> Any:
    """Count jobs by state, queue, task, cause or pod."""
    by, text = call.query.by, call.web.redact.allowed_filter(call.query.filter, call.access)
    match by:
        case "state":
            found = await call.web.counts.jobs(text)
            return {"by": by, "counts": found, "capped": is_capped(found)}
        case "queue" if not text:
            queues = await call.web.counts.get(("queues",), call.app.queues.list)
            alive = {each.name: each.ready + each.scheduled + each.waiting + each.running for each in queues}
            capped = len(alive) > MOST_NAMES or any(is_at_least(each, "waiting") for each in queues)
            return {"by": by, "counts": dict(Counter(alive).most_common(MOST_NAMES)), "capped": capped}
        case _:
            return await call.web.counts.get(("counts", by, text), lambda: _counted(call, by, text))


async def _counted(call: Call[Any, Any], by: str, text: str) -> dict[str, Any]:
    """Of the newest jobs that match."""
    filter_text = f"{text} state:failed".strip() if by == "cause" else text
    numbers: Counter[str] = Counter()
    cursor: str | None = None
    seen = 0
    while seen < LOOKED_AT:
        page = await call.app.jobs.find(filter_text, limit=_PAGE, cursor=cursor)
        seen += len(page.jobs)
        for job in page.jobs:
            key = _cause(job) if by == "cause" else getattr(job, by)
            if key:
                numbers[key] += 1
        cursor = page.next
        if cursor is None:
            break
    capped = cursor is not None or len(numbers) > MOST_NAMES
    return {"by": by, "counts": dict(numbers.most_common(MOST_NAMES)), "capped": capped}


def _cause(job: Any) -> str | None:
    from ...core.job import ErrorEntry, cause_of

    if job.error is None:
        return None
    entry = ErrorEntry(attempt=job.error.attempt, kind=job.error.kind, type=job.error.type, place=job.error.place)
    return cause_of(job.task, entry)
