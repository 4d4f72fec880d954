"""The pages: one file each. They call the client's verbs, as the command line does, and never the storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ..access import Access
from ..problem import Problem

if TYPE_CHECKING:
    from ..dashboard import Dashboard

TITLES = {
    "unauthorized": "Log in first",
    "forbidden": "Not allowed",
    "not_found": "Not found",
    "conflict": "Too late",
    "validation": "That does not fit",
    "unavailable": "This took too long",
    "internal": "Something went wrong",
}

STORAGE_TITLES = {"away": "The storage cannot be reached", "locked": "The storage is locked"}


async def problem(web: Dashboard, request: Request, found: Problem) -> Response:
    """The answer of an error: a page, or what a script shows where it stands."""
    from . import frame

    state = request.scope["state"]
    access: Access = state["access"]
    if frame.wants_part(request):
        return Response(
            msgspec.json.encode(found.as_json(state["request_id"])),
            status_code=found.status,
            media_type="application/json",
        )
    return frame.answer(
        frame.frame_for(request, access, web),
        "problem.html",
        part=False,
        status=found.status,
        title=STORAGE_TITLES.get(found.fields.get("storage", "")) or TITLES.get(found.kind, "Refused"),
        problem=found,
        request_id=state["request_id"],
    )
