"""`treadle jobs mute` and `treadle jobs unmute`: causes of failures that people know of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from ..core.mute import check_cause
from . import shared
from .command import Invocation, verb
from .confirm import confirm
from .errors import NotFound
from .params import REASON, UNTIL, Read
from .target import with_storage

if TYPE_CHECKING:
    from ..app import App

CAUSE = Read("cause", check_cause)


@verb("mute", "treadle jobs mute shop.charge:TimeoutError:shop.bank:connect --until 2h --reason 'bank is down'")
@click.argument("cause", type=CAUSE)
@click.option("--until", type=UNTIL, help="Unmute by itself: 2h, or 2026-11-15T09:00Z.")
@click.option("--reason", type=REASON, help="Why; the audit keeps it.")
@shared.confirming
def mute(call: Invocation, cause: str, until: datetime | None, reason: str | None, yes: bool, env: str | None) -> None:
    """Fold a cause of failures, and leave it out of what is shown first. No job is changed.

    CAUSE: task:exception:place, as `treadle jobs failures --json` shows it.
    """

    async def work(app: App) -> bool:
        await app.jobs.mute(cause, until, by=shared.operator(), reason=reason)
        return True

    _change(call, "mute", cause, work, yes, env)


@verb("unmute", "treadle jobs unmute shop.charge:TimeoutError:shop.bank:connect")
@click.argument("cause", type=CAUSE)
@shared.confirming
def unmute(call: Invocation, cause: str, yes: bool, env: str | None) -> None:
    """Show a cause of failures first again."""

    async def work(app: App) -> bool:
        return await app.jobs.unmute(cause, by=shared.operator())

    _change(call, "unmute", cause, work, yes, env)


def _change(
    call: Invocation, act: str, cause: str, work: Callable[[App], Awaitable[bool]], yes: bool, env: str | None
) -> None:
    config = call.config()
    if config.production or env is not None:
        confirm(call.out, config, f"{act} {cause}", yes=yes, env=env)
    if not with_storage(config, work):
        raise NotFound(f"{cause} is not muted; `treadle jobs failures` shows what is")
    if call.out.as_json:
        call.out.data({"cause": cause, "muted": act == "mute"})
    else:
        call.out.line(f"{cause}  {act}d")
