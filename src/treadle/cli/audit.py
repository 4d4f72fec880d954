"""`treadle audit`: who did what, and when."""

from __future__ import annotations

import click

from . import bulk, shared
from .command import Invocation, verb
from .target import with_storage


@verb("audit", "treadle audit", "treadle audit --limit 500 --json | jq 'select(.by == \"ann\")'")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, metavar="N")
def audit(call: Invocation, limit: int) -> None:
    """Show what operators have done, the newest first. Lines are kept for 90 days."""
    lines = with_storage(call.config(), lambda app: app.audit.list(limit))
    if call.out.as_json:
        for line in lines:
            call.out.data(bulk.as_json(line))
    elif lines:
        call.out.table(
            ("at", "by", "act", "subject", "detail", "reason"),
            [
                (shared.moment(line.at), line.by or "", line.act, line.subject, line.detail, line.reason or "")
                for line in lines
            ],
        )
    else:
        call.out.say("nothing was done in the last 90 days")
