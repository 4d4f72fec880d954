"""`treadle jobs timeline`: what happened to one job."""

from __future__ import annotations

import click

from . import shared
from .command import Invocation, verb
from .target import with_storage


@verb(
    "timeline",
    "treadle jobs timeline 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11",
    "treadle jobs timeline 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11 --json | jq .what",
)
@click.argument("id")
def timeline(call: Invocation, id: str) -> None:
    """Show what happened to a job, oldest first."""
    from ..core.series import as_json

    lines = with_storage(call.config(), lambda app: app.history.timeline(id))
    if call.out.as_json:
        for line in lines:
            call.out.data(as_json(line))
        return
    call.out.table(
        ("at", "what", "attempt", "pod", "by", "detail"),
        [
            (shared.moment(line.at), line.what, str(line.attempt or ""), line.pod or "", line.by or "", line.detail)
            for line in lines
        ],
    )
