"""`treadle operations`: acts upon many jobs, those that run and those that are over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from . import bulk, shared
from .command import Invocation, Verbs
from .confirm import confirm
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App
    from ..core.records import OperationView

operations = Verbs(
    "operations",
    help="Acts upon many jobs: those that are under way, and those of the last 90 days.",
    examples=("treadle operations list", "treadle operations stop 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11"),
)


@operations.verb("list", "treadle operations list", "treadle operations list --json | jq .refused")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, metavar="N")
def list_(call: Invocation, limit: int) -> None:
    """List operations, the newest first, and those under way before all others."""
    found = with_storage(call.config(), lambda app: app.operations.list(limit))
    if call.out.as_json:
        for each in found:
            call.out.data(bulk.as_json(each))
    elif found:
        columns = ("id", "state", "act", "matched", "changed", "too late", "refused", "by", "started", "filter")
        call.out.table(columns, [_row(each) for each in found])
    else:
        call.out.say("no operations")


@operations.verb("show", "treadle operations show 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
@click.argument("id")
def show(call: Invocation, id: str) -> None:
    """Show one operation with its counts."""
    _print(call, with_storage(call.config(), lambda app: app.operations.get(id)))


@operations.verb("stop", "treadle operations stop 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
@click.argument("id")
@shared.confirming
def stop(call: Invocation, id: str, yes: bool, env: str | None) -> None:
    """Stop an operation before its next chunk. What it has changed stays changed."""
    config = call.config()
    if config.production or env is not None:
        confirm(call.out, config, f"stop operation {id}", yes=yes, env=env)

    async def work(app: App) -> OperationView:
        return await app.operations.stop(id, by=shared.operator())

    stopped = with_storage(config, work)
    if call.out.as_json:
        call.out.data(bulk.as_json(stopped))
    else:
        call.out.line(f"{stopped.id}  {stopped.state}")


@operations.verb("resume", "treadle operations resume 019a86f2-7d3c-7a10-b0f5-2f6f7c1f9a11")
@click.argument("id")
@shared.confirming
def resume(call: Invocation, id: str, yes: bool, env: str | None) -> int:
    """Go on with an operation that was stopped, has failed, or lost whoever worked on it; here, with a bar."""
    config = call.config()
    if config.production or env is not None:
        confirm(call.out, config, f"resume operation {id}", yes=yes, env=env)
    with_storage(config, lambda app: app.operations.resume(id, attended=True, by=shared.operator()))
    return bulk.follow(call, config, id, None)


def _print(call: Invocation, found: OperationView) -> None:
    plain = bulk.as_json(found)
    if call.out.as_json:
        call.out.data(plain)
    else:
        call.out.fields((name, _text(value)) for name, value in plain.items() if value is not None)


def _row(found: OperationView) -> tuple[str, ...]:
    counts = (found.matched, found.changed, found.too_late, found.refused)
    return (
        found.id,
        found.state,
        found.act,
        *map(str, counts),
        found.by or "",
        shared.moment(found.created_at),
        found.filter or "all jobs",
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)
